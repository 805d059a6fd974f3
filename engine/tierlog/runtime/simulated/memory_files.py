"""A file system in memory: for tests and simulation, where a crash loses bytes that were not fsynced; and for dry runs,
over another file system that is only read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from typing_extensions import Buffer

from tierlog._native.files import ReadyFile
from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.clock import Clock, ManualClock
from tierlog.runtime.machine.files import (
    TEMPORARY_SUFFIX,
    FileInfo,
    FileLock,
    Files,
    LeasedFile,
    ReadableFile,
    UpdatableFile,
    WritableFile,
)
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.simulated.memory_disk import (
    DiskHook,
    DiskOperation,
    MemoryDisk,
    OpenContent,
    is_in,
    parent,
)
from tierlog.runtime.simulated.page_cache import BaseContent, Content


class MemoryFiles:
    """Files in memory, under the root "/". Thread-safe.

    Directories are durable at once, as ``make_directories`` promises.

    Args:
        clock: Source of the files' times of change.
        capacity_bytes: The most bytes of all files together; writing more fails as on a full disk.
        base: Files that are seen here too, and only read: changes are made here and nowhere else, and end with this
            object. Changes of the base meanwhile may be seen or not; changes made here count as bytes. A record lock is
            acquired on the real file too, if that exists: that changes nothing, and locks writers out.
    """

    def __init__(self, clock: Clock | None = None, *, capacity_bytes: int = 1 << 40, base: Files | None = None) -> None:
        self.clock = clock or ManualClock()
        self._disk = MemoryDisk(self.clock, capacity_bytes, base)

    def crash(self, rng: Rng | None = None) -> MemoryFiles:
        """Lose power: these files, and all files opened from here, fail from now on.

        Returns:
            The files that the machine finds when it is started again.

        Args:
            rng: Decides which changes without fsync survive: of a file each write, whole or by sectors, and its length
                (``page_cache``); of the names each change. None: none survive.
        """
        left = MemoryFiles(self.clock, capacity_bytes=self._disk.capacity_bytes)
        left._disk = self._disk.crash(rng)
        return left

    def befall(self, hook: DiskHook | None) -> None:
        """Set a function that is called before each operation, and decides whether it fails (``failing_disk``); None:
        not any more.
        """
        self._disk.hook = hook

    def find(self, path: str) -> FileInfo | None:
        """Return size, kind and times of a file or directory; None if the path names nothing."""
        name = self._disk.name_of(path)
        with self._disk.held():
            content = self._disk.find(name)
            if content is not None:
                return content.info(path)
            return self._disk.directory_info(name, path) if self._disk.is_directory(name) else None

    def stat(self, path: str) -> FileInfo:
        """Return size, kind and times of a file or directory. Raises ObjectNotFoundError."""
        found = self.find(path)
        if found is None:
            raise ObjectNotFoundError(f"{path}: no such file or directory")
        return found

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """Yield a directory's entries by name."""
        if not self.stat(path).is_directory:
            raise ObjectNotFoundError(f"{path}: not a directory")
        folder = self._disk.name_of(path)
        with self._disk.held():
            below = self._disk.children(folder)
        for name in below:
            found = self.find(f"/{name}")
            if found is not None:
                yield replace(found, path=f"{path.rstrip('/')}/{name.rpartition('/')[2]}")

    def list_files(self, path: str, *, sized: str = "") -> list[tuple[str, int]]:
        """Return (name, size) of the files in a directory, by name; -1 where a name does not end with ``sized``."""
        entries = (entry for entry in self.iter_directory(path) if not entry.is_directory)
        return [(each.name, each.size_bytes if sized and each.name.endswith(sized) else -1) for each in entries]

    def open_read(self, path: str) -> ReadableFile:
        """Open a file, whose content stays when its name is removed."""
        return _MemoryFile(self._open(path, make=False))

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """Return the content of a file. Raises StoreError if it is larger than the limit."""
        with self._disk.held(), self.open_read(path) as file:
            if file.size_bytes > limit_bytes:
                raise StoreError(f"{path}: {file.size_bytes} bytes, more than the limit of {limit_bytes}")
            data = bytearray(file.size_bytes)
            file.read_into(data, position=0)
        return bytes(data)

    def read_stream(self, path: str, *, limit_bytes: int) -> bytes:
        """Return the content of a file: there are only regular files here."""
        return self.read_whole(path, limit_bytes=limit_bytes)

    def read_range(self, path: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        """Return the part of a range that a file has, in memory of ``new_buffer``: writable, not cleared first, and the
        caller's alone as long as a view of it is held.
        """
        with self.open_read(path) as file:
            buffer = new_buffer(max(0, min(end_position_exclusive, file.size_bytes) - start_position))
            return buffer[: file.read_into(buffer, position=start_position)]

    def read_range_into(self, path: str, out: memoryview, *, start_position: int) -> int:
        """Fill ``out`` from a position on; returns the bytes read, fewer only at the end of the file."""
        with self.open_read(path) as file:
            return file.read_into(out, position=start_position)

    def open_ready(self, path: str) -> ReadyFile | None:  # noqa: ARG002
        """None: these are no files of the machine."""
        return None

    def lease(self, path: str) -> LeasedFile:
        """Return a path that opens this file until it is closed."""
        with self._disk.held():
            content = self._disk.find(self._disk.name_of(path))
            if content is None:
                raise ObjectNotFoundError(f"{path}: no such file")
            name = self._disk.lease(content)
        return LeasedFile(f"/{name}", partial(self._disk.end_lease, name))

    def open_write(self, path: str) -> WritableFile:
        """Return a new file that gets its name on commit."""
        temporary = path + TEMPORARY_SUFFIX
        with self._disk.held():
            if self._disk.name_of(temporary) in self._disk.locked:
                raise StoreUnavailableError(f"{path}: is being written by somebody else")
            self.remove(temporary)
            file = self._open(temporary, make=True)
            self._disk.locked.add(self._disk.name_of(temporary))
        return _MemoryNewFile(self, path, file)

    def write_whole(self, path: str, data: Buffer) -> None:
        """Write a file with exactly this content."""
        with self.open_write(path) as file:
            file.write(data)
            file.commit()

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:  # noqa: ARG002 - no other user is here
        """Return a file to change in place, made (empty) if it does not exist; its directory must exist."""
        return _MemoryUpdatableFile(self._open(path, make=True))

    def put(self, path: str, data: bytes) -> None:
        """A durable file under its name at once, with its directories."""
        self.make_directories(f"/{parent(self._disk.name_of(path))}")
        self.write_whole(path, data)

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:  # noqa: ARG002
        """Make a directory and its parents, always durable."""
        name = above = self._disk.name_of(path)
        with self._disk.held():
            while above and not self._disk.is_directory(above):
                if self._disk.find(above) is not None:
                    raise StoreError(f"{path}: a file is in the way")
                above = parent(above)
            if above != name:
                self._disk.meet(DiskOperation.MAKE_DIRECTORY, path)
            self._disk.add_directory(name)

    def rename(self, source: str, target: str, *, durable: bool = True) -> None:
        """Rename atomically within one file system, replacing the target."""
        old, new = self._disk.name_of(source), self._disk.name_of(target)
        with self._disk.held():
            self._require_parent(new, target)
            content = self._disk.find(old)
            if content is None and not self._disk.is_directory(old):
                raise ObjectNotFoundError(f"{source}: no such file")
            if self._disk.is_directory(new) and (content is not None or old != new):
                raise StoreError(f"{target}: a directory is in the way")
            if content is None and (self._disk.find(new) is not None or (old != new and is_in(new, old))):
                raise StoreError(f"{target}: no place for a directory")
            self._disk.meet(DiskOperation.RENAME, source)
            if old == new:
                pass
            elif content is None:
                self._disk.move_directory(old, new)
            else:
                self._disk.change({old: None, new: content})
            if durable:
                self.fsync_directory(f"/{parent(new)}")

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last change, ms since 1970 UTC."""
        with self._disk.held():
            content = self._disk.find(self._disk.name_of(path))
            if content is None:
                raise ObjectNotFoundError(f"{path}: no such file")
            content.modified_ms = modified_ms

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory, if it is there."""
        name = self._disk.name_of(path)
        with self._disk.held():
            if self._disk.find(name) is not None:
                self._disk.meet(DiskOperation.UNLINK, path)
                self._disk.change({name: None})
            elif self._disk.is_directory(name):
                if not name or self._disk.children(name):
                    raise StoreError(f"{path}: directory not empty")
                self._disk.meet(DiskOperation.UNLINK, path)
                self._disk.remove_directory(name)

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory survive a crash as they are now."""
        with self._disk.held():
            if not self.stat(path).is_directory:
                raise StoreError(f"{path}: not a directory")
            self._disk.meet(DiskOperation.FSYNC_DIRECTORY, path)
            self._disk.make_durable(self._disk.name_of(path))

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that can still be written to the file system that holds a file or directory."""
        self.stat(path)
        with self._disk.held():
            return self._disk.free_bytes()

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system that holds a file or directory."""
        self.stat(path)
        return self._disk.capacity_bytes

    def try_lock(self, path: str) -> FileLock | None:
        """Return the lock of a name, a file that exists while the lock is held; None if any process holds it."""
        name = self._disk.name_of(path)
        with self._disk.held():
            self._require_parent(name, path)
            if name in self._disk.locked:
                return None
            held = self._open(path, make=True)
            self._disk.locked.add(name)
            return _MemoryLock(self, held)

    def try_record_lock(self, path: str) -> FileLock | None:
        """Lock a file, which stays; None if it is locked, by a process that has locked the base's file too. A base file
        is never made, and locked only if it may be written.
        """
        name = self._disk.name_of(path)
        with self._disk.held():
            content, base, real = self._disk.find(name), self._disk.base, None
            if name in self._disk.locked:
                return None
            if base is not None and isinstance(content, BaseContent):
                with contextlib.suppress(StorePermissionError):
                    real = base.try_record_lock(content.base_path)
                    if real is None:
                        return None
            held = self._open(path, make=True)
            self._disk.locked.add(name)
            return _MemoryLock(self, held, stays=True, real=real)

    def unlock(self, held: OpenContent, *, stays: bool = False) -> None:
        """Release a lock of ``try_lock`` or, if the file ``stays``, of ``try_record_lock``."""
        if held.is_open:
            held.close()
            with contextlib.suppress(StoreError), self._disk.held():  # after a crash it has no owner
                if not stays:
                    self.remove(held.path)
                self._disk.locked.discard(self._disk.name_of(held.path))

    def _require_parent(self, name: str, path: str) -> None:
        if not self._disk.is_directory(parent(name)):
            raise ObjectNotFoundError(f"{path}: its directory does not exist")

    def _open(self, path: str, *, make: bool) -> OpenContent:
        name = self._disk.name_of(path)
        with self._disk.held():
            if self._disk.is_directory(name):
                raise StoreError(f"{path}: a directory")
            content = self._disk.find(name)
            if content is None:
                if not make:
                    raise ObjectNotFoundError(f"{path}: no such file")
                self._require_parent(name, path)
                self._disk.meet(DiskOperation.CREATE, path)
                content = Content(self.clock.time_ms())
                self._disk.change({name: content})
            else:
                self._disk.meet(DiskOperation.OPEN, path)
            return OpenContent(self._disk, path, content)


class _MemoryFile(ReadableFile):
    """A ReadableFile in memory."""

    def __init__(self, file: OpenContent) -> None:
        self._file = file
        self.size_bytes = file.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        return self._file.read_into(buffer, position)

    def close(self) -> None:
        self._file.close()


class _MemoryNewFile(WritableFile):
    """A WritableFile in memory."""

    def __init__(self, files: MemoryFiles, path: str, file: OpenContent) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write(self, data: Buffer) -> None:
        self._file.write(data, self._file.size_bytes)

    def commit(self) -> None:
        self._file.fsync()
        self._files.rename(self._file.path, self._path)
        self._close()

    def abort(self) -> None:
        if self._file.is_open:
            try:
                if not self._file.disk.lost:
                    self._files.remove(self._file.path)
            finally:  # a file that cannot be removed is harmless: the next writer replaces it
                self._close()

    def _close(self) -> None:
        self._file.close()
        self._file.disk.locked.discard(self._file.disk.name_of(self._file.path))


class _MemoryUpdatableFile(UpdatableFile):
    """An UpdatableFile in memory."""

    def __init__(self, file: OpenContent) -> None:
        self._file = file
        self._size_bytes = file.size_bytes

    @property
    def descriptor(self) -> int | None:
        return None

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        return self._file.read_into(buffer, position)

    def append(self, data: Buffer) -> int:
        position = self._size_bytes
        try:
            self.write_at(data, position=position)
        except StoreError:
            with contextlib.suppress(StoreError):  # as on a real disk: a part of it does not count
                self.truncate(position)
            raise
        return position

    def write_at(self, data: Buffer, *, position: int) -> None:
        self._file.write(data, position)
        self._size_bytes = max(self._size_bytes, position + memoryview(data).nbytes)

    def truncate(self, size_bytes: int) -> None:
        self._file.truncate(size_bytes)
        self._size_bytes = size_bytes

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        pass  # bytes without an fsync may survive a crash or not, as before

    def fsync(self) -> None:
        self._file.fsync()

    def close(self) -> None:
        self._file.close()


class _MemoryLock(FileLock):
    """A FileLock in memory."""

    def __init__(
        self, files: MemoryFiles, held: OpenContent, *, stays: bool = False, real: FileLock | None = None
    ) -> None:
        self._files = files
        self._held = held
        self._stays = stays
        self._real = real

    def release(self) -> None:
        if self._real is not None:
            self._real.release()
        self._files.unlock(self._held, stays=self._stays)
