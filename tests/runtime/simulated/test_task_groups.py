"""Groups of tasks: simulated processes that stop for a while, or for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tierlog.runtime.simulated.manual_scheduler import (
    AbandonedError,
    ManualScheduler,
    SkewedClock,
    StuckError,
    TaskGroup,
)


@pytest.fixture
def scheduler() -> Iterator[ManualScheduler]:
    with ManualScheduler(1) as made:
        yield made


def ticking(scheduler: ManualScheduler, group: TaskGroup, lines: list[str]) -> Callable[[], None]:
    """A task that writes the time each second, and says when it ends."""

    def run() -> None:
        try:
            while True:
                lines.append(f"{scheduler.clock.monotonic_seconds():.1f}")
                scheduler.clock.sleep(1)
        finally:
            lines.append("ended")

    return run


class TestAbandoning:
    def test_no_finally_of_an_abandoned_task_runs(self, scheduler: ManualScheduler) -> None:
        """If this fails, a simulated crash tidies up behind itself, as no power cut does."""
        group, lines = scheduler.group("broker"), list[str]()
        group.start(ticking(scheduler, group, lines), name="tick")
        scheduler.clock.sleep(1.5)
        assert group.unfinished == ["tick"]
        group.abandon()
        scheduler.clock.sleep(5)
        scheduler.close()
        assert lines == ["0.0", "1.0"]
        assert group.unfinished == []

    def test_its_objects_can_be_used_by_nobody(self, scheduler: ManualScheduler) -> None:
        """If this fails, a message to a crashed broker changes what it left."""
        group = scheduler.group("broker")
        lock, condition, future = group.lock(), group.condition(), group.future()
        group.abandon()
        for use in (lock.__enter__, condition.__enter__, future.result):
            with pytest.raises(AbandonedError):
                use()
        with pytest.raises(AbandonedError):
            group.start(lambda: None, name="late")

    def test_a_lock_that_it_held_stays_taken(self, scheduler: ManualScheduler) -> None:
        group, lock = scheduler.group("broker"), scheduler.lock()

        def hold() -> None:
            with lock:
                scheduler.clock.sleep(1)

        group.start(hold, name="hold")
        scheduler.clock.sleep(0.5)
        group.abandon()
        with pytest.raises(StuckError):
            lock.__enter__()

    def test_a_task_does_not_abandon_its_own_group(self, scheduler: ManualScheduler) -> None:
        group = scheduler.group("broker")
        with pytest.raises(RuntimeError):
            group.start(group.abandon, name="itself").result()


class TestPauses:
    def test_time_limits_that_passed_are_over_at_the_resume(self, scheduler: ManualScheduler) -> None:
        """If this fails, a paused broker does not see how late it is when it goes on."""
        group, lines = scheduler.group("broker"), list[str]()
        group.start(ticking(scheduler, group, lines), name="tick")
        scheduler.clock.sleep(0.5)
        group.pause()
        scheduler.clock.sleep(5)
        assert lines == ["0.0"]
        group.resume()
        scheduler.clock.sleep(2)
        group.abandon()
        assert lines[:3] == ["0.0", "5.5", "6.5"]

    def test_a_task_that_is_begun_or_woken_meanwhile_waits(self, scheduler: ManualScheduler) -> None:
        group, future, lines = scheduler.group("broker"), scheduler.future(), list[str]()
        group.start(lambda: lines.append(str(future.result())), name="waits")
        scheduler.clock.sleep(1)
        group.pause()
        future.set_result("woken")
        group.start(lambda: lines.append("begun"), name="begun")
        scheduler.clock.sleep(1)
        assert lines == []
        group.resume()
        scheduler.clock.sleep(1)
        assert sorted(lines) == ["begun", "woken"]

    def test_one_that_crashes_while_it_is_paused_never_goes_on(self, scheduler: ManualScheduler) -> None:
        group, lines = scheduler.group("broker"), list[str]()
        group.start(ticking(scheduler, group, lines), name="tick")
        scheduler.clock.sleep(0.5)
        group.pause()
        scheduler.clock.sleep(2)
        group.abandon()
        group.resume()
        scheduler.clock.sleep(2)
        assert lines == ["0.0"]


class TestCalls:
    def test_calls_are_made_in_the_order_of_their_times(self, scheduler: ManualScheduler) -> None:
        made: list[str] = []
        scheduler.call_later(2, lambda: made.append("second"))
        scheduler.call_later(1, lambda: made.append("first"))
        scheduler.clock.sleep(3)
        assert made == ["first", "second"]

    @pytest.mark.parametrize("where", ["call", "task"])
    def test_a_failure_reaches_the_maker_wherever_it_waits(self, scheduler: ManualScheduler, where: str) -> None:
        """If this fails, code that swallows errors hides what a judge has found."""

        def fail() -> None:
            try:
                scheduler.fail(AssertionError("found"))
            except AssertionError:
                pass

        if where == "call":
            scheduler.call_later(1, fail)
        else:
            scheduler.group("broker").start(lambda: (scheduler.clock.sleep(1), fail())[1], name="fails")
        with pytest.raises(AssertionError, match="found"):
            scheduler.clock.sleep(5)


class TestSkew:
    def test_a_clock_is_wrong_by_its_skew_drift_and_jumps(self, scheduler: ManualScheduler) -> None:
        clock = SkewedClock(scheduler.clock, skew_ms=500, drift=0.01)
        scheduler.clock.sleep(100)
        assert clock.time_ms() - scheduler.clock.time_ms() == 1500
        clock.jump(-10_000)
        assert clock.time_ms() - scheduler.clock.time_ms() == -8500
        assert clock.monotonic_seconds() == scheduler.clock.monotonic_seconds()


class TestStalls:
    def test_a_task_stands_still_and_the_others_go_on(self, scheduler: ManualScheduler) -> None:
        """If this fails, no simulated thread is ever late: what others may change meanwhile is not tried."""
        slow, quick, lines = scheduler.group("slow"), scheduler.group("quick"), list[str]()
        locks = {group.name: group.lock() for group in (slow, quick)}

        def take(group: TaskGroup) -> None:
            with locks[group.name]:
                lines.append(f"{group.name} {scheduler.clock.monotonic_seconds():.1f}")

        stalls = iter((2.0, 0.0))
        slow.stall = lambda: next(stalls)
        slow.spawn(lambda: take(slow), name="first")
        slow.spawn(lambda: take(slow), name="second")
        quick.spawn(lambda: take(quick), name="third")
        scheduler.clock.sleep(5)
        assert sorted(lines[:2]) == ["quick 0.0", "slow 0.0"]
        assert lines[2:] == ["slow 2.0"]

    def test_nobody_else_stands_still_in_its_place(self, scheduler: ManualScheduler) -> None:
        """If this fails, the task of the test waits where it asks a simulated process something."""
        group = scheduler.group("broker")
        lock = group.lock()
        group.stall = lambda: 60.0
        with lock:
            assert scheduler.clock.monotonic_seconds() == 0.0
