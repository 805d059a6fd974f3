"""The rate limiter's promise, over many seeded loads on a clock of its own."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

MIB = 1 << 20
WINDOW_SECONDS = 10.0


def busiest_window(grants: list[tuple[float, int]]) -> int:
    """The most bytes that begin in any window of ten seconds, ends included."""
    return max(sum(size for at, size in grants if start <= at <= start + WINDOW_SECONDS) for start, _ in grants)


@given(
    limit=st.integers(1 * MIB, 200 * MIB),
    load=st.lists(st.tuples(st.integers(1, 25 * MIB), st.floats(0, 12)), min_size=1, max_size=60),
)
def test_no_window_of_ten_seconds_holds_more_than_the_limit_and_one_part(
    limit: int, load: list[tuple[int, float]]
) -> None:
    """A broker whose uploads burst takes the bandwidth of its producers, limit or not."""
    clock = ManualClock()
    limiter = RateLimiter(limit, machine=Machine(clock=clock))
    grants = []
    for size, pause in load:
        clock.advance(pause)
        limiter.acquire(size)
        grants.append((clock.monotonic_seconds(), size))
    part = max(size for size, _ in load)
    assert busiest_window(grants) <= WINDOW_SECONDS * limit + part + 1


@given(
    limits=st.lists(st.integers(1 * MIB, 50 * MIB), min_size=2, max_size=6),
    sizes=st.lists(st.integers(1, 4 * MIB), min_size=4, max_size=40),
)
def test_a_limit_that_changes_holds_from_then_on(limits: list[int], sizes: list[int]) -> None:
    """An operator who throttles an overloaded broker must see it throttle now, not after what was queued."""
    clock = ManualClock()
    limiter = RateLimiter(limits[0], machine=Machine(clock=clock))
    grants = []
    for place, size in enumerate(sizes):
        limiter.change(limits[place % len(limits)])
        limiter.acquire(size)
        grants.append((clock.monotonic_seconds(), size))
    assert busiest_window(grants) <= WINDOW_SECONDS * max(limits) + max(sizes) + 1
    slowest = sum(sizes[:-1]) / min(limits)
    assert clock.monotonic_seconds() <= slowest + 0.1 * len(sizes) + 1e-3


def test_everything_passes_without_a_limit() -> None:
    """No limit must cost nothing: most operators have none."""
    clock = ManualClock()
    limiter = RateLimiter(None, machine=Machine(clock=clock))
    for _ in range(100):
        limiter.acquire(1 << 30)
    assert clock.monotonic_seconds() == 0
    assert limiter.bytes_per_second is None


def test_the_full_limit_is_used() -> None:
    """A limiter that grants half of what it may makes a bucket fall behind for ever."""
    clock = ManualClock()
    limiter = RateLimiter(10 * MIB, machine=Machine(clock=clock))
    for _ in range(101):
        limiter.acquire(1 * MIB)
    assert clock.monotonic_seconds() == pytest.approx(10.0, abs=0.01)


def test_a_copy_that_is_called_off_stops_waiting_and_does_not_count() -> None:
    """A copy past its deadline that still waits for its bytes would hold up the others behind it."""
    clock = ManualClock()
    limiter = RateLimiter(1, machine=Machine(clock=clock))
    limiter.acquire(1000)

    def called_off() -> None:
        raise TimeoutError("called off")

    with pytest.raises(TimeoutError):
        limiter.acquire(1 << 30, check=called_off)
    limiter.change(1 << 30)
    limiter.acquire(1)
    assert clock.monotonic_seconds() < 1


def test_threads_are_served_in_turn_and_each_wait_is_told() -> None:
    """One busy partition must not keep the others from ever being uploaded."""
    waits: list[float] = []
    clock = ManualClock()
    limiter = RateLimiter(1 * MIB, machine=Machine(clock=clock), on_wait=waits.append)
    lock = threading.Lock()
    grants: list[tuple[float, int]] = []

    def ask() -> None:
        for _ in range(5):
            limiter.acquire(MIB // 4)
            with lock:
                grants.append((clock.monotonic_seconds(), MIB // 4))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(grants) == 30
    assert clock.monotonic_seconds() == pytest.approx(29 * 0.25, abs=0.2)
    assert busiest_window(grants) <= WINDOW_SECONDS * MIB + MIB // 4
    assert len(waits) == 30
    assert sum(waits) > 0


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_is_positive(limit: float) -> None:
    """A limit of 0 would stop tiering without a word."""
    with pytest.raises(ValueError):
        RateLimiter(limit)
