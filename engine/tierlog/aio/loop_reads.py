"""Reading without a thread: what a fetch waits for tells the event loop when it is there."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from tierlog.aio.waiting import Alarm, Worker
from tierlog.remote.storage.fetch.segment_stream import ViewStream
from tierlog.remote.storage.requests.awaiting import LOOK_SECONDS, Interruptible, Wait, Waits, seconds_left
from tierlog.runtime.machine import Machine

Value = TypeVar("Value")


async def drive(waits: Waits[Value], machine: Machine, worker: Worker, owner: Interruptible | None = None) -> Value:
    """Drive code on this event loop; what work there is, such as reading a disk or opening a chunk, is a thread's.

    Args:
        waits: The code.
        machine: Its clock.
        worker: Does the work.
        owner: See WaitingThreads.run.

    Raises:
        StoreUnavailableError: something is not there in time. Else what the code raises.
    """
    try:
        wait = next(waits)
        while True:
            try:
                await _wait_for(wait, machine, worker, owner)
            except BaseException as error:  # noqa: BLE001 - the code's to see to, a cancellation too
                wait = waits.throw(error)
            else:
                wait = next(waits)
    except StopIteration as end:
        value: Value = end.value
        return value


async def _wait_for(wait: Wait, machine: Machine, worker: Worker, owner: Interruptible | None) -> None:
    pending = wait.pending

    def is_over() -> bool:
        return pending.is_done or (owner is not None and owner.is_closed)

    if is_over():
        return
    alarm = Alarm()
    pending.add_done_callback(alarm.ring)
    began = machine.clock.monotonic_seconds()
    if owner is not None:
        owner.changed = _Rings(alarm)
    try:
        while not is_over():
            pending.look()
            if pending.has_work:
                worker.submit(pending.run)
            seconds = seconds_left(wait, began, machine.clock.monotonic_seconds())
            await alarm.wait(min(seconds, LOOK_SECONDS) if pending.needs_looks else seconds)
    finally:
        if owner is not None:
            owner.changed = None


class _Rings:
    """See Condition: who notifies wakes a task. Nobody waits on it, and its lock guards nothing."""

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
    """The views of a stream; waiting for them takes no thread.

    Args:
        stream: Read by nobody else.
        machine: Its clock.
        worker: For work that a view takes.
    """

    def __init__(self, stream: ViewStream, machine: Machine, worker: Worker) -> None:
        self._stream = stream
        self._machine = machine
        self._worker = worker

    async def take(self, size_bytes: int, *, lean: bool) -> memoryview | None:
        """See ViewSource."""
        stream = self._stream
        size = stream.left_bytes if size_bytes < 0 else min(size_bytes, stream.left_bytes)
        if not size:
            return None
        waits = stream.take_waits(size, lean=lean)
        return await drive(waits, self._machine, self._worker, stream.interruptible)

    async def aclose(self) -> None:
        """See ViewSource."""
        self._stream.close()
