"""A RemoteStorageManager whose calls are awaited."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Self

from tierlog.aio.manager_calls import LoopReads, ManagerWorker, ThreadReads, ViewReads
from tierlog.aio.segment_stream import AsyncSegmentStream
from tierlog.remote.api import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteStorageException,
    RemoteStorageManager,
)
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import TaskCancelledError

#: Kafka copies with so many threads at once (remote.log.manager.copier.thread.pool.size).
COPIES: Final = 10
#: For deletions; and for short calls: disks, chunks, a third party's indexes and descriptions.
THREADS: Final = 16


class AsyncStorageManager:
    """The calls of RemoteStorageManager for an event loop. An async context manager.

    It starts no loop and belongs to none: each call uses the running loop, also several in one process. Errors,
    deadlines, limits and caches are those of the blocking calls. Calls above the limit wait for their turn.

    Cancelling (``task.cancel()``, ``asyncio.timeout``) ends the call:

    - a copy is cancelled and undone before the cancellation goes on, within the manager's limit for an undo;
    - a read ends its request and closes its stream;
    - a deletion goes on by itself; the same call, made again, removes the rest.

    Args:
        manager: The blocking manager, configured or not; a third party's too. None makes a TieredStorageManager.
        copies: The most copies at once.
        threads: The most threads for deletions, and as many for all else: where the store stands, reads go on out of
            a cache on a disk.
        machine: Where its threads come from; by default this machine.

    Attributes:
        manager: The blocking manager. Its other methods and attributes (``metrics``, ``change_rate_limit``) block on
            nothing and can be used directly.

    Thread safety: any number of tasks, of loops in any number of threads.
    """

    def __init__(
        self,
        manager: RemoteStorageManager | None = None,
        *,
        copies: int = COPIES,
        threads: int = THREADS,
        machine: Machine | None = None,
    ) -> None:
        self._machine = machine or Machine()
        self._scheduler = self._machine.scheduler
        self.manager = manager or TieredStorageManager(machine=machine)
        self._copier = ManagerWorker(self._scheduler.pool(copies, name="tierlog-aio-copy"), self._machine)
        self._remover = ManagerWorker(self._scheduler.pool(threads, name="tierlog-aio-delete"), self._machine)
        self._worker = ManagerWorker(self._scheduler.pool(threads, name="tierlog-aio"), self._machine)

    async def configure(self, configs: Mapping[str, object]) -> None:
        """Configure the manager, in a thread. Arguments and errors are those of ``RemoteStorageManager.configure``."""
        await self._worker.run(lambda: self.manager.configure(configs))

    async def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CustomMetadata | None:
        """Copy a segment, in a thread, as RemoteStorageManager does. A cancelled copy is undone; delete the segment if
        a second cancellation cuts the undo short.
        """
        copy = _Copy(self.manager, metadata, data)
        future = self._copier.submit(copy.run)
        try:
            return await self._copier.result(future)
        except TaskCancelledError:
            copy.call_off()
            if not future.cancel():
                with suppress(RemoteStorageException):  # of the cancelled copy
                    await self._copier.result(future)
                    await self._remover.run(copy.delete)  # it was done just before
            raise

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncSegmentStream:
        """Fetch a byte range of a segment, as RemoteStorageManager does. Nothing is asked for before the first read,
        which raises the errors of opening too.

        ::

            async with manager.fetch_log_segment(metadata, 0) as stream:
                async for view in stream:
                    ...
        """
        manager, worker = self.manager, self._worker

        async def begin() -> ViewReads:
            if not isinstance(manager, TieredStorageManager):
                fetch = partial(manager.fetch_log_segment, metadata, start_position, end_position)
                return await ThreadReads.begin(fetch, worker)
            opening = manager.fetch_log_segment_waits(metadata, start_position, end_position)
            return LoopReads(await worker.drive(opening), worker)

        return AsyncSegmentStream(begin)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Fetch all bytes of one part beside the log, as RemoteStorageManager does."""

        manager = self.manager
        if isinstance(manager, TieredStorageManager):
            with await self._worker.drive(manager.fetch_index_waits(metadata, index_type)) as stream:
                return stream.read()

        def fetch() -> bytes:
            with manager.fetch_index(metadata, index_type) as stream:
                return stream.read()

        return await self._worker.run(fetch)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove the objects that a copy of the segment may have stored, in a thread, as RemoteStorageManager does."""
        await self._remover.run(lambda: self.manager.delete_log_segment_data(metadata))

    async def aclose(self) -> None:
        """Close the manager: calls under way end with an error, and their leftovers are removed from the store;
        repeatable.
        """

        def close() -> None:
            self.manager.close()
            self._copier.close()
            self._remover.close()
            self._worker.close()

        closing = self._scheduler.start(close, name="tierlog-aio-close")
        await self._worker.result(closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Copy:
    """One copy, which any thread can cancel."""

    def __init__(self, manager: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        self._manager = manager
        self._metadata = metadata
        self._data = data
        self._called_off: list[bool] = []

    def run(self) -> CustomMetadata | None:
        """Copy, in this thread. Raises RemoteStorageException if the copy was cancelled, when it is undone."""
        if not self._called_off:
            custom_metadata = self._manager.copy_log_segment_data(self._metadata, self._data)
            if not self._called_off:
                return custom_metadata
            self.delete()
        raise RemoteStorageException(f"{self._metadata.remote_log_segment_id}: the copy was cancelled")

    def call_off(self) -> None:
        """End the copy soon, where the manager can; else its objects are removed once it is done. Does not block."""
        self._called_off.append(True)
        with suppress(RemoteStorageException):  # closed meanwhile, which calls it off too
            self._manager.call_off_copy(self._metadata.remote_log_segment_id)

    def delete(self) -> None:
        """Remove the objects that the copy stored."""
        self._manager.delete_log_segment_data(self._metadata)
