"""The RemoteStorageManager: the plugin's objects, or Kafka's own files, in the configured store.

Invariant: whatever goes wrong, a caller sees one of the KIP's errors. The plugin lets an out-of-memory error escape,
which ends the broker's copy task of that partition without a line in its log (18.7 of the object format).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierlog.errors import ConfigError, ForkedProcessError
from tierlog.remote.api import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteStorageException,
    RemoteStorageManager,
    SegmentStream,
)
from tierlog.remote.storage.kip_errors import error_kind, kip_error
from tierlog.remote.storage.metrics.storage_metrics import Operation, StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.forking import Origin

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tierlog.log.formats.remote_log_index_entry import RemoteLogIndexEntry
    from tierlog.remote.storage.fetch.segment_fetch import NextSegment
    from tierlog.remote.storage.fetch.segment_stream import ViewStream
    from tierlog.remote.storage.requests.awaiting import Waits
    from tierlog.remote.storage.wiring import ManagerParts
    from tierlog.runtime.stores.protocol.object_store import ObjectStore
    from tierlog.runtime.stores.protocol.store_capabilities import StoreTraits

_log = logging.getLogger(__name__)

_WHAT = "the storage manager"


class TieredStorageManager(RemoteStorageManager):
    """See the module, and the class that it implements.

    Args:
        machine: What it runs on; by default this one.
        registry: Where its metrics are collected; None: one of its own (``metrics.registry``).
        wrap_store: Gets the store, and gives the one to use: to count, or to break it.

    Attributes:
        metrics: Complete from the start.

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
        self._origin = Origin()
        self._lock = self._machine.scheduler.lock()
        self._closed = False

    def configure(self, configs: Mapping[str, object]) -> None:
        """See RemoteStorageManager: the plugin's ``rsm.config.*`` keys, with or without prefix, and ours.

        The store is asked once who we are to it and what it does (``store.probe.enabled``); one that does not answer
        is logged and asked again later.

        Raises:
            ConfigError: also where the store, its root or a key file is not what the keys say, where the store does not
                know us or refuses, and for a second call.
        """
        from tierlog.remote.storage.config import read_storage_config
        from tierlog.remote.storage.plugins import open_backend
        from tierlog.remote.storage.wiring import ManagerParts

        config = read_storage_config(configs, machine=self._machine)
        config.check_for_broker()
        self._origin.require(_WHAT)
        with self._lock:
            if self._parts is not None or self._closed:
                raise ConfigError("configure is called once, before anything else")
        store = self._wrap_store(open_backend(config, machine=self._machine))
        parts = ManagerParts(config, store, self._machine, self.metrics)
        try:
            parts.probe.at_start()
        except BaseException:
            parts.close()
            raise
        self._parts = parts

    @property
    def store_traits(self) -> StoreTraits | None:
        """What the store was found to do; None while it has not answered, or where it is not asked."""
        return self._configured().probe.traits

    @property
    def store_identity(self) -> str | None:
        """Who we are to the store, never a secret; None while its source has not answered."""
        return self._configured().probe.identity

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        """See RemoteStorageManager."""
        with self._translated("copy", metadata) as parts:
            began = self._machine.clock.monotonic_seconds()
            custom = parts.copies.copier.copy(metadata, data)
            self._count(metadata, "copies_total", "copy_bytes_total", "copy_seconds_total", began)
            parts.probe.after_copy()
            return custom

    def call_off_copy(self, segment_id: RemoteLogSegmentId) -> bool:
        """Have a copy of another thread's end soon, undone and with an error; whether it runs. Waits for nothing."""
        return self._configured().copies.running.call_off_copy(segment_id, "called off by its caller")

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        """See RemoteStorageManager."""
        with self._translated("fetch_segment", metadata) as parts:
            return parts.fetcher.fetch_log_segment(metadata, start_position, end_position)

    def fetch_log_segment_waits(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Waits[ViewStream]:
        """As ``fetch_log_segment``, for who drives the waits in another way than a thread that waits (``aio``)."""
        with self._translated("fetch_segment", metadata) as parts:
            return (yield from parts.fetcher.fetch_log_segment_waits(metadata, start_position, end_position))

    def fetch_index_waits(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Waits[ViewStream]:
        """As ``fetch_index``, likewise."""
        with self._translated("fetch_index", metadata) as parts:
            return (yield from parts.fetcher.fetch_index_waits(metadata, index_type))

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        """See RemoteStorageManager."""
        with self._translated("fetch_index", metadata) as parts:
            return parts.fetcher.fetch_index(metadata, index_type)

    def fetch_log_index(self, metadata: RemoteLogSegmentMetadata) -> tuple[RemoteLogIndexEntry, ...]:
        """The segment's entries of the remote log index, which ``log.index.object.enabled`` ships with it.

        Raises:
            RemoteResourceNotFoundException: the segment is gone, or was copied without them.
            RemoteStorageException: see RemoteStorageManager.fetch_index.

        Thread safety: any number of threads. Cost: one GET.
        """
        from tierlog.remote.storage.copy.log_index_object import fetch_log_index

        with self._translated("fetch_index", metadata) as parts:
            return fetch_log_index(parts.store, parts.config, metadata)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See RemoteStorageManager; the caches forget the segment too."""
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
        """For its partition, one call that succeeded."""
        partition = metadata.topic_id_partition
        self.metrics.add_of(partition, calls)
        self.metrics.add_of(partition, size, metadata.segment_size_in_bytes)
        self.metrics.add_of(partition, seconds, self._machine.clock.monotonic_seconds() - began)

    def set_next_segment(self, next_segment: NextSegment) -> None:
        """Tell who knows which segment follows one, so that prefetch crosses the border."""
        self._configured().fetcher.next_segment = next_segment

    def change_rate_limit(self, direction: str, bytes_per_second: float | None) -> None:
        """While running; ``direction`` is "upload" or "download", None for no limit. Raises ValueError."""
        limiters = self._configured().limiters
        if direction not in limiters:
            raise ValueError(f"{direction!r} is neither upload nor download")
        limiters[direction].change(bytes_per_second)

    def close(self) -> None:
        """See RemoteStorageManager: what is being copied is called off and cleaned up. In a fork it is the parent's."""
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

    @contextmanager
    def _translated(self, operation: Operation, metadata: RemoteLogSegmentMetadata) -> Iterator[ManagerParts]:
        parts = self._configured()
        try:
            yield parts
        except Exception as error:  # noqa: BLE001 - whatever it is, the broker's task must live on
            kind = error_kind(error)
            self.metrics.add_error(operation, kind)
            self.metrics.add_of(metadata.topic_id_partition, "errors_total", label=operation)
            made = kip_error(error, operation, metadata.remote_log_segment_id, masked=parts.masked)
            if operation == "copy":
                _log.warning("%s", made, exc_info=error if kind == "other" else None)
            # The cause would print a prefix that is to be masked.
            raise made from (None if parts.masked else error)
