"""The metadata topic that a manager keeps in a directory, by Kafka's own tools."""

from __future__ import annotations

import pathlib

import pytest

from tests.contract.metadata_events import FINISHED, segment, to
from tests.support.metadata_cluster import dumped_values, needs_a_broker
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.topic_backed.local_metadata_log import LocalMetadataLogs

pytestmark = pytest.mark.interop


def test_kafkas_tool_reads_it(tmp_path: pathlib.Path) -> None:
    """An operator who takes the directory over into a Kafka must find every event there, in its order."""
    needs_a_broker()
    with LocalMetadataLogs(str(tmp_path), partition_count=3).open(timeout_seconds=30) as log:
        for number in range(20):
            of = segment(number, 10 * number, 10 * number + 9)
            log.append(1, encode_record(of))
            log.append(1, encode_record(to(of, FINISHED))).result(30)
    values = dumped_values(tmp_path)
    assert len(values) == 40
    for number in range(20):
        added, finished = values[2 * number : 2 * number + 2]
        assert added.startswith("RemoteLogSegmentMetadata{")
        assert f"startOffset={10 * number}, endOffset={10 * number + 9}" in added
        assert "COPY_SEGMENT_FINISHED" in finished
