"""The streams that fetches return: views, never joined, read lazily.

An error leaves a stream where it was before the call. After a retriable error the next call goes on from there; any
other is raised by every later call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import NoReturn

from typing_extensions import Buffer

from tierlog._native.buffers import copy_into, joined
from tierlog.arguments import require_int, require_writable
from tierlog.errors import ForkedProcessError, TierlogError
from tierlog.remote.storage.fetch.range_reader import RangeReader
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.process import Closeable, Origin
from tierlog.runtime.waiting.waits import Interrupt, Waits, forget_frames

Translate = Callable[[BaseException], BaseException]


def same_error(error: BaseException) -> BaseException:
    """Return the error itself, for streams whose errors are not translated."""
    return error


class ViewStream(Closeable):
    """A SegmentStream over a source of views.

    Args:
        source: Of the bytes. One thread at a time takes from it; ``close`` comes from any.
        translate: An error as the caller is to see it.
        on_close: Called once, with the number of bytes returned.
        on_drop: Called with the source of a stream that was dropped unclosed; it runs in the middle of anything, and
            takes no lock. None where nothing is held.

    Raises:
        What ``translate`` makes of an error of the source. ValueError after ``close``. TypeError: an argument is of
        another type.

    Thread safety: one reader; ``close`` from any thread.
    """

    def __init__(
        self,
        source: RangeReader | BytesSource,
        *,
        translate: Translate,
        on_close: Callable[[int], None] | None = None,
        on_drop: Callable[[], None] | None = None,
    ) -> None:
        self._source = source
        self._start = source.position
        self._translate = translate
        self._on_close = on_close
        self._on_drop = on_drop
        self._error: BaseException | None = None
        self._closed = False
        self._origin = Origin()

    @property
    def left_bytes(self) -> int:
        """Bytes of the range that were not returned yet."""
        return self._source.left_bytes

    def tell(self) -> int:
        return self._source.position - self._start

    def _require_usable(self) -> None:
        if self._closed:
            raise ValueError("the stream is closed")
        if not self._origin.is_here and self._error is None:
            try:
                self._origin.require("the stream")
            except ForkedProcessError as error:
                self._error = self._translate(error)
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _failed(self, error: BaseException, position: int) -> BaseException:
        """Go back to where the call began; return the error in the caller's terms."""
        if type(error) is ValueError:  # closed meanwhile, or read by two threads at once
            return error
        self._source.seek(position)
        if not isinstance(error, Exception):
            return error
        translated = self._translate(error)
        if not getattr(translated, "retriable", False) and not isinstance(error, MemoryError):
            self._error = translated
        return translated

    def _fail(self, error: BaseException, position: int) -> NoReturn:
        """Raise the error in the caller's terms.

        A load that failed knows its error, and the frames that this came through know the load: the error and its
        causes forget them, or a bad hour of the store would hold chunks until the collector runs. The frames themselves
        must not be touched: all readers of a load get the same error, which has gone through frames of others that go
        on. An unexpected error holds them.
        """
        raised = self._failed(error, position)
        if isinstance(error, TierlogError | MemoryError):
            forget_frames(error)
        try:
            if raised is error:
                raise error
            raise raised from error
        finally:
            del raised, error

    def read(self, size: int | None = -1, /) -> bytes:
        self._require_usable()
        if size is not None:
            size = require_int("size", size)
        source, began = self._source, self._source.position
        left = source.left_bytes if size is None or size < 0 else min(size, source.left_bytes)
        parts: list[memoryview] = []
        try:
            while left:
                parts.append(source.take(left))
                left -= len(parts[-1])
            return joined(parts)
        except BaseException as error:  # noqa: BLE001 - raised anew
            parts.clear()
            self._fail(error, began)

    def readinto(self, buffer: Buffer, /) -> int:
        self._require_usable()
        source, began = self._source, self._source.position
        out = require_writable("buffer", buffer)
        size = min(len(out), source.left_bytes)
        done = 0
        try:
            while done < size:
                done += source.take_into(out[done:size])
        except BaseException as error:  # noqa: BLE001 - raised anew
            self._fail(error, began)
        return done

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        left = self._source.left_bytes
        if max_bytes is not None:
            left = min(require_int("max_bytes", max_bytes), left)
        self._require_usable()
        while left > 0:
            self._require_usable()
            began = self._source.position
            try:
                taken = self._source.take(left)
            except BaseException as error:  # noqa: BLE001 - raised anew
                self._fail(error, began)
            left -= len(taken)
            yield _lean(taken)
            del taken

    def take_waits(self, size_bytes: int, *, lean: bool) -> Waits[memoryview]:
        """Take the next bytes, at least one and at most so many; for drivers of waits (``aio``).

        Args:
            size_bytes: > 0.
            lean: Whether the view must hold no more memory than it shows: the caller will hold it.
        """
        self._require_usable()
        began = self._source.position
        try:
            taken = yield from self._source.take_waits(size_bytes)
        except BaseException as error:  # noqa: BLE001 - raised anew
            self._fail(error, began)
        return _lean(taken) if lean else taken

    @property
    def closing(self) -> Interrupt:
        """The interrupt that ends a reader's wait when the stream is closed."""
        return self._source.closing

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._origin.is_here:
                return
            self._source.close()
            if self._on_close is not None:
                self._on_close(self.tell())

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._on_drop is None or not self._origin.is_here:
            return
        if self._source.is_holding:
            self._on_drop()
            warnings.warn(
                f"a segment stream was dropped without close, {self.left_bytes} bytes before its end",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


def _lean(view: memoryview) -> memoryview:
    """Return the view, or a copy where it would hold more than twice its size in memory."""
    if 2 * len(view) >= memoryview(view.obj).nbytes:
        return view
    copied = new_buffer(len(view))
    copy_into(copied, view)
    return copied.toreadonly()


class BytesSource:
    """Bytes in memory, as the source of a stream: its methods are those of RangeReader."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0
        self.is_holding = False
        self.closing = Interrupt()

    @property
    def left_bytes(self) -> int:
        return len(self._data) - self.position

    def take(self, size_bytes: int) -> memoryview:
        taken = self._data[self.position : self.position + size_bytes]
        self.position += len(taken)
        return taken

    def take_into(self, out: memoryview) -> int:
        return copy_into(out, self.take(len(out)))

    def take_waits(self, size_bytes: int) -> Waits[memoryview]:
        yield from ()
        return self.take(size_bytes)

    def seek(self, position: int) -> None:
        self.position = position

    def close(self) -> None:
        self._data = self._data[: self.position]


def bytes_stream(data: Buffer, *, translate: Translate) -> ViewStream:
    """Make a stream of bytes in memory."""
    return ViewStream(BytesSource(memoryview(data).cast("B").toreadonly()), translate=translate)
