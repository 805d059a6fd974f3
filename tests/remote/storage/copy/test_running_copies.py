"""Copies under way: seen, named, and called off in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import RemoteLogSegmentId, TopicIdPartition, Uuid
from tierlog.remote.storage.copy.running_copies import RunningCopies
from tierlog.remote.storage.storage_errors import CopyAbandonedError, CopyDeadlineError
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import PendingFuture
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 3)


def segment(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, Uuid(bytes(15) + bytes([number])))


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine whose time passes only while everybody waits."""
    made, scheduler = ManualScheduler.machine(1)
    with scheduler:
        yield made


def now(machine: Machine) -> float:
    return machine.clock.monotonic_seconds()


def unfinished(machine: Machine) -> list[str]:
    assert isinstance(machine.scheduler, ManualScheduler)
    return machine.scheduler.unfinished


def test_phase_and_age_are_in_the_metrics(machine: Machine) -> None:
    """An upload that hangs must be seen before the disk is full."""
    metrics = StorageMetrics()
    copies = RunningCopies(metrics, machine=machine, deadline_seconds=100)
    first = copies.begin(segment(1))
    machine.clock.sleep(5)
    second = copies.begin(segment(2))
    first.phase, first.part, first.stored_bytes = "log", 7, 1234
    machine.clock.sleep(7)
    assert metrics.value("copies_running", phase="log") == 1
    assert metrics.value("copies_running", phase="waiting") == 1
    assert metrics.value("oldest_copy_age_seconds") == 12
    assert first.describe() == f"{segment(1)} log part 7 (1234 bytes stored) for 12 s"
    assert second.describe() == f"{segment(2)} waiting part 0 (0 bytes stored) for 7 s"
    assert copies.copies() == [first, second]
    copies.end(first)
    copies.end(second)
    assert metrics.value("copies_running", phase="log") == 0
    assert metrics.value("oldest_copy_age_seconds") == 0
    copies.close()


def test_a_store_that_never_answers_does_not_hold_a_copy_for_ever(machine: Machine) -> None:
    """The wish of most operators: uploads of a partition stop silently, and only a restart helps."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=100.5)
    copy = copies.begin(segment(1))
    copy.phase, copy.part = "log", 3
    machine.clock.sleep(40)
    copy.check()
    answer: PendingFuture[int] = machine.scheduler.future()
    with pytest.raises(CopyDeadlineError, match=r"after 10[01] s in phase log, part 3, 0 bytes stored"):
        copy.wait_for(answer)
    assert now(machine) == 100.5
    assert copy.undo_seconds_left() == pytest.approx(1.2)
    with pytest.raises(CopyDeadlineError):
        copy.check()
    copies.end(copy)
    copies.close()


def test_what_a_call_gives_or_raises_arrives_at_once(machine: Machine) -> None:
    """A deadline must not hide the error that the operator needs to see, and looking for it must not cost a second."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=100)
    copy = copies.begin(segment(1))
    good: PendingFuture[int] = machine.scheduler.future()
    good.begin()

    def answer() -> None:
        machine.clock.sleep(2.25)
        good.set_result(5)

    machine.scheduler.start(answer, name="store")
    assert copy.wait_for(good) == 5
    assert now(machine) == 2.25
    bad: PendingFuture[int] = machine.scheduler.future()
    bad.begin()
    bad.set_exception(TimeoutError("of the call itself"))
    with pytest.raises(TimeoutError, match="of the call itself"):
        copy.wait_for(bad)
    copies.end(copy)
    copies.close()


def test_one_id_is_copied_once_at_a_time(machine: Machine) -> None:
    """Two threads that write the same objects would leave a mix of both."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=100)
    copy = copies.begin(segment(1))
    with pytest.raises(StoreUnavailableError, match=r"is being copied: .* waiting part 0"):
        copies.begin(segment(1))
    copies.end(copy)
    copies.end(copies.begin(segment(1)))
    copies.close()


def test_one_copy_is_called_off_and_no_other(machine: Machine) -> None:
    """A delete calls the copy of its segment off: the broker's other uploads go on."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=100)
    first, second = copies.begin(segment(1)), copies.begin(segment(2))
    machine.clock.sleep(10)
    assert copies.call_off_copy(segment(1), "the segment is being deleted")
    assert not copies.call_off_copy(segment(3), "the segment is being deleted")
    machine.clock.sleep(1)
    first.call_off("a second reason, which changes neither the first nor its time")
    with pytest.raises(CopyAbandonedError, match="the segment is being deleted in phase waiting, part 0"):
        first.check()
    assert first.undo_seconds_left() == pytest.approx(0.2)
    second.check()
    copies.end(first)
    copies.end(second)
    copies.close()


