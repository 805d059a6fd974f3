"""Tasks at their times: from a seed, and in threads."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tierlog.errors import NoThreadError
from tierlog.remote.manager import task_schedule
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Pool
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

INTERVAL = 30.0


@pytest.fixture(params=range(3))
def simulated(request: pytest.FixtureRequest) -> Iterator[Machine]:
    machine, scheduler = ManualScheduler.machine(request.param)
    with scheduler:
        yield machine
        assert scheduler.unfinished == []


class Runs:
    """The times of a task's runs."""

    def __init__(self, machine: Machine, *answers: float | None, seconds: float = 0.0) -> None:
        self._clock = machine.clock
        self._answers = iter(answers)
        self._seconds = seconds
        self.at: list[float] = []

    def run(self) -> float | None:
        self.at.append(round(self._clock.monotonic_seconds(), 1))
        self._clock.sleep(self._seconds)
        return next(self._answers, INTERVAL)


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    late = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < late, "it never does"
        time.sleep(0.002)


class TestTimes:
    """When runs begin."""

    def test_the_next_run_is_an_interval_behind_the_end_of_the_last(self, simulated: Machine) -> None:
        """A store that is slow must not be asked without a pause, nor a task run twice at once."""
        with TaskSchedule(simulated, name="copy", workers=2) as schedule:
            slow, late = Runs(simulated, seconds=45), Runs(simulated)
            schedule.add(slow.run)
            schedule.add(late.run, delay_seconds=10)
            simulated.clock.sleep(205)
        assert slow.at == [0, 75, 150]
        assert late.at == pytest.approx([10, 40, 70, 100, 130, 160, 190], abs=0.2)

    def test_tasks_with_long_intervals_fall_due_together(self, simulated: Machine) -> None:
        """Ten thousand partitions with nothing to do must not wake a thread for each."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            runs = [Runs(simulated) for _ in range(20)]
            for number, each in enumerate(runs):
                schedule.add(each.run, delay_seconds=number / 100)
            simulated.clock.sleep(INTERVAL + 2)
        first, second = ({each.at[number] for each in runs} for number in (0, 1))
        assert len(first) > 1
        assert len(second) <= 2
        assert all(INTERVAL <= each.at[1] - each.at[0] <= INTERVAL + 1 for each in runs)

    def test_a_partition_with_much_to_do_goes_behind_the_others(self, simulated: Machine) -> None:
        """A hundred segments of one partition would keep a new segment of another local for an hour."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            full, other = Runs(simulated, *[0.0] * 9, None, seconds=60), Runs(simulated, None)
            schedule.add(full.run)
            simulated.clock.sleep(1)
            schedule.add(other.run)
            simulated.clock.sleep(1000)
        assert other.at == [60]
        assert full.at == [60 * number for number in range(10)]

    def test_a_task_behind_another_one(self, simulated: Machine) -> None:
        """If this fails, of a partition two copies run at once; or one never begins, or begins after its end."""
        with TaskSchedule(simulated, name="copy", workers=3) as schedule:
            first = Runs(simulated, seconds=50)
            before = schedule.add(first.run)
            simulated.clock.sleep(1)
            runs = [Runs(simulated, None) for _ in range(3)]
            behind = [schedule.add_behind(before, each.run) for each in runs]
            for task in behind:
                task.wake()
            behind[1].drop()
            assert behind[2].end().done()
            simulated.clock.sleep(48)
            assert (schedule.running, schedule.waiting) == (1, 0)
            simulated.clock.sleep(100)
            late = Runs(simulated, None)
            schedule.add_behind(before, late.run)
            simulated.clock.sleep(1)
        assert first.at == [0]
        assert [each.at for each in runs] == [[50], [], []]
        assert late.at == [149]

    def test_what_is_dropped_is_not_referenced(self, simulated: Machine) -> None:
        """If this fails, answers of fetches stay in memory until the deadlines that they did not need."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            runs = Runs(simulated)
            gone = weakref.ref(runs)
            task = schedule.add(runs.run, delay_seconds=100)
            task.drop()
            del runs
            assert gone() is None
            simulated.clock.sleep(200)

    def test_a_run_that_raises_is_tried_again(self, simulated: Machine, caplog: pytest.LogCaptureFixture) -> None:
        """A fault in one partition's task ends neither that task nor the thread."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            runs = Runs(simulated)

            def fails() -> float:
                runs.run()
                raise RuntimeError("a fault")

            schedule.add(fails)
            other = Runs(simulated)
            schedule.add(other.run)
            simulated.clock.sleep(70)
        assert len(runs.at) == len(other.at) == 3
        assert "a fault" in caplog.text

    def test_wake(self, simulated: Machine) -> None:
        """A notice that comes while a run goes on may be about what the run has passed already: one more follows."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            runs = Runs(simulated, seconds=10)
            task = schedule.add(runs.run)
            simulated.clock.sleep(15)
            task.wake()
            task.wake()
            simulated.clock.sleep(5)
            task.wake()
            task.wake()
            simulated.clock.sleep(60)
        assert runs.at == pytest.approx([0, 15, 25, 65], abs=0.1)

    def test_tasks_that_are_woken_often_take_no_memory(self, simulated: Machine) -> None:
        """Each notice of ten thousand partitions left a place in the heap until the interval's end."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            task = schedule.add(Runs(simulated).run)
            for _ in range(2000):
                simulated.clock.sleep(0.01)
                task.wake()
            assert len(schedule._times) < 1000


