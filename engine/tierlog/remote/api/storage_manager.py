"""The KIP's RemoteStorageManager: where segments' bytes go, and where they come from again.

A store of a third party's implements this class and is named by its dotted path (``my_package.HdfsStorageManager``);
``tests/contract`` is the suite that says whether it does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from typing_extensions import Buffer

from tierlog.arguments import require_buffer, require_path
from tierlog.remote.api.values import CustomMetadata, IndexType, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The files of one closed segment, as they are to be copied. Paths may vanish once the copy has returned.

    Args:
        log_segment: Path of the ``.log``.
        offset_index: Path of the ``.index``, trimmed to its entries or not.
        time_index: Path of the ``.timeindex``, the same.
        transaction_index: Path of the ``.txnindex``; None if the segment has none (another thing than an empty one).
        producer_snapshot: Path of the ``.snapshot`` taken at the segment's end.
        leader_epoch_index: Content of a leader-epoch-checkpoint that ends at the segment's end.
    """

    log_segment: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str
    leader_epoch_index: bytes

    def __post_init__(self) -> None:
        """Take paths of pathlib too. Raises TypeError: one is of another type."""
        for name in ("log_segment", "offset_index", "time_index", "producer_snapshot"):
            object.__setattr__(self, name, require_path(name, getattr(self, name)))
        if self.transaction_index is not None:
            object.__setattr__(self, "transaction_index", require_path("transaction_index", self.transaction_index))
        require_buffer("leader_epoch_index", self.leader_epoch_index)


class SegmentStream(Protocol):
    """The bytes of a range of a segment, in order, fetched as they are asked for. A context manager.

    Nothing is joined and nothing is fetched that was not asked for, but for declared prefetch. One position is shared
    by all forms of reading.

    Raises (all forms of reading):
        RemoteStorageException: the store failed, or the bytes are not what was stored; a short stream is never passed
            off as the end. The position is where it was before the call: after a ``retriable`` error the next call goes
            on from there, after any other each call raises it again. ``ValueError`` after ``close``.

    Thread safety: one reader; ``close`` from any thread, which ends a read under way with an error.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes, fewer only at the end; -1 or None for all that is left. b"" at the end."""

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer; fewer bytes only at the end, 0 at the end."""

    def tell(self) -> int:
        """Bytes that were handed out so far: a new fetch goes on at the stream's start position and this."""

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        """What is left as read-only views, each of one chunk at most, none empty.

        Args:
            max_bytes: Stop behind so many bytes; the stream can be read on from there. None is the end.
        """

    def close(self) -> None:
        """Cancel what runs and release what is held; idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class RemoteStorageManager(ABC):
    """Stores the segments of a tier, by their ids. Metadata is another's: nothing is ever looked up by listing.

    Thread safety: any number of threads, for the same segment too, but for ``configure``, which is called once and
    first, and ``close``, which is called last.
    Source: KIP-405 RemoteStorageManager; Kafka 4.3 storage-api.
    """

    @abstractmethod
    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the configuration: keys without the broker's prefix, and ``broker.id``.

        Raises:
            ConfigError: an unknown key, a malformed value, or values that contradict each other.
        """

    @abstractmethod
    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        """Copy a closed segment and its indexes. What is copied is durable, and visible to readers, on return.

        Args:
            metadata: In state COPY_SEGMENT_STARTED. The same id again must give the same segment, not an error.
            data: Its files; not touched after return.

        Returns:
            What is to be stored with the segment's metadata and comes back on fetch and delete; None for nothing.
            Kafka refuses more than ``remote.log.metadata.custom.metadata.max.bytes``, by default 128.

        Raises:
            RetriableRemoteStorageException: a later attempt may work.
            RemoteStorageException: it will not by itself. Either way what was stored is removed, as far as it can be.
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
            A lazy stream of exactly the bytes start … min(end, size - 1). The caller closes it. Of the log nothing is
            asked for before the stream is read, so that it may be the stream that raises.

        Raises:
            RemoteResourceNotFoundException: the segment's objects are gone (not retriable).
            RetriableRemoteStorageException, RemoteStorageException: the store failed, the bytes are not authentic, or
                the start lies beyond the end.
        """

    @abstractmethod
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        """The exact bytes of one of the parts beside the log, as they were copied. The caller closes the stream.

        Raises:
            RemoteResourceNotFoundException: there is none. Only the transaction index of a whole segment can be
                missing, and is then never an empty stream.
            RetriableRemoteStorageException, RemoteStorageException: as ``fetch_log_segment``.
        """

    @abstractmethod
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove all that a copy of this segment may have stored. What is not there is no error; repeatable.

        Raises:
            RetriableRemoteStorageException, RemoteStorageException: some of it is still there; call again.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held; running calls end with an error; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
