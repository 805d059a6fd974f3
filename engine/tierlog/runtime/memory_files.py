"""A file system in memory, for tests and simulation."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.clock import Clock, ManualClock
from tierlog.runtime.files import TEMPORARY_SUFFIX, FileInfo, ReadableFile, WritableFile


class MemoryFiles:
    """See the module; paths as in Files, with "/" as the root of all. Thread-safe.

    Args:
        clock: Gives files their time of change.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or ManualClock()
        self._lock = threading.Lock()
        self._files: dict[str, tuple[bytes, int]] = {}
        self._directories: set[str] = {""}

    def find(self, path: str) -> FileInfo | None:
        """See Files."""
        with self._lock:
            return self._info(_normal(path), path)

    def _info(self, known_as: str, path: str) -> FileInfo | None:
        if known_as in self._files:
            data, modified_ms = self._files[known_as]
            return FileInfo(path, len(data), modified_ms, is_directory=False)
        if known_as in self._directories:
            return FileInfo(path, 0, 0, is_directory=True)
        return None

    def stat(self, path: str) -> FileInfo:
        """See Files."""
        found = self.find(path)
        if found is None:
            raise ObjectNotFoundError(f"{path}: no such file or directory")
        return found

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """See Files."""
        if not self.stat(path).is_directory:
            raise ObjectNotFoundError(f"{path}: not a directory")
        folder = _normal(path)
        with self._lock:
            below = [known for known in (*self._files, *self._directories) if known and _parent(known) == folder]
        for known in sorted(below):
            found = self.find(known)
            if found is not None:
                name = known.rpartition("/")[2]
                yield FileInfo(f"{path.rstrip('/')}/{name}", found.size_bytes, found.modified_ms, found.is_directory)

    def open_read(self, path: str) -> ReadableFile:
        """See Files; what is open keeps its content when the name goes."""
        return _MemoryFile(self.read_whole(path))

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """See Files."""
        with self._lock:
            found = self._files.get(_normal(path))
        if found is None:
            raise ObjectNotFoundError(f"{path}: no such file")
        if len(found[0]) > limit_bytes:
            raise StoreError(f"{path}: {len(found[0])} bytes, more than the limit of {limit_bytes}")
        return found[0]

    def open_write(self, path: str) -> WritableFile:
        """See Files."""
        if self.find(_parent(_normal(path))) is None:
            raise ObjectNotFoundError(f"{path}: its directory does not exist")
        return _MemoryNewFile(self, path)

    def write_whole(self, path: str, data: Buffer) -> None:
        """See Files."""
        with self.open_write(path) as file:
            file.write(data)
            file.commit()

    def put(self, path: str, data: bytes) -> None:
        """A file under its name at once, with its directories."""
        known = _normal(path)
        self.make_directories(_parent(known))
        with self._lock:
            self._files[known] = (data, self.clock.time_ms())

    def make_directories(self, path: str) -> None:
        """See Files."""
        known = _normal(path)
        with self._lock:
            while known:
                self._directories.add(known)
                known = _parent(known)

    def rename(self, source: str, target: str) -> None:
        """See Files."""
        with self._lock:
            if _normal(source) not in self._files:
                raise ObjectNotFoundError(f"{source}: no such file")
            self._files[_normal(target)] = self._files.pop(_normal(source))

    def remove(self, path: str) -> None:
        """See Files."""
        known = _normal(path)
        with self._lock:
            if any(_parent(other) == known for other in (*self._files, *self._directories) if other != known):
                raise StoreError(f"{path}: directory not empty")
            self._files.pop(known, None)
            self._directories.discard(known)

    def fsync_directory(self, path: str) -> None:
        """See Files: memory is never behind."""
        self.stat(path)


class _MemoryFile(ReadableFile):
    """See ReadableFile."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        part = self._data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Nothing is held."""


class _MemoryNewFile(WritableFile):
    """See WritableFile."""

    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._parts: list[bytes] | None = []
        files.put(path + TEMPORARY_SUFFIX, b"")

    def write(self, data: Buffer) -> None:
        if self._parts is None:
            raise StoreError(f"{self._path}: closed")
        self._parts.append(bytes(data))

    def commit(self) -> None:
        data, self._parts = b"".join(self._parts or ()), None
        self._files.put(self._path + TEMPORARY_SUFFIX, data)
        self._files.rename(self._path + TEMPORARY_SUFFIX, self._path)

    def abort(self) -> None:
        if self._parts is not None:
            self._parts = None
            self._files.remove(self._path + TEMPORARY_SUFFIX)


def _normal(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _parent(known: str) -> str:
    return known.rpartition("/")[0]
