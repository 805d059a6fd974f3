"""First and last offsets, and enough records for a limit, for as few bytes as that takes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tierlog import open_tier
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.planning.probes import (
    ByteBudget,
    OverBudgetError,
    find_first_offset,
    find_last_offset,
    take_enough,
)
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import ScanRequest, TopicSelection

ORDERS = TopicSelection.of_names(["orders"])
PIECE = 64 << 10
MUCH = 1 << 30
BATCH_BYTES = 3000


@contextmanager
def ranges_of(root: pathlib.Path, *segments: list[Batch], **options: object) -> Iterator[tuple[Tier, list[ScanRange]]]:
    bucket = Bucket(root, index_interval_bytes=1)
    for number, batches in enumerate(segments):
        bucket.segment(f"u{number}", batches, lineage={0: 0})
    with open_tier(str(root)) as tier:
        yield tier, list(plan_scan(tier, ScanRequest(ORDERS, **options)).ranges)  # type: ignore[arg-type]


def batches(first: int, count: int, *, empty: int = 0) -> list[Batch]:
    """Of one record each; the first ``empty`` are headers without records, as the cleaner leaves them."""
    return [Batch(first + number, () if number < empty else (b"v" * BATCH_BYTES,)) for number in range(count)]


def spent(budget: ByteBudget) -> int:
    return MUCH - budget.left_bytes


def test_the_first_and_the_last_offset_cost_one_piece_each(tmp_path: pathlib.Path) -> None:
    """If this fails, a min or a max of offsets reads a partition from end to end."""
    with ranges_of(tmp_path, batches(10, 200), batches(210, 200)) as (tier, ranges):
        first, last = ByteBudget(MUCH), ByteBudget(MUCH)
        assert find_first_offset(tier, ranges, first) == 10
        assert find_last_offset(tier, ranges, last) == 409
        assert spent(first) == PIECE
        assert PIECE - BATCH_BYTES < spent(last) <= PIECE + BATCH_BYTES + 200


def test_a_long_way_to_the_first_record_is_gone_in_growing_steps(tmp_path: pathlib.Path) -> None:
    """If this fails, a partition whose begin was compacted away costs a request for each 64 KiB."""
    empty = 12_000  # of 61 bytes each: eleven pieces
    asked: list[int] = []

    class Counting(ByteBudget):
        def spend(self, size_bytes: int) -> None:
            asked.append(size_bytes)
            super().spend(size_bytes)

    with ranges_of(tmp_path, batches(0, empty + 400, empty=empty)) as (tier, ranges):
        assert find_first_offset(tier, ranges, Counting(MUCH)) == empty
        assert asked == [PIECE, 4 * PIECE, 16 * PIECE]


def test_a_budget_is_what_may_be_spent_in_all(tmp_path: pathlib.Path) -> None:
    """If this fails, a plan reads more of the log than it may, once for each partition."""
    budget = ByteBudget(100)
    budget.spend(60)
    budget.spend(40)
    assert budget.left_bytes == 0
    with pytest.raises(OverBudgetError):
        budget.spend(1)
    with ranges_of(tmp_path, batches(0, 100)) as (tier, ranges):
        for find in (find_first_offset, find_last_offset):
            with pytest.raises(OverBudgetError):
                find(tier, ranges, ByteBudget(PIECE - BATCH_BYTES - 200))
        shared = ByteBudget(3 * PIECE)
        find_first_offset(tier, ranges, shared)
        find_first_offset(tier, ranges, shared)
        assert shared.left_bytes == PIECE


def test_partitions_without_records_have_neither(tmp_path: pathlib.Path) -> None:
    """If this fails, an offset is returned that no record has."""
    with ranges_of(tmp_path, batches(0, 5, empty=5), batches(5, 5, empty=5)) as (tier, ranges):
        assert find_first_offset(tier, ranges, ByteBudget(MUCH)) is None
        assert find_last_offset(tier, ranges, ByteBudget(MUCH)) is None


@pytest.mark.parametrize("limit", [1, 2, 99, 100, 101, 150, 299, 300])
def test_enough_is_as_many_as_were_asked_for_and_hardly_more(tmp_path: pathlib.Path, limit: int) -> None:
    """If this fails, LIMIT gives less than there is, or reads all of it."""
    three = [batches(first, 100) for first in (0, 100, 200)]
    with ranges_of(tmp_path, *three) as (tier, ranges):
        taken = take_enough(tier, ranges, limit, ByteBudget(MUCH))
        offsets = [
            offset
            for each in taken
            for batch in read_scan_range(tier, each, columns=("offset",))
            for offset in batch.column(0).to_pylist()
        ]
    assert offsets == [*range(len(offsets))]
    window = (256 << 10) // BATCH_BYTES + 1
    assert limit <= len(offsets) <= limit + window
    assert len(taken) == -(-limit // 100)


def test_less_than_enough_is_no_answer(tmp_path: pathlib.Path) -> None:
    """If this fails, a plan with a limit leaves records out."""
    with ranges_of(tmp_path, batches(0, 100)) as (tier, ranges), pytest.raises(OverBudgetError):
        take_enough(tier, ranges, 101, ByteBudget(MUCH))
