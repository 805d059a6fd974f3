"""Where a log ends: from its index's end and its last batches, torn tails and liars included."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.support.batches import Batch, encode
from tierlog.remote.tier.objects.segment_bounds import ReadRange, find_bounds, find_last_entry, first_offset

BATCHES = [Batch(10 * n, (b"v" * 50,) * 3, epoch=n // 4, timestamp_ms=1000 + n) for n in range(12)]
LOG = b"".join(encode(batch) for batch in BATCHES)


def reader(data: bytes, asked: list[tuple[int, int]] | None = None) -> ReadRange:
    def read(start: int, end: int) -> memoryview:
        if asked is not None:
            asked.append((start, end))
        return memoryview(data)[start:end]

    return read


def position_of(number: int) -> int:
    return sum(len(encode(batch)) for batch in BATCHES[:number])


def test_a_whole_log() -> None:
    """If this fails, segments of a disk or of Kafka's test storage end at the wrong offset."""
    found = find_bounds(reader(LOG), len(LOG))
    assert (found.end_offset, found.max_timestamp_ms, found.valid_bytes) == (112, 1013, len(LOG))
    assert found.leader_epochs == {0: 0, 1: 40, 2: 80}
    assert found.from_start


def test_from_the_indexs_last_entry_only_the_tail_is_read() -> None:
    """If this fails, listing a disk reads all of it."""
    asked: list[tuple[int, int]] = []
    start = position_of(10)
    found = find_bounds(reader(LOG, asked), len(LOG), from_position=start, max_timestamp_ms=5000)
    assert (found.end_offset, found.max_timestamp_ms, found.valid_bytes) == (112, 5000, len(LOG))
    assert min(at for at, _ in asked) == start


@pytest.mark.parametrize("liar", [1, 61, len(LOG) - 5, len(LOG) + 7, -3])
def test_an_index_that_points_nowhere_costs_a_walk(liar: int) -> None:
    """If this fails, a damaged index hides the end of the log."""
    assert find_bounds(reader(LOG), len(LOG), from_position=liar).end_offset == 112


@pytest.mark.parametrize(
    ("damage", "end_offset"),
    [
        (lambda log: log[:-1], 102),
        (lambda log: log[: position_of(11) + 7], 102),
        (lambda log: log + bytes(4096), 112),
        (lambda log: log[:-1] + bytes([log[-1] ^ 1]), 102),
        (lambda log: log[: position_of(11) + 8] + struct.pack(">i", 2**31 - 1) + log[position_of(11) + 12 :], 102),
        (lambda log: b"", None),
        (lambda log: b"\xff" * 5000, None),
    ],
)
def test_a_torn_tail_counts_up_to_the_last_valid_batch(
    damage: Callable[[bytes], bytes], end_offset: int | None
) -> None:
    """If this fails, a disk after a crash does not read, or reads what the broker will throw away."""
    data = damage(LOG)
    found = find_bounds(reader(data), len(data))
    assert found.end_offset == end_offset
    assert found.valid_bytes == (0 if end_offset is None else position_of(12 if end_offset == 112 else 11))


def test_a_bad_batch_before_good_ones_is_no_torn_tail() -> None:
    """If this fails, one flipped bit cuts off all that was written after it, in silence."""
    at = position_of(6) + 70
    data = LOG[:at] + bytes([LOG[at] ^ 1]) + LOG[at + 1 :]
    assert find_bounds(reader(data), len(data)).valid_bytes == len(data)


def test_batches_larger_than_a_window() -> None:
    """If this fails, a partition of large messages has no end."""
    big = encode(Batch(0, (b"x" * (3 << 20),)))
    data = big + encode(Batch(1, (b"y",)))
    assert find_bounds(reader(data), len(data)).end_offset == 1


@pytest.mark.parametrize("used", [0, 1, 2, 3, 500, 511, 512])
def test_the_last_entry_of_a_preallocated_index(used: int) -> None:
    """If this fails, an active segment's index is read as empty, or ten megabytes of zeros are read a partition."""
    data = b"".join(struct.pack(">ii", n + 1, n * 9) for n in range(used)) + bytes(8 * (512 - used))
    asked: list[tuple[int, int]] = []
    found = find_last_entry(reader(data, asked), len(data), 8)
    assert found == (data[8 * used - 8 : 8 * used] if used else None)
    assert len(asked) <= 12


def test_first_offset() -> None:
    """If this fails, a single file with a name of its own begins at the wrong offset."""
    data = encode(Batch(77, (b"v",)))
    assert first_offset(reader(data), len(data)) == 77
    assert first_offset(reader(b"\xff" * 40), 40) == 0
    assert first_offset(reader(b"abc"), 3) == 0
