"""Files, as an argument: the protocol, and the meaning of an operating system's errors.

Nothing above ``runtime`` calls ``open``. A file gets its final name only when it is whole: written under a temporary
name beside it, fsynced, renamed, the directory fsynced. Files that are written more than once (a cache, an index that
is appended to) change in place, and must show by themselves which of their bytes are valid.

After a crash of the machine a file has the bytes of its last fsync and, of each later write, all, some or none; a
directory has the entries of its last fsync and each later change (a new name, a rename, a removal) or not, a rename
never by half. The two are independent: a file that was fsynced may have lost its name.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, Self

from typing_extensions import Buffer

from tierlog._native.files import GrowingFile, ReadyFile
from tierlog.errors import ConfigError, ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.process import Closeable

#: Suffix of a file that is being written, until it is whole; readers of a folder skip it.
TEMPORARY_SUFFIX = ".tierlog-part"

#: Errors of a file system that is away: over a network, of a process, on a device.
_AWAY = frozenset((errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV))
#: A later try may succeed.
_PASSING = _AWAY | {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.EBUSY}


class FileInfo(NamedTuple):
    """One entry of the file system.

    Args:
        path: The path as it was asked for, or directory + "/" + name.
        size_bytes: Size of a regular file; 0 for a directory.
        modified_ms: Last change of the content, ms since 1970 UTC.
        identity: Device and inode, the same by whatever path; (0, 0) where a file system has none.
        readable_by_all: Whether every user of the machine may read it; False if the file system has no such rights.
    """

    path: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    identity: tuple[int, int] = (0, 0)
    readable_by_all: bool = False

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


class ReadableFile(Protocol):
    """An open file. Closing it twice is allowed. Thread safety: any number of threads may read."""

    size_bytes: int
    """At the time of opening."""

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns the bytes read, fewer only at the end of the file."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WritableFile(Protocol):
    """A file under its temporary name. Leaving the ``with`` block without commit removes it. One thread at a time."""

    def write(self, data: Buffer) -> None: ...
    def commit(self) -> None:
        """fsync, rename to the final name (replacing a file of that name), fsync the directory; closes."""

    def abort(self) -> None:
        """Close and remove the temporary file; nothing after commit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class UpdatableFile(Protocol):
    """An open file that changes in place, under its own name. Closing it twice is allowed, and does not fsync.

    Thread safety: any number of threads may read, and ``write_at`` ranges that do not overlap; one at a time may append
    or truncate.
    """

    @property
    def descriptor(self) -> int | None:
        """The number of the open file in this process, for ``os.sendfile`` and the like; None where it has none."""

    @property
    def growing(self) -> GrowingFile:
        """The handle by which native code reads and appends."""

    @property
    def size_bytes(self) -> int:
        """The file's size, with the changes that were made through this object."""

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns the bytes read, fewer only at the end of the file."""

    def append(self, data: Buffer) -> int:
        """Write behind the end; returns the position of the first byte. An error leaves the size as it was."""

    def write_at(self, data: Buffer, *, position: int) -> None:
        """Overwrite, and go on behind the end. A gap between the end and ``position`` reads as zeros."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to a size, or lengthen it with zeros."""

    def reserve_ahead(self, limit_bytes: int) -> None:  # noqa: ARG002 - for files without reserved space
        """Reserve space on the disk for later appends, up to so many bytes of the file; its size does not change. 0: no
        more, and the rest of the space is freed. No guarantee, and no error.
        """
        return

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        """Make the system begin to write a range to the disk, so that a later fsync waits for less. No guarantee."""

    def fsync(self) -> None:
        """Make all bytes so far survive a crash. A new file's name survives once its directory was fsynced too."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileLock(Protocol):
    """A lock that is held. Leaving the ``with`` block, or the end of the process, releases it."""

    def release(self) -> None:
        """Release the lock; idempotent. It does not fail: at worst the lock's file stays, which locks no
        process out.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class ReadableFiles(Protocol):
    """Files that can be read, of a file system or of anything that looks like one. Paths use "/".

    Raises:
        ObjectNotFoundError, StorePermissionError, StoreUnavailableError (an I/O error that may pass), StoreError.

    Thread safety: any number of threads.
    """

    def stat(self, path: str) -> FileInfo: ...
    def open_read(self, path: str) -> ReadableFile: ...
    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read the content of a file. Raises StoreError if it is larger than the limit."""


class LeasedFile(Closeable):
    """A path that opens one file, whatever becomes of the file's name, until it is closed.

    Args:
        path: What opens it, for any code of this machine's user.
        release: Called once: at ``close``, or when this object is dropped.

    Attributes:
        path: Opens the file for reading, any number of times, in this process and others of its user.

    Thread safety: any number of threads.
    """

    def __init__(self, path: str, release: Callable[[], None]) -> None:
        self.path = path
        self._finalizer = weakref.finalize(self, release)

    def close(self) -> None:
        """Let the path open nothing any more; idempotent. Files that were opened by it stay open."""
        self._finalizer()


class Files(ReadableFiles, Protocol):
    """A file system. Paths are absolute or relative to the working directory.

    Errors and thread safety are those of ReadableFiles.
    """

    def find(self, path: str) -> FileInfo | None:
        """Find the size, kind and times of a file or directory; None if the path names nothing."""

    def read_stream(self, path: str, *, limit_bytes: int) -> bytes:
        """Read the content of anything that can be read, also of a pipe or a terminal, until its writer closes it."""

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """Iterate a directory's entries by name. Symbolic links are followed; entries that vanish meanwhile or are
        neither file nor directory are skipped.
        """

    def list_files(self, path: str, *, sized: str = "") -> list[tuple[str, int]]:
        """Return (name, size) of the files in a directory, by name: cheaper than ``iter_directory``, for names are all
        that is asked for, but for the size of files whose names end with ``sized``; that of others is -1.
        """

    def read_range(self, path: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        """Read the part of a range that a file has, into memory of ``new_buffer``: writable, not cleared first, and the
        caller's alone as long as a view of it is held.
        """

    def read_range_into(self, path: str, out: memoryview, *, start_position: int) -> int:
        """Fill ``out`` from a position on; returns the bytes read, fewer only at the end of the file. After an error
        any byte of ``out`` may have been written.
        """

    def read_small(self, paths: list[str], limits: list[int]) -> Sequence[bytes | None]:
        """Read many small files from their beginning, each up to its limit of bytes; memory for all limits is held
        meanwhile. None in place of a file after any fault, which ``read_range`` raises.
        """

    def open_ready(self, path: str) -> ReadyFile | None:
        """Open a file of this machine that knows which of its bytes are in memory, for callers that must not wait for a
        disk; None where opening it would wait for a disk, or fail, and where files are none of this machine's.
        """

    def lease(self, path: str) -> LeasedFile:
        """Return a path that opens this file until it is closed, even if its name is changed or removed. It makes no
        name on any disk. Raises ObjectNotFoundError.
        """

    def open_write(self, path: str) -> WritableFile:
        """Open a new file that gets its name on commit. Its directory must exist; a link is followed. One writer at a
        time: StoreUnavailableError while another writer has the file open.

        A pipe or a device takes the bytes as they come, and commit only closes it.
        """

    def write_whole(self, path: str, data: Buffer) -> None:
        """Write a file with exactly this content. After an error or a crash the old file is there, or the new one,
        never a part.
        """

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:
        """Open a file to change in place, made (empty) if it does not exist; its directory must exist.

        ``private``: a file that is made here is readable by its owner alone (0600); else the umask decides.
        """

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:
        """Make a directory and its parents, unless they exist. If ``durable``, they survive a crash on return.

        ``private``: directories that are made here are accessible to their owner alone (0700); else the umask decides.
        """

    def rename(self, source: str, target: str, *, durable: bool = True) -> None:
        """Rename atomically within one file system, replacing the target. The target's directory is fsynced if
        ``durable``.
        """

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last change, ms since 1970 UTC. A crash may undo this."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory, if it is there. A crash may undo this until its directory is fsynced."""

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory survive a crash as they are now."""

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that can still be written to the file system that holds a file or directory."""

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system that holds a file or directory."""

    def try_lock(self, path: str) -> FileLock | None:
        """Acquire the lock of a name, which is a file that exists while the lock is held; None if any
        process holds it.
        """

    def try_record_lock(self, path: str) -> FileLock | None:
        """Acquire the lock of a file, as Java's ``FileChannel.tryLock`` does: None if any process holds it, a Java one
        too. The file is made if it does not exist, and stays. Not seen by ``try_lock``, nor the other way round.
        """


def store_error(error: OSError, path: str) -> StoreError:
    """Make the error of :mod:`tierlog.errors` for an OSError, naming the path: what of it is no text as ``\\udcff``, so
    that any log can be written with it.
    """
    printable = path.encode("utf-8", "backslashreplace").decode("utf-8")
    text = f"{printable}: {error.strerror or error}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ObjectNotFoundError(text)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorePermissionError(text)
    if error.errno in _PASSING:
        return StoreUnavailableError(text)
    return StoreError(text)


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Return a block whose OS errors become those of :mod:`tierlog.errors`."""
    try:
        yield
    except StoreError:
        raise
    except OSError as cause:
        raise store_error(cause, path) from cause
    except ValueError as cause:  # an embedded NUL
        raise StoreError(f"{path!r}: {cause}") from cause


_log = logging.getLogger(__name__)

#: Texts that were logged already: once a process is enough.
_told: Final[set[str]] = set()


def read_secret_file(key: str, path: str, files: Files, *, limit_bytes: int) -> bytes:
    """Read the content of a file that a key of the configuration names.

    Raises:
        ConfigError: the value is no path but looks like the secret itself; it is not quoted. StoreError and its kinds:
            the file cannot be read.
    """
    if "\n" in path or "-----BEGIN" in path or path.lstrip().startswith("{"):
        raise ConfigError(f"{key}: the path of a file is expected, not what it holds")
    found = files.read_whole(path, limit_bytes=limit_bytes)
    info = files.find(path)
    if info is not None and info.readable_by_all and path not in _told:
        _told.add(path)
        _log.warning("%s: %s is readable by every user of this machine: take that right away (chmod o-r)", key, path)
    return found
