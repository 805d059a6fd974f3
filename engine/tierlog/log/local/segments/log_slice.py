"""A part of a segment's log, as a read hands it out: (file, position, size), and not its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import Buffer

from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.files import UpdatableFile


class LogCuts:
    """How often a ``.log`` was cut, and to how little. Its segment's writer counts, any thread looks.

    Attributes:
        count: Two of each cut: one before the file becomes shorter, one before anything is appended there.
        least_size_bytes: The smallest size that the file was ever cut to.
    """

    __slots__ = ("count", "least_size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.least_size_bytes = 2**63 - 1

    def note(self, size_bytes: int) -> None:
        """Count, before what has to be known by then."""
        self.least_size_bytes = min(self.least_size_bytes, size_bytes)
        self.count += 1


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes [position, position + size_bytes) of a ``.log``.

    The file stays open as long as somebody holds the slice, whatever the log does meanwhile: it may have renamed or
    removed the segment, or been closed. ``file.descriptor`` is what ``os.sendfile`` takes; ``check`` afterwards tells
    whether these were the bytes.

    Thread safety: any number of threads.
    """

    file: UpdatableFile
    path: str
    position: int
    size_bytes: int
    cuts: LogCuts
    cuts_before: int
    """``cuts.count`` before the bytes were looked for."""

    def read(self) -> memoryview:
        """The bytes, in memory of their own.

        Raises:
            LogTruncatedError: the log was truncated meanwhile: they went, or others may stand there. StoreError.
        """
        buffer = new_buffer(self.size_bytes)
        self.read_into(buffer)
        return buffer

    def read_into(self, buffer: Buffer) -> None:
        """Fill a buffer of ``size_bytes``. Raises as ``read``: then any byte of it may have been written."""
        count = self.file.read_into(buffer, position=self.position)
        self.check()
        if count < self.size_bytes:
            raise LogTruncatedError(f"{self.path}: truncated to {self.position + count} bytes, while it was read")

    def check(self) -> None:
        """Raises LogTruncatedError: the log was truncated since, and what was read may be of other batches."""
        if self.cuts.count != self.cuts_before and self.cuts.least_size_bytes < self.position + self.size_bytes:
            raise LogTruncatedError(f"{self.path}: truncated since bytes from {self.position} on were handed out")
