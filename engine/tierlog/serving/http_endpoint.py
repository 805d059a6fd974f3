"""The listener for scrapes and health checks: ``/metrics``, ``/livez``, ``/readyz`` and ``/healthz``.

On the server's loop, so that a loop that stands still answers no health check. Not prometheus_client's own server: it
has a thread for each connection, for as long as a client likes, and no place for a second path.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import logging
import socket  # noqa: TID251 - this room is the sockets'
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timer
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.accepting import Acceptor, is_reachable, listen_on_port
from tierlog.serving.refusals import Refusals
from tierlog.serving.serving_config import ServingConfig

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

_log = logging.getLogger(__name__)

_REQUEST_BYTES_MAX: Final = 16 << 10
_CONNECTIONS_MAX: Final = 64
#: Connections of one host, and those that are accepted beyond the limit, since each of them ends a silent one.
_CONNECTIONS_A_HOST: Final = 16
_CONNECTIONS_BEYOND: Final = 16
_TEXT: Final = "text/plain; charset=utf-8"


class _AllRegistries:
    """Several registries as one."""

    def __init__(self, registries: Sequence[CollectorRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterable[Metric]:
        for registry in self._registries:
            yield from registry.collect()


@dataclass(slots=True)
class _Client:
    """A connection, until it is closed.

    Attributes:
        is_idle: Its request is not there yet, and it may be closed for another that wants its place.
        deadline: Ends it.
    """

    host: str
    accepted: socket.socket
    is_idle: bool = True
    deadline: Timer | None = None


class HttpEndpoint:
    """The endpoint of ``GET /metrics`` in Prometheus's formats, and of health checks.

    ``/livez`` answers 200 as long as the loop turns, ``/readyz`` and ``/healthz`` as ``health`` says. Where a host has
    its share of the connections, or all are in use, the oldest that has not asked yet is closed for a new one.

    Args:
        host, port: Where to listen; port 0 for any free one.
        registries: What ``/metrics`` shows; no series is in two of them.
        health: Why the server is not usable; "" if it is: ``/readyz`` answers 200 then, else 503 and the reason.
            Called on the loop; it must not wait.
        machine: Has the threads: series are collected and written out in one.
        deadline_seconds: A connection is closed after so long, whatever has become of it.

    One event loop, which runs when ``start`` is called, and its thread.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        registries: Sequence[CollectorRegistry],
        health: Callable[[], str],
        machine: Machine,
        deadline_seconds: float = 10.0,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._config = ServingConfig(host=host, port=port, max_connections=_CONNECTIONS_MAX + _CONNECTIONS_BEYOND)
        self._registries = _AllRegistries(registries)
        self._health = health
        self._machine = machine
        self._refusals = Refusals(machine)
        self._acceptor: Acceptor | None = None
        self._worker: Worker | None = None
        #: The oldest first.
        self._clients: dict[asyncio.Task[None], _Client] = {}

    @property
    def busy_count(self) -> int:
        """Connections that have asked."""
        return sum(not client.is_idle for client in self._clients.values())

    async def start(self) -> tuple[str, int]:
        """Begin to listen; returns the host and the port.

        Raises:
            OSError: the address cannot be listened on. RuntimeError: it listens already.
        """
        if self._acceptor is not None:
            raise RuntimeError("the endpoint is running")
        loop = asyncio.get_running_loop()
        acceptor = Acceptor(
            self._config,
            loop=loop,
            timers=self._machine.timers,
            refused=self._refusals.tell,
            accepted=self._accepted,
        )
        found = acceptor.start([await listen_on_port(self._config, self._config.port, loop)])
        self._acceptor = acceptor
        self._worker = Worker(self._machine.scheduler.pool(1, name="tierlog-server-metrics"), self._machine)
        _log.info("event=metrics_started host=%s port=%d", *found)
        if is_reachable(found[0]):
            line = (
                "event=open_monitor host=%s: there is no authentication; names of clients and the bucket's errors show"
            )
            _log.warning(line, found[0])
        return found

    async def stop(self) -> None:
        """Close the listener and all connections; idempotent."""
        acceptor, self._acceptor = self._acceptor, None
        worker, self._worker = self._worker, None
        if acceptor is not None:
            acceptor.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(tuple(self._clients))
        if worker is not None:
            worker.close()

    def _accepted(self, accepted: socket.socket, host: str) -> None:
        client = _Client(host, accepted)
        if not self._make_room(host):
            self._refusals.tell("connections_per_ip", host, f"{_CONNECTIONS_A_HOST} requests of it are being answered")
            self._close(client)
            return
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._clients[task] = client
        client.deadline = self._machine.timers.call_later(self._deadline_seconds, task.cancel)
        task.add_done_callback(self._served)

    def _make_room(self, host: str) -> bool:
        """Whether there is a place for one more connection of a host, be it that of an idle one, which is closed."""
        of_host = {task: client for task, client in self._clients.items() if client.host == host}
        has_share = len(of_host) >= _CONNECTIONS_A_HOST
        if not has_share and len(self._clients) < _CONNECTIONS_MAX:
            return True
        for task, client in (of_host if has_share else self._clients).items():
            if client.is_idle:
                client.is_idle = False
                task.cancel()
                return True
        return False

    def _close(self, client: _Client) -> None:
        client.accepted.close()
        if client.deadline is not None:
            client.deadline.cancel()
        if self._acceptor is not None:
            self._acceptor.closed(client.host)

    def _served(self, task: asyncio.Task[None]) -> None:
        """Close a connection whose task has ended, maybe before it began."""
        self._close(self._clients.pop(task))
        if not task.cancelled():
            task.result()

    async def _serve(self, client: _Client) -> None:
        """Answer one request."""
        loop, accepted = asyncio.get_running_loop(), client.accepted
        try:
            request = b""
            while b"\r\n\r\n" not in request and len(request) <= _REQUEST_BYTES_MAX:
                part = await loop.sock_recv(accepted, 4096)
                if not part:
                    return
                request += part
            client.is_idle = False
            await loop.sock_sendall(accepted, await self._answer(request))
            accepted.shutdown(socket.SHUT_WR)
        except OSError as error:  # the client went: it asks again if it likes
            _log.debug("event=scrape_lost reason=%r", str(error))

    async def _answer(self, request: bytes) -> bytes:
        head, separator, _ = request.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if not separator:
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST)
        if words[0] not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED)
        path = words[1].partition("?")[0]
        if path == "/metrics":
            headers = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
            answer = await self._metrics(headers.get("accept", "").strip())
        elif path in ("/livez", "/readyz", "/healthz"):
            reason = "" if path == "/livez" else self._health()
            status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
            answer = _response(status, f"{reason or 'ok'}\n".encode())
        else:
            answer = _response(HTTPStatus.NOT_FOUND)
        return answer if words[0] == "GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    async def _metrics(self, accepted_types: str) -> bytes:
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accepted_types)
        registries = cast("CollectorRegistry", self._registries)
        worker = self._worker
        if worker is None:
            return _response(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            return _response(HTTPStatus.OK, await worker.run(lambda: encode(registries)), content_type)
        except Exception as error:  # noqa: BLE001 - a collector of any library
            _log.error("event=scrape_failed", exc_info=error)
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}\n".encode())


def _response(status: HTTPStatus, body: bytes | None = None, content_type: str = _TEXT) -> bytes:
    content = f"{status.phrase}\n".encode() if body is None else body
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + content
