"""A client of the Fetch handler: requests of any version as kio's bytes, answers read by kio."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kio.index import load_payload_module, load_response_schema
from kio.serial import entity_reader
from kio.static.constants import EntityType

from tests.support.loops import run_on
from tests.support.manual_timers import ManualTimers
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.fetching.fetch_handler import FetchHandler, FetchLimits
from tierlog.broker.handling import RequestContext, may_read_all
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.serving.response_writer import Reply

FETCH = 1


@dataclass(frozen=True)
class Ask:
    """What a client wants of one partition."""

    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int = 1 << 20
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True)
class Told:
    """What a client was told of one partition."""

    topic: str
    partition: int
    error: str
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes
    aborted: Sequence[tuple[int, int]] | None
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    preferred_read_replica: int = -1


@dataclass(frozen=True)
class FetchAnswer:
    """An answer as a client reads it."""

    error: str
    session_id: int
    partitions: Sequence[Told]
    node_endpoints: Sequence[tuple[int, str, int]] = ()
    throttle_time_ms: int = 0

    @property
    def records(self) -> dict[tuple[str, int], bytes]:
        """Records by partition, of those that have some."""
        return {(told.topic, told.partition): told.records for told in self.partitions if told.records}

    @property
    def errors(self) -> dict[tuple[str, int], str]:
        """Errors by partition, of those that have one."""
        return {(told.topic, told.partition): told.error for told in self.partitions if told.error != "none"}


@cache
def _fields(api_version: int, name: str) -> frozenset[str]:
    module = load_payload_module(FETCH, api_version, EntityType.request)
    return frozenset(one.name for one in dataclasses.fields(getattr(module, name)))


def _make(api_version: int, name: str, **values: object) -> Any:
    module = load_payload_module(FETCH, api_version, EntityType.request)
    known = _fields(api_version, name)
    return getattr(module, name)(**{key: value for key, value in values.items() if key in known})


@dataclass
class FetchRig:
    """A handler over topics in memory, on a clock that a test moves.

    Attributes:
        unreleased: Answers that were given and not released.
        may_read: Which topics its clients may read.
    """

    limits: FetchLimits = field(default_factory=FetchLimits)
    may_read: Callable[[str], bool] = may_read_all

    def __post_init__(self) -> None:
        self.timers = ManualTimers()
        self.clock = ManualClock()
        self.catalog = MemoryCatalog(self.timers)
        self.machine = Machine(clock=self.clock, rng=SeededRng(5))
        self.handler = FetchHandler(
            self.catalog, node_id=3, timers=self.timers, machine=self.machine, limits=self.limits
        )
        self.ids: dict[uuid.UUID, str] = {}

    def request(
        self,
        api_version: int,
        asks: Sequence[Ask],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten: Sequence[tuple[str, int]] = (),
        replica_id: int = -1,
        topic_ids: Mapping[str, uuid.UUID] | None = None,
    ) -> Any:
        """A request as a server hands it to the handler."""

        def id_of(name: str) -> uuid.UUID | None:
            if topic_ids is not None and name in topic_ids:
                return topic_ids[name]
            topic = self.catalog.find(name)
            found = (
                uuid.UUID(bytes=topic.topic_id.raw) if topic else uuid.UUID(bytes=name.encode()[:16].ljust(16, b"?"))
            )
            self.ids[found] = name
            return found

        topics: list[tuple[str, list[Any]]] = []
        for ask in asks:
            if not topics or topics[-1][0] != ask.topic:
                topics.append((ask.topic, []))
            values = dict(dataclasses.asdict(ask), partition_max_bytes=ask.max_bytes)
            del values["topic"], values["max_bytes"]
            topics[-1][1].append(_make(api_version, "FetchPartition", **values))
        values = {
            "replica_id": replica_id,
            "max_wait": datetime.timedelta(milliseconds=max_wait_ms),
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation_level,
            "session_id": session_id,
            "session_epoch": session_epoch,
            "topics": tuple(
                _make(api_version, "FetchTopic", topic=name, topic_id=id_of(name), partitions=tuple(partitions))
                for name, partitions in topics
            ),
        }
        if api_version >= 7:
            values["forgotten_topics_data"] = tuple(
                _make(api_version, "ForgottenTopic", topic=name, topic_id=id_of(name), partitions=(partition,))
                for name, partition in forgotten
            )
        if api_version >= 15:
            values["replica_state"] = _make(api_version, "ReplicaState", replica_id=replica_id)
        return _make(api_version, "FetchRequest", **values)

    async def ask(self, api_version: int, request: Any, *, principal: str = "User:ANONYMOUS", host: str = "h") -> Reply:
        """Hand a request to the handler; the answer is the caller's to release."""
        context = RequestContext(api_version, "client", principal, host, 1, "replica.example", 9092, self.may_read)
        return await self.handler.handle(request, context)

    async def fetch(
        self, api_version: int, asks: Sequence[Ask] = (), principal: str = "User:ANONYMOUS", **options: Any
    ) -> FetchAnswer:
        """Fetch (``options`` as of ``request``), read the answer and release it."""
        request = self.request(api_version, asks, **options)
        body = await self.ask(api_version, request, principal=principal)
        try:
            return self.read(api_version, body)
        finally:
            body.release()

    def read(self, api_version: int, body: Reply) -> FetchAnswer:
        """An answer as a client reads it."""
        raw = b"".join(body.buffers)
        assert len(raw) == body.size_bytes
        answer: Any
        answer, size = entity_reader(load_response_schema(FETCH, api_version))(raw, 0)
        assert size == len(raw)
        partitions = []
        for topic in answer.responses:
            name = topic.topic if api_version < 13 else self.ids.get(topic.topic_id, str(topic.topic_id))
            partitions += [_told(name, one) for one in topic.partitions]
        return FetchAnswer(
            getattr(answer, "error_code", None).name if api_version >= 7 else "none",
            getattr(answer, "session_id", 0),
            partitions,
            [(node.node_id, node.host, node.port) for node in getattr(answer, "node_endpoints", ())],
            round(answer.throttle_time.total_seconds() * 1000),
        )


def _told(topic: str, one: Any) -> Told:
    epoch, leader = getattr(one, "diverging_epoch", None), getattr(one, "current_leader", None)
    return Told(
        topic,
        one.partition_index,
        one.error_code.name,
        one.high_watermark,
        one.last_stable_offset,
        getattr(one, "log_start_offset", -1),
        bytes(one.records or b""),
        None
        if one.aborted_transactions is None
        else [(aborted.producer_id, aborted.first_offset) for aborted in one.aborted_transactions],
        None if epoch is None or epoch.epoch < 0 else (epoch.epoch, epoch.end_offset),
        None if leader is None or leader.leader_id < 0 else (leader.leader_id, leader.leader_epoch),
        getattr(one, "preferred_read_replica", -1),
    )


def on_loop(test: Callable[[FetchRig], Coroutine[Any, Any, None]], limits: FetchLimits | None = None) -> None:
    """Run a test on a loop; nothing may be held in the end."""

    async def main() -> None:
        rig = FetchRig(limits or FetchLimits())
        await asyncio.wait_for(test(rig), 20)
        await rig.handler.close()
        assert rig.handler.memory.held_bytes == 0
        assert rig.timers.waiting_count == 0

    run_on("asyncio", main)
