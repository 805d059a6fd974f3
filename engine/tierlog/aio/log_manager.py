"""A RemoteLogManager whose calls are awaited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, Self, TypeVar

from tierlog.aio.manager_calls import ManagerWorker
from tierlog.log.local.segments.segment_view import TimestampAndOffset
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.leader_endpoint import LeaderEndpoint
from tierlog.remote.manager.manager_health import ManagerHealth
from tierlog.remote.manager.partition_stops import StopPartition
from tierlog.remote.manager.pending_reads import RemoteRead, RemoteReadResult
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.replication.messages import AuxStateBuilt, BuildAuxState
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.waiting.loops import TaskCancelledError

Result = TypeVar("Result")

#: For what blocks: opening, and looking at all partitions.
_THREADS: Final = 2


class AsyncRemoteLogManager:
    """The calls of RemoteLogManager for an event loop. An async context manager.

    It starts no loop and belongs to none: each call uses the running loop. Arguments and errors are those of the
    blocking manager, whose own threads do the work: what is awaited occupies none. Cancelling a read, a search or the
    building of a log ends it; cancelling anything else ends the waiting alone.

    Args:
        manager: The manager.
        machine: Where its threads come from; by default this machine.

    Attributes:
        manager: The manager; its other calls and attributes return at once.

    Thread safety: any number of tasks, of loops in any number of threads.
    """

    def __init__(self, manager: RemoteLogManager, *, machine: Machine | None = None) -> None:
        self._machine = machine or Machine()
        self.manager = manager
        pool = self._machine.scheduler.pool(_THREADS, name="tierlog-aio-rlm")
        self._worker = ManagerWorker(pool, self._machine)

    @classmethod
    async def open(cls, configs: Mapping[str, str], *, machine: Machine | None = None, **arguments: Any) -> Self:
        """Make a manager in a thread, as ``RemoteLogManager.open`` does. If the caller is cancelled, it is closed as
        soon as it is made.
        """
        machine = machine or Machine()
        pool = machine.scheduler.pool(1, name="tierlog-aio-rlm-open")
        worker = ManagerWorker(pool, machine)
        try:
            opening = worker.submit(lambda: RemoteLogManager.open(configs, machine=machine, **arguments))
            try:
                made = await worker.result(opening)
            except TaskCancelledError:
                if not opening.cancel():
                    opening.add_done_callback(partial(_close_made, machine))
                raise
        finally:
            pool.close(cancel=False, wait_seconds=0)
        return cls(made, machine=machine)

    def on_leadership_change(
        self,
        leaders: AbstractSet[TopicIdPartition],
        followers: AbstractSet[TopicIdPartition],
        *,
        metadata_partitions: AbstractSet[int] | None = None,
    ) -> None:
        """Report the partitions that this broker begins to lead or to follow. Returns at once, as the manager's."""
        self.manager.on_leadership_change(leaders, followers, metadata_partitions=metadata_partitions)

    async def stop_partitions(self, stopped: Iterable[StopPartition]) -> Mapping[TopicIdPartition, Exception]:
        """Report partitions that this broker leads or follows no more; return the errors."""
        return await self._worker.result(self.manager.stop_partitions(stopped))

    async def on_config_change(self, partitions: AbstractSet[TopicIdPartition]) -> Mapping[TopicIdPartition, Exception]:
        """Report partitions whose logs have another configuration now; return the errors."""
        return await self._worker.result(self.manager.on_config_change(partitions))

    async def read(
        self,
        requests: Sequence[RemoteRead],
        *,
        max_bytes: int | None = None,
        min_one_message: bool = True,
        max_wait_ms: int | None = None,
    ) -> Sequence[RemoteReadResult]:
        """Read partitions of one fetch whose offsets are in the tier alone."""
        reading = self.manager.read(
            requests, max_bytes=max_bytes, min_one_message=min_one_message, max_wait_ms=max_wait_ms
        )
        return await self._ended_by_cancel(reading)

    async def list_offsets(
        self, partition: TopicIdPartition, timestamp_ms: int, *, timeout_ms: int | None = None
    ) -> TimestampAndOffset | None:
        """Search a partition's offset by time, over tier and log."""
        return await self._ended_by_cancel(self.manager.list_offsets(partition, timestamp_ms, timeout_ms=timeout_ms))

    async def build_aux_state(
        self, partition: TopicIdPartition, build: BuildAuxState | LeaderEndpoint, *, leader_epoch: int = -1
    ) -> AuxStateBuilt:
        """Begin a partition's log behind what only the tier has. A cancelled call may have changed the log: see
        ``AuxStates``.
        """
        building = self.manager.build_aux_state(partition, build, leader_epoch=leader_epoch)
        return await self._ended_by_cancel(building)

    async def delete_partition(self, partition: TopicIdPartition) -> None:
        """Mark a partition of a deleted topic."""
        await self._worker.result(self.manager.delete_partition(partition))

    async def health(self) -> ManagerHealth:
        """Return what the manager is behind with, and why; it is looked up in a thread."""
        return await self._worker.run(self.manager.health)

    async def aclose(self) -> None:
        """Close the manager, in a thread; repeatable."""
        await self._in_thread(self.manager.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ended_by_cancel(self, future: Future[Result]) -> Result:
        try:
            return await self._worker.result(future)
        except TaskCancelledError:
            future.cancel()
            raise

    async def _in_thread(self, call: Callable[[], None]) -> None:
        def close() -> None:
            call()
            self._worker.close()

        await self._worker.result(self._machine.scheduler.start(close, name="tierlog-aio-rlm-close"))


def _close_made(machine: Machine, opening: Future[RemoteLogManager]) -> None:
    """Close a manager that no caller waits for, in a thread: this may be the loop's."""
    if opening.exception() is None:
        machine.scheduler.start(opening.result().close, name="tierlog-aio-rlm-close")
