"""Responses on their way out, one at a time.

Bytes of memory, and parts of files, which go from the page cache to the socket and not through this process.
"""

from __future__ import annotations

import socket  # noqa: TID251 - this room is the sockets'
from asyncio import Task, WriteTransport  # noqa: TID251 - this room is the loop's
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from tierlog._native.files import SEND_VIEWS_MAX, send_views
from tierlog.runtime.waiting.file_part import FilePart

#: What TLS is handed at once: it encrypts all that it is given before it returns.
_TLS_SLICE_BYTES: Final = 128 << 10
#: Bytes that TLS gets before the loop comes round again.
_TLS_ROUND_BYTES: Final = 256 << 10
#: Bytes that are sent before the loop comes round again: 0.1 to 0.3 ms a mebibyte.
_ROUND_BYTES: Final = 4 << 20
#: Bytes that the transport gets when the socket is full: it calls back when they are out.
_FULL_SLICE_BYTES: Final = 16 << 10
#: Bytes that are read of a file that the system dropped from memory.
_READ_BYTES: Final = 256 << 10


def _nothing() -> None:
    """Do nothing: no resource has to be released."""


class Reply(NamedTuple):
    """The bytes that answer a request.

    Args:
        buffers: In order, the length included; parts of files among them. They stay as they are until ``release`` is
            called.
        size_bytes: Of all of them.
        release: Called once, when the bytes are out or dropped.
        is_last: The connection is closed behind it.
        delay_seconds: How long the reply is held back.
    """

    buffers: Sequence[Buffer | FilePart]
    size_bytes: int
    release: Callable[[], None] = _nothing
    is_last: bool = False
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WriterCalls:
    """The callbacks of a writer.

    Args:
        call_soon: Calls a function when the loop comes round.
        start: Runs a coroutine as a task.
        written: Called once for each reply, when its bytes are out.
        failed: Called when the rest of a reply cannot be had, or not be sent: the connection is of no use any more.
    """

    call_soon: Callable[[Callable[[], None]], object]
    start: Callable[[Coroutine[Any, Any, None]], Task[None]]
    written: Callable[[], None]
    failed: Callable[[Exception], None]


class _Left:
    """The rest of a part of a file that was not handed on yet: its bytes from ``start`` on."""

    __slots__ = ("part", "start")

    def __init__(self, part: FilePart) -> None:
        self.part = part
        self.start = 0

    def __len__(self) -> int:
        return self.part.size_bytes - self.start


