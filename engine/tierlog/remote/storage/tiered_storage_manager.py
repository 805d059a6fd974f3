"""The RemoteStorageManager: the plugin's objects, or Kafka's own files, in the configured store.

Invariant: whatever goes wrong, a caller sees one of the KIP's errors. The plugin lets an out-of-memory error escape,
which ends the broker's copy task of that partition without a line in its log (docs/formats/objects.md, Where
Tierlog and the plugin differ).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from tierlog.arguments import require_function, require_int, require_int64, require_number, require_text, require_type
from tierlog.errors import ConfigError, ForkedProcessError, StoreError
from tierlog.remote.api import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    NextSegment,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteStorageException,
    RemoteStorageManager,
    SegmentStream,
)
from tierlog.remote.storage.storage_errors import error_kind, kip_error
from tierlog.remote.storage.storage_metrics import Operation, StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError
from tierlog.runtime.machine.process import Origin

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tierlog.log.formats.remote_log_index_entry import RemoteLogIndexEntry
    from tierlog.remote.storage.fetch.segment_stream import ViewStream
    from tierlog.remote.storage.manager_parts import ManagerParts
    from tierlog.remote.storage.reloaded_store import ReloadedStore
    from tierlog.runtime.stores.protocol.object_store import ObjectStore
    from tierlog.runtime.stores.protocol.store_probe import StoreCapabilities
    from tierlog.runtime.waiting.waits import Waits

_log = logging.getLogger(__name__)

_WHAT = "the storage manager"


class TieredStorageManager(RemoteStorageManager):
    """The RemoteStorageManager of the KIP over the configured store.

    Args:
        machine: The machine that the manager runs on; this machine by default.
        registry: Where metrics are collected; None makes a registry (``metrics.registry``).
        wrap_store: Called with the store; returns the store to use, for tests that count or break calls.

    Attributes:
        metrics: All series; they exist from the start.

    Thread safety: any number of threads, after ``configure``.
    """

    def __init__(
        self,
        *,
        machine: Machine | None = None,
        registry: CollectorRegistry | None = None,
        wrap_store: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    ) -> None:
        self._machine = machine or Machine()
        self._wrap_store = wrap_store
        self.metrics = StorageMetrics(registry)
        self._parts: ManagerParts | None = None
        self._backend: ReloadedStore
        self._origin = Origin()
        self._lock = self._machine.scheduler.lock()
        self._closed = False

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the configuration: the plugin's ``rsm.config.*`` keys, with or without that prefix, and ours.

        The store is asked once for our identity and its features (``store.probe.enabled``); if it does not answer, that
        is logged, and it is asked again later.

        Raises:
            ConfigError: as RemoteStorageManager says; and: the store, its root or a key file does not exist, the store
                does not know us or refuses, or this is a second call. NoThreadError. After an error the manager is as
                it was, and can be configured anew.
        """
        from tierlog.remote.config import read_storage_config
        from tierlog.remote.storage.manager_parts import ManagerParts, counted_by_partition
        from tierlog.remote.storage.reloaded_store import ReloadedStore
        from tierlog.remote.tier.configured_store import open_backend, stack_store

        require_type("configs", configs, Mapping, "a mapping")
        config = read_storage_config(configs, machine=self._machine)
        config.check_for_broker()
        self._origin.require(_WHAT)
        with self._lock:
            if self._parts is not None or self._closed:
                raise ConfigError("configure is called once, before anything else")
        with ExitStack() as opened:
            try:
                backend = ReloadedStore(open_backend(config, machine=self._machine), self._machine.scheduler.lock())
                opened.callback(backend.close)
                store = stack_store(backend, config, machine=self._machine, wrap_store=self._wrap_store)
                store = counted_by_partition(store, config, self.metrics)
                parts = ManagerParts(config, store, self._machine, self.metrics)
            except StoreError as cause:
                raise ConfigError(str(cause)) from cause
            opened.pop_all()
            opened.callback(parts.close)
            parts.probe.at_start()
            with self._lock:
                if self._closed:
                    raise ConfigError("the storage manager was closed while it was configured")
                self._parts, self._backend = parts, backend
            opened.pop_all()

    def reload(self, configs: Mapping[str, object]) -> None:
        """Read the keys of encryption and the store's credentials again, for calls from now on; those under way go on
        with what they began with.

        Args:
            configs: As ``configure`` took them, but for other credentials and pairs of keys.

        Raises:
            ConfigError: as ``configure``; or another key has another value. Nothing has changed then.
            RemoteStorageException: closed, or not configured.
        """
        from tierlog.remote.config import read_storage_config
        from tierlog.remote.tier.chunks.key_ring import read_key_ring
        from tierlog.remote.tier.configured_store import open_backend

        require_type("configs", configs, Mapping, "a mapping")
        config = read_storage_config(configs, machine=self._machine)
        config.check_for_broker()
        parts = self._configured()
        parts.config.check_reloadable(config)
        key_ring = read_key_ring(config, self._machine, writing=True)
        try:
            backend = open_backend(config, machine=self._machine)
        except StoreError as cause:
            raise ConfigError(str(cause)) from cause
        parts.key_ring.take(key_ring)
        self._backend.replace(backend)

    @property
    def store_traits(self) -> StoreCapabilities | None:
        """The capabilities that the store was found to have; None if it has not answered, or is not asked."""
        return self._configured().probe.capabilities

    @property
    def store_identity(self) -> str | None:
        """Our identity for the store, never a secret; None if the source of credentials has not answered."""
        return self._configured().probe.identity

    @property
    def stores_log_index(self) -> bool:
        """Whether a copy stores the segment's entry of the remote log index (``log.index.object.enabled``)."""
        return self._configured().config.log_index_object_enabled

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        """Copy a closed segment: all of it or nothing, as RemoteStorageManager demands."""
        _require_metadata(metadata)
        require_type("data", data, LogSegmentData, "a LogSegmentData")
        with self._translated("copy", metadata) as parts:
            began = self._machine.clock.monotonic_seconds()
            custom = parts.copies.copy(metadata, data, files=parts.segment_files)
            self._count(metadata, "copies_total", "copy_bytes_total", "copy_seconds_total", began)
            parts.probe.after_copy()
            return custom

    def call_off_copy(self, segment_id: RemoteLogSegmentId) -> bool:
        """Cancel a copy that runs in another thread: it is undone and ends with an error. Does not block. Returns
        whether the copy was running.

        Raises:
            RemoteStorageException: closed, or not configured. TypeError: ``segment_id`` is of another type.
        """
        require_type("segment_id", segment_id, RemoteLogSegmentId, "a RemoteLogSegmentId")
        return self._configured().copies.running.call_off_copy(segment_id, "called off by its caller")

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        """Fetch a byte range of a segment, as RemoteStorageManager demands."""
        _require_range(metadata, start_position, end_position)
        with self._translated("fetch_segment", metadata) as parts:
            return parts.fetcher.fetch_log_segment(metadata, start_position, end_position)

    def fetch_log_segment_waits(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Waits[ViewStream]:
        """``fetch_log_segment`` as code that yields its waits, for callers that do not block a thread (``aio``)."""
        _require_range(metadata, start_position, end_position)
        with self._translated("fetch_segment", metadata) as parts:
            return (yield from parts.fetcher.fetch_log_segment_waits(metadata, start_position, end_position))

    def find_cached(
        self, metadata: RemoteLogSegmentMetadata, start: int, end_exclusive: int, *, again: bool = False
    ) -> list[memoryview] | None:
        """Return the bytes of a range of a segment whose chunks are all in the cache in memory, as these chunks' own
        views; None if one is not. Does not wait, and checks no batches: for callers that do.

        Args:
            metadata: A whole segment, with its custom metadata.
            start: First byte, in the original log; 0 <= start < end_exclusive <= its size.
            end_exclusive: Behind the last byte.
            again: The same reader asked for the first chunk just before.

        Raises:
            RemoteStorageException: closed, or not configured; or the segment's description is wrong.
        """
        if not self._configured().fetcher.has_memory_cache:
            return None
        with self._translated("fetch_segment", metadata) as parts:
            return parts.fetcher.find_cached(metadata, start, end_exclusive, again=again)

    def fetch_range(
        self, metadata: RemoteLogSegmentMetadata, start: int, end_exclusive: int, *, least_bytes: int
    ) -> list[memoryview]:
        """Fetch a range of a segment as ``find_cached`` gives it, likewise for callers that check batches themselves.

        Args:
            metadata: A whole segment, with its custom metadata.
            start: First byte, in the original log; 0 <= start < end_exclusive <= its size.
            end_exclusive: Behind the last byte.
            least_bytes: Fewer bytes than the range has may come, where what follows is not there; so many at least.

        Raises:
            CancelledReadError: a block of this thread (``cancelled_by``) is cancelled. Else as a stream of
                ``fetch_log_segment``, when it is read.
        """
        parts = self._configured()
        try:
            return parts.fetcher.fetch_range(metadata, start, end_exclusive, least_bytes=least_bytes)
        except CancelledReadError:
            raise
        except Exception as error:  # noqa: BLE001 - as every call of this
            _Translated(parts, self.metrics, "fetch_segment", metadata).fail(error)

    def find_cached_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """Return a part of a segment beside its log if it is cached, else None. Does not wait, and copies nothing.

        Raises:
            RemoteResourceNotFoundException: the segment has none. RemoteStorageException: as ``find_cached``.
        """
        with self._translated("fetch_index", metadata) as parts:
            return parts.fetcher.find_cached_index(metadata, index_type)

    def fetch_index_waits(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Waits[ViewStream]:
        """``fetch_index`` as code that yields its waits, likewise."""
        _require_index(metadata, index_type)
        with self._translated("fetch_index", metadata) as parts:
            return (yield from parts.fetcher.fetch_index_waits(metadata, index_type))

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        """Fetch the exact bytes of one part beside the log, as RemoteStorageManager demands."""
        _require_index(metadata, index_type)
        with self._translated("fetch_index", metadata) as parts:
            return parts.fetcher.fetch_index(metadata, index_type)

    def fetch_log_index(self, metadata: RemoteLogSegmentMetadata) -> tuple[RemoteLogIndexEntry, ...]:
        """Fetch the segment's entries of the remote log index, which ``log.index.object.enabled`` stores beside it.

        Raises:
            RemoteResourceNotFoundException: the segment is gone, or was copied without entries.
            RemoteStorageException, TypeError: as ``fetch_index``.

        Thread safety: any number of threads. Cost: one GET.
        """
        _require_metadata(metadata)
        from tierlog.remote.storage.copy.copied_segment import fetch_log_index

        with self._translated("fetch_index", metadata) as parts:
            return fetch_log_index(parts.store, parts.config, metadata)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove all objects of a segment, as RemoteStorageManager demands; the caches forget the segment too."""
        _require_metadata(metadata)
        clock = self._machine.clock
        with self._translated("delete", metadata) as parts:
            began = clock.monotonic_seconds()
            parts.fetcher.forget(metadata)
            try:
                parts.delete(metadata)
            finally:
                parts.fetcher.forget(metadata)  # a fetch that was under way may have brought it back
            self.metrics.add("deletes_total")
            self.metrics.add("delete_bytes_total", metadata.segment_size_in_bytes)
            self.metrics.observe("delete_seconds", clock.monotonic_seconds() - began)
            self._count(metadata, "deletes_total", "delete_bytes_total", "delete_seconds_total", began)

    def _count(self, metadata: RemoteLogSegmentMetadata, calls: str, size: str, seconds: str, began: float) -> None:
        """Count one successful call, for its partition too."""
        partition = metadata.topic_id_partition
        self.metrics.add_of(partition, calls)
        self.metrics.add_of(partition, size, metadata.segment_size_in_bytes)
        self.metrics.add_of(partition, seconds, self._machine.clock.monotonic_seconds() - began)

    def set_next_segment(self, next_segment: NextSegment) -> None:
        """Set the function that names the segment behind one, so that prefetch goes on across the border.

        Raises:
            RemoteStorageException: closed, or not configured. TypeError: ``next_segment`` cannot be called.
        """
        require_function("next_segment", next_segment)
        self._configured().fetcher.next_segment = next_segment

    def store_time_ms(self) -> int | None:
        """Return the store's time, as RemoteStorageManager says: by the ``Date`` of S3's, Google's and Azure's answers.

        Raises:
            RemoteStorageException: closed, or not configured.
        """
        from tierlog.runtime.stores.protocol.store_probe import time_of

        return time_of(self._configured().store)

    def change_rate_limit(self, direction: str, bytes_per_second: float | None) -> None:
        """Change a limit while running: ``direction`` is "upload" or "download", None takes the limit away.

        Raises:
            ValueError: another direction, or a limit that is not above 0. TypeError: an argument is of
                another type. RemoteStorageException: closed, or not configured.
        """
        require_text("direction", direction)
        if bytes_per_second is not None:
            require_number("bytes_per_second", bytes_per_second)
        limiters = self._configured().limiters
        if direction not in limiters:
            raise ValueError(f"{direction!r} is neither upload nor download")
        limiters[direction].change(bytes_per_second)

    def resize_index_cache(self, size_bytes: int) -> bool:
        """Change the size of the cache of indexes while running, as RemoteStorageManager says.

        Raises:
            ValueError: the size is negative, but for -1, which is no limit. TypeError: it is no integer.
            RemoteStorageException: closed, or not configured.
        """
        require_int64("size_bytes", size_bytes, least=-1)
        self._configured().fetcher.resize_index_cache(size_bytes)
        return True

    def close(self) -> None:
        """Release all resources: running copies are cancelled and undone. In a fork nothing is closed, since it is the
        parent's.
        """
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            parts, self._parts = self._parts, None
        if parts is not None:
            parts.close()

    def _configured(self) -> ManagerParts:
        try:
            self._origin.require(_WHAT)
        except ForkedProcessError as error:
            raise RemoteStorageException(str(error)) from error
        parts = self._parts
        if parts is None:
            raise RemoteStorageException("the storage manager is " + ("closed" if self._closed else "not configured"))
        return parts

    def _translated(self, operation: Operation, metadata: RemoteLogSegmentMetadata) -> _Translated:
        return _Translated(self._configured(), self.metrics, operation, metadata)


class _Translated:
    """A block whose errors are counted, and become the KIP's. Once."""

    __slots__ = ("_metadata", "_metrics", "_operation", "_parts")

    def __init__(
        self,
        parts: ManagerParts,
        metrics: StorageMetrics,
        operation: Operation,
        metadata: RemoteLogSegmentMetadata,
    ) -> None:
        self._parts = parts
        self._metrics = metrics
        self._operation = operation
        self._metadata = metadata

    def __enter__(self) -> ManagerParts:
        return self._parts

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):  # whatever it is, the broker's task must live on
            self.fail(error)

    def fail(self, error: Exception) -> NoReturn:
        """Count an error, and raise it as the KIP's."""
        operation, metadata, masked = self._operation, self._metadata, self._parts.masked
        kind = error_kind(error)
        self._metrics.add_error(operation, kind)
        self._metrics.add_of(metadata.topic_id_partition, "errors_total", label=operation)
        made = kip_error(error, operation, metadata.remote_log_segment_id, masked=masked)
        if operation == "copy":
            _log.warning("%s", made, exc_info=error if kind == "other" else None)
        # The cause would print a prefix that is to be masked.
        raise made from (None if masked else error)


def _require_metadata(metadata: object) -> None:
    require_type("metadata", metadata, RemoteLogSegmentMetadata, "a RemoteLogSegmentMetadata")


def _require_range(metadata: object, start_position: object, end_position: object) -> None:
    _require_metadata(metadata)
    require_int("start_position", start_position)
    if end_position is not None:
        require_int("end_position", end_position)


def _require_index(metadata: object, index_type: object) -> None:
    _require_metadata(metadata)
    require_type("index_type", index_type, IndexType, "an IndexType")
