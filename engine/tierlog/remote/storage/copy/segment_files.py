"""The broker's files of the segments that are copied: their faults are told from those of the store.

A folder as a store fails with the same kinds of StoreError as the disk that the segment lies on. The broker acts
differently on them, so that every error of a segment's own file gets a type of its own where the file is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.files import FileInfo, ReadableFile, ReadableFiles


class SegmentFileFault(StoreError):
    """A local file of the segment is missing or cannot be read.

    Attributes:
        is_passing: Whether a later try may succeed: too many open files, and the like.
    """

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.is_passing = cause.retriable


class SegmentFiles(ReadableFiles):
    """Files whose errors are SegmentFileFault. Thread safety: that of the files below."""

    def __init__(self, files: ReadableFiles) -> None:
        self._files = files

    def stat(self, path: str) -> FileInfo:
        with _as_fault():
            return self._files.stat(path)

    def open_read(self, path: str) -> ReadableFile:
        with _as_fault():
            return _SegmentFile(self._files.open_read(path))

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        with _as_fault():
            return self._files.read_whole(path, limit_bytes=limit_bytes)


class _SegmentFile(ReadableFile):
    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.size_bytes = file.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        with _as_fault():
            return self._file.read_into(buffer, position=position)

    def close(self) -> None:
        self._file.close()


@contextlib.contextmanager
def _as_fault() -> Iterator[None]:
    try:
        yield
    except StoreError as cause:
        raise SegmentFileFault(cause) from cause
