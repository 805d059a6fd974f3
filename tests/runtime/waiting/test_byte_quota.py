"""A limit of bytes a second, as Kafka counts it."""

from __future__ import annotations

import pytest

from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.waiting.byte_quota import ByteQuota


def test_the_windows_of_kafka() -> None:
    """What RLMQuotaManagerTest asks: a rate above the limit throttles, by how much, until its window has gone."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        quota = ByteQuota(machine, 50, windows=11, window_seconds=1)
        assert quota.throttle_ms() == 0
        quota.record(500)  # a first window counts as a whole second
        assert quota.rate() == 500
        assert quota.throttle_ms() == pytest.approx((500 - 50) / 50 * 1000)
        machine.clock.sleep(9.5)  # 500 bytes in 9.5 seconds
        assert quota.rate() == pytest.approx(500 / 9.5)
        assert quota.throttle_ms() > 0
        machine.clock.sleep(0.5)
        assert quota.rate() == pytest.approx(50)
        assert quota.throttle_ms() == 0
        machine.clock.sleep(1.01)  # the window has gone
        assert quota.rate() == 0
        quota.record(51)
        assert quota.throttle_ms() > 0
        quota.change(100)
        assert quota.throttle_ms() == 0


def test_what_is_larger_than_the_limit_passes_and_the_next_one_waits() -> None:
    """If this fails, a segment that is larger than the limit is never copied, or nothing is ever held back."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        quota = ByteQuota(machine, 1000)
        assert quota.admit(5000) == 0
        wait = quota.admit(1)
        assert wait == 4000
        machine.clock.sleep(wait / 1000)
        assert quota.throttle_ms() > 0  # the time since the first window counts, not the one to come
        machine.clock.sleep(1.1)
        assert quota.admit(1) == 0


def test_a_long_run_stays_below_the_limit() -> None:
    """If this fails, windows that went are counted, or those that live are not."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        quota, passed = ByteQuota(machine, 1000), 0
        for _ in range(1200):
            if not quota.admit(130):
                passed += 130
            machine.clock.sleep(0.1)
        assert 110_000 <= passed <= 132_000
