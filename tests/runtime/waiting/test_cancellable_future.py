"""A future that ends once, however many want to end it, and whose waiters, callbacks and reads all hear of it."""

from __future__ import annotations

import pytest

from tierlog.runtime.machine.cancelling import call_within, require_wanted
from tierlog.runtime.machine.scheduling import CancelledError, Future
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.waiting.cancellable_future import CancellableFuture


class Answer(CancellableFuture[int]):
    """A future with a maker."""

    def give(self, value: int, *, is_early: bool = False) -> bool:
        has_ended = self._end(is_early=is_early)
        if has_ended:
            self._answer(value)
        return has_ended

    def fail(self, error: BaseException) -> None:
        assert self._end(is_early=False)
        self._answer(None, error)

    def begin_change(self) -> None:
        self._ends_early = False


@pytest.mark.parametrize("seed", range(8))
def test_one_end_counts_and_all_hear_of_it(seed: int) -> None:
    """If this fails, a client gets two answers, or none; or a place in a queue is given back twice."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        made, heard = Answer(scheduler), list[str]()
        made.on_end(lambda: heard.append(f"ends, done {made.done()}"))
        made.add_done_callback(lambda future: heard.append(f"is {future.done()}"))
        pool = scheduler.pool(8, name="ends")
        waiting = [pool.submit(made.result) for _ in range(3)]
        ended = [pool.submit(lambda n=n: made.give(n)) for n in range(4)]  # type: ignore[misc]
        assert [each.result() for each in ended].count(True) == 1
        assert {each.result() for each in waiting} == {made.result()}
        assert heard == ["ends, done False", "is True"]
        made.on_end(lambda: heard.append("at once"))
        made.add_done_callback(lambda _: heard.append("at once"))
        assert heard[2:] == ["at once"] * 2
        assert (made.cancel(), made.cancelled(), made.exception()) == (False, False, None)
        pool.close()
    assert machine.clock.monotonic_seconds() >= 0


def test_cancelling_ends_its_reads() -> None:
    """If this fails, a client that goes leaves its reads to the store's timeouts."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        made = Answer(scheduler)

        def read() -> None:
            while True:
                require_wanted()
                machine.clock.sleep(0.01)

        reading = scheduler.start(lambda: call_within(made.scope, read), name="read")
        machine.clock.sleep(1)
        assert (made.cancel(), made.cancel(), made.cancelled(), made.done()) == (True,) * 4
        assert reading.exception() is not None
        for ask in (made.result, made.exception):
            with pytest.raises(CancelledError):
                ask()
        assert not made.give(5), "it comes too late"


def test_what_changes_something_is_not_ended_early() -> None:
    """If this fails, a caller believes that nothing has changed when something did."""
    _, scheduler = ManualScheduler.machine(1)
    with scheduler:
        made = Answer(scheduler)
        made.begin_change()
        assert (made.cancel(), made.give(3, is_early=True), made.done()) == (False, False, False)
        assert not made.scope.cancelled
        assert made.give(4)
        assert made.result() == 4


def test_a_wait_that_takes_too_long_leaves_nothing() -> None:
    """If this fails, a caller that asks now and then lets the future grow; or an error is not raised."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        made = Answer(scheduler)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                made.result(0.1)
        assert machine.clock.monotonic_seconds() == pytest.approx(0.5, abs=0.1)
        assert made._done == []
        made.fail(LookupError("not there"))
        with pytest.raises(LookupError, match="not there"):
            made.result(0)
        assert isinstance(made.exception(), LookupError)


def test_a_callback_that_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a fault of one user's callback leaves another one waiting for ever."""
    _, scheduler = ManualScheduler.machine(1)
    with scheduler:
        made, heard = Answer(scheduler), list[Future[int]]()

        def fail(_: object) -> None:
            raise RuntimeError("a bug")

        made.add_done_callback(fail)
        made.add_done_callback(heard.append)
        assert made.give(1)
        assert heard == [made]
        assert "a bug" in caplog.text
