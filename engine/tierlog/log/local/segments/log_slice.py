"""A part of a segment's log, as a read hands it out: (file, position, size), and not its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import Buffer

from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.files import UpdatableFile


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes [position, position + size_bytes) of a ``.log``.

    The file stays open as long as somebody holds the slice, whatever the log does meanwhile: it may have renamed or
    removed the segment, or been closed. ``file.descriptor`` is what ``os.sendfile`` takes.

    Thread safety: any number of threads.
    """

    file: UpdatableFile
    path: str
    position: int
    size_bytes: int

    def read(self) -> memoryview:
        """The bytes, in memory of their own.

        Raises:
            LogTruncatedError: the log was truncated meanwhile and does not have all of them. StoreError.
        """
        buffer = new_buffer(self.size_bytes)
        self.read_into(buffer)
        return buffer

    def read_into(self, buffer: Buffer) -> None:
        """Fill a buffer of ``size_bytes``. Raises as ``read``."""
        count = self.file.read_into(buffer, position=self.position)
        if count < self.size_bytes:
            raise LogTruncatedError(f"{self.path}: truncated to {self.position + count} bytes, while it was read")
