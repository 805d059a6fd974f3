"""Files, as an argument: the protocol, the POSIX implementation, and what a stat says.

Nothing above ``runtime`` calls ``open``. A file gets its final name only when it is whole: written under a temporary
name beside it, fsynced, renamed, the directory fsynced. OS errors become those of :mod:`tierlog.errors` here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_bits
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError

#: What a file that is being written is called until it is whole; readers of a folder skip it.
TEMPORARY_SUFFIX = ".tierlog-part"

#: A later try may succeed.
_PASSING = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT)
)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of the file system.

    Args:
        path: As it was asked for, or directory + "/" + name.
        size_bytes: Of a regular file; 0 for a directory.
        modified_ms: Last change of the content, ms since 1970 UTC.
        identity: Device and inode, the same by whatever path; (0, 0) where a file system has none.
    """

    path: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    identity: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


class ReadableFile(Protocol):
    """An open file; closing twice is fine. Any number of threads may read."""

    size_bytes: int
    """At the time of opening."""

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns the bytes read, fewer only at the end of the file."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WritableFile(Protocol):
    """A file under its temporary name. Leaving the ``with`` block without commit removes it."""

    def write(self, data: Buffer) -> None: ...
    def commit(self) -> None:
        """fsync, rename to the final name (replacing what is there), fsync the directory; closes."""

    def abort(self) -> None:
        """Close and remove the temporary file; nothing after commit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


class Files(Protocol):
    """A file system. Paths are absolute or relative to the working directory, with "/".

    Raises:
        ObjectNotFoundError, StorePermissionError, StoreUnavailableError (an I/O error that may pass), StoreError.

    Thread safety: any number of threads.
    """

    def stat(self, path: str) -> FileInfo: ...
    def find(self, path: str) -> FileInfo | None:
        """As stat, None if nothing is there."""

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """Entries by name; symbolic links are followed, what vanishes meanwhile or is no file or folder is skipped."""

    def open_read(self, path: str) -> ReadableFile: ...
    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """The content. Raises StoreError if it is larger than the limit."""

    def open_write(self, path: str) -> WritableFile:
        """A new file that gets its name on commit; its directory must exist."""

    def write_whole(self, path: str, data: Buffer) -> None:
        """The file with exactly this content, or what was there before: never half of it."""

    def make_directories(self, path: str) -> None:
        """The directory and its parents; fine if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Atomic within one file system; replaces the target. The target's directory is fsynced."""

    def remove(self, path: str) -> None:
        """A file or an empty directory; fine if it is gone."""

    def fsync_directory(self, path: str) -> None: ...


def store_error(error: OSError, path: str) -> StoreError:
    """What an OSError means for a caller, naming the path."""
    text = f"{path}: {error.strerror or error}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ObjectNotFoundError(text)
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorePermissionError(text)
    if error.errno in _PASSING:
        return StoreUnavailableError(text)
    return StoreError(text)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as cause:
        raise store_error(cause, path) from cause
    except ValueError as cause:  # an embedded NUL
        raise StoreError(f"{path!r}: {cause}") from cause


def _info(path: str, found: os.stat_result) -> FileInfo:
    directory = stat_bits.S_ISDIR(found.st_mode)
    size = 0 if directory else found.st_size
    return FileInfo(path, size, found.st_mtime_ns // 1_000_000, directory, (found.st_dev, found.st_ino))


class PosixFile(ReadableFile):
    """A ReadableFile over a descriptor, by pread: no shared position, so any number of threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        with _translated(path):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            found = os.fstat(self._descriptor)
        if not stat_bits.S_ISREG(found.st_mode):
            self.close()
            raise StoreError(f"{path}: not a regular file")
        self.size_bytes = found.st_size

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        with _translated(self._path):
            while done < len(view):
                count = os.preadv(self._descriptor, [view[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class PosixNewFile(WritableFile):
    """A WritableFile beside its final name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = path + TEMPORARY_SUFFIX
        with _translated(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._descriptor = os.open(self._temporary, flags, 0o644)

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        with _translated(self._path):
            while view:
                view = view[os.write(self._descriptor, view) :]

    def commit(self) -> None:
        with _translated(self._path):
            os.fsync(self._descriptor)
            self._close()
            os.replace(self._temporary, self._path)
            _fsync_directory(os.path.dirname(self._path) or ".")

    def abort(self) -> None:
        if self._descriptor >= 0:
            self._close()
            with _translated(self._path), contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def _fsync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PosixFiles:
    """The machine's file system."""

    def stat(self, path: str) -> FileInfo:
        with _translated(path):
            return _info(path, os.stat(path))

    def find(self, path: str) -> FileInfo | None:
        try:
            return self.stat(path)
        except ObjectNotFoundError:
            return None

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        with _translated(path):
            names = sorted(os.listdir(path))
        for name in names:
            child = f"{path.rstrip('/')}/{name}"
            try:
                found = os.stat(child)
            except OSError as cause:
                if isinstance(store_error(cause, child), ObjectNotFoundError) or cause.errno == errno.ELOOP:
                    continue
                raise store_error(cause, child) from cause
            if stat_bits.S_ISREG(found.st_mode) or stat_bits.S_ISDIR(found.st_mode):
                yield _info(child, found)

    def open_read(self, path: str) -> ReadableFile:
        return PosixFile(path)

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        with PosixFile(path) as file:
            if file.size_bytes > limit_bytes:
                raise StoreError(f"{path}: {file.size_bytes} bytes, more than the limit of {limit_bytes}")
            data = bytearray(file.size_bytes)
            count = file.read_into(data, position=0)
        return bytes(memoryview(data)[:count])

    def open_write(self, path: str) -> WritableFile:
        return PosixNewFile(path)

    def write_whole(self, path: str, data: Buffer) -> None:
        with PosixNewFile(path) as file:
            file.write(data)
            file.commit()

    def make_directories(self, path: str) -> None:
        with _translated(path):
            os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        with _translated(source):
            os.replace(source, target)
            _fsync_directory(os.path.dirname(target) or ".")

    def remove(self, path: str) -> None:
        with _translated(path), contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)

    def fsync_directory(self, path: str) -> None:
        with _translated(path):
            _fsync_directory(path)
