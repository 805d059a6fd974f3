"""The thread that lists a bucket again and again, and says what it found."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tierlog.errors import StoreError, TierlogError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.waiting.bounded_calls import BoundedCalls

_log = logging.getLogger(__name__)

Found = TypeVar("Found")

#: Listings under way at most, those that were given up included: behind these the next ones wait.
_LISTINGS_MAX: Final = 2
#: What is waited after the first listing that failed; doubled with each further one, up to the pause between listings.
_RETRY_SECONDS_MIN: Final = 1.0
#: How much of a pause chance decides, so that many servers do not list at once.
_JITTER: Final = 0.1


class Following(Generic[Found]):
    """Lists at intervals, in threads.

    Args:
        what: What is listed, for messages and names.
        look: Lists; gets what was found before, or None. Runs in a thread.
        found: Gets each result, in this object's thread.
        failed: Gets each error, in this object's thread.
        seconds: Pause between two listings.
        deadline_seconds: After which a listing is given up.
        machine: Its clock, chance and threads.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[Found | None], Found],
        found: Callable[[Found], object],
        failed: Callable[[TierlogError], object],
        *,
        seconds: float,
        deadline_seconds: float,
        machine: Machine,
    ) -> None:
        self._what = what
        self._look = look
        self._found = found
        self._failed = failed
        self._seconds = seconds
        self._deadline_seconds = deadline_seconds
        self._machine = machine
        self._calls = BoundedCalls(machine, _LISTINGS_MAX, name="tierlog-replica-listing")
        self._changed = machine.scheduler.condition()
        self._is_closed = False
        self._is_wanted = False
        self._failures = 0
        self._thread: Future[None] | None = None

    def look(self, before: Found | None) -> Found:
        """One look in the calling thread's time. Raises: what ``look`` raises, and StoreUnavailableError when the
        deadline is over.
        """
        return self._calls.run(
            f"the listing of {self._what}", lambda: self._look(before), seconds=self._deadline_seconds
        )

    def start(self, before: Found, *, first_seconds: float | None = None) -> None:
        """Begin to follow: the first listing comes after so many seconds, by default after a pause."""
        first = self._pause() if first_seconds is None else first_seconds
        self._thread = self._machine.scheduler.start(
            lambda: self._follow(before, first), name="tierlog-replica-following"
        )

    def hurry(self) -> None:
        """List now."""
        with self._changed:
            self._is_wanted = True
            self._changed.notify_all()

    def close(self) -> Future[None] | None:
        """End: a listing under way is given up. The thread's end is what is returned; None if it never began."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._calls.close()
        return self._thread

    def _follow(self, before: Found, seconds: float) -> None:
        while self._wait(seconds):
            try:
                before = self.look(before)
            except TierlogError as error:
                seconds = self._fail(error)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the following
                _log.error("the listing of %s failed", self._what, exc_info=error)
                seconds = self._fail(StoreError(f"{type(error).__name__}: {error}"))
            else:
                if self._failures:
                    _log.info("%s is listed again, after %d failures", self._what, self._failures)
                self._failures = 0
                seconds = self._pause()
                self._found(before)

    def _fail(self, error: TierlogError) -> float:
        if self._is_closed:
            return 0.0
        if not self._failures:
            _log.warning("%s cannot be listed; what was found before is served: %s", self._what, error)
        self._failures += 1
        self._failed(error)
        seconds = min(_RETRY_SECONDS_MIN * 2.0 ** min(self._failures - 1, 16), max(self._seconds, _RETRY_SECONDS_MIN))
        return self._machine.rng.uniform(seconds / 2, seconds)

    def _pause(self) -> float:
        return self._seconds * self._machine.rng.uniform(1.0 - _JITTER, 1.0 + _JITTER)

    def _wait(self, seconds: float) -> bool:
        """Wait, unless a listing is wanted; whether to go on."""
        due = self._machine.clock.monotonic_seconds() + seconds
        with self._changed:
            while not self._is_closed and not self._is_wanted:
                left = due - self._machine.clock.monotonic_seconds()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._is_wanted = False
            return not self._is_closed
