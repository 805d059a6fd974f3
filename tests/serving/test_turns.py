"""Turns of client hosts, and how many requests are at work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tierlog.serving.admission import Turns


@dataclass(eq=False)
class Waiting:
    client_host: str
    begun: list[str]
    is_wanted: bool = True

    def begin(self) -> bool:
        if self.is_wanted:
            self.begun.append(self.client_host)
        return self.is_wanted


def enter(turns: Turns, waiting: Waiting) -> None:
    turns.enter(waiting.client_host, waiting.begin)


class Loop:
    """Calls what is to be called soon, round by round."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.rested = 0
        self.now = 0.0

    def turns(self, limit: int) -> Turns:
        def rested() -> None:
            self.rested += 1

        return Turns(limit, now=lambda: self.now, call_soon=self.calls.append, rested=rested)

    def run_round(self) -> None:
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def run(self) -> None:
        while self.calls:
            self.run_round()


def test_a_host_with_a_thousand_requests_delays_another_by_one() -> None:
    """Otherwise one application with many consumers makes the answers of all others slow."""
    loop, begun = Loop(), list[str]()
    turns = loop.turns(10_000)
    for _ in range(1000):
        enter(turns, Waiting("crowd", begun))
    enter(turns, Waiting("other", begun))
    assert turns.waiting > 900
    loop.run()
    assert begun.index("other") < 40
    assert begun.count("crowd") == 1000


def test_sockets_are_looked_at_between_many_requests() -> None:
    """A crowd that comes at once must not keep the loop from its timers and from other sockets until all are begun."""
    loop, begun = Loop(), list[str]()
    turns = loop.turns(10_000)
    for _ in range(1000):
        enter(turns, Waiting("crowd", begun))
    loop.run_round()
    assert 0 < len(begun) < 100


def test_above_the_limit_requests_wait_until_another_is_over() -> None:
    """Otherwise requests that wait for data pile up without a bound."""
    loop, begun = Loop(), list[str]()
    turns = loop.turns(2)
    for host in "aaaab":
        enter(turns, Waiting(host, begun))
    loop.run()
    assert begun == ["a", "a"]
    assert (turns.at_work, turns.waiting) == (2, 3)
    for expected in "aba":
        turns.leave()
        loop.run()
        assert begun[-1] == expected
    assert loop.rested == 0
    turns.leave()
    turns.leave()
    assert (turns.at_work, loop.rested) == (0, 1)


def test_a_request_that_nobody_wants_any_more_takes_no_place() -> None:
    """Clients that went while they waited must not use up the places of those that stay."""
    loop, begun = Loop(), list[str]()
    turns = loop.turns(1)
    enter(turns, Waiting("first", begun))
    loop.run()
    gone = [Waiting("gone", begun) for _ in range(100)]
    for each in gone:
        enter(turns, each)
    enter(turns, Waiting("here", begun))
    for each in gone:
        turns.withdraw(each.client_host, each.begin)
        turns.withdraw(each.client_host, each.begin)
    assert turns.waiting == 1
    enter(turns, Waiting("unwanted", begun, is_wanted=False))
    turns.leave()
    loop.run()
    assert begun == ["first", "here"]
    turns.leave()
    loop.run()
    assert (turns.at_work, turns.waiting) == (0, 0)


@given(st.lists(st.one_of(st.sampled_from("abc"), st.just("")), max_size=60), st.integers(1, 4))
def test_every_request_begins_once_and_the_limit_holds(events: list[str], limit: int) -> None:
    """A request that is forgotten is a client that waits for ever."""
    loop, begun = Loop(), list[str]()
    turns = loop.turns(limit)
    entered: list[str] = []
    for event in events:
        if event:
            entered.append(event)
            enter(turns, Waiting(event, begun))
        elif turns.at_work:
            turns.leave()
        loop.run_round()
        assert turns.at_work <= limit
    while turns.at_work or turns.waiting:
        loop.run()
        turns.leave()
    assert sorted(begun) == sorted(entered)


def test_a_request_begins_at_once_while_there_are_few() -> None:
    """A round of the loop for each request is time that a client waits for nothing."""
    loop, begun = Loop(), list[str]()
    turns = loop.turns(10_000)
    for _ in range(200):
        enter(turns, Waiting("a", begun))
        loop.now += 0.0005
    assert (len(begun), turns.waiting) == (200, 0)
    assert not loop.calls
