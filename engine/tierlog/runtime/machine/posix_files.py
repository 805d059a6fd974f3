"""The machine's file system."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat as stat_bits
import struct
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from typing_extensions import Buffer

from tierlog._native.buffers import read_range_into
from tierlog._native.files import GrowingFile, ReadyFile, list_directory, open_ready, read_small_files
from tierlog.errors import ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine.buffers import PROCESS_BUFFERS
from tierlog.runtime.machine.files import (
    TEMPORARY_SUFFIX,
    FileInfo,
    FileLock,
    LeasedFile,
    ReadableFile,
    UpdatableFile,
    WritableFile,
    store_error,
    translated,
)

#: Errors of a file system without locks: there a second writer at the same time is not noticed.
_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS))
#: Allocated bytes beyond a file's size that mean a reserve: more than the rounding and the map of its blocks.
_RESERVE_SEEN_BYTES: Final = 1 << 16
#: ``struct flock`` of a whole file: type, whence, start, length, process (0: the lock is the open file's).
_WHOLE_FILE: Final = struct.pack("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _info(path: str, found: os.stat_result) -> FileInfo:
    directory = stat_bits.S_ISDIR(found.st_mode)
    size = 0 if directory else found.st_size
    identity = (found.st_dev, found.st_ino)
    for_all = bool(found.st_mode & stat_bits.S_IROTH)
    return FileInfo(path, size, found.st_mtime_ns // 1_000_000, directory, identity, for_all)


class _Descriptor:
    """An open file, closed with the object at the latest."""

    def __init__(self, path: str, flags: int, *, mode: int = 0o644) -> None:
        self.path = path
        self.number = -1
        with translated(path):
            self.number = os.open(path, flags | os.O_CLOEXEC, mode)

    def regular_size_bytes(self) -> int:
        """Return the file's size. Raises StoreError, and closes the file, if it is no regular file."""
        with translated(self.path):
            found = os.fstat(self.number)
        if not stat_bits.S_ISREG(found.st_mode):
            self.close()
            raise StoreError(f"{self.path}: not a regular file")
        return found.st_size

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Read by pread, which has no shared position: any number of threads may read."""
        view = memoryview(buffer).cast("B")
        done, size_bytes = 0, len(view)
        try:  # not ``translated``: a read of a header costs less than that
            while done < size_bytes:
                count = os.preadv(self.number, [view[done:] if done else view], position + done)
                if count == 0:
                    break
                done += count
        except OSError as cause:
            raise store_error(cause, self.path) from cause
        return done

    def write(self, data: Buffer, position: int | None = None) -> None:
        """Write all bytes; at the descriptor's own position if none is given."""
        view = memoryview(data).cast("B")
        try:  # not ``translated``, which costs an append a tenth of its time
            while view:
                count = os.write(self.number, view) if position is None else os.pwrite(self.number, view, position)
                position = None if position is None else position + count
                view = view[count:]
        except OSError as cause:
            raise store_error(cause, self.path) from cause

    def begin_write_out(self, position: int, size_bytes: int) -> None:
        """Begin to write dirty pages to the disk, by posix_fadvise: Linux does so before it drops clean ones."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.number, position, size_bytes, os.POSIX_FADV_DONTNEED)

    def give_back(self) -> None:
        """Free the room that was reserved behind the end, here or by a process that was killed."""
        found = os.fstat(self.number)
        if found.st_blocks * 512 - found.st_size >= _RESERVE_SEEN_BYTES:
            os.ftruncate(self.number, found.st_size)  # the same size: this frees only the space behind it
            os.utime(self.number, ns=(found.st_atime_ns, found.st_mtime_ns))

    def fsync(self) -> None:
        with translated(self.path):
            os.fsync(self.number)

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            with translated(self.path):
                os.close(number)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


class PosixFile(ReadableFile):
    """A ReadableFile of this machine."""

    def __init__(self, path: str) -> None:
        self._file = _Descriptor(path, os.O_RDONLY)
        self.size_bytes = self._file.regular_size_bytes()

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        return self._file.read_into(buffer, position)

    def close(self) -> None:
        self._file.close()


class PosixNewFile(WritableFile):
    """A WritableFile under a temporary name beside its final one. It is removed with the object at the latest, since a
    signal can come before any ``with`` block.

    The temporary file is locked, since two writers under one name would mix their bytes. A killed writer's file is
    overwritten: the kernel has released its lock.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = path + TEMPORARY_SUFFIX
        self._open = False
        try:
            while not self._take_name():
                pass
            with translated(self._temporary):
                os.ftruncate(self._file.number, 0)
        except StoreUnavailableError:
            raise
        except BaseException:  # a signal's too: the file may be there, and this not know it yet
            self._leave_name()
            raise

    def _take_name(self) -> bool:
        """Open and lock the file under the temporary name; False if its writer finished meanwhile and removed it."""
        self._file = _Descriptor(self._temporary, os.O_WRONLY | os.O_CREAT)
        with translated(self._temporary):
            try:
                fcntl.flock(self._file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreUnavailableError(f"{self._path}: is being written by somebody else") from None
            except OSError as cause:
                if cause.errno not in _NO_LOCKS:
                    raise
            self._open = True
            try:
                self._open = os.stat(self._temporary).st_ino == os.fstat(self._file.number).st_ino
            except FileNotFoundError:
                self._open = False
        return self._open

    def _leave_name(self) -> None:
        """Remove the file under the temporary name, unless it is another writer's."""
        self._open = False
        if "_file" in self.__dict__:
            self._file.close()
        with contextlib.suppress(StoreError, OSError):
            found = _Descriptor(self._temporary, os.O_WRONLY)
            fcntl.flock(found.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(self._temporary)
            found.close()

    def write(self, data: Buffer) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.fsync()
        with translated(self._path):
            os.replace(self._temporary, self._path)  # while it is locked: then no other process has it open
            self._open = False
            self._file.close()
            _fsync_directory(_parent(self._path))

    def abort(self) -> None:
        if self._open:
            self._open = False
            try:
                self._unlink()
            finally:  # on a disk that became read-only too
                self._file.close()

    def _unlink(self) -> None:
        with translated(self._path), contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)

    def __del__(self) -> None:
        if self._open:
            with contextlib.suppress(StoreError):
                self._unlink()


class PosixStream(WritableFile):
    """A WritableFile over a pipe or a device, in whose place a rename would put a file."""

    def __init__(self, path: str) -> None:
        self._file = _Descriptor(path, os.O_WRONLY)

    def write(self, data: Buffer) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()

    def abort(self) -> None:
        self._file.close()


class PosixUpdatableFile(UpdatableFile):
    """An UpdatableFile of this machine."""

    def __init__(self, path: str, *, private: bool = False) -> None:
        self._file = _Descriptor(path, os.O_RDWR | os.O_CREAT, mode=0o600 if private else 0o644)
        size_bytes = self._file.regular_size_bytes()
        number = self._file.number
        self._growing = GrowingFile(number, size_bytes=size_bytes, to_error=partial(store_error, path=path))
        self._lock = threading.Lock()

    @property
    def descriptor(self) -> int | None:
        return self._file.number

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
        with self._lock:
            self._growing.size_bytes = max(self._growing.size_bytes, position + memoryview(data).nbytes)

    def truncate(self, size_bytes: int) -> None:
        with translated(self._file.path):
            os.ftruncate(self._file.number, size_bytes)
        self._growing.size_bytes = size_bytes

    def reserve_ahead(self, limit_bytes: int) -> None:
        self._growing.reserve_limit = limit_bytes
        if not limit_bytes:
            with contextlib.suppress(OSError):
                self._file.give_back()

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        self._file.begin_write_out(position, size_bytes)

    def fsync(self) -> None:
        self._file.fsync()

    def close(self) -> None:
        self._growing.close()  # first: the number may be another file's at once
        self._file.close()


class PosixLock(FileLock):
    """A lock that is held; the kernel frees it when the process ends, however it ends."""

    def __init__(self, file: _Descriptor) -> None:
        self._file = file

    @classmethod
    def taken(cls, path: str) -> PosixLock | None:
        file = _Descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A previous holder removes the file before it unlocks: the lock may be on a file without a name.
            named = os.stat(path).st_ino == os.fstat(file.number).st_ino
        except (BlockingIOError, FileNotFoundError):
            named = False
        except OSError as cause:
            file.close()
            raise store_error(cause, path) from cause
        if not named:
            file.close()
            return None
        return cls(file)

    def release(self) -> None:
        if self._file.number >= 0:
            with contextlib.suppress(OSError):  # gone, or a disk that fails: the lock is the descriptor's
                os.unlink(self._file.path)
            self._file.close()


class PosixRecordLock(FileLock):
    """A record lock over a whole file, as Java takes it; the file stays.

    Java's locks belong to the process, which loses one when it closes any descriptor of the file, and never locks
    itself out. Ours belong to one open file where the system has that (Linux's ``F_OFD_SETLK``): they exclude Java's
    and are excluded by them, and by others of this process too. A fork shares such a lock with its parent: it is free
    when both have released it.
    """

    def __init__(self, file: _Descriptor) -> None:
        self._file = file

    @classmethod
    def taken(cls, path: str) -> PosixRecordLock | None:
        file = _Descriptor(path, os.O_RDWR | os.O_CREAT)
        try:
            if hasattr(fcntl, "F_OFD_SETLK"):
                fcntl.fcntl(file.number, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            else:  # the BSDs, where flock and record locks exclude each other
                fcntl.flock(file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            file.close()
            if cause.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise store_error(cause, path) from cause
        return cls(file)

    def release(self) -> None:
        with contextlib.suppress(StoreError):  # closed or not, the number is not ours any more
            self._file.close()


def _parent(path: str) -> str:
    return os.path.dirname(path) or "."


def _read_error(cause: OSError | ValueError, path: str) -> StoreError:
    return (
        store_error(cause, path)
        if isinstance(cause, OSError)
        else StoreError(f"{path if path.isprintable() else repr(path)}: {cause}")
    )


def _size_of(entry: os.DirEntry[str]) -> int:
    """The size of a file that may have vanished since it was listed: 0 then."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _fsync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PosixFiles:
    """The Files of this machine."""

    def stat(self, path: str) -> FileInfo:
        """Return the size, kind and times of a file or directory. Raises ObjectNotFoundError."""
        with translated(path):
            return _info(path, os.stat(path))

    def find(self, path: str) -> FileInfo | None:
        """Find the size, kind and times of a file or directory; None if the path names nothing."""
        try:
            return self.stat(path)
        except ObjectNotFoundError:
            return None

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """Iterate a directory's entries by name."""
        try:
            found = list_directory(path)
        except (OSError, ValueError) as cause:
            raise _read_error(cause, getattr(cause, "filename", None) or path) from cause
        base = path.rstrip("/")
        for name, size_bytes, modified_ms, is_directory, identity, readable_by_all in found:
            yield FileInfo(f"{base}/{name}", size_bytes, modified_ms, is_directory, identity, readable_by_all)

    def list_files(self, path: str, *, sized: str = "") -> list[tuple[str, int]]:
        """Return (name, size) of the files in a directory, by name; -1 where a name does not end with ``sized``."""
        with translated(path), os.scandir(path) as entries:
            found = [
                (each.name, -1 if not sized or not each.name.endswith(sized) else _size_of(each))
                for each in entries
                if each.is_file()
            ]
        found.sort()
        return found

    def open_read(self, path: str) -> ReadableFile:
        """Open a file, for reads from any number of threads."""
        return PosixFile(path)

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read the content of a file. Raises StoreError if it is larger than the limit."""
        with PosixFile(path) as file:
            if file.size_bytes > limit_bytes:
                raise StoreError(f"{path}: {file.size_bytes} bytes, more than the limit of {limit_bytes}")
            data = bytearray(file.size_bytes)
            count = file.read_into(data, position=0)
        return bytes(memoryview(data)[:count])

    def read_stream(self, path: str, *, limit_bytes: int) -> bytes:
        """Read the content of anything that can be read, also of a pipe or a terminal, until its writer closes it."""
        file, data = _Descriptor(path, os.O_RDONLY), bytearray()
        try:
            with translated(path):
                while piece := os.read(file.number, 1 << 16):
                    data += piece
                    if len(data) > limit_bytes:
                        raise StoreError(f"{path}: more than the limit of {limit_bytes} bytes")
        finally:
            file.close()
        return bytes(data)

    def read_range(self, path: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        """Read the part of a range that a file has, by one call without the interpreter's lock."""
        try:
            return PROCESS_BUFFERS.read_range(path, start_position, end_position_exclusive)
        except (OSError, ValueError) as cause:
            raise _read_error(cause, path) from cause

    def read_range_into(self, path: str, out: memoryview, *, start_position: int) -> int:
        """Fill ``out`` from a position on, by one call without the interpreter's lock; returns the bytes read."""
        try:
            return read_range_into(path, start_position, out)
        except (OSError, ValueError) as cause:
            raise _read_error(cause, path) from cause

    def read_small(self, paths: list[str], limits: list[int]) -> Sequence[bytes | None]:
        """Read small files from their beginning, by one call without the interpreter's lock."""
        try:
            return read_small_files(paths, limits)
        except ValueError:  # a name that no file has
            return [None] * len(paths)

    def open_ready(self, path: str) -> ReadyFile | None:
        """Open a file that knows which of its bytes the page cache has; None before Linux 5.12."""
        try:
            return open_ready(path)
        except ValueError as cause:
            raise _read_error(cause, path) from cause

    def lease(self, path: str) -> LeasedFile:
        """Return a path that opens this file until it is closed: that of an open descriptor (Linux's /proc)."""
        with translated(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return LeasedFile(f"/proc/{os.getpid()}/fd/{descriptor}", partial(os.close, descriptor))

    def open_write(self, path: str) -> WritableFile:
        """Open a new file that gets its name on commit."""
        with translated(path):
            target = os.path.realpath(path) if os.path.islink(path) else path
            with contextlib.suppress(FileNotFoundError):
                mode = os.stat(target).st_mode
                if not stat_bits.S_ISREG(mode) and not stat_bits.S_ISDIR(mode):
                    return PosixStream(target)
        return PosixNewFile(target)

    def write_whole(self, path: str, data: Buffer) -> None:
        """Write a file with exactly this content."""
        with self.open_write(path) as file:
            file.write(data)
            file.commit()

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:
        """Open a file to change in place, made (empty) if it does not exist; its directory must exist."""
        return PosixUpdatableFile(path, private=private)

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:
        """Make a directory and its parents, unless they exist."""
        missing = []
        at = os.path.abspath(path)
        while not os.path.isdir(at):
            missing.append(at)
            at = _parent(at)
        with translated(path):
            for each in reversed(missing):
                try:
                    os.mkdir(each, 0o700 if private else 0o777)
                except FileExistsError:
                    # Another thread was quicker; if it is no directory and still there, it is in the way.
                    if not os.path.isdir(each) and os.path.lexists(each):
                        raise
                # Also then: the other may not have come to this yet. A file that was removed meanwhile is "not found".
                if durable:
                    _fsync_directory(_parent(each))

    def rename(self, source: str, target: str, *, durable: bool = True) -> None:
        """Rename atomically within one file system, replacing the target."""
        with translated(source):
            os.replace(source, target)
            if durable:
                _fsync_directory(_parent(target))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last change, ms since 1970 UTC."""
        with translated(path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory, if it is there."""
        with translated(path), contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory survive a crash as they are now."""
        with translated(path):
            _fsync_directory(path)

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that can still be written to the file system that holds a file or directory."""
        with translated(path):
            return shutil.disk_usage(path).free

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system that holds a file or directory."""
        with translated(path):
            return shutil.disk_usage(path).total

    def try_lock(self, path: str) -> FileLock | None:
        """Acquire the lock of a name, which is a file that exists while the lock is held; None if any
        process holds it.
        """
        return PosixLock.taken(path)

    def try_record_lock(self, path: str) -> FileLock | None:
        """Acquire the lock of a file, as Java's ``FileChannel.tryLock`` does; None if any process holds it."""
        return PosixRecordLock.taken(path)
