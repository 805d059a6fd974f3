"""A server of Kafka's protocol: what listens, and all its connections."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import logging
import socket  # noqa: TID251 - this room is the sockets'
import ssl  # noqa: TID251 - this room is the sockets'
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Final

from kio.index import load_request_schema

from tierlog.broker.handling import Handler
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.server.accepting import Acceptor, host_of, is_reachable
from tierlog.broker.server.client import Client
from tierlog.broker.server.connection import SCRATCH_BYTES, Connection, Shared
from tierlog.broker.server.deadlines import Deadlines
from tierlog.broker.server.metrics.loop_lag import LoopLag
from tierlog.broker.server.metrics.server_metrics import ServerMetrics
from tierlog.broker.server.refusals import Refusals
from tierlog.broker.server.request_answers import RequestAnswers
from tierlog.broker.server.request_memory import RequestMemory
from tierlog.broker.server.security.reloaded_files import ReloadedFiles
from tierlog.broker.server.security.sasl_authenticator import SaslAuthenticator, SaslSetup
from tierlog.broker.server.security.sasl_exchange import load_mechanisms
from tierlog.broker.server.security.tls import open_certificate, refusal_text
from tierlog.broker.server.security.topic_access import TopicAccess, open_topic_access
from tierlog.broker.server.security.users import Users, open_users
from tierlog.broker.server.server_config import ServerConfig
from tierlog.broker.server.turns import Turns
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Worker

_log = logging.getLogger(__name__)

_SECURITY_THREADS: Final = 2
#: Whoever starts a server waits for its first record: nothing else is done before that.
_LOADING_AFTER_SECONDS: Final = 1.0
_LOADING_PERIOD_SECONDS: Final = 0.02
#: How often files that may change are looked at.
_FILES_PERIOD_SECONDS: Final = 30.0
#: How much longer than the grace a stop waits for handlers that were cancelled.
_CANCELLED_SECONDS: Final = 5.0
#: How long a client may take to say goodbye.
_TLS_SHUTDOWN_SECONDS: Final = 2.0
#: How long the work for a client that is gone may go on, if its socket is not read.
_UNREAD_SECONDS: Final = 1.0


class Server:
    """Serves Kafka's protocol to clients.

    ApiVersions, SaslHandshake and SaslAuthenticate are answered here, all else by handlers.

    Args:
        handlers: Of the APIs that are served; one each.
        machine: Clock, chance, threads and files.
        metrics: None makes some.

    Raises:
        ConfigError: two handlers have the same API.

    One event loop, which runs when ``start`` is called, and its thread.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        config: ServerConfig,
        machine: Machine,
        *,
        metrics: ServerMetrics | None = None,
    ) -> None:
        self.config = config
        self.metrics = metrics or ServerMetrics()
        self._machine = machine
        self._refusals = Refusals(machine)
        self._memory = RequestMemory(config.queued_max_request_bytes, small_bytes=SCRATCH_BYTES)
        self._answers = RequestAnswers(
            handlers,
            clock=machine.clock,
            memory=self._memory,
            metrics=self.metrics,
            refusals=self._refusals,
            failure_delay_seconds=config.connection_failed_authentication_delay_ms / 1000,
        )
        self._running: _Running | None = None

    async def start(self) -> tuple[str, int]:
        """Begin to listen; returns the host and the port.

        Raises:
            OSError: the address cannot be listened on. ConfigError: a certificate or the file of users is malformed.
            StoreError and its kinds: a file cannot be read. RuntimeError: the server is running.
        """
        if self._running is not None:
            raise RuntimeError("the server is running")
        worker = Worker(self._machine.scheduler.pool(_SECURITY_THREADS, name="tierlog-server-security"), self._machine)
        running = _Running(
            self.config, self._machine, self._answers, self._memory, self.metrics, self._refusals, worker
        )
        try:
            host, port = await running.start()
        except BaseException:
            running.close_workers()
            raise
        self._running = running
        return host, port

    async def stop(self) -> None:
        """Stop listening, answer the requests under way for as long as the grace lasts, and close all connections.

        On return no socket, task or thread of the server is left. Idempotent; the server can be started again.
        """
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def reload_files(self) -> None:
        """Use a changed certificate and changed users for connections from now on, and changed topics of users for
        requests; files that are malformed are logged, and not used.
        """
        if self._running is not None:
            await self._running.reload_files()


def _load_version(api_key: int, version: int) -> None:
    load_request_schema(api_key, version)
    entities_of(api_key, version)


