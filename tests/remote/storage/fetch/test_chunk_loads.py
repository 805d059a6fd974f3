"""Which chunks come by one request: neighbours, so many bytes of them, so many chunks."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tierlog.remote.storage.fetch.chunk_loads import MissingChunk, neighbours
from tierlog.remote.tier.chunks.stored_segment import ChunkView


def chunk(number: int, size: int) -> MissingChunk:
    view = ChunkView.__new__(ChunkView, *[0] * len(ChunkView._fields))._replace(number=number, original_size=size)
    return MissingChunk(view, None)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50)), max_size=40), st.integers(1, 120))
def test_requests_are_as_large_as_they_may_be(steps: list[tuple[int, int]], limit: int) -> None:
    """If this fails, a chunk is left out, a hole is downloaded, or a request takes more memory than was given to it."""
    number, missing = 0, []
    for gap, size in steps:
        number += gap
        missing.append(chunk(number, size))
    runs = neighbours(missing, size_bytes_max=limit)
    assert [each for run in runs for each in run] == missing

    def size_of(run: list[MissingChunk]) -> int:
        return sum(each.view.original_size for each in run)

    for run in runs:
        assert [each.view.number - run[0].view.number for each in run] == [*range(len(run))]
        assert size_of(run) <= limit or len(run) == 1
    for before, after in itertools.pairwise(runs):
        is_hole = before[-1].view.number + 1 != after[0].view.number
        assert is_hole or size_of(before) + after[0].view.original_size > limit


def test_a_request_has_so_many_chunks_at_most() -> None:
    """If this fails, chunks of a few bytes make a request that is parsed for seconds."""
    assert [len(run) for run in neighbours([chunk(number, 10) for number in range(5)], size_bytes_max=20)] == [2, 2, 1]
    runs = neighbours([chunk(number, 1) for number in range(16_385)], size_bytes_max=1 << 30)
    assert [len(run) for run in runs] == [16_384, 1]
