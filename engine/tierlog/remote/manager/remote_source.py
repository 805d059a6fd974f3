"""The bytes of a tier's segments through its storage manager, whichever it is: blocking calls, for reader threads.

Parts of an answer are the views that the storage manager's streams gave, never joined. Fewer bytes than were asked for
are an error of that manager, and what it gives beyond them is left.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from tierlog._native.buffers import joined
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageManager,
    SegmentStream,
    Uuid,
)
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine.cancelling import ended_by_scopes, require_wanted
from tierlog.runtime.waiting.waits import Waits

#: A read that goes up to here needs, as a rule, nothing more than what is fetched anyway.
_PIECE_BYTES: Final = 64 << 10


class RemoteLog:
    """The log of a segment, known by its metadata; as SourceLog says.

    Attributes:
        metadata: Of the segment.
    """

    __slots__ = ("__dict__", "end_offset", "metadata", "size_bytes", "start_offset", "version")

    def __init__(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.metadata = metadata
        self.start_offset, self.end_offset = metadata.start_offset, metadata.end_offset
        self.size_bytes = metadata.segment_size_in_bytes
        #: An id is given to one copy of a segment, whatever the names of its objects are.
        self.version: tuple[Uuid, int] = metadata.remote_log_segment_id.id, self.size_bytes

    @cached_property
    def name(self) -> str:
        return str(self.metadata.remote_log_segment_id)

    @property
    def place(self) -> str:
        return self.name

    def chunk_end(self, position: int) -> int:
        """Position where the piece that holds a position ends: chunks are the storage manager's secret."""
        return min((position // _PIECE_BYTES + 1) * _PIECE_BYTES, self.size_bytes)


class RemoteSource:
    """A LogSource over a storage manager. Its calls block, and yield nothing.

    Args:
        storage: The storage manager.

    Raises (all methods): what the storage manager raises; RemoteStorageException: it broke its contract.

    Thread safety: any number of threads. What cancels the calling thread's blocks (``cancelled_by``) closes the streams
    that it reads.
    """

    def __init__(self, storage: RemoteStorageManager) -> None:
        self._storage = storage
        self._ours = storage if isinstance(storage, TieredStorageManager) else None

    def log_waits(self, segment: RemoteLogSegmentMetadata) -> Waits[RemoteLog]:
        """Return the log of a segment."""
        yield from ()
        return RemoteLog(segment)

    def read_waits(
        self,
        log: RemoteLog,
        start: int,
        end_exclusive: int,
        *,
        least_bytes: int,
        again: bool,
    ) -> Waits[list[memoryview]]:
        """Read a range, as LogSource says."""
        yield from ()
        ours, least = self._ours, min(least_bytes, end_exclusive - start)
        if ours is None:
            return self.fetch_range(log, start, end_exclusive, least_bytes=least)
        cached = ours.find_cached(log.metadata, start, end_exclusive, again=again)
        return cached or ours.fetch_range(log.metadata, start, end_exclusive, least_bytes=least)

    def fetch_range(self, log: RemoteLog, start: int, end_exclusive: int, *, least_bytes: int) -> list[memoryview]:
        """Fetch a range like ``read_waits``, by a stream, as of any storage manager."""
        pieces: list[memoryview] = []
        at, least = start, start + min(least_bytes, end_exclusive - start)
        try:
            require_wanted()
            with _Closed(self._storage.fetch_log_segment(log.metadata, start, end_exclusive - 1)) as stream:
                for given in stream.buffers(end_exclusive - start):
                    piece = _bytes_of(given)[: end_exclusive - at]
                    if len(piece):
                        pieces.append(piece)
                        at += len(piece)
                    if at == end_exclusive:
                        break
        except RemoteStorageException:
            if at < least:
                raise
        if at < least:
            text = f"{log.name}: bytes {start} … {end_exclusive - 1} wanted, the storage manager's stream ends at {at}"
            raise RemoteStorageException(text)
        return pieces

    def offset_index_waits(self, log: RemoteLog) -> Waits[bytes | memoryview | None]:
        """Return the offset index of a segment; None where it cannot be used, but for a while only."""
        yield from ()
        try:
            return self.fetch_index(log.metadata, IndexType.OFFSET)
        except RemoteStorageException as error:
            if error.retriable or isinstance(error, RemoteResourceNotFoundException):
                raise
            return None

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | memoryview:
        """Fetch a part beside the log, without a copy where its stream has it in one view.

        Raises:
            RemoteResourceNotFoundException: the segment has none, or is gone.
        """
        cached = None if self._ours is None else self._ours.find_cached_index(metadata, index_type)
        if cached is not None:
            return cached
        require_wanted()
        with _Closed(self._storage.fetch_index(metadata, index_type)) as stream:
            pieces = [_bytes_of(given) for given in stream.buffers()]
        return pieces[0] if len(pieces) == 1 else joined(pieces)


class _Closed:
    """A block that has an open stream, which is closed at its end, and early if this thread's read is cancelled."""

    __slots__ = ("_block", "_stream")

    def __init__(self, stream: SegmentStream) -> None:
        self._stream = stream
        self._block = ended_by_scopes(stream.close)

    def __enter__(self) -> SegmentStream:
        try:
            self._block.__enter__()
        except BaseException:
            self._stream.close()
            raise
        return self._stream

    def __exit__(self, *raised: object) -> None:
        self._block.__exit__(None, None, None)
        self._stream.close()


def _bytes_of(given: memoryview) -> memoryview:
    """Return bytes as a flat view that its holder cannot change.

    Raises:
        RemoteStorageException: the storage manager gave something else.
    """
    try:
        return memoryview(given).cast("B").toreadonly()
    except TypeError as cause:
        raise RemoteStorageException(f"the storage manager's stream gave {type(given).__name__}, no bytes") from cause
