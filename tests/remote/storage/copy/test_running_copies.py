"""Copies under way: seen, named, and called off in time."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future

import pytest

from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import RemoteLogSegmentId, TopicIdPartition, Uuid
from tierlog.remote.storage.copy import running_copies
from tierlog.remote.storage.copy.running_copies import CopyAbandonedError, CopyDeadlineError, RunningCopies
from tierlog.remote.storage.metrics.storage_metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 3)


def segment(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, Uuid(bytes(15) + bytes([number])))


def test_phase_and_age_are_in_the_metrics() -> None:
    """An upload that hangs must be seen before the disk is full."""
    clock, metrics = ManualClock(), StorageMetrics()
    copies = RunningCopies(metrics, machine=Machine(clock=clock), deadline_seconds=100)
    first, second = copies.begin(segment(1)), copies.begin(segment(2))
    first.phase, first.part = "log", 7
    clock.advance(12)
    assert metrics.value("copies_running", phase="log") == 1
    assert metrics.value("copies_running", phase="waiting") == 1
    assert metrics.value("oldest_copy_age_seconds") == 12
    assert "log part 7" in first.describe()
    assert [copy.segment_id for copy in copies.copies()] == [segment(1), segment(2)]
    copies.end(first)
    copies.end(second)
    assert metrics.value("copies_running", phase="log") == 0
    assert metrics.value("oldest_copy_age_seconds") == 0
    copies.close()


def test_a_store_that_never_answers_does_not_hold_a_copy_for_ever() -> None:
    """The wish of most operators: uploads of a partition stop silently, and only a restart helps."""
    copies = RunningCopies(StorageMetrics(), deadline_seconds=0.2)
    copy = copies.begin(segment(1))
    copy.phase, copy.part = "log", 3
    answer: Future[int] = Future()
    began = time.monotonic()
    with pytest.raises(CopyDeadlineError, match="log, part 3"):
        copy.wait_for(answer)
    assert time.monotonic() - began < 5
    copies.end(copy)
    copies.close()


def test_what_a_call_gives_or_raises_arrives() -> None:
    """A deadline must not hide the error that the operator needs to see."""
    copies = RunningCopies(StorageMetrics(), deadline_seconds=100)
    copy = copies.begin(segment(1))
    good: Future[int] = Future()
    threading.Timer(0.05, good.set_result, [5]).start()
    assert copy.wait_for(good) == 5
    bad: Future[int] = Future()
    bad.set_exception(TimeoutError("of the call itself"))
    with pytest.raises(TimeoutError, match="of the call itself"):
        copy.wait_for(bad)
    cancelled: Future[int] = Future()
    cancelled.cancel()
    with pytest.raises(CopyAbandonedError, match="the manager was closed"):  # who else cancels a call of a copy
        copy.wait_for(cancelled)
    copies.end(copy)
    copies.close()


def test_one_id_is_copied_once_at_a_time() -> None:
    """Two threads that write the same objects would leave a mix of both."""
    copies = RunningCopies(StorageMetrics(), deadline_seconds=100)
    copy = copies.begin(segment(1))
    with pytest.raises(StoreUnavailableError, match="is being copied"):
        copies.begin(segment(1))
    copies.end(copy)
    copies.end(copies.begin(segment(1)))
    copies.close()


def test_closing_calls_off_what_runs() -> None:
    """A broker that stops must not wait for an upload of hours."""
    copies = RunningCopies(StorageMetrics(), deadline_seconds=1000)
    copy = copies.begin(segment(1))
    seen: list[BaseException] = []

    def run() -> None:
        try:
            copy.wait_for(Future())
        except CopyAbandonedError as error:
            seen.append(error)
        finally:
            copies.end(copy)

    thread = threading.Thread(target=run)
    thread.start()
    copies.close()
    copies.close()
    thread.join()
    assert len(seen) == 1
    with pytest.raises(CopyAbandonedError):
        copies.begin(segment(2))


def test_slow_copies_are_named_in_one_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what stands where is what an operator greps for."""
    monkeypatch.setattr(running_copies, "_LOOK_SECONDS", 0.01)
    clock = ManualClock()
    idle = threading.Event()
    copies = RunningCopies(StorageMetrics(), machine=Machine(clock=clock), deadline_seconds=10_000, on_idle=idle.set)
    with caplog.at_level(logging.WARNING):
        first, second = copies.begin(segment(1)), copies.begin(segment(2))
        first.phase, second.phase = "log", "manifest"
        deadline = time.monotonic() + 10
        while not caplog.records and time.monotonic() < deadline:
            clock.advance(5)
            time.sleep(0.02)
    (record, *_) = caplog.records
    assert "log part 0" in record.getMessage()
    assert "manifest part 0" in record.getMessage()
    copies.end(first)
    copies.end(second)
    deadline = time.monotonic() + 10
    while not idle.is_set() and time.monotonic() < deadline:
        clock.advance(10)
        time.sleep(0.02)
    assert idle.is_set(), "the watchdog ends when there is nothing to watch"
    copies.close()