class _Running:
    """A server from its start to its stop."""

    def __init__(
        self,
        config: ServerConfig,
        machine: Machine,
        answers: RequestAnswers,
        memory: RequestMemory,
        metrics: ServerMetrics,
        refusals: Refusals,
        worker: Worker,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._config = config
        self._machine = machine
        self._answers = answers
        self._metrics = metrics
        self._refusals = refusals
        self._worker = worker
        self._shared = Shared(
            loop=loop,
            config=config,
            clock=machine.clock,
            answers=answers,
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
        metrics.requests_waiting = lambda: self._shared.turns.waiting
        metrics.connections = lambda: self._acceptor.open_count
        self._acceptor = Acceptor(config, loop=loop, refused=self._refuse, accepted=self._accepted)
        self._lag = LoopLag(machine.timers, machine.clock, metrics)
        self._certificate: ReloadedFiles[ssl.SSLContext] | None = None
        answers.worker = Worker(machine.scheduler.pool(1, name="tierlog-server-answers"), machine)
        self._users: ReloadedFiles[Users] | None = None
        self._topic_access: ReloadedFiles[TopicAccess] | None = None
        self._sasl: SaslSetup | None = None
        self._reloading = asyncio.Lock()
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._next_connection_id = 0
        self._is_stopping = False
        self._all_gone = asyncio.Event()
        self._sweep: asyncio.TimerHandle | None = None
        self._address = ("", 0)
        least_ms = min(
            *(config.connections_max_idle_ms, config.authentication_deadline_ms),
            *(config.request_deadline_ms, config.response_deadline_ms),
        )
        self._sweep_seconds = min(max(least_ms / 4000, 0.02), 1.0)

    async def start(self) -> tuple[str, int]:
        config = self._config
        if config.security_protocol.has_tls:
            self._certificate = await self._worker.run(partial(open_certificate, config, self._machine.files))
        if config.security_protocol.has_sasl:
            await self._worker.run(load_mechanisms)
            self._users = await self._worker.run(partial(open_users, config.sasl_users_location, self._machine))
            self._sasl = SaslSetup(
                config.sasl_enabled_mechanisms, self._users, self._machine.rng, self._worker, self._answers.api_versions
            )
        if config.user_topics_location:
            self._topic_access = await self._worker.run(
                partial(open_topic_access, config.user_topics_location, self._machine.files)
            )
        self._answers.topic_access = self._topic_access
        self._address = host, port = await self._acceptor.listen()
        self._lag.start()
        self._sweep = self._loop.call_later(self._sweep_seconds, self._sweep_deadlines)
        self._start_chore(self._load_versions())
        if self._certificate is not None or self._users is not None:
            self._start_chore(self._watch_files())
        _log.info("event=started host=%s port=%d protocol=%s", host, port, config.security_protocol)
        if is_reachable(host):
            self._warn_of_exposure(host)
        return host, port

    def _warn_of_exposure(self, host: str) -> None:
        config = self._config
        if not config.security_protocol.has_sasl:
            line = (
                "event=no_authentication host=%s: whoever reaches the port reads all that is served; --users has SASL"
            )
            _log.warning(line, host)
        elif not config.security_protocol.has_tls and "PLAIN" in config.sasl_enabled_mechanisms:
            _log.warning("event=passwords_in_the_clear host=%s: PLAIN without TLS sends passwords as they are", host)

    async def stop(self) -> None:
        _log.info("event=stopping connections=%d", len(self._connections))
        self._is_stopping = True
        self._acceptor.close()
        for task in (*self._opening, *self._chores):
            task.cancel()
        for connection in tuple(self._connections):
            connection.finish()
        if not await self._are_gone(self._config.stop_grace_ms / 1000):
            for connection in tuple(self._connections):
                connection.abort()
            if not await self._are_gone(_CANCELLED_SECONDS):
                _log.error("event=handlers_left count=%d: they do not end when cancelled", self._shared.turns.at_work)
        self._lag.stop()
        if self._sweep is not None:
            self._sweep.cancel()
        self.close_workers()
        _log.info("event=stopped host=%s port=%d", *self._address)

    def close_workers(self) -> None:
        """End the threads."""
        self._worker.close()
        if self._answers.worker is not None:
            self._answers.worker.close()

    async def reload_files(self) -> None:
        async with self._reloading:
            for files in (self._certificate, self._users, self._topic_access):
                if files is not None:
                    await self._worker.run(files.reload)

    def _refuse(self, kind: str, client_host: str, text: str) -> None:
        self._metrics.count_refused(kind)
        self._refusals.tell(kind, client_host, text)

    # ---- connections

    def _accepted(self, accepted: socket.socket, host: str) -> None:
        local = accepted.getsockname()
        config = self._config
        self._metrics.connections_accepted += 1
        self._next_connection_id += 1
        client = Client(
            host,
            self._next_connection_id,
            config.advertised_host or host_of(local),
            config.advertised_port or local[1],
            authenticator=SaslAuthenticator(self._sasl) if self._sasl is not None else None,
        )
        task = self._loop.create_task(self._open(accepted, client))
        self._opening.add(task)
        task.add_done_callback(self._opened)

    async def _open(self, accepted: socket.socket, client: Client) -> None:
        """Make a connection of a socket, through TLS if that is asked for."""
        connection = Connection(self._shared, client)
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
                self._acceptor.closed(client.host)
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
        self._acceptor.closed(connection.client.host)
        self._look_whether_all_are_gone()

    def _look_whether_all_are_gone(self) -> None:
        if self._is_stopping and not (self._connections or self._opening or self._shared.turns.at_work):
            self._all_gone.set()

    async def _are_gone(self, seconds: float) -> bool:
        """Wait for the end of all connections and of the work for them. Whether it came."""
        self._look_whether_all_are_gone()
        try:
            async with asyncio.timeout(seconds):
                await self._all_gone.wait()
        except TimeoutError:
            return False
        return True

    # ---- what is looked at now and then

    def _sweep_deadlines(self) -> None:
        """Close the connections whose time is over."""
        shared = self._shared
        now = self._machine.clock.monotonic_seconds()
        for connection in shared.idle.take_expired(now):
            self._metrics.count_refused("idle")
            connection.close()
        for connection in tuple(shared.unread.take_expired(now)):
            if connection.has_client_gone():
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
        self._sweep = self._loop.call_later(self._sweep_seconds, self._sweep_deadlines)

    def _start_chore(self, chore: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _load_versions(self) -> None:
        """Load what kio has of each API and version, one after the other: a module takes 5 ms, which its first client
        would wait for, and all others with it.
        """
        await asyncio.sleep(_LOADING_AFTER_SECONDS)
        for api_key, version in self._answers.iter_versions():
            await self._worker.run(partial(_load_version, api_key, version))
            await asyncio.sleep(_LOADING_PERIOD_SECONDS)

    async def _watch_files(self) -> None:
        while True:
            await asyncio.sleep(_FILES_PERIOD_SECONDS)
            await self.reload_files()
