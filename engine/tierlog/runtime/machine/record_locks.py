"""Locks that Java's ``FileChannel.tryLock`` sees: POSIX's record lock over a whole file, which stays when it is free.

POSIX has two owners of such locks. Java's belong to the process: it loses one when it closes any descriptor of the
file, and never keeps itself out. Ours belong to one open file where the system has that (Linux's ``F_OFD_SETLK``): they
keep Java's out and are kept out by them, and by others of this process too. A fork shares such a lock with its parent:
it is free when both have let go.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import Final

from tierlog.runtime.machine.files import FileLock, translated

#: ``struct flock``: type, whence, start, length (0: all of the file), process (0: the lock is the open file's).
_WHOLE_FILE: Final = struct.pack("@hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_HELD: Final = frozenset((errno.EAGAIN, errno.EACCES))


class RecordLock(FileLock):
    """A record lock that is held; the kernel frees it when the process ends, however it ends. The file stays."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def taken(cls, path: str) -> RecordLock | None:
        """The lock of a file, which is made if it does not exist; None while somebody holds it. Raises StoreError."""
        with translated(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _lock(descriptor)
            except OSError as cause:
                os.close(descriptor)
                if cause.errno in _HELD:
                    return None
                raise
        return cls(descriptor)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # closed or not, the number is not ours any more
                os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def _lock(descriptor: int) -> None:
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    else:  # the BSDs, where flock and record locks keep each other out
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
