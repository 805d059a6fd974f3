"""Fetch sessions against a model that is too simple to be wrong: lists that are searched from end to end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from kio.schema.errors import ErrorCode

from tests.support.loops import run_on
from tests.support.manual_timers import ManualTimers
from tierlog.broker.fetching.fetch_session import (
    ContextAnswer,
    FetchPartition,
    FetchRequest,
    FetchSession,
    FetchSessionCache,
    SessionLimits,
    has_news,
    next_epoch,
)
from tierlog.broker.partition_watches import PartitionKey, PartitionWatches
from tierlog.broker.protocol.fetch_response import FetchablePartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng

LIMITS: Final = SessionLimits(slots_max=3, partitions_max=9, eviction_ms=10_000)
NO_ID: Final = bytes(16)

partition_numbers = st.lists(st.integers(0, 5), max_size=5, unique=True)
principals = st.sampled_from(["User:alice", "User:bob"])


def partition_of(number: int, uses_topic_ids: bool, offset: int = 0) -> FetchPartition:
    key: PartitionKey = (b"1" * 16, number) if uses_topic_ids else ("orders", number)
    return FetchPartition(key, "orders", b"1" * 16 if uses_topic_ids else NO_ID, offset, 1000)


def request_of(
    numbers: list[int],
    *,
    session_id: int = 0,
    epoch: int = -1,
    forgotten: list[int] | None = None,
    uses_topic_ids: bool = False,
    offset: int = 0,
) -> FetchRequest:
    wanted = [partition_of(number, uses_topic_ids, offset) for number in numbers]
    return FetchRequest(
        max_wait_seconds=0.0,
        min_bytes=1,
        max_bytes=1000,
        is_read_committed=False,
        session_id=session_id,
        session_epoch=epoch,
        replica_id=-1,
        uses_topic_ids=uses_topic_ids,
        partitions={one.key: one for one in wanted},
        forgotten=[partition_of(number, uses_topic_ids).key for number in forgotten or ()],
    )


@dataclass
class ModelSession:
    principal: str
    uses_topic_ids: bool
    created_at: float
    used_at: float
    epoch: int = 1
    order: list[int] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    told: dict[int, tuple[int, int]] = field(default_factory=dict)  # high watermark, log start
    cached_size: int = 0
    is_evictable: bool = False


class Sessions(RuleBasedStateMachine):
    """Clients with sessions, full caches, wrong epochs, others' ids and duplicate requests."""

    ids: Bundle[int] = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.cache = FetchSessionCache(LIMITS, Machine(clock=self.clock, rng=SeededRng(3)))
        self.model: dict[int, ModelSession] = {}

    @rule(seconds=st.sampled_from([0.5, 6.0, 11.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(target=ids, numbers=partition_numbers, principal=principals, uses_ids=st.booleans(), replaced=st.none() | ids)
    def opens_a_session(self, numbers: list[int], principal: str, uses_ids: bool, replaced: int | None) -> int:
        request = request_of(numbers, session_id=replaced or 0, epoch=0, uses_topic_ids=uses_ids)
        context = self.cache.context_of(request, principal)
        if replaced in self.model and self.model[replaced].principal == principal:
            del self.model[replaced]
        assert [one.partition for one in context.partitions()] == numbers
        answers = [(one, FetchablePartition(one.partition, 0, 5, 5, 0)) for one in context.partitions()]
        answer = context.answer(answers)
        assert [told.partition_index for _, told in answer.partitions] == numbers
        assert answer.error_code == 0
        has_session = self._model_makes_room(len(numbers))
        assert bool(answer.session_id) == has_session
        if has_session:
            assert answer.session_id not in self.model
            now = self.clock.monotonic_seconds()
            self.model[answer.session_id] = ModelSession(
                principal,
                uses_ids,
                now,
                now,
                order=list(numbers),
                offsets=dict.fromkeys(numbers, 0),
                told=dict.fromkeys(numbers, (5, 0)),
                cached_size=len(numbers),
            )
        return answer.session_id

    def _model_makes_room(self, size: int) -> bool:
        now = self.clock.monotonic_seconds()
        if size and sum(one.cached_size for one in self.model.values()) + size > LIMITS.partitions_max:
            return False
        if len(self.model) < LIMITS.slots_max:
            return True
        oldest = min(self.model, key=lambda one: self.model[one].used_at)
        if now - self.model[oldest].used_at > LIMITS.eviction_seconds:
            stale = [one for one in self.model if self.model[one].used_at == self.model[oldest].used_at]
            gone = [one for one in stale if self.cache.find(one, self.model[one].principal) is None]
            assert len(gone) == 1
            del self.model[gone[0]]
            return True
        small = sorted((one.cached_size, key) for key, one in self.model.items() if one.is_evictable)
        if small and small[0][0] < size:
            del self.model[small[0][1]]
            return True
        return False

    @rule(session_id=ids, principal=principals)
    def closes_a_session(self, session_id: int, principal: str) -> None:
        context = self.cache.context_of(request_of([1], session_id=session_id), principal)
        if session_id in self.model and self.model[session_id].principal == principal:
            del self.model[session_id]
        told = [(one, FetchablePartition(one.partition, 0, 5, 5, 0)) for one in context.partitions()]
        assert context.answer(told) == ContextAnswer(0, 0, told)

    @rule(
        session_id=ids,
        principal=principals,
        epoch_error=st.sampled_from([0, 0, 0, 0, 1, 7]),
        uses_other_names=st.sampled_from([False, False, False, True]),
        numbers=partition_numbers,
        forgotten=partition_numbers,
        offset=st.integers(0, 3),
        outcomes=st.lists(
            st.tuples(st.integers(4, 6), st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 9]), st.booleans()),
            min_size=6,
            max_size=6,
        ),
        is_asked_twice=st.sampled_from([False, False, True]),
    )
    def goes_on(
        self,
        session_id: int,
        principal: str,
        epoch_error: int,
        uses_other_names: bool,
        numbers: list[int],
        forgotten: list[int],
        offset: int,
        outcomes: list[tuple[int, int, int, bool]],
        is_asked_twice: bool,
    ) -> None:
        model = self.model.get(session_id)
        mine = model is not None and model.principal == principal
        uses_ids = bool(model and model.uses_topic_ids) != uses_other_names
        epoch = (model.epoch if model else 1) + epoch_error
        request = request_of(
            numbers, session_id=session_id, epoch=epoch, forgotten=forgotten, uses_topic_ids=uses_ids, offset=offset
        )
        context = self.cache.context_of(request, principal)
        if model is None or not mine:
            assert context.answer([]).error_code == ErrorCode.fetch_session_id_not_found.value
            return
        if epoch_error:
            assert context.answer([]).error_code == ErrorCode.invalid_fetch_session_epoch.value
            return
        if uses_other_names:
            assert context.answer([]).error_code == ErrorCode.fetch_session_topic_id_error.value
            return
        self._model_changes(model, numbers, forgotten, offset)
        if not model.order:
            del self.model[session_id]
            assert [one.partition for one in context.partitions()] == numbers
            assert context.answer([]) == ContextAnswer(0, 0, [])
            return
        others = sum(one.cached_size for key, one in self.model.items() if key != session_id)
        if len(model.order) > model.cached_size and others + len(model.order) > LIMITS.partitions_max:
            del self.model[session_id]
            assert context.answer([]).error_code == ErrorCode.fetch_session_id_not_found.value
            return
        model.epoch += 1
        model.cached_size = len(model.order)
        model.used_at = self.clock.monotonic_seconds()
        model.is_evictable = model.used_at - model.created_at > LIMITS.eviction_seconds
        asked = context.partitions()
        assert [(one.partition, one.fetch_offset) for one in asked] == [(n, model.offsets[n]) for n in model.order]
        answers = [(one, self._answer_of(one.partition, outcomes[one.partition])) for one in asked]
        if is_asked_twice:
            second = self.cache.context_of(
                request_of([], session_id=session_id, epoch=model.epoch, uses_topic_ids=uses_ids), principal
            )
            model.epoch += 1
            late = context.answer(answers)
            assert late == ContextAnswer(ErrorCode.invalid_fetch_session_epoch.value, session_id, ())
            context = second
        expected = self._model_tells(model, outcomes)
        assert has_news(answers) == bool(expected)
        sent = context.answer(answers)
        assert (sent.error_code, sent.session_id) == (0, session_id)
        assert [told.partition_index for _, told in sent.partitions] == expected
        assert [one.partition for one in context.partitions()] == model.order

    @staticmethod
    def _answer_of(number: int, outcome: tuple[int, int, int, bool]) -> FetchablePartition:
        high_watermark, log_start, size, fails = outcome
        if fails:
            return FetchablePartition(number, 3, -1, -1, -1)
        return FetchablePartition(number, 0, high_watermark, high_watermark, log_start, size_bytes=size)

    @staticmethod
    def _model_changes(model: ModelSession, numbers: list[int], forgotten: list[int], offset: int) -> None:
        for number in numbers:
            if number not in model.order:
                model.order.append(number)
                model.told[number] = (-1, -1)
            model.offsets[number] = offset
        model.order = [number for number in model.order if number not in forgotten]

    @staticmethod
    def _model_tells(model: ModelSession, outcomes: list[tuple[int, int, int, bool]]) -> list[int]:
        sent = []
        for number in list(model.order):
            high_watermark, log_start, size, fails = outcomes[number]
            if fails:
                sent.append(number)
                model.told[number] = (-1, -1)
                continue
            if size or model.told[number] != (high_watermark, log_start):
                sent.append(number)
            model.told[number] = (high_watermark, log_start)
            if size:
                model.order.remove(number)
                model.order.append(number)
        return sent

    @invariant()
    def has_the_same_sessions(self) -> None:
        assert len(self.cache) == len(self.model)
        assert all(self.cache.find(key, one.principal) is not None for key, one in self.model.items())
        assert self.cache.partitions_count == sum(one.cached_size for one in self.model.values())
        assert self.cache.partitions_count <= LIMITS.partitions_max
        assert len(self.cache) <= LIMITS.slots_max


Sessions.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestSessions = Sessions.TestCase


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1)])
def test_epochs_begin_again_at_one(epoch: int, following: int) -> None:
    """Otherwise a session ends with an error after two thousand million polls, or looks like a new one."""
    assert next_epoch(epoch) == following


