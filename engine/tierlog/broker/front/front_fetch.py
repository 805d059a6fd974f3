"""Fetch in front of a cluster: each partition's records from the tier or from the client's own broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.fetching.fetch_handler import FetchHandler, FetchLimits, GatheredAnswers
from tierlog.broker.fetching.fetch_session import (
    TOPIC_IDS,
    FetchContext,
    FetchPartition,
    FetchRequest,
    IncrementalContext,
)
from tierlog.broker.fetching.partition_reads import PartitionReads, ReadOptions
from tierlog.broker.front.front_metrics import FrontCounts
from tierlog.broker.front.source_choice import TierEnd, Wish, fault_of_lineage
from tierlog.broker.front.tier_choices import TierChoice, TierChoices
from tierlog.broker.front.upstream_questions import NamedPartition
from tierlog.broker.handling import RequestContext, Upstream, UpstreamError, may_read_all
from tierlog.broker.partition_watches import PartitionKey
from tierlog.broker.partitions import UNKNOWN, Catalog, EpochEndOffset, OffsetSnapshot, Topic
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.protocol.fetch_client import (
    FetchAnswer,
    MalformedResponseError,
    WantedPartition,
    WantedTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from tierlog.broker.protocol.fetch_response import FetchablePartition, NodeEndpoint
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timers
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import Alarm, Begun
from tierlog.serving.answer_memory import AnswerMemory

#: How long an answer that has records of the tier waits for a broker (Kafka's ``remote.fetch.max.wait.ms``).
_LATE_SECONDS: Final = 0.5
#: How long it waits before the tier is read: then the tier's share has what the broker did not fill.
_AT_ONCE_SECONDS: Final = 0.05
#: Clients up to version 5 do not know KAFKA_STORAGE_ERROR.
_STORAGE_ERROR: Final = 6
_INT32_MAX: Final = 2**31 - 1


class ChosenPartition:
    """A partition of a tier with the offsets that upstream has, for one fetch (``ReadablePartition``).

    Args:
        choice: Of the tier.

    Attributes:
        failure: Why its records are upstream's after all; None if they are not.
    """

    def __init__(self, choice: TierChoice) -> None:
        self._choice = choice
        state = choice.state
        self._offsets = OffsetSnapshot(
            state.log_start_offset, state.high_watermark, state.last_stable_offset, state.leader_epoch
        )
        self.failure: Exception | None = None

    @property
    def offsets(self) -> OffsetSnapshot:
        """Upstream's."""
        return self._offsets

    async def load(self) -> OffsetSnapshot:
        """Return upstream's offsets."""
        return self._offsets

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end of an epoch in the tier. Raises the tier's errors, and notes them."""
        try:
            return await self._choice.partition.end_offset_for_epoch(leader_epoch)
        except Exception as error:
            self.failure = error
            raise

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> tuple[OffsetSnapshot, FetchDataInfo[memoryview | FilePart]]:
        """Read batches of the tier. Raises its errors, and notes them."""
        try:
            tier_offsets, found = await self._choice.partition.read(
                fetch_offset, max_bytes=max_bytes, is_first_whole=is_first_whole, read_committed=read_committed
            )
            self._check_seam(tier_offsets)
            if not found.size_bytes and is_first_whole and max_bytes > 0:
                raise ApiError(ErrorCode.offset_not_available, "the rest of the tier has no record")
            if found.size_bytes and found.first_offset > fetch_offset:
                raise ApiError(ErrorCode.offset_not_available, f"the tier has no record at offset {fetch_offset}")
        except Exception as error:
            self.failure = error
            raise
        return self._offsets, found

    def _check_seam(self, tier_offsets: OffsetSnapshot) -> None:
        """Check that the history that was read is the chosen one, or another beginning of the same log."""
        seam, state = self._choice.seam, self._choice.state
        read = TierEnd(
            seam.topic_id, tier_offsets.high_watermark, tier_offsets.last_stable_offset, tier_offsets.leader_epoch
        )
        if read == seam:
            return
        if read.leader_epoch != state.ends.leader_epoch or fault_of_lineage(read, state):
            raise ApiError(ErrorCode.offset_not_available, "the tier's history has changed since it was compared")


