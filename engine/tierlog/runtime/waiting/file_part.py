"""A part of an open file, on its way to a socket."""

from __future__ import annotations

from functools import partial

from tierlog._native.files import ReadyFile
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.waiting.loops import Worker


class FilePart:
    """Bytes [position, position + size_bytes) of an open file, which stays open as long as somebody holds a part of it.

    Nothing here waits for a disk but ``read``. Used on the event loop alone.

    Args:
        file: The file; its bytes do not change.
        position: Of the first byte in it.
        size_bytes: > 0.
        worker: Threads that wait for the disk, where the system dropped bytes that it had in memory.
    """

    __slots__ = ("_file", "_position", "_worker", "size_bytes")

    def __init__(self, file: ReadyFile, *, position: int, size_bytes: int, worker: Worker) -> None:
        self._file = file
        self._position = position
        self._worker = worker
        self.size_bytes = size_bytes

    def send(self, socket: int, start: int, most_bytes: int) -> int | None:
        """Send bytes from ``start`` on to a socket that does not block.

        Returns:
            How many went, 0 where the socket takes none now; None where they are not in memory.

        Raises:
            EOFError: the file was cut and ends before. OSError: the socket is closed, or the file cannot be read.
        """
        size_bytes = min(self.size_bytes - start, most_bytes)
        if not self._file.holds(self._position + start, size_bytes):
            return None
        return self._file.send(socket, self._position + start, size_bytes)

    def find(self, start: int, most_bytes: int) -> memoryview | None:
        """Return the bytes from ``start`` on, as many as the part has, in memory of their own; None where the system
        has not all of them in memory.
        """
        out = new_buffer(min(self.size_bytes - start, most_bytes))
        return out if self._file.read_ready_into(out, self._position + start) == len(out) else None

    async def read(self, start: int, most_bytes: int) -> memoryview:
        """Read like ``find``, by a thread that waits for the disk.

        Raises:
            EOFError: the file was cut and ends before. OSError: it cannot be read. PoolClosedError, NoThreadError:
            there is no thread for it.
        """
        out = new_buffer(min(self.size_bytes - start, most_bytes))
        position = self._position + start
        if await self._worker.run(partial(self._file.read_into, out, position)) < len(out):
            raise EOFError(f"the file ends before {position + len(out)}")
        return out
