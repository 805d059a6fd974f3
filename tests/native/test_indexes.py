"""Index searches against a plain search, real files, and the malformed ones."""

from __future__ import annotations

import contextlib
import pathlib
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native import indexes
from tierlog.errors import CorruptIndexError

I64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def offset_entries(draw: st.DrawFn) -> list[tuple[int, int]]:
    offsets = sorted(draw(st.sets(st.integers(0, 500), max_size=40)))
    positions = sorted(draw(st.sets(st.integers(1, 10_000), min_size=len(offsets), max_size=len(offsets))))
    return list(zip(offsets, positions, strict=True))


@given(offset_entries(), st.integers(0, 2**40), st.integers(-10, 600), st.integers(0, 3))
def test_offset_searches_are_plain_searches(
    entries: list[tuple[int, int]], base: int, target: int, preallocated: int
) -> None:
    """Else a fetch begins behind the record it asks for, or far before it."""
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    indexes.check_offset_index(data, base)
    data += bytes(8 * (preallocated if len(entries) != 1 else 0))
    absolute = [(base + offset, position) for offset, position in entries]
    if entries or not preallocated:
        assert indexes.offset_index_entries(data) == len(entries)
    below = [entry for entry in absolute if entry[0] <= base + target]
    found = indexes.lookup_offset(data, base, base + target)
    assert found == (below[-1] if below else (base, 0))
    after = [offset for offset, position in absolute if position >= 5000 + target]
    assert indexes.find_upper_bound_offset(data, base, 5000, target) == (after[0] if after else None)


@given(st.lists(st.tuples(st.integers(0, 2**41), st.integers(0, 2**31 - 1)), max_size=30), st.integers(-5, 2**41))
def test_time_lookup_is_a_plain_search(pairs: list[tuple[int, int]], target: int) -> None:
    """Else a read since a time misses records."""
    timestamps = sorted({timestamp for timestamp, _ in pairs})
    offsets = sorted(offset for _, offset in pairs)[: len(timestamps)]
    entries = list(zip(timestamps, offsets, strict=True))
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    indexes.check_time_index(data, 7)
    if len(entries) > 1 and entries[-1] == (0, 0):
        return
    below = [(timestamp, 7 + offset) for timestamp, offset in entries if timestamp <= target]
    assert indexes.lookup_timestamp(data, 7, target) == (below[-1] if below else (-1, 7))
    read = indexes.read_time_index(data, 7)
    assert [column.tolist() for column in read] == [timestamps, [7 + offset for offset in offsets]]


@given(st.binary(max_size=200), I64, I64)
def test_any_bytes_are_searched_within_bounds(data: bytes, base: int, target: int) -> None:
    """Else a hostile index crashes the process."""
    indexes.lookup_offset(data, base, target)
    indexes.find_upper_bound_offset(data, base, target, target)
    indexes.lookup_timestamp(data, base, target)
    indexes.read_offset_index(data, base)
    indexes.read_time_index(data, base)
    for check in (indexes.check_offset_index, indexes.check_time_index, indexes.check_transaction_index):
        with contextlib.suppress(ValueError):  # CorruptIndexError is one too
            check(data, base)


@given(offset_entries(), st.integers(0, 2**40), st.lists(st.integers(-10, 600) | I64, max_size=70))
def test_many_lookups_find_what_single_ones_do(entries: list[tuple[int, int]], base: int, targets: list[int]) -> None:
    """Else a batch of fetches begins elsewhere than the fetches one by one would."""
    targets = [min(max(base + target, -(2**63)), 2**63 - 1) for target in targets]
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    found = zip(*(column.tolist() for column in indexes.lookup_offsets(data, base, targets)), strict=True)
    assert list(found) == [indexes.lookup_offset(data, base, target) for target in targets]
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    found = zip(*(column.tolist() for column in indexes.lookup_timestamps(data, base, targets)), strict=True)
    assert list(found) == [indexes.lookup_timestamp(data, base, target) for target in targets]


@given(st.binary(max_size=2000), I64, st.lists(I64, max_size=70))
def test_many_targets_are_searched_within_bounds(data: bytes, base: int, targets: list[int]) -> None:
    """Else a hostile index crashes the process."""
    asked = np.array(targets, np.int64)
    for columns in (indexes.lookup_offsets(data, base, asked), indexes.lookup_timestamps(data, base, asked)):
        assert [column.size for column in columns] == [len(targets)] * 2


def test_many_lookups_release_the_interpreter_in_long_runs_alone() -> None:
    """Both ways of the call, above and below where it is worth it, find the same."""
    data = b"".join(struct.pack(">ii", 3 * i + 2, 100 * i + 1) for i in range(1000))
    targets = np.arange(-5, 3100)
    whole = indexes.lookup_offsets(data, 0, targets)
    parts = [indexes.lookup_offsets(data, 0, part) for part in np.split(targets, 45)]
    for column, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert np.array_equal(column, np.concatenate(pieces))
    timed = b"".join(struct.pack(">qi", 3 * i + 2, 100 * i + 1) for i in range(1000))
    times = indexes.lookup_timestamps(timed, 0, targets)
    parts_of_times = [indexes.lookup_timestamps(timed, 0, part) for part in np.split(targets, 45)]
    for column, pieces in zip(times, zip(*parts_of_times, strict=True), strict=True):
        assert np.array_equal(column, np.concatenate(pieces))


