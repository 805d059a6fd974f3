"""The partitions of a request that the tier serves: what is known of tier, broker and client, put together."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.broker.apis.topic_answers import CONCURRENCY, load_quietly
from tierlog.broker.front.read_rights import ReadRights
from tierlog.broker.front.source_choice import (
    Preference,
    Source,
    TierEnd,
    UpstreamState,
    Wish,
    choose_source,
    fault_of_lineage,
    is_behind_tier,
)
from tierlog.broker.front.upstream_partitions import UpstreamPartitions
from tierlog.broker.front.upstream_questions import AskedBrokers, NamedPartition, ask_leaders
from tierlog.broker.handling import RequestContext, UpstreamError
from tierlog.broker.partitions import Catalog, Partition
from tierlog.remote.api import ZERO_UUID, Uuid
from tierlog.runtime.machine.clock import Timers
from tierlog.runtime.waiting.loops import Alarm, LoopCalls
from tierlog.runtime.waiting.side_by_side import run_each

_log = logging.getLogger(__name__)

#: How long one request waits for the ends of tiers, and for the states of partitions.
_LOAD_SECONDS: Final = 0.5
_STATE_SECONDS: Final = 1.0
#: A question that began so recently answers a client that knows more than the state, too.
_SOON_SECONDS: Final = 0.1
#: How long a partition is upstream's after its tier could not be read: the first time, and at most, doubled with each
#: that comes soon.
_AVOIDED_SECONDS: Final = 5.0
_AVOIDED_SECONDS_MAX: Final = 60.0
#: Partitions that are remembered, a few hundred bytes each.
_PARTITIONS_MAX: Final = 200_000
#: Between two comparisons of topic ids, and how many topics one question has.
_COMPARED_SECONDS: Final = 30.0
_COMPARED_TOPICS: Final = 500
_COMPARED_WAIT_SECONDS: Final = 10.0
#: Loads that no request waits for, at once.
_LOADS_MAX: Final = 64


@dataclass(slots=True)
class _Tier:
    """What is known of a partition's tier.

    Attributes:
        partition: Of the catalog.
        seam: As last seen; it stays while a newer one is looked up.
        seam_since_seconds: Since when it is known.
        avoided_until_seconds: Until when the partition is upstream's.
        avoided_seconds: How long that was.
        unawaited_until_seconds: Until when no request waits for its end, which did not come in time.
        fault: The seam that is of no one lineage with upstream's log; None if that is not so, or not known.
        is_loading: Whether a load is under way that no request waits for.
    """

    partition: Partition
    seam: TierEnd | None = None
    seam_since_seconds: float = 0.0
    avoided_until_seconds: float = 0.0
    avoided_seconds: float = 0.0
    unawaited_until_seconds: float = 0.0
    fault: TierEnd | None = None
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class TierChoice:
    """A partition that the tier serves, for one request.

    Args:
        partition: Of the catalog.
        seam: The end of its history that was found to be upstream's.
        state: Of upstream.
    """

    partition: Partition
    seam: TierEnd
    state: UpstreamState


class TierChoices:
    """The choices for requests. Used on the event loop alone.

    Args:
        catalog: The bucket's topics.
        states: Of upstream's partitions.
        rights: Of clients.
        preference: Where both have the records.
        timers: Of the event loop.
    """

    def __init__(
        self,
        catalog: Catalog,
        states: UpstreamPartitions,
        rights: ReadRights,
        *,
        preference: Preference,
        timers: Timers,
    ) -> None:
        self.catalog = catalog
        self.states = states
        self._rights = rights
        self._preference = preference
        self._timers = timers
        self._tiers: OrderedDict[NamedPartition, _Tier] = OrderedDict()
        self._calls = LoopCalls()
        self._loads_count = 0
        #: Partitions whose tier is of no one lineage with upstream's log.
        self.faults: set[NamedPartition] = set()
        #: Topics of the bucket whose names are upstream's, and their ids there, which are other ones.
        self.other_topics: dict[str, Uuid] = {}

    async def choose(
        self, wishes: Mapping[NamedPartition, Wish], context: RequestContext
    ) -> dict[NamedPartition, TierChoice]:
        """Return the partitions that the tier serves. The others are upstream's.

        Raises:
            UpstreamError: the client's connection to its broker has ended.
        """
        seams = await self._seams(wishes)
        if not seams:
            return {}
        readable = await self._rights.readable(context, {topic for topic, _ in seams})
        seams = {key: seam for key, seam in seams.items() if key[0] in readable}
        chosen: dict[NamedPartition, TierChoice] = {}
        left = self._judge(wishes, seams, chosen)
        if left:
            await self._refresh(left)
            self._judge(wishes, left, chosen)
        return chosen

    def avoid(self, key: NamedPartition) -> None:
        """Leave a partition to upstream for a while: its tier could not be read."""
        tier = self._tiers.get(key)
        if tier is not None:
            now = self._timers.monotonic_seconds()
            is_again = now < tier.avoided_until_seconds + tier.avoided_seconds
            tier.avoided_seconds = min(2 * tier.avoided_seconds, _AVOIDED_SECONDS_MAX) if is_again else _AVOIDED_SECONDS
            tier.avoided_until_seconds = now + tier.avoided_seconds

    async def keep_comparing(self, brokers: AskedBrokers) -> None:
        """Compare the ids of the bucket's topics with upstream's, again and again: a client that names topics by their
        ids never asks for one of the bucket that is of another cluster.
        """
        while True:
            ids = {topic.name: topic.topic_id for topic in self.catalog.topics() if topic.topic_id != ZERO_UUID}
            names = sorted(ids)
            found: dict[str, Uuid] = {}
            try:
                for at in range(0, len(names), _COMPARED_TOPICS):
                    some = names[at : at + _COMPARED_TOPICS]
                    leaders = await ask_leaders(brokers, some, errors={}, seconds=_COMPARED_WAIT_SECONDS)
                    found |= {topic: leader.topic_id for (topic, _), leader in leaders.items()}
            except UpstreamError as error:
                _log.debug("the bucket's topics are compared later: %s", error)  # that it is away is told elsewhere
            else:
                self._note_topics({name: one for name, one in found.items() if one != ids[name]}, ids)
            await Alarm(self._timers).wait(_COMPARED_SECONDS)

    def _note_topics(self, others: dict[str, Uuid], ids: Mapping[str, Uuid]) -> None:
        for name in others.keys() - self.other_topics.keys():
            line = "event=another_topic topic=%s: the bucket's topic id is %s, the brokers' %s; the brokers serve it"
            _log.warning(line, name, ids[name], others[name])
        self.other_topics = others

    async def close(self) -> None:
        """End the loads that no request waits for."""
        await self._calls.cancel()

    async def _seams(self, wishes: Mapping[NamedPartition, Wish]) -> dict[NamedPartition, TierEnd]:
        """Return the ends of the tiers that have a wanted record."""
        now = self._timers.monotonic_seconds()
        found: dict[NamedPartition, TierEnd] = {}
        unknown: dict[NamedPartition, _Tier] = {}
        for key, wish in wishes.items():
            tier = self._tier(key)
            if tier is None or now < tier.avoided_until_seconds:
                continue
            is_current = self._look(tier, now)
            if is_current and tier.seam is not None:
                if not is_behind_tier(wish, tier.seam):
                    found[key] = tier.seam
            elif (tier.seam is not None and is_behind_tier(wish, tier.seam)) or now < tier.unawaited_until_seconds:
                self._load_later(
                    key, tier
                )  # a client at the live end does not wait for a bucket, nor each for its stall
            else:
                unknown[key] = tier
        if unknown:
            calls = [load_quietly(*key, tier.partition) for key, tier in unknown.items()]
            await run_each(calls, count=len(calls), limit=CONCURRENCY, seconds=_LOAD_SECONDS, timers=self._timers)
            now = self._timers.monotonic_seconds()
            for key, tier in unknown.items():
                if not self._look(tier, now):
                    tier.unawaited_until_seconds = now + _AVOIDED_SECONDS
                    self._load_later(key, tier)
                elif tier.seam is not None and not is_behind_tier(wishes[key], tier.seam):
                    found[key] = tier.seam
        return found

    def _tier(self, key: NamedPartition) -> _Tier | None:
        partition = self.catalog.partition(*key)
        if partition is None:
            self._drop(key)
            return None
        tier = self._tiers.get(key)
        if tier is None or tier.partition is not partition:
            self._drop(key)
            tier = self._tiers[key] = _Tier(partition)
            if len(self._tiers) > _PARTITIONS_MAX:
                self._drop(next(iter(self._tiers)))
        return tier

    def _drop(self, key: NamedPartition) -> None:
        self._tiers.pop(key, None)
        self.faults.discard(key)

    @staticmethod
    def _look(tier: _Tier, now: float) -> bool:
        """Look at a tier's end. Whether it is known now; else the last one that was known stays."""
        offsets = tier.partition.offsets
        if offsets is None:
            return False
        seam = TierEnd(
            tier.partition.topic_id_partition.topic_id,
            offsets.high_watermark,
            offsets.last_stable_offset,
            offsets.leader_epoch,
        )
        if seam != tier.seam:
            tier.seam, tier.seam_since_seconds = seam, now
        return True

    def _load_later(self, key: NamedPartition, tier: _Tier) -> None:
        if tier.is_loading or self._loads_count >= _LOADS_MAX:
            return
        tier.is_loading = True
        self._loads_count += 1

        async def load() -> None:
            try:
                await load_quietly(*key, tier.partition)()
            finally:
                tier.is_loading = False
                self._loads_count -= 1

        self._calls.start(load())

    def _judge(
        self,
        wishes: Mapping[NamedPartition, Wish],
        seams: Mapping[NamedPartition, TierEnd],
        chosen: dict[NamedPartition, TierChoice],
    ) -> dict[NamedPartition, TierEnd]:
        """Choose by what is known. Adds the tier's partitions to ``chosen``; returns those that need a newer state."""
        left: dict[NamedPartition, TierEnd] = {}
        oldest = self._timers.monotonic_seconds() - self.states.refresh_seconds
        for key, seam in seams.items():
            tier = self._tiers.get(key)
            if tier is None or tier.seam != seam:
                continue  # meanwhile it is another one
            state = self.states.find(key, seam)
            source = choose_source(
                wishes[key],
                seam,
                state,
                oldest_seconds=oldest,
                seam_since_seconds=tier.seam_since_seconds,
                preference=self._preference,
                may_read=True,
            )
            if source is Source.REFRESH:
                left[key] = seam
            elif state is not None:
                self._note_lineage(key, tier, seam, state)
            if source is Source.TIER and state is not None:
                chosen[key] = TierChoice(tier.partition, seam, state)
        return left

    def _note_lineage(self, key: NamedPartition, tier: _Tier, seam: TierEnd, state: UpstreamState) -> None:
        # Of what brokers have deleted they know no epochs.
        is_known = state.ends.leader_epoch == seam.leader_epoch and state.log_start_offset < seam.end_offset
        fault = fault_of_lineage(seam, state) if is_known else ""
        if not fault:
            tier.fault = None
            self.faults.discard(key)
        elif tier.fault != seam:
            tier.fault = seam
            self.faults.add(key)
            _log.warning("event=another_lineage partition=%s-%d: %s; the brokers serve it", *key, fault)

    async def _refresh(self, seams: Mapping[NamedPartition, TierEnd]) -> None:
        """Wait for newer states, for as long as a request may."""
        now = self._timers.monotonic_seconds()
        oldest, until = now - self.states.refresh_seconds, now + _STATE_SECONDS
        old: dict[NamedPartition, TierEnd] = {}
        young: dict[NamedPartition, TierEnd] = {}
        for key, seam in seams.items():
            state = self.states.find(key, seam)
            (old if state is None or state.asked_at_seconds < oldest else young)[key] = seam
        for some, since in ((old, oldest), (young, now - _SOON_SECONDS)):
            if some:
                left = until - self._timers.monotonic_seconds()
                await self.states.refresh(some, since_seconds=since, seconds=left)
