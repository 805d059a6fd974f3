"""Windows of a log as whole batches, wherever the windows are cut and whatever the lengths say."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import Batch, encode
from tests.support.message_set_builder import MessageSetBuilder
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX, BatchRuns

LOG = b"".join(encode(Batch(offset, (b"v" * (offset * 7 % 50),) * 2)) for offset in range(0, 40, 2))


def windows_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def collected(runs: BatchRuns) -> tuple[bytes, list[int], list[int]]:
    data, offsets, positions = b"", [], []
    for run in runs:
        assert run.position == len(data) == run.column("position")[0]
        data += bytes(run.data)
        offsets += run.column("base_offset").tolist()
        positions += run.column("position").tolist()
        assert b"".join(run.bytes_of(batch) for batch in range(len(run.columns["position"]))) == run.data
    return data, offsets, positions


@given(st.lists(st.integers(0, 10_000), max_size=30), st.integers(0, 2000))
def test_any_cut_gives_the_same_batches(cuts: list[int], lost: int) -> None:
    """Otherwise a fault is reported or missed depending on where a GET happened to end."""
    data = LOG[: len(LOG) - lost % len(LOG)]
    whole, split = BatchRuns([data]), BatchRuns(windows_of(data, cuts))
    expected = collected(whole)
    assert collected(split) == expected
    assert (split.end_position, bytes(split.rest)) == (whole.end_position, bytes(whole.rest))
    assert data == expected[0] + bytes(split.rest)


@given(st.lists(st.integers(0, 10_000), max_size=30), st.integers(0, 19), st.integers(-(2**31), 2**31 - 1))
def test_any_length_ends(cuts: list[int], batch: int, length: int) -> None:
    """Otherwise a hostile length makes verify loop or eat memory."""
    starts = [0]
    while starts[-1] < len(LOG):
        starts.append(starts[-1] + 12 + struct.unpack_from(">i", LOG, starts[-1] + 8)[0])
    damaged = bytearray(LOG)
    struct.pack_into(">i", damaged, starts[batch] + 8, length)
    whole, split = BatchRuns([bytes(damaged)]), BatchRuns(windows_of(bytes(damaged), cuts))
    assert collected(whole) == collected(split)
    assert whole.end_position == split.end_position >= starts[batch]
    assert (whole.broken is None) == (split.broken is None)
    assert whole.oversized == split.oversized == (whole.rest_size_bytes > BATCH_SIZE_BYTES_MAX)
    if 12 + length > BATCH_SIZE_BYTES_MAX:
        assert whole.oversized


@pytest.mark.parametrize("size_bytes", [1, 11, 12, 16, 17, 60])
def test_a_short_tail_is_left_over(size_bytes: int) -> None:
    """Otherwise a torn tail shorter than a header is taken for the end of the log."""
    runs = BatchRuns([LOG, LOG[:size_bytes]])
    collected(runs)
    assert bytes(runs.rest) == LOG[:size_bytes]
    assert runs.end_position == len(LOG)
    assert not runs.stopped


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("end", "begins"),
    [(100, [False, False]), (101, [True, False]), (104, [True, False]), (105, [True, False]), (106, [True, True])],
)
def test_a_wrapper_across_a_bound_begins_below_it(magic: int, end: int, begins: list[bool]) -> None:
    """Otherwise the last batch of an old log is missing from the table, and from a search by time, at an end offset."""
    log = b""
    for base in (100, 105):
        wrapper = MessageSetBuilder(magic, base, codec="gzip")
        for number in range(5):
            wrapper.append(b"k", b"v%d" % number)
        log += wrapper.build()
    (run,) = BatchRuns([log])
    assert run.begins_below(end).tolist() == begins
