"""One ``.log`` file by itself."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.batches import Batch, encode
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.api import IndexType
from tierlog.remote.tier import StoredSegment, open_tier

LOG = encode(Batch(40, (b"a", b"b"))) + encode(Batch(42, (b"c",), epoch=2))


def only(path: pathlib.Path) -> StoredSegment:
    with open_tier(str(path)) as tier:
        (segment,) = tier.iter_segments()
        assert sum(len(window) for _, window in tier.iter_log_windows(segment)) == segment.size_bytes
        return segment


@pytest.mark.parametrize("name", ["my file.log", "x-0/00000000000000000040.log"])
def test_names(tmp_path: pathlib.Path, name: str) -> None:
    """If this fails, a file that somebody took off a disk cannot be looked at."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(LOG)
    segment = only(path)
    assert (segment.start_offset, segment.end_offset, segment.closed) == (40, 42, True)
    assert dict(segment.metadata.segment_leader_epochs) == {0: 40, 2: 42}
    assert segment.topic_id_partition.topic == {"my file.log": "my file"}.get(name, "x")
    assert segment.name == str(path)


def test_an_empty_one(tmp_path: pathlib.Path) -> None:
    """If this fails, an empty log, which is sound, is an error."""
    path = tmp_path / "e.log"
    path.write_bytes(b"")
    assert only(path).size_bytes == 0


def test_a_damaged_one_is_read_to_its_end(tmp_path: pathlib.Path) -> None:
    """If this fails, the tail of a damaged file is taken for a crash's and left out."""
    path = tmp_path / "d.log"
    path.write_bytes(LOG + b"\xff" * 30)
    segment = only(path)
    assert segment.size_bytes == len(LOG) + 30
    assert segment.end_offset >= 2**31 - 1


def test_what_lies_beside_it(data: pathlib.Path) -> None:
    """If this fails, read_committed over one file of a disk shows aborted records."""
    log = next(
        path.with_suffix(".log")
        for path in sorted((data / "main-plain" / "local-before").rglob("fx-txn-0/*.txnindex"))
        if path.stat().st_size
    )
    with open_tier(str(log)) as tier:
        (segment,) = tier.iter_segments()
        found = tier.fetch_index(segment, IndexType.TRANSACTION)
        assert bytes(found or b"") == log.with_suffix(".txnindex").read_bytes()
        assert tier.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT) is None


def test_one_that_is_not_there(tmp_path: pathlib.Path) -> None:
    """If this fails, a mistyped name reads as an empty log."""
    with open_tier(str(tmp_path / "x.log"), layout="file") as tier, pytest.raises(ObjectNotFoundError):
        list(tier.iter_segments())
    with pytest.raises(ObjectNotFoundError):
        open_tier(str(tmp_path / "x.log"))
