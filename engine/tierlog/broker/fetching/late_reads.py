"""Reads that an answer did not wait for: they go on, so that the next fetch finds their chunks in a cache.

A store that takes seconds for one partition must not keep a client from its other partitions; and a read that were
cancelled each time would never come to its end.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from tierlog.runtime.machine.clock import LOOP_TIMERS, Timers
from tierlog.runtime.waiting.loops import Alarm, Begun

#: Reads that go on for nobody at once; each holds some chunks at most.
_READS_MAX: Final = 64


class LateReads:
    """Reads that go on without a fetch that waits for them, one of each key. Used on the event loop alone.

    Args:
        timers: The clock of the loop.
    """

    def __init__(self, timers: Timers = LOOP_TIMERS) -> None:
        self._timers = timers
        self._reads: dict[Hashable, Begun[Any]] = {}

    def __len__(self) -> int:
        return len(self._reads)

    def leave(self, key: Hashable, read: Begun[Any]) -> bool:
        """Let a read go on, and forget what it gives. False: there is one of this key, or there are too many; the read
        is the caller's to cancel.
        """
        if key in self._reads or len(self._reads) >= _READS_MAX:
            return False
        self._reads[key] = read
        read.add_done_callback(lambda: self._ended(key))
        return True

    def _ended(self, key: Hashable) -> None:
        del self._reads[key]

    async def wait(self, key: Hashable) -> None:
        """Wait for the end of the read of a key, if there is one."""
        read = self._reads.get(key)
        if read is not None:
            alarm = Alarm(self._timers)
            read.add_done_callback(alarm.ring)
            await alarm.wait()

    async def close(self) -> None:
        """Cancel all."""
        for read in list(self._reads.values()):
            await read.cancel()
