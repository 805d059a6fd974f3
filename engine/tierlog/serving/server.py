"""A server of frames, with its listener and all its connections; and a server as a whole process."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import contextlib
import gc
import logging
import os
import resource
import signal
import socket  # noqa: TID251 - this room is the sockets'
import ssl  # noqa: TID251 - this room is the sockets'
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

import uvloop

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timer
from tierlog.runtime.machine.unix_socket import UnixListener
from tierlog.runtime.waiting.loops import Alarm, Worker
from tierlog.serving.accepting import Acceptor, listen_on_port
from tierlog.serving.admission import RequestMemory, Turns
from tierlog.serving.connection import SCRATCH_BYTES, Client, Connection, Deadlines, Shared
from tierlog.serving.metrics import LoopLag, ServingMetrics
from tierlog.serving.refusals import Refusals
from tierlog.serving.reloaded_files import ReloadedFiles, open_certificate, refusal_text
from tierlog.serving.response_writer import Reply
from tierlog.serving.serving_config import ServingConfig

_log = logging.getLogger(__name__)

#: How often files that may change are looked at.
_FILES_PERIOD_SECONDS: Final = 30.0
#: How much longer than the grace a stop waits for handlers that were cancelled.
_CANCELLED_SECONDS: Final = 5.0
#: How long a client may take to say goodbye.
_TLS_SHUTDOWN_SECONDS: Final = 2.0
#: How long the work for a client that is gone may go on, if its socket is not read.
_UNREAD_SECONDS: Final = 1.0
#: Collections of the middle generation before one of all objects (Python: 10). Objects of the start are never scanned
#: again, and objects of requests are garbage long before they are old.
_COLLECTIONS_OF_ALL: Final = 1000
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_STDIN: Final = 0
_STDIN_BYTES: Final = 4096


class FramedServer:
    """A server of frames (a length of 4 bytes, and so many) for many clients, from its start to its stop.

    Args:
        config: Where it listens, and its limits.
        machine: Clock, threads and files.
        new_client: Makes the client of an accepted connection: its host, a number that is unique while the server runs,
            and the (host, port) that it reached.
        answer: Answers a frame of a client; None: no reply is expected. It raises RefusedError for a connection that is
            to be closed; any other error is logged with its place, and closes the connection, too.
        memory: Of all requests.
        refusals: Where refused clients are logged.
        metrics: The counters.
        worker: Threads that wait for files.
        reloaded: Files that are looked at now and then, beside the certificate.
        unix: Where it listens instead of a host and a port.
        more_ports: Ports of the same host on which it listens beside that of ``config``.
        descriptors_each: As of ``Acceptor``.

    Made, started and stopped once, on one event loop.
    """

    def __init__(
        self,
        config: ServingConfig,
        machine: Machine,
        *,
        new_client: Callable[[str, int, tuple[str, int]], Client],
        answer: Callable[[Any, memoryview], Coroutine[Any, Any, Reply | None]],
        memory: RequestMemory,
        refusals: Refusals,
        metrics: ServingMetrics,
        worker: Worker,
        reloaded: Iterable[ReloadedFiles[Any]] = (),
        unix: UnixListener | None = None,
        more_ports: Sequence[int] = (),
        descriptors_each: int = 1,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._unix = unix
        self._more_ports = more_ports
        self._listener: socket.socket | None = None
        self._loop = loop
        self._config = config
        self._machine = machine
        self._new_client = new_client
        self._metrics = metrics
        self._refusals = refusals
        self._worker = worker
        self._reloaded = list(reloaded)
        self.shared = Shared(
            loop=loop,
            config=config,
            clock=machine.clock,
            timers=machine.timers,
            answer=answer,
            turns=Turns(
                config.requests_at_work_max,
                now=machine.clock.monotonic_seconds,
                call_soon=loop.call_soon,
                rested=self._look_whether_all_are_gone,
            ),
            memory=memory,
            refusals=refusals,
            metrics=metrics,
            idle=Deadlines(config.connections_max_idle_ms / 1000),
            unauthenticated=Deadlines(config.authentication_deadline_ms / 1000),
            receiving=Deadlines(config.request_deadline_ms / 1000),
            sending=Deadlines(config.response_deadline_ms / 1000),
            unread=Deadlines(_UNREAD_SECONDS),
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            made=self._made,
            lost=self._lost,
        )
        metrics.requests_waiting = lambda: self.shared.turns.waiting
        metrics.connections = lambda: self.acceptor.open_count
        admission = {} if unix is None else {"refusal": unix.refusal}
        self.acceptor = Acceptor(
            config,
            loop=loop,
            timers=machine.timers,
            refused=self._refuse,
            accepted=self._accepted,
            descriptors_each=descriptors_each,
            **admission,
        )
        self._lag = LoopLag(machine.timers, machine.clock, metrics)
        self._certificate: ReloadedFiles[ssl.SSLContext] | None = None
        self._reloading = asyncio.Lock()
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._next_connection_id = 0
        self._is_stopping = False
        self._all_gone = Alarm(machine.timers)
        self._sweep: Timer | None = None
        self._address = ("", 0)
        least_ms = min(
            *(config.connections_max_idle_ms, config.authentication_deadline_ms),
            *(config.request_deadline_ms, config.response_deadline_ms),
        )
        self._sweep_seconds = min(max(least_ms / 4000, 0.02), 1.0)

    async def start(self) -> tuple[str, int]:
        """Begin to listen; returns the host and the (first) port, of a path ``unix:PATH`` and 0.

        Raises:
            OSError: the address cannot be listened on. ConfigError: a certificate is malformed. StoreError and its
            kinds: a file cannot be read.
        """
        config = self._config
        if config.has_tls:
            self._certificate = await self._worker.run(partial(open_certificate, config, self._machine.files))
            self._reloaded.append(self._certificate)
        if self._unix is None:
            listeners = await self._listen_on_ports()
        else:
            listeners = [self._unix.listen(backlog=config.socket_listen_backlog_size)]
        self._listener = listeners[0]
        self._address = self.acceptor.start(listeners)
        self._lag.start()
        self._sweep = self._machine.timers.call_later(self._sweep_seconds, self._sweep_deadlines)
        if self._reloaded:
            self.start_chore(self._watch_files())
        return self._address

    async def _listen_on_ports(self) -> list[socket.socket]:
        """Listen on all ports, or on none."""
        with contextlib.ExitStack() as unless_all:
            ports = (self._config.port, *self._more_ports)
            listeners = [
                unless_all.enter_context(await listen_on_port(self._config, each, self._loop)) for each in ports
            ]
            unless_all.pop_all()
        return listeners

    async def stop(self) -> None:
        """Stop listening, answer the requests under way for as long as the grace lasts, and close all connections."""
        _log.info("event=stopping connections=%d", len(self._connections))
        self._is_stopping = True
        if self._unix is not None and self._listener is not None:
            self._unix.remove(self._listener)
        self.acceptor.close()
        for task in (*self._opening, *self._chores):
            task.cancel()
        for connection in tuple(self._connections):
            connection.finish()
        if not await self._are_gone(self._config.stop_grace_ms / 1000):
            for connection in tuple(self._connections):
                connection.abort()
            if not await self._are_gone(_CANCELLED_SECONDS):
                _log.error("event=handlers_left count=%d: they do not end when cancelled", self.shared.turns.at_work)
        self._lag.stop()
        if self._sweep is not None:
            self._sweep.cancel()
        _log.info("event=stopped host=%s port=%d", *self._address)

    async def reload_files(self) -> None:
        """Read the files that have changed; those that are malformed are logged, and not used."""
        async with self._reloading:
            for files in self._reloaded:
                await self._worker.run(files.reload)

    def start_chore(self, chore: Coroutine[object, object, None]) -> None:
        """Run a coroutine beside the server, until it stops."""
        task = self._loop.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def _refuse(self, kind: str, client_host: str, text: str) -> None:
        self._metrics.count_refused(kind)
        self._refusals.tell(kind, client_host, text)

    # ---- connections

    def _accepted(self, accepted: socket.socket, host: str) -> None:
        self._metrics.connections_accepted += 1
        self._next_connection_id += 1
        client = self._new_client(host, self._next_connection_id, accepted.getsockname()[:2])
        task = self._loop.create_task(self._open(accepted, client))
        self._opening.add(task)
        task.add_done_callback(self._opened)

    async def _open(self, accepted: socket.socket, client: Client) -> None:
        """Make a connection of a socket, through TLS if that is asked for."""
        connection = Connection(self.shared, client)
        context = self._certificate.value if self._certificate is not None else None
        deadlines: dict[str, float] = {}
        if context is not None:
            deadlines["ssl_handshake_timeout"] = self._config.authentication_deadline_ms / 1000
            deadlines["ssl_shutdown_timeout"] = _TLS_SHUTDOWN_SECONDS
        is_open = False
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **deadlines)
            is_open = True
        except OSError as error:  # of TLS too; a deadline is a ConnectionAbortedError
            if context is not None:
                self._refuse("tls", client.host, refusal_text(error))
        finally:
            if not is_open:
                accepted.close()
                self.acceptor.closed(client.host)
                self._look_whether_all_are_gone()

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        self._look_whether_all_are_gone()
        if not task.cancelled():
            task.result()

    def _made(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._is_stopping:
            connection.finish()

    def _lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.acceptor.closed(connection.client.host)
        self._look_whether_all_are_gone()

    def _look_whether_all_are_gone(self) -> None:
        if self._is_stopping and self._are_all_gone():
            self._all_gone.ring()

    def _are_all_gone(self) -> bool:
        return not (self._connections or self._opening or self.shared.turns.at_work)

    async def _are_gone(self, seconds: float) -> bool:
        """Wait for the end of all connections and of the work for them. Whether it came."""
        until = self._machine.timers.monotonic_seconds() + seconds
        while not self._are_all_gone() and (left := until - self._machine.timers.monotonic_seconds()) > 0:
            await self._all_gone.wait(left)
        return self._are_all_gone()

    # ---- periodic checks

    def _sweep_deadlines(self) -> None:
        """Close the connections whose time is over."""
        shared = self.shared
        now = self._machine.clock.monotonic_seconds()
        for connection in shared.idle.take_expired(now):
            self._metrics.count_refused("idle")
            connection.close()
        for connection in tuple(shared.unread.take_expired(now)):
            if not connection.client.is_read_out and connection.has_client_gone():
                connection.abort()
            else:
                shared.unread.start(connection, now)
        for connection in shared.receiving.take_expired(now):
            connection.refuse("request_deadline", f"a request did not arrive within {shared.receiving.seconds:g} s")
        for connection in shared.unauthenticated.take_expired(now):
            text = f"the client did not prove who it is within {shared.unauthenticated.seconds:g} s"
            connection.refuse("authentication_deadline", text)
        for connection in tuple(shared.sending.take_expired(now)):
            if connection.check_progress():
                shared.sending.start(connection, now)
            else:
                text = f"the client took no byte of a response for {shared.sending.seconds:g} s"
                connection.refuse("response_deadline", text)
        self._sweep = self._machine.timers.call_later(self._sweep_seconds, self._sweep_deadlines)

    async def _watch_files(self) -> None:
        while True:
            await Alarm(self._machine.timers).wait(_FILES_PERIOD_SECONDS)
            await self.reload_files()


def run_server(
    start: Callable[[], Awaitable[tuple[str, int]]],
    stop: Callable[[], Awaitable[None]],
    reload_files: Callable[[], Coroutine[Any, Any, None]],
    on_ready: Callable[[str, int], None] = lambda _host, _port: None,
    *,
    behind_stdin: Callable[[], None] | None = None,
) -> int:
    """Run a server on a loop of its own, in this thread, until SIGTERM or SIGINT.

    They may come while it still starts, and again while it stops; from its end on the process ignores them. SIGHUP has
    it read its certificate and its users. From the call on the process may have as many descriptors as it is allowed to
    ask for, and hardly ever looks through all its objects for cycles, which would hold up the loop for a tenth of a
    second and more.

    Args:
        start: Of the server, as the next two; called on the loop.
        stop: Called once, also if the start has failed.
        reload_files: Called at SIGHUP.
        on_ready: Called on the loop with host and port, once clients can connect.
        behind_stdin: If given, the end of stdin is such a signal, too: of a pipe from who started this process, which
            ends with that one however it ends. Then called once the server has stopped.

    Returns:
        The exit code: 0.

    Raises:
        What ``start``, ``on_ready`` and ``stop`` raise.

    Only for the main thread: it alone gets signals.
    """

    stdin_ended = False

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ending = asyncio.Event()
        reloads: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(reload_files())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        def end(number: signal.Signals) -> None:
            _log.info("event=signal name=%s", number.name)
            ending.set()

        for number in _ENDING:  # the loop would give them back to the system while it ends
            signal.signal(number, lambda given, _: loop.call_soon_threadsafe(end, signal.Signals(given)))
        loop.add_signal_handler(signal.SIGHUP, reload)

        def look_at_stdin() -> None:
            nonlocal stdin_ended
            if not os.read(_STDIN, _STDIN_BYTES):
                loop.remove_reader(_STDIN)
                _log.info("event=stdin_ended")
                stdin_ended = True
                ending.set()

        if behind_stdin is not None:
            loop.add_reader(_STDIN, look_at_stdin)
        starting = asyncio.ensure_future(start())
        waiting = loop.create_task(ending.wait())
        try:
            await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                on_ready(*starting.result())
                gc.freeze()
                await waiting
        finally:
            for task in (starting, waiting):
                task.cancel()
            await asyncio.wait((starting, waiting))
            await stop()
            await asyncio.gather(*reloads)
            for number in _ENDING:  # one that comes again would kill the process behind its clean stop
                signal.signal(number, signal.SIG_IGN)

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _COLLECTIONS_OF_ALL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    if stdin_ended and behind_stdin is not None:
        behind_stdin()
    return 0
