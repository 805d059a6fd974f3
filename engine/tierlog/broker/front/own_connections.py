"""The front's own connections to brokers, and what it knows of the cluster by them. No client's request goes here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from kio.static.protocol import RequestPayload

from tierlog.broker.front.front_config import FrontConfig
from tierlog.broker.front.sasl_login import log_in
from tierlog.broker.front.upstream_connection import UpstreamConnection
from tierlog.broker.front.virtual_brokers import Broker, VirtualBrokers
from tierlog.broker.handling import UpstreamError
from tierlog.broker.protocol.entities import LONG_ELEMENTS, request_entities_of
from tierlog.broker.protocol.fetch_client import MalformedResponseError
from tierlog.broker.protocol.peer_answers import decode_answer, encode_request_body
from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine.clock import Timers
from tierlog.runtime.waiting.loops import Alarm, SharedCall, Worker
from tierlog.serving.outgoing import OutgoingConnection

_log = logging.getLogger(__name__)

Address = tuple[str, int]
Connect = Callable[[Address], Coroutine[Any, Any, OutgoingConnection]]

_METADATA: Final = 3
#: Those that name brokers and list no topic where none is asked for.
_METADATA_VERSIONS: Final = range(1, 14)
#: Between two listings of the brokers, and between two tries while none answers.
_LISTING_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 10.0
#: Of a question that any broker answers: how long one of them may take before the next one is asked.
_ANY_SECONDS: Final = 1.0
#: A session is left before its end: by then the broker would close it at the next request.
_SESSION_SHARE: Final = 0.8
#: An answer of more bytes is decoded by a thread.
_LONG_BYTES: Final = 16 * LONG_ELEMENTS
#: The turn in which memory for the front's own answers is granted.
_OWN: Final = "front"


class OwnConnections:
    """A connection to each broker under the front's own principal, opened by its first question, and the listing of the
    brokers. On one event loop.

    Args:
        config: How the cluster is reached.
        brokers: Where listings go.
        connect: Makes a connection to an address.
        worker: Threads, for long answers and keys of passwords.
        timers: Of the loop.
    """

    def __init__(
        self, config: FrontConfig, brokers: VirtualBrokers, connect: Connect, *, worker: Worker, timers: Timers
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._connect = connect
        self._worker = worker
        self._timers = timers
        self._connections: dict[Address, _OwnConnection] = {}
        self._failed: dict[Address, None] = {}
        self._is_closed = False
        self._due = Alarm(timers)
        self._listing = SharedCall(self._list, timers)
        self.listed_seconds: float | None = None
        self.failure: str = "no broker has answered yet"

    def close(self) -> None:
        """Close all connections; idempotent. Questions under way fail."""
        self._is_closed = True
        connections, self._connections = self._connections, {}
        for each in connections.values():
            each.close()

    async def ask(
        self,
        node_id: int | None,
        api_key: int,
        versions: range,
        make: Callable[[int], RequestPayload],
        *,
        seconds: float = _ASK_SECONDS,
    ) -> Any:
        """Ask a broker, behind the questions to it that are under way.

        Args:
            node_id: Of the broker; None for any one that answers.
            api_key: Of the request.
            versions: Of it; the newest that the broker has is taken.
            make: Makes the request, an entity of kio's of that version.
            seconds: How long it may take, with all brokers that are tried.

        Returns:
            The entity of the answer, of that version.

        Raises:
            UpstreamError: the broker is not known, has none of the versions, or does not answer in time.
        """
        until = self._timers.monotonic_seconds() + seconds
        failure = UpstreamError(f"broker {node_id} is not known")
        addresses = self._addresses(node_id)
        for address in addresses:
            left = until - self._timers.monotonic_seconds()
            if left <= 0:
                break
            if address != addresses[-1]:
                left = min(left, _ANY_SECONDS)
            try:
                answer = await self._ask_at(address, api_key, versions, make, left)
            except UpstreamError as error:
                failure = error
                self._failed[address] = None
            else:
                self._failed.pop(address, None)
                return answer
        if node_id is not None:
            self.list_soon()
        raise failure

    def _addresses(self, node_id: int | None) -> list[Address]:
        if node_id is not None:
            found = self._brokers.find(node_id)
            return [] if found is None else [(found.host, found.port)]
        known = [(each.host, each.port) for each in self._brokers.brokers()]
        addresses = dict.fromkeys((*known, *self._config.bootstrap))
        self._failed = {each: None for each in self._failed if each in addresses}
        # One that stalls is not asked before the others again; one that is connected is asked first.
        return sorted(addresses, key=lambda each: (each in self._failed, each not in self._connections))

    async def _ask_at(
        self, address: Address, api_key: int, versions: range, make: Callable[[int], RequestPayload], seconds: float
    ) -> Any:
        if self._is_closed:
            raise UpstreamError("the server stops")
        own = self._connections.get(address)
        if own is None or not own.is_usable:
            if own is not None:
                own.close()
            own = self._connections[address] = _OwnConnection(
                partial(self._connect, address), self._config, self._worker, self._timers
            )
        try:
            connection = await own.ready(seconds)
            version = _newest(connection, api_key, versions, address)
            body = encode_request_body(make(version))
            reply = await connection.ask(api_key, version, body, seconds=seconds)
        except UpstreamError:
            if own.has_failed and self._connections.get(address) is own:
                del self._connections[address]
            raise
        try:
            (data,) = reply.buffers
            decode = partial(decode_answer, api_key, version, memoryview(data))  # type: ignore[arg-type]  # no file
            return decode() if reply.size_bytes < _LONG_BYTES else await self._worker.run(decode)
        except MalformedResponseError as error:
            own.close()
            raise UpstreamError(str(error)) from error
        finally:
            reply.release()

    # ---- the brokers

    async def list_brokers(self, *, seconds: float = _ASK_SECONDS) -> Sequence[Broker]:
        """Ask the cluster for its brokers, and take them. Raises UpstreamError: none answers."""
        try:
            return await self._listing.result(seconds=seconds)
        except StoreUnavailableError as error:
            raise UpstreamError(str(error)) from error

    async def _list(self) -> Sequence[Broker]:
        try:
            answer = await self.ask(None, _METADATA, _METADATA_VERSIONS, _no_topics)
        except UpstreamError as error:
            self.failure = str(error)
            raise
        found = [Broker(each.node_id, each.host, each.port) for each in answer.brokers]
        if not found:
            self.failure = "the cluster has no broker that is alive"
            raise UpstreamError(self.failure)
        self.failure = ""
        self._brokers.replace(found)
        self.listed_seconds = self._timers.monotonic_seconds()
        known = {(each.host, each.port) for each in self._brokers.brokers()}
        for address in self._connections.keys() - known:  # of the bootstrap, or of a broker that has moved
            if not self._connections[address].is_busy:
                self._connections.pop(address).close()
        return found

    def list_soon(self) -> None:
        """Have the brokers listed before the next time is due: one of them was not reached."""
        self._due.ring()

    async def first_brokers(self, wait: Callable[[float], Coroutine[Any, Any, object]]) -> Sequence[Broker]:
        """Wait until the cluster answers, however long that takes. ``wait`` waits between two tries."""
        told = ""
        while True:
            try:
                return await self.list_brokers()
            except UpstreamError as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("event=upstream_away: %s; the server waits for it", told)
                await wait(_RETRY_SECONDS)

    async def keep_listing(self) -> None:
        """List the brokers again and again, as long as the server runs."""
        while True:
            seconds = _RETRY_SECONDS if self.failure else _LISTING_SECONDS
            if await self._due.wait(seconds):
                await Alarm(self._timers).wait(_RETRY_SECONDS)  # many may have rung: one listing is for all
            was_away = bool(self.failure)
            try:
                await self.list_brokers()
            except UpstreamError as error:
                if not was_away:
                    _log.warning("event=upstream_away: %s", error)
            else:
                if was_away:
                    _log.info("event=upstream_back")


def _no_topics(version: int) -> RequestPayload:
    return request_entities_of(_METADATA, version).request(
        topics=(),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _newest(connection: UpstreamConnection, api_key: int, versions: range, address: Address) -> int:
    has = connection.versions.get(api_key, range(0))
    shared = range(max(versions.start, has.start), min(versions.stop, has.stop))
    if not shared:
        raise UpstreamError(f"{address[0]}:{address[1]} has no version of API {api_key} that is known here")
    return shared[-1]


class _OwnConnection:
    """A connection that is made ready by its first question: versions, and the login."""

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, OutgoingConnection]],
        config: FrontConfig,
        worker: Worker,
        timers: Timers,
    ) -> None:
        self._connection = UpstreamConnection(connect, memory_key=_OWN)
        self._config = config
        self._worker = worker
        self._timers = timers
        self._until_seconds: float | None = None
        self._preparing = SharedCall(self._prepare, timers)
        self._is_ready = False
        self.has_failed = False

    @property
    def is_busy(self) -> bool:
        return self._connection.is_busy or not self._is_ready

    @property
    def is_usable(self) -> bool:
        """Whether the next question may go here: not behind the end of the session."""
        is_over = self._until_seconds is not None and self._timers.monotonic_seconds() >= self._until_seconds
        return not (self._connection.is_closed or self.has_failed or (is_over and not self._connection.is_busy))

    async def ready(self, seconds: float) -> UpstreamConnection:
        if not self._is_ready:
            try:
                await self._preparing.result(seconds=seconds)
            except StoreUnavailableError as error:
                raise UpstreamError(str(error)) from error
        return self._connection

    async def _prepare(self) -> None:
        try:
            await self._connection.learn_versions(seconds=_ASK_SECONDS)
            if self._config.has_sasl:
                lifetime_seconds = await log_in(self._connection, self._config.security, self._worker)
                if lifetime_seconds:
                    self._until_seconds = self._timers.monotonic_seconds() + lifetime_seconds * _SESSION_SHARE
        except BaseException:
            self.has_failed = True
            self.close()
            raise
        self._is_ready = True

    def close(self) -> None:
        self._connection.close()