class ResponseWriter:
    """A writer of one reply at a time to a transport, which knows when its bytes are out. For the loop's thread.

    Under TLS the bytes are out once they are encrypted; of the encrypted ones the transport holds two slices at most.
    Else they go to the socket behind the transport's back, while that holds nothing, and without the interpreter's
    lock: threads that open chunks need it. Parts of files are sent as far as the system has them in memory; a thread
    reads the rest. Where the socket accepts no more, the transport gets a small piece: it calls back when there is
    room.
    """

    def __init__(self, transport: WriteTransport, *, has_tls: bool, calls: WriterCalls) -> None:
        self._transport = transport
        self._has_tls = has_tls
        self._calls = calls
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._reply: Reply | None = None
        #: The next one is last.
        self._left: list[memoryview | _Left] = []
        self._is_paused = False
        self._reading: Task[None] | None = None
        # A transport reports a full buffer when it holds more than the first, and an empty one at the second. That of
        # TLS compares with "at least", so that 0 would be full for ever.
        transport.set_write_buffer_limits(1 if has_tls else 0, 0)

    @property
    def left_bytes(self) -> int:
        """Bytes of the reply that the client has not read, as far as the transport knows."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._left))

    def write(self, reply: Reply) -> None:
        """Write a reply. The one before is out."""
        self._reply = reply
        self._left = [
            _Left(each) if isinstance(each, FilePart) else memoryview(each).cast("B")
            for each in reversed(reply.buffers)
        ]
        self._go_on()

    def pause(self) -> None:
        """Pause: the transport's buffer holds something."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on: the transport's buffer is empty."""
        self._is_paused = False
        if self._left:
            self._go_on()
        elif self._reply is not None and self._reading is None:
            self._end()

    def lose(self) -> None:
        """Drop the rest of the reply, since the connection is gone; idempotent."""
        self._left = []
        reply, self._reply = self._reply, None
        if self._reading is not None:
            self._reading.cancel()
        if reply is not None:
            reply.release()

    def _go_on(self) -> None:
        """Write as much of the rest as may go now.

        Not to a transport that is being closed: the number of its socket may be another client's by now.
        """
        if self._reply is None or self._reading is not None or self._transport.is_closing():
            return
        try:
            if self._has_tls:
                self._write_slices()
            else:
                self._write_to_socket()
        except (EOFError, OSError) as error:
            self._left = []
            self._calls.failed(error)
            return
        if not (self._left or self._is_paused or self._reading is not None):
            self._end()

    def _write_slices(self) -> None:
        """Write as many slices to TLS as it may hold now."""
        round_bytes = 0
        while self._left and not self._is_paused:
            if round_bytes >= _TLS_ROUND_BYTES:
                self._calls.call_soon(self._go_on)
                return
            view = self._left.pop()
            if isinstance(view, _Left):
                taken = self._take(view, _TLS_SLICE_BYTES)
                if taken is None:
                    return
                view = taken
            elif len(view) > _TLS_SLICE_BYTES:
                self._left.append(view[_TLS_SLICE_BYTES:])
                view = view[:_TLS_SLICE_BYTES]
            round_bytes += len(view)
            if view:
                self._transport.write(view)

    def _write_to_socket(self) -> None:
        """Send views and parts of files, and hand the transport a small piece where the socket takes no more."""
        round_bytes = 0
        while self._left and not self._is_paused:
            if round_bytes >= _ROUND_BYTES:
                self._calls.call_soon(self._go_on)
                return
            left = self._left.pop()
            sent = self._send(left) if isinstance(left, _Left) else self._send_views(left)
            if sent is None:
                return
            round_bytes += sent

    def _send_views(self, first: memoryview) -> int:
        """Send a view and those behind it, up to the next part of a file; in one packet with that as far as it goes.

        Returns:
            The bytes that went, to the socket or to the transport.
        """
        views, size_bytes = [first], len(first)
        while self._left and size_bytes < _ROUND_BYTES and len(views) < SEND_VIEWS_MAX:
            view = self._left[-1]
            if isinstance(view, _Left):
                break
            self._left.pop()
            views.append(view)
            size_bytes += len(view)
        sent = send_views(self._socket.fileno(), views, has_more=bool(self._left))
        if sent == size_bytes:
            return sent
        gone = 0
        while gone + len(views[0]) <= sent:
            gone += len(views.pop(0))
        head = views[0][sent - gone : sent - gone + _FULL_SLICE_BYTES]
        views[0] = views[0][sent - gone + len(head) :]
        self._left += reversed(views)
        self._transport.write(head)
        return sent + len(head)

    def _send(self, left: _Left) -> int | None:
        """Send as much of a part of a file as the socket accepts. Returns the bytes; None: they have to be
        read first.
        """
        asked = min(len(left), _ROUND_BYTES)
        sent = left.part.send(self._socket.fileno(), left.start, asked)
        if sent is not None:
            left.start += sent
            if sent == asked:
                if len(left):
                    self._left.append(left)
                return sent
        view = self._take(left, _READ_BYTES if sent is None else _FULL_SLICE_BYTES)
        if view is None:
            return None
        self._transport.write(view)
        return (sent or 0) + len(view)

    def _take(self, left: _Left, most_bytes: int) -> memoryview | None:
        """Take the bytes of a part of a file, whose rest is left; None: they are being read, and go out when they are
        there.
        """
        view = left.part.find(left.start, most_bytes)
        if view is None:
            self._left.append(left)
            self._reading = self._calls.start(self._read(left))
            return None
        left.start += len(view)
        if len(left):
            self._left.append(left)
        return view

    async def _read(self, left: _Left) -> None:
        """Read, in a thread, bytes that the system has dropped from memory, and go on."""
        try:
            view = await left.part.read(left.start, _READ_BYTES)
        except Exception as error:  # noqa: BLE001 - the connection ends by it, whatever it is
            self._reading = None
            self._left = []
            if self._reply is not None:
                self._calls.failed(error)
            return
        self._reading = None
        if self._reply is None:
            return
        left.start += len(view)
        self._left[-1:] = [left, view] if len(left) else [view]
        self._go_on()

    def _end(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.release()
            self._calls.written()
