"""The memory of all copies of a process: a fixed number of bytes, lent out whole or not at all.

Why: the plugin takes a buffer of part size for every object of every copy, and a broker with many partitions dies of
it. Here a copy asks once for the least with which it can finish, and waits in line until it can have all of that at
once: nobody waits while holding, so no two copies can wait for each other. What it can use beyond that (more parts
under way) it takes only if it is free and nobody is in line.

Buffers are kept for the next copy, since fresh pages cost about as much as writing them twice; ``trim`` gives them
back.
"""

from __future__ import annotations

import collections
import contextlib
import mmap  # noqa: TID251 - memory of the system, no file's
from collections.abc import Callable, Sequence
from typing import Final, Self

from tierlog.runtime.machine import Machine

#: Sizes are rounded up to this, so that buffers of nearly the same size can serve each other's copies.
GRAIN_BYTES: Final = 64 << 10
_LOOK_SECONDS: Final = 0.25


def _nothing() -> None:
    return


class LentBuffer:
    """Writable memory of the budget, at least of the size that was asked for. Give it back once; again is fine."""

    __slots__ = ("_lender", "_memory", "view")

    def __init__(self, lender: UploadBuffers, memory: mmap.mmap, size_bytes: int) -> None:
        self._lender: UploadBuffers | None = lender
        self._memory = memory
        self.view = memoryview(memory)[:size_bytes]

    def give_back(self) -> None:
        """Nothing may read or write it afterwards."""
        lender, self._lender = self._lender, None
        if lender is not None:
            with contextlib.suppress(BufferError):  # an error's traceback may still look at it
                self.view.release()
            lender._take_back(self._memory)  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


class UploadBuffers:
    """See the module.

    Args:
        budget_bytes: All that is lent at once, and kept. A copy that cannot do with that is given what it needs once
            nobody else has anything: a chunk that is larger than the budget still gets uploaded.
        machine: Its threads wait in line.

    Thread safety: any number of threads.
    """

    def __init__(self, budget_bytes: int, *, machine: Machine | None = None) -> None:
        if budget_bytes < GRAIN_BYTES:
            raise ValueError(f"a budget of {budget_bytes} bytes lends nothing; at least {GRAIN_BYTES}")
        self._machine = machine or Machine()
        self._changed = self._machine.scheduler.condition()
        self._budget_bytes = budget_bytes
        self._lent_bytes = 0
        self._kept: dict[int, list[mmap.mmap]] = collections.defaultdict(list)
        self._kept_bytes = 0
        self._line: list[object] = []

    @property
    def budget_bytes(self) -> int:
        return self._budget_bytes

    @property
    def lent_bytes(self) -> int:
        return self._lent_bytes

    @property
    def is_wanted(self) -> bool:
        """Somebody waits: who holds more than needed gives it back."""
        return bool(self._line)

    @property
    def held_bytes(self) -> int:
        """Lent and kept: what this process has of the system."""
        return self._lent_bytes + self._kept_bytes

    def grow(self, budget_bytes: int) -> None:
        """Raise the budget; a lower one changes nothing."""
        with self._changed:
            self._budget_bytes = max(self._budget_bytes, budget_bytes)
            self._changed.notify_all()

    def borrow(self, sizes_bytes: Sequence[int], *, check: Callable[[], None] = _nothing) -> list[LentBuffer]:
        """Wait in line for all of these at once. Never call it while holding some.

        Args:
            sizes_bytes: Of each buffer.
            check: Called now and then while waiting; what it raises ends the wait.

        Raises:
            MemoryError: the system has none.
        """
        need = sum(map(_rounded, sizes_bytes))
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
        """One more, if it is free and nobody waits: fine while holding others."""
        with self._changed:
            if self._line or self._lent_bytes + _rounded(size_bytes) > self._budget_bytes:
                return None
            return self._lend((size_bytes,))[0]

    def trim(self) -> None:
        """Give what is kept and not lent back to the system."""
        with self._changed:
            self._kept.clear()
            self._kept_bytes = 0

    def _fits(self, need: int) -> bool:
        return self._lent_bytes == 0 or self._lent_bytes + need <= self._budget_bytes

    def _lend(self, sizes_bytes: Sequence[int]) -> list[LentBuffer]:
        lent: list[LentBuffer] = []
        try:
            for size in sizes_bytes:
                memory = self._memory(_rounded(size))
                self._lent_bytes += len(memory)
                lent.append(LentBuffer(self, memory, size))
        except (MemoryError, OSError) as cause:
            for buffer in lent:
                buffer.view.release()
                self._lent_bytes -= len(buffer._memory)  # noqa: SLF001
                buffer._lender = None  # noqa: SLF001
            raise MemoryError(f"no {sum(sizes_bytes)} bytes for the buffers of a copy: {cause}") from cause
        return lent

    def _memory(self, size_bytes: int) -> mmap.mmap:
        """Kept of that size, or fresh; then what is kept of other sizes makes room."""
        kept = self._kept.get(size_bytes)
        if kept:
            self._kept_bytes -= size_bytes
            return kept.pop()
        while self._kept_bytes and self.held_bytes + size_bytes > self._budget_bytes:
            other = max(size for size, buffers in self._kept.items() if buffers)
            self._kept[other].pop()
            self._kept_bytes -= other
        return mmap.mmap(-1, size_bytes)

    def _take_back(self, memory: mmap.mmap) -> None:
        with self._changed:
            size = len(memory)
            self._lent_bytes -= size
            if self.held_bytes + size <= self._budget_bytes:
                self._kept[size].append(memory)
                self._kept_bytes += size
            self._changed.notify_all()


def _rounded(size_bytes: int) -> int:
    return max(1, -(-size_bytes // GRAIN_BYTES)) * GRAIN_BYTES


def process_buffers(budget_bytes: int, machine: Machine) -> UploadBuffers:
    """The buffers that all managers of a process share, of the largest budget that one of them asked for."""
    shared = machine.process.shared("upload buffers", lambda: UploadBuffers(budget_bytes, machine=machine))
    shared.grow(budget_bytes)
    return shared
