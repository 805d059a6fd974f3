"""A range of a segment's bytes for an event loop, as views that are fetched when they are asked for."""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable
from typing import Self

from typing_extensions import Buffer

from tierlog.aio.manager_calls import ViewReads
from tierlog.arguments import require_int, require_writable
from tierlog.runtime.waiting.loops import TaskCancelledError


class AsyncSegmentStream:
    """The bytes of a range of a segment, in order. Nothing is fetched before the first read is awaited.

    An async context manager, and an async iterator of the bytes left as read-only views, each of one chunk at most,
    none empty. A view is the caller's for as long as it holds it. All forms of reading share one position, which an
    error does not move. A stream that was read to its end is closed; any other must be closed (``async with`` or
    ``aclose``).

    Cancelling a read ends its request and closes the stream: ask anew, from ``tell()`` on.

    Raises (all forms of reading):
        RemoteStorageException and its kinds, as SegmentStream. ValueError after a close. RuntimeError: two tasks read
        at once. TypeError: an argument is of another type.

    One task reads at a time, on one event loop.
    """

    def __init__(self, open_source: Callable[[], Awaitable[ViewReads]]) -> None:
        self._open_source = open_source
        self._source: ViewReads | None = None
        #: Views that a failed call had read already: the next call begins with them.
        self._again: collections.deque[memoryview] = collections.deque()
        self._position = 0
        self._reading = False
        self._ended = False
        self._closed = False

    def tell(self) -> int:
        """Return the number of bytes that were read so far."""
        return self._position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> memoryview:
        view = await self.next_view()
        if view is None:
            raise StopAsyncIteration
        return view

    async def next_view(self, max_bytes: int = -1) -> memoryview | None:
        """Return the next bytes: at most ``size`` and at most a chunk (-1: as many as are fetched); None at the end."""
        view = await self._take(require_int("max_bytes", max_bytes), lean=True)
        self._position += 0 if view is None else len(view)
        return view

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, fewer only at the end; -1 or None for all that is left. b"" at the end."""
        taken: list[memoryview] = []
        left = -1 if size is None else require_int("size", size)
        try:
            while (view := await self._take(left, lean=False)) is not None:
                taken.append(view)
                left -= len(view) if left > 0 else 0
        except BaseException:
            self._again.extendleft(reversed(taken))
            raise
        self._position += sum(map(len, taken))
        return b"".join(taken)

    async def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer; fewer bytes only at the end, 0 at the end. An error leaves the buffer's content undefined."""
        out = require_writable("buffer", buffer)
        taken: list[memoryview] = []
        done = 0
        try:
            while (view := await self._take(len(out) - done, lean=False)) is not None:
                taken.append(view)
                out[done : done + len(view)] = view
                done += len(view)
        except BaseException:
            self._again.extendleft(reversed(taken))
            raise
        self._position += done
        return done

    async def _take(self, size: int, *, lean: bool) -> memoryview | None:
        """Take the bytes that follow, at most ``size``; None at the end, and for a size of 0."""
        if self._closed:
            raise ValueError("the stream is closed")
        if self._reading:
            raise RuntimeError("another task is reading this stream")
        if self._again:
            return self._taken_again(size)
        if self._ended or not size:
            return None
        self._reading = True
        try:
            if self._source is None:
                self._source = await self._open_source()
            view = await self._source.take(size, lean=lean)
        except TaskCancelledError:
            self._reading = False
            await self.aclose()
            raise
        finally:
            self._reading = False
        if view is None:
            self._ended = True
            await self._release()
        return view

    def _taken_again(self, size: int) -> memoryview | None:
        view = self._again.popleft()
        if 0 <= size < len(view):
            self._again.appendleft(view[size:])
            view = view[:size]
        return view if size else None

    async def aclose(self) -> None:
        """End the pending requests and release all resources; idempotent."""
        self._closed = True
        self._again.clear()
        await self._release()

    async def _release(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
