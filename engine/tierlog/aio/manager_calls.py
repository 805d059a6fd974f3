"""Awaitable calls of a blocking manager, and of its streams."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self, TypeVar

from tierlog.errors import ForkedProcessError, NoThreadError, PoolClosedError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException, SegmentStream
from tierlog.remote.storage.fetch.segment_stream import ViewStream
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.waiting.loops import TaskCancelledError, Worker

Result = TypeVar("Result")

_CLOSED: Final = "the storage manager is closed"


class ManagerWorker(Worker):
    """Threads that call a manager. Where they cannot, the error is one of the KIP's."""

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run a call in a thread when one is free. Raises RemoteStorageException: closed, in a fork, or without a
        thread.
        """
        try:
            return super().submit(call)
        except ForkedProcessError as error:
            raise RemoteStorageException(str(error)) from error
        except PoolClosedError:
            raise RemoteStorageException(_CLOSED) from None
        except NoThreadError as error:
            raise RetriableRemoteStorageException(str(error)) from error

    async def result(self, future: Future[Result], *, seconds: float | None = None) -> Result:
        """Wait for the result of a submitted call, as Worker says. Raises RemoteStorageException: closed before it
        began.
        """
        try:
            return await super().result(future, seconds=seconds)
        except PoolClosedError:
            raise RemoteStorageException(_CLOSED) from None


class LoopReads:
    """The views of a stream, awaited without a thread.

    Args:
        stream: The stream, which nothing else reads.
        worker: Threads for reading a disk and opening chunks.
    """

    def __init__(self, stream: ViewStream, worker: Worker) -> None:
        self._stream = stream
        self._worker = worker

    async def take(self, size_bytes: int, *, lean: bool) -> memoryview | None:
        """Take the next bytes: at least one, at most ``size``; None at the end."""
        stream = self._stream
        size = stream.left_bytes if size_bytes < 0 else min(size_bytes, stream.left_bytes)
        if not size:
            return None
        waits = stream.take_waits(size, lean=lean)
        return await self._worker.drive(waits, stream.closing)

    async def aclose(self) -> None:
        """Cancel the pending read and release the stream's resources."""
        self._stream.close()


class ThreadReads:
    """The views of a SegmentStream. Each read occupies a thread until it is done."""

    def __init__(self, stream: SegmentStream, worker: Worker) -> None:
        self._stream = stream
        self._worker = worker

    @classmethod
    async def begin(cls, fetch: Callable[[], SegmentStream], worker: Worker) -> Self:
        """Open the stream in a thread. If the caller is cancelled, the stream is closed as soon as it is open."""
        opening = worker.submit(fetch)
        try:
            return cls(await worker.result(opening), worker)
        except TaskCancelledError:
            if not opening.cancel():
                opening.add_done_callback(_close_opened)
            raise

    async def take(self, size_bytes: int, *, lean: bool) -> memoryview | None:  # noqa: ARG002 - the stream's to say
        """Take the next bytes: at least one, at most ``size``; None at the end."""
        most = None if size_bytes < 0 else size_bytes
        reading: Future[memoryview | None] = self._worker.submit(lambda: next(self._stream.buffers(most), None))
        try:
            return await self._worker.result(reading)
        except TaskCancelledError:
            if not reading.cancel():
                self._stream.close()
            raise

    async def aclose(self) -> None:
        """Close the stream, which ends a read under way."""
        self._stream.close()


#: Where an AsyncSegmentStream takes its views from.
ViewReads = LoopReads | ThreadReads


def _close_opened(opening: Future[SegmentStream]) -> None:
    with suppress(Exception):  # it failed, and no caller waits for it
        opening.result().close()
