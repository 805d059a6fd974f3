"""Fetch, versions 4 to 18, within the memory of all answers: each takes its share before it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.fetching.fetch_session import (
    TOPIC_IDS,
    ContextAnswer,
    FetchContext,
    FetchPartition,
    FetchRequest,
    FetchSessionCache,
    PartitionAnswer,
    SessionLimits,
    has_news,
    read_fetch_request,
)
from tierlog.broker.fetching.partition_reads import LateReads, PartitionReads, ReadOptions
from tierlog.broker.handling import RequestContext
from tierlog.broker.partition_watches import PartitionWatch
from tierlog.broker.partitions import UNKNOWN, Catalog, PartitionFinder
from tierlog.broker.protocol.fetch_response import (
    FetchablePartition,
    FetchableTopic,
    NodeEndpoint,
    encode_fetch_response,
)
from tierlog.config_keys import Int32, key
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timers
from tierlog.serving.answer_memory import AnswerMemory, Grant
from tierlog.serving.response_writer import Reply

#: Bytes that an answer with records takes at least: one batch of the size that brokers allow (``message.max.bytes``).
_LEAST_BYTES: Final = 1 << 20
#: Waits are no longer than this, whatever a client asks for.
_WAIT_SECONDS_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of the bytes that clients may fetch.

    Args:
        fetch_max_bytes: A key of a broker's file.
        answers_max_bytes: Memory of all answers that are read, or on their way to clients.
        sessions: Of the fetch sessions.
    """

    fetch_max_bytes: Int32 = key(
        "The most records of one answer but for a first batch that is larger.", default=55 * 1024 * 1024, minimum=1024
    )
    answers_max_bytes: int = 256 * 1024 * 1024
    sessions: SessionLimits = field(default_factory=SessionLimits)


class GatheredAnswers(NamedTuple):
    """The answers for the partitions of a request, and what goes with them.

    Args:
        answers: In order; of a session those that there are.
        releases: Each releases memory of the answers' records; called once.
        node_endpoints: Of the leaders that answers name.
        throttle_time_ms: How long the client is to pause.
    """

    answers: Sequence[PartitionAnswer]
    releases: Sequence[Callable[[], None]] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
    throttle_time_ms: int = 0

    def release(self) -> None:
        """Release the memory of all records. Called once."""
        for release in self.releases:
            release()


