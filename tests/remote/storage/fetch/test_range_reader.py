"""What tells a run of the broker's batches from other bytes, as chunks go by."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segments import make_segment, sound_log
from tierlog.errors import CorruptObjectError
from tierlog.remote.storage.fetch.range_reader import BatchCheck

LOG = sound_log(base_offset=1000)
METADATA = make_segment(LOG).metadata
LAST = METADATA.end_offset
BATCH = int.from_bytes(LOG[8:12], "big") + 12


def feed(data: bytes, *, position: int = 0, cuts: list[int] | None = None) -> BatchCheck:
    check = BatchCheck(METADATA, position=position, name="a.log")
    borders = sorted({0, *(cut % (len(data) + 1) for cut in cuts or []), len(data)})
    for start, end in itertools.pairwise(borders):
        check.feed(memoryview(data)[start:end])
    return check


@given(st.lists(st.integers(0, 1 << 20), max_size=30), st.integers(0, len(LOG)))
@settings(max_examples=60)
def test_a_sound_log_cut_anywhere_passes(cuts: list[int], end: int) -> None:
    """If this fails, readers get errors for sound data, depending on where chunks end."""
    feed(LOG[:end], cuts=cuts)


@given(st.integers(1, len(LOG) - 1), st.lists(st.integers(0, 1 << 20), max_size=5))
@settings(max_examples=80)
def test_a_range_that_begins_anywhere_passes(start: int, cuts: list[int]) -> None:
    """If this fails, a reader that asks for any byte of a segment gets an error for sound data."""
    check = feed(LOG[start:], position=start, cuts=cuts)
    assert check.is_checking == (start % BATCH == 0 and len(LOG) - start >= BATCH)


@given(st.integers(0, 10), st.integers(0, len(LOG) - 1), st.integers(0, 7))
@settings(max_examples=100)
def test_a_flipped_bit_behind_a_border_is_found(first: int, at: int, bit: int) -> None:
    """If this fails, a plain segment that somebody changed reads as if it were sound."""
    start = first * BATCH
    damaged = bytearray(LOG)
    damaged[at] ^= 1 << bit
    # Within a batch, base offset, length and leader epoch are under no checksum.
    is_covered = at % BATCH >= 16
    if at < start + BATCH or not is_covered:
        return
    with pytest.raises(CorruptObjectError):
        feed(bytes(damaged[start:]), position=start)


def test_batches_of_another_place_are_found() -> None:
    """If this fails, batches that were moved, doubled or taken from another segment read as sound."""
    batches = [LOG[at : at + BATCH] for at in range(0, len(LOG), BATCH)]
    swapped = [*batches[:3], batches[4], batches[3], *batches[5:]]
    doubled = [*batches[:4], batches[3], *batches[5:]]
    other = sound_log(base_offset=LAST + 1)
    for wrong in (b"".join(swapped), b"".join(doubled), other, bytes(BATCH) + LOG[BATCH:]):
        with pytest.raises(CorruptObjectError):
            feed(wrong)


def test_the_last_offset_there_is() -> None:
    """If this fails, a segment at the end of all offsets is an overflow."""
    top = 2**63 - 1
    metadata = dataclasses.replace(METADATA, start_offset=top - 9, end_offset=top, segment_leader_epochs={0: top - 9})
    check = BatchCheck(metadata, position=0, name="a.log")
    check.feed(memoryview((top - 9).to_bytes(8, "big") + LOG[8:BATCH]))
    assert check.is_checking


def test_a_batch_that_ends_behind_the_segment_is_found() -> None:
    """If this fails, a length that somebody changed switches the check off for the rest of the segment."""
    for length in (len(LOG), 200 << 20, (1 << 31) - 13):
        damaged = LOG[:BATCH] + LOG[BATCH : BATCH + 8] + length.to_bytes(4, "big") + LOG[BATCH + 12 :]
        with pytest.raises(CorruptObjectError, match="so large"):
            feed(damaged, cuts=[BATCH + 100])


def test_noise_at_a_start_is_waited_for_by_nobody() -> None:
    """If this fails, a range that begins with bytes like a huge batch goes by unchecked to its end as one."""
    check = BatchCheck(METADATA, position=5, name="a.log")
    noise = (1000).to_bytes(8, "big") + (200 << 20).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(100)
    check.feed(memoryview(noise))
    assert not check.is_checking
    check.feed(memoryview(LOG))


def test_old_formats_pass(fixtures: pathlib.Path) -> None:
    """If this fails, segments in formats 0 and 1 cannot be read back."""
    read = 0
    for path in sorted((fixtures / "record-v0-v1").glob("*.log")):
        data = path.read_bytes()
        if not data:
            continue
        metadata = dataclasses.replace(
            METADATA,
            start_offset=0,
            end_offset=2**40,
            segment_leader_epochs={0: 0},
            segment_size_in_bytes=len(data),
        )
        check = BatchCheck(metadata, position=0, name=path.name)
        for start in range(0, len(data), 1000):
            check.feed(memoryview(data)[start : start + 1000])
        read += 1
    assert read > 3
