"""Notices to the metadata manager of what this broker leads, follows and leaves, in their order, by one thread.

A broker's notice returns at once, whatever a third party's manager does with it. Of notices about one partition that
are not delivered yet, the last one counts: so what waits has the size of the cluster's part here, however long a
manager hangs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import Role
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 3600.0

#: Called in the notices' thread: with a future of the partition's metadata, None if the manager cannot say; with the
#: error of a notice that failed, None if it did not. It neither raises nor waits.
WhenReady = Callable[[Future[None] | None], None]
WhenStopped = Callable[[Exception | None], None]


class _Notice:
    """The pending notice about one partition: that it stopped, then that it begins."""

    __slots__ = ("begins", "role", "stops")

    def __init__(self) -> None:
        self.stops: list[WhenStopped] = []
        self.role: Role | None = None
        self.begins: WhenReady | None = None


class MetadataNotices(Closeable):
    """The notices. A context manager.

    Args:
        services: Has the metadata manager.

    Attributes:
        failure: The error of the last delivery; None: it had none.

    Thread safety: any number of threads.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services
        self._lock = services.machine.scheduler.lock()
        self._pending: dict[TopicIdPartition, _Notice] = {}
        self._failed_count = 0
        self._closed = False
        self.failure: BaseException | None = None
        self._schedule = TaskSchedule(services.machine, name="tierlog-rlm-notices", workers=1)
        self._task = self._schedule.add(self._deliver, delay_seconds=_IDLE_SECONDS)

    @property
    def waiting(self) -> int:
        """The number of partitions with a notice that is not delivered."""
        return len(self._pending)

    @property
    def running_seconds(self) -> float:
        """How long the present delivery goes on; 0: there is none."""
        began = self._task.began_seconds
        return 0.0 if began < 0 else self._services.machine.clock.monotonic_seconds() - began

    def begin(self, partitions: Iterable[tuple[TopicIdPartition, Role, WhenReady]]) -> None:
        """Have the manager hear that this broker begins to lead or follow partitions."""
        with self._lock:
            for partition, role, begins in partitions:
                notice = self._pending.setdefault(partition, _Notice())
                notice.role, notice.begins = role, begins
        self._task.wake()

    def stop(self, partition: TopicIdPartition, then: WhenStopped, *, is_here: Callable[[], bool]) -> None:
        """Have it hear that this broker neither leads nor follows a partition any more. After ``close`` it hears
        nothing.

        Args:
            partition: Which.
            then: Called when it has heard it, or need not.
            is_here: Whether the partition has another term. Asked in the order of the notices: a term that it misses
                has its own notice behind this one.
        """
        with self._lock:
            stays = is_here()
            if not (stays or self._closed):
                notice = self._pending.setdefault(partition, _Notice())
                notice.role = notice.begins = None
                notice.stops.append(then)
        if stays:
            then(None)
        else:
            self._task.wake()

    def _deliver(self) -> float:
        with self._lock:
            taken, self._pending = self._pending, {}
        self._deliver_stops({partition: notice.stops for partition, notice in taken.items() if notice.stops})
        roles = {partition: notice.role for partition, notice in taken.items() if notice.role is not None}
        if not roles:
            return _IDLE_SECONDS
        try:
            self._services.metadata.on_partition_leadership_changes(
                frozenset(partition for partition, role in roles.items() if role is Role.LEADER),
                frozenset(partition for partition, role in roles.items() if role is Role.FOLLOWER),
            )
        except Exception as error:  # noqa: BLE001 - whatever a third party's raises, the notice must arrive some time
            return self._deliver_later({partition: taken[partition] for partition in roles}, error)
        except BaseException as error:  # of the thread
            self._deliver_later({partition: taken[partition] for partition in roles}, error)
            raise
        self.failure, self._failed_count = None, 0
        for partition in roles:
            begins = taken[partition].begins
            assert begins is not None
            begins(self._when_ready(partition))
        return _IDLE_SECONDS

    def _deliver_stops(self, stops: dict[TopicIdPartition, list[WhenStopped]]) -> None:
        if not stops:
            return
        failure = None
        try:
            self._services.metadata.on_stop_partitions(frozenset(stops))
        except Exception as error:  # noqa: BLE001 - its caller hears of it
            _log.warning("the metadata manager has not taken that %d partitions stop: %s", len(stops), error)
            failure = error
        for waiting in stops.values():
            for then in waiting:
                then(failure)

    def _deliver_later(self, notices: dict[TopicIdPartition, _Notice], error: BaseException) -> float:
        """Put notices that the manager refused behind those that came meanwhile; return the pause."""
        _log.warning("the metadata manager has not taken the roles of %d partitions: %s", len(notices), error)
        with self._lock:
            for partition, notice in notices.items():
                if partition not in self._pending:
                    notice.stops = []
                    self._pending[partition] = notice
        self.failure = error
        self._failed_count += 1
        config = self._services.config
        pause_ms = config.task_retry_backoff_ms << min(self._failed_count - 1, 20)
        return min(pause_ms, config.task_retry_backoff_max_ms) / 1000

    def _when_ready(self, partition: TopicIdPartition) -> Future[None] | None:
        try:
            return self._services.metadata.when_ready(partition)
        except BaseException as error:  # noqa: BLE001 - an optional call: tasks go by their own errors then
            _log.warning("%s: the metadata manager cannot say when it is ready: %s", partition, error)
            return None

    def close(self) -> None:
        """Deliver nothing any more, and wait for the present delivery, at most ten seconds; idempotent."""
        with self._lock:
            self._closed = True
            self._pending.clear()
        self._schedule.close()
