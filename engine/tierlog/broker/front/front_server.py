"""The server of a front: a listener for the bootstrap address and one for each virtual broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final

from tierlog.broker.front.front_config import FrontConfig, tls_context
from tierlog.broker.front.own_connections import Address, OwnConnections
from tierlog.broker.front.relay import FrontClient, Relay
from tierlog.broker.front.upstream_connection import UpstreamConnection
from tierlog.broker.front.virtual_brokers import VirtualBrokers
from tierlog.broker.handling import Handler
from tierlog.broker.server.server_config import ServerConfig
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm, Worker
from tierlog.serving.accepting import host_of, is_reachable
from tierlog.serving.admission import RequestMemory
from tierlog.serving.answer_memory import AnswerMemory
from tierlog.serving.connection import SCRATCH_BYTES
from tierlog.serving.outgoing import OutgoingConnection, OutgoingError, OutgoingSettings, TlsContext, open_outgoing
from tierlog.serving.refusals import Refusals
from tierlog.serving.server import FramedServer

_log = logging.getLogger(__name__)

_THREADS: Final = 2
#: A client's connection, and its own to a broker.
_DESCRIPTORS_EACH: Final = 2
_ANSWERS_BYTES: Final = 256 << 20
_LOADING_PERIOD_SECONDS: Final = 0.02


class UpstreamCluster:
    """The cluster behind a front: its brokers, and connections to them. Made by ``open_upstream``, on one event loop.

    Attributes:
        brokers: The virtual ones.
        own: The front's own connections.
    """

    def __init__(self, config: FrontConfig, settings: OutgoingSettings, tls: TlsContext | None, worker: Worker) -> None:
        self.config = config
        self._settings = settings
        self._tls = tls
        self._next = 0
        #: Addresses that were not reached as a bootstrap: each client would wait for one whose host is gone.
        self._failed: set[Address] = set()
        self.brokers = VirtualBrokers(config.ports)
        self.own = OwnConnections(config, self.brokers, self.connect, worker=worker, timers=settings.timers)

    async def connect(self, address: Address) -> OutgoingConnection:
        """Connect to an address of the cluster. Raises OutgoingError: it is not reached, or must not be."""
        if not self.config.may_reach(address[0]):
            raise OutgoingError(
                f"{address[0]}:{address[1]} is on another machine, and brokers there are reached by TLS alone"
            )
        return await open_outgoing(self._settings, *address, tls=self._tls)

    async def connect_behind(self, port: int) -> OutgoingConnection:
        """Connect to the broker behind a port of the front; behind any other to one that answers.

        Raises:
            OutgoingError: it is not reached, or not known.
        """
        if port not in self.brokers.ports:
            return await self._connect_any()
        broker = self.brokers.at(port)
        if broker is None:
            self.own.list_soon()
            raise OutgoingError(f"no broker is known behind port {port}")
        try:
            return await self.connect((broker.host, broker.port))
        except OutgoingError:
            self.own.list_soon()
            raise

    async def _connect_any(self) -> OutgoingConnection:
        known = [(each.host, each.port) for each in self.brokers.listed()]
        self._next += 1
        first = self._next % max(len(known), 1)  # each broker in turn is the bootstrap of a client
        known = known[first:] + known[:first]
        addresses = dict.fromkeys((*known, *self.config.bootstrap))
        self._failed &= addresses.keys()
        failure = OutgoingError("no broker is known")
        for address in sorted(addresses, key=self._failed.__contains__):
            try:
                found = await self.connect(address)
            except OutgoingError as error:
                failure = error
                self._failed.add(address)
            else:
                self._failed.discard(address)
                return found
        self.own.list_soon()
        raise failure


async def open_upstream(config: FrontConfig, memory: AnswerMemory, machine: Machine, worker: Worker) -> UpstreamCluster:
    """Make the cluster's side of a front; connects to nothing. ``memory`` is that of all answers.

    Raises ConfigError: the trusted certificates cannot be used.
    """
    tls = await worker.run(partial(tls_context, config))
    return UpstreamCluster(
        config, OutgoingSettings(memory, machine.timers, frame_bytes_max=_ANSWERS_BYTES), tls, worker
    )


class FrontServer:
    """A server in front of a cluster.

    Args:
        handlers: Of the APIs that are not the brokers' alone.
        config: Where it listens for the bootstrap, and its limits.
        upstream: The cluster.
        metrics: The counters.
        chores: Run beside the server, from its start to its end.

    One event loop, which runs when ``start`` is called, and its thread.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        config: ServerConfig,
        upstream: UpstreamCluster,
        machine: Machine,
        *,
        metrics: ServerMetrics,
        chores: Sequence[Callable[[], Coroutine[object, object, None]]] = (),
    ) -> None:
        self._config = config
        self._chores = chores
        self.upstream = upstream
        self._machine = machine
        self._metrics = metrics
        self._memory = RequestMemory(config.queued_max_request_bytes, small_bytes=SCRATCH_BYTES)
        self._relay = Relay(handlers, clock=machine.clock, memory=self._memory, metrics=metrics)
        self._worker: Worker | None = None
        self._framed: FramedServer | None = None

    async def start(self) -> tuple[str, int]:
        """Wait until the cluster answers, then listen on all ports; returns the host and the port of the bootstrap.

        Raises:
            OSError: an address cannot be listened on. ConfigError: two brokers would have one port, one is on another
            machine and not behind TLS, or a certificate is malformed. StoreError and its kinds: a file cannot be read.
        """
        machine, upstream = self._machine, self.upstream
        found = await upstream.own.first_brokers(Alarm(machine.timers).wait)
        upstream.brokers.check(found)
        for broker in found:
            if not upstream.config.may_reach(broker.host):
                raise ConfigError(
                    f"--upstream: broker {broker.node_id} is at {broker.host}, on another machine, and brokers there "
                    "are reached by TLS alone (--upstream-config)"
                )
        self._worker = self._relay.worker = Worker(machine.scheduler.pool(_THREADS, name="tierlog-front"), machine)
        self._framed = FramedServer(
            self._config,
            machine,
            new_client=self._new_client,
            answer=self._relay.answer,
            memory=self._memory,
            refusals=Refusals(machine),
            metrics=self._metrics,
            worker=self._worker,
            more_ports=upstream.brokers.ports,
            descriptors_each=_DESCRIPTORS_EACH,
        )
        host, port = await self._framed.start()
        self._framed.start_chore(upstream.own.keep_listing())
        self._framed.start_chore(self._load_versions(self._worker))
        for chore in self._chores:
            self._framed.start_chore(chore())
        ports = upstream.brokers.ports
        line = "event=started host=%s port=%d protocol=%s broker_ports=%d-%d brokers=%d"
        _log.info(line, host, port, self._config.security_protocol, ports.start, ports.stop - 1, len(found))
        if is_reachable(host) and upstream.config.has_sasl and not self._config.has_tls:
            line = "event=passwords_in_the_clear host=%s: clients' logins pass without TLS; --tls-cert has it"
            _log.warning(line, host)
        return host, port

    def _new_client(self, host: str, connection_id: int, reached: tuple[str, int]) -> FrontClient:
        config, upstream = self.upstream.config, self.upstream
        advertised_host = config.advertised_host or host_of(reached)
        client = FrontClient(
            host,
            connection_id,
            advertised_host,
            reached[1],
            UpstreamConnection(partial(upstream.connect_behind, reached[1]), memory_key=host),
            partial(upstream.brokers.endpoint_of, advertised_host=advertised_host),
            config.has_sasl,
        )
        client.upstream.lost = client.upstream_lost
        return client

    async def _load_versions(self, worker: Worker) -> None:
        """Load kio's modules of what clients ask first, one after the other: their first client would wait for them,
        and all others with it.
        """
        for load in self._relay.iter_loads():
            await worker.run(load)
            await Alarm(self._machine.timers).wait(_LOADING_PERIOD_SECONDS)

    async def stop(self) -> None:
        """Stop listening, answer the requests under way for as long as the grace lasts, and close all connections, the
        front's own too. Idempotent.
        """
        framed, self._framed = self._framed, None
        try:
            if framed is not None:
                await framed.stop()
        finally:
            self.upstream.own.close()
            if self._worker is not None:
                self._worker.close()

    async def reload_files(self) -> None:
        """Use a changed certificate for connections from now on."""
        if self._framed is not None:
            await self._framed.reload_files()