class TestEnds:
    """Tasks that end, and schedules that close."""

    def test_an_end_waits_for_the_present_run(self, simulated: Machine) -> None:
        """A deletion of a partition must not meet a copy of it."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            runs = Runs(simulated, seconds=10)
            task = schedule.add(runs.run)
            simulated.clock.sleep(5)
            ended = task.end()
            assert not ended.done()
            assert task.end() is ended
            ended.result(20)
            assert simulated.clock.monotonic_seconds() == pytest.approx(10)
            task.wake()
            simulated.clock.sleep(100)
        assert runs.at == [0]

    def test_an_end_between_runs(self, simulated: Machine) -> None:
        """It is done at once: nobody waits an interval for nothing."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            blocked, waiting, ended = Runs(simulated, None, seconds=50), Runs(simulated), Runs(simulated, None)
            tasks = [schedule.add(each.run) for each in (blocked, waiting)]
            last = schedule.add(ended.run, delay_seconds=100)
            simulated.clock.sleep(5)
            assert tasks[1].end().done()
            simulated.clock.sleep(200)
            assert last.end().done()
        assert waiting.at == []
        assert ended.at == [pytest.approx(100, abs=0.1)]

    def test_what_an_end_calls_may_call_the_schedule(self, simulated: Machine) -> None:
        """A callback under the lock waits for itself."""
        with TaskSchedule(simulated, name="copy", workers=1) as schedule:
            runs = Runs(simulated, None)
            added: list[object] = []
            running, idle = schedule.add(Runs(simulated, seconds=5).run), schedule.add(Runs(simulated).run)
            simulated.clock.sleep(1)
            for task in (running, idle):
                task.end().add_done_callback(lambda _: added.append(schedule.add(runs.run)))
            simulated.clock.sleep(10)
        assert len(added) == 2
        assert len(runs.at) == 2

    def test_close_waits_for_runs_and_begins_none(self, simulated: Machine) -> None:
        """A run that outlives the close writes to managers that are closed."""
        schedule = TaskSchedule(simulated, name="copy", workers=1)
        runs, other = Runs(simulated, 0.0, seconds=6), Runs(simulated)
        for each in (runs, other):
            schedule.add(each.run)
        simulated.clock.sleep(1)
        schedule.close(wait_seconds=10)
        assert simulated.clock.monotonic_seconds() == pytest.approx(6)
        assert schedule.running == 0
        schedule.close()
        schedule.add(other.run).wake()
        schedule.resize(5)
        simulated.clock.sleep(100)
        assert len(runs.at) + len(other.at) == 1

    def test_close_waits_no_longer_than_it_may(self, simulated: Machine) -> None:
        """A store that hangs must not keep a broker from its end."""
        schedule = TaskSchedule(simulated, name="copy", workers=2)
        schedule.add(Runs(simulated, seconds=500).run)
        simulated.clock.sleep(1)
        schedule.resize(4)  # the run goes on in a thread of the earlier pool
        schedule.close(wait_seconds=10)
        assert simulated.clock.monotonic_seconds() == pytest.approx(11)
        assert schedule.running == 1
        simulated.clock.sleep(500)
        assert schedule.running == 0


