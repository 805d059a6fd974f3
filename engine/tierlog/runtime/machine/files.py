"""Files, as an argument: the protocol, and what an operating system's error means.

Nothing above ``runtime`` calls ``open``. A file gets its final name only when it is whole: written under a temporary
name beside it, fsynced, renamed, the directory fsynced. Files that live longer than one writing (a cache, an index that
is appended to) change in place, and say themselves what of them is sound.

What a crash of the machine leaves: a file's bytes as of its last fsync, and of each later write all, some or nothing; a
directory's entries as of its last fsync, and each later change (a new name, a rename, a removal) or not, a rename never
by half. The one does not imply the other: a file that was fsynced may have lost its name.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError

#: What a file that is being written is called until it is whole; readers of a folder skip it.
TEMPORARY_SUFFIX = ".tierlog-part"

#: What a file system says that is away: over a network, of a process, on a device.
_AWAY = frozenset((errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV))
#: A later try may succeed.
_PASSING = _AWAY | {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.EBUSY}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of the file system.

    Args:
        path: As it was asked for, or directory + "/" + name.
        size_bytes: Of a regular file; 0 for a directory.
        modified_ms: Last change of the content, ms since 1970 UTC.
        identity: Device and inode, the same by whatever path; (0, 0) where a file system has none.
        readable_by_all: Every user of the machine may read it; False where a file system has no such rights.
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
    """A file under its temporary name. Leaving the ``with`` block without commit removes it. One thread at a time."""

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


class UpdatableFile(Protocol):
    """An open file that changes in place, under its own name; closing twice is fine, and does not fsync.

    Any number of threads may read, and ``write_at`` ranges that do not overlap; one at a time appends or cuts.
    """

    @property
    def size_bytes(self) -> int:
        """Now, as far as it was changed through this object."""

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill ``buffer`` from ``position``; returns the bytes read, fewer only at the end of the file."""

    def append(self, data: Buffer) -> int:
        """Write behind the end; returns the position of the first byte. After an error the size is what it was."""

    def write_at(self, data: Buffer, *, position: int) -> None:
        """Overwrite, and go on behind the end. A gap between the end and ``position`` reads as zeros."""

    def truncate(self, size_bytes: int) -> None:
        """Cut, or lengthen with zeros."""

    def begin_write_out(self, *, position: int, size_bytes: int) -> None:
        """Have the system begin to write a range to the disk: a later fsync waits for less. Promises nothing."""

    def fsync(self) -> None:
        """Every byte so far survives a crash; the name of a new file does once its directory was fsynced too."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FileLock(Protocol):
    """A lock that is held; leaving the ``with`` block, or the end of the process, releases it."""

    def release(self) -> None:
        """Let others have it; idempotent. Does not fail: at worst the file of its name stays, and holds nobody up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class ReadableFiles(Protocol):
    """Files to read: of a file system, or what looks like it. Paths have "/".

    Raises:
        ObjectNotFoundError, StorePermissionError, StoreUnavailableError (an I/O error that may pass), StoreError.

    Thread safety: any number of threads.
    """

    def stat(self, path: str) -> FileInfo: ...
    def open_read(self, path: str) -> ReadableFile: ...
    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """The content. Raises StoreError if it is larger than the limit."""


class Files(ReadableFiles, Protocol):
    """A file system. Paths are absolute or relative to the working directory.

    Raises, thread safety: as ReadableFiles.
    """

    def find(self, path: str) -> FileInfo | None:
        """As stat, None if nothing is there."""

    def read_stream(self, path: str, *, limit_bytes: int) -> bytes:
        """As read_whole, also of what is no regular file (a pipe, a terminal): until its writer ends it."""

    def iter_directory(self, path: str) -> Iterator[FileInfo]:
        """Entries by name; symbolic links are followed, what vanishes meanwhile or is no file or folder is skipped."""

    def read_range(self, path: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        """What of a range a file has, in memory of ``new_buffer``: writable, not cleared first, and nobody else's while
        a view of it is held.
        """

    def read_range_into(self, path: str, out: memoryview, *, start_position: int) -> int:
        """What a file has from a position on, as much as ``out`` takes; the bytes. After an error any of them may have
        been written.
        """

    def open_write(self, path: str) -> WritableFile:
        """A new file that gets its name on commit; its directory must exist. Of a link, the file that it points at.
        One writer at a time: StoreUnavailableError while another one has it open.

        What is no regular file (a pipe, a device) takes the bytes as they come, and commit only closes it.
        """

    def write_whole(self, path: str, data: Buffer) -> None:
        """The file with exactly this content, or what was there before: never half of it."""

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:
        """A file to change in place, made (empty) if it is not there; its directory must exist.

        ``private``: one that is made here is for its owner alone (0600), else as the umask says.
        """

    def make_directories(self, path: str, *, durable: bool = True, private: bool = False) -> None:
        """The directory and its parents, which survive a crash on return if ``durable``; fine if it exists.

        ``private``: those that are made here are for their owner alone (0700), else as the umask says.
        """

    def rename(self, source: str, target: str, *, durable: bool = True) -> None:
        """Atomic within one file system; replaces the target. The target's directory is fsynced if ``durable``."""

    def remove(self, path: str) -> None:
        """A file or an empty directory; fine if it is gone. A crash may undo it until its directory is fsynced."""

    def fsync_directory(self, path: str) -> None:
        """The names in it survive a crash as they are now."""

    def free_bytes(self, path: str) -> int:
        """What may still be written to the file system that holds this file or directory."""

    def try_lock(self, path: str) -> FileLock | None:
        """The lock of this name, a file that is there while it is held; None if anybody else, in whatever process,
        holds it.
        """


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
def translated(path: str) -> Iterator[None]:
    """OS errors of the block as those of :mod:`tierlog.errors`."""
    try:
        yield
    except StoreError:
        raise
    except OSError as cause:
        raise store_error(cause, path) from cause
    except ValueError as cause:  # an embedded NUL
        raise StoreError(f"{path!r}: {cause}") from cause
