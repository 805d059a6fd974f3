"""Trying again: bounded in time, in tries where these are counted, with pauses that grow and differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tierlog.errors import StoreError, StoreNotReachedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledCallError, CancelScope

Result = TypeVar("Result")

_FIRST_SECONDS: Final = 0.2
_FIRST_THROTTLED_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 10.0
_SHORTEST_SECONDS: Final = 0.01
#: Behind which pauses are the longest: tries have no bound, powers of two have.
_DOUBLINGS_MAX: Final = 10
_SLEEP_STEP_SECONDS: Final = 0.1


class ThrottledError(StoreUnavailableError):
    """The store asks for fewer requests.

    Args:
        text: The message.
        after_seconds: The wait that it asks for; 0 if it does not say.
    """

    def __init__(self, text: str, after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.after_seconds = after_seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of trying again: in number (None: any), and in the time after the first try in which another one may
    begin.
    """

    max_retries: int | None = None
    retry_seconds: float = 90.0


def retrying(
    machine: Machine,
    policy: RetryPolicy,
    attempt: Callable[[int], Result],
    scope: CancelScope | None = None,
    *,
    again: Callable[[], None] = lambda: None,
) -> Result:
    """Call ``attempt`` with 0, 1, … until it returns or fails for another reason than a passing one.

    ``again`` is called before each try but the first; its time is not the store's and does not count, and its error
    ends this.

    Raises:
        StoreUnavailableError: the last one, which says how many tries there were; a StoreNotReachedError if all of them
            were. CancelledCallError: the scope was cancelled meanwhile. StoreError: as the attempt.
    """
    clock = machine.clock
    start = clock.monotonic_seconds()
    tries = 0
    reached = False
    while True:
        if scope is not None and scope.cancelled:
            raise CancelledCallError("cancelled")
        try:
            return attempt(tries)
        except StoreUnavailableError as error:
            tries += 1
            reached = reached or not isinstance(error, StoreNotReachedError)
            passed = clock.monotonic_seconds() - start
            left = policy.retry_seconds - passed
            counted_out = policy.max_retries is not None and tries > policy.max_retries
            if counted_out or left < _SHORTEST_SECONDS:
                told = f"{error} ({tried(tries, passed, counted_out=counted_out)})"
                raise (StoreUnavailableError if reached else StoreNotReachedError)(told) from None
            pause = min(left, _pause(machine, error, tries))  # the last try is at the end of the time
        except StoreError as error:
            error.refused = error.refused and not reached  # an earlier try may be done yet
            raise
        _sleep(machine, pause, scope)
        before = clock.monotonic_seconds()
        again()
        start += clock.monotonic_seconds() - before


def tried(tries: int, seconds: float, *, counted_out: bool) -> str:
    """Return a text about a request's tries, their time, and the key that allows more."""
    often = "once" if tries == 1 else f"{tries} times"
    more = "store.max_retries allows more tries" if counted_out else "store.retry_timeout allows more time"
    return f"tried {often} in {seconds:.1f} s; {more}"


def _pause(machine: Machine, error: StoreUnavailableError, tries: int) -> float:
    """Return the seconds before the next try, at least those that the store asks for: they grow, and half of them is
    random, or all callers come back at once.
    """
    throttled = isinstance(error, ThrottledError)
    first = _FIRST_THROTTLED_SECONDS if throttled else _FIRST_SECONDS
    full = min(_LONGEST_SECONDS, first * 2 ** min(tries - 1, _DOUBLINGS_MAX))
    asked = error.after_seconds if isinstance(error, ThrottledError) else 0.0
    return max(asked, machine.rng.uniform(full / 2, full))


def _sleep(machine: Machine, seconds: float, scope: CancelScope | None) -> None:
    """Sleep in steps, so that cancelling need not wait for the end of a long pause."""
    while seconds > 0 and not (scope is not None and scope.cancelled):
        machine.clock.sleep(min(seconds, _SLEEP_STEP_SECONDS))
        seconds -= _SLEEP_STEP_SECONDS
