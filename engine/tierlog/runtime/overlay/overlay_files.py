"""A file system whose changes stay in memory: what a dry run works on, by the same code as the run that counts."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import Buffer

from tierlog._native.files import ReadyFile
from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.clock import Clock, SystemClock
from tierlog.runtime.machine.files import (
    TEMPORARY_SUFFIX,
    FileInfo,
    FileLock,
    Files,
    ReadableFile,
    UpdatableFile,
    WritableFile,
)
from tierlog.runtime.overlay.open_files import OverlayFile, OverlayLock, OverlayNewFile, OverlayUpdatableFile
from tierlog.runtime.overlay.overlay_pages import OverlayContent, OverlayPages

#: Bytes that all changes together may take.
CHANGED_BYTES_MAX: Final = 1 << 30


@dataclass(slots=True)
class _Directory:
    """A directory that was made here, or moved: what the real one of this name holds does not count."""


class OverlayFiles:
    """Files over others, which are only read. What is changed is seen here and nowhere else, and ends with this object.

    A record lock is taken of the real file, if that exists: that changes nothing, and keeps a broker's writes out.

    Thread safety: any number of threads.

    Args:
        real: The file system below. What changes there meanwhile may be seen or not.
        clock: Source of the times of change.
        limit_bytes: The most bytes of all changed pages together; writing more fails.
    """

    def __init__(self, real: Files, clock: Clock | None = None, *, limit_bytes: int = CHANGED_BYTES_MAX) -> None:
        self._real = real
        self._clock = clock or SystemClock()
        self._pages = OverlayPages(self._clock, limit_bytes)
        self._lock = self._pages.lock
        #: What is known here of a path; None: it was removed.
        self._known: dict[str, OverlayContent | _Directory | None] = {}
        self._held: set[str] = set()

    # ---- what is there

    def find(self, path: str) -> FileInfo | None:
        """Size, kind and times of a file or directory; None if the path names nothing."""
        with self._lock:
            found = self._find(_normal(path))
        return None if found is None else replace(found, path=path)

    def _find(self, name: str) -> FileInfo | None:
        if name in self._known:
            known = self._known[name]
            if isinstance(known, OverlayContent):
                return replace(known.info, size_bytes=known.size_bytes)
            return None if known is None else FileInfo(name, 0, 0, is_directory=True)
        return None if self._is_hidden(name) else self._real.find(name)

    def _is_hidden(self, name: str) -> bool:
        """Whether the real file of a name does not count, since a directory above is another one here."""
        above = posixpath.dirname(name)
        while above not in ("", name):
            if above in self._known:
                return True
            name, above = above, posixpath.dirname(above)
        return False

    def stat(self, path: str) -> FileInfo:
        """Size, kind and times of a file or directory. Raises ObjectNotFoundError."""
        found = self.find(path)
        if found is None:
            raise ObjectNotFoundError(f"{path}: no such file or directory")
        return found

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """A directory's entries by name."""
        with self._lock:
            name = _normal(path)
            if not self.stat(path).is_directory:
                raise ObjectNotFoundError(f"{path}: not a directory")
            real = () if name in self._known or self._is_hidden(name) else self._real.iter_directory(name)
            names = {entry.name for entry in real}
            names |= {posixpath.basename(known) for known in self._known if posixpath.dirname(known) == name}
            found = [self.find(f"{path.rstrip('/')}/{child}") for child in sorted(names)]
        yield from (entry for entry in found if entry is not None)

    # ---- reading

    def open_read(self, path: str) -> ReadableFile:
        """An open file, which keeps its content when its name is removed."""
        content = self._content(path, make=False)
        return OverlayFile(self._pages, path, content, self._open_real(content))

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """The content of a file. Raises StoreError if it is larger than the limit."""
        with self.open_read(path) as file:
            if file.size_bytes > limit_bytes:
                raise StoreError(f"{path}: {file.size_bytes} bytes, more than the limit of {limit_bytes}")
            data = bytearray(file.size_bytes)
            return bytes(data[: file.read_into(data, position=0)])

    def read_stream(self, path: str, *, limit_bytes: int) -> bytes:
        """The content of anything that can be read."""
        with self._lock:
            name = _normal(path)
            is_real = name not in self._known and not self._is_hidden(name)
        return (self._real.read_stream if is_real else self.read_whole)(path, limit_bytes=limit_bytes)

    def read_range(self, path: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        """The part of a range that a file has, in memory of ``new_buffer``."""
        with self.open_read(path) as file:
            buffer = new_buffer(max(0, min(end_position_exclusive, file.size_bytes) - start_position))
            return buffer[: file.read_into(buffer, position=start_position)]

    def read_range_into(self, path: str, out: memoryview, *, start_position: int) -> int:
        """Fill ``out`` from a position on; returns the bytes read, fewer only at the end of the file."""
        with self.open_read(path) as file:
            return file.read_into(out, position=start_position)

    def open_ready(self, path: str) -> ReadyFile | None:  # noqa: ARG002
        """None: what was changed is in no file."""
        return None

    # ---- writing

    def open_write(self, path: str) -> WritableFile:
        """A new file that gets its name on commit."""
        with self._lock:
            temporary = _normal(path) + TEMPORARY_SUFFIX
            if temporary in self._held:
                raise StoreUnavailableError(f"{path}: is being written by somebody else")
            self.remove(temporary)
            file = self._open_update(temporary)
            self._held.add(temporary)
        return OverlayNewFile(
            file,
            commit=lambda: self.rename(temporary, path),
            remove=lambda: self.remove(temporary),
            release=lambda: self._unlock(temporary),
        )

    def write_whole(self, path: str, data: Buffer) -> None:
        """Write a file with exactly this content."""
        with self.open_write(path) as file:
            file.write(data)
            file.commit()

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:  # noqa: ARG002 - nobody else sees it
        """A file to change in place, made (empty) if it does not exist; its directory must exist."""
        return self._open_update(path)

    def _open_update(self, path: str) -> OverlayUpdatableFile:
        content = self._content(path, make=True)
        return OverlayUpdatableFile(self._pages, path, content, self._open_real(content))

    def _open_real(self, content: OverlayContent) -> ReadableFile | None:
        return None if content.real_path is None else self._real.open_read(content.real_path)

    def _content(self, path: str, *, make: bool) -> OverlayContent:
        """What stands for a file from now on, for all who open it."""
        with self._lock:
            name = _normal(path)
            known = self._known.get(name)
            if isinstance(known, OverlayContent):
                return known
            found = self._find(name)
            if found is None:
                if not make:
                    raise ObjectNotFoundError(f"{path}: no such file or directory")
                self._require_parent(name, path)
                content = OverlayContent(FileInfo(name, 0, self._clock.time_ms(), is_directory=False), None, 0, 0)
            elif found.is_directory:
                raise StoreError(f"{path}: a directory")
            else:
                content = OverlayContent(found, name, found.size_bytes, found.size_bytes)
            self._known[name] = content
            return content

    def _require_parent(self, name: str, path: str) -> None:
        above = self._find(posixpath.dirname(name) or ".")
        if above is None or not above.is_directory:
            raise ObjectNotFoundError(f"{path}: its directory does not exist")

    # ---- names

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:  # noqa: ARG002
        """Make a directory and its parents, unless they exist."""
        with self._lock:
            name = _normal(path)
            found = self._find(name)
            if found is not None:
                if not found.is_directory:
                    raise StoreError(f"{path}: a file is in the way")
                return
            above = posixpath.dirname(name)
            if above != name and above:
                self.make_directories(above)
            self._known[name] = _Directory()

    def rename(self, source: str, target: str, *, durable: bool = True) -> None:  # noqa: ARG002 - nothing is
        """Rename atomically, replacing the target."""
        with self._lock:
            old, new = _normal(source), _normal(target)
            found, there = self._find(old), self._find(new)
            self._require_parent(new, target)
            if found is None:
                raise ObjectNotFoundError(f"{source}: no such file or directory")
            if there is not None and there.is_directory and old != new:
                raise StoreError(f"{target}: a directory is in the way")
            if found.is_directory and (there is not None or new.startswith(f"{old}/")) and old != new:
                raise StoreError(f"{target}: no place for a directory")
            if old != new:
                self._move(old, new, found)

    def _move(self, old: str, new: str, found: FileInfo) -> None:
        if found.is_directory:
            children = [posixpath.basename(entry.path) for entry in self.iter_directory(old)]
            self._known[new] = _Directory()
            for child in children:
                inside = self._find(f"{old}/{child}")
                if inside is not None:
                    self._move(f"{old}/{child}", f"{new}/{child}", inside)
        else:
            self._known[new] = self._content(old, make=False)
        self._known[old] = None

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory, if it is there."""
        with self._lock:
            found = self._find(_normal(path))
            if found is None:
                return
            if found.is_directory and next(self.iter_directory(path), None) is not None:
                raise StoreError(f"{path}: directory not empty")
            self._known[_normal(path)] = None

    def fsync_directory(self, path: str) -> None:
        """Nothing: there is no disk. Raises StoreError where there is no directory."""
        if not self.stat(path).is_directory:
            raise StoreError(f"{path}: not a directory")

    def free_bytes(self, path: str) -> int:
        """How many bytes can still be written."""
        self.stat(path)
        with self._lock:
            return self._pages.free_bytes

    def try_lock(self, path: str) -> FileLock | None:
        """The lock of a name, of those who work on this object; None if it is held."""
        with self._lock:
            name = _normal(path)
            self._require_parent(name, path)
            if name in self._held:
                return None
            self._content(path, make=True)
            self._held.add(name)
            return OverlayLock(lambda: self._unlock(name, removed=True))

    def try_record_lock(self, path: str) -> FileLock | None:
        """The lock of a file; None if it is held, by a process that has locked the real file too. The real file is not
        made, and one that may not be written is not locked.
        """
        with self._lock:
            name = _normal(path)
            if name in self._held:
                return None
            real: FileLock | None = None
            if name not in self._known and not self._is_hidden(name) and self._real.find(name) is not None:
                with contextlib.suppress(StorePermissionError):
                    real = self._real.try_record_lock(name)
                    if real is None:
                        return None
            self._content(path, make=True)
            self._held.add(name)
            return OverlayLock(lambda: self._unlock(name), real)

    def _unlock(self, name: str, *, removed: bool = False) -> None:
        with self._lock:
            self._held.discard(name)
            if removed:
                self.remove(name)


def _normal(path: str) -> str:
    return posixpath.normpath(path)
