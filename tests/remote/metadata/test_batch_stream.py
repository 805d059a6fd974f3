"""A file in pieces, cut anywhere: the batches, checksums and faults are those of the file in one piece."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.batch_strategies import Log, cut, damaged_logs, logs
from tests.support.batches import Batch, encode
from tierlog._native.batches import BatchStream, scan_batches
from tierlog.errors import CorruptRecordError
from tierlog.records.message_set_builder import MessageSetBuilder

CUTS = st.lists(st.integers(0, 100_000), max_size=20)
LOG = b"".join(encode(Batch(offset, (b"v" * (offset * 7 % 50),) * 2)) for offset in range(0, 8, 2))
for _magic in (0, 1):
    _old = MessageSetBuilder(_magic, 8 + 2 * _magic)
    _old.append(b"k", b"old", timestamp_ms=1, offset=8 + 2 * _magic)
    _old.append(None, b"", timestamp_ms=1, offset=9 + 2 * _magic)
    LOG += _old.build()


def fed(stream: BatchStream, pieces: list[bytes]) -> tuple[dict[str, list[object]], CorruptRecordError | None]:
    """All columns, and the fault that ended it."""
    found: dict[str, list[object]] = {}
    for piece in pieces:
        columns, fault = stream.feed(piece)
        assert len({len(column) for column in columns.values()}) == 1
        for name, column in columns.items():
            found.setdefault(name, []).extend(column.tolist())
        if fault is not None:
            return found, fault
    return found, None


def same_as_whole(data: bytes, cuts: list[int], *, verify_crc: bool = True, base_position: int = 0) -> None:
    expected, end, partial, fault = scan_batches(data, base_position=base_position, verify_crc=verify_crc)
    stream = BatchStream(base_position=base_position, verify_crc=verify_crc)
    found, stopped = fed(stream, cut(data, cuts))
    assert found.get("position", []) == expected["position"].tolist()
    assert not found or found == {name: column.tolist() for name, column in expected.items()}
    assert stream.end_position == end
    if fault is not None:
        assert stopped is not None
        assert (stopped.fault, stopped.position, stopped.expected) == (fault.fault, fault.position, fault.expected)
    elif stopped is not None:  # of a batch that is cut short: its header is looked at all the same
        assert partial
        assert stopped.position == end
    else:
        assert stream.partial == partial


@given(logs(), CUTS, st.booleans(), st.sampled_from([0, 7, 2**40]), st.integers(0, 400))
def test_any_cut_gives_the_same(log: Log, cuts: list[int], verify_crc: bool, base_position: int, lost: int) -> None:
    """Otherwise a batch that lies across two pieces is copied unchecked, or a sound segment is refused."""
    whole = log.data[: max(0, len(log.data) - lost)]
    same_as_whole(whole, cuts, verify_crc=verify_crc, base_position=base_position)


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
    stream = BatchStream()
    found, fault = fed(stream, [bytes(head), *[bytes(1 << 20)] * 8])
    assert (fault, stream.end_position, stream.partial, found["position"]) == (None, 0, True, [])
    assert stream.left_bytes == 2**31 - 1 - 61 - (8 << 20)
    assert BatchStream().left_bytes == 0


def test_nothing_follows_a_fault() -> None:
    """Otherwise what lies behind the damage is taken for a batch."""
    stream = BatchStream()
    columns, fault = stream.feed(bytes(100))
    assert fault is not None
    assert (fault.fault, fault.position, len(columns["crc"])) == ("BAD_SIZE", 0, 0)
    with pytest.raises(ValueError, match="ended at a fault"):
        stream.feed(LOG)


def test_more_batches_than_were_expected_of_a_piece() -> None:
    """A piece of many small batches has as many rows."""
    small = LOG[: struct.unpack_from(">i", LOG, 8)[0] + 12]
    columns, fault = BatchStream().feed(small * 1000 + small[:5])
    assert fault is None
    assert len(columns["position"]) == 1000
    assert np.all(np.diff(columns["position"]) == len(small))
