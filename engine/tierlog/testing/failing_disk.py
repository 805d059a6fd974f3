"""Faults of a disk in memory: an error or a power cut at its n-th operation, and bits that flip. A disk may have
several at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Self

from tierlog.runtime.machine.files import FileInfo
from tierlog.runtime.machine.randomness import Rng, SeededRng
from tierlog.runtime.simulated.memory_disk import CHANGES, DiskFault, DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles


class FailingDisk:
    """A fault of one operation of a disk, or of that and all later ones. A context manager: leaving it ends the fault.

    Args:
        files: The disk.
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
        self._files.mend(self._strike)


class PowerCut:
    """A power cut in front of the n-th change of a disk. Earlier changes without an fsync are durable, lost or torn, so
    that a cut in front of the next change is one in the middle of this.

    Args:
        files: The disk.
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


def flip_bits(files: MemoryFiles, rng: Rng, *, inside: str = "/", suffix: str = "", count: int = 1) -> list[FileInfo]:
    """Let a disk decay: flip bits of files, drawn by their sizes (``MemoryFiles.flip_bit``).

    Args:
        files: The disk.
        rng: Draws the bytes and bits.
        inside: The directory that the files lie in.
        suffix: The end of their paths.
        count: How many bits.

    Returns:
        The file of each bit that was flipped: fewer than ``count`` if a byte was drawn that is not on the disk yet.
    """
    found = [each for each in _files_in(files, inside) if each.path.endswith(suffix)]
    total_bytes = sum(each.size_bytes for each in found)
    flipped = []
    for _ in range(count if total_bytes else 0):
        position = rng.integer_below(total_bytes)
        for each in found:
            if position < each.size_bytes:
                break
            position -= each.size_bytes
        if files.flip_bit(each.path, position=position, bit=rng.integer_below(8)):
            flipped.append(each)
    return flipped


def _files_in(files: MemoryFiles, directory: str) -> Iterator[FileInfo]:
    for entry in files.iter_directory(directory):
        if entry.is_directory:
            yield from _files_in(files, entry.path)
        else:
            yield entry
