"""Calls of the manager's users that threads of a pool run: with a deadline, a partition's term, and a future as answer.

A call begins once its partition's metadata are loaded: until then it holds no thread. It ends early when its time is
up, when the term ends and when its caller cancels it: what it reads of the storage manager is cancelled then, and what
it finds later is dropped. From ``begin_change`` on none of that ends it, so that its caller knows what it changed.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import CancelledError, Future, PendingFuture, Pool, Scheduler

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class _State(enum.Enum):
    OPEN = "may end early"
    CHANGING = "goes through"
    CANCELLED = "cancelled"
    ENDED = "ended"


class TimedCall(Future[Result], Generic[Result]):
    """The answer of a call: a Future.

    Attributes:
        scope: Of the call's reads.

    Thread safety: any number of threads.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scope = CancelScope(scheduler)
        self._lock = scheduler.lock()
        self._state = _State.OPEN
        self._answer: PendingFuture[Result] = scheduler.future()

    # ---- the caller

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result, as ``Future`` says."""
        return self._answer.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error, as ``Future`` says."""
        error = self._answer.exception(timeout)
        if self.cancelled():
            raise CancelledError
        return error

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._answer.done()

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return self._state is _State.CANCELLED and self.done()

    def cancel(self) -> bool:
        """Cancel the call, unless it has changed something, does so now, or has ended; whether it is cancelled. After
        False the caller waits for the result.
        """
        return self._end_early(_State.CANCELLED, CancelledError()) or self._state is _State.CANCELLED

    def add_done_callback(self, function: Callable[[Future[Result]], object], /) -> None:
        """Call a function when the answer is there, as ``Future`` says."""
        self._answer.add_done_callback(lambda _: function(self))

    # ---- the call itself

    def begin_change(self) -> None:
        """Let nothing end the call any more: it changes something now. Raises CancelledReadError: it has ended."""
        with self._lock:
            if self._state is _State.OPEN:
                self._state = _State.CHANGING
            elif self._state is not _State.CHANGING:
                raise CancelledReadError("the call has ended")

    def fail(self, error: BaseException) -> bool:
        """End the call with an error, unless it changes something; whether it was ended so."""
        return self._end_early(_State.ENDED, error)

    def run(self, call: Callable[[TimedCall[Result]], Result]) -> None:
        """Run the call in this thread, if it has not ended."""
        if self._state is not _State.OPEN:
            return
        try:
            with cancelled_by(self.scope):
                found = call(self)
        except BaseException as error:  # noqa: BLE001 - whatever it is, its caller waits for it
            if self._end():
                self._answer.set_exception(error)
        else:
            if self._end():
                self._answer.set_result(found)

    def _end(self) -> bool:
        with self._lock:
            if self._state not in (_State.OPEN, _State.CHANGING):
                return False
            self._state = _State.ENDED
            return True

    def _end_early(self, state: _State, error: BaseException) -> bool:
        with self._lock:
            if self._state is not _State.OPEN:
                return False
            self._state = state
        self.scope.cancel()
        self._answer.set_exception(error)
        return True


class TimedCalls(Closeable):
    """Calls that a pool runs, each with a deadline. A context manager.

    Args:
        machine: Has the clock.
        pool: Runs the calls; it is the caller's, and closed after this.
        name: Of the thread that looks after the deadlines.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, pool: Pool, *, name: str) -> None:
        self._scheduler = machine.scheduler
        self._pool = pool
        self._deadlines = TaskSchedule(machine, name=name, workers=1)
        self._lock = machine.scheduler.lock()
        self._under_way: set[TimedCall[object]] = set()
        self._closed = False

    def __len__(self) -> int:
        """The number of calls that have no answer yet."""
        return len(self._under_way)

    def start(
        self,
        call: Callable[[TimedCall[Result]], Result],
        *,
        seconds: float,
        late: Callable[[], Exception],
        term: CancelScope | None = None,
        after: Future[None] | None = None,
    ) -> TimedCall[Result]:
        """Begin a call.

        Args:
            call: Gets its own TimedCall; runs in a thread of the pool.
            seconds: From now until its deadline.
            late: Makes the error of a call whose time is up.
            term: The call is cancelled with it.
            after: The call waits for it first, in no thread, and ends with its error if it has one.
        """
        made: TimedCall[Result] = TimedCall(self._scheduler)
        with self._lock:
            if not self._closed:
                self._under_way.add(made)  # type: ignore[arg-type]
        if self._closed:
            made.cancel()
            return made
        deadline = self._deadlines.add(lambda: _expire(made, late), delay_seconds=seconds)
        token = None if term is None else term.enter(made.cancel)

        def ended(_: object) -> None:
            deadline.run = _nothing  # the schedule remembers the task until it is due, and would hold the answer
            deadline.end()
            if term is not None and token is not None:
                term.leave(token)
            with self._lock:
                self._under_way.discard(made)

        made.add_done_callback(ended)
        if after is None:
            self._submit(made, call)
        else:
            after.add_done_callback(lambda ready: self._go_on(made, call, ready))
        return made

    def _go_on(self, made: TimedCall[Result], call: Callable[[TimedCall[Result]], Result], ready: Future[None]) -> None:
        error: BaseException | None = CancelledError() if ready.cancelled() else ready.exception()
        if error is None:
            self._submit(made, call)
        else:
            made.fail(error)

    def _submit(self, made: TimedCall[Result], call: Callable[[TimedCall[Result]], Result]) -> None:
        if made.done():
            return
        try:
            self._pool.submit(lambda: made.run(call))
        except Exception as error:  # noqa: BLE001 - closed, full, no thread: whatever the pool says, the caller gets
            made.fail(error)

    def close(self) -> None:
        """Cancel all calls, and begin none any more; idempotent."""
        with self._lock:
            self._closed = True
            under_way = list(self._under_way)
        for each in under_way:
            each.cancel()
        self._deadlines.close()


def _expire(call: TimedCall[Result], late: Callable[[], Exception]) -> None:
    call.fail(late())


def _nothing() -> None:
    """The call has its answer."""
