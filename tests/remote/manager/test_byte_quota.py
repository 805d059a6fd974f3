"""The limits of copies and of remote reads: Kafka's RLMQuotaManagerTest, and callers that wait."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tierlog.remote.manager.byte_quota import ByteQuota
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler


@pytest.fixture
def machine() -> Iterator[Machine]:
    made, scheduler = ManualScheduler.machine(1)
    with scheduler:
        yield made


def test_a_rate_below_the_limit(machine: Machine) -> None:
    """A limit that throttles what is below it halves a cluster's copies."""
    quota = ByteQuota(machine, 50, 11, 1)
    for _ in range(50):
        quota.record(40)
        machine.clock.sleep(1)
        assert quota.throttle_ms() == 0
    assert quota.rate() == pytest.approx(40, rel=0.1)


def test_what_goes_over_the_limit_is_waited_for(machine: Machine) -> None:
    """500 bytes in the first second of a limit of 50: nine more seconds."""
    quota = ByteQuota(machine, 50, 11, 1)
    quota.record(500)
    assert quota.rate() == 500
    assert quota.throttle_ms() == 9000
    machine.clock.sleep(5)
    assert quota.throttle_ms() == 5000
    machine.clock.sleep(5)
    assert quota.throttle_ms() == 0
    machine.clock.sleep(1)
    assert quota.rate() == 0  # the window counts no more


def test_a_change_counts_at_once(machine: Machine) -> None:
    """An operator that raises the limit waits for no window."""
    quota = ByteQuota(machine, 10, 11, 1)
    quota.record(100)
    assert quota.throttle_ms() > 0
    quota.change(1000)
    assert quota.throttle_ms() == 0
    quota.change(10)
    assert quota.throttle_ms() > 0


def test_callers_wait_one_by_one(machine: Machine) -> None:
    """Ten threads that all find room at once go ten times over the limit."""
    quota = ByteQuota(machine, 100, 11, 1)
    waits: list[float] = []
    ends: list[float] = []

    def copies() -> None:
        assert quota.wait_for_room(lambda: False, size_bytes=500, on_wait=waits.append)
        ends.append(machine.clock.monotonic_seconds())

    with machine.scheduler.pool(4, name="copies") as pool:
        for future in [pool.submit(copies) for _ in range(4)]:
            future.result(100)
    assert ends == pytest.approx([0, 5, 10, 15], abs=1.1)
    assert waits


def test_a_caller_that_wants_no_room_any_more(machine: Machine) -> None:
    """A partition that this broker leads no more must not wait for hours, nor count."""
    quota = ByteQuota(machine, 1, 11, 1)
    quota.record(10)
    cancelled = [False]
    with machine.scheduler.pool(1, name="copies") as pool:
        future = pool.submit(partial(quota.wait_for_room, lambda: cancelled[0], size_bytes=5))
        machine.clock.sleep(2)
        assert not future.done()
        cancelled[0] = True
        assert future.result(2) is False
    assert quota.rate() * 4 == pytest.approx(10, rel=0.4)
