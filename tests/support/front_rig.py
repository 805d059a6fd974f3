"""The handlers of a front over a tier and a broker in memory: the broker's own answers are those of a server's handlers
over its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from tests.support.fetch_client import Ask, FetchAnswer, FetchRig
from tests.support.loops import run_on
from tests.support.memory_topics import MemoryCatalog, MemoryPartition
from tests.support.model_brokers import ModelBrokers, ModelPartition
from tierlog.broker.apis.list_offsets import ListOffsetsHandler
from tierlog.broker.fetching.fetch_handler import FetchHandler
from tierlog.broker.front.front_delete_records import FrontDeleteRecordsHandler
from tierlog.broker.front.front_fetch import FrontFetchHandler
from tierlog.broker.front.front_list_offsets import FrontListOffsetsHandler
from tierlog.broker.front.front_metrics import FrontCounts
from tierlog.broker.front.read_rights import ReadRights
from tierlog.broker.front.source_choice import Preference
from tierlog.broker.front.tier_choices import TierChoices
from tierlog.broker.front.upstream_partitions import UpstreamPartitions
from tierlog.broker.handling import Handler, RequestContext, UpstreamError
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.protocol.responses import encode_body
from tierlog.serving.answer_memory import AnswerMemory
from tierlog.serving.response_writer import Reply

READ = 1 << 3
WRITE = 1 << 4


class MemoryUpstream:
    """A client's connection to a broker in memory.

    Attributes:
        asked: (API, request) of each question.
        operations: What the client may do with a topic, as bits.
        gate: Cleared, questions wait.
        error: Raised in place of the next answers.
        held_bytes: Of answers that were not released.
        answers: Answers of APIs that have no handler here, by API.
    """

    def __init__(self, handlers: Sequence[Handler]) -> None:
        self._handlers = {handler.api_key: handler for handler in handlers}
        self.versions = {3: range(14)} | {handler.api_key: handler.versions for handler in handlers}
        self.asked: list[tuple[int, Any]] = []
        self.operations: dict[str, int] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: UpstreamError | None = None
        self.held_bytes = 0
        self.answers: dict[int, Callable[[Any, int], Any]] = {3: self._metadata}
        self._at_work = 0

    @property
    def is_busy(self) -> bool:
        return self._at_work > 0

    def asked_of(self, api_key: int) -> list[Any]:
        """The requests of an API."""
        return [request for key, request in self.asked if key == api_key]

    async def ask(self, api_key: int, api_version: int, body: bytes) -> Reply:
        request, size = entity_reader(load_request_schema(api_key, api_version))(body, 0)
        assert size == len(body)
        self.asked.append((api_key, request))
        self._at_work += 1
        try:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            if api_key in self.answers:
                data = encode_body(self.answers[api_key](request, api_version))
            else:
                context = RequestContext(api_version, "", "User:A", "h", 1, "broker.example", 9092)
                answer: Any = await self._handlers[api_key].handle(request, context)
                if not isinstance(answer, Reply):
                    body = encode_body(answer)
                    answer = Reply((body,), len(body))
                data = b"".join(answer.buffers)
                answer.release()
        finally:
            self._at_work -= 1
        self.held_bytes += len(data)

        def release() -> None:
            self.held_bytes -= len(data)

        return Reply((data,), len(data), release)

    def _metadata(self, request: Any, api_version: int) -> Any:
        entities = entities_of(3, api_version)
        return entities.response(
            brokers=(),
            controller_id=1,
            cluster_id="memory",
            error_code=ErrorCode.none,
            cluster_authorized_operations=0,
            topics=tuple(
                entities.make(
                    "MetadataResponseTopic",
                    error_code=ErrorCode.none,
                    name=topic.name,
                    topic_id=None,
                    is_internal=False,
                    partitions=(),
                    topic_authorized_operations=self.operations.get(topic.name, READ | WRITE),
                )
                for topic in request.topics
            ),
        )


class FrontRig(FetchRig):
    """A front over the topics of ``catalog``, which is the tier, in front of brokers with those of ``live``.

    Attributes:
        brokers: As the front asks them in its own name.
        upstream: The connection of the client that asks.
    """

    preference = Preference.REMOTE

    def __post_init__(self) -> None:
        super().__post_init__()
        self.live = MemoryCatalog(self.timers)
        self.broker = FetchHandler(self.live, node_id=1, timers=self.timers, machine=self.machine)
        self.brokers = ModelBrokers()
        self.counts = FrontCounts()
        self.states = UpstreamPartitions(
            self.brokers,
            timers=self.timers,
            machine=self.machine,
            refresh_seconds=1.0,
            asks_local=self.preference is Preference.LOCAL,
        )
        self.choices = TierChoices(
            self.catalog,
            self.states,
            ReadRights(self.timers, refresh_seconds=10.0),
            preference=self.preference,
            timers=self.timers,
        )
        self.handler = FrontFetchHandler(
            self.choices,
            timers=self.timers,
            machine=self.machine,
            counts=self.counts,
            limits=self.limits,
            memory=AnswerMemory(self.limits.answers_max_bytes, self.timers, self.machine),
        )
        self.list_offsets = FrontListOffsetsHandler(self.choices, timers=self.timers, counts=self.counts)
        self.delete_records = FrontDeleteRecordsHandler(self.states)
        self.upstream = self.connect()

    def connect(self) -> MemoryUpstream:
        """Another client's connection."""
        return MemoryUpstream([self.broker, ListOffsetsHandler(self.live)])

    def context(self, api_version: int, *, principal: str = "User:ANONYMOUS") -> RequestContext:
        """Return the context of a request of the client."""
        return RequestContext(
            api_version,
            "client",
            principal,
            "h",
            1,
            "front.example",
            9092,
            self.may_read,
            upstream=self.upstream,
            endpoint_of=lambda node_id, _host, _port: ("front.example", 9000 + node_id),
        )

    async def ask(self, api_version: int, request: Any, *, principal: str = "User:ANONYMOUS", host: str = "h") -> Reply:
        context = self.context(api_version, principal=principal)._replace(client_host=host)
        return await self.handler.handle(request, context)

    def add(
        self, name: str, *, batches: int, tiered: int, size_bytes: int = 100, leader_epoch: int = 3
    ) -> tuple[MemoryPartition, MemoryPartition, ModelPartition]:
        """Add a topic with one partition: batches of ten records, of which the first ones are tiered.

        Returns:
            The partition in the tier, at the broker, and in the model of brokers.
        """
        (tier,), (live,) = self.catalog.add(name), self.live.add(name)
        for number in range(batches):
            batch = live.append(size_bytes, records=10, leader_epoch=leader_epoch)
            if number < tiered:
                tier.batches.append(batch)
        model = self.brokers.add(
            name,
            leader_epoch=leader_epoch,
            high_watermark=live.end_offset,
            last_stable_offset=live.end_offset,
            epochs=[(leader_epoch, 0)],
        )
        self.brokers.ids[name] = tier.topic_id_partition.topic_id
        return tier, live, model

    async def fetch_of(self, name: str, offset: int, version: int = 12, **options: Any) -> FetchAnswer:
        """Fetch one partition."""
        return await self.fetch(version, [Ask(name, 0, offset)], **options)


class LocalFrontRig(FrontRig):
    """A front whose clients read from the brokers' disks what these still have."""

    preference = Preference.LOCAL


def on_front(test: Callable[[FrontRig], Coroutine[Any, Any, None]], kind: type[FrontRig] = FrontRig) -> None:
    """Run a test on a loop; nothing may be held in the end."""

    async def main() -> None:
        rig = kind()
        await asyncio.wait_for(test(rig), 20)
        await rig.handler.close()
        await rig.choices.close()
        await rig.states.close()
        assert rig.handler.memory.held_bytes == 0
        assert rig.upstream.held_bytes == 0
        assert rig.timers.waiting_count == 0

    run_on("asyncio", main)
