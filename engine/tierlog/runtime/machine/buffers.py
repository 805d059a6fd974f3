"""Reused memory for data that comes and goes by the megabyte.

Memory that malloc maps anew for each buffer, and unmaps, costs a page fault for every 4 KiB: a random read of 1 MiB
from the page cache took 1.4 ms into such memory and 0.35 ms into a reused buffer. Memory that malloc caches, it caches
for ever: after fifty threads of fetches a process had 2 GiB that were free. So buffers come from a pool of the process:
a buffer returns there when its last view is gone, and buffers that are unused for some seconds go back to the system.
"""

from __future__ import annotations

from typing import Final

from tierlog._native.buffers import BufferPool

#: Bytes of free buffers that are cached for some seconds: fifty threads with a chunk of 4 MiB each.
KEPT_BYTES_MAX: Final = 256 << 20
#: Bytes of free buffers that are cached beside the lent ones: beyond them free buffers make room for other sizes.
KEPT_BYTES_SPARE: Final = 48 << 20
#: So much of them for good.
KEPT_BYTES_MIN: Final = 4 << 20
_IDLE_MS: Final = 2000

PROCESS_BUFFERS: Final = BufferPool(
    kept_bytes_max=KEPT_BYTES_MAX,
    kept_bytes_spare=KEPT_BYTES_SPARE,
    kept_bytes_min=KEPT_BYTES_MIN,
    idle_ms=_IDLE_MS,
)
PROCESS_BUFFERS.share()


#: Makes writable memory of so many bytes, of the process's pool and not cleared. It is the holder's until the last view
#: of it is gone.
new_buffer: Final = PROCESS_BUFFERS.take


def note_foreign(size_bytes: int) -> None:
    """Note that a library's own memory held so many of our bytes: when no more come, its malloc is asked to return
    memory.
    """
    PROCESS_BUFFERS.note_foreign(size_bytes)
