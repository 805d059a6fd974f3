"""The scheduler of one thread: a run repeats from its seed, and what hangs says so."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import StoreError
from tierlog.remote.tier import Tier, open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler, StuckError
from tierlog.runtime.waiting.threads import OrderedCalls
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.parallel_scan import ParallelScan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest, TopicSelection
from tierlog.upkeep.verification.verification import Verification

SEEDS = range(10)


def on_seed(seed: int, action: Callable[[Machine], object]) -> object:
    """What it gives; without a thread, and without work left behind."""
    threads = threading.active_count()
    machine, scheduler = ManualScheduler.machine(seed, PosixFiles())
    with scheduler:
        result = action(machine)
        assert scheduler.unfinished == []
    assert threading.active_count() == threads
    return result


def interleaved(machine: Machine) -> list[str]:
    """In which order three workers get to write."""
    lines: list[str] = []
    lock = machine.scheduler.lock()

    def work(name: str) -> None:
        for number in range(5):
            with lock:
                lines.append(f"{name}{number}")

    with machine.scheduler.pool(3, name="t") as pool:
        for future in [pool.submit(lambda name=name: work(name)) for name in "abc"]:  # type: ignore[misc]
            future.result()
    return lines


class TestOrder:
    """Which task goes on, and when."""

    def test_a_seed_repeats_a_run(self) -> None:
        """If this fails, a failure that a simulation found cannot be looked at again."""
        runs = [on_seed(seed, interleaved) for seed in SEEDS]
        assert runs == [on_seed(seed, interleaved) for seed in SEEDS]

    def test_seeds_differ(self) -> None:
        """If this fails, a thousand seeds try one order, and no race is ever found."""
        assert len({tuple(on_seed(seed, interleaved)) for seed in SEEDS}) >= 8  # type: ignore[arg-type]

    def test_a_race_is_found(self) -> None:
        """If this fails, a lock that is missing in the code is not missed in the tests."""

        def lost(machine: Machine) -> int:
            lock, total = machine.scheduler.lock(), 0

            def add() -> None:
                nonlocal total
                for _ in range(5):
                    seen = total
                    with lock:  # too late
                        total = seen + 1

            with machine.scheduler.pool(2, name="t") as pool:
                for future in [pool.submit(add) for _ in range(2)]:
                    future.result()
            return total

        assert min(on_seed(seed, lost) for seed in SEEDS) < 10  # type: ignore[type-var]

    def test_time_moves_when_all_wait(self) -> None:
        """If this fails, a simulated hour takes an hour, or a time limit never ends."""

        def hours(machine: Machine) -> list[tuple[str, float]]:
            told: list[tuple[str, float]] = []

            def after(name: str, seconds: float) -> None:
                machine.clock.sleep(seconds)
                told.append((name, machine.clock.monotonic_seconds()))

            with machine.scheduler.pool(3, name="t") as pool:
                futures = [
                    pool.submit(lambda: after("hour", 3600)),
                    pool.submit(lambda: after("minute", 60)),
                    pool.submit(lambda: after("day", 86_400)),
                ]
                with pytest.raises(TimeoutError):
                    futures[0].result(1000)
                assert machine.clock.monotonic_seconds() == 1000
                for future in futures:
                    future.result()
            return told

        for seed in SEEDS:
            assert on_seed(seed, hours) == [("minute", 60), ("hour", 3600), ("day", 86_400)]

    def test_a_sleep_is_never_short(self) -> None:
        """If this fails, a wait that timed out long ago ends another one early, and a limiter lets too much through."""

        def sleeps(machine: Machine) -> float:
            future = machine.scheduler.future()
            with pytest.raises(TimeoutError):
                future.result(1)
            machine.scheduler.start(lambda: future.set_result(None), name="fills")
            machine.clock.sleep(10)
            return machine.clock.monotonic_seconds()

        for seed in SEEDS:
            assert on_seed(seed, sleeps) == 11


class TestTrouble:
    """What hangs in production is an error here."""

    def test_a_deadlock_is_an_error(self) -> None:
        """If this fails, a deadlock is a test that hangs, with nothing to look at."""
        stuck = 0
        for seed in SEEDS:
            machine, scheduler = ManualScheduler.machine(seed)
            first, second = machine.scheduler.lock(), machine.scheduler.lock()

            def both(one: object, other: object) -> None:
                with one, other:  # type: ignore[attr-defined]
                    pass

            with scheduler:
                pool = machine.scheduler.pool(2, name="crossed")
                futures = [
                    pool.submit(lambda one=first, other=second: both(one, other)),  # type: ignore[misc]
                    pool.submit(lambda one=second, other=first: both(one, other)),  # type: ignore[misc]
                ]
                try:
                    for future in futures:
                        future.result()
                except StuckError as error:
                    stuck += "crossed" in str(error)
        assert 0 < stuck < len(SEEDS)

    def test_a_lock_is_not_taken_twice(self) -> None:
        """If this fails, code that hangs with real threads passes here."""
        _, scheduler = ManualScheduler.machine(1)
        lock = scheduler.lock()
        with scheduler, lock, pytest.raises(RuntimeError, match="again"):
            lock.__enter__()

    def test_a_condition_must_be_held(self) -> None:
        """If this fails, code that raises with real threads passes here."""
        _, scheduler = ManualScheduler.machine(1)
        with scheduler:
            changed = scheduler.condition()
            with pytest.raises(RuntimeError, match="holder"):
                changed.notify_all()
            with pytest.raises(RuntimeError, match="holder"):
                changed.wait(1)

    def test_what_is_left_running_is_named_and_ended(self) -> None:
        """If this fails, a watchdog that nobody stops is not seen, and its finally blocks never run."""
        machine, scheduler = ManualScheduler.machine(1)
        ended = []

        def watch() -> None:
            try:
                while True:
                    machine.clock.sleep(1)
            finally:
                ended.append("watch")

        with scheduler:
            scheduler.start(watch, name="watchdog")
            machine.clock.sleep(10)
            assert scheduler.unfinished == ["watchdog"]
            assert ended == []
        assert ended == ["watch"]
        assert scheduler.unfinished == []

    def test_other_threads_are_refused(self) -> None:
        """If this fails, a real thread that slipped in breaks the run somewhere else."""
        _, scheduler = ManualScheduler.machine(1)
        found: list[type[BaseException]] = []

        def call() -> None:
            try:
                scheduler.current()
            except StuckError:
                found.append(StuckError)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        scheduler.close()
        assert found == [StuckError]


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    made = Bucket(tmp_path)
    for number in range(5):
        offsets = range(3 * number, 3 * number + 3)
        made.segment(f"s{number}", [message(offset, f"m{offset}", 0) for offset in offsets], lineage={0: 0})
    return made


def opened(bucket: Bucket, machine: Machine) -> Tier:
    return open_tier(str(bucket.root), machine=machine)


class TestOurCode:
    """The code that runs calls side by side, without a thread: any order of turns gives what one worker gives."""

    def test_background(self) -> None:
        """If this fails, results of store calls come in the order in which they were done."""

        def run(machine: Machine) -> list[object]:
            calls = OrderedCalls(3, machine, "the tier")

            def call(number: int) -> int:
                machine.clock.sleep(machine.rng.uniform(0, 1))
                if number == 7:
                    raise StoreError("seven")
                return number

            results = list(calls.map(call, range(10), ahead=4))
            early = calls.iter_ahead(call, range(5), ahead=3)
            assert next(early) == 0
            early.close()
            calls.close()
            return [str(result) for result in results]

        for seed in SEEDS:
            assert on_seed(seed, run) == ["0", "1", "2", "3", "4", "5", "6", "seven", "8", "9"]

    def test_a_scan(self, bucket: Bucket) -> None:
        """If this fails, the order of records depends on which thread was quicker."""

        def run(machine: Machine) -> list[int]:
            with opened(bucket, machine) as tier:
                request = ScanRequest(TopicSelection.of_names(["orders"]), max_bytes_per_range=64)
                plan = plan_scan(tier, request)

                def read(scan_range: object) -> Iterator[pa.RecordBatch]:
                    machine.clock.sleep(machine.rng.uniform(0, 1))
                    yield from read_scan_range(tier, scan_range, target_bytes=1)  # type: ignore[arg-type]

                scan = ParallelScan(plan.ranges, read, threads=3, machine=machine)
                return [offset for batch in scan for offset in batch["offset"].to_pylist()]

        for seed in SEEDS:
            assert on_seed(seed, run) == list(range(15))

    def test_a_scan_that_is_given_up(self, bucket: Bucket) -> None:
        """If this fails, closing a reader early leaves work behind, or hangs."""

        def run(machine: Machine) -> object:
            with opened(bucket, machine) as tier:
                plan = plan_scan(tier, ScanRequest(TopicSelection.of_names(["orders"]), max_bytes_per_range=64))
                scan = ParallelScan(plan.ranges, lambda each: read_scan_range(tier, each), threads=3, machine=machine)
                next(scan)
                scan.close()
            return None

        for seed in SEEDS:
            on_seed(seed, run)

    def test_a_verification(self, bucket: Bucket) -> None:
        """If this fails, what is verified depends on who came first."""

        def counted(reports: Iterable[object]) -> tuple[int, int]:
            found = list(reports)
            return len(found), sum(report.records for report in found)  # type: ignore[attr-defined]

        def run(machine: Machine) -> object:
            with opened(bucket, machine) as tier:
                return counted(Verification(tier, workers=3))

        for seed in SEEDS:
            assert on_seed(seed, run) == (1 + 5, 15)
