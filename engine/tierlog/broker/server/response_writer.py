"""Responses on their way out, one at a time."""

from __future__ import annotations

from asyncio import WriteTransport  # noqa: TID251 - this room is the loop's
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import Buffer

#: What TLS is handed at once: it encrypts all that it is given before it returns.
_TLS_SLICE_BYTES: Final = 128 << 10
#: What TLS is handed before the loop comes round again.
_TLS_ROUND_BYTES: Final = 256 << 10


def _nothing() -> None:
    """Nothing is to be released."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The bytes that answer a request.

    Args:
        buffers: In order, the length included; they stay as they are until ``release`` is called.
        size_bytes: Of all of them.
        release: Called once, when the bytes are out or nobody wants them.
        is_last: The connection is closed behind it.
        delay_seconds: How long the reply is held back.
    """

    buffers: Sequence[Buffer]
    size_bytes: int
    release: Callable[[], None] = field(default=_nothing)
    is_last: bool = False
    delay_seconds: float = 0.0


class ResponseWriter:
    """Writes one reply at a time to a transport, and knows when its bytes are out. For the loop's thread.

    The transport keeps views of the buffers, and no bytes. Under TLS the bytes are out once they are encrypted; of the
    encrypted ones the transport holds two slices at most.

    Args:
        call_soon: Has a function called when the loop comes round.
        written: Called once for each reply, when its bytes are out.
    """

    def __init__(
        self,
        transport: WriteTransport,
        *,
        has_tls: bool,
        call_soon: Callable[[Callable[[], None]], object],
        written: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._has_tls = has_tls
        self._call_soon = call_soon
        self._written = written
        self._reply: Reply | None = None
        self._left: list[memoryview] = []
        self._is_paused = False
        # A transport tells of a full buffer when it holds more than the first, and of an empty one at the second.
        # That of TLS compares with "at least", so that 0 would be full for ever.
        transport.set_write_buffer_limits(1 if has_tls else 0, 0)

    @property
    def left_bytes(self) -> int:
        """Bytes of the reply that the client has not taken, as far as the transport knows."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._left))

    def write(self, reply: Reply) -> None:
        """Write a reply. The one before is out."""
        self._reply = reply
        if self._has_tls:
            self._left = [memoryview(buffer).cast("B") for buffer in reply.buffers]
            self._left.reverse()
            self._write_slices()
        else:
            self._transport.writelines(reply.buffers)  # type: ignore[arg-type] # typeshed wants bytes, uvloop takes views
            if not self._is_paused:
                self._end()

    def pause(self) -> None:
        """The transport's buffer holds something."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport's buffer is empty."""
        self._is_paused = False
        if self._left:
            self._write_slices()
        elif self._reply is not None:
            self._end()

    def lose(self) -> None:
        """The connection is gone: what is left is not written; idempotent."""
        self._left = []
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.release()

    def _write_slices(self) -> None:
        """Hand TLS what it may take now."""
        round_bytes = 0
        while self._left and not self._is_paused:
            if round_bytes >= _TLS_ROUND_BYTES:
                self._call_soon(self._go_on)
                return
            view = self._left.pop()
            if len(view) > _TLS_SLICE_BYTES:
                self._left.append(view[_TLS_SLICE_BYTES:])
                view = view[:_TLS_SLICE_BYTES]
            round_bytes += len(view)
            if view:
                self._transport.write(view)
        if not self._left and not self._is_paused:
            self._end()

    def _go_on(self) -> None:
        if self._left and not self._is_paused:
            self._write_slices()

    def _end(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.release()
            self._written()
