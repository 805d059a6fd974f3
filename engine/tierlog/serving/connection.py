"""One client's connection: frames in, one request at work, its response out, and the next one."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import collections
import select  # noqa: TID251 - this room is the sockets'
import struct
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from tierlog.errors import TierlogError
from tierlog.runtime.machine.clock import Clock, Timer, Timers
from tierlog.serving.admission import RequestMemory, Turns
from tierlog.serving.metrics import ServingMetrics
from tierlog.serving.refusals import Refusals, RefusedError
from tierlog.serving.response_writer import Reply, ResponseWriter, WriterCalls
from tierlog.serving.serving_config import ServingConfig

_LENGTH: Final = struct.Struct(">i")
#: Bytes that are read from a socket at once, until the length of a frame is known. All connections share the memory; a
#: connection that has sent more than a request at a time holds as much of its own.
SCRATCH_BYTES: Final = 16 << 10
#: The memory of a long frame grows from here, by doubling, as its bytes come: a length alone costs the client nothing.
_FRAME_BYTES_FIRST: Final = 64 << 10


#: The first bytes of a client that speaks TLS: a record of a handshake, of version 3.x.
_TLS_HANDSHAKE: Final = b"\x16\x03"


Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True)
class Client:
    """A client, as far as it is known.

    Attributes:
        host: Its address.
        connection_id: Unique while the server runs.
    """

    host: str
    connection_id: int

    @property
    def is_trusted(self) -> bool:
        """Whether nothing is asked of it before it may ask for something."""
        return True

    @property
    def is_read_out(self) -> bool:
        """Whether all that it has sent is read where it has gone: what is worked on for it is not for an answer."""
        return False

    def opened(self, close: Callable[[], None]) -> None:
        """Hear that the connection is open. ``close`` closes it, once the bytes of a response under way are out."""

    def closed(self, left: Sequence[memoryview]) -> None:
        """Hear that the connection is closed. Called once, if it was opened. ``left``: frames that came as a whole, and
        on which no work has begun.
        """


class Deadlines(Generic[Item]):
    """Items that have the same time each, from when they were last started. For one thread.

    One order for all of them, as Kafka's IdleExpiryManager has: starting one costs the same with ten thousand others,
    and a look sees only those that are over.

    Args:
        seconds: The time that each item has.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started: collections.OrderedDict[Item, float] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._started)

    def __contains__(self, item: object) -> bool:
        return item in self._started

    def start(self, item: Item, now_seconds: float) -> None:
        """Give an item its whole time, from now on."""
        self._started[item] = now_seconds
        self._started.move_to_end(item)

    def stop(self, item: Item) -> None:
        """Forget an item, if it is there."""
        self._started.pop(item, None)

    def take_expired(self, now_seconds: float) -> Iterator[Item]:
        """Yield the items whose time is over, oldest first; each is forgotten as it is given."""
        while self._started:
            item, started = next(iter(self._started.items()))
            if now_seconds - started < self.seconds:
                return
            del self._started[item]
            yield item


@dataclass(slots=True)
class Shared:
    """The shared state of all connections of a server."""

    loop: asyncio.AbstractEventLoop
    config: ServingConfig
    clock: Clock
    timers: Timers
    answer: Callable[[Any, memoryview], Coroutine[Any, Any, Reply | None]]
    turns: Turns
    memory: RequestMemory
    refusals: Refusals
    metrics: ServingMetrics
    #: Without a byte either way, as Kafka counts it: also while a request is worked on.
    idle: Deadlines[Connection]
    #: Deadlines of connections that are not authenticated; in the midst of a request; in the midst of a response.
    unauthenticated: Deadlines[Connection]
    receiving: Deadlines[Connection]
    sending: Deadlines[Connection]
    #: Connections that are not read for now: a closed client is not reported, and has to be looked up.
    unread: Deadlines[Connection]
    scratch: memoryview
    made: Callable[[Connection], None]
    lost: Callable[[Connection], None]


class _State(Enum):
    RECEIVING = auto()
    #: A request's length is known, and there is no memory for it.
    WAITING_FOR_MEMORY = auto()
    #: A request waits for its turn, is worked on, or its response is held back.
    AT_WORK = auto()
    SENDING = auto()
    LOST = auto()


