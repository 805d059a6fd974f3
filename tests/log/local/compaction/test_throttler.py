"""The throttle of the cleaner threads, beside the arithmetic of Kafka's."""

from __future__ import annotations

import pytest

from tierlog.log.local.compaction.throttler import Throttler
from tierlog.log.local.log_errors import LogCleaningAbortedError
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_all_threads_together_keep_the_rate(seed: int, threads: int) -> None:
    """If this fails, compaction takes the disk from the producers."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        throttler = Throttler(machine, 1000)
        begun = machine.clock.monotonic_seconds()

        def work() -> None:
            for _ in range(600 // threads):
                machine.clock.sleep(0.05)
                throttler.maybe_throttle(100, lambda: None)

        for task in [scheduler.start(work, name="work") for _ in range(threads)]:
            task.result(1000)
        elapsed = machine.clock.monotonic_seconds() - begun
        assert 58 <= elapsed <= 61  # what the last interval had is not paid


@pytest.mark.parametrize("rate", [-1.0, 1e300])
def test_no_rate_is_no_wait(rate: float) -> None:
    """If this fails, a cleaner without a limit is slow."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        throttler = Throttler(machine, rate)
        begun = machine.clock.monotonic_seconds()
        for _ in range(100):
            machine.clock.sleep(0.05)
            throttler.maybe_throttle(1 << 30, lambda: None)
        assert machine.clock.monotonic_seconds() - begun == pytest.approx(5)


@pytest.mark.parametrize("rate", [0.0, 0.001])
def test_a_wait_can_be_ended(rate: float) -> None:
    """If this fails, a cleaner that is throttled keeps a log from being cut, or a broker from stopping."""
    machine, scheduler = ManualScheduler.machine(2)
    with scheduler:
        throttler = Throttler(machine, rate)
        aborted = False

        def check() -> None:
            if aborted:
                raise LogCleaningAbortedError("aborted")

        def work() -> None:
            machine.clock.sleep(1)
            throttler.maybe_throttle(1000, check)

        tasks = [scheduler.start(work, name="work") for _ in range(2)]
        machine.clock.sleep(1000)
        assert not any(task.done() for task in tasks)
        aborted = True
        machine.clock.sleep(0.2)
        for task in tasks:
            assert isinstance(task.exception(0), LogCleaningAbortedError)
        aborted = False
        task = scheduler.start(work, name="work")
        machine.clock.sleep(1000)
        throttler.set_rate(1e9)
        assert throttler.bytes_per_second == 1e9
        machine.clock.sleep(0.2)
        assert task.done()
