"""Trying again: how often, how long, and that it can be ended."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import StoreError, StoreNotReachedError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledCallError, CancelScope
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.stores.writing.retrying import RetryPolicy, ThrottledError, retrying


def machine(seed: int = 1) -> Machine:
    return Machine(clock=ManualClock(), rng=SeededRng(seed))


@given(
    retries=st.none() | st.integers(0, 8),
    seconds=st.floats(0, 100),
    throttled=st.booleans(),
    asked=st.floats(0, 1000),
    seed=st.integers(0, 1000),
)
def test_tries_and_time_are_bounded(
    retries: int | None, seconds: float, throttled: bool, asked: float, seed: int
) -> None:
    """If this fails, a store that is down holds a copy for ever, or a store that asks for mercy gets none."""
    here = machine(seed)
    tries: list[float] = []

    def fail(number: int) -> None:
        assert number == len(tries)
        tries.append(here.clock.monotonic_seconds())
        raise ThrottledError("slow down", asked) if throttled else StoreUnavailableError("reset")

    with pytest.raises(StoreUnavailableError, match=r"tried (once|\d+ times) in \d+\.\d s; store\.") as told:
        retrying(here, RetryPolicy(retries, seconds), fail)
    counted_out = retries is not None and len(tries) == retries + 1
    assert ("store.max_retries" if counted_out else "store.retry_timeout") in str(told.value)
    assert counted_out or tries[-1] > seconds - 0.011, "the whole time is waited"
    assert tries[-1] <= seconds + 1e-9
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert all(pause >= 0.049 for pause in pauses[:-1])
    assert all(pause <= max(10.1, asked + 0.1) for pause in pauses)
    if throttled:
        assert all(pause >= asked - 1e-6 for pause in pauses[:-1])


@pytest.mark.parametrize("before", [None, StoreUnavailableError("timed out"), StoreNotReachedError("no connection")])
def test_a_refusal_counts_for_all_tries(before: StoreError | None) -> None:
    """What a try without an answer may have stored would stay for good, if a later one's refusal spoke for it."""

    def attempt(number: int) -> None:
        if before is not None and number == 0:
            raise before
        refusal = StorePermissionError("status 403")
        refusal.refused = True
        raise refusal

    with pytest.raises(StorePermissionError) as told:
        retrying(machine(), RetryPolicy(), attempt)
    assert told.value.refused == (before is None or isinstance(before, StoreNotReachedError))


def test_it_ends_with_the_first_success() -> None:
    """If this fails, a request is sent again that was answered."""
    answers = iter([StoreUnavailableError("once"), "done", "never"])

    def attempt(_: int) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    assert retrying(machine(), RetryPolicy(), attempt) == "done"
    assert next(answers) == "never"


def test_who_limits_what_flows_is_asked_before_each_further_try() -> None:
    """If this fails, what is sent again passes the rate limit, or waiting for the limit uses up the tries' time."""
    here = machine()
    asked: list[int] = []
    tried: list[int] = []

    def attempt(number: int) -> str:
        tried.append(number)
        if number < 3:
            raise StoreUnavailableError("reset")
        return "done"

    def again() -> None:
        asked.append(len(tried))
        here.clock.sleep(1000)

    assert retrying(here, RetryPolicy(4, 5.0), attempt, again=again) == "done"
    assert asked == [1, 2, 3]

    def called_off() -> None:
        raise StoreUnavailableError("the copy was called off")

    tried.clear()
    with pytest.raises(StoreUnavailableError, match=r"^the copy was called off$"):
        retrying(here, RetryPolicy(), attempt, again=called_off)
    assert tried == [0]


def test_what_cannot_be_mended_is_not_tried_again() -> None:
    """If this fails, wrong rights take a minute to be told."""
    tries = []

    def attempt(number: int) -> None:
        tries.append(number)
        raise StoreError("no")

    with pytest.raises(StoreError, match=r"^no$"):
        retrying(machine(), RetryPolicy(), attempt)
    assert tries == [0]


def test_a_pause_ends_when_its_scope_does() -> None:
    """If this fails, a copy past its deadline waits out the pause of a store that is down."""
    here = machine()
    scope = CancelScope(ThreadScheduler())
    tries = []

    def attempt(number: int) -> None:
        tries.append(number)
        scope.cancel()
        raise ThrottledError("slow down", 10)

    with pytest.raises(CancelledCallError):
        retrying(here, RetryPolicy(), attempt, scope)
    assert tries == [0]
    assert here.clock.monotonic_seconds() < 1
