"""A front that runs for a test, in this process or as a process; a broker that says what it is told."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from kio.schema.errors import ErrorCode

from tests.support.broker_servers import Serving, running_on_a_loop
from tests.support.kafka_entities import kio_bytes
from tests.support.replica_server import RunningReplica, replica, write_properties
from tests.support.servers import free_port
from tierlog.broker.front.front_config import FrontConfig, read_front_config
from tierlog.broker.front.front_server import FrontServer, open_upstream
from tierlog.broker.handling import Handler
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.protocol.requests import RequestHeader, read_header
from tierlog.broker.server.server_config import ServerConfig
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.answer_memory import AnswerMemory

API_VERSIONS, METADATA = 18, 3


def free_ports(count: int) -> range:
    """So many free ports, one behind the other."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as bound, contextlib.suppress(OSError):
            for port in range(first, first + count):
                bound.enter_context(socket.create_server(("127.0.0.1", port)))
            return range(first, first + count)


class InnerFront:
    """A front, made when it starts: its parts belong to its loop."""

    def __init__(
        self, config: FrontConfig, handlers: Sequence[Handler], server_config: ServerConfig, answers_bytes: int
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._server_config = server_config
        self._answers_bytes = answers_bytes
        self.metrics = ServerMetrics()
        self.memory: AnswerMemory | None = None
        self.front: FrontServer | None = None
        self._worker: Worker | None = None

    async def start(self) -> tuple[str, int]:
        machine = Machine()
        self._worker = Worker(machine.scheduler.pool(1, name="test-front"), machine)
        self.memory = AnswerMemory(self._answers_bytes, machine.timers, machine)
        upstream = await open_upstream(self._config, self.memory, machine, self._worker)
        self.front = FrontServer(self._handlers, self._server_config, upstream, machine, metrics=self.metrics)
        return await self.front.start()

    async def stop(self) -> None:
        if self.front is not None:
            await self.front.stop()
        if self._worker is not None:
            self._worker.close()


@contextlib.contextmanager
def fronting(
    upstream: str,
    handlers: Sequence[Handler] = (),
    *,
    ports: range | None = None,
    config: ServerConfig | None = None,
    upstream_config: Mapping[str, str] | None = None,
    answers_bytes: int = 64 << 20,
) -> Iterator[tuple[Serving, range]]:
    """A front of an upstream until the end of the block, and its ports of brokers. It must leave nothing behind."""
    ports = ports or free_ports(4)
    advertise = f"front.test:{ports.start}-{ports.stop - 1}"
    front = InnerFront(
        read_front_config(upstream, upstream_config or {}, advertise=advertise, listen_port=1),
        handlers,
        config or ServerConfig(port=0),
        answers_bytes,
    )
    with running_on_a_loop(front) as running:
        yield running, ports


Answers = Callable[[RequestHeader, memoryview, socket.socket], bytes | None]


class ScriptedBroker:
    """A broker of node 1 whose answers to all but ApiVersions and Metadata without topics are a test's.

    Args:
        answer: (header, frame, socket) -> the bytes behind the correlation id, which are sent as a frame; None if it
            has sent, or closed, by itself.
        tls: Of its connections; None for none.

    Attributes:
        host: Of all brokers of its listing.
        nodes: Gives the port of each broker of its listing, by node id; a test may set it.
    """

    def __init__(self, answer: Answers, tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.host = "127.0.0.1"
        self.nodes: Callable[[], Mapping[int, int]] = lambda: {1: self.port}
        self.asked: list[tuple[int, int]] = []
        self._accepted: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep_little(self) -> None:
        """Hold few bytes in the system that it has not read, of connections from now on."""
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)

    def close(self) -> None:
        """End it, and its connections; idempotent."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._accepted:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self._accepted.append(accepted)
                self._start(self._serve, accepted)

    def _serve(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), accepted:
            if self._tls is not None:
                accepted = self._tls.wrap_socket(accepted, server_side=True)
                self._accepted.append(accepted)
            while True:
                frame = memoryview(_read(accepted, *struct.unpack(">i", _read(accepted, 4))))
                header = read_header(frame)
                answer = self._known(header, frame)
                if answer is None:
                    self.asked.append((header.api_key, header.api_version))
                    answer = self._answer(header, frame, accepted)
                if answer is not None:
                    send_answer(accepted, header, answer)

    def _known(self, header: RequestHeader, frame: memoryview) -> bytes | None:
        if header.api_key == API_VERSIONS and header.api_version == 0:
            entities = entities_of(API_VERSIONS, 0)
            ranges = [
                entities.make("ApiVersion", api_key=key, min_version=first, max_version=last)
                for key, (first, last) in {0: (3, 13), 1: (4, 18), 3: (0, 99), 18: (0, 9), 999: (0, 1)}.items()
            ]
            return kio_bytes(entities.response(error_code=ErrorCode.none, api_keys=tuple(ranges)))
        if (
            header.api_key == METADATA
            and header.api_version == 13
            and b"\x01\x00" in bytes(frame[header.body_position :])[:2]
        ):
            return b"\0" + self._metadata(13)
        return None

    def _metadata(self, version: int) -> bytes:
        """The listing of the brokers, behind the header."""
        entities = entities_of(METADATA, version)
        brokers = tuple(
            entities.make("MetadataResponseBroker", node_id=node, host=self.host, port=port, rack="a")
            for node, port in self.nodes().items()
        )
        listed = {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": ()}
        return kio_bytes(entities.response(**listed, error_code=ErrorCode.none))


def send_answer(to: socket.socket, header: RequestHeader, answer: bytes) -> None:
    """Send the bytes behind a correlation id as a frame."""
    to.sendall(struct.pack(">ii", len(answer) + 4, header.correlation_id) + answer)


def _read(source: socket.socket, size_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < size_bytes:
        part = source.recv(size_bytes - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


@contextlib.contextmanager
def front_process(
    path: str | pathlib.Path,
    folder: pathlib.Path,
    upstream: str,
    *arguments: str,
    ports: range | None = None,
    port: int | None = None,
    upstream_config: Mapping[str, str] | None = None,
) -> Iterator[RunningReplica]:
    """`tierlog replica PATH --upstream` until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = ports or free_ports(4)
    more = ["--upstream", upstream, "--advertise", f"127.0.0.1:{ports.start}-{ports.stop - 1}", *arguments]
    if upstream_config:
        more += ["--upstream-config", str(write_properties(folder / "upstream.properties", upstream_config))]
    with replica(path, folder, *more, port=port) as running:
        yield running
