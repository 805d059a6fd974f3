"""Awaitable reads of a blocking stream, by threads: for managers that offer nothing better."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tierlog.aio.waiting import TaskCancelledError, Worker
from tierlog.remote.api import SegmentStream
from tierlog.runtime.machine.scheduling import Future


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
        """The bytes that follow: at least one, at most ``size``; None at the end."""
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


def _close_opened(opening: Future[SegmentStream]) -> None:
    with suppress(Exception):  # it failed, and nobody waits for it
        opening.result().close()
