"""Kafka's own test storage: a segment is whole when its files are, and ends where its last batch does."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tierlog.remote.tier import StoredSegment, open_tier


@pytest.fixture
def root(data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(data / "local-tiered" / "objects", tmp_path / "tier")
    return tmp_path / "tier"


def listed(root: pathlib.Path) -> list[StoredSegment]:
    with open_tier(str(root)) as tier:
        return list(tier.iter_segments())


def test_segments_join(data: pathlib.Path) -> None:
    """If this fails, offsets between two segments look lost, or doubled."""
    segments = [s for s in listed(data / "local-tiered" / "objects") if s.topic_id_partition.topic == "fx-local-txn"]
    assert len(segments) > 2
    ends = [s.end_offset + 1 for s in segments]
    assert [s.start_offset for s in segments][1:] == ends[:-1]
    assert any(not s.metadata.txn_idx_empty for s in segments)


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"])
def test_a_file_that_is_missing_makes_it_no_segment(root: pathlib.Path, suffix: str) -> None:
    """If this fails, an upload that broke off is read as data."""
    before = listed(root)
    victim = next(root.rglob(f"{before[0].start_offset:020d}-{before[0].metadata.remote_log_segment_id.id}.{suffix}"))
    victim.unlink()
    assert listed(root) == before[1:]


def test_a_damaged_tail_does_not_hide_the_segment(root: pathlib.Path) -> None:
    """If this fails, records behind the damage are pruned away, and a read is shorter in silence."""
    before = listed(root)[0]
    path = root / before.log.key
    path.write_bytes(path.read_bytes()[:-9])
    after = next(s for s in listed(root) if s.log.key == before.log.key)
    assert after.end_offset >= before.end_offset
    assert after.metadata.max_timestamp_ms >= before.metadata.max_timestamp_ms
    assert after.size_bytes == before.size_bytes - 9
