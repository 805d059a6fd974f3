"""A log in pieces, cut anywhere: the batches, checksums and faults are those of the log in one piece."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.batch_strategies import Log, cut, damaged_logs, logs
from tests.support.batches import Batch, encode
from tests.support.message_set_builder import MessageSetBuilder
from tierlog._native.batches import RangeCheck, find_batch_header, find_batch_size, scan_batches
from tierlog.errors import CorruptDataError, CorruptRecordError
from tierlog.log.checks.segment_walk import SegmentWalk

CUTS = st.lists(st.integers(0, 100_000), max_size=20)
LOG = b"".join(encode(Batch(offset, (b"v" * (offset * 7 % 50),) * 2)) for offset in range(0, 8, 2))
for _magic in (0, 1):
    _old = MessageSetBuilder(_magic, 8 + 2 * _magic)
    _old.append(b"k", b"old", timestamp_ms=1, offset=8 + 2 * _magic)
    _old.append(None, b"", timestamp_ms=1, offset=9 + 2 * _magic)
    LOG += _old.build()
NO_LIMIT = 2**62


def walk_of(size_bytes: int = NO_LIMIT) -> SegmentWalk:
    return SegmentWalk(
        position=0,
        first_offset=-(2**63),
        last_offset=2**63 - 1,
        size_bytes=size_bytes,
        name="a.log",
        kind=CorruptRecordError,
    )


def collected(walk: SegmentWalk, pieces: list[bytes]) -> tuple[dict[str, list[object]], CorruptDataError | None]:
    """All columns of the pieces before a fault, and the fault."""
    found: dict[str, list[object]] = {}
    for piece in pieces:
        try:
            columns = walk.collect(memoryview(piece))
        except CorruptRecordError as error:
            return found, error
        assert len({len(column) for column in columns.values()}) == 1
        for name, column in columns.items():
            found.setdefault(name, []).extend(column.tolist())
    return found, None


def first_wrong(columns: dict[str, np.ndarray]) -> int | None:
    """The first batch that rotted, or is out of order."""
    following = -(2**63)
    for row, (ok, base, last) in enumerate(
        zip(columns["crc_ok"].tolist(), columns["base_offset"].tolist(), columns["last_offset"].tolist(), strict=True)
    ):
        if not ok or base < following or last < base:
            return row
        following = last + 1
    return None


def same_as_whole(data: bytes, cuts: list[int]) -> None:
    expected, end, partial, fault = scan_batches(data)
    wrong = first_wrong(expected)
    walk, silent = walk_of(), walk_of()
    found, stopped = collected(walk, cut(data, cuts))
    assert found.get("position", []) == expected["position"].tolist()[: len(found.get("position", []))]
    if wrong is not None:
        assert stopped is not None
        assert stopped.position == int(expected["position"][wrong])
    elif fault is not None:
        assert stopped is not None
        assert (stopped.fault, stopped.position, stopped.expected) == (fault.fault, fault.position, fault.expected)
    elif stopped is not None:  # of a batch that is cut short: its header is looked at all the same
        assert partial
        assert stopped.position == end
    else:
        assert not found or found == {name: column.tolist() for name, column in expected.items()}
        assert (walk.end_position, walk.is_inside_batch) == (end, partial)
    assert str(outcome(silent, cut(data, cuts))) == str(stopped)


def outcome(walk: SegmentWalk, pieces: list[bytes]) -> CorruptDataError | None:
    """What ``feed`` finds, which gives no headers."""
    try:
        for piece in pieces:
            walk.feed(memoryview(piece))
    except CorruptRecordError as error:
        return error
    return None


@given(logs(), CUTS, st.integers(0, 400))
def test_any_cut_gives_the_same(log: Log, cuts: list[int], lost: int) -> None:
    """Otherwise a batch that lies across two pieces is copied unchecked, or a sound segment is refused."""
    same_as_whole(log.data[: max(0, len(log.data) - lost)], cuts)


@given(damaged_logs(), CUTS)
def test_damage_shows_wherever_the_pieces_end(damaged: bytes, cuts: list[int]) -> None:
    """Otherwise a segment with a flipped bit is copied, or not, by where a read happened to end."""
    same_as_whole(damaged, cuts)


def test_a_batch_across_every_byte_of_a_border() -> None:
    """The header itself lies across two pieces in one copy of 70,000."""
    for border in range(len(LOG)):
        same_as_whole(LOG, [border])
    same_as_whole(LOG, list(range(len(LOG))))


def test_a_length_that_lies_costs_nothing() -> None:
    """A batch that says it has 2 GiB must not take the memory of the broker."""
    head = bytearray(LOG[:61])
    struct.pack_into(">i", head, 8, 2**31 - 13)
    walk = walk_of()
    found, fault = collected(walk, [bytes(head), *[bytes(1 << 20)] * 8])
    assert (fault, walk.end_position, walk.is_inside_batch, found["position"]) == (None, 0, True, [])
    _, fault = collected(walk_of(size_bytes=len(LOG)), [bytes(head)])
    assert fault is not None
    assert "ends inside a batch" in str(fault)


def test_nothing_follows_a_fault() -> None:
    """Otherwise what lies behind the damage is taken for a batch."""
    walk = walk_of()
    _, fault = collected(walk, [LOG + bytes(100)])
    assert fault is not None
    assert (fault.fault, fault.position, fault.where) == ("BAD_SIZE", len(LOG), "a.log")
    with pytest.raises(ValueError, match="ended at a fault"):
        walk.collect(memoryview(LOG))
    with pytest.raises(ValueError, match="ended at a fault"):
        walk.feed(memoryview(LOG))


def test_more_batches_than_were_expected_of_a_piece() -> None:
    """A piece of many small batches has as many rows."""
    small = encode(Batch(0, (b"",)))
    many = b"".join(struct.pack(">q", offset) + small[8:] for offset in range(1000))
    columns = walk_of().collect(memoryview(many + small[:5]))
    assert columns["base_offset"].tolist() == list(range(1000))
    assert np.all(np.diff(columns["position"]) == len(small))


@given(damaged_logs() | logs().map(lambda log: log.data))
def test_one_header_is_what_a_scan_says(data: bytes) -> None:
    """Otherwise what is decided by one header (compression, where a log ends) goes by other bytes than the checks."""
    columns, _, _, fault = scan_batches(data, verify_crc=False)
    if len(columns["position"]):
        size = int(columns["size_bytes"][0])
        for header in (find_batch_header(data), find_batch_header(data[: min(61, size)])):
            assert header is not None
            assert header._asdict() == {name: columns[name][0] for name in header._fields}
        assert find_batch_header(data[: min(61, size) - 1]) is None
        assert find_batch_size(data) == find_batch_size(data[:17]) == size
        assert find_batch_size(data[:16]) is None
    elif fault is not None:
        for find in (find_batch_header, find_batch_size):
            with pytest.raises(CorruptRecordError) as caught:
                find(data)
            assert (caught.value.fault, caught.value.expected) == (fault.fault, fault.expected)


@given(logs(), CUTS, st.lists(st.booleans(), max_size=30))
def test_headers_that_are_gathered_over_many_pieces_are_those_of_each(
    log: Log, cuts: list[int], taken_after: list[bool]
) -> None:
    """Recovery reads a log window by window and takes thousands of headers at once: one that is lost, doubled or of
    another window would be an index that points nowhere.
    """
    data = bytes(log.data)

    def check() -> RangeCheck:
        return RangeCheck(
            position=0, first_offset=-(2**63), last_offset=2**63 - 1, size_bytes=NO_LIMIT, kind=CorruptRecordError
        )

    pieces = cut(data, cuts)
    apart, together = check(), check()
    expected: list[int] = []
    found: list[int] = []
    for number, piece in enumerate(pieces):
        columns, fault = apart.collect(piece)
        expected += columns["base_offset"].tolist()
        before = together.gathered
        assert (together.gather(piece) is None) == (fault is None)
        assert together.gathered == before + len(columns["position"])
        if fault is not None:
            break
        if number < len(taken_after) and taken_after[number]:
            found += together.take()["base_offset"].tolist()
            assert not together.gathered
    last = together.take()
    assert {name: column.dtype for name, column in last.items()} == {
        name: column.dtype for name, column in scan_batches(b"")[0].items()
    }
    assert found + last["base_offset"].tolist() == expected


def test_a_checksum_is_told_without_numbers_that_nobody_has() -> None:
    """An operator would compare a computed 0x00000000 and a stored 0x00000000, and take the check for broken."""
    check = RangeCheck(position=0, first_offset=0, last_offset=9, size_bytes=NO_LIMIT)
    rule, error = check.feed(LOG[:70] + bytes((LOG[70] ^ 1,)) + LOG[71:])
    assert (rule, str(error).endswith("checksum differs")) == ("crc", True), str(error)
