"""Reads that hold no thread: the event loop is told when the bytes that a fetch waits for have come."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from tierlog.errors import StoreUnavailableError
from tierlog.remote.storage.fetch.segment_stream import ViewStream
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm, Worker
from tierlog.runtime.waiting.waits import LOOK_SECONDS, Interruptible, Wait, Waits, seconds_left

Value = TypeVar("Value")


async def drive(
    waits: Waits[Value],
    machine: Machine,
    worker: Worker,
    owner: Interruptible | None = None,
    *,
    until_seconds: float | None = None,
) -> Value:
    """Run code that yields its waits on this event loop. Its work (reading a disk, opening a chunk) runs in a thread.

    Args:
        waits: The code, which yields what it waits for.
        machine: Has the clock.
        worker: Threads for the work.
        owner: What the waits belong to, as in ``WaitingThreads.run``.
        until_seconds: When all waits are late, by the machine's monotonic clock, whatever their own limits.

    Raises:
        StoreUnavailableError: a wait took longer than its limit. Else what the code raises.
    """
    try:
        wait = next(waits)
        while True:
            try:
                await _wait_for(wait, machine, worker, owner, until_seconds)
            except BaseException as error:  # noqa: BLE001 - the code's to see to, a cancellation too
                wait = waits.throw(error)
            else:
                wait = next(waits)
    except StopIteration as end:
        value: Value = end.value
        return value


async def _wait_for(
    wait: Wait, machine: Machine, worker: Worker, owner: Interruptible | None, until_seconds: float | None
) -> None:
    pending = wait.pending

    def is_over() -> bool:
        return pending.is_done or (owner is not None and owner.is_closed)

    if is_over():
        return
    alarm = Alarm(machine.timers)
    pending.add_done_callback(alarm.ring)
    began = machine.clock.monotonic_seconds()
    if owner is not None:
        owner.changed = _Rings(alarm)
    try:
        while not is_over():
            pending.look()
            if pending.has_work:
                worker.submit(pending.run)
            now = machine.clock.monotonic_seconds()
            seconds = seconds_left(wait, began, now)
            if until_seconds is not None:
                seconds = min(seconds, until_seconds - now)
                if seconds <= 0:
                    raise StoreUnavailableError(wait.late(now - began))
            await alarm.wait(min(seconds, LOOK_SECONDS) if pending.needs_looks else seconds)
    finally:
        if owner is not None:
            owner.changed = None


class _Rings:
    """A Condition whose ``notify`` wakes a task. Nobody blocks on it, so that its lock guards nothing."""

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm

    def wait(self, timeout: float | None = None) -> bool:
        raise NotImplementedError("a task waits for its alarm")

    def notify_all(self) -> None:
        self._alarm.ring()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LoopReads:
    """The views of a stream, awaited without a thread.

    Args:
        stream: The stream; nobody else reads it.
        machine: Has the clock.
        worker: Threads for reading a disk and opening chunks.
    """

    def __init__(self, stream: ViewStream, machine: Machine, worker: Worker) -> None:
        self._stream = stream
        self._machine = machine
        self._worker = worker

    async def take(self, size_bytes: int, *, lean: bool) -> memoryview | None:
        """The bytes that follow: at least one, at most ``size``; None at the end."""
        stream = self._stream
        size = stream.left_bytes if size_bytes < 0 else min(size_bytes, stream.left_bytes)
        if not size:
            return None
        waits = stream.take_waits(size, lean=lean)
        return await drive(waits, self._machine, self._worker, stream.interruptible)

    async def aclose(self) -> None:
        """Cancel the read under way and release what the stream holds."""
        self._stream.close()