class Connection(asyncio.BufferedProtocol):
    """A connection. One request is worked on at a time, in order, as Kafka mutes a channel.

    While a request is at work the socket is still read, so that a client that goes is noticed and the work ends; but
    once more has come than that request (``SCRATCH_BYTES`` at most), reading stops until its turn.
    """

    def __init__(self, shared: Shared, client: Client) -> None:
        self._shared = shared
        self.client = client
        self._state = _State.RECEIVING
        self._transport: asyncio.Transport | None = None
        self._writer: ResponseWriter | None = None
        #: Bytes that came behind the request at work, or less than a length.
        self._ahead = b""
        #: The frame that is received, how much of it is there, and its size.
        self._filling: bytearray | None = None
        self._filled_bytes = 0
        self._frame_bytes = 0
        self._frame: memoryview | None = None
        #: The same, while its task has not begun.
        self._unbegun: memoryview | None = None
        self._task: asyncio.Task[None] | None = None
        #: A task that is cancelled before it begins runs no line, and gives nothing back.
        self._is_cancellable = False
        self._delay: Timer | None = None
        self._is_reading = True
        self._is_finishing = False
        self._bytes_left_seen = 0

    @property
    def is_lost(self) -> bool:
        """Whether the socket is closed."""
        return self._state is _State.LOST

    # ---- callbacks of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the open connection, which is through with TLS."""
        shared = self._shared
        self._transport = cast("asyncio.Transport", transport)
        calls = WriterCalls(shared.loop.call_soon, shared.loop.create_task, self._sent, self._cannot_send)
        self._writer = ResponseWriter(self._transport, has_tls=shared.config.has_tls, calls=calls)
        now = shared.clock.monotonic_seconds()
        shared.idle.start(self, now)
        if not self.client.is_trusted:
            shared.unauthenticated.start(self, now)
        shared.made(self)
        self.client.opened(self.close)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the transport's hint is a constant
        """Return the memory for the next bytes."""
        if self._filling is None:
            return self._shared.scratch
        return memoryview(self._filling)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that have come."""
        shared = self._shared
        shared.metrics.received_bytes += nbytes
        if self._filling is not None:
            self._filled_bytes += nbytes
            self._grow()
        elif self._state is not _State.RECEIVING:
            self._ahead += bytes(shared.scratch[:nbytes])
            self._pause_reading()
        elif self._ahead:
            self._take(memoryview(self._ahead + bytes(shared.scratch[:nbytes])))
        else:
            self._take(shared.scratch[:nbytes])

    def eof_received(self) -> bool:
        """The client sends nothing more: Kafka closes then, and nothing is left to be answered."""
        return False

    def pause_writing(self) -> None:
        """Stop the writer: the transport holds bytes that the client has not read."""
        if self._writer is not None:
            self._writer.pause()

    def resume_writing(self) -> None:
        """Go on writing: the transport holds nothing any more."""
        if self._writer is not None:
            self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - clients come and go
        """Handle the end of the socket: work on the request is cancelled, memory is released."""
        if self._state is _State.LOST:
            return
        shared = self._shared
        left = self._left()
        shared.turns.withdraw(self.client.host, self.begin)
        shared.memory.withdraw(self.memory_given)
        # The memory of a running request is released when its task ends.
        if self._frame is not None or self._filling is not None:
            shared.memory.give(self._frame_bytes)
        self._state = _State.LOST
        self._frame = self._unbegun = self._filling = None
        self._ahead = b""
        for deadlines in (shared.idle, shared.unauthenticated, shared.receiving, shared.sending, shared.unread):
            deadlines.stop(self)
        if self._delay is not None:
            self._delay.cancel()
        if self._writer is not None:
            self._writer.lose()
        if self._task is not None and self._is_cancellable:
            self._task.cancel()
        self.client.closed(left)
        shared.lost(self)

    def _left(self) -> list[memoryview]:
        """Return the whole frames on which no work has begun."""
        frames = [frame for frame in (self._unbegun, self._frame) if frame is not None]
        ahead, position = memoryview(self._ahead), 0
        while len(ahead) - position >= _LENGTH.size:
            (size_bytes,) = _LENGTH.unpack_from(ahead, position)
            start, position = position + _LENGTH.size, position + _LENGTH.size + size_bytes
            if size_bytes < 0 or position > len(ahead):
                break
            frames.append(ahead[start:position])
        return frames

    # ---- calls of the server

    def finish(self) -> None:
        """Close the connection once the request at work is answered; at once if there is none."""
        self._is_finishing = True
        if self._state in (_State.RECEIVING, _State.WAITING_FOR_MEMORY):
            self.close()

    def close(self) -> None:
        """Close the connection once the bytes of a response that is being sent are out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def check_progress(self) -> bool:
        """Whether the client has read a byte of its response since the last call (or since its beginning)."""
        left = self._writer.left_bytes if self._writer is not None else 0
        has_progress = left < self._bytes_left_seen
        self._bytes_left_seen = left
        return has_progress

    def has_client_gone(self) -> bool:
        """Whether the client has closed its end. For a connection that is not read: else the loop reports it."""
        found = self._transport.get_extra_info("socket") if self._transport is not None else None
        if found is None:
            return False
        state = select.poll()
        state.register(found.fileno(), select.POLLRDHUP)
        return bool(state.poll(0))

    def refuse(self, kind: str, text: str, *, error: BaseException | None = None) -> None:
        """Close the connection, count it and log why."""
        self._shared.metrics.count_refused(kind)
        self._shared.refusals.tell(kind, self.client.host, text, error=error)
        self.abort()

    # ---- frames

    def _take(self, data: memoryview) -> None:
        """Take the bytes from the beginning of a frame on."""
        shared = self._shared
        if len(data) < _LENGTH.size:
            self._ahead = bytes(data)
            self._begin_receiving()
            return
        (size_bytes,) = _LENGTH.unpack_from(data)
        limit = shared.config.socket_request_max_bytes
        if not self.client.is_trusted:
            limit = min(limit, shared.config.sasl_server_max_receive_size)
        if not 0 <= size_bytes <= limit:
            speaks_tls = bytes(data[:2]) == _TLS_HANDSHAKE and not shared.config.has_tls
            hint = "; the client speaks TLS, and this listener does not" if speaks_tls else ""
            self.refuse("frame_size", f"a request of {size_bytes} bytes: between 0 and {limit} are allowed{hint}")
            return
        self._frame_bytes = size_bytes
        if shared.memory.take(size_bytes):
            self._begin_frame(data)
            return
        self._ahead = bytes(data)
        self._state = _State.WAITING_FOR_MEMORY
        shared.receiving.stop(self)
        self._pause_reading()
        shared.memory.wait(self.memory_given, size_bytes)

    def memory_given(self) -> None:
        """The memory for the frame is there: begin it when the loop comes round, as others may be given theirs now."""
        self._shared.loop.call_soon(self._go_on_receiving)

    def _go_on_receiving(self) -> None:
        """Begin the frame for which memory was given."""
        if self._state is _State.LOST:
            self._shared.memory.give(self._frame_bytes)
            return
        self._state = _State.RECEIVING
        data, self._ahead = self._ahead, b""
        self._begin_frame(memoryview(data))

    def _begin_frame(self, data: memoryview) -> None:
        """Begin a frame whose memory is given."""
        end = _LENGTH.size + self._frame_bytes
        if len(data) >= end:
            self._ahead = bytes(data[end:])
            self._received(bytearray(data[_LENGTH.size : end]))
            return
        self._ahead = b""
        self._filled_bytes = len(data) - _LENGTH.size
        self._filling = bytearray(min(self._frame_bytes, max(_FRAME_BYTES_FIRST, 2 * self._filled_bytes)))
        self._filling[: self._filled_bytes] = data[_LENGTH.size :]
        self._begin_receiving()

    def _begin_receiving(self) -> None:
        """Begin the time in which the rest of a request must come, unless it runs already."""
        shared = self._shared
        shared.idle.stop(self)
        if self not in shared.receiving:
            shared.receiving.start(self, shared.clock.monotonic_seconds())
        self._resume_reading()

    def _grow(self) -> None:
        """Make room for the rest of the frame, or take the whole frame."""
        filling = self._filling
        if filling is None or self._filled_bytes < len(filling):
            return
        if self._filled_bytes == self._frame_bytes:
            self._filling = None
            self._received(filling)
            return
        # The transport still holds the old memory here: it cannot be made longer in place.
        longer = bytearray(min(self._frame_bytes, 2 * len(filling)))
        longer[: len(filling)] = filling
        self._filling = longer

    def _received(self, frame: bytearray) -> None:
        """Handle a whole request, in memory that is the handler's to write into: an append assigns offsets there."""
        shared = self._shared
        shared.idle.start(self, shared.clock.monotonic_seconds())
        shared.receiving.stop(self)
        self._state = _State.AT_WORK
        self._frame = memoryview(frame)
        if self._ahead:
            self._pause_reading()
        shared.turns.enter(self.client.host, self.begin)

    # ---- work

    def begin(self) -> bool:
        """Begin to work on the request, as it is this client's turn."""
        frame, self._frame = self._frame, None
        if frame is None:
            return False
        self._unbegun = frame
        self._task = self._shared.loop.create_task(self._work(frame))
        return True

    async def _work(self, frame: memoryview) -> None:
        """Answer a request. The reply is written when all else of the request is over, as its end begins the next."""
        reply: Reply | None = None
        is_answered = False
        try:
            if self._state is not _State.LOST:
                self._is_cancellable = True
                self._unbegun = None
                reply = await self._shared.answer(self.client, frame)
                is_answered = True
        except RefusedError as error:
            self.refuse(error.kind, str(error))
        except Exception as error:  # noqa: BLE001 - no answer can be made of it, and other clients go on
            self.refuse("fault", f"{type(error).__name__}: {error}", error=error)
        finally:
            self._task = None
            self._is_cancellable = False
            self._shared.memory.give(self._frame_bytes)
            self._shared.turns.leave()
        if is_answered:
            self._reply(reply)

    def _reply(self, reply: Reply | None) -> None:
        is_open = self._transport is not None and not self._transport.is_closing()
        if reply is None:
            if is_open:
                self._state = _State.RECEIVING
                self._next()
        elif not is_open:
            reply.release()
        elif reply.delay_seconds:
            self._delay = self._shared.timers.call_later(reply.delay_seconds, partial(self._send, reply))
        else:
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        shared = self._shared
        shared.idle.stop(self)
        self._delay = None
        self._state = _State.SENDING
        self._is_finishing |= reply.is_last
        shared.metrics.sent_bytes += reply.size_bytes
        if self._writer is not None:
            self._writer.write(reply)
        if self._state is _State.SENDING:
            self.check_progress()
            shared.sending.start(self, shared.clock.monotonic_seconds())

    def _sent(self) -> None:
        """Note that the bytes of the reply are out."""
        self._shared.sending.stop(self)
        if self._state is _State.SENDING:
            self._state = _State.RECEIVING
            self._next()

    def _cannot_send(self, error: Exception) -> None:
        """The rest of a reply is not to be had, or the client has gone in its midst."""
        if isinstance(error, ConnectionError):
            self.abort()
            return
        is_ours = not isinstance(error, EOFError | OSError | TierlogError)
        text = f"the rest of a response cannot be sent: {error}"
        self.refuse("fault", text, error=error if is_ours else None)

    def _next(self) -> None:
        """Take the next request, which may be there."""
        shared = self._shared
        if self._is_finishing:
            self.close()
            return
        if self.client.is_trusted:
            shared.unauthenticated.stop(self)
        data, self._ahead = self._ahead, b""
        if data:
            self._take(memoryview(data))
        else:
            shared.idle.start(self, shared.clock.monotonic_seconds())
        if self._state is _State.RECEIVING:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()
            self._shared.unread.start(self, self._shared.clock.monotonic_seconds())

    def _resume_reading(self) -> None:
        if not self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
            self._shared.unread.stop(self)
