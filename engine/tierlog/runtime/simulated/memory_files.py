"""A file system in memory: for tests and simulation, where a crash loses bytes that were not fsynced; and for dry runs,
over another file system that is only read.

A log's native appends and searches run over it, through the core's table of file operations (``cext/files.pyx``): each
write and read is an operation of the disk, which can fail, and a crash loses what was not fsynced. What takes another
path than over the machine's files:

- A file has no ``descriptor``: bytes of a log are read into memory, not sent by ``os.sendfile``.
- ``open_ready`` returns None: whatever would be read without waiting for a disk (a broker's answers, the checks of
  stored batches, ``ReadyFile``) is read by a thread or a task that may wait.
- ``read_range`` and ``read_range_into`` are Python's calls, and not one native call.
- No space is reserved ahead of a log's end, and no write-out begun early.
- SQLite opens its own files (``runtime.sqlite``): it has none here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from typing_extensions import Buffer

from tierlog._native.files import GrowingFile, ReadyFile
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
    store_error,
)
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.simulated.directory_tree import Directory, Place
from tierlog.runtime.simulated.memory_disk import DiskHook, DiskOperation, MemoryDisk, OpenContent
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
        return self._on(self._disk.crash(rng))

    def wipe(self, path: str = "/") -> MemoryFiles:
        """Lose power, and for good all that is in a directory: its disk was replaced.

        Returns:
            The files that the machine finds when it is started again: no change without fsync survives.
        """
        left = self._disk.crash(None)
        directory = left.find(path)
        if not isinstance(directory, Directory):
            raise ObjectNotFoundError(f"{path}: no such directory")
        left.tree.clear(directory)
        return self._on(left)

    def _on(self, disk: MemoryDisk) -> MemoryFiles:
        """The files of a disk that a crash left."""
        left = MemoryFiles(self.clock)
        left._disk = disk
        return left

    def flip_bit(self, path: str, *, position: int, bit: int, written_out: bool = False) -> bool:
        """Flip one of the eight bits of a byte on the disk, as a disk does that decays: no hook is called. Readers see
        it, unless the byte was written since the last fsync: then that write replaces it.

        Args:
            path: Of the file.
            position: Of the byte.
            bit: 0 to 7.
            written_out: Have the file on the disk first, as the kernel has every file that is old enough.

        Returns:
            Whether there is such a byte on the disk.
        """
        with self._disk.held():
            file = self._file(path)
            if written_out:
                file.fsync()
            return file.flip_bit(position, bit)

    def befall(self, hook: DiskHook) -> None:
        """Add a function that is called before each operation, and decides whether it fails (``failing_disk``): the
        first one's fault counts.
        """
        self._disk.hooks = [*self._disk.hooks, hook]

    def mend(self, hook: DiskHook | None = None) -> None:
        """Remove a function of ``befall``, if it is there; None: all."""
        self._disk.hooks = [] if hook is None else [each for each in self._disk.hooks if each != hook]

    def open_paths(self) -> list[str]:
        """Return the paths of files that are open now, once for each time, and of leases."""
        with self._disk.held():
            return self._disk.open_paths()

    def find(self, path: str) -> FileInfo | None:
        """Return size, kind and times of a file or directory; None if the path names nothing."""
        with self._disk.held():
            found = self._disk.find(path)
            return None if found is None else found.info(path)

    def stat(self, path: str) -> FileInfo:
        """Return size, kind and times of a file or directory. Raises ObjectNotFoundError."""
        found = self.find(path)
        if found is None:
            raise ObjectNotFoundError(f"{path}: no such file or directory")
        return found

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """Yield a directory's entries by name."""
        with self._disk.held():
            directory = self._directory(path)
            names = directory.list_names()
        for name in names:
            with self._disk.held():
                found = directory.find(name)
                if found is None:
                    continue
                info = found.info(f"{path.rstrip('/')}/{name}")
            yield info

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

    def read_small(self, paths: list[str], limits: list[int]) -> Sequence[bytes | None]:
        """Read small files from their beginning; None in place of one that cannot be read."""
        found: list[bytes | None] = []
        for path, limit in zip(paths, limits, strict=True):
            try:
                found.append(bytes(self.read_range(path, start_position=0, end_position_exclusive=limit)))
            except StoreError:
                found.append(None)
        return found

    def open_ready(self, path: str) -> ReadyFile | None:  # noqa: ARG002
        """None: these are no files of the machine."""
        return None

    def lease(self, path: str) -> LeasedFile:
        """Return a path that opens this file until it is closed."""
        with self._disk.held():
            name = self._disk.lease(self._file(path))
        return LeasedFile(f"/{name}", partial(self._disk.end_lease, name))

    def open_write(self, path: str) -> WritableFile:
        """Return a new file that gets its name on commit."""
        temporary = path + TEMPORARY_SUFFIX
        with self._disk.held():
            left = self._disk.find_file(temporary)
            if left is not None and left.is_locked:
                raise StoreUnavailableError(f"{path}: is being written by somebody else")
            self.remove(temporary)
            file = self._open(temporary, make=True)
            file.content.is_locked = True
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
        self.make_directories(path.rpartition("/")[0] or "/")
        self.write_whole(path, data)

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:  # noqa: ARG002
        """Make a directory and its parents, always durable."""
        with self._disk.held():
            directory: Directory = self._disk.tree.root
            is_met = False
            for name in self._disk.name_of(path).split("/"):
                below = directory.find(name) if name else directory
                if below is None:
                    if not is_met:
                        self._disk.meet(DiskOperation.MAKE_DIRECTORY, path)
                    is_met = True
                    below = self._disk.tree.add_directory(directory, name)
                if not isinstance(below, Directory):
                    raise StoreError(f"{path}: a file is in the way")
                directory = below

    def rename(self, source: str, target: str, *, durable: bool = True) -> None:
        """Rename atomically within one file system, replacing the target."""
        with self._disk.held():
            old, new = self._disk.find_place(source), self._place(target)
            moved, replaced = self._disk.find(source), self._disk.find(target)
            if moved is None or old[0] is None:
                raise ObjectNotFoundError(f"{source}: no such file")
            if isinstance(replaced, Directory) and moved is not replaced:
                raise StoreError(f"{target}: a directory is in the way")
            if isinstance(moved, Directory) and moved is not replaced and (replaced is not None or moved.has(new[0])):
                raise StoreError(f"{target}: no place for a directory")
            self._disk.meet(DiskOperation.RENAME, source)
            if moved is not replaced:
                self._disk.tree.change({(old[0], old[1]): None, new: moved})
            if durable:
                self._disk.meet(DiskOperation.FSYNC_DIRECTORY, target.rpartition("/")[0] or "/")
                self._disk.tree.make_durable(new[0])

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last change, ms since 1970 UTC."""
        with self._disk.held():
            self._file(path).modified_ms = modified_ms

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory, if it is there."""
        with self._disk.held():
            directory, name = self._disk.find_place(path)
            found = None if directory is None else self._disk.find(path)
            if directory is None or found is None:
                return
            if isinstance(found, Directory) and (not name or found.list_names()):
                raise StoreError(f"{path}: directory not empty")
            self._disk.meet(DiskOperation.UNLINK, path)
            self._disk.tree.change({(directory, name): None})

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory survive a crash as they are now."""
        with self._disk.held():
            found = self._disk.find(path)
            if found is None:
                raise ObjectNotFoundError(f"{path}: no such file or directory")
            if not isinstance(found, Directory):
                raise StoreError(f"{path}: not a directory")
            self._disk.meet(DiskOperation.FSYNC_DIRECTORY, path)
            self._disk.tree.make_durable(found)

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
        with self._disk.held():
            self._place(path)
            found = self._disk.find_file(path)
            return None if found is not None and found.is_locked else self._lock(path)

    def try_record_lock(self, path: str) -> FileLock | None:
        """Lock a file, which stays; None if it is locked, by a process that has locked the base's file too. A base file
        is never made, and locked only if it may be written.
        """
        with self._disk.held():
            found, base, real = self._disk.find_file(path), self._disk.base, None
            if found is not None and found.is_locked:
                return None
            if base is not None and isinstance(found, BaseContent):
                with contextlib.suppress(StorePermissionError):
                    real = base.try_record_lock(found.base_path)
                    if real is None:
                        return None
            return self._lock(path, stays=True, real=real)

    def _lock(self, path: str, *, stays: bool = False, real: FileLock | None = None) -> FileLock:
        held = self._open(path, make=True)
        held.content.is_locked = True
        return _MemoryLock(self, held, stays=stays, real=real)

    def unlock(self, held: OpenContent, *, stays: bool = False) -> None:
        """Release a lock of ``try_lock`` or, if the file ``stays``, of ``try_record_lock``."""
        if held.is_open:
            held.close()
            with contextlib.suppress(StoreError), self._disk.held():  # after a crash it has no owner
                held.content.is_locked = False
                if not stays:
                    self.remove(held.path)

    def _directory(self, path: str) -> Directory:
        found = self._disk.find(path)
        if not isinstance(found, Directory):
            what = "no such file or directory" if found is None else "not a directory"
            raise ObjectNotFoundError(f"{path}: {what}")
        return found

    def _file(self, path: str) -> Content:
        found = self._disk.find_file(path)
        if found is None:
            raise ObjectNotFoundError(f"{path}: no such file")
        return found

    def _place(self, path: str) -> Place:
        directory, name = self._disk.find_place(path)
        if directory is None:
            raise ObjectNotFoundError(f"{path}: its directory does not exist")
        return directory, name

    def _open(self, path: str, *, make: bool) -> OpenContent:
        with self._disk.held():
            found = self._disk.find(path)
            if isinstance(found, Directory):
                raise StoreError(f"{path}: a directory")
            if found is None:
                if not make:
                    raise ObjectNotFoundError(f"{path}: no such file")
                place = self._place(path)
                self._disk.meet(DiskOperation.CREATE, path)
                found = Content(self.clock.time_ms())
                self._disk.tree.change({place: found})
            else:
                self._disk.meet(DiskOperation.OPEN, path)
            return OpenContent(self._disk, path, found)


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
        self._file.content.is_locked = False


class _MemoryUpdatableFile(UpdatableFile):
    """An UpdatableFile in memory."""

    def __init__(self, file: OpenContent) -> None:
        self._file = file
        self._growing = GrowingFile(file, size_bytes=file.size_bytes, to_error=partial(store_error, path=file.path))

    @property
    def descriptor(self) -> int | None:
        return None

    @property
    def growing(self) -> GrowingFile:
        return self._growing

    @property
    def size_bytes(self) -> int:
        return self._growing.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        return self._file.read_into(buffer, position)

    def append(self, data: Buffer) -> int:
        return self._growing.append(data)

    def write_at(self, data: Buffer, *, position: int) -> None:
        self._file.write(data, position)
        self._growing.size_bytes = max(self._growing.size_bytes, position + memoryview(data).nbytes)

    def truncate(self, size_bytes: int) -> None:
        self._file.truncate(size_bytes)
        self._growing.size_bytes = size_bytes

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
