"""The time index against Kafka's vector, its rules and its malformed files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sparse_indexes import encode_time_index
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.segment_indexes import TimeIndex, TimestampOffset

VECTOR = bytes.fromhex("0000018bcfe56800000000050000018bcfe569f400000082")
INDEX = TimeIndex(VECTOR, 100)
FIRST, SECOND = 1700000000000, 1700000000500


def test_vector_both_ways() -> None:
    """Else a read by time begins at the wrong offset."""
    times, offsets = INDEX.columns()
    assert (times.tolist(), offsets.tolist()) == ([FIRST, SECOND], [105, 230])
    assert len(INDEX) == 2
    assert encode_time_index(100, times, offsets) == VECTOR


@pytest.mark.parametrize(
    ("target", "expected"),
    [(0, (-1, 100)), (FIRST - 1, (-1, 100)), (FIRST, (FIRST, 105)), (SECOND - 1, (FIRST, 105)), (2**62, (SECOND, 230))],
)
def test_lookup_is_the_last_entry_at_or_below(target: int, expected: tuple[int, int]) -> None:
    """Else records at the asked time are skipped."""
    assert INDEX.lookup(target) == TimestampOffset(*expected)


def test_preallocated_zeros_are_no_entries() -> None:
    """Else the active segment looks as if it ended in 1970."""
    assert len(TimeIndex(VECTOR + bytes(1200), 100)) == 2


@pytest.mark.parametrize(
    ("times", "offsets"), [([5, 5], [1, 2]), ([5, 4], [1, 2]), ([5, 6], [2, 1]), ([5], [-1]), ([5], [2**31]), ([5], [])]
)
def test_what_kafka_would_refuse_is_not_written(times: list[int], offsets: list[int]) -> None:
    """Else an exported index fails the broker's sanity check."""
    with pytest.raises(ValueError):
        encode_time_index(0, times, offsets)


@given(st.lists(st.integers(0, 2**60), unique=True, max_size=40), st.integers(0, 2**60))
def test_lookup_equals_a_plain_search(times: list[int], target: int) -> None:
    """Else the native search and the meaning of an index differ somewhere between the entries."""
    times = sorted(times)
    index = TimeIndex(encode_time_index(7, times, range(7, 7 + len(times))), 7)
    below = [place for place, time in enumerate(times) if time <= target]
    assert index.lookup(target) == (
        TimestampOffset(times[below[-1]], 7 + below[-1]) if below else TimestampOffset(-1, 7)
    )


def test_malformed_files_name_the_entry(data: Path) -> None:
    """Else a damaged index silently hides records from a read by time."""
    places = {"11-nonmonotonic": 24, "12-size-not-multiple-12": 60, "13-negative-timestamp": 24}
    for name, position in places.items():
        with pytest.raises(CorruptIndexError) as caught:
            TimeIndex((data / f"bad/index/{name}.timeindex").read_bytes(), 821).check()
        assert caught.value.position == position
    TimeIndex((data / "bad/index/10-good.timeindex").read_bytes(), 821).check()


def test_lookups_of_many_timestamps_are_those_of_each() -> None:
    """Else reads since a batch of times begin elsewhere than one by one."""
    base = 100
    index = TimeIndex(encode_time_index(base, range(1000, 4000, 7), range(base + 2, base + 2 + 429)), base)
    targets = list(range(990, 4100))
    timestamps, offsets = index.lookup_many(targets)
    found = [(each.timestamp_ms, each.offset) for each in map(index.lookup, targets)]
    assert list(zip(timestamps.tolist(), offsets.tolist(), strict=True)) == found