class _Chosen:
    """The partitions of one fetch that the tier serves (``PartitionFinder``)."""

    def __init__(self, catalog: Catalog, partitions: Mapping[NamedPartition, ChosenPartition]) -> None:
        self._catalog = catalog
        self._partitions = partitions

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        return self._catalog.find_by_id(topic_id)

    def partition(self, name: str, partition: int) -> ChosenPartition | None:
        return self._partitions.get((name, partition))


class _FromUpstream(NamedTuple):
    """A broker's answer: by the client's keys, and what goes with it."""

    answer: FetchAnswer
    partitions: Mapping[PartitionKey, FetchablePartition]
    size_bytes: int


class FrontFetchHandler(FetchHandler):
    """The handler of Fetch in front of a cluster. Used on the event loop alone.

    Sessions end here: a broker is asked without one, on the client's own connection. A request that has records of the
    tier asks it with no wait, and for its share of the bytes, so that neither source starves the other.

    Args:
        choices: Of the tier's partitions.
        timers: Of the event loop.
        machine: Clock and randomness.
        counts: Where bytes are counted.
        limits: Limits of the bytes that clients may fetch.
        memory: Of all answers: brokers' are granted theirs by it, too.
    """

    def __init__(
        self,
        choices: TierChoices,
        *,
        timers: Timers,
        machine: Machine,
        counts: FrontCounts,
        limits: FetchLimits,
        memory: AnswerMemory,
    ) -> None:
        super().__init__(choices.catalog, node_id=UNKNOWN, timers=timers, machine=machine, limits=limits, memory=memory)
        self._choices = choices
        self._counts = counts

    def session_owner(self, context: RequestContext) -> str:
        """Return the connection: who is behind it is known to the broker alone."""
        return f"{context.principal} {context.connection_id}"

    async def gather(
        self, wanted: FetchRequest, fetch_context: FetchContext, context: RequestContext
    ) -> GatheredAnswers:
        upstream = context.upstream
        partitions = fetch_context.partitions()
        if not partitions or upstream is None:
            return GatheredAnswers(())
        fetch = _FrontFetch(wanted, context, upstream, is_session=isinstance(fetch_context, IncrementalContext))
        names = self._names(partitions)
        is_read_committed = bool(wanted.is_read_committed)
        choices = await self._choices.choose(
            {
                names[one.key]: Wish(
                    one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch, is_read_committed
                )
                for one in partitions
                if one.key in names
            },
            context,
        )
        chosen = {key: ChosenPartition(choice) for key, choice in choices.items()}
        tier = [one for one in partitions if names.get(one.key) in chosen]
        live = [one for one in partitions if names.get(one.key) not in chosen]
        try:
            answers = await self._gather(fetch, tier, live, chosen)
        except BaseException:
            fetch.release()
            raise
        told = [(one, answers[one.key]) for one in partitions if one.key in answers]
        return GatheredAnswers(told, fetch.releases, self._endpoints(fetch), fetch.throttle_time_ms)

    def _names(self, partitions: Iterable[FetchPartition]) -> dict[PartitionKey, NamedPartition]:
        """Return the partitions of topics whose names are known."""
        names: dict[PartitionKey, NamedPartition] = {}
        by_id: dict[bytes, str | None] = {}
        for one in partitions:
            named = one.key[0]
            if isinstance(named, bytes):
                if named not in by_id:
                    topic = self._choices.catalog.find_by_id(Uuid(named))
                    by_id[named] = None if topic is None else topic.name
                name = by_id[named]
            else:
                name = named
            if name is not None:
                names[one.key] = (name, one.partition)
        return names

    async def _gather(
        self,
        fetch: _FrontFetch,
        tier: Sequence[FetchPartition],
        live: Sequence[FetchPartition],
        chosen: Mapping[NamedPartition, ChosenPartition],
    ) -> dict[PartitionKey, FetchablePartition]:
        if not tier:
            return await self._ask_alone(fetch, live)
        most_bytes = min(fetch.wanted.max_bytes, self.limits.fetch_max_bytes)
        live_bytes = most_bytes * len(live) // (len(tier) + len(live))
        asking: Begun[_FromUpstream] | None = None
        if live and not fetch.upstream.is_busy:
            asking = Begun(fetch.ask(live, max_wait_ms=0, max_bytes=live_bytes))
        try:
            if asking is not None and await _is_done(asking, self.timers, _AT_ONCE_SECONDS):
                live_bytes = asking.result().size_bytes  # mostly none: the rest is the tier's
            tier_bytes = max(most_bytes - live_bytes, min(most_bytes, 1))
            reads = await self._read_tier(fetch, tier, chosen, tier_bytes, is_mixed=bool(live))
            answers, failed = self._tier_answers(reads, chosen)
            patience = _LATE_SECONDS if reads.records_size_bytes else None
            if asking is not None and await _is_done(asking, self.timers, patience):
                answers.update(self._taken(fetch, asking.result()))
        finally:
            if asking is not None:
                await asking.cancel()
        if failed and not any(told.size_bytes for told in answers.values()) and not fetch.upstream.is_busy:
            answers.update(await self._ask_alone(fetch, failed))
        return self._completed(fetch, (*tier, *live), answers)

    async def _read_tier(
        self,
        fetch: _FrontFetch,
        tier: Sequence[FetchPartition],
        chosen: Mapping[NamedPartition, ChosenPartition],
        most_bytes: int,
        *,
        is_mixed: bool,
    ) -> PartitionReads:
        wanted, context = fetch.wanted, fetch.context
        options = ReadOptions(context.api_version, bool(wanted.is_read_committed), UNKNOWN, may_read_all)
        reads = self.reads_of(tier, options, _Chosen(self._choices.catalog, chosen))
        await reads.look()
        reads.is_urgent = reads.is_urgent or is_mixed  # others do not wait for a store that is late
        deadline = self.timers.monotonic_seconds() + max(fetch.wait_seconds, _LATE_SECONDS)
        grant = await self.read(reads, most_bytes, context.client_host, deadline)
        if grant is not None:
            fetch.releases.append(grant.release)
        self._counts.tier_bytes += reads.records_size_bytes
        return reads

    def _tier_answers(
        self, reads: PartitionReads, chosen: Mapping[NamedPartition, ChosenPartition]
    ) -> tuple[dict[PartitionKey, FetchablePartition], list[FetchPartition]]:
        """Return the tier's answers, and the partitions that it could not read."""
        answers: dict[PartitionKey, FetchablePartition] = {}
        failed: list[FetchPartition] = []
        for one, told in reads.answers():
            key = (one.topic or "", one.partition)
            partition = chosen.get(key)
            has_failed = partition is None or partition.failure is not None
            if not has_failed and not told.error_code and told.diverging_epoch is None:
                answers[one.key] = told
                continue
            failed.append(one)
            # Without a failure the client's log is another one: the broker says where it parts from this one.
            if has_failed or one.last_fetched_epoch == UNKNOWN:
                self._choices.avoid(key)
                self._counts.tier_failures += 1
        return answers, failed

    async def _ask_alone(
        self, fetch: _FrontFetch, live: Sequence[FetchPartition]
    ) -> dict[PartitionKey, FetchablePartition]:
        """Ask the broker as the client does."""
        wanted = fetch.wanted
        max_wait_ms = min(max(round(fetch.wait_seconds * 1000), 0), _INT32_MAX)
        asked = await fetch.ask(live, max_wait_ms=max_wait_ms, max_bytes=wanted.max_bytes)
        return self._completed(fetch, live, self._taken(fetch, asked))

    def _taken(self, fetch: _FrontFetch, asked: _FromUpstream) -> dict[PartitionKey, FetchablePartition]:
        fetch.throttle_time_ms = max(fetch.throttle_time_ms, asked.answer.throttle_time_ms)
        fetch.node_endpoints += asked.answer.node_endpoints
        self._counts.upstream_bytes += asked.size_bytes
        return dict(asked.partitions)

    def _completed(
        self,
        fetch: _FrontFetch,
        partitions: Sequence[FetchPartition],
        answers: dict[PartitionKey, FetchablePartition],
    ) -> dict[PartitionKey, FetchablePartition]:
        """Add an error that clients retry for partitions without an answer; in a session they are left out."""
        if fetch.is_session:
            return answers
        is_old = fetch.context.api_version < _STORAGE_ERROR
        error = ErrorCode.not_leader_or_follower if is_old else ErrorCode.kafka_storage_error
        for one in partitions:
            if one.key not in answers:
                answers[one.key] = FetchablePartition(one.partition, error.value, UNKNOWN, UNKNOWN, UNKNOWN)
        return answers

    @staticmethod
    def _endpoints(fetch: _FrontFetch) -> list[NodeEndpoint]:
        """Return the addresses under which this server stands for the nodes that a broker named."""
        endpoint_of = fetch.context.endpoint_of
        return [
            NodeEndpoint(node.node_id, *endpoint_of(node.node_id, node.host, node.port), node.rack)
            for node in fetch.node_endpoints
        ]


