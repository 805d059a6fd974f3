from collections.abc import Callable
from typing import Final, Protocol, final

from typing_extensions import Buffer

from tierlog.errors import StoreError

class _File(Protocol):
    """An open file of Python's, as far as native code calls it."""

    def read_into(self, buffer: memoryview, position: int) -> int: ...
    def write(self, data: bytes, position: int) -> None: ...
    def truncate(self, size_bytes: int) -> None: ...

@final
class GrowingFile:
    """A file that is open to write: how native code reads it, and its end, where native code appends, ``append`` of
    Python's file too.

    Args:
        file: Its number in this process, which is not closed here; or an object whose methods native code calls.
        size_bytes: Its size.
        to_error: Translates an operating system's error of the file.

    Thread safety: one thread at a time appends; any number read the bytes and the size.
    """

    def __init__(self, file: int | _File, *, size_bytes: int, to_error: Callable[[OSError], StoreError]) -> None: ...
    @property
    def waits(self) -> bool:
        """Whether its calls may wait for a disk, so that they are made without the interpreter's lock."""
    size_bytes: int
    """Position of the next byte."""

    reserve_limit: int
    """Up to what size room on the disk is reserved ahead of appends; 0: none is."""

    @property
    def core(self) -> object:
        """A capsule with the address of the ``tl_growing_file``, which is valid while this object is held."""

    def append(self, data: Buffer) -> int:
        """Write behind the end; returns the position of the first byte.

        Raises:
            StoreError: the size is as it was, and what of the bytes came into the file is cut off, if that works.
        """

    def error(self, number: int) -> BaseException:
        """Make the error that the caller of failed native code gets: that of ``number``, the ``errno``; or what the
        file's method raised, once, if native code has its number from there.
        """

    def close(self) -> None:
        """The file's number is another file's from now on: native code fails."""

@final
class ReadyFile:
    """An open file with the system's answer which bytes are in memory: for event loops. Closed with the last reference.

    Thread safety: any number of threads.
    """

    @property
    def descriptor(self) -> int:
        """The number of the open file in this process, for ``os.sendfile``."""

    @property
    def version(self) -> tuple[int, ...]:
        """Device, inode, size in bytes, and the times of change of bytes and inode, in s and ns: another one once bytes
        changed.
        """

    def holds(self, position: int, size_bytes: int) -> bool:
        """Whether all bytes of a range are in memory. False too where the system does not know: before Linux 6.5, of a
        network's file system, and of a file that this process neither owns nor may write.
        """

    def read_ready_into(self, out: Buffer, position: int) -> int:
        """Fill ``out`` from a position on with bytes that are in memory, up to the first byte that is only on the disk,
        without the interpreter's lock; returns the bytes read: 0 for none, and after any fault.

        Raises:
            BufferError: ``out`` cannot be written.
        """

    def read_into(self, out: Buffer, position: int) -> int:
        """Fill ``out`` from a position on, waiting for the disk, without the interpreter's lock; returns the bytes
        read: fewer than ``out`` takes where the file ends.

        Raises:
            OSError: as the system says; any byte of ``out`` may have been written. BufferError: ``out`` cannot be
            written.
        """

    def send(self, socket: int, position: int, size_bytes: int) -> int:
        """Send bytes to a socket that does not block, without copying them into this process, by sendfile and without
        the interpreter's lock. Bytes that are not in memory are waited for: see ``holds``.

        Returns:
            The number of bytes sent: 0 where the socket accepts none now.

        Raises:
            EOFError: the file ends at ``position`` or before. OSError: the socket is closed; or as the system says.
            OverflowError: the range ends behind 2**63 - 1.
        """

SEND_VIEWS_MAX: Final[int]
"""The most views of one call."""

def send_views(socket: int, views: list[memoryview], *, has_more: bool) -> int:
    """Send views one behind the other to a socket that does not block, without the interpreter's lock.

    Args:
        socket: The number of the open socket in this process.
        views: SEND_VIEWS_MAX at most.
        has_more: Whether more follows at once: a packet that is not full waits for that, 0.2 s at most.

    Returns:
        The bytes that went, of all views together: 0 where the socket takes none now.

    Raises:
        OSError: the socket is closed; or as the system says. ValueError: too many views. BufferError: one is not
        contiguous.
    """

def open_ready(path: str) -> ReadyFile | None:
    """Open a regular file to read, if the system finds it without waiting for a disk (Linux 5.12); None if it does not,
    or there is no such file, or it cannot be opened.

    Raises:
        ValueError: a name with a NUL.
    """

def list_directory(path: str) -> list[tuple[str, int, int, bool, tuple[int, int], bool]]:
    """List a directory in the order of the names' bytes, without the interpreter's lock. Symbolic links are followed;
    entries that vanish meanwhile, or are neither file nor directory, are left out.

    Returns:
        Of each entry its name, its size (0 of a directory), the last change of its content in ms since 1970 UTC,
        whether it is a directory, (device, inode), and whether every user of the machine may read it.

    Raises:
        OSError: as the system says, of the directory or of an entry: ``filename`` is its path. ValueError: a name with
        a NUL.
    """

def read_small_files(paths: list[str], limits: list[int]) -> list[bytes | None]:
    """Read files from their beginning, one after another without the interpreter's lock.

    Args:
        paths: Of the files.
        limits: Of the bytes that are read of each; memory for all of them is held during the call.

    Returns:
        Of each the bytes that it has, up to its limit; None after any fault: another read says which.

    Raises:
        MemoryError. ValueError: a name with a NUL; or the lists are not of one length.
    """
