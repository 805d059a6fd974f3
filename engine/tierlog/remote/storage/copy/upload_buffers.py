"""The memory of all copies of a process: a fixed number of bytes, lent out whole or not at all.

Why: the plugin takes a buffer of part size for every object of every copy, and a broker with many partitions dies of
it. Here a copy asks once for the least with which it can finish, and waits in a queue until it can have all of that at
once: no copy waits while holding, so no two can wait for each other. Memory beyond that (for more pending parts) it
takes only if it is free and the queue is empty.

The memory is that of ``runtime.machine.buffers``: reused by the next copy, and released to the system when none comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Self

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer

_LOOK_SECONDS: Final = 0.25


class LentBuffer:
    """Writable memory of the budget, at least of the size that was asked for. Give it back once; again is fine."""

    __slots__ = ("_lender", "_size_bytes", "view")

    def __init__(self, lender: UploadBuffers, size_bytes: int) -> None:
        self._lender: UploadBuffers | None = lender
        self._size_bytes = size_bytes
        self.view = new_buffer(size_bytes)

    def give_back(self) -> None:
        """Release the memory; nothing may read or write it afterwards."""
        lender, self._lender = self._lender, None
        if lender is not None:
            with contextlib.suppress(BufferError):  # an error's traceback may still look at it
                self.view.release()
            lender._take_back(self._size_bytes)  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


class UploadBuffers:
    """The memory of all uploads, lent in turns.

    Args:
        budget_bytes: All that is lent at once. A copy that needs more gets it once no other copy has anything: a chunk
            that is larger than the budget still gets uploaded.
        machine: Its threads wait in the queue.

    Thread safety: any number of threads.
    """

    def __init__(self, budget_bytes: int, *, machine: Machine | None = None) -> None:
        if budget_bytes < 1:
            raise ValueError(f"a budget of {budget_bytes} bytes lends nothing")
        self._machine = machine or Machine()
        self._changed = self._machine.scheduler.condition()
        self._budget_bytes = budget_bytes
        self._lent_bytes = 0
        self._line: list[object] = []

    @property
    def budget_bytes(self) -> int:
        return self._budget_bytes

    @property
    def lent_bytes(self) -> int:
        return self._lent_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether a copy waits, so that others release the memory that they do not need."""
        return bool(self._line)

    def grow(self, budget_bytes: int) -> None:
        """Raise the budget; a lower one changes nothing."""
        with self._changed:
            self._budget_bytes = max(self._budget_bytes, budget_bytes)
            self._changed.notify_all()

    def borrow(self, sizes_bytes: Sequence[int], *, check: Callable[[], None] = lambda: None) -> list[LentBuffer]:
        """Wait in the queue for all of these at once. Never call it while holding some.

        Args:
            sizes_bytes: Of each buffer.
            check: Called now and then while waiting; its error ends the wait.

        Raises:
            MemoryError: the system has none.
        """
        need = sum(sizes_bytes)
        ticket = object()
        with self._changed:
            self._line.append(ticket)
            try:
                while not (self._line[0] is ticket and self._fits(need)):
                    self._changed.wait(_LOOK_SECONDS)
                    check()
                return self._lend(sizes_bytes)
            finally:
                self._line.remove(ticket)
                self._changed.notify_all()

    def try_borrow(self, size_bytes: int) -> LentBuffer | None:
        """Borrow one more buffer, if memory is free and no copy waits; None if not. Fine while holding others."""
        with self._changed:
            if self._line or self._lent_bytes + size_bytes > self._budget_bytes:
                return None
            return self._lend((size_bytes,))[0]

    def _fits(self, need: int) -> bool:
        return self._lent_bytes == 0 or self._lent_bytes + need <= self._budget_bytes

    def _lend(self, sizes_bytes: Sequence[int]) -> list[LentBuffer]:
        try:
            lent = [LentBuffer(self, size) for size in sizes_bytes]
        except (MemoryError, OSError) as cause:
            raise MemoryError(f"no {sum(sizes_bytes)} bytes for the buffers of a copy: {cause}") from cause
        self._lent_bytes += sum(sizes_bytes)
        return lent

    def _take_back(self, size_bytes: int) -> None:
        with self._changed:
            self._lent_bytes -= size_bytes
            self._changed.notify_all()


def process_buffers(budget_bytes: int, machine: Machine) -> UploadBuffers:
    """Return the buffers that all managers of a process share, of the largest budget that one of them asked for."""
    shared = machine.process.shared("upload buffers", lambda: UploadBuffers(budget_bytes, machine=machine))
    shared.grow(budget_bytes)
    return shared
