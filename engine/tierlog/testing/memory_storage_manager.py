"""A RemoteStorageManager in the memory of this process, with faults on demand."""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.arguments import require_int, require_type
from tierlog.errors import StoreError
from tierlog.remote.api import (
    CustomMetadata,
    IndexType,
    InvalidRangeError,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageManager,
    RetriableRemoteStorageException,
    SegmentFileError,
    SegmentStream,
)
from tierlog.remote.storage.fetch.segment_stream import bytes_stream, same_error
from tierlog.runtime.machine import Machine


class MemoryStorageManager(RemoteStorageManager):
    """A storage manager with whole segments in a dict, as they were copied: no chunks, no caches, no layout.

    Args:
        machine: Has the segments' files and the locks.
        segments: Of another manager, that of another broker: both have the same ones.

    Attributes:
        segments: The parts of each segment; None is the key of its log.
        unavailable: While it is true, every call ends in a retriable error.
        refuses: While it is set, every call ends in this error.
        lose_acknowledgements: So many of the next copies and deletions are done and end in a retriable error.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        *,
        machine: Machine | None = None,
        segments: dict[RemoteLogSegmentId, dict[IndexType | None, bytes]] | None = None,
    ) -> None:
        machine = machine or Machine()
        self.unavailable = False
        self.refuses: RemoteStorageException | None = None
        self.lose_acknowledgements = 0
        self._files = machine.files
        self._lock = machine.scheduler.lock()
        self.segments: dict[RemoteLogSegmentId, dict[IndexType | None, bytes]] = {} if segments is None else segments
        self._is_open = False

    @property
    def segment_ids(self) -> frozenset[RemoteLogSegmentId]:
        """The segments that are stored now."""
        with self._lock:
            return frozenset(self.segments)

    def configure(self, configs: Mapping[str, object]) -> None:
        """Begin to take calls; the keys say nothing here. Raises TypeError: no mapping."""
        require_type("configs", configs, Mapping, "a mapping")
        self._is_open = True

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        """Copy a closed segment, as RemoteStorageManager demands; there is no custom metadata."""
        self._require_metadata(metadata)
        require_type("data", data, LogSegmentData, "a LogSegmentData")
        self._check()
        paths = {
            None: data.log_segment,
            IndexType.OFFSET: data.offset_index,
            IndexType.TIMESTAMP: data.time_index,
            IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
            IndexType.TRANSACTION: data.transaction_index,
        }
        try:
            parts = {kind: self._files.read_whole(path) for kind, path in paths.items() if path is not None}
        except (StoreError, ValueError) as cause:
            raise SegmentFileError(f"{metadata.remote_log_segment_id}: {cause}") from cause
        if len(parts[None]) != metadata.segment_size_in_bytes:
            text = f"{len(parts[None])} bytes, its metadata say {metadata.segment_size_in_bytes}"
            raise SegmentFileError(f"{data.log_segment}: {text}")
        parts[IndexType.LEADER_EPOCH] = bytes(data.leader_epoch_index)
        with self._lock:
            self.segments[metadata.remote_log_segment_id] = parts
        self._acknowledge()
        return None

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        """Fetch a byte range of a segment, as RemoteStorageManager demands."""
        self._require_metadata(metadata)
        require_int("start_position", start_position)
        size = metadata.segment_size_in_bytes
        end = size if end_position is None else require_int("end_position", end_position) + 1
        if not 0 <= start_position < min(end, size):
            raise InvalidRangeError(f"{start_position} … {end_position} is no range of {size} bytes")
        return bytes_stream(memoryview(self._part(metadata, None))[start_position:end], translate=same_error)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        """Fetch the bytes of one part beside the log, as RemoteStorageManager demands."""
        self._require_metadata(metadata)
        require_type("index_type", index_type, IndexType, "an IndexType")
        return bytes_stream(self._part(metadata, index_type), translate=same_error)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove a segment, as RemoteStorageManager demands."""
        self._require_metadata(metadata)
        self._check()
        with self._lock:
            self.segments.pop(metadata.remote_log_segment_id, None)
        self._acknowledge()

    def close(self) -> None:
        """Take no more calls; the segments stay, for a manager that is opened again by ``configure``."""
        self._is_open = False

    def _part(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None) -> bytes:
        self._check()
        with self._lock:
            found = self.segments.get(metadata.remote_log_segment_id, {}).get(kind)
        if found is None:
            part = "log" if kind is None else kind.value
            raise RemoteResourceNotFoundException(f"{metadata.remote_log_segment_id}: no {part} is stored")
        return found

    def _check(self) -> None:
        if not self._is_open:
            raise RemoteStorageException("the storage manager is closed, or not configured")
        if self.refuses is not None:
            raise self.refuses
        if self.unavailable:
            raise RetriableRemoteStorageException("the store is not available")

    def _acknowledge(self) -> None:
        with self._lock:
            is_lost = self.lose_acknowledgements > 0
            self.lose_acknowledgements -= is_lost
        if is_lost:
            raise RetriableRemoteStorageException("the answer of the store was lost")

    @staticmethod
    def _require_metadata(metadata: object) -> None:
        require_type("metadata", metadata, RemoteLogSegmentMetadata, "a RemoteLogSegmentMetadata")
