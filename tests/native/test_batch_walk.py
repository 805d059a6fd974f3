"""The native walk says what a walk in plain Python says, however the bytes lie in pieces."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native.batches import BatchWalk, walk_batches
from tierlog.errors import CorruptDataError, CorruptRecordError

MAX = 2**62


def batch_of(base_offset: int, delta: int, size_bytes: int) -> bytes:
    """A batch's header, and zeros."""
    made = bytearray(size_bytes)
    struct.pack_into(">qi", made, 0, base_offset, size_bytes - 12)
    made[16] = 2
    struct.pack_into(">i", made, 23, delta)
    return bytes(made)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(base offset, delta, size) of batches whose offsets rise, with gaps."""
    made, offset = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 12))):
        delta = draw(st.integers(0, 4))
        made.append((offset, delta, draw(st.integers(61, 200))))
        offset += delta + 1 + draw(st.integers(0, 2))
    return made


@given(logs(), st.integers(1, 300), st.integers(0, 40), st.integers(0, 60), st.integers(1, 900), st.integers(0, 2000))
def test_as_plain_python(
    batches: list[tuple[int, int, int]], cut: int, wanted: int, end_offset: int, max_bytes: int, known: int
) -> None:
    """A consumer would get batches that do not count, or miss some that do."""
    log = b"".join(batch_of(*batch) for batch in batches)
    data = log[:known]
    pieces = [memoryview(data)[at : at + cut] for at in range(0, len(data), cut)]
    found, fault = walk_batches(
        pieces,
        start_position=0,
        log_size_bytes=len(log),
        least_offset=0,
        greatest_offset=MAX,
        wanted_offset=wanted,
        end_offset_exclusive=end_offset,
        max_bytes=max_bytes,
    )
    assert fault is None
    position, first, whole, stop, ended = 0, -1, (0, 0), len(log) + 1, False
    for base, delta, size in batches:
        if position >= stop or position + 61 > len(data):
            break
        if base >= end_offset:
            ended = True
            break
        if first < 0 and base + delta >= wanted:
            first = position
            stop = min(position + max(max_bytes, size), len(log))
            assert (found.first_size_bytes, found.first_base_offset) == (size, base)
        position += size
        if first >= 0 and position <= min(stop, len(data)):
            whole = (position, base + delta + 1)
    ended |= position == len(log) and position < stop
    assert (found.first_position, found.position, found.is_ended) == (first, position, ended)
    assert (found.whole_position, found.whole_offset) == whole


def walked_to_damage(damaged: bytes) -> tuple[BatchWalk, CorruptDataError | None]:
    """A walk to offset 6 over two sound batches, 0 to 4 and 5 to 9, and a damaged one."""
    log = batch_of(0, 4, 80) + batch_of(5, 4, 80) + damaged
    return walk_batches(
        [log[:100], log[100:]],
        start_position=0,
        log_size_bytes=len(log),
        least_offset=0,
        greatest_offset=20,
        wanted_offset=6,
        end_offset_exclusive=MAX,
        max_bytes=1000,
    )


@pytest.mark.parametrize(
    ("damaged", "fault"),
    [
        (batch_of(10, -1, 70), "BAD_OFFSET"),
        (batch_of(10, 11, 70), "BAD_OFFSET"),
        (batch_of(10, 0, 71)[:-1], "BAD_SIZE"),
        (batch_of(10, 0, 70)[:30], "BAD_SIZE"),
        (batch_of(10, 0, 70)[:16] + b"\7" + batch_of(10, 0, 70)[17:], "BAD_MAGIC"),
    ],
)
def test_damage_is_named_behind_what_is_sound(damaged: bytes, fault: str) -> None:
    """What lies before the damage would be lost, or the damage be sent."""
    found, error = walked_to_damage(damaged)
    assert isinstance(error, CorruptRecordError)
    assert (error.fault, error.position) == (fault, 160)
    assert (found.first_position, found.position, found.whole_position, found.whole_offset) == (80, 160, 160, 10)


def test_a_batch_in_front_of_a_lower_offset_is_not_taken() -> None:
    """No checksum covers base offsets: either of the two may have changed, and be sent with offsets of others."""
    found, error = walked_to_damage(batch_of(4, 1, 70))
    assert isinstance(error, CorruptRecordError)
    assert (error.fault, error.position) == ("BAD_OFFSET", 160)
    assert (found.first_position, found.position, found.whole_position) == (-1, 80, 0)


def test_arguments() -> None:
    """A wrong position would read memory that is none of the log's."""
    numbers = {"least_offset": 0, "greatest_offset": 1, "wanted_offset": 0, "end_offset_exclusive": 1, "max_bytes": 1}
    for start, size in ((-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="position"):
            walk_batches([b""], start_position=start, log_size_bytes=size, **numbers)
    with pytest.raises(TypeError):
        walk_batches([1], start_position=0, log_size_bytes=1, **numbers)  # type: ignore[list-item]
