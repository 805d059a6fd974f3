"""A server of Kafka's protocol: framed connections, authentication, and handlers of the APIs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kio.index import load_request_schema

from tierlog.broker.handling import Handler
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.server.request_answers import KafkaClient, RequestAnswers
from tierlog.broker.server.security.sasl_authenticator import SaslAuthenticator, SaslSetup, load_mechanisms
from tierlog.broker.server.security.topic_access import open_topic_access
from tierlog.broker.server.security.users import open_users
from tierlog.broker.server.server_config import ServerConfig
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm, Worker
from tierlog.serving.accepting import host_of, is_reachable
from tierlog.serving.admission import RequestMemory
from tierlog.serving.connection import SCRATCH_BYTES
from tierlog.serving.refusals import Refusals
from tierlog.serving.reloaded_files import ReloadedFiles
from tierlog.serving.server import FramedServer

_log = logging.getLogger(__name__)

_SECURITY_THREADS: Final = 2
#: A user who starts a server waits for its first record: nothing else is done before that.
_LOADING_AFTER_SECONDS: Final = 1.0
_LOADING_PERIOD_SECONDS: Final = 0.02


class Server:
    """A server of Kafka's protocol.

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
        self._sasl: SaslSetup | None = None
        self._workers: tuple[Worker, ...] = ()
        self.framed: FramedServer | None = None

    async def start(self) -> tuple[str, int]:
        """Begin to listen; returns the host and the port.

        Raises:
            OSError: the address cannot be listened on. ConfigError: a certificate or the file of users is malformed.
            StoreError and its kinds: a file cannot be read. RuntimeError: the server is running.
        """
        if self.framed is not None:
            raise RuntimeError("the server is running")
        machine, config, answers = self._machine, self.config, self._answers
        security = Worker(machine.scheduler.pool(_SECURITY_THREADS, name="tierlog-server-security"), machine)
        answers.worker = Worker(machine.scheduler.pool(1, name="tierlog-server-answers"), machine)
        self._workers = security, answers.worker
        try:
            reloaded = await self._open_security(security)
            framed = FramedServer(
                config,
                machine,
                new_client=self._new_client,
                answer=answers.answer,
                memory=self._memory,
                refusals=self._refusals,
                metrics=self.metrics,
                worker=security,
                reloaded=reloaded,
            )
            host, port = await framed.start()
        except BaseException:
            self._close_workers()
            raise
        self.framed = framed
        framed.start_chore(self._load_versions(security))
        _log.info("event=started host=%s port=%d protocol=%s", host, port, config.security_protocol)
        if is_reachable(host):
            self._warn_of_exposure(host)
        return host, port

    async def _open_security(self, worker: Worker) -> list[ReloadedFiles[Any]]:
        """Read the files of users and of their topics."""
        machine, config, answers = self._machine, self.config, self._answers
        reloaded: list[ReloadedFiles[Any]] = []
        self._sasl = answers.topic_access = None
        if config.security_protocol.has_sasl:
            await worker.run(load_mechanisms)
            users = await worker.run(partial(open_users, config.sasl_users_location, machine))
            self._sasl = SaslSetup(config.sasl_enabled_mechanisms, users, machine.rng, worker, answers.api_versions)
            reloaded.append(users)
        if config.user_topics_location:
            access = await worker.run(partial(open_topic_access, config.user_topics_location, machine.files))
            answers.topic_access = access
            reloaded.append(access)
        return reloaded

    def _new_client(self, host: str, connection_id: int, reached: tuple[str, int]) -> KafkaClient:
        return KafkaClient(
            host,
            connection_id,
            self.config.advertised_host or host_of(reached),
            self.config.advertised_port or reached[1],
            SaslAuthenticator(self._sasl) if self._sasl is not None else None,
        )

    def _warn_of_exposure(self, host: str) -> None:
        config = self.config
        if not config.security_protocol.has_sasl:
            line = (
                "event=no_authentication host=%s: whoever reaches the port reads all that is served; --users has SASL"
            )
            _log.warning(line, host)
        elif not config.security_protocol.has_tls and "PLAIN" in config.sasl_enabled_mechanisms:
            _log.warning("event=passwords_in_the_clear host=%s: PLAIN without TLS sends passwords as they are", host)

    async def stop(self) -> None:
        """Stop listening, answer the requests under way for as long as the grace lasts, and close all connections.

        On return no socket, task or thread of the server is left. Idempotent; the server can be started again.
        """
        framed, self.framed = self.framed, None
        if framed is not None:
            await framed.stop()
            self._close_workers()

    def _close_workers(self) -> None:
        for worker in self._workers:
            worker.close()

    async def reload_files(self) -> None:
        """Use a changed certificate and changed users for connections from now on, and changed topics of users for
        requests; files that are malformed are logged, and not used.
        """
        if self.framed is not None:
            await self.framed.reload_files()

    async def _load_versions(self, worker: Worker) -> None:
        """Load kio's module of each API and version, one after the other: a module takes 5 ms, which its first client
        would wait for, and all others with it.
        """
        await self._sleep(_LOADING_AFTER_SECONDS)
        for api_key, version in self._answers.iter_versions():
            await worker.run(partial(_load_version, api_key, version))
            await self._sleep(_LOADING_PERIOD_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        await Alarm(self._machine.timers).wait(seconds)


def _load_version(api_key: int, version: int) -> None:
    load_request_schema(api_key, version)
    entities_of(api_key, version)
