"""The history of a partition, asked of real buckets on a disk."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.batches import Batch, message
from tests.support.buckets import Bucket
from tests.support.kip_scripts import SCRIPTS
from tierlog import open_tier
from tierlog.errors import TierlogError, UnknownTopicError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.scan.history import PartitionHistory, TierHistory


def history(root: pathlib.Path, **options: object) -> PartitionHistory:
    with open_tier(str(root)) as tier:
        (only,) = TierHistory(tier, **options).partitions(["orders"])  # type: ignore[arg-type]
    return only


def test_script_5_leaves_the_dead_branch_unreferenced(tmp_path: pathlib.Path) -> None:
    """An operator could not see which objects hold nothing that counts."""
    SCRIPTS["5"](tmp_path)
    known = history(tmp_path)
    assert [(span.segment.start_offset, span.first_offset, span.end_offset_exclusive) for span in known.spans] == [
        (0, 0, 4),
        (4, 4, 6),
    ]
    assert len(known.unreferenced) == 1
    assert (known.earliest_offset, known.end_offset_exclusive, known.gaps) == (0, 6, ())
    assert known.lineage.epochs == LeaderEpochs([(0, 0), (2, 5)])


@pytest.mark.parametrize(
    "checkpoint", [b"", b"0\n1\n", b"0\n2\n0 0\n", b"garbage", b"7\n1\n0 0\n", b"0\n1\n9 0\n", b"\xff\xfe"]
)
def test_a_checkpoint_that_cannot_be_used_is_named_and_the_segments_stand_in(
    tmp_path: pathlib.Path, checkpoint: bytes
) -> None:
    """One damaged kilobyte would make a whole partition unreadable."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [message(0, "m0", 0), message(1, "dead", 0)], lineage={0: 0})
    bucket.segment("u2", [message(1, "m1", 1)], lineage={0: 0, 1: 1}, checkpoint=checkpoint)
    known = history(tmp_path)
    assert [(span.first_offset, span.end_offset_exclusive) for span in known.spans] == [(0, 1), (1, 2)]
    (warning,) = known.warnings
    assert warning.startswith(bucket.keys["u2"])
    assert "checkpoint" in warning


def test_an_index_object_that_is_gone_is_named_too(tmp_path: pathlib.Path) -> None:
    """A partition would be unreadable though its records are all there."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [message(0, "m0", 0)], lineage={0: 0})
    bucket.path("u1", "indexes").unlink()
    known = history(tmp_path)
    assert len(known.spans) == 1
    assert "gone since it was listed" in known.warnings[0]


@pytest.mark.parametrize(("log_start", "wanted"), [(0, (0, 3)), (1, (1, 3)), (2, (2, 3)), (3, (3, 3)), (99, (3, 3))])
def test_the_log_start_offset_cuts(tmp_path: pathlib.Path, log_start: int, wanted: tuple[int, int]) -> None:
    """Deleted records would come back, or a start behind the end would make a negative range."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [message(0, "m0", 0), message(1, "m1", 0)], lineage={0: 0})
    bucket.segment("u2", [message(2, "m2", 0)], lineage={0: 0})
    known = history(tmp_path, log_start_offsets={"orders": {0: log_start}})
    assert (known.earliest_offset, known.end_offset_exclusive) == wanted
    covered = [o for span in known.spans for o in range(span.first_offset, span.end_offset_exclusive)]
    assert covered == list(range(*wanted))


def test_a_log_start_hides_the_gap_below_it(tmp_path: pathlib.Path) -> None:
    """A gap among deleted offsets would be called data loss."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [message(0, "m0", 0)], lineage={0: 0})
    bucket.segment("u2", [message(5, "m5", 0)], lineage={0: 0})
    assert [(gap.first_offset, gap.end_offset_exclusive) for gap in history(tmp_path).gaps] == [(1, 5)]
    assert not history(tmp_path, log_start_offsets={"orders": {0: 5}}).gaps


def test_faults_of_single_segments_can_be_collected(tmp_path: pathlib.Path) -> None:
    """A listing of a bucket with one damaged manifest would show nothing at all."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [Batch(0)], lineage={0: 0})
    bucket.segment("u2", [Batch(1)], lineage={0: 0})
    bucket.path("u2", "rsm-manifest").write_bytes(b"[]")
    faults: list[TierlogError] = []
    assert history(tmp_path, faults=faults).end_offset_exclusive == 1
    assert len(faults) == 1
    assert "rsm-manifest" in str(faults[0])
    with pytest.raises(TierlogError, match="rsm-manifest"):
        history(tmp_path)


def test_partitions_come_by_topic_and_partition(tmp_path: pathlib.Path) -> None:
    """Rows would come in another order than promised."""
    for topic in ("b", "a"):
        for partition in (10, 2, 0):
            Bucket(tmp_path, topic=topic, partition=partition).segment("u1", [Batch(0)], lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        everything = TierHistory(tier).partitions()
        assert [(h.topic, h.partition) for h in everything] == [(t, p) for t in "ab" for p in (0, 2, 10)]
        some = TierHistory(tier).partitions(assigned={"a": [2], "b": [0, 10]})
        assert [(h.topic, h.partition) for h in some] == [("a", 2), ("b", 0), ("b", 10)]
        with pytest.raises(UnknownTopicError, match=r"topic a has no segments of partitions \[3\]"):
            TierHistory(tier).partitions(assigned={"a": [2, 3]})


def test_spans_between_are_cut_and_never_empty(tmp_path: pathlib.Path) -> None:
    """If this fails, a read of nothing opens a segment, or one of a few offsets reads beyond them."""
    bucket = Bucket(tmp_path)
    for first in (0, 3, 6):
        bucket.segment(f"u{first}", [message(first + at, "m", 0) for at in range(3)], lineage={0: 0})
    known = history(tmp_path)

    def between(first: int, end: int) -> list[tuple[int, int]]:
        return [(span.first_offset, span.end_offset_exclusive) for span in known.spans_between(first, end)]

    assert between(0, 9) == [(0, 3), (3, 6), (6, 9)]
    assert between(2, 4) == [(2, 3), (3, 4)]
    assert between(3, 6) == [(3, 6)]
    assert [between(offset, offset) for offset in range(10)] == [[]] * 10
    assert between(9, 20) == []
