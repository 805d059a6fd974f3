"""A file system whose changes stay in memory: what a dry run works on, by the same code as the run that counts."""

from __future__ import annotations

import contextlib
import posixpath
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from typing_extensions import Buffer

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

#: Bytes that all changes together may take.
CHANGED_BYTES_MAX: Final = 1 << 30
_PAGE_BYTES: Final = 4096


@dataclass(slots=True)
class _Content:
    """A file: pages that were written, over the first bytes of a real one.

    Attributes:
        real_path: Where the real one is; it never changes. None: there is none.
        real_bytes: So many of its bytes still count.
    """

    info: FileInfo
    real_path: str | None
    real_bytes: int
    size_bytes: int
    pages: dict[int, bytearray] = field(default_factory=dict)


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
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._lock = threading.RLock()
        #: What is known here of a path; None: it was removed.
        self._known: dict[str, _Content | _Directory | None] = {}
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
            if isinstance(known, _Content):
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
        return _OverlayFile(self, path, self._content(path, make=False))

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

    # ---- writing

    def open_write(self, path: str) -> WritableFile:
        """A new file that gets its name on commit."""
        with self._lock:
            temporary = _normal(path) + TEMPORARY_SUFFIX
            if temporary in self._held:
                raise StoreUnavailableError(f"{path}: is being written by somebody else")
            self.remove(temporary)
            file = _OverlayUpdatableFile(self, temporary, self._content(temporary, make=True))
            self._held.add(temporary)
        return _OverlayNewFile(self, path, temporary, file)

    def write_whole(self, path: str, data: Buffer) -> None:
        """Write a file with exactly this content."""
        with self.open_write(path) as file:
            file.write(data)
            file.commit()

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:  # noqa: ARG002 - nobody else sees it
        """A file to change in place, made (empty) if it does not exist; its directory must exist."""
        return _OverlayUpdatableFile(self, path, self._content(path, make=True))

    def _content(self, path: str, *, make: bool) -> _Content:
        """What stands for a file from now on, for all who open it."""
        with self._lock:
            name = _normal(path)
            known = self._known.get(name)
            if isinstance(known, _Content):
                return known
            found = self._find(name)
            if found is None:
                if not make:
                    raise ObjectNotFoundError(f"{path}: no such file or directory")
                self._require_parent(name, path)
                content = _Content(FileInfo(name, 0, self._clock.time_ms(), is_directory=False), None, 0, 0)
            elif found.is_directory:
                raise StoreError(f"{path}: a directory")
            else:
                content = _Content(found, name, found.size_bytes, found.size_bytes)
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
            return max(0, self._limit_bytes - self._used_bytes)

    def try_lock(self, path: str) -> FileLock | None:
        """The lock of a name, of those who work on this object; None if it is held."""
        with self._lock:
            name = _normal(path)
            self._require_parent(name, path)
            if name in self._held:
                return None
            self._content(path, make=True)
            self._held.add(name)
            return _OverlayLock(self, name, stays=False)

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
            return _OverlayLock(self, name, stays=True, real=real)

    def unlock(self, name: str, *, stays: bool) -> None:
        """Release a lock, or a name that is written under."""
        with self._lock:
            if name in self._held:
                self._held.discard(name)
                if not stays:
                    self.remove(name)

    # ---- pages

    def open_real(self, content: _Content) -> ReadableFile | None:
        """The real file of a content, if any of its bytes count."""
        return None if content.real_path is None else self._real.open_read(content.real_path)

    def read(self, content: _Content, real: ReadableFile | None, buffer: Buffer, position: int) -> int:
        """Fill a buffer from a position on; the bytes read."""
        view = memoryview(buffer).cast("B")
        with self._lock:
            count = max(0, min(len(view), content.size_bytes - position))
            view = view[:count]
            from_real = max(0, min(count, content.real_bytes - position)) if real is not None else 0
            if from_real and real is not None:
                from_real = real.read_into(view[:from_real], position=position)
            view[from_real:] = bytes(count - from_real)
            if not content.pages or not count:
                return count
            for number in range(position // _PAGE_BYTES, (position + count - 1) // _PAGE_BYTES + 1):
                page = content.pages.get(number)
                if page is not None:
                    at = number * _PAGE_BYTES
                    start, end = max(position, at), min(position + count, at + _PAGE_BYTES)
                    view[start - position : end - position] = page[start - at : end - at]
            return count

    def write(self, content: _Content, real: ReadableFile | None, data: Buffer, position: int) -> None:
        """Overwrite, and go on behind the end. Raises StoreError: too much was changed."""
        view = memoryview(data).cast("B")
        if not len(view):
            return
        with self._lock:
            numbers = range(position // _PAGE_BYTES, (position + len(view) - 1) // _PAGE_BYTES + 1)
            missing = [number for number in numbers if number not in content.pages]
            if self._used_bytes + len(missing) * _PAGE_BYTES > self._limit_bytes:
                text = (
                    f"{content.info.path}: more than {self._limit_bytes} bytes were changed: too much to keep in memory"
                )
                raise StoreError(text)
            for number in missing:
                page = bytearray(_PAGE_BYTES)
                self.read(content, real, page, number * _PAGE_BYTES)
                content.pages[number] = page
            self._used_bytes += len(missing) * _PAGE_BYTES
            for number in numbers:
                at = number * _PAGE_BYTES
                start, end = max(position, at), min(position + len(view), at + _PAGE_BYTES)
                content.pages[number][start - at : end - at] = view[start - position : end - position]
            content.size_bytes = max(content.size_bytes, position + len(view))
            self._touch(content)

    def truncate(self, content: _Content, size_bytes: int) -> None:
        """Cut a file, or lengthen it with zeros."""
        with self._lock:
            content.real_bytes = min(content.real_bytes, size_bytes)
            last = -(-size_bytes // _PAGE_BYTES)
            for number in [number for number in content.pages if number >= last]:
                del content.pages[number]
                self._used_bytes -= _PAGE_BYTES
            edge = content.pages.get(last - 1)
            if edge is not None and size_bytes % _PAGE_BYTES:
                kept = size_bytes % _PAGE_BYTES
                edge[kept:] = bytes(_PAGE_BYTES - kept)
            content.size_bytes = size_bytes
            self._touch(content)

    def _touch(self, content: _Content) -> None:
        content.info = replace(content.info, modified_ms=self._clock.time_ms(), identity=(0, 0))


class _OverlayFile(ReadableFile):
    """A ReadableFile of an overlay."""

    def __init__(self, files: OverlayFiles, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._real = files.open_real(content)
        self._is_open = True
        self.size_bytes = content.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        if not self._is_open:
            raise StoreError(f"{self._path}: closed")
        return self._files.read(self._content, self._real, buffer, position)

    def close(self) -> None:
        self._is_open = False
        if self._real is not None:
            self._real.close()


class _OverlayUpdatableFile(UpdatableFile):
    """An UpdatableFile of an overlay."""

    def __init__(self, files: OverlayFiles, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._real = files.open_real(content)
        self._is_open = True

    @property
    def descriptor(self) -> int | None:
        return None

    @property
    def size_bytes(self) -> int:
        return self._content.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        return self._files.read(self._opened(), self._real, buffer, position)

    def append(self, data: Buffer) -> int:
        content = self._opened()
        position = content.size_bytes
        self._files.write(content, self._real, data, position)
        return position

    def write_at(self, data: Buffer, *, position: int) -> None:
        self._files.write(self._opened(), self._real, data, position)

    def truncate(self, size_bytes: int) -> None:
        self._files.truncate(self._opened(), size_bytes)

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        """Nothing: there is no disk."""

    def fsync(self) -> None:
        """Nothing: there is no disk."""
        self._opened()

    def close(self) -> None:
        self._is_open = False
        if self._real is not None:
            self._real.close()

    def _opened(self) -> _Content:
        if not self._is_open:
            raise StoreError(f"{self._path}: closed")
        return self._content


class _OverlayNewFile(WritableFile):
    """A WritableFile of an overlay."""

    def __init__(self, files: OverlayFiles, path: str, temporary: str, file: _OverlayUpdatableFile) -> None:
        self._files = files
        self._path = path
        self._temporary = temporary
        self._file: _OverlayUpdatableFile | None = file

    def write(self, data: Buffer) -> None:
        if self._file is None:
            raise StoreError(f"{self._path}: closed")
        self._file.append(data)

    def commit(self) -> None:
        self._files.rename(self._temporary, self._path)
        self._close()

    def abort(self) -> None:
        if self._file is not None:
            self._files.remove(self._temporary)
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._files.unlock(self._temporary, stays=True)


class _OverlayLock(FileLock):
    """A FileLock of an overlay, and of the real file where there is one."""

    def __init__(self, files: OverlayFiles, name: str, *, stays: bool, real: FileLock | None = None) -> None:
        self._files = files
        self._name = name
        self._stays = stays
        self._real = real
        self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._files.unlock(self._name, stays=self._stays)
            if self._real is not None:
                self._real.release()


def _normal(path: str) -> str:
    return posixpath.normpath(path)