def test_closing_calls_off_what_runs(machine: Machine) -> None:
    """A broker that stops must not wait for an upload of hours."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=1000)
    copy = copies.begin(segment(1))
    seen: list[float] = []

    def run() -> None:
        try:
            copy.wait_for(machine.scheduler.future())
        except CopyAbandonedError:
            seen.append(now(machine))
            machine.clock.sleep(0.5)  # its undo
        finally:
            copies.end(copy)

    running = machine.scheduler.start(run, name="copy")
    machine.clock.sleep(3.25)
    copies.close()
    assert seen == [3.25], "the moment of the close, not the watchdog's next look"
    assert now(machine) == 3.75, "the undo was waited for, and nothing else"
    assert running.done()
    copies.close()
    assert now(machine) == 3.75
    assert unfinished(machine) == []
    with pytest.raises(CopyAbandonedError, match="the manager is closed"):
        copies.begin(segment(2))


def test_closing_waits_less_than_two_seconds_for_a_copy(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """A store that answers no undo must not hold a broker's shutdown, and the log names it."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=1000)
    copies.begin(segment(1)).phase = "manifest"
    machine.clock.sleep(10)
    copies.call_off()
    machine.clock.sleep(0.5)
    with caplog.at_level(logging.WARNING):
        copies.close()
    assert 1.5 <= now(machine) - 10 < 2, "counted from when it was called off"
    assert [record.getMessage() for record in caplog.records] == [
        f"closed while a copy had not ended: {segment(1)} manifest part 0 (0 bytes stored) for 12 s"
    ]
    assert unfinished(machine) == []


def test_a_call_that_is_cancelled_is_the_managers_close(machine: Machine) -> None:
    """Nobody but a closing manager cancels a copy's calls: the broker must see a copy that may be tried again."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=100)
    copy = copies.begin(segment(1))
    with machine.scheduler.pool(1, name="store") as pool:
        pool.submit(lambda: machine.clock.sleep(1))
        cancelled = pool.submit(lambda: 5)
        assert cancelled.cancel()
        with pytest.raises(CopyAbandonedError, match="the manager was closed"):
            copy.wait_for(cancelled)
    copies.end(copy)
    copies.close()


def test_slow_copies_are_named_in_one_line(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """One line that says what stands where is what an operator greps for; one a second would drown it."""
    copies = RunningCopies(StorageMetrics(), machine=machine, deadline_seconds=10_000)

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    with caplog.at_level(logging.WARNING):
        running = [copies.begin(segment(1)), copies.begin(segment(2))]
        running[0].phase, running[1].phase = "log", "manifest"
        machine.clock.sleep(15)
        running.append(copies.begin(segment(3)))  # not slow yet when the first line is due
        machine.clock.sleep(14.5)
        assert lines() == []
        machine.clock.sleep(2)
        (first,) = lines()
        machine.clock.sleep(27)
        assert lines() == [first]
        machine.clock.sleep(3)
    assert [str(segment(number)) in first for number in (1, 2, 3)] == [True, True, False]
    assert "log part 0" in first
    assert "manifest part 0" in first
    assert len(lines()) == 2
    assert str(segment(3)) in lines()[1]
    for copy in running:
        copies.end(copy)
    copies.close()


def test_buffers_go_back_when_nothing_was_copied_for_half_a_minute(machine: Machine) -> None:
    """A broker that uploads once an hour must not hold the memory of its uploads in between; nor a thread."""
    idle: list[float] = []
    copies = RunningCopies(
        StorageMetrics(), machine=machine, deadline_seconds=100, on_idle=lambda: idle.append(now(machine))
    )
    first = copies.begin(segment(1))
    machine.clock.sleep(40)
    copies.end(first)
    machine.clock.sleep(20)
    second = copies.begin(segment(2))
    machine.clock.sleep(2)
    copies.end(second)
    machine.clock.sleep(28)
    assert (idle, unfinished(machine)) == ([], ["tierlog-copy-watchdog"])
    machine.clock.sleep(5)
    assert len(idle) == 1
    assert 91 <= idle[0] <= 93
    assert unfinished(machine) == []
    again = copies.begin(segment(3))
    assert unfinished(machine) == ["tierlog-copy-watchdog"]
    copies.end(again)
    copies.close()
    assert len(idle) == 1, "a manager that closes gives its buffers back itself"