class TestThreads:
    """In threads of this process."""

    @pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
    def test_resize(self, before: int, after: int) -> None:
        """A number of threads that is changed in operation counts at once, and no run is cut short."""
        machine, gate, running = Machine(), threading.Event(), []

        def run() -> float:
            running.append(threading.get_ident())
            gate.wait(20)
            return 0.0

        with TaskSchedule(machine, name="copy", workers=before) as schedule:
            for _ in range(8):
                schedule.add(run)
            until(lambda: len(running) == before)
            schedule.resize(after)
            if after > before:
                until(lambda: schedule.running == after)
            gate.set()
            until(lambda: len(running) > 50)
            gate.clear()
            until(lambda: schedule.running == after)
            time.sleep(0.05)
            assert schedule.running == after
            gate.set()
        assert schedule.running == 0

    def test_a_run_that_ends_its_thread(self) -> None:
        """Another thread begins, and the numbers are right: else one such run stops all copies of a broker."""
        runs: list[str] = []

        def ends() -> float:
            runs.append("ends")
            raise SystemExit

        with TaskSchedule(Machine(), name="copy", workers=1) as schedule:
            schedule.add(ends)
            until(lambda: runs == ["ends"] and schedule.running == 0)
            schedule.add(lambda: runs.append("other"))
            until(lambda: runs == ["ends", "other"])
            until(lambda: schedule.running == 0)

    def test_ten_thousand_tasks(self) -> None:
        """Every partition has its turn, however many there are and though one of four threads hangs."""
        counts, gate = [0] * 10_000, threading.Event()

        def run(number: int) -> float:
            counts[number] += 1
            return INTERVAL

        def hangs() -> float:
            gate.wait(20)
            return INTERVAL

        with TaskSchedule(Machine(), name="copy", workers=4) as schedule:
            schedule.add(hangs)
            tasks = [schedule.add(partial(run, number)) for number in range(10_000)]
            until(lambda: min(counts) == 1)
            assert schedule.waiting == 0
            for task in tasks:
                task.wake()
            until(lambda: min(counts) == 2)
            for task in tasks:
                task.end().result(20)
            gate.set()

    def test_a_task_runs_once_at_a_time(self) -> None:
        """Two copies of one segment at once are two segments in the tier."""
        busy, most, runs = [0], [0], [0]

        def run() -> float:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
            runs[0] += 1
            time.sleep(0.0005)
            busy[0] -= 1
            return 0.0 if runs[0] % 3 else INTERVAL

        with TaskSchedule(Machine(), name="copy", workers=4) as schedule:
            task = schedule.add(run)
            others = [schedule.add(lambda: 0.0) for _ in range(3)]

            def wakes() -> None:
                while runs[0] < 100:
                    task.wake()

            threads = [threading.Thread(target=wakes) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            for other in others:
                other.end().result(20)
        assert runs[0] >= 100
        assert most[0] == 1

    def test_without_threads_tasks_wait(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A process at its limit of threads copies later, and needs no restart."""
        refused = [2]

        class FewThreads(ThreadScheduler):
            def pool(self, workers: int, *, name: str) -> Pool:
                pool = super().pool(workers, name=name)
                submit = pool.submit

                def limited(function: Callable[[], object], /) -> object:
                    if refused[0]:
                        refused[0] -= 1
                        raise NoThreadError("no thread")
                    return submit(function)

                monkeypatch.setattr(pool, "submit", limited)
                return pool

        monkeypatch.setattr(task_schedule, "_NO_THREAD_SECONDS", 0.05)
        runs = [0]

        def run() -> None:
            runs[0] += 1

        with TaskSchedule(Machine(scheduler=FewThreads()), name="copy", workers=1) as schedule:
            schedule.add(run)
            until(lambda: runs == [1])
        assert "tasks wait for a thread" in caplog.text
