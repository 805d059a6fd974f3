"""A server of Kafka's protocol that runs for a test, on a loop and a thread of its own; a client of bare sockets."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, TypeVar

import uvloop
from kio.schema.errors import ErrorCode

from tests.support.waiting import LIMIT_SECONDS
from tierlog.broker.handling import Answer, Handler, RequestContext
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.server.server import Server
from tierlog.broker.server.server_config import ServerConfig
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.runtime.machine import Machine

Result = TypeVar("Result")

API_VERSIONS: Final = 18
METADATA: Final = 3


@dataclass
class MetadataHandler:
    """Metadata of a cluster of this server, without topics."""

    api_key: ClassVar[int] = METADATA
    versions: ClassVar[range] = range(13)
    contexts: list[RequestContext] = field(default_factory=list)

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        if len(self.contexts) < 10:
            self.contexts.append(context)
        entities = entities_of(METADATA, context.api_version)
        address = {"host": context.advertised_host, "port": context.advertised_port}
        broker = entities.make("MetadataResponseBroker", node_id=0, rack=None, **address)
        return entities.make(
            "MetadataResponse",
            throttle_time=datetime.timedelta(0),
            brokers=(broker,),
            cluster_id="a-cluster",
            controller_id=0,
            topics=(),
        )


@dataclass
class Call:
    """Answers one API by a coroutine function."""

    function: Callable[[Any, RequestContext], Coroutine[Any, Any, Answer]]
    api_key: int = 60
    versions: range = range(1)

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        return await self.function(request, context)


@dataclass
class Serving:
    """A server that runs.

    Attributes:
        unheard: What the loop was told that nobody caught.
    """

    server: Any
    loop: asyncio.AbstractEventLoop
    host: str
    port: int
    unheard: list[dict[str, Any]]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def metrics(self) -> ServerMetrics:
        metrics: ServerMetrics = self.server.metrics
        return metrics

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_SECONDS)

    def stop(self) -> None:
        self.run(self.server.stop())

    def client(self, **options: Any) -> Client:
        return Client(self.host, self.port, **options)


@contextlib.contextmanager
def serving(
    handlers: Sequence[Handler] = (), config: ServerConfig | None = None, machine: Machine | None = None
) -> Iterator[Serving]:
    """A server until the end of the block. Fails if it leaves a task behind, or an error that nobody caught."""
    server = Server(handlers or [MetadataHandler()], config or ServerConfig(port=0), machine or Machine())
    with running_on_a_loop(server) as running:
        yield running


@contextlib.contextmanager
def running_on_a_loop(server: Any) -> Iterator[Serving]:
    """Whatever has a server's start, stop and metrics, as ``serving``."""
    loop = uvloop.new_event_loop()
    unheard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    thread = threading.Thread(target=loop.run_forever, name="serving")
    thread.start()
    try:
        running = Serving(server, loop, "", 0, unheard)
        try:
            running.host, running.port = running.run(server.start())
        except BaseException:
            running.stop()
            raise
        try:
            yield running
        finally:
            running.stop()
        left = running.run(_tasks_left())
        assert not left, f"left running: {left}"
        assert not unheard, unheard
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _tasks_left() -> list[str]:
    return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]


class Client:
    """A client that sends what it is told to, and reads what comes."""

    def __init__(self, host: str, port: int, *, wrap: Callable[[socket.socket], socket.socket] | None = None) -> None:
        self.socket = socket.create_connection((host, port), timeout=LIMIT_SECONDS)
        if wrap is not None:
            self.socket = wrap(self.socket)
        self._next_correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def send_request(self, api_key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> int:
        """Send a request; returns its correlation id."""
        self._next_correlation_id += 1
        self.send_frame(request_frame(api_key, version, self._next_correlation_id, body, flexible=flexible))
        return self._next_correlation_id

    def read(self, size_bytes: int) -> bytes:
        """Read so many bytes. Raises EOFError: the server has closed the connection."""
        parts = bytearray()
        while len(parts) < size_bytes:
            part = self.socket.recv(size_bytes - len(parts))
            if not part:
                raise EOFError(f"closed after {len(parts)} of {size_bytes} bytes")
            parts += part
        return bytes(parts)

    def read_frame(self) -> bytes:
        (size_bytes,) = struct.unpack(">i", self.read(4))
        return self.read(size_bytes)

    def is_closed(self) -> bool:
        """Wait for the server to close the connection; whether it did, without a byte more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask_metadata(self) -> bytes:
        """The answer to Metadata 0 for all topics, behind its correlation id, which is checked."""
        correlation_id = self.send_request(METADATA, 0, struct.pack(">i", 0))
        answer = self.read_frame()
        assert struct.unpack(">i", answer[:4]) == (correlation_id,)
        return answer[4:]


def request_frame(
    api_key: int, version: int, correlation_id: int, body: bytes = b"", *, flexible: bool = False
) -> bytes:
    """The bytes of a request of a client without a name, without its length."""
    header = struct.pack(">hhih", api_key, version, correlation_id, 4) + b"test" + (b"\0" if flexible else b"")
    return header + body


def error_code(answer: bytes) -> ErrorCode:
    """The error code that stands first in an answer, behind its correlation id."""
    return ErrorCode(struct.unpack(">h", answer[4:6])[0])
