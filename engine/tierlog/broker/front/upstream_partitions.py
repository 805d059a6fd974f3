"""The state of upstream's partitions: asked for by fetches, in batches, and for no partition that nobody fetches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.list_offsets import EARLIEST, EARLIEST_LOCAL, LATEST
from tierlog.broker.front.source_choice import EpochEnds, TierEnd, UpstreamState
from tierlog.broker.front.upstream_questions import (
    AskedBrokers,
    NamedPartition,
    PartitionLeader,
    ask_epoch_ends,
    ask_leaders,
    ask_offsets,
)
from tierlog.broker.handling import UpstreamError
from tierlog.broker.partitions import UNKNOWN, EpochEndOffset, ToldErrors
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timers
from tierlog.runtime.waiting.loops import Alarm, LoopCalls

_log = logging.getLogger(__name__)
_TOLD: Final = ToldErrors(_log)

#: Partitions whose state is kept: some 500 bytes each. Behind these, those of no state are upstream's.
_PARTITIONS_MAX: Final = 100_000
#: A partition that was not asked for so long is forgotten.
_UNUSED_SECONDS: Final = 60.0
#: One round of questions to one broker takes no longer.
_ROUND_SECONDS: Final = 5.0
#: The pause behind a round that failed, doubled with each further one up to the most; chance takes off up to a half.
_PAUSE_SECONDS_MIN: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 5.0
_NOT_BEFORE: Final = float("-inf")
_NO_END: Final = EpochEndOffset(UNKNOWN, UNKNOWN)


@dataclass(slots=True)
class _Known:
    """What is known of a partition.

    Attributes:
        seam: Of the tier, as the newest fetch saw it.
        state: The newest one; None if there is none.
        asked_at_seconds: When the newest question began that has ended, with or without a state.
        asking_since_seconds: When the newest question under way began; None if none is.
        used_at_seconds: When a fetch asked last.
        deleted: When records were deleted last, and below which offset: a question that began before may not know.
    """

    seam: TierEnd
    state: UpstreamState | None = None
    asked_at_seconds: float = _NOT_BEFORE
    asking_since_seconds: float | None = None
    used_at_seconds: float = _NOT_BEFORE
    deleted: tuple[float, int] = (_NOT_BEFORE, 0)


class _Question(NamedTuple):
    """A question about one partition.

    Args:
        began_seconds: When it began: with that of who leads.
        leader: Of the partition; None until it is known.
    """

    began_seconds: float
    leader: PartitionLeader | None = None


class _Lane:
    """The rounds of questions to one broker, one after another; ``None`` is any broker, which says who leads.

    Attributes:
        wanted: Questions of the next round.
        is_running: Whether a task works on it.
        failures: Rounds that failed without one that did not.
        not_before_seconds: When the next round may begin.
    """

    __slots__ = ("failures", "is_running", "not_before_seconds", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[NamedPartition, _Question] = {}
        self.is_running = False
        self.failures = 0
        self.not_before_seconds = _NOT_BEFORE


class UpstreamPartitions:
    """The states of partitions that clients fetch from the tier. Used on the event loop alone.

    A fetch that finds a state too old wants a newer one, and waits; what is wanted while a round of questions is under
    way is asked in the next one. A round asks any broker for the leaders, then each leader for offsets and epochs: a
    leader that stalls keeps the states of its own partitions old, and no others.

    Args:
        brokers: Upstream's.
        timers: Of the event loop.
        machine: Its clock and chance.
        refresh_seconds: A state that was asked longer ago counts no more.
        asks_local: Whether states have the earliest local offset.
    """

    def __init__(
        self,
        brokers: AskedBrokers,
        *,
        timers: Timers,
        machine: Machine,
        refresh_seconds: float,
        asks_local: bool = False,
    ) -> None:
        self._brokers = brokers
        self._timers = timers
        self._rng = machine.rng
        self._clock = machine.clock
        self._answered_at_seconds: float | None = None
        self.refresh_seconds = refresh_seconds
        self._asks_local = asks_local
        self._known: dict[NamedPartition, _Known] = {}
        self._lanes: dict[int | None, _Lane] = {}
        self._calls = LoopCalls()
        self._ended = Alarm(timers)
        self._is_closed = False
        self._forgotten_at_seconds = timers.monotonic_seconds()
        #: Rounds that failed.
        self.failures_count = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def answer_age_seconds(self) -> float:
        """Time since a broker last answered; -1 before the first time. Any thread."""
        answered = self._answered_at_seconds
        return -1.0 if answered is None else self._clock.monotonic_seconds() - answered

    def find(self, partition: NamedPartition, seam: TierEnd) -> UpstreamState | None:
        """Return the newest state of a partition, however old; None if there is none. Does not wait.

        A state that grows old is asked for anew, so that the next fetch need not wait.

        Args:
            partition: Which one.
            seam: Of its tier.
        """
        known = self._use(partition, seam)
        if known is None or known.state is None:
            return None
        age = self._timers.monotonic_seconds() - known.asked_at_seconds
        if known.asking_since_seconds is None and age > self.refresh_seconds / 2:
            self._want(partition, known)
        return known.state

    async def refresh(self, seams: Mapping[NamedPartition, TierEnd], *, since_seconds: float, seconds: float) -> None:
        """Ask for the states of partitions, and wait until all were asked for after a time, with or without success.

        Args:
            seams: The partitions, and the ends of their tiers.
            since_seconds: A round that began before does not count.
            seconds: How long to wait at most.
        """
        waiting = {}
        for partition, seam in seams.items():
            known = self._use(partition, seam)
            if known is not None:
                waiting[partition] = known
        until = self._timers.monotonic_seconds() + seconds
        while not self._is_closed:
            waiting = {key: known for key, known in waiting.items() if known.asked_at_seconds < since_seconds}
            for partition, known in waiting.items():
                since = known.asking_since_seconds
                if since is None or since < since_seconds:
                    self._want(partition, known)
            waiting = {key: known for key, known in waiting.items() if known.asked_at_seconds < since_seconds}
            left = until - self._timers.monotonic_seconds()
            if not waiting or left <= 0:
                return
            await self._ended.wait(left)

    def move_log_start(self, partition: NamedPartition, log_start_offset: int) -> None:
        """Note that records below an offset have been deleted: no fetch from now on gets one."""
        known = self._known.get(partition)
        if known is not None:
            known.deleted = self._timers.monotonic_seconds(), log_start_offset
            if known.state is not None:
                known.state = _later(known.state, known.state.topic_id, log_start_offset)

    async def close(self) -> None:
        """End the questions under way; waiting fetches go on without them."""
        self._is_closed = True
        self._ended.ring()
        await self._calls.cancel()

    def _use(self, partition: NamedPartition, seam: TierEnd) -> _Known | None:
        now = self._timers.monotonic_seconds()
        known = self._known.get(partition)
        if known is None:
            self._forget_unused(now)
            if len(self._known) >= _PARTITIONS_MAX:
                return None
            known = self._known[partition] = _Known(seam)
        known.seam = seam
        known.used_at_seconds = now
        return known

    def _forget_unused(self, now: float) -> None:
        if now - self._forgotten_at_seconds > _UNUSED_SECONDS:
            self._forgotten_at_seconds = now
            self._known = {key: one for key, one in self._known.items() if now - one.used_at_seconds <= _UNUSED_SECONDS}

    def _want(self, partition: NamedPartition, known: _Known) -> None:
        """Let the next round ask for a partition; while a pause lasts it counts as asked for without success."""
        lane = self._lane(None)
        now = self._timers.monotonic_seconds()
        if now < lane.not_before_seconds:
            known.asked_at_seconds = now
        elif not self._is_closed:
            lane.wanted[partition] = _Question(now)
            if not lane.is_running:
                lane.is_running = True
                self._calls.start(self._ask_leaders(lane))

    def _lane(self, node_id: int | None) -> _Lane:
        lane = self._lanes.get(node_id)
        if lane is None:
            lane = self._lanes[node_id] = _Lane()
        return lane

    async def _ask_leaders(self, lane: _Lane) -> None:
        """Run rounds of the first question until nothing is wanted."""
        try:
            while lane.wanted:
                wanted, lane.wanted = self._begin(lane.wanted), {}
                errors: dict[str, ErrorCode] = {}
                try:
                    leaders = await ask_leaders(
                        *(self._brokers, dict.fromkeys(topic for topic, _ in wanted)),
                        errors=errors,
                        seconds=_ROUND_SECONDS,
                    )
                except UpstreamError as error:
                    self._fail(lane, "any broker", wanted, error)
                    continue
                lane.failures = 0
                self._tell({key: errors[key[0]] for key in wanted if key[0] in errors})
                for partition, question in wanted.items():
                    self._ask_leader(partition, question._replace(leader=leaders.get(partition)))
        finally:
            lane.is_running = False

    def _tell(self, errors: Mapping[NamedPartition, ErrorCode]) -> None:
        """Log errors that do not pass by themselves, once for each partition."""
        for key, code in errors.items():
            if not code.retriable:
                text = f"the front learns nothing of it ({code.name}): brokers serve it alone"
                _TOLD.tell(*key, UpstreamError(text))

    def _begin(self, wanted: dict[NamedPartition, _Question]) -> dict[NamedPartition, _Question]:
        """Note that a round begins. Returns its questions."""
        now = self._timers.monotonic_seconds()
        for partition in wanted:
            known = self._known.get(partition)
            if known is not None:
                known.asking_since_seconds = now
        return dict.fromkeys(wanted, _Question(now))

    def _ask_leader(self, partition: NamedPartition, question: _Question) -> None:
        leader = question.leader
        lane = None if leader is None else self._lane(leader.node_id)
        if leader is None or lane is None or self._timers.monotonic_seconds() < lane.not_before_seconds:
            self._end(partition, question, None)
            return
        lane.wanted[partition] = question
        if not lane.is_running:
            lane.is_running = True
            self._calls.start(self._ask_states(lane, leader.node_id))

    async def _ask_states(self, lane: _Lane, node_id: int) -> None:
        """Run rounds of questions to one leader until nothing is wanted of it."""
        try:
            while lane.wanted:
                wanted, lane.wanted = lane.wanted, {}
                try:
                    states = await self._states(node_id, wanted)
                except UpstreamError as error:
                    self._fail(lane, f"broker {node_id}", wanted, error)
                    continue
                lane.failures = 0
                for partition, question in wanted.items():
                    self._end(partition, question, states.get(partition))
        finally:
            lane.is_running = False

    async def _states(
        self,
        node_id: int,
        wanted: Mapping[NamedPartition, _Question],
    ) -> dict[NamedPartition, UpstreamState]:
        """Ask one leader for all that a state has. Partitions with an error are left out. Raises UpstreamError."""
        leaders = {key: one.leader for key, one in wanted.items() if one.leader is not None and key in self._known}
        epochs = {key: self._known[key].seam.leader_epoch for key in leaders}
        errors: dict[NamedPartition, ErrorCode] = {}
        brokers, until = self._brokers, self._timers.monotonic_seconds() + _ROUND_SECONDS

        def left() -> float:
            return max(until - self._timers.monotonic_seconds(), 0.001)

        async def offsets(timestamp: int, *, is_read_committed: bool = False) -> Mapping[NamedPartition, int]:
            return await ask_offsets(
                *(brokers, node_id, leaders, timestamp),
                is_read_committed=is_read_committed,
                errors=errors,
                seconds=left(),
            )

        starts = await offsets(EARLIEST)
        stable = await offsets(LATEST, is_read_committed=True)
        ends = await offsets(LATEST)
        local = await offsets(EARLIEST_LOCAL) if self._asks_local else {}
        asked = {key: epoch for key, epoch in epochs.items() if epoch >= 0}
        epoch_ends = await ask_epoch_ends(brokers, node_id, asked, seconds=left()) if asked else {}
        before = {key: epoch - 1 for key, epoch in asked.items() if epoch > 0}
        before_ends = await ask_epoch_ends(brokers, node_id, before, seconds=left()) if before else {}
        self._tell(errors)
        states = {}
        for key, leader in leaders.items():
            has_epochs = (key in epoch_ends or key not in asked) and (key in before_ends or key not in before)
            if (
                key in starts
                and key in stable
                and key in ends
                and has_epochs
                and (key in local or not self._asks_local)
            ):
                states[key] = UpstreamState(
                    leader.topic_id,
                    leader.leader_epoch,
                    starts[key],
                    ends[key],
                    min(stable[key], ends[key]),
                    local.get(key, UNKNOWN),
                    EpochEnds(epochs[key], epoch_ends.get(key, _NO_END), before_ends.get(key, _NO_END)),
                    wanted[key].began_seconds,
                )
        return states

    def _end(self, partition: NamedPartition, question: _Question, state: UpstreamState | None) -> None:
        """Note the end of a question, with its answer or without one."""
        known = self._known.get(partition)
        if known is not None:
            if known.asking_since_seconds is not None and known.asking_since_seconds <= question.began_seconds:
                known.asking_since_seconds = None
            known.asked_at_seconds = max(known.asked_at_seconds, question.began_seconds)
            if state is not None:
                self._answered_at_seconds = self._clock.monotonic_seconds()
                before = known.state
                deleted_at, offset = known.deleted
                if question.began_seconds <= deleted_at:
                    state = _later(state, state.topic_id, offset)
                known.state = state if before is None else _later(state, before.topic_id, before.log_start_offset)
        self._ended.ring()

    def _fail(self, lane: _Lane, whom: str, wanted: Mapping[NamedPartition, _Question], error: UpstreamError) -> None:
        lane.failures += 1
        self.failures_count += 1
        pause = min(_PAUSE_SECONDS_MIN * 2 ** min(lane.failures - 1, 10), _PAUSE_SECONDS_MAX)
        lane.not_before_seconds = self._timers.monotonic_seconds() + pause * self._rng.uniform(0.5, 1.0)
        if lane.failures == 1:
            _log.warning("the state of upstream's partitions: %s: %s", whom, error)
        failed = {**wanted, **lane.wanted}
        lane.wanted.clear()
        for partition, question in failed.items():
            self._end(partition, question, None)


def _later(state: UpstreamState, topic_id: Uuid, log_start_offset: int) -> UpstreamState:
    """Return a state with a log start that was known: of one topic it never goes back, and an answer may be older."""
    if state.topic_id != topic_id or state.log_start_offset >= log_start_offset:
        return state
    return replace(state, log_start_offset=log_start_offset)
