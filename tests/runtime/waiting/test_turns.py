"""The memory of all readers: never more than the total, turns for all, nothing lost, nobody waiting for ever."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.turns import MemoryBudget, Ticket


class Held:
    """A stream as the budget sees it."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.held = 0
        self.is_busy = False

    def take(self, ticket: Ticket) -> None:
        self.held += ticket.granted_bytes

    def give_up(self) -> None:
        if not self.is_busy:
            held, self.held = self.held, 0
            self.budget.give_back(held)

    def abandon(self) -> None:
        self.is_busy = False
        self.give_up()


def test_plenty_is_granted_at_once() -> None:
    """If this fails, a lonely reader asks in small pieces, and pays a round trip for each."""
    budget = MemoryBudget(1000, Machine())
    ticket = budget.ask("a", least_bytes=10, wanted_bytes=600)
    assert (ticket.granted_bytes, budget.held_bytes) == (600, 600)
    assert budget.ask("b", least_bytes=10, wanted_bytes=600).granted_bytes == 150
    budget.give_back(750)
    assert budget.held_bytes == 0


def test_streams_at_rest_give_back_what_a_reader_needs() -> None:
    """If this fails, streams that nobody reads keep those waiting that are read."""
    budget = MemoryBudget(100, Machine())
    idle = [Held(budget) for _ in range(4)]
    for each in idle:
        each.take(budget.ask("idle", least_bytes=25, wanted_bytes=25))
    for number in (1, 0, 3, 2):
        budget.rest(idle[number], Held.give_up)
    budget.wake(idle[1])
    assert budget.ask("b", least_bytes=40, wanted_bytes=40).is_done
    assert [each.held for each in idle] == [0, 25, 25, 0]
    waiting = budget.ask("b", least_bytes=40, wanted_bytes=40)
    assert not waiting.is_done
    budget.rest(idle[1], Held.give_up)
    assert waiting.is_done


def test_turns_go_round_by_partition() -> None:
    """If this fails, a partition with many consumers keeps the only one of another waiting behind all of them."""
    budget = MemoryBudget(10, Machine())
    assert budget.ask("a", least_bytes=10, wanted_bytes=10).is_done
    order: list[str] = []
    tickets = []
    for name in ("a1", "a2", "a3", "b1"):
        ticket = budget.ask(name[0], least_bytes=10, wanted_bytes=10)
        ticket.add_done_callback(lambda t=ticket, name=name: order.append(name) if t.is_done else None)  # type: ignore[misc]
        tickets.append(ticket)
    for _ in tickets:
        budget.give_back(10)
    assert order == ["a1", "b1", "a2", "a3"]
    budget.give_back(10)
    assert budget.held_bytes == 0


def test_a_chunk_larger_than_the_budget_comes_when_nobody_holds_any() -> None:
    """If this fails, a segment with large chunks cannot be read under a small budget."""
    budget = MemoryBudget(100, Machine())
    small = budget.ask("a", least_bytes=1, wanted_bytes=1)
    large = budget.ask("b", least_bytes=500, wanted_bytes=500)
    assert not large.is_done
    budget.give_back(small.granted_bytes)
    assert large.granted_bytes == 500
    assert not budget.ask("c", least_bytes=1, wanted_bytes=1).is_done
    budget.give_back(500)


def test_who_waits_no_more_takes_nothing() -> None:
    """If this fails, each reader that times out makes the budget smaller for good."""
    budget = MemoryBudget(100, Machine())
    first = budget.ask("a", least_bytes=100, wanted_bytes=100)
    waiting = budget.ask("b", least_bytes=50, wanted_bytes=50)
    budget.cancel(waiting)
    budget.give_back(first.granted_bytes)
    late = budget.ask("b", least_bytes=50, wanted_bytes=50)
    budget.cancel(late)
    assert budget.held_bytes == 0


def test_a_dropped_stream_gives_back_at_the_next_need() -> None:
    """If this fails, a caller that forgets to close costs the budget for good."""
    budget = MemoryBudget(100, Machine())
    dropped = Held(budget)
    dropped.is_busy = True
    dropped.take(budget.ask("a", least_bytes=100, wanted_bytes=100))
    budget.drop(dropped.abandon)
    assert budget.ask("b", least_bytes=60, wanted_bytes=60).is_done


