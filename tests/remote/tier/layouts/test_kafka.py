"""The plain layout of our own: Kafka's names, ``segment.json`` last."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.batches import encode, message
from tests.support.segments import leader_epochs, producer_snapshot, topic_uuid
from tierlog.errors import CorruptObjectError, TierlogError
from tierlog.remote.api import IndexType
from tierlog.remote.tier import open_tier

TOPIC_ID, SEGMENT_ID = topic_uuid("t"), topic_uuid("s")
LOG = b"".join(encode(message(offset, "v", 0)) for offset in range(3, 8))


def write(root: pathlib.Path, change: Callable[[dict[str, Any]], object] = lambda document: None) -> pathlib.Path:
    folder = root / f"tier/orders-{TOPIC_ID}/2/{SEGMENT_ID}"
    folder.mkdir(parents=True)
    files = {
        "log": (f"{3:020d}.log", LOG),
        "index": (f"{3:020d}.index", b""),
        "timeindex": (f"{3:020d}.timeindex", bytes(12)),
        "snapshot": (f"{8:020d}.snapshot", producer_snapshot({})),
        "leader-epoch-checkpoint": ("leader-epoch-checkpoint", leader_epochs({0: 0}, 8)),
    }
    for name, content in files.values():
        (folder / name).write_bytes(content)
    document: dict[str, Any] = {
        "version": 1,
        "topic": "orders",
        "topicId": TOPIC_ID,
        "partition": 2,
        "segmentId": SEGMENT_ID,
        "startOffset": 3,
        "endOffset": 7,
        "maxTimestampMs": 5,
        "brokerId": 1,
        "eventTimestampMs": 6,
        "segmentLeaderEpochs": {"0": 3},
        "parts": {suffix: {"size": len(content), "crc32c": "00000000"} for suffix, (_, content) in files.items()},
        "something": "new",
    }
    change(document)
    (folder / "segment.json").write_text(json.dumps(document))
    return folder


def test_a_segment_reads(tmp_path: pathlib.Path) -> None:
    """If this fails, what `tierlog copy` writes in Kafka's own names cannot be read back."""
    write(tmp_path)
    with open_tier(str(tmp_path)) as tier:
        assert tier.layout == "kafka"
        (segment,) = tier.iter_segments("orders")
        assert (segment.start_offset, segment.end_offset, segment.metadata.broker_id) == (3, 7, 1)
        assert b"".join(bytes(window) for _, window in tier.iter_log_windows(segment)) == LOG
        assert tier.fetch_index(segment, IndexType.OFFSET) == b""
        assert bytes(tier.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT) or b"") == producer_snapshot({})
        assert bytes(tier.fetch_index(segment, IndexType.LEADER_EPOCH) or b"").startswith(b"0\n1\n")
        assert tier.fetch_index(segment, IndexType.TRANSACTION) is None


def test_without_its_commit_marker_there_is_no_segment(tmp_path: pathlib.Path) -> None:
    """If this fails, an upload that broke off is read as data."""
    (write(tmp_path) / "segment.json").unlink()
    with open_tier(str(tmp_path)) as tier:
        assert list(tier.iter_segments()) == []
        assert tier.foreign_objects == 5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(topic="other"), "another segment"),
        (lambda d: d.update(endOffset=1), "below start offset"),
        (lambda d: d.update(segmentLeaderEpochs={}), "leader epoch"),
        (lambda d: d.update(segmentLeaderEpochs={"x": 1}), "invalid literal"),
        (lambda d: d["parts"].pop("snapshot"), r"parts\.snapshot"),
        (lambda d: d["parts"]["log"].update(size=-1), r"parts\.log\.size"),
        (lambda d: d["parts"]["index"].update(size=1 << 31), r"parts\.index\.size"),
        (lambda d: d["parts"].update(txnindeh={"size": 34}), "txnindex is missing"),
        (lambda d: d["parts"]["log"].update(crc32b=d["parts"]["log"].pop("crc32c")), "crc32c is missing"),
    ],
)
def test_a_description_that_cannot_be(
    tmp_path: pathlib.Path, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    """If this fails, a damaged description is a traceback or a wrong segment."""
    write(tmp_path, change)
    faults: list[TierlogError] = []
    with open_tier(str(tmp_path)) as tier:
        assert list(tier.iter_segments(faults=faults)) == []
        with pytest.raises(CorruptObjectError, match=told):
            raise faults[0]


def test_a_part_that_is_shorter_than_described(tmp_path: pathlib.Path) -> None:
    """If this fails, a truncated upload is a shorter log."""
    log = write(tmp_path) / f"{3:020d}.log"
    log.write_bytes(LOG[:-1])
    with open_tier(str(tmp_path)) as tier, pytest.raises(CorruptObjectError, match="ends early"):
        list(tier.iter_log_windows(next(tier.iter_segments())))
