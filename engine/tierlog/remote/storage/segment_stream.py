"""The streams that fetching gives: views, never joined, as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from tierlog.remote.storage.segment_log import PIECE_BYTES
from tierlog.runtime.forking import Origin

Translate = Callable[[BaseException], BaseException]


def same_error(error: BaseException) -> BaseException:
    """As it is."""
    return error


class ViewStream:
    """A SegmentStream over whatever ``next_view`` gives.

    Args:
        next_view: The following bytes as a view of at most one chunk, None at the end.
        left_bytes: How many there are in all.
        translate: An error as the caller is to see it.
        on_close: Called once.

    Thread safety: one reader; ``close`` from any thread.
    """

    def __init__(
        self,
        next_view: Callable[[], memoryview | None],
        left_bytes: int,
        *,
        translate: Translate,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._next_view = next_view
        self._left_bytes = left_bytes
        self._translate = translate
        self._on_close = on_close
        self._current = memoryview(b"")
        self._closed = False
        self._origin = Origin()

    @property
    def left_bytes(self) -> int:
        """Not handed out yet."""
        return self._left_bytes

    def _fill(self) -> bool:
        """Have bytes at hand; False at the end."""
        if self._closed:
            raise ValueError("the stream is closed")
        while not (self._current and self._origin.is_here):
            try:
                self._origin.require("the stream")
                view = self._next_view()
            except BaseException as error:
                translated = self._translate(error)
                if translated is error:
                    raise
                raise translated from error
            if view is None:
                return False
            self._current = view
        return True

    def _take(self, size: int) -> memoryview:
        taken, self._current = self._current[:size], self._current[size:]
        self._left_bytes -= len(taken)
        return taken

    def read(self, size: int | None = -1, /) -> bytes:
        """See SegmentStream."""
        left = self._left_bytes if size is None or size < 0 else min(size, self._left_bytes)
        parts = []
        while left and self._fill():
            parts.append(self._take(left))
            left -= len(parts[-1])
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts) if parts else self._end()

    def _end(self) -> bytes:
        if self._closed:
            raise ValueError("the stream is closed")
        return b""

    def readinto(self, buffer: Buffer, /) -> int:
        """See SegmentStream."""
        out = memoryview(buffer).cast("B")
        done = 0
        self._end()
        while done < len(out) and self._fill():
            taken = self._take(len(out) - done)
            out[done : done + len(taken)] = taken
            done += len(taken)
        return done

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        """See SegmentStream."""
        left = self._left_bytes if max_bytes is None else max_bytes
        while left > 0 and self._fill():
            taken = self._take(min(left, PIECE_BYTES) if self._left_bytes > PIECE_BYTES else left)
            left -= len(taken)
            yield taken

    def close(self) -> None:
        """See SegmentStream."""
        if not self._closed:
            self._closed = True
            self._current = memoryview(b"")
            if self._origin.is_here:
                self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bytes_stream(data: Buffer, *, translate: Translate) -> ViewStream:
    """Bytes that are at hand, as a stream."""
    views = iter([memoryview(data).cast("B").toreadonly()])
    size = memoryview(data).nbytes
    return ViewStream(lambda: next(views, None), size, translate=translate)
