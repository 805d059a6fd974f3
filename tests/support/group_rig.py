"""A group coordinator on a clock that is moved by hand, over a store that writes when it is told to."""

from __future__ import annotations

import collections
import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.committed_offsets import CommitRequest
from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.groups.members import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from tierlog.broker.groups.stored_state import (
    Change,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    SaveGroup,
    SaveOffsets,
    StoredGroup,
    StoredState,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock, Timer
from tierlog.runtime.machine.randomness import SeededRng

Result = TypeVar("Result")
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


class ClockTimers:
    """Timers over a clock that is moved by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._due: list[tuple[float, int, _Handle]] = []
        self._numbers = itertools.count()

    def monotonic_seconds(self) -> float:
        return self.clock.monotonic_seconds()

    def call_later(self, seconds: float, call: Callable[[], object], /) -> Timer:
        handle = _Handle(call)
        heapq.heappush(self._due, (self.monotonic_seconds() + max(seconds, 0.0), next(self._numbers), handle))
        return handle

    @property
    def pending(self) -> int:
        """How many calls are to come."""
        return sum(not handle.is_cancelled for _, _, handle in self._due)

    def advance(self, seconds: float, between: Callable[[], None] = lambda: None) -> None:
        """Move the clock, and make the calls that are due on the way; ``between`` runs after each."""
        end = self.monotonic_seconds() + seconds
        while self._due and self._due[0][0] <= end:
            at, _, handle = heapq.heappop(self._due)
            self.clock.advance(max(at - self.monotonic_seconds(), 0.0))
            if not handle.is_cancelled:
                handle.call()
                between()
        self.clock.advance(max(end - self.monotonic_seconds(), 0.0))


@dataclass(slots=True)
class _Handle:
    call: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class StepStore:
    """A GroupStore whose writes wait until ``flush``; what is not flushed is lost in a crash.

    Attributes:
        fault: What the next flushes fail with; None: they succeed.
    """

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.fault: Exception | None = None
        self._waiting: collections.deque[tuple[Sequence[Change], Callable[[Exception | None], None]]] = (
            collections.deque()
        )

    def load(self) -> StoredState:
        return StoredState(dict(self.groups), {group_id: dict(of) for group_id, of in self.offsets.items()})

    def write(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        self._waiting.append((changes, done))

    def close(self) -> None:
        self.flush()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def flush(self, count: int | None = None) -> None:
        """Do the next writes, all of them unless told how many; also those that follow from them."""
        while self._waiting and count != 0:
            changes, done = self._waiting.popleft()
            if self.fault is None:
                for change in changes:
                    self._apply(change)
            done(self.fault)
            count = None if count is None else count - 1

    def crash(self) -> None:
        """Lose what was not written, without an error."""
        self._waiting.clear()

    def _apply(self, change: Change) -> None:
        match change:
            case SaveGroup(group):
                self.groups[group.group_id] = group
            case DeleteGroup(group_id):
                self.groups.pop(group_id, None)
                self.offsets.pop(group_id, None)
            case SaveOffsets(group_id, offsets):
                kept = self.offsets.setdefault(group_id, {})
                kept.update({(topic, partition): offset for topic, partition, offset in offsets})
            case DeleteOffsets(group_id, partitions):
                for place in partitions:
                    self.offsets.get(group_id, {}).pop(place, None)
                if not self.offsets.get(group_id, True):
                    del self.offsets[group_id]


class Answers(list[Result]):
    """What a call was answered with, so far: nothing, or one answer."""

    def __call__(self, answer: Result) -> None:
        assert not self, "answered twice"
        self.append(answer)

    @property
    def only(self) -> Result:
        [answer] = self
        return answer


@dataclass(slots=True)
class Rig:
    """A coordinator and all that it runs on. ``restart`` makes another one over what was stored.

    Writes are done at once unless ``is_prompt`` is False.
    """

    config: GroupConfig = field(default_factory=GroupConfig)
    store: Any = field(default_factory=StepStore)
    is_prompt: bool = True
    clock: ManualClock = field(default_factory=ManualClock)
    rng: SeededRng = field(default_factory=lambda: SeededRng(7))
    timers: ClockTimers = field(init=False)
    coordinator: GroupCoordinator = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.timers = ClockTimers(self.clock)
        machine = Machine(clock=self.clock, rng=self.rng)
        state = self.store.load()
        self.coordinator = GroupCoordinator(
            self.config, machine, self.timers, self.store, state, on_loop=lambda call: call()
        )
        self.settle()

    def restart(self) -> None:
        """Die without a word, and start over what is stored."""
        self.store.crash()
        self.start()

    def settle(self) -> None:
        if self.is_prompt:
            self.store.flush()

    def advance(self, seconds: float) -> None:
        self.timers.advance(seconds, self.settle)
        self.settle()

    # ------------------------------------------------------------ requests

    def join(self, member_id: str = "", group_id: str = "readers", **changes: Any) -> Answers[JoinAnswer]:
        request = JoinRequest(group_id, member_id, "consumer", (("range", SUBSCRIPTION),), 10_000, 60_000)
        answers = Answers[JoinAnswer]()
        self.coordinator.join(replace(request, **changes), answers)
        self.settle()
        return answers

    def new_member(self, group_id: str = "readers", **changes: Any) -> tuple[str, Answers[JoinAnswer]]:
        """A dynamic member as clients join today: it asks for an id, and joins with it."""
        asked = self.join(group_id=group_id, **changes).only
        assert asked.error is ErrorCode.member_id_required
        return asked.member_id, self.join(asked.member_id, group_id, **changes)

    def sync(
        self, joined: JoinAnswer, assignments: dict[str, bytes] | None = None, **changes: Any
    ) -> Answers[SyncAnswer]:
        request = SyncRequest(
            "readers",
            joined.member_id,
            joined.generation_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=tuple((assignments or {}).items()),
        )
        answers = Answers[SyncAnswer]()
        self.coordinator.sync(replace(request, **changes), answers)
        self.settle()
        return answers

    def heartbeat(self, joined: JoinAnswer, group_id: str = "readers", instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat(group_id, joined.member_id, instance_id, joined.generation_id)

    def leave(
        self, *members: tuple[str, str | None, str], group_id: str = "readers"
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        answers = Answers[tuple[ErrorCode, list[ErrorCode]]]()
        self.coordinator.leave(group_id, members, lambda error, each: answers((error, each)))
        self.settle()
        return answers.only

    def commit(
        self,
        offset: int,
        joined: JoinAnswer | None = None,
        group_id: str = "readers",
        place: tuple[str, int] = ("orders", 0),
        **changes: Any,
    ) -> Answers[ErrorCode]:
        committed = CommittedOffset(offset, -1, "", self.clock.time_ms())
        member_id, generation_id = (joined.member_id, joined.generation_id) if joined else ("", -1)
        request = CommitRequest(group_id, member_id, generation_id, None, 9, [(*place, committed)])
        answers = Answers[ErrorCode]()
        self.coordinator.commit(replace(request, **changes), answers)
        self.settle()
        return answers

    def delete_group(self, group_id: str = "readers") -> Answers[dict[str, ErrorCode]]:
        answers = Answers[dict[str, ErrorCode]]()
        self.coordinator.delete_groups([group_id], answers)
        self.settle()
        return answers

    def committed(self, group_id: str = "readers", place: tuple[str, int] = ("orders", 0)) -> int | None:
        found = self.coordinator.offsets.of(group_id).get(place)
        return None if found is None else found.committed_offset

    def state(self, group_id: str = "readers") -> str | None:
        group = self.coordinator.find(group_id)
        return None if group is None else group.state.value

    # ------------------------------------------------------------ groups that stand

    def stable(self, count: int = 2, **changes: Any) -> list[JoinAnswer]:
        """A group of so many members in its first generation, each with its own name as its assignment; the leader
        first.
        """
        joins = [self.new_member(**changes)[1] for _ in range(count)]
        self.advance(self.config.initial_rebalance_delay_ms / 1000 * (count + 1))
        return self.give(joins)

    def give(self, joins: Sequence[Answers[JoinAnswer]]) -> list[JoinAnswer]:
        """All sync: each member gets its own name."""
        joined = [answers.only for answers in joins]
        assert {answer.error for answer in joined} == {ErrorCode.none}, joined
        leader = next(answer for answer in joined if answer.member_id == answer.leader)
        syncs = [self.sync(answer) for answer in joined if answer is not leader]
        own = {member_id: member_id.encode() for member_id, _, _ in leader.members}
        assert self.sync(leader, own).only.assignment == leader.member_id.encode()
        assert {answers.only.error for answers in syncs} <= {ErrorCode.none}
        assert self.state() == "Stable"
        return [leader, *(answer for answer in joined if answer is not leader)]