def test_no_slots_mean_no_sessions() -> None:
    """Otherwise an operator cannot switch sessions off."""
    sessions = FetchSessionCache(SessionLimits(slots_max=0), Machine(clock=ManualClock()))
    context = sessions.context_of(request_of([1, 2], epoch=0), "User:alice")
    told = [(one, FetchablePartition(one.partition, 0, 5, 5, 0)) for one in context.partitions()]
    assert context.answer(told) == ContextAnswer(0, 0, told)


def test_what_is_known_to_be_quiet_ends_with_a_change() -> None:
    """Otherwise a session that added a partition hears nothing of it until a partition changes, or a watch stays."""
    run_on("asyncio", _quiet_until_a_change)


async def _quiet_until_a_change() -> None:
    sessions = FetchSessionCache(LIMITS, Machine(clock=ManualClock(), rng=SeededRng(1)))
    watches = PartitionWatches(ManualTimers())
    opened = sessions.context_of(request_of([1], epoch=0), "User:alice")
    session_id = opened.answer([(one, FetchablePartition(1, 0, 5, 5, 0)) for one in opened.partitions()]).session_id
    context = sessions.context_of(request_of([], session_id=session_id, epoch=1), "User:alice")
    watch = watches.add(one.key for one in context.partitions())
    assert context.note_quiet(watch, False)
    late = context
    context = sessions.context_of(request_of([], session_id=session_id, epoch=2), "User:alice")
    assert context.quiet_watch(False) is watch
    assert context.quiet_watch(True) is None
    watch.ring()
    assert context.quiet_watch(False) is None
    assert context.note_quiet(watches.add(one.key for one in context.partitions()), False)
    assert len(watches) == 1, "the session has one watch"
    context = sessions.context_of(request_of([2], session_id=session_id, epoch=3), "User:alice")
    assert not len(watches)
    other = watches.add([])
    assert not late.note_quiet(other, False), "a request that was overtaken knows nothing"
    other.close()
    assert context.note_quiet(watches.add(one.key for one in context.partitions()), False)
    context = sessions.context_of(request_of([1], session_id=session_id, epoch=4, offset=9), "User:alice")
    assert context.quiet_watch(False) is None
    assert context.note_quiet(watches.add(one.key for one in context.partitions()), False)
    sessions.context_of(request_of([], session_id=session_id, epoch=-1), "User:alice")
    assert not len(watches), "the watch ends with its session"
    assert not context.note_quiet(watches.add([]), False), "nothing would end the watch of a session that is gone"


def test_larger_sessions_take_the_place_of_smaller_ones_that_are_not_new() -> None:
    """Otherwise short fetches push out the sessions that save most, or a full cache stays full for ever."""
    clock = ManualClock()
    cache = FetchSessionCache(SessionLimits(slots_max=2, eviction_ms=10_000), Machine(clock=clock))

    def create(size: int) -> FetchSession | None:
        wanted = [partition_of(number, False) for number in range(size)]
        return cache.create("User:alice", False, {one.key: one for one in wanted})

    small, large = create(2), create(4)
    assert small is not None
    assert large is not None
    assert create(9) is None, "both are new"
    clock.advance(10.5)
    assert cache.note_use(small)
    assert cache.note_use(large)
    assert create(2) is None, "one of the same size is worth no more"
    assert create(3) is not None
    assert cache.find(small.session_id, "User:alice") is None
    assert cache.find(large.session_id, "User:alice") is large
    clock.advance(10.5)
    assert create(1) is not None, "one that nobody used for long gives way to any"
    assert cache.find(large.session_id, "User:alice") is None
    assert cache.evictions_count == 2
