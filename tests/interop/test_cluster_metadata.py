"""Readers by the metadata topic of a running Kafka."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import tierlog
from tests.conftest import DATA
from tests.support.command import Run
from tests.support.command import tierlog as command  # noqa: F401 - a fixture
from tests.support.golden import metadata_folders
from tests.support.metadata_cluster import delete_topic, manager_config, needs_a_broker
from tests.support.peers import broker
from tierlog.errors import ConfigError, CorruptRecordError
from tierlog.records.decoding import decode
from tierlog.remote.api import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, RemoteStorageException
from tierlog.remote.metadata.metadata_log import MetadataValues
from tierlog.remote.metadata.metadata_source import FollowedCluster, open_metadata
from tierlog.remote.metadata.record_serde import decode_record, encode_record
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLog, KafkaMetadataLogs

pytestmark = pytest.mark.interop

RUN = DATA / "main-plain"


def records() -> Iterator[tuple[int, bytes]]:
    """Metadata partition and value of the golden records."""
    for path in sorted(pathlib.Path(metadata_folders(RUN)[0]).glob("__remote_log_metadata-*/*.log")):
        for value in decode(path.read_bytes(), columns=("value",)).column("value").to_pylist():
            yield int(path.parent.name.rpartition("-")[2]), value


@contextlib.contextmanager
def filled(folder: pathlib.Path) -> Iterator[str]:
    """A cluster whose topic has the records of the golden data, each in the partition that it had there."""
    needs_a_broker()
    with broker.running(folder / "broker", heap="512m") as running:
        with KafkaMetadataLogs(manager_config(running.bootstrap, folder / "manager")).open(timeout_seconds=60) as log:
            for future in [log.append(partition, value) for partition, value in records()]:
                future.result(30)
        yield running.bootstrap


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with filled(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def own_bootstrap(tmp_path: pathlib.Path) -> Iterator[str]:
    """For a test that changes the topic."""
    with filled(tmp_path) as made:
        yield made


def test_the_same_as_the_topics_files(bootstrap: str) -> None:
    """Else what a running cluster says of a segment is another thing than what its disks say."""
    with (
        open_metadata(metadata_folders(RUN), remember_departed=True) as files,
        open_metadata(bootstrap, remember_departed=True) as cluster,
    ):
        assert sorted(cluster.partitions()) == sorted(files.partitions())
        for partition in files.partitions():
            assert list(cluster.readable(partition)) == list(files.readable(partition))
            assert cluster.newest_record_ms(partition) > 0
        known = {segment.remote_log_segment_id for segment in files.segments()}
        assert {segment.remote_log_segment_id for segment in cluster.segments()} == known
        assert all(cluster.last_state(each) is files.last_state(each) for each in known)


def test_reads_by_it(bootstrap: str, command: Run) -> None:  # noqa: F811
    """Else the one source that is never out of date cannot be given to a read."""
    plain = tierlog.read(RUN / "objects", "fx-txn").read_all()
    assert tierlog.read(RUN / "objects", "fx-txn", metadata=bootstrap).read_all().equals(plain)
    shown = command("cat", RUN / "objects", "fx-txn", "--count", "--metadata", bootstrap)
    assert (shown.code, shown.text.strip()) == (0, str(plain.num_rows))
    compared = command("ls", RUN / "objects", "fx-txn", "--metadata", bootstrap, "--output", "json")
    assert compared.code == 0
    assert {row["in"] for row in compared.lines} == {"both"}


def test_what_cannot_be_reached_or_added(bootstrap: str, tmp_path: pathlib.Path) -> None:
    """Else a wrong address waits for ever, or a second source is silently left out."""
    with pytest.raises(ConfigError, match="no other source"):
        open_metadata([bootstrap, metadata_folders(RUN)[0]])
    with pytest.raises((RemoteStorageException, ConfigError)):
        open_metadata("localhost:1")
    with pytest.raises(ConfigError):
        open_metadata(bootstrap, client_keys={"security.protocl": "SSL"})


def test_what_has_come_is_read_on_from_the_last_read(
    own_bootstrap: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that asks every few seconds would read a topic of a million records each time, on the driver."""
    asked: list[dict[int, int]] = []
    read = KafkaMetadataLog.read

    def counted(log: KafkaMetadataLog, positions: Mapping[int, int], **limits: Any) -> list[MetadataValues]:
        asked.append(dict(positions))
        return read(log, positions, **limits)

    monkeypatch.setattr(KafkaMetadataLog, "read", counted)
    followed = FollowedCluster(own_bootstrap)
    first = followed.read()
    known = {each.remote_log_segment_id: each for each in first.segments()}
    assert all(position == 0 for position in asked[0].values())
    asked.clear()
    assert followed.read() is first
    assert asked == []
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    gone = next(each for each, segment in known.items() if segment.state is finished)
    partition = next(number for number, value in records() if gone.id in value)
    with KafkaMetadataLogs(manager_config(own_bootstrap, tmp_path)).open(timeout_seconds=60) as log:
        end = log.bounds([partition], timeout_seconds=10)[partition].end_offset
        for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
            update = RemoteLogSegmentMetadataUpdate(
                gone, event_timestamp_ms=1, custom_metadata=None, state=state, broker_id=1
            )
            log.append(partition, encode_record(update)).result(30)
    second = followed.read()
    assert second is not first
    assert asked[0] == {partition: end}
    assert {each.remote_log_segment_id for each in second.segments()} == known.keys() - {gone}
    with open_metadata(own_bootstrap) as whole:
        assert set(whole.segments()) == set(second.segments())


def test_a_topic_that_was_made_anew_is_read_from_its_begin(own_bootstrap: str, tmp_path: pathlib.Path) -> None:
    """Its first records would be passed over, and segments of the old one be read for ever."""
    followed = FollowedCluster(own_bootstrap)
    assert len(list(followed.read().segments())) > 1
    delete_topic(own_bootstrap)
    with pytest.raises((ConfigError, RemoteStorageException)):
        followed.read()
    number, begun = next(records())
    with KafkaMetadataLogs(manager_config(own_bootstrap, tmp_path)).open(timeout_seconds=60) as log:
        log.append(number, begun).result(30)
    (segment,) = followed.read().segments()
    assert segment == decode_record(begun)


def test_a_record_that_cannot_be_read(own_bootstrap: str, tmp_path: pathlib.Path) -> None:
    """If this fails, what comes behind a damaged record is taken for the whole at the second try."""
    followed = FollowedCluster(own_bootstrap)
    followed.read()
    with KafkaMetadataLogs(manager_config(own_bootstrap, tmp_path)).open(timeout_seconds=60) as log:
        log.append(0, b"\xff none of the serde's").result(30)
    texts = set()
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as raised:
            followed.read()
        texts.add(str(raised.value))
    assert len(texts) == 1
