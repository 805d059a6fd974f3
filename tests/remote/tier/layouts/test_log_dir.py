"""A broker's disk, also one that a broker is writing to, or that a crash left behind."""

from __future__ import annotations

import pathlib
import shutil
import struct

import pytest

from tests.support.batches import Batch, encode
from tests.support.segments import producer_snapshot, topic_uuid
from tierlog.errors import CorruptIndexError, TierlogError
from tierlog.remote.api import ZERO_UUID, IndexType
from tierlog.remote.tier import StoredSegment, Tier, open_tier


def log(*starts: int, epoch: int = 0) -> bytes:
    return b"".join(encode(Batch(start, (b"v", b"w"), epoch, timestamp_ms=1000 + start)) for start in starts)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two closed segments and an active one; offsets 4 and 5 were compacted away."""
    made = tmp_path / "disk" / "orders-0"
    made.mkdir(parents=True)
    for start, content in ((0, log(0, 2)), (6, log(6)), (8, log(8, 10, epoch=3))):
        (made / f"{start:020d}.log").write_bytes(content)
    (made / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 8\n")
    (made / f"{6:020d}.snapshot").write_bytes(producer_snapshot({}))
    (made / f"{9:020d}.snapshot").write_bytes(producer_snapshot({7: 8}))
    return made


def listed(folder: pathlib.Path) -> list[StoredSegment]:
    with open_tier(str(folder.parent), layout="log-dir") as tier:
        return list(tier.iter_segments())


def test_segments_end_where_the_next_one_begins(folder: pathlib.Path) -> None:
    """If this fails, compaction leaves offsets that belong to no segment, and pruning goes wrong."""
    found = listed(folder)
    assert [(s.start_offset, s.end_offset, s.closed) for s in found] == [(0, 5, True), (6, 7, True), (8, 11, False)]
    assert [s.metadata.max_timestamp_ms for s in found] == [1003, 1007, 1011]
    assert [dict(s.metadata.segment_leader_epochs) for s in found] == [{0: 0}, {0: 6}, {3: 8}]
    assert len({s.metadata.remote_log_segment_id for s in found}) == 3
    assert {s.topic_id_partition.topic_id for s in found} == {ZERO_UUID}


def test_the_topic_id_is_that_of_the_folder(folder: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a topic that was deleted and made again is one with its namesake."""
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_uuid('orders')}")
    assert {str(s.topic_id_partition.topic_id) for s in listed(folder)} == {topic_uuid("orders")}
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: nonsense")
    assert {s.topic_id_partition.topic_id for s in listed(folder)} == {ZERO_UUID}
    assert "topic id is unknown" in caplog.text


def test_a_snapshot_counts_only_where_it_was_taken(folder: pathlib.Path) -> None:
    """If this fails, read_committed goes by transactions of a moment that is not the segment's end."""
    first, _, active = listed(folder)
    with open_tier(str(folder.parent)) as tier:
        assert tier.fetch_index(first, IndexType.PRODUCER_SNAPSHOT) is not None
        assert tier.fetch_index(active, IndexType.PRODUCER_SNAPSHOT) is None
        (folder / f"{12:020d}.snapshot").write_bytes(producer_snapshot({}))
        assert tier.fetch_index(listed(folder)[2], IndexType.PRODUCER_SNAPSHOT) is not None


@pytest.mark.parametrize("torn", [b"\0" * 500, log(12)[:-3], log(12)[:20], b"\xff" * 100])
def test_the_active_segment_counts_up_to_its_last_valid_batch(folder: pathlib.Path, torn: bytes) -> None:
    """If this fails, a disk after a crash cannot be read, or gives what the broker will throw away."""
    path = folder / f"{8:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    active = listed(folder)[-1]
    assert (active.end_offset, active.size_bytes) == (11, len(whole))
    assert active.log.object_size_bytes == len(whole + torn)
    with open_tier(str(folder.parent)) as tier:
        assert b"".join(bytes(window) for _, window in tier.iter_log_windows(active)) == whole


def test_preallocated_indexes(folder: pathlib.Path) -> None:
    """If this fails, the active segment's zeros are entries, or its end is not found."""
    entry = struct.pack(">ii", 3, len(log(8)))
    (folder / f"{8:020d}.index").write_bytes(entry + bytes(1 << 20))
    (folder / f"{8:020d}.timeindex").write_bytes(struct.pack(">qi", 9999, 1) + bytes(12 << 10))
    active = listed(folder)[-1]
    assert (active.end_offset, active.metadata.max_timestamp_ms) == (11, 9999)


