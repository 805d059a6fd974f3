"""A copier of segments and what it works with, made of one configuration.

A broker's storage manager and a copy by hand are wired here, so that both write alike.
"""

from __future__ import annotations

from collections.abc import Callable

from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.copy.leftovers import Leftovers
from tierlog.remote.storage.copy.running_copies import RunningCopies
from tierlog.remote.storage.copy.segment_copy import SegmentCopier
from tierlog.remote.storage.copy.upload_buffers import process_buffers
from tierlog.remote.storage.metrics.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter


class SegmentCopies:
    """The copies into one store.

    Args:
        store: Gets the objects; it stays the caller's.
        config: What they look like, and the deadline.
        key_ring: Wraps data keys.
        limiter: Of uploads.
        leftovers: Undoes what fails; closed with this.
        metrics: Where copies are counted.
        machine: Threads and clock.
        longest_seconds: That one copy may take, where the configuration has no deadline.
        on_idle: Called when nothing was copied for a while.

    Attributes:
        deadline_seconds: That one copy may take.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: StorageConfig,
        key_ring: KeyRing,
        *,
        limiter: RateLimiter,
        leftovers: Leftovers,
        metrics: StorageMetrics,
        machine: Machine,
        longest_seconds: float,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        deadline_ms = config.copy_deadline_ms
        self.deadline_seconds = longest_seconds if deadline_ms is None else deadline_ms / 1000
        self.buffers = process_buffers(config.upload_buffer_bytes, machine)
        self.running = RunningCopies(metrics, machine=machine, deadline_seconds=self.deadline_seconds, on_idle=on_idle)
        self.copier = SegmentCopier(
            store,
            config,
            key_ring,
            limiter=limiter,
            buffers=self.buffers,
            running=self.running,
            leftovers=leftovers,
            metrics=metrics,
            machine=machine,
        )
        self._leftovers = leftovers

    def end(self) -> None:
        """Call off what is being copied, and wait for its undo, which needs the store; idempotent."""
        self.running.close()
        self._leftovers.close()

    def close(self) -> None:
        """As ``end``, and release the threads; idempotent."""
        self.end()
        self.copier.close()
