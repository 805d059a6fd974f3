"""Trying again: bounded in tries and in time, with pauses that grow and differ."""

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
_SLEEP_STEP_SECONDS: Final = 0.1


class ThrottledError(StoreUnavailableError):
    """The store asks for fewer requests.

    Args:
        text: The message.
        after_seconds: What it asks to wait; 0 if it does not say.
    """

    def __init__(self, text: str, after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.after_seconds = after_seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of trying again: in number, and in the time after the first try in which another one may begin."""

    max_retries: int = 4
    retry_seconds: float = 60.0


def _nothing() -> None:
    return


def retrying(
    machine: Machine,
    policy: RetryPolicy,
    attempt: Callable[[int], Result],
    scope: CancelScope | None = None,
    *,
    again: Callable[[], None] = _nothing,
) -> Result:
    """Call ``attempt`` with 0, 1, … until it returns or fails for another reason than a passing one.

    ``again`` is called before each try but the first; its time is not the store's and does not count, and what it
    raises ends this.

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
            pause = _pause(machine, error, tries)
            if tries > policy.max_retries or clock.monotonic_seconds() + pause - start > policy.retry_seconds:
                told = f"{error} (tried {tries} times in {clock.monotonic_seconds() - start:.1f} s)"
                raise (StoreUnavailableError if reached else StoreNotReachedError)(told) from None
        except StoreError as error:
            error.refused = error.refused and not reached  # an earlier try may be done yet
            raise
        _sleep(machine, pause, scope)
        before = clock.monotonic_seconds()
        again()
        start += clock.monotonic_seconds() - before


def _pause(machine: Machine, error: StoreUnavailableError, tries: int) -> float:
    """Seconds before the next try: they grow, and half of them is chance, or all callers come back at once."""
    throttled = isinstance(error, ThrottledError)
    full = min(_LONGEST_SECONDS, (_FIRST_THROTTLED_SECONDS if throttled else _FIRST_SECONDS) * 2 ** (tries - 1))
    asked = min(error.after_seconds, _LONGEST_SECONDS) if isinstance(error, ThrottledError) else 0.0
    return max(asked, machine.rng.uniform(full / 2, full))


def _sleep(machine: Machine, seconds: float, scope: CancelScope | None) -> None:
    """Sleep in steps, so that cancelling need not wait for the end of a long pause."""
    while seconds > 0 and not (scope is not None and scope.cancelled):
        machine.clock.sleep(min(seconds, _SLEEP_STEP_SECONDS))
        seconds -= _SLEEP_STEP_SECONDS
