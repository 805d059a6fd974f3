"""Faults of a disk in memory at its n-th operation: an error, or a power cut."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_disk import CHANGES, DiskFault, DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles


class FailingDisk:
    """A fault of one operation of a disk, or of that and all later ones. A context manager: leaving it mends the disk.

    Args:
        files: The disk. It has one fault at a time.
        errno: The system's error number.
        at: The number of the operation, from 1, among those of the kinds and names; 0 fails none and counts them.
        kinds: Which operations.
        suffix: The end of the paths that are meant.
        inside: The directory that they lie in.
        lasting: Whether all later ones fail too: a disk that is full, or that became read-only.
        seed: Seed of the bytes that a failed write or fsync still wrote; None: no bytes.

    Attributes:
        seen: How many operations of these kinds and names there were.
        failed: How many of them failed.
    """

    def __init__(
        self,
        files: MemoryFiles,
        errno: int,
        *,
        at: int,
        kinds: Collection[DiskOperation] = CHANGES,
        suffix: str = "",
        inside: str = "",
        lasting: bool = False,
        seed: int | None = None,
    ) -> None:
        self.seen = self.failed = 0
        self._files, self._at, self._kinds, self._lasting = files, at, kinds, lasting
        self._suffix, self._inside = suffix, inside
        self._fault = DiskFault(errno, None if seed is None else SeededRng(seed))
        files.befall(self._strike)

    def _strike(self, operation: DiskOperation, path: str) -> DiskFault | None:
        if operation not in self._kinds or not (path.startswith(self._inside) and path.endswith(self._suffix)):
            return None
        self.seen += 1
        if self.seen != self._at and not (self._lasting and 0 < self._at < self.seen):
            return None
        self.failed += 1
        return self._fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.befall(None)


class PowerCut:
    """A power cut in front of the n-th change of a disk. Earlier changes without an fsync are durable, lost or torn, so
    that a cut in front of the next change is one in the middle of this.

    Args:
        files: The disk. It has one fault at a time.
        at: The number of the change, from 1; 0 waits for ``cut``.
        seed: Of what survives.

    Attributes:
        seen: How many changes there were.
        left: The files that the next life of the machine finds, once the power has gone.
    """

    def __init__(self, files: MemoryFiles, *, at: int, seed: int) -> None:
        self.seen = 0
        self.left: MemoryFiles | None = None
        self._files, self._at, self._seed = files, at, seed
        files.befall(self._strike)

    def _strike(self, operation: DiskOperation, path: str) -> None:  # noqa: ARG002 - of any file
        if operation in CHANGES:
            self.seen += 1
            if self.seen == self._at:
                self.cut()

    def cut(self) -> MemoryFiles:
        """End the power now, unless it has gone; return the files of the next life."""
        if self.left is None:
            self.left = self._files.crash(SeededRng(self._seed))
        return self.left
