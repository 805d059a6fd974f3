"""The operations of a disk in memory, and how one fails."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tierlog.errors import StoreError
from tierlog.runtime.machine.files import store_error
from tierlog.runtime.machine.randomness import Rng


class DiskOperation(enum.Enum):
    """One call of the operating system that a fault can strike."""

    WRITE = "write"
    TRUNCATE = "truncate"
    FSYNC = "fsync"
    CREATE = "create"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "mkdir"
    FSYNC_DIRECTORY = "fsync of a directory"
    OPEN = "open"
    READ = "read"


#: Those that change what is on the disk, or make it durable.
CHANGES: Final = frozenset(DiskOperation) - {DiskOperation.OPEN, DiskOperation.READ}


@dataclass(frozen=True, slots=True)
class DiskFault:
    """An operation fails.

    Attributes:
        errno: What the system says.
        rng: Draws how much of a write was done before it failed, and what of a file a failed fsync leaves; None: a
            write does nothing, and a failed fsync writes nothing.
    """

    errno: int
    rng: Rng | None = None

    def error(self, path: str) -> StoreError:
        """The error that a caller of ``Files`` sees."""
        cause = OSError(self.errno, os.strerror(self.errno), path)
        error = store_error(cause, path)
        error.__cause__ = cause
        return error


#: Asked before each operation, with the path; a power cut is one who calls ``crash`` of the files.
DiskHook = Callable[[DiskOperation, str], DiskFault | None]
