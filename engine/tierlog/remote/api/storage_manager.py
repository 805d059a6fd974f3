"""The KIP's RemoteStorageManager: where the bytes of segments are stored, and read again.

A third party's manager implements this class and is named by its dotted path (``my_package.HdfsStorageManager``);
``tests/contract`` is the suite that it must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self

from typing_extensions import Buffer

from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.remote.api.values import CustomMetadata, IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierlog.runtime.machine.process import Closeable

#: A function from a segment to the one behind it, by the partition's metadata: None if there is none, or it is unknown.
NextSegment = Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata | None]


class SegmentStream(Protocol):
    """The bytes of a range of a segment, in order, fetched when they are asked for. A context manager.

    Chunks are not joined, and nothing is fetched ahead but by declared prefetch. All forms of reading share one
    position.

    Raises (all forms of reading):
        RemoteStorageException: the store failed, or the bytes are not those that were stored; an object that is too
            short is an error, never an early end. The position does not move: after a ``retriable`` error the next call
            goes on from there, after any other error each call raises it again. ``ValueError`` after ``close``,
            ``TypeError`` for an argument of another type.

    Thread safety: one reader; ``close`` from any thread, which ends a read under way with an error.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, fewer only at the end; -1 or None for all that is left. b"" at the end."""

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer; fewer bytes only at the end, 0 at the end."""

    def tell(self) -> int:
        """Return the number of bytes read so far. A new fetch that continues here begins at the start position plus
        this.
        """

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        """Iterate the remaining bytes as read-only views, each of one chunk at most, none empty.

        Args:
            max_bytes: Where to stop; the stream can be read on from there. None reads to the end.
        """

    def close(self) -> None:
        """Cancel pending requests and release all resources; idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class RemoteStorageManager(Closeable, ABC):
    """The store of a tier's segments, by their ids. It never lists the store: the metadata manager knows which there
    are.

    Thread safety: any number of threads, for the same segment too, but for ``configure``, which is called once and
    first, and ``close``, which is called last.
    Source: KIP-405 RemoteStorageManager; Kafka 4.3 storage-api.
    """

    @abstractmethod
    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the configuration: keys without the broker's prefix, and ``broker.id``.

        Raises:
            ConfigError: an unknown key, a malformed value, or values that contradict each other.
            TypeError: no mapping, or a key that is no str.
        """

    @abstractmethod
    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        """Copy a closed segment and its indexes. On return the copy is durable and visible to readers.

        Args:
            metadata: In state COPY_SEGMENT_STARTED. A repeated call with the same id must store the same segment again,
                not fail.
            data: The segment's files; not read after return.

        Returns:
            Custom metadata, which the broker stores with the segment's metadata and passes to fetch and delete; None
            for none. Kafka refuses more than ``remote.log.metadata.custom.metadata.max.bytes``, by default 128.

        Raises:
            SegmentFileError: a local file of the segment is missing, cannot be read, changed, or is damaged.
            RetriableRemoteStorageException: a later attempt may work.
            RemoteStorageException: a later attempt alone will not help. After each of them, the objects that were
                stored have been removed as far as possible.
            TypeError: an argument is of another type.
        """

    @abstractmethod
    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        """Read a byte range of a segment, undoing encryption and compression.

        Args:
            metadata: A segment in state COPY_SEGMENT_FINISHED or later, with its custom metadata.
            start_position: First byte, in the *original* file; 0 <= start_position < its size.
            end_position: Last byte, **inclusive** as in the KIP; None or past the end is the end of the file.

        Returns:
            A lazy stream of exactly the bytes start … min(end, size - 1). The caller closes it. The log's object is
            first read when the stream is, so that errors may come from the stream.

        Raises:
            InvalidRangeError: a negative start, an end before it, or a start that is not below the segment's size,
                which its metadata say: the store is not asked.
            RemoteResourceNotFoundException: the segment's objects are gone (not retriable).
            RetriableRemoteStorageException, RemoteStorageException: the store failed, or the bytes are not authentic.
            TypeError: an argument is of another type.
        """

    @abstractmethod
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        """Fetch the exact bytes of one part beside the log, as they were copied. The caller closes the stream.

        Raises:
            RemoteResourceNotFoundException: the segment has no such part. Of a complete segment only the transaction
                index can be missing; it is then this error, never an empty stream.
            RetriableRemoteStorageException, RemoteStorageException, TypeError: as ``fetch_log_segment``.
        """

    @abstractmethod
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove all objects that a copy of this segment may have stored. Objects that are missing are no error; the
        call can be repeated.

        Raises:
            RetriableRemoteStorageException, RemoteStorageException: some objects are still there; call again.
            TypeError: ``metadata`` is of another type.
        """

    def set_next_segment(self, next_segment: NextSegment) -> None:  # noqa: ARG002 - optional
        """Take the function that names the segment behind one, so that prefetch goes on across the border. It may be
        called in any thread and must not wait. Optional: by default nothing is prefetched.
        """
        return

    def call_off_copy(self, segment_id: RemoteLogSegmentId) -> bool:  # noqa: ARG002 - optional
        """Cancel a copy that runs in another thread: it is undone and ends with an error. Does not block. Optional: by
        default False, and the copy goes on.

        Returns:
            Whether the copy was running, and ends early.
        """
        return False

    def resize_index_cache(self, size_bytes: int) -> bool:  # noqa: ARG002 - optional
        """Change the size of the manager's cache of indexes while it runs: entries leave at once where it shrinks. Does
        not block. Optional: by default False, for a manager without such a cache.

        Returns:
            Whether the manager has such a cache.
        """
        return False

    def store_time_ms(self) -> int | None:
        """Return the store's own time now, ms since 1970 UTC, by its last answer and the time since then. Does not
        block. Optional: by default None, for a manager that cannot say.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Calls under way end with an error; idempotent."""