def test_an_empty_active_segment_is_none(folder: pathlib.Path) -> None:
    """If this fails, a partition that has just rolled has a segment that ends before it begins."""
    (folder / f"{12:020d}.log").write_bytes(b"")
    found = listed(folder)
    assert [s.start_offset for s in found] == [0, 6, 8]
    assert all(s.closed for s in found)
    with open_tier(str(folder.parent)) as tier:
        assert tier.topics()[0].partitions == (0,)


def test_files_on_their_way_out_are_no_segments(folder: pathlib.Path) -> None:
    """If this fails, deleted and half cleaned segments are read."""
    for suffix in (".deleted", ".cleaned", ".swap"):
        (folder / f"{0:020d}.log{suffix}").write_bytes(log(0))
    assert [s.start_offset for s in listed(folder)] == [0, 6, 8]


def test_a_log_without_a_checkpoint_has_the_epochs_of_its_batches(folder: pathlib.Path) -> None:
    """If this fails, a folder that somebody copied by hand has no history."""
    (folder / "leader-epoch-checkpoint").unlink()
    assert [dict(s.metadata.segment_leader_epochs) for s in listed(folder)] == [{0: 0}, {0: 6}, {3: 8}]


def test_a_broken_checkpoint_is_named(folder: pathlib.Path) -> None:
    """If this fails, records of dead branches are read for lack of a lineage, in silence."""
    (folder / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    faults: list[TierlogError] = []
    with open_tier(str(folder.parent)) as tier:
        assert list(tier.iter_segments(faults=faults)) == []
    assert isinstance(faults[0], CorruptIndexError)
    assert "orders-0/leader-epoch-checkpoint" in str(faults[0])


class TestLiveDirectory:
    """Retention runs while we read."""

    def test_a_segment_that_goes_while_listing(self, folder: pathlib.Path) -> None:
        """If this fails, reading a live disk fails now and then."""
        with open_tier(str(folder.parent)) as tier:
            segments = tier.iter_segments()
            assert next(segments).start_offset == 0
            (folder / f"{6:020d}.log").unlink()
            assert [s.start_offset for s in segments] == [8]

    def test_a_folder_that_goes_while_listing(self, folder: pathlib.Path) -> None:
        """The same for a partition that moves to another disk."""
        with open_tier(str(folder.parent)) as tier:
            shutil.rmtree(folder)
            assert list(tier.iter_segments()) == []

    def test_an_active_index_that_is_cut_when_the_broker_rolls(self, folder: pathlib.Path) -> None:
        """If this fails, a roll between listing and reading looks like a truncated file."""
        index = folder / f"{8:020d}.index"
        index.write_bytes(struct.pack(">ii", 3, len(log(8))) + bytes(800))
        with open_tier(str(folder.parent)) as tier:
            active = list(tier.iter_segments())[-1]
            index.write_bytes(index.read_bytes()[:8])
            assert bytes(tier.fetch_index(active, IndexType.OFFSET) or b"") == index.read_bytes()


def test_the_golden_disk(fixtures: pathlib.Path) -> None:
    """If this fails, a real broker's disk is not read as the broker itself describes it to its tier."""
    with open_tier(str(fixtures / "main-plain" / "objects")) as bucket:
        described = {(s.topic_id_partition, s.start_offset): s for s in bucket.iter_segments()}
    compared = 0
    for broker in ("broker1", "broker2"):
        with open_tier(str(fixtures / "main-plain" / "local-before" / broker)) as tier:
            compared += compare(tier, described)
    assert compared > 40


def compare(tier: Tier, described: dict[tuple[object, int], StoredSegment]) -> int:
    count = 0
    for segment in tier.iter_segments():
        known = described.get((segment.topic_id_partition, segment.start_offset))
        if known is None or not segment.closed:
            continue
        assert segment.end_offset == known.end_offset
        assert segment.size_bytes == known.size_bytes
        assert segment.metadata.max_timestamp_ms == known.metadata.max_timestamp_ms
        assert segment.metadata.segment_leader_epochs == known.metadata.segment_leader_epochs
        assert segment.metadata.txn_idx_empty == known.metadata.txn_idx_empty
        count += 1
    return count
