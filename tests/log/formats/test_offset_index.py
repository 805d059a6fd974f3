"""The offset index against Kafka's vector, its rules and its malformed files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sparse_indexes import encode_offset_index
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.segment_indexes import OffsetIndex, OffsetPosition

VECTOR = bytes.fromhex("00000005000010000000008200002468")
INDEX = OffsetIndex(VECTOR, 100)


def test_vector_both_ways() -> None:
    """Else every position that a reader seeks to is wrong."""
    offsets, positions = INDEX.columns()
    assert (offsets.tolist(), positions.tolist()) == ([105, 230], [4096, 9320])
    assert len(INDEX) == 2
    assert encode_offset_index(100, offsets, positions) == VECTOR


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (0, OffsetPosition(100, 0)),
        (104, OffsetPosition(100, 0)),
        (105, OffsetPosition(105, 4096)),
        (229, OffsetPosition(105, 4096)),
        (230, OffsetPosition(230, 9320)),
        (2**62, OffsetPosition(230, 9320)),
    ],
)
def test_lookup_is_the_last_entry_at_or_below(target: int, expected: OffsetPosition) -> None:
    """Else a fetch begins behind the record it asks for."""
    assert INDEX.lookup(target) == expected


def test_upper_bound_is_the_first_entry_at_or_behind_the_end() -> None:
    """Else read_committed asks for too few aborted transactions and shows aborted records."""
    assert INDEX.find_upper_bound_offset(position=0, size_bytes=4096) == 105
    assert INDEX.find_upper_bound_offset(position=0, size_bytes=4097) == 230
    assert INDEX.find_upper_bound_offset(position=9320, size_bytes=1) is None


def test_preallocated_zeros_are_no_entries() -> None:
    """Else the active segment of a crashed broker has entries that point to its start."""
    padded = OffsetIndex(VECTOR + bytes(800), 100)
    assert len(padded) == 2
    assert padded.lookup(2**40) == OffsetPosition(230, 9320)


@pytest.mark.parametrize(
    ("offsets", "positions"),
    [([5, 5], [1, 2]), ([6, 5], [1, 2]), ([-1], [0]), ([2**31], [0]), ([1], [-1]), ([1], [2**31]), ([1, 2], [1])],
)
def test_what_kafka_would_refuse_is_not_written(offsets: list[int], positions: list[int]) -> None:
    """Else an exported index makes a broker recover, or serve wrong positions."""
    with pytest.raises(ValueError):
        encode_offset_index(0, offsets, positions)


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=60), st.integers(0, 2**62), st.data())
def test_lookup_equals_a_plain_search(relative: list[int], base: int, data: st.DataObject) -> None:
    """Else the native search and the meaning of an index differ somewhere between the entries."""
    offsets = [base + r for r in sorted(relative)]
    index = OffsetIndex(encode_offset_index(base, offsets, range(1, len(offsets) + 1)), base)
    target = data.draw(st.integers(base, base + 2**31))
    below = [place for place, offset in enumerate(offsets) if offset <= target]
    expected = OffsetPosition(offsets[below[-1]], below[-1] + 1) if below else OffsetPosition(base, 0)
    assert index.lookup(target) == expected


def test_malformed_files_name_the_entry(data: Path) -> None:
    """Else a damaged index sends a reader to bytes that are no batch."""
    places = {"01-nonmonotonic": 24, "02-size-not-multiple-8": 40, "04-negative-relative-offset": 24}
    for name, position in places.items():
        with pytest.raises(CorruptIndexError) as caught:
            OffsetIndex((data / f"bad/index/{name}.index").read_bytes(), 821).check()
        assert caught.value.position == position
    beyond = OffsetIndex((data / "bad/index/03-position-beyond-segment.index").read_bytes(), 821)
    with pytest.raises(CorruptIndexError):
        beyond.check(segment_size_bytes=60_000)
    for name in ("00-good", "05-all-zero"):
        OffsetIndex((data / f"bad/index/{name}.index").read_bytes(), 821).check(segment_size_bytes=70_000)


def test_lookups_of_many_targets_are_those_of_each() -> None:
    """Else a batch of fetches begins elsewhere than the fetches one by one would."""
    base = 100
    index = OffsetIndex(encode_offset_index(base, range(base + 3, base + 3000, 7), range(0, 42_900, 100)), base)
    targets = list(range(base - 5, base + 3100))
    offsets, positions = index.lookup_many(targets)
    found = [(each.offset, each.position) for each in map(index.lookup, targets)]
    assert list(zip(offsets.tolist(), positions.tolist(), strict=True)) == found
