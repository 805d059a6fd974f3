"""Calls of the manager's users that threads of a pool run: with a deadline, a partition's term, and a future as answer.

A call begins once its partition's metadata are loaded: until then it holds no thread. It ends early when its time is
up, when the term ends and when its caller cancels it: what it reads of the storage manager is cancelled then, and what
it finds later is dropped. From ``begin_change`` on none of that ends it, so that its caller knows what it changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import CancelledError, Future
from tierlog.runtime.waiting.cancellable_future import CancellableFuture

Result = TypeVar("Result")


class TimedCall(CancellableFuture[Result]):
    """The answer of a call. From ``begin_change`` on its caller cannot cancel it, and waits for the result.

    Thread safety: any number of threads.
    """

    __slots__ = ()

    def begin_change(self) -> None:
        """Let nothing end the call any more: it changes something now. Raises CancelledReadError: it has ended."""
        with self._lock:
            if self.has_ended:
                raise CancelledReadError("the call has ended")
            self._ends_early = False

    def fail(self, error: BaseException) -> bool:
        """End the call with an error, unless it changes something; whether it was ended so."""
        has_failed = self._end()
        if has_failed:
            self._answer(None, error)
        return has_failed

    def run(self, call: Callable[[TimedCall[Result]], Result]) -> None:
        """Run the call in this thread, if it has not ended."""
        if self.has_ended:
            return
        try:
            with cancelled_by(self.scope):
                found = call(self)
        except BaseException as error:  # noqa: BLE001 - whatever it is, its caller waits for it
            if self._end(is_early=False):
                self._answer(None, error)
        else:
            if self._end(is_early=False):
                self._answer(found)


#: Has a thread of a pool make a call, when one is free. Raises what the pool raises; the call raises nothing.
Submit = Callable[[Callable[[], None]], object]


class TimedCalls(Closeable):
    """Calls that a pool runs, each with a deadline. A context manager.

    Args:
        machine: Has the clock.
        submit: Of the pool that runs the calls, which is closed after this.
        name: Of the thread that looks after the deadlines.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, submit: Submit, *, name: str) -> None:
        self._scheduler = machine.scheduler
        self._submit_call = submit
        self._deadlines = TaskSchedule(machine, name=name, workers=1)
        self._lock = machine.scheduler.lock()
        self._under_way: dict[TimedCall[Any], None] = {}
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
                self._under_way[made] = None
        if self._closed:
            made.cancel()
            return made
        deadline = self._deadlines.add(partial(_expire, made, late), delay_seconds=seconds)
        token = None if term is None else term.enter(made.cancel)

        def ended() -> None:
            deadline.drop()
            if term is not None and token is not None:
                term.leave(token)
            with self._lock:
                self._under_way.pop(made, None)

        made.on_end(ended)
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
        if made.has_ended:
            return
        try:
            self._submit_call(partial(made.run, call))
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
