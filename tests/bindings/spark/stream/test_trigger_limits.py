"""How many offsets a trigger takes, beside the arithmetic of Spark's Kafka source."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pyspark_tierlog.stream.stream_offsets import StreamOffsets, from_json, to_json
from pyspark_tierlog.stream.trigger_limits import TriggerLimits

PLACES = st.tuples(st.sampled_from(["orders", "ünï", "a.b"]), st.integers(0, 20))
STARTS = st.dictionaries(PLACES, st.integers(0, 1000), min_size=1, max_size=6)


def sparks(limit: int, start: StreamOffsets, until: StreamOffsets) -> dict[tuple[str, int], int]:
    """KafkaMicroBatchStream.rateLimit, written down from its text."""
    sizes = {each: end - start[each] for each, end in until.items() if end - start[each] > 0}
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(until)
    found = {}
    for each, end in until.items():
        size = sizes.get(each)
        if size is None:
            found[each] = end
            continue
        prorate = limit * (size / total)
        off = start[each] + int(math.ceil(prorate) if prorate < 1 else math.floor(prorate))
        found[each] = min(end, off)
    return found


@given(STARTS, st.lists(st.integers(0, 500), min_size=6, max_size=6), st.integers(1, 2000))
def test_a_trigger_takes_what_sparks_takes(start: dict[tuple[str, int], int], sizes: list[int], limit: int) -> None:
    """If this fails, maxOffsetsPerTrigger means something else than a user knows, or a partition starves."""
    until = {each: offset + size for (each, offset), size in zip(start.items(), sizes, strict=False)}
    limited = TriggerLimits(limit).limited(start, until)
    if sum(until.values()) - sum(start.values()) <= limit:
        assert limited == until
        return
    theirs = sparks(limit, start, until)
    assert all(abs(limited[each] - theirs[each]) <= 1 for each in until)  # a float of theirs may round the other way
    assert all(limited[each] > start[each] for each in until if until[each] > start[each])
    assert sum(limited.values()) - sum(start.values()) <= limit + len(until)


def test_a_batch_waits_for_enough() -> None:
    """If this fails, minOffsetsPerTrigger makes no batch ever, or batches of nothing."""
    limits = TriggerLimits(min_offsets=10, max_delay_ms=1000)
    start = {("orders", 0): 5, ("orders", 1): 7}
    few, enough = {("orders", 0): 9, ("orders", 1): 12}, {("orders", 0): 9, ("orders", 1): 13}
    assert limits.is_too_early(start, few, 999)
    assert not limits.is_too_early(start, few, 1000)
    assert not limits.is_too_early(start, enough, 0)
    assert not limits.is_too_early(start, few | {("orders", 2): 1}, 0)
    assert not TriggerLimits().is_too_early(start, start, 0)


@given(STARTS)
def test_offsets_are_those_of_a_checkpoint(offsets: dict[tuple[str, int], int]) -> None:
    """If this fails, a query does not go on where it ended."""
    assert from_json(to_json(offsets)) == offsets
