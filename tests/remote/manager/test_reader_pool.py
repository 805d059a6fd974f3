"""The reader threads: calls in order, so many at once, so many waiting, and none lost whatever happens meanwhile."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.tier_tasks import failing
from tierlog.errors import NoThreadError, PoolClosedError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.remote.manager.reader_pool import ReaderPool
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_so_many_run_and_so_many_wait(seed: int) -> None:
    """If this fails, a burst of consumers takes more threads or memory than the operator allows, or reads get lost."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler, ReaderPool(machine, threads=3, pending_max=4) as pool:
        begun: list[int] = []

        def call(number: int) -> None:
            begun.append(number)
            assert pool.running <= 3
            machine.clock.sleep(1)

        for number in range(7):
            pool.submit(lambda number=number: call(number))  # type: ignore[misc]
        with pytest.raises(RetriableRemoteStorageException):
            pool.submit(lambda: call(7))
        machine.clock.sleep(0.5)
        assert (pool.running, pool.waiting, pool.idle_ratio) == (3, 4, 0)
        machine.clock.sleep(5)
        assert begun[3:] == [3, 4, 5, 6]
        assert sorted(begun[:3]) == [0, 1, 2]
        assert (pool.running, pool.waiting, pool.idle_ratio) == (0, 0, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_call_is_withdrawn_until_it_begins(seed: int) -> None:
    """If this fails, the places of clients that went stay taken."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler, ReaderPool(machine, threads=1, pending_max=10) as pool:
        begun: list[int] = []
        calls = [lambda n=n: (begun.append(n), machine.clock.sleep(1))[1] for n in range(4)]  # type: ignore[misc]
        for call in calls:
            pool.submit(call)
        machine.clock.sleep(0.5)
        assert [pool.withdraw(call) for call in calls[:2]] == [False, True]
        assert not pool.withdraw(calls[1])
        machine.clock.sleep(5)
        assert begun == [0, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_change_under_calls(seed: int) -> None:
    """If this fails, calls wait for ever behind a change of the threads' number, or more run than may."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler, ReaderPool(machine, threads=1, pending_max=100) as pool:
        running: list[int] = []

        def call() -> None:
            running.append(pool.running)
            machine.clock.sleep(1)

        for _ in range(9):
            pool.submit(partial(call))
        machine.clock.sleep(0.5)
        pool.resize(4)
        machine.clock.sleep(0.1)
        assert pool.running == 4
        pool.resize(2)
        machine.clock.sleep(1)
        assert pool.running == 2
        machine.clock.sleep(5)
        assert len(running) == 9
        assert (pool.running, pool.waiting) == (0, 0)


def test_a_call_that_fails_takes_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a bug in one read takes a reader thread each time."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler, ReaderPool(machine, threads=1, pending_max=10) as pool:
        done: list[int] = []

        def fail() -> None:
            raise RuntimeError("a bug")

        pool.submit(fail)
        pool.submit(lambda: done.append(1))
        machine.clock.sleep(1)
        assert (done, pool.running) == ([1], 0)
        assert "a bug" in caplog.text
        pool.close()
        with pytest.raises(PoolClosedError):
            pool.submit(fail)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_closed_pool_takes_no_call_while_others_end(seed: int) -> None:
    """If this fails, a read begins behind the close, over managers that are closed; or its client waits for ever."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler, ReaderPool(machine, threads=1, pending_max=10) as pool:
        pool.submit(partial(machine.clock.sleep, 5))
        machine.clock.sleep(1)
        pool.close(wait_seconds=0)
        late: list[int] = []
        with pytest.raises(PoolClosedError):
            pool.submit(lambda: late.append(1))
        assert (pool.running, pool.waiting) == (1, 0)
        machine.clock.sleep(10)
        assert (pool.running, late) == (0, [])


def test_without_a_thread_the_caller_hears_of_it() -> None:
    """If this fails, a read of a process at its limit of threads waits for ever, or comes twice."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler, ReaderPool(machine, threads=1, pending_max=10) as pool:
        done: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool._pool, "call_soon", failing(NoThreadError("no thread")))
            with pytest.raises(NoThreadError):
                pool.submit(lambda: done.append(1))
        assert pool.waiting == 0
        pool.submit(lambda: done.append(2))
        machine.clock.sleep(1)
        assert done == [2]
