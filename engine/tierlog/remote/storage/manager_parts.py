"""The parts of a configured storage manager, and how they are connected.

This is a module of its own so that naming the manager's class (in a plugin loader or a type) does not import
configuration, stores and codecs, which takes half a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from tierlog._native.codecs import drop_contexts
from tierlog.errors import NoThreadError
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.copy.copied_segment import delete_segment
from tierlog.remote.storage.copy.copy_checks import SegmentFiles
from tierlog.remote.storage.copy.leftovers import Leftovers
from tierlog.remote.storage.copy.segment_copy import SegmentCopier
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.start_probe import StartProbe
from tierlog.remote.storage.storage_errors import error_kind, kip_error
from tierlog.remote.storage.storage_metrics import DIRECTIONS, PartitionMetrics, StorageMetrics
from tierlog.remote.tier.chunks.key_ring import read_key_ring
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.layouts.kafka import DESCRIPTION
from tierlog.remote.tier.objects.object_keys import PARSERS
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore, answer_bytes
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.threads import ENDING_SECONDS, BoundedCalls

#: That a copy without a deadline may take: more than a broker lives.
_NO_DEADLINE_SECONDS = 10.0 * 365 * 24 * 3600
#: Deletions at a time.
_CALLS = 32

Result = TypeVar("Result")
#: Kind as which an object counts, by the suffix of its key.
_OBJECT_KINDS: Final = {"log": "log", MANIFEST: "manifest", DESCRIPTION: "manifest"}


class ManagerParts:
    """All that a configured storage manager works with, made and closed together.

    Attributes:
        config: The configuration.
        store: Its objects, with all that is put around a store.
        masked: A prefix of keys that no message may show; "" for none.
        copies: Copies segments.
        segment_files: Where the segments are that the broker gives it.
        fetcher: Reads them.
        leftovers: What failed calls left in the store.
        probe: Asks the store for our identity.
        limiters: Of "upload" and "download".
        key_ring: Of all copies and reads.
    """

    def __init__(self, config: StorageConfig, store: ObjectStore, machine: Machine, metrics: StorageMetrics) -> None:
        self._machine = machine
        self.config = config
        self.store = store
        masked = self.masked = config.key_prefix if config.key_prefix_mask else ""
        self.calls = BoundedCalls(machine, _CALLS, name="tierlog-call")
        self.leftovers = Leftovers(machine, metrics, masked=masked)
        self.probe = StartProbe(
            store, config, calls=self.calls, leftovers=self.leftovers, machine=machine, metrics=metrics
        )
        limits = (config.upload_rate_limit_bytes_per_second, config.download_rate_limit_bytes_per_second)
        self.limiters = {
            direction: RateLimiter(limit, machine=machine, on_wait=_wait_counter(metrics, direction))
            for direction, limit in zip(DIRECTIONS, limits, strict=True)
        }
        key_ring = self.key_ring = read_key_ring(config, machine, writing=True)
        self.copies = SegmentCopier(
            store,
            config,
            key_ring,
            limiter=self.limiters["upload"],
            leftovers=self.leftovers,
            metrics=metrics,
            machine=machine,
            longest_seconds=_NO_DEADLINE_SECONDS,
            on_idle=drop_contexts,  # contexts go back to the system; the next copy makes them anew
        )
        self.segment_files = SegmentFiles(machine.files)
        self.fetcher = SegmentFetcher(
            store,
            config,
            key_ring,
            limiter=self.limiters["download"],
            machine=machine,
            metrics=metrics,
            translate=_stream_translation(metrics, masked),
        )
        metrics.ask_requests(lambda: store.requests)
        buffers = self.copies.buffers
        metrics.ask("upload_buffer_bytes", lambda: buffers.lent_bytes, label="used")
        metrics.ask("upload_buffer_bytes", lambda: buffers.budget_bytes, label="budget")

    def close(self) -> None:
        """Cancel all work, then wait for it: copies for their undo, which needs the store. In two seconds, also where
        the store hangs: a call that does not end is left in a thread without a waiter.
        """
        self.leftovers.expect_close()
        self.copies.running.call_off()
        self.calls.give_up()
        self.fetcher.close()
        self.copies.end()
        try:
            closing = self._machine.scheduler.start(self.store.close, name="tierlog-close")
        except NoThreadError:
            self.store.close()
        else:
            with contextlib.suppress(TimeoutError):
                closing.result(timeout=ENDING_SECONDS)
        self.copies.close()
        self.calls.close()

    def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment's objects, in no more time than a copy may take. A call that fails can be made again."""
        segment_id = metadata.remote_log_segment_id
        uploads_too = self.leftovers.has(segment_id)
        self.calls.run(
            str(segment_id),
            lambda: delete_segment(self.store, self.config, metadata, uploads_too=uploads_too),
            seconds=self.copies.deadline_seconds,
        )
        self.leftovers.forget(segment_id)


def _wait_counter(metrics: StorageMetrics, direction: str) -> Callable[[float], None]:
    return lambda seconds: metrics.add("rate_limit_wait_seconds_total", seconds, label=direction)


def _stream_translation(metrics: StorageMetrics, masked: str) -> Callable[[BaseException], BaseException]:
    def translate(error: BaseException) -> BaseException:
        if not isinstance(error, Exception):
            return error
        metrics.add_error("fetch_segment", error_kind(error))
        return kip_error(error, "fetch_segment", "a stream", masked=masked)

    return translate


def counted_by_partition(store: ObjectStore, config: StorageConfig, metrics: StorageMetrics) -> ObjectStore:
    """Return the store, with its calls counted by partition where the configuration's level of metrics asks for it.

    Outside of all other layers: partitions come from keys of requests, never from messages, and a read counts once,
    into however many pieces it is cut.
    """
    if config.metrics_recording_level == "INFO":
        return store
    return PartitionStore(store, config.layout, metrics.record_partitions())


class PartitionStore(PassingStore):
    """A wrapper that passes all calls on, and counts those whose key names a partition.

    Args:
        store: The store behind this one.
        layout: The layout of the store's keys.
        metrics: Where calls are counted.

    Thread safety: that of the store.
    """

    def __init__(self, store: ObjectStore, layout: str, metrics: PartitionMetrics) -> None:
        super().__init__(store)
        self._parse = PARSERS[layout]
        self._metrics = metrics

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        """Count a call by partition. A deletion names the objects of one segment: its first key counts."""
        found = self._parse(call.key) if call.objects and call.verb != "LIST" else None
        if found is None:
            return run()
        partition = found.topic_id_partition
        self._metrics.add(partition, "store_requests_total", label=call.verb)
        done = run()
        if call.verb == "GET":
            self._metrics.add(partition, "fetch_bytes_total", answer_bytes(done))
        elif isinstance(done, StoredObject):
            kind = _OBJECT_KINDS.get(found.suffix, "indexes")
            self._metrics.add(partition, "upload_objects_total", label=kind)
            self._metrics.add(partition, "upload_bytes_total", done.size_bytes, label=kind)
        return done