class FetchHandler:
    """The handler of Fetch. Used on the event loop alone.

    An answer goes out as soon as it has ``min_bytes`` of records, or records that a limit cut, or an error; else it
    waits until one of its partitions changes, and reads nothing until then. Brokers that ask, to replicate, are
    refused: the served log is no leader's.

    Args:
        catalog: The served topics.
        node_id: Of this server in the cluster that clients see.
        timers: Of the event loop.
        machine: Clock and randomness.
        limits: Limits of the bytes that clients may fetch.
        memory: Of all answers; by default of its own, by the limits.

    Another source of records overrides ``gather``; requests, sessions, memory and encoding stay.
    """

    api_key: ClassVar[int] = 1
    versions: ClassVar[range] = range(4, 19)

    def __init__(
        self,
        catalog: Catalog,
        *,
        node_id: int,
        timers: Timers,
        machine: Machine,
        limits: FetchLimits | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self._catalog = catalog
        self._node_id = node_id
        self.timers = timers
        self.limits = limits or FetchLimits()
        self.memory = memory or AnswerMemory(self.limits.answers_max_bytes, timers, machine)
        self.sessions = FetchSessionCache(self.limits.sessions, machine)
        self._late = LateReads(timers)

    async def close(self) -> None:
        """Cancel the reads that no fetch waits for."""
        await self._late.close()

    async def handle(self, request: Any, context: RequestContext) -> Reply:
        """Answer a request: its records as views, which count as held until ``release`` is called."""
        api_version = context.api_version
        wanted = read_fetch_request(request, api_version)
        if wanted.replica_id >= 0:
            return _refusal(wanted, api_version, ErrorCode.cluster_authorization_failed)
        if wanted.is_read_committed is None:
            return _refusal(wanted, api_version, ErrorCode.unknown_server_error)  # Kafka knows no better one
        fetch_context = self.sessions.context_of(wanted, self.session_owner(context))
        gathered = await self.gather(wanted, fetch_context, context)
        try:
            return self._encoded(fetch_context.answer(gathered.answers), gathered, context)
        except BaseException:
            gathered.release()
            raise

    def session_owner(self, context: RequestContext) -> str:
        """Return the owner of sessions that a client makes: to all others they do not exist."""
        return context.principal

    async def gather(
        self, wanted: FetchRequest, fetch_context: FetchContext, context: RequestContext
    ) -> GatheredAnswers:
        """Wait for the answers for all partitions, until they are worth sending: the seam to another source of
        records than a catalog.
        """
        answers, grant = await self._wait_for_answers(wanted, fetch_context, context)
        endpoints: tuple[NodeEndpoint, ...] = ()
        if any(told.current_leader is not None for _, told in answers):
            endpoints = (NodeEndpoint(self._node_id, context.advertised_host, context.advertised_port),)
        return GatheredAnswers(answers, () if grant is None else (grant.release,), endpoints)

    async def _wait_for_answers(
        self, wanted: FetchRequest, fetch_context: FetchContext, context: RequestContext
    ) -> tuple[list[PartitionAnswer], Grant | None]:
        is_read_committed = bool(wanted.is_read_committed)
        options = ReadOptions(context.api_version, is_read_committed, self._node_id, context.may_read)
        now = self.timers.monotonic_seconds()
        deadline = now + min(wanted.max_wait_seconds, _WAIT_SECONDS_MAX)
        watch: PartitionWatch | None = None  # unless a session owns it
        try:
            while True:
                grant: Grant | None = None
                quiet = fetch_context.quiet_watch(is_read_committed)
                if quiet is not None:
                    if not await quiet.wait(deadline - self.timers.monotonic_seconds()):
                        return [], None
                    continue
                version = self._catalog.version
                if watch is not None:
                    watch.reset()
                reads = self.reads_of(fetch_context.partitions(), options, self._catalog)
                await reads.look()
                most_bytes = min(wanted.max_bytes, self.limits.fetch_max_bytes)
                grant = await self.read(reads, most_bytes, context.client_host, deadline)
                answers = reads.answers()
                try:
                    if _is_worth_sending(reads, wanted, self.limits):
                        return answers, grant
                    if watch is None:
                        watch = self._catalog.watch(each.key for each in fetch_context.partitions())
                        if self._catalog.version != version:  # the change may be of a partition that is watched
                            watch.ring()
                    is_quiet = not reads.needs_reading and not watch.has_rung and not has_news(answers)
                    if is_quiet and fetch_context.note_quiet(watch, is_read_committed):
                        watch = None
                    elif not await watch.wait(deadline - self.timers.monotonic_seconds()):
                        return answers, grant
                except BaseException:
                    if grant is not None:
                        grant.release()
                    raise
                if grant is not None:
                    grant.release()
        finally:
            if watch is not None:
                watch.close()

    def reads_of(
        self, partitions: Sequence[FetchPartition], options: ReadOptions, catalog: PartitionFinder
    ) -> PartitionReads:
        """Return one pass over partitions of a catalog."""
        return PartitionReads(partitions, options, catalog, timers=self.timers, late=self._late)

    async def read(self, reads: PartitionReads, most_bytes: int, client_host: str, deadline: float) -> Grant | None:
        """Read partitions with records, within memory that is taken for them; none if there is no memory in time.

        Args:
            reads: After ``look``.
            most_bytes: Of all records but for a first batch that is larger.
            client_host: Whose turn it is to be.
            deadline: For the memory, by the loop's clock.
        """
        if not reads.needs_reading:
            return None
        least_bytes = _LEAST_BYTES
        while True:
            seconds = deadline - self.timers.monotonic_seconds()
            grant = await self.memory.take(
                client_host, least_bytes=least_bytes, wanted_bytes=max(most_bytes, 1), seconds=seconds
            )
            if grant is None:
                return None
            try:
                await reads.read(min(most_bytes, grant.size_bytes))
            except BaseException:
                grant.release()
                raise
            if reads.records_size_bytes <= grant.size_bytes:
                grant.shrink(reads.memory_size_bytes)
                return grant
            # The first batch is larger than the memory taken: none is held while the rest is waited for.
            least_bytes = reads.records_size_bytes
            reads.forget()
            grant.release()

    def _encoded(self, answer: ContextAnswer, gathered: GatheredAnswers, context: RequestContext) -> Reply:
        is_leader_told = any(told.current_leader is not None for _, told in answer.partitions)
        buffers, size_bytes = encode_fetch_response(
            context.api_version,
            session_id=answer.session_id,
            error_code=answer.error_code,
            topics=_by_topic(answer.partitions),
            node_endpoints=gathered.node_endpoints if is_leader_told else (),
            throttle_time_ms=gathered.throttle_time_ms,
        )
        return Reply(buffers, size_bytes, gathered.release)


def _is_worth_sending(reads: PartitionReads, wanted: FetchRequest, limits: FetchLimits) -> bool:
    """Whether waiting for more would be of no use, or is not wanted."""
    least_bytes = min(wanted.min_bytes, wanted.max_bytes, limits.fetch_max_bytes)
    return (
        not reads.has_known_partitions or reads.is_urgent or reads.has_more or reads.records_size_bytes >= least_bytes
    )


def _by_topic(answers: Sequence[PartitionAnswer]) -> list[FetchableTopic]:
    """Group neighbouring partitions of one topic, as Kafka does."""
    topics = []
    for _, group in groupby(answers, key=lambda answer: answer[0].key[0]):
        members = list(group)
        first = members[0][0]
        topics.append(FetchableTopic(first.topic or "", first.topic_id, [told for _, told in members]))
    return topics


def _refusal(wanted: FetchRequest, api_version: int, error: ErrorCode) -> Reply:
    """Return an error of the whole request, which old versions have in each partition, too."""
    code = error.value
    answers = [
        (one, FetchablePartition(one.partition, code, UNKNOWN, UNKNOWN, UNKNOWN)) for one in wanted.partitions.values()
    ]
    buffers, size_bytes = encode_fetch_response(
        api_version,
        session_id=wanted.session_id,
        error_code=code,
        topics=_by_topic(answers) if api_version < TOPIC_IDS else (),
    )
    return Reply(buffers, size_bytes)
