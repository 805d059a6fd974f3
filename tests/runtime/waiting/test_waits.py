"""Threads that wait are woken a few at a time, and none is forgotten."""

from __future__ import annotations

import random
import threading
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import ENDLESS_SECONDS, LIMIT_SECONDS, ends
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.waiting.waits import Sleeper, WakeQueue

AT_ONCE = 2


class Bell:
    """A condition that counts the tasks that it woke."""

    def __init__(self) -> None:
        self.rung = 0

    def notify_all(self) -> None:
        self.rung += 1

    def wait(self, timeout: float | None = None) -> bool:
        raise NotImplementedError

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@given(st.integers(0, 2**32))
def test_any_order_of_wakes_and_ends(seed: int) -> None:
    """If this fails, a thread that was to be woken sleeps until its time is up, or all are woken at once."""
    chance = random.Random(seed)
    queue = WakeQueue(Machine().scheduler)
    bells = [Bell() for _ in range(8)]
    sleepers = [Sleeper(bell) for bell in bells]
    runs = [0] * 8  # how often its bell had rung when it last ran
    wanted: set[int] = set()

    def running(number: int, *, for_good: bool) -> None:
        queue.runs(sleepers[number], for_good=for_good)
        wanted.discard(number)
        runs[number] = bells[number].rung
        if for_good:
            bells[number] = Bell()
            sleepers[number] = Sleeper(bells[number])
            runs[number] = 0

    for _ in range(60):
        number = chance.randrange(8)
        if chance.random() < 0.6:
            queue.wake(sleepers[number])
            wanted.add(number)
        else:
            running(number, for_good=chance.random() < 0.4)
        woken = [n for n in range(8) if bells[n].rung > runs[n]]
        assert len(woken) == min(AT_ONCE, len(wanted))
        assert set(woken) <= wanted
        assert all(sleeper.is_called == (n in wanted) for n, sleeper in enumerate(sleepers))
    while wanted:
        running(next(n for n in range(8) if bells[n].rung > runs[n]), for_good=True)


def test_a_wake_after_the_end_takes_no_place() -> None:
    """If this fails, loads that end after their readers gave up keep everybody else asleep for ever."""
    queue = WakeQueue(Machine().scheduler)
    for _ in range(5):
        gone = Sleeper(Bell())
        queue.runs(gone, for_good=True)
        queue.wake(gone)
    bell = Bell()
    queue.wake(Sleeper(bell))
    assert bell.rung == 1


def wait_and_run(queue: WakeQueue, sleeper: Sleeper) -> None:
    with sleeper.changed:
        while not sleeper.is_called:
            sleeper.changed.wait(ENDLESS_SECONDS)
    queue.runs(sleeper, for_good=True)


def test_a_thousand_threads() -> None:
    """If this fails, threads are woken so slowly that it costs more than it saves, or stay asleep."""
    machine = Machine()
    queue = WakeQueue(machine.scheduler)
    sleepers = [Sleeper(machine.scheduler.condition()) for _ in range(1000)]
    threads = [threading.Thread(target=wait_and_run, args=(queue, sleeper)) for sleeper in sleepers]
    for thread in threads:
        thread.start()
    with ends():
        for sleeper in sleepers:
            queue.wake(sleeper)
        for thread in threads:
            thread.join(LIMIT_SECONDS)


def test_any_order_of_threads() -> None:
    """If this fails, some order of the same steps forgets a thread."""
    for seed in range(40):
        machine, scheduler = ManualScheduler.machine(seed)
        with scheduler:
            queue = WakeQueue(scheduler)
            sleepers = [Sleeper(scheduler.condition()) for _ in range(6)]
            waits = [scheduler.start(partial(wait_and_run, queue, sleeper), name="wait") for sleeper in sleepers]
            wakes = [scheduler.start(partial(queue.wake, sleeper), name="wake") for sleeper in sleepers]
            for future in (*waits, *wakes):
                future.result()
            assert machine.clock.monotonic_seconds() < 60
