"""What a log leaves for later."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.support.forked import told_by_fork
from tests.support.waiting import LIMIT_SECONDS
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_at_its_time(seed: int) -> None:
    """If this fails, a file is removed while it is still read, or never."""
    machine, scheduler = ManualScheduler.machine(seed)
    start, called = machine.clock.time_ms(), []
    with scheduler, BackgroundTasks(machine) as tasks:
        for delay_ms in (3000, 1000, 2000, 0):
            tasks.submit(lambda d=delay_ms: called.append((d, machine.clock.time_ms() - start)), delay_ms=delay_ms)  # type: ignore[misc]
        machine.clock.sleep(10)
        assert called == [(0, 0), (1000, 1000), (2000, 2000), (3000, 3000)]
        assert scheduler.unfinished == []  # no thread stays without work
        tasks.submit(lambda: called.append((7, 7)))
        machine.clock.sleep(0.001)
        assert called[-1] == (7, 7)


@pytest.mark.parametrize("seed", SEEDS)
def test_again_and_again(seed: int) -> None:
    """If this fails, retention runs once, or a slow run is followed by all those that it delayed."""
    machine, scheduler = ManualScheduler.machine(seed)
    start, called = machine.clock.monotonic_seconds(), []

    def slow() -> None:
        called.append(round(machine.clock.monotonic_seconds() - start))
        if len(called) == 2:
            machine.clock.sleep(35)

    with scheduler, BackgroundTasks(machine) as tasks:
        tasks.submit_every(10_000, slow, delay_ms=5_000)
        machine.clock.sleep(80)
    assert called == [5, 15, 50, 60, 70, 80][: len(called)]
    assert len(called) >= 5


@pytest.mark.parametrize("seed", SEEDS)
def test_closing_waits_and_drops(seed: int) -> None:
    """If this fails, a task touches a directory that another process has by then."""
    machine, scheduler = ManualScheduler.machine(seed)
    called: list[str] = []

    def long() -> None:
        machine.clock.sleep(5)
        called.append("ended")

    with scheduler:
        tasks = BackgroundTasks(machine)
        tasks.submit(long)
        tasks.submit(lambda: called.append("dropped"), delay_ms=1)
        machine.clock.sleep(1)
        tasks.close()
        assert called == ["ended"]
        assert scheduler.unfinished == []
        tasks.close()
        tasks.submit(lambda: called.append("late"))
        machine.clock.sleep(9)
        assert called == ["ended"]


def test_one_that_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, one fault ends retention and checkpoints for good, and nobody is told."""
    machine, scheduler = ManualScheduler.machine(1)
    called: list[int] = []
    with scheduler, BackgroundTasks(machine) as tasks, caplog.at_level(logging.ERROR):
        tasks.submit_every(10, lambda: called.remove(7), delay_ms=0)
        tasks.submit(lambda: called.append(1), delay_ms=15)
        machine.clock.sleep(1)
    assert called == [1]
    assert "a task failed" in caplog.text


def test_on_threads() -> None:
    """If this fails, nothing of this works outside of a simulation; centuries are no error."""
    done = threading.Event()
    with BackgroundTasks(Machine()) as tasks:
        tasks.submit(done.set, delay_ms=2**63 - 1)
        assert not done.wait(0.05)
        tasks.submit(done.set, delay_ms=20)
        assert done.wait(LIMIT_SECONDS)
    assert "tierlog-log-tasks" not in {thread.name for thread in threading.enumerate()}


def test_a_fork_does_not_wait_for_the_parents_thread() -> None:
    """If this fails, a child that leaves its `with` block hangs."""
    with BackgroundTasks(Machine()) as tasks:
        tasks.submit(lambda: None, delay_ms=60_000)
        assert told_by_fork(lambda: tasks.submit(lambda: None), tasks.close) == ["None", "None"]
