"""Which chunks come in one request: neighbouring ones, as many as it may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tierlog.remote.storage.segment_log import ChunkKey, ChunkView, SegmentLog
from tierlog.remote.storage.single_flight import Flight
from tierlog.runtime.cancelling import CancelScope

#: Chunks of one request at most: a hostile manifest may say that a chunk is one byte.
CHUNKS_PER_REQUEST_MAX: Final = 16384

ChunkFlight = Flight[ChunkKey, memoryview]


@dataclass(frozen=True, slots=True)
class MissingChunk:
    """One to get, and who waits for it; ``cached``: on the disk's cache."""

    view: ChunkView
    flight: ChunkFlight
    cached: bool = False


@dataclass(slots=True, eq=False)
class ChunkRun:
    """Neighbouring chunks that come in one request, or one that comes from the disk's cache.

    Attributes:
        ahead: Nobody asked for them yet.
        is_wanted: Asked before the download begins.
        scope: Ends it.
    """

    log: SegmentLog
    chunks: Sequence[MissingChunk]
    ahead: bool
    is_wanted: Callable[[], bool]
    scope: CancelScope
    is_begun: bool = False

    @property
    def cached(self) -> bool:
        return self.chunks[0].cached

    @property
    def flights(self) -> list[ChunkFlight]:
        return [chunk.flight for chunk in self.chunks]


def neighbours(missing: Sequence[MissingChunk], *, size_bytes_max: int) -> list[list[MissingChunk]]:
    """Ascending chunks by request, of so many original bytes; what is on the disk's cache one by one."""
    runs: list[list[MissingChunk]] = []
    part: list[MissingChunk] = []
    size = 0
    for chunk in missing:
        full = size + chunk.view.original_size > size_bytes_max or len(part) >= CHUNKS_PER_REQUEST_MAX
        if part and (chunk.cached or full or part[-1].view.number + 1 != chunk.view.number):
            runs.append(part)
            part, size = [], 0
        if chunk.cached:
            runs.append([chunk])
        else:
            part.append(chunk)
            size += chunk.view.original_size
    if part:
        runs.append(part)
    return runs
