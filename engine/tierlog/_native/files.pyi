from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

from tierlog.errors import StoreError

@final
class GrowingFile:
    """The end of a file that is open to write: where native code appends, ``append`` of Python's file too.

    Args:
        descriptor: Its number in this process. It is not closed here.
        size_bytes: Its size.
        to_error: What an operating system's error of the file means.

    Thread safety: one thread at a time appends; any number read the size.
    """

    def __init__(self, descriptor: int, *, size_bytes: int, to_error: Callable[[OSError], StoreError]) -> None: ...
    size_bytes: int
    """Where the next byte goes."""

    reserve_limit: int
    """Up to what size room on the disk is reserved ahead of appends; 0: none is."""

    @property
    def core(self) -> object:
        """A capsule with the address of the ``tl_growing_file``, which is valid while this object is held."""

    def append(self, data: Buffer) -> int:
        """Write behind the end, without the interpreter's lock; returns the position of the first byte.

        Raises:
            StoreError: the size is as it was, and what of the bytes came into the file is cut off, if that works.
        """

    def error(self, number: int) -> StoreError:
        """Make the error that the caller of a failed append gets; ``number`` is the ``errno``."""

    def close(self) -> None:
        """The descriptor is another file's from now on: ``append`` fails."""