def test_one_of_those_who_wait_looks_for_all() -> None:
    """If this fails, two thousand threads wake four times a second each, or what was dropped comes back too late."""
    budget = MemoryBudget(10, Machine())
    assert budget.ask("a", least_bytes=10, wanted_bytes=10).is_done
    told: list[int] = []
    tickets = [budget.ask(number % 3, least_bytes=10, wanted_bytes=10) for number in range(6)]
    for number, ticket in enumerate(tickets):
        ticket.add_done_callback(lambda number=number: told.append(number))  # type: ignore[misc]
    waiting = list(tickets)
    while waiting:
        (looking,) = (ticket for ticket in waiting if ticket.needs_looks)
        told.clear()
        if len(waiting) % 2:
            budget.cancel(looking)
            waiting.remove(looking)
        else:
            budget.give_back(10)
            waiting = [ticket for ticket in waiting if not ticket.is_done]
        if waiting and looking not in waiting:
            (now,) = (number for number, ticket in enumerate(tickets) if ticket in waiting and ticket.needs_looks)
            assert now in told
    assert not any(ticket.needs_looks for ticket in tickets)


@given(st.integers(0, 2**32))
def test_any_order_of_events(seed: int) -> None:
    """If this fails, some order of reads, rests and closes loses memory, or lets someone wait with memory there."""
    chance = random.Random(seed)
    budget = MemoryBudget(64, Machine())
    streams = [Held(budget) for _ in range(6)]
    waiting: dict[int, Ticket] = {}
    for _ in range(120):
        number = chance.randrange(6)
        stream = streams[number]
        if number in waiting:
            ticket = waiting.pop(number)
            if ticket.is_done:
                stream.take(ticket)
                stream.is_busy = False
                if chance.random() < 0.5:
                    budget.rest(stream, Held.give_up)
            elif chance.random() < 0.3:
                budget.cancel(ticket)
                stream.is_busy = False
            else:
                ticket.look()
                waiting[number] = ticket
        elif stream.held == 0:
            least = chance.randint(1, 80)
            stream.is_busy = True
            budget.wake(stream)
            waiting[number] = budget.ask(number % 3, least_bytes=least, wanted_bytes=least + chance.randint(0, 64))
        elif chance.random() < 0.5:
            stream.give_up()
        else:
            budget.rest(stream, Held.give_up)
        granted = sum(t.granted_bytes for t in waiting.values())
        assert budget.held_bytes == granted + sum(s.held for s in streams)
        assert (
            budget.held_bytes <= 64 or max([s.held for s in streams] + [t.granted_bytes for t in waiting.values()]) > 64
        )
    for number, ticket in waiting.items():
        budget.cancel(ticket)
        streams[number].is_busy = False
    for stream in streams:
        stream.give_up()
    assert budget.held_bytes == 0


@pytest.mark.parametrize("close", [True, False])
def test_streams_that_are_dropped(close: bool, dropping: Callable[[bool], int]) -> None:
    """If this fails, thirty forgotten streams cost the read budget for good, or nothing names the code that forgot
    them.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dropping(close) == 0
    assert sum(issubclass(warning.category, ResourceWarning) for warning in caught) == (0 if close else 30)


@pytest.fixture
def dropping(data: object) -> Callable[[bool], int]:
    """Reads a part of thirty streams and drops them; the bytes that the budget then misses."""
    from tests.support.fetchers import MemoryBucket, fetcher_over
    from tests.support.segments import make_segment, sound_log

    segment = make_segment(sound_log(1000)).stored(chunk_size=256 << 10, compression=True)
    bucket = MemoryBucket()
    bucket.add(segment)

    def run(close: bool) -> int:
        with fetcher_over(bucket) as fetcher:
            for _ in range(30):
                stream = fetcher.fetch_log_segment(segment.metadata, 0)
                assert stream.read(300_000) == segment.log[:300_000]
                if close:
                    stream.close()
                del stream
            with fetcher.fetch_log_segment(segment.metadata, 0) as last:
                assert last.read() == segment.log
            return fetcher._budget.held_bytes

    return run
