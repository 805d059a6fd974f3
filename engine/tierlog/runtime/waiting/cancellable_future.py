"""A Future that its caller may cancel while it is pending, with the scope of the reads that make its result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.machine.scheduling import CancelledError, Future, Scheduler
from tierlog.runtime.waiting.threads import Event

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class CancellableFuture(Future[Result], Generic[Result]):
    """A base class. It ends once: ``_end``, which runs what was to happen before its waiters go on, then ``_answer``.

    Nothing is made for a waiting thread until there is one.

    Attributes:
        scope: Of the reads that make the result; cancelled if the future ends before they do.
        has_ended: Whether the result is decided: what comes later is dropped.

    Thread safety: any number of threads.
    """

    __slots__ = (
        "_done",
        "_ends",
        "_ends_early",
        "_error",
        "_is_cancelled",
        "_lock",
        "_result",
        "_scheduler",
        "has_ended",
        "scope",
    )

    def __init__(self, scheduler: Scheduler) -> None:
        self.scope = CancelScope(scheduler)
        self._scheduler = scheduler
        self._lock = scheduler.lock()
        self._ends: list[Callable[[], object]] = []
        self._done: list[Callable[[Future[Result]], object]] | None = []
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._ends_early = True
        self.has_ended = False

    # ---- the caller

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result, as ``Future`` says."""
        self._wait(timeout)
        if self._is_cancelled:
            raise CancelledError
        if self._error is not None:
            try:
                raise self._error
            finally:
                self = None  # type: ignore[assignment] # noqa: PLW0642 - the error's frames would hold its future
        result: Result = self._result  # type: ignore[assignment] # it was answered
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error, as ``Future`` says."""
        self._wait(timeout)
        if self._is_cancelled:
            raise CancelledError
        return self._error

    def _wait(self, timeout: float | None) -> None:
        if self._done is None:
            return
        answered = Event(self._scheduler)

        def wake(_: object) -> None:
            answered.set()

        self.add_done_callback(wake)
        if not answered.wait(timeout):
            with self._lock:
                if self._done is not None:
                    self._done.remove(wake)
            raise TimeoutError

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._done is None

    def cancelled(self) -> bool:
        """Whether the caller cancelled it, and so its waiters know."""
        return self._is_cancelled and self._done is None

    def cancel(self) -> bool:
        """Cancel what makes the result; whether it is cancelled, now or since earlier."""
        if self._end(is_cancelled=True):
            self._answer(None)
        return self._is_cancelled

    def add_done_callback(self, function: Callable[[Future[Result]], object], /) -> None:
        """Call a function when the answer is there, as ``Future`` says."""
        with self._lock:
            if self._done is not None:
                self._done.append(function)
                return
        function(self)

    # ---- those that make the result

    def on_end(self, call: Callable[[], object]) -> None:
        """Call a function once before the answer is there; at once if the future has ended."""
        with self._lock:
            if not self.has_ended:
                self._ends.append(call)
                return
        call()

    def _end(self, *, is_cancelled: bool = False, is_early: bool = True) -> bool:
        """End it, if nothing has; whether this did. ``is_early``: before its reads, which are cancelled, unless it
        changes something that its caller has to know of (``_ends_early``).
        """
        with self._lock:
            if self.has_ended or (is_early and not self._ends_early):
                return False
            self.has_ended = True
            self._is_cancelled = is_cancelled
            ends, self._ends = self._ends, []
        if is_early:
            self.scope.cancel()
        for call in ends:
            call()
        return True

    def _answer(self, result: Result | None, error: BaseException | None = None) -> None:
        """Give the waiters the result or the error. Called by the thread that ended it."""
        with self._lock:
            self._result, self._error = result, error
            done, self._done = self._done, None
        for function in done or ():
            try:
                function(self)
            except Exception:  # noqa: BLE001 - as concurrent.futures does: the other callers' functions are called
                _log.exception("a function that was called with a result failed")
