"""The states of cleanings, in every order that a seed finds."""

from __future__ import annotations

import pytest

from tierlog.log.local.compaction.cleaning_states import ABORT_SECONDS_MAX, CleaningState, CleaningStates
from tierlog.log.local.log_errors import LogBusyError, LogCleaningAbortedError
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

KEY, OTHER = ("orders", 0), ("orders", 1)


def test_states_are_kafkas() -> None:
    """If this fails, a log is cleaned while it is cut, or never again."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        states = CleaningStates(machine)
        assert states.state_of(KEY) == CleaningState("none")
        assert states.begin(KEY)
        assert not states.begin(KEY)
        assert states.begin(OTHER)
        assert states.state_of(KEY) == CleaningState("in progress")
        states.check_aborted(KEY)
        states.end(KEY)
        states.abort_and_pause(KEY)
        states.abort_and_pause(KEY)
        assert states.state_of(KEY) == CleaningState("paused", 2)
        assert not states.begin(KEY)
        assert not states.pause_if_free(KEY)
        states.resume(KEY)
        assert states.state_of(KEY) == CleaningState("paused", 1)
        states.resume(KEY)
        assert states.is_free(KEY)
        assert not states.is_free(OTHER)
        assert states.pause_if_free(KEY)


@pytest.mark.parametrize("seed", range(30))
def test_each_pause_waits_for_the_end(seed: int) -> None:
    """If this fails, a log is cut under its cleaner, or one of two that cut it goes on while the other does."""
    machine, scheduler = ManualScheduler.machine(seed)
    seen: list[str] = []
    with scheduler:
        states = CleaningStates(machine)

        def clean() -> None:
            assert states.begin(KEY)
            try:
                while True:
                    machine.clock.sleep(0.5)
                    states.check_aborted(KEY)
            except LogCleaningAbortedError:
                seen.append("aborted")
            states.end(KEY)

        def cut() -> None:
            machine.clock.sleep(1)
            with states.paused(KEY):
                seen.append("cut")
                assert states.state_of(KEY).kind == "paused"
                machine.clock.sleep(0.1)

        tasks = [scheduler.start(each, name="task") for each in (clean, cut, cut)]
        for task in tasks:
            task.result(30)
        assert seen == ["aborted", "cut", "cut"]
        assert states.is_free(KEY)


def test_a_pause_has_a_deadline() -> None:
    """If this fails, a follower waits for ever for a disk that hangs."""
    machine, scheduler = ManualScheduler.machine(3)
    with scheduler:
        states = CleaningStates(machine)
        assert states.begin(KEY)
        before = machine.clock.monotonic_seconds()
        with pytest.raises(LogBusyError, match="orders-0: a cleaning did not end within 60 s"):
            states.abort_and_pause(KEY)
        assert machine.clock.monotonic_seconds() - before == pytest.approx(ABORT_SECONDS_MAX)
        assert states.state_of(KEY) == CleaningState("in progress")  # nothing is paused
        assert not states.close()
        with pytest.raises(LogCleaningAbortedError):
            states.check_aborted(KEY)
        states.end(KEY)
        assert states.close()
        assert not states.begin(KEY)
