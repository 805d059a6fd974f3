"""One suite for every scheduler: the machine's threads, and the one that tests drive by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Clock, SystemClock
from tierlog.runtime.machine.scheduling import PendingFuture, Scheduler
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.waiting.threads import Arrivals, Event, run_all


@pytest.fixture(params=["threads", 1, 2, 3])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    if request.param == "threads":
        yield Machine()
        return
    made, scheduler = ManualScheduler.machine(request.param)
    with scheduler:
        yield made


@pytest.fixture
def scheduler(machine: Machine) -> Scheduler:
    return machine.scheduler


class TestPools:
    """What everything that runs side by side relies on."""

    @pytest.mark.parametrize("workers", [0, 1, 3])
    def test_results_and_errors_come_back(self, scheduler: Scheduler, workers: int) -> None:
        """If this fails, a failed upload is taken for a done one."""
        with scheduler.pool(workers, name="t") as pool:
            assert pool.submit(lambda: 41 + 1).result() == 42
            failed = pool.submit(lambda: 1 // 0)
            assert isinstance(failed.exception(), ZeroDivisionError)
            with pytest.raises(ZeroDivisionError):
                failed.result()
            assert failed.done()
            assert not failed.cancelled()
        pool.close()
        with pytest.raises(RuntimeError):
            pool.submit(lambda: None)

    def test_no_more_than_its_workers_run_at_once(self, machine: Machine) -> None:
        """If this fails, a limit of requests or of memory under way holds nothing."""
        lock, running, most = machine.scheduler.lock(), 0, 0

        def work() -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            machine.clock.sleep(0.002)
            with lock:
                running -= 1

        with machine.scheduler.pool(3, name="t") as pool:
            for future in [pool.submit(work) for _ in range(20)]:
                future.result()
        assert most == 3

    def test_closing_cancels_what_has_not_begun(self, scheduler: Scheduler) -> None:
        """If this fails, a reader that is closed waits for everything that it had asked for."""
        begun, go = Event(scheduler), Event(scheduler)

        def held() -> str:
            begun.set()
            go.wait()
            return "held"

        pool = scheduler.pool(1, name="t")
        first, second = pool.submit(held), pool.submit(lambda: "never")
        begun.wait()
        assert not first.cancel()
        assert second.cancel()
        third = pool.submit(lambda: "never either")
        third.add_done_callback(lambda _: go.set())
        pool.close()
        assert first.result() == "held"
        for future in (second, third):
            assert future.cancelled()
            with pytest.raises(CancelledError):
                future.result()

    def test_closing_can_let_the_rest_run(self, scheduler: Scheduler) -> None:
        """If this fails, what was promised to be written before the end is lost."""
        pool = scheduler.pool(2, name="t")
        futures = [pool.submit(lambda number=number: number) for number in range(10)]  # type: ignore[misc]
        pool.close(cancel=False)
        assert [future.result() for future in futures] == list(range(10))

    @pytest.mark.parametrize("workers", [0, 4])
    def test_run_all_keeps_the_order(self, machine: Machine, workers: int) -> None:
        """If this fails, one partition gets the answer of another."""

        def slow(number: int) -> int:
            machine.clock.sleep(0.001 * (10 - number))
            return number

        with machine.scheduler.pool(workers, name="t") as pool:
            assert list(run_all(pool, slow, range(10))) == list(range(10))

    def test_run_all_stops_at_an_error(self, scheduler: Scheduler) -> None:
        """If this fails, a plan that cannot succeed asks for thousands of objects first."""
        ran, told = [], Event(scheduler)

        def work(number: int) -> int:
            ran.append(number)
            if number:  # begun before the error was told: the others must not begin
                told.wait()
            return 1 // number

        with scheduler.pool(1, name="t") as pool:
            with pytest.raises(ZeroDivisionError):
                list(run_all(pool, work, range(1000)))
            told.set()
        assert len(ran) <= 2


class TestWaiting:
    """Conditions, and what is made of them."""

    def test_conditions_wake_and_time_out(self, machine: Machine) -> None:
        """If this fails, a consumer sleeps for ever, or spins."""
        changed, items = machine.scheduler.condition(), []
        with changed:
            start = machine.clock.monotonic_seconds()
            assert not changed.wait(0.01)
        assert machine.clock.monotonic_seconds() - start >= 0.009

        def produce() -> None:
            for number in range(5):
                machine.clock.sleep(0.001)
                with changed:
                    items.append(number)
                    changed.notify_all()

        machine.scheduler.start(produce, name="producer")
        with changed:
            while len(items) < 5:
                assert changed.wait(60)
        assert items == list(range(5))

    def test_locks_exclude(self, machine: Machine) -> None:
        """If this fails, two threads count bytes of a budget and both are wrong."""
        lock, total = machine.scheduler.lock(), 0

        def add() -> None:
            nonlocal total
            for _ in range(20):
                with lock:
                    seen = total
                    machine.clock.sleep(0.0001)
                    total = seen + 1

        with machine.scheduler.pool(4, name="t") as pool:
            for future in [pool.submit(add) for _ in range(4)]:
                future.result()
        assert total == 80

    def test_events(self, machine: Machine) -> None:
        """If this fails, a watchdog does not notice that it is to end."""
        event = Event(machine.scheduler)
        assert not event.wait(0.005)
        assert not event.is_set

        def later() -> None:
            machine.clock.sleep(0.002)
            event.set()

        machine.scheduler.start(later, name="t")
        assert event.wait(60)
        event.set()
        assert event.is_set
        assert event.wait()

    def test_the_first_of_several(self, machine: Machine) -> None:
        """If this fails, a verification waits for its slowest segment before it begins another."""
        arrivals: Arrivals[str] = Arrivals(machine.scheduler)

        def after(seconds: float, name: str) -> str:
            machine.clock.sleep(seconds)
            return name

        with machine.scheduler.pool(2, name="t") as pool:
            arrivals.add(pool.submit(lambda: after(0.2, "slow")))
            arrivals.add(pool.submit(lambda: after(0.001, "quick")))
            assert len(arrivals) == 2
            assert [arrivals.take().result(), arrivals.take().result()] == ["quick", "slow"]
        assert not arrivals
        with pytest.raises(LookupError):
            arrivals.take()


class TestFutures:
    """Futures that somebody fills."""

    def test_one_fills_and_many_wait(self, machine: Machine) -> None:
        """If this fails, single flight answers one caller and leaves the others waiting."""
        future: PendingFuture[bytes] = machine.scheduler.future()
        told: list[bytes] = []
        future.add_done_callback(lambda done: told.append(done.result()))
        assert not future.cancel()
        assert not future.done()
        with pytest.raises(TimeoutError):
            future.result(0.005)
        with machine.scheduler.pool(3, name="t") as pool:
            waiting = [pool.submit(future.result) for _ in range(3)]
            machine.clock.sleep(0.002)
            future.set_result(b"chunk")
            assert [each.result() for each in waiting] == [b"chunk"] * 3
        future.add_done_callback(lambda done: told.append(done.result()))
        assert told == [b"chunk", b"chunk"]

    def test_errors_reach_all_who_wait(self, scheduler: Scheduler) -> None:
        """If this fails, the second reader of a failed download hangs."""
        future: PendingFuture[bytes] = scheduler.future()
        future.set_exception(KeyError("gone"))
        assert isinstance(future.exception(), KeyError)
        with pytest.raises(KeyError):
            future.result()

    def test_a_thread_that_fails_says_so(self, scheduler: Scheduler) -> None:
        """If this fails, an out-of-memory error ends a copy silently, which is what the plugin does."""

        def fails() -> None:
            raise MemoryError("no")

        assert isinstance(scheduler.start(fails, name="t").exception(), MemoryError)


def test_there_is_a_core() -> None:
    """If this fails, a pool of one worker a core has none."""
    assert ThreadScheduler().cores >= 1


def test_the_machine_is_this_machine() -> None:
    """If this fails, code that is given no machine runs on another clock than the user's."""
    clock: Clock = Machine().clock
    assert isinstance(clock, SystemClock)