class _FrontFetch:
    """One fetch under way."""

    def __init__(self, wanted: FetchRequest, context: RequestContext, upstream: Upstream, *, is_session: bool) -> None:
        self.wanted = wanted
        self.context = context
        self.upstream = upstream
        self.is_session = is_session
        self.wait_seconds = wanted.max_wait_seconds
        self.releases: list[Callable[[], None]] = []
        self.node_endpoints: list[NodeEndpoint] = []
        self.throttle_time_ms = 0

    def release(self) -> None:
        for release in self.releases:
            release()
        self.releases.clear()

    async def ask(self, partitions: Sequence[FetchPartition], *, max_wait_ms: int, max_bytes: int) -> _FromUpstream:
        """Ask the broker outside of any session; its memory is released with the fetch. Raises UpstreamError."""
        wanted, version = self.wanted, self.context.api_version
        body = encode_fetch_request(
            version,
            _by_topic(partitions),
            max_wait_ms=max_wait_ms,
            min_bytes=wanted.min_bytes if max_wait_ms else 0,
            max_bytes=max_bytes,
            is_read_committed=bool(wanted.is_read_committed),
            rack_id=wanted.rack_id,
        )
        reply = await self.upstream.ask(FetchHandler.api_key, version, body)
        self.releases.append(reply.release)
        (data,) = reply.buffers
        if isinstance(data, FilePart):
            raise TypeError("a broker's answer is in memory")
        try:
            answer = parse_fetch_response(version, memoryview(data))
        except MalformedResponseError as error:
            raise UpstreamError(str(error)) from error
        told: dict[PartitionKey, FetchablePartition] = {}
        if answer.error_code:
            for one in partitions:
                told[one.key] = FetchablePartition(one.partition, answer.error_code, UNKNOWN, UNKNOWN, UNKNOWN)
        for topic in answer.topics:
            named = topic.topic_id if version >= TOPIC_IDS else topic.name
            for partition in topic.partitions:
                told[named, partition.partition_index] = partition
        return _FromUpstream(answer, told, sum(partition.size_bytes for partition in told.values()))


def _by_topic(partitions: Sequence[FetchPartition]) -> list[WantedTopic]:
    """Group neighbouring partitions of one topic."""
    topics = []
    for named, group in groupby(partitions, key=lambda one: one.key[0]):
        members = list(group)
        topics.append(
            WantedTopic(
                named if isinstance(named, str) else "",
                members[0].topic_id,
                [
                    WantedPartition(
                        one.partition,
                        one.current_leader_epoch,
                        one.fetch_offset,
                        one.last_fetched_epoch,
                        one.max_bytes,
                    )
                    for one in members
                ],
            )
        )
    return topics


async def _is_done(begun: Begun[_FromUpstream], timers: Timers, seconds: float | None) -> bool:
    """Wait for a broker's answer. Whether it came in time."""
    if not begun.is_done:
        alarm = Alarm(timers)
        begun.add_done_callback(alarm.ring)
        await alarm.wait(seconds)
    return begun.is_done