@pytest.mark.parametrize("lookup", [indexes.lookup_offsets, indexes.lookup_timestamps])
def test_targets_that_are_no_row_are_refused(lookup: Callable[[bytes, int, Any], tuple[Any, Any]]) -> None:
    """Else a table of offsets would be searched as far as its first rows go."""
    for targets in ([[1, 2]], 5, np.zeros((2, 3), np.int64), [2**63], [1.5], ["1"], [2**64]):
        with pytest.raises(ValueError, match="a row of 64-bit integers"):
            lookup(bytes(16), 0, targets)
    assert [column.size for column in lookup(bytes(16), 0, [])] == [0, 0]


BAD = {
    "00-good.index": None,
    "01-nonmonotonic.index": ("BAD_ORDER", 24),
    "02-size-not-multiple-8.index": ("BAD_SIZE", 40),
    "03-position-beyond-segment.index": ("BAD_ENTRY", 24),
    "04-negative-relative-offset.index": ("BAD_ENTRY", 24),
    "05-all-zero.index": None,
    "10-good.timeindex": None,
    "11-nonmonotonic.timeindex": ("BAD_ORDER", 24),
    "12-size-not-multiple-12.timeindex": ("BAD_SIZE", 60),
    "13-negative-timestamp.timeindex": ("BAD_ENTRY", 24),
    "20-good.txnindex": None,
    "21-truncated.txnindex": ("BAD_SIZE", 272),
    "22-version-7.txnindex": ("BAD_VERSION", 34),
    "23-nonmonotonic.txnindex": ("BAD_ORDER", 34),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_named_at_the_wrong_entry(fixtures: pathlib.Path, name: str) -> None:
    """Else `verify` calls a broken index sound, or sends an operator to the wrong place."""
    data = (fixtures / "bad" / "index" / name).read_bytes()
    found = None
    try:
        if name.endswith(".index"):
            indexes.check_offset_index(data, 821, 2**31 - 1)
        elif name.endswith(".timeindex"):
            indexes.check_time_index(data, 821)
        else:
            indexes.check_transaction_index(data, 654)
    except CorruptIndexError as error:
        found = (error.fault, error.position)
    assert found == BAD[name]


def test_every_real_index_is_sound(data: pathlib.Path) -> None:
    """Else `verify` reports faults in healthy logs."""
    checked = 0
    for path in sorted(data.rglob("*index")):
        number = re.match(r"\d+", path.name)
        if not path.is_file() or not number or "bad" in path.parts:
            continue
        base = int(number[0])
        content = path.read_bytes()
        if path.suffix == ".index":
            indexes.check_offset_index(content, base)
        elif path.suffix == ".timeindex":
            indexes.check_time_index(content, base)
        else:
            indexes.check_transaction_index(content, base)
        checked += 1
    assert checked > 10


def transactions(*rows: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *row) for row in rows)


def test_transactions_are_read_and_collected() -> None:
    """Else read_committed gives data that was rolled back. The vector's four queries."""
    data = transactions((9000, 110, 150, 140), (9001, 140, 160, 161))
    assert indexes.read_transaction_index(data).tolist() == [(9000, 110, 150, 140), (9001, 140, 160, 161)]
    assert indexes.read_transaction_index(data[:-1]).tolist() == [(9000, 110, 150, 140)]
    first, second = (9000, 110, 150), (9001, 140, 160)
    for start, end, rows, complete in [
        (100, 141, [first, second], True),
        (100, 140, [first], True),
        (151, 200, [second], False),
        (100, 200, [first, second], False),
    ]:
        entries, done = indexes.collect_aborted(data, start, end)
        assert (entries.tolist(), done) == (rows, complete)
        assert entries.dtype == indexes.ABORTED_DTYPE


def test_aborted_ranges_are_sorted_and_distinct() -> None:
    """Else overlapping segments of a failover make read_committed fail, or answer by chance."""
    rows = [(2, 50, 60), (1, 10, 20), (2, 50, 60), (1, 30, 40)]
    sorted_rows = indexes.sort_aborted(np.array(rows, indexes.ABORTED_DTYPE))
    assert sorted_rows.tolist() == [(1, 10, 20), (1, 30, 40), (2, 50, 60)]
    for producer, offset, expected in [(1, 10, True), (1, 20, True), (1, 21, False), (2, 10, False), (2, 55, True)]:
        assert indexes.is_aborted(sorted_rows, producer, offset) is expected
    with pytest.raises(CorruptIndexError):
        indexes.sort_aborted(np.array([(1, 10, 20), (1, 20, 30)], indexes.ABORTED_DTYPE))
    with pytest.raises(ValueError, match="ABORTED_DTYPE"):
        indexes.sort_aborted(np.zeros(3))
