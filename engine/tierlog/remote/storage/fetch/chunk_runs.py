"""Which chunks come in one request: neighbouring ones, as many as it may have."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from tierlog.remote.storage.store_requests import ReadRequest
from tierlog.remote.tier.chunks.segment_log import CHUNKS_TOGETHER_MAX, ChunkKey, ChunkView, SegmentLog
from tierlog.runtime.waiting.single_flight import Flight

ChunkFlight = Flight[ChunkKey, memoryview]


@dataclass(frozen=True, slots=True)
class MissingChunk:
    """A chunk to get, and the flight that is told."""

    view: ChunkView
    flight: ChunkFlight


@dataclass(slots=True, eq=False)
class ChunkRun:
    """Neighbouring chunks that come in one request.

    Attributes:
        left: Those that have not landed, ascending.
        turn: Whose turns go round.
        held_bytes: Of the memory budget, for the stored bytes; given back with the last chunk.
        on_turn: Called before the request is sent; it may take chunks out of ``left``.
        on_bytes: Called when the chunks' stored bytes have come.
        request: Sent, or in line.
        opening: Chunks whose stored bytes are not let go yet.
    """

    log: SegmentLog
    left: list[MissingChunk]
    turn: Hashable
    held_bytes: int
    on_turn: Callable[[ChunkRun], None] | None = None
    on_bytes: Callable[[ChunkRun], None] | None = None
    request: ReadRequest | None = None
    opening: int = 0

    @property
    def flights(self) -> list[ChunkFlight]:
        return [chunk.flight for chunk in self.left]

    @property
    def start(self) -> int:
        """Position of the first byte in the object."""
        return self.left[0].view.position

    @property
    def end_exclusive(self) -> int:
        last = self.left[-1].view
        return last.position + last.stored_size


def neighbours(missing: Sequence[MissingChunk], *, size_bytes_max: int) -> list[list[MissingChunk]]:
    """Ascending chunks grouped by request: neighbours, of at most so many original bytes together."""
    runs: list[list[MissingChunk]] = []
    size = 0
    for chunk in missing:
        last = runs[-1][-1].view.number if runs else None
        size += chunk.view.original_size
        if (
            last is None
            or size > size_bytes_max
            or len(runs[-1]) >= CHUNKS_TOGETHER_MAX
            or (last + 1 != chunk.view.number)
        ):
            runs.append([])
            size = chunk.view.original_size
        runs[-1].append(chunk)
    return runs
