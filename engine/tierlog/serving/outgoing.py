"""Connections to a server of frames: a frame out, and the frame that answers it in, one at a time."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import ssl  # noqa: TID251 - this room is the sockets'
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from typing_extensions import Buffer

from tierlog.errors import TierlogError
from tierlog.runtime.machine.clock import Timers
from tierlog.serving.answer_memory import AnswerMemory, Grant
from tierlog.serving.connection import SCRATCH_BYTES
from tierlog.serving.response_writer import Reply, ResponseWriter, WriterCalls

_LENGTH: Final = struct.Struct(">i")
#: How long a server may take to say goodbye.
_TLS_SHUTDOWN_SECONDS: Final = 2.0

Value = TypeVar("Value")
#: As ``trusting_context`` makes one.
TlsContext = ssl.SSLContext


class OutgoingError(TierlogError, ConnectionError):
    """A connection to a server cannot be made, or is of no use any more: it is closed."""


class ReceivedFrame(NamedTuple):
    """A frame of a server.

    Args:
        data: Its length of four bytes, and so many.
        release: Called once, when the bytes are dropped: their memory is others' then.
    """

    data: memoryview
    release: Callable[[], None]


def _nothing() -> None:
    """Do nothing: a short frame counts as no memory."""


class OutgoingSettings(NamedTuple):
    """The settings of all connections to a server.

    Args:
        memory: Of all long frames.
        timers: Of the loop.
        frame_bytes_max: The longest frame that is received.
        connect_seconds: Until a connection is there, TLS included.
        memory_seconds: How long a frame waits for memory.
    """

    memory: AnswerMemory
    timers: Timers
    frame_bytes_max: int = 256 << 20
    connect_seconds: float = 10.0
    memory_seconds: float = 60.0


class OutgoingConnection(asyncio.BufferedProtocol):
    """A connection to a server, which answers one frame with one, in order. Made by ``open_outgoing``; for the loop's
    thread.

    Memory for an answer of more than ``SCRATCH_BYTES`` is taken once its length is known, and nothing is read until
    it is granted. What no frame has asked for, and a length out of range, end the connection.

    Attributes:
        lost: Called once when the connection is closed, whoever closed it.
    """

    def __init__(self, settings: OutgoingSettings, host: str, *, has_tls: bool) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._has_tls = has_tls
        self._order = asyncio.Lock()
        self._transport: asyncio.Transport | None = None
        self._writer: ResponseWriter | None = None
        #: What an exchange waits for now: bytes that are out, a length, or a whole frame.
        self._out: asyncio.Future[None] | None = None
        self._begun: asyncio.Future[int] | None = None
        self._whole: asyncio.Future[None] | None = None
        #: Bytes of a frame: at first as many as a short one has.
        self._buffer = memoryview(b"")
        self._filled_bytes = 0
        self._failure: OutgoingError | None = None
        self.lost: Callable[[], None] = _nothing

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed, or is being closed."""
        return self._failure is not None

    # ---- callbacks of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the open connection, which is through with TLS."""
        self._transport = cast("asyncio.Transport", transport)
        calls = WriterCalls(self._loop.call_soon, self._loop.create_task, self._written, self._fail)
        self._writer = ResponseWriter(self._transport, has_tls=self._has_tls, calls=calls)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the transport's hint is a constant
        """Return the memory for the next bytes."""
        if self._filled_bytes == len(self._buffer):  # made as bytes come: a thousand long polls wait without
            self._buffer, self._filled_bytes = memoryview(bytearray(SCRATCH_BYTES)), 0
        return self._buffer[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that have come."""
        self._filled_bytes += nbytes
        if self._whole is not None and not self._whole.done():
            if self._filled_bytes == len(self._buffer):
                _give(self._whole, None)
        elif self._begun is None or self._begun.done():
            self._fail(OutgoingError(f"{self._host} sent bytes that nothing has asked for"))
        elif self._filled_bytes >= _LENGTH.size:
            (size_bytes,) = _LENGTH.unpack_from(self._buffer)
            most_bytes = self._settings.frame_bytes_max
            end = _LENGTH.size + size_bytes
            if not 0 <= size_bytes <= most_bytes:
                text = f"{self._host} sent a length of {size_bytes}: between 0 and {most_bytes} are allowed"
                self._fail(OutgoingError(text))
            elif self._filled_bytes > end:
                self._fail(OutgoingError(f"{self._host} sent bytes that nothing has asked for"))
            elif self._filled_bytes == end or end > len(self._buffer):
                if self._filled_bytes < end and self._transport is not None:
                    self._transport.pause_reading()
                _give(self._begun, end)

    def eof_received(self) -> bool:
        """The server sends nothing more: it is gone."""
        return False

    def pause_writing(self) -> None:
        """Stop the writer: the transport holds bytes that the server has not read."""
        if self._writer is not None:
            self._writer.pause()

    def resume_writing(self) -> None:
        """Go on writing: the transport holds nothing any more."""
        if self._writer is not None:
            self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the socket."""
        text = f"{self._host} closed the connection" + (f": {exc}" if exc is not None else "")
        self._end(OutgoingError(text))
        if self._writer is not None:
            self._writer.lose()
        self.lost()

    # ---- frames

    async def exchange(
        self, buffers: Sequence[Buffer], size_bytes: int, *, memory_key: str, seconds: float
    ) -> ReceivedFrame:
        """Send a frame, and return the one that answers it. Calls at once wait for one another, in their order.

        Args:
            buffers: The frame, its length included. They stay as they are until this returns.
            size_bytes: Of all of them.
            memory_key: Memory is granted in turns that go round these: the host of the client for whom it is.
            seconds: How long it may take from the first byte out to the last one in.

        Raises:
            OutgoingError: the server is gone, or late, or sends what is no frame, or no memory was there in time. The
                connection is closed by any of them, and by a cancellation: a later answer would be taken for another.
        """
        async with self._order:
            try:
                return await self._within(seconds, self._exchange(buffers, size_bytes, memory_key))
            except BaseException:
                self.abort()
                raise

    async def send(self, buffers: Sequence[Buffer], size_bytes: int, *, seconds: float) -> None:
        """Send a frame that is not answered. Raises as ``exchange``."""
        async with self._order:
            try:
                await self._within(seconds, self._send(buffers, size_bytes))
            except BaseException:
                self.abort()
                raise

    async def _within(self, seconds: float, work: Awaitable[Value]) -> Value:
        timer = self._settings.timers.call_later(seconds, partial(self._late, seconds))
        try:
            return await work
        finally:
            timer.cancel()

    def _late(self, seconds: float) -> None:
        self._fail(OutgoingError(f"{self._host} has not answered within {seconds:g} s"))

    async def _send(self, buffers: Sequence[Buffer], size_bytes: int) -> None:
        self._write(buffers, size_bytes)
        await self._are_out()

    async def _are_out(self) -> None:
        if self._out is not None:
            await self._out

    async def _exchange(self, buffers: Sequence[Buffer], size_bytes: int, memory_key: str) -> ReceivedFrame:
        self._buffer, self._filled_bytes = memoryview(b""), 0
        self._begun = self._loop.create_future()
        self._write(buffers, size_bytes)
        end = await self._begun
        self._begun = None
        if self._filled_bytes == end:
            data, self._buffer, self._filled_bytes = self._buffer[:end], memoryview(b""), 0
            await self._are_out()
            return ReceivedFrame(data, _nothing)
        grant = await self._take_memory(end, memory_key)
        try:
            whole = memoryview(bytearray(end))
            whole[: self._filled_bytes] = self._buffer[: self._filled_bytes]
            self._buffer = whole
            self._whole = self._loop.create_future()
            if self._transport is None or self._failure is not None:
                raise self._failure or OutgoingError("not connected")
            self._transport.resume_reading()
            await self._whole
            await self._are_out()
        except BaseException:
            grant.release()
            raise
        finally:
            self._whole = None
            self._buffer, self._filled_bytes = memoryview(b""), 0
        return ReceivedFrame(whole, grant.release)

    async def _take_memory(self, size_bytes: int, key: str) -> Grant:
        settings = self._settings
        grant = await settings.memory.take(
            key, least_bytes=size_bytes, wanted_bytes=size_bytes, seconds=settings.memory_seconds
        )
        if grant is None:
            raise OutgoingError(
                f"no memory for {size_bytes} bytes of {self._host} within {settings.memory_seconds:g} s"
            )
        return grant

    def _write(self, buffers: Sequence[Buffer], size_bytes: int) -> None:
        if self._writer is None or self._failure is not None:
            raise self._failure or OutgoingError("not connected")
        self._out = self._loop.create_future()
        self._writer.write(Reply(buffers, size_bytes))

    def _written(self) -> None:
        out, self._out = self._out, None
        _give(out, None)

    # ---- the end

    def close(self) -> None:
        """Close the connection; idempotent. Nothing is under way: else ``abort``."""
        self._end(OutgoingError("closed"))
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now; idempotent."""
        self._fail(OutgoingError("closed"))

    def _fail(self, error: Exception) -> None:
        self._end(error if isinstance(error, OutgoingError) else OutgoingError(f"{self._host}: {error}"))
        if self._transport is not None:
            self._transport.abort()

    def _end(self, failure: OutgoingError) -> None:
        """Wake what waits with the first reason of the end."""
        if self._failure is None:
            self._failure = failure
        for waiting in (self._out, self._begun, self._whole):
            if waiting is not None and not waiting.done():
                waiting.set_exception(self._failure)
                waiting.exception()  # it is retrieved: an exchange that was cancelled does not


def _give(waiting: asyncio.Future[Value] | None, value: Value) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)


def trusting_context(*, location: str | None, pem: str | None, checks_host: bool) -> TlsContext:
    """Make a context of TLS 1.2 and later, as a client, which trusts the certificates of a file or of a text (PEM);
    without either those that the system trusts. ``checks_host``: a server's certificate has to be its host's.

    Raises OSError, ValueError: the certificates cannot be used.
    """
    context = ssl.create_default_context(cafile=location, cadata=pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = checks_host
    return context


async def open_outgoing(
    settings: OutgoingSettings, host: str, port: int, *, tls: TlsContext | None = None
) -> OutgoingConnection:
    """Connect to a server, by TLS if a context is given.

    Raises OutgoingError: it cannot be reached in time, or no TLS was agreed on.
    """
    deadlines: dict[str, Any] = {}
    if tls is not None:
        deadlines["ssl_handshake_timeout"] = settings.connect_seconds
        deadlines["ssl_shutdown_timeout"] = _TLS_SHUTDOWN_SECONDS
        deadlines["server_hostname"] = host
    name = f"{host}:{port}"
    try:
        async with asyncio.timeout(settings.connect_seconds):
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: OutgoingConnection(settings, name, has_tls=tls is not None), host, port, ssl=tls, **deadlines
            )
    except TimeoutError:
        raise OutgoingError(f"{name} is not reached within {settings.connect_seconds:g} s") from None
    except (OSError, UnicodeError) as error:  # of TLS and of names, too, the second of one that none can have
        raise OutgoingError(f"{name} is not reached: {error}") from error
    return made
