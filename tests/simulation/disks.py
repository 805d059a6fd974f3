"""A broker's disk over its lives, with what befalls it: power cuts, a failure, decay, a new one in its place."""

from __future__ import annotations

import errno
import pathlib
import struct
from collections.abc import Callable, Collection
from typing import Final

from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_disk import CHANGES, DiskFault, DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles

_KEYS: Final = pathlib.Path(__file__).parents[1] / "data" / "keys" / "k1"

#: Of a record batch: its length behind the base offset; the first position that its checksum covers.
_BATCH_HEAD: Final = struct.Struct(">8xi")
_MAGIC_POSITION: Final = 16
_COVERED_POSITION: Final = 21
_LAST_OFFSET_DELTA: Final = range(23, 27)


class Folders:
    """Where a broker has its logs, its cache and its keys.

    Args:
        root: The directory of all; "" is the disk's own root.
    """

    def __init__(self, root: str = "") -> None:
        self.root = root
        self.logs, self.cache, self.keys = f"{root}/logs", f"{root}/cache", f"{root}/keys"
        self.log_directories = [self.logs, f"{root}/logs-2"]

    def furnish(self, files: Files) -> None:
        """Put there what an operator does: the keys, and the cache's directory."""
        for each in (self.keys, self.cache):
            files.make_directories(each)
        for kind in ("public", "private"):
            files.write_whole(f"{self.keys}/{kind}.der", (_KEYS / f"{kind}.der").read_bytes())


class RealDisk:
    """A directory of this machine, in the place of a disk: for runs without faults, which have to give the same.

    Args:
        root: The directory.
    """

    def __init__(self, root: str) -> None:
        self.files: Files = PosixFiles()
        self.folders = Folders(root)
        self.folders.furnish(self.files)


class Disk:
    """A disk.

    Args:
        clock: Its broker's.
        rng: Chance.

    Attributes:
        files: What the present life, or the next one, has.
    """

    def __init__(self, clock: Clock, rng: SeededRng) -> None:
        self._clock = clock
        self._rng = rng
        self.folders = Folders()
        self.files = self._new()
        self._failing_at = self._failing_below = ""
        self._cut: Callable[[DiskOperation, str], None] | None = None

    def _new(self) -> MemoryFiles:
        files = MemoryFiles(self._clock)
        self.folders.furnish(files)
        return files

    def crash(self) -> None:
        """Lose power."""
        self.files = self.files.crash(self._rng)

    def wipe(self) -> None:
        """Be another disk, an empty one."""
        self.files = self._new()

    def lose(self, name: str, topics: Collection[str]) -> list[str]:
        """Remove a file of this name from the folders of topics' partitions, as a check of a file system may; their
        paths.
        """
        lost: list[str] = []
        for folder in self._partition_folders():
            path = f"{folder}/{name}"
            topic, _, number = folder.rpartition("/")[2].rpartition("-")
            if topic in topics and number.isdigit() and self.files.find(path) is not None:
                self.files.remove(path)
                self.files.fsync_directory(folder)
                lost.append(path)
        return lost

    def cut_power_at(self, change: int, cut: Callable[[], None], where: str = "") -> None:
        """Call a function in front of the n-th change from now on, and of later ones, unless the power goes before.

        Args:
            change: Which change, from 1 on.
            cut: The function.
            where: A part of a path: changes of such files alone count.
        """
        seen = 0

        def count(operation: DiskOperation, path: str) -> None:
            nonlocal seen
            is_one = operation in CHANGES and where in path
            seen += is_one
            if seen >= change and is_one:
                cut()

        self.spare()
        self._cut = count
        self.files.befall(count)

    def spare(self) -> None:
        """Call a power cut off that has not come yet."""
        if self._cut is not None:
            self.files.mend(self._cut)
            self._cut = None

    def fail(self, where: str = "", below: str = "") -> None:
        """Refuse changes of all files, or of those below a directory: all from now on, or all behind the first one of a
        file whose path has a part.
        """
        self._failing_at, self._failing_below = where, below
        self.files.befall(self._refuse)

    def mend(self) -> None:
        """Refuse nothing."""
        self.files.mend(self._refuse)

    def _refuse(self, operation: DiskOperation, path: str) -> DiskFault | None:
        is_here = path.startswith(self._failing_below)
        if operation not in CHANGES or not path or not is_here or self._failing_at not in path:
            return None
        self._failing_at = ""
        return DiskFault(errno.EIO, self._rng)

    def rot(self, index: int, may_rot: Callable[[str], bool], *, cached: bool) -> str | None:
        """Flip a bit of the index-th file of those that may: closed segments, or cached chunks; its path.

        With an odd index it is one of the newest closed segments, which may not be copied yet.
        """
        paths = self._cached() if cached else [each for each in self._closed_segments() if may_rot(each)]
        if not paths:
            return None
        if index % 2 and not cached:
            paths = sorted({path.rpartition("/")[0]: path for path in sorted(paths)}.values())
        path = paths[index % len(paths)]
        size_bytes = self.files.stat(path).size_bytes
        if not size_bytes:
            return None
        position, bit = self._rng.integer_below(size_bytes), self._rng.integer_below(8)
        if not cached:
            position = _checked_position(self.files.read_whole(path), position)
        return path if self.files.flip_bit(path, position=position, bit=bit, written_out=cached) else None

    def _cached(self) -> list[str]:
        return [each for each in self._files_below(self.folders.cache) if each.endswith(".chunk")]

    def _closed_segments(self) -> list[str]:
        found: list[str] = []
        for folder in self._partition_folders():
            logs = sorted(name for name, _ in self.files.list_files(folder) if name.endswith(".log"))
            found += [f"{folder}/{name}" for name in logs[:-1]]
        return found

    def _partition_folders(self) -> list[str]:
        present = [each for each in self.folders.log_directories if self.files.find(each) is not None]
        inside = [each for path in present for each in self.files.iter_directory(path)]
        return [each.path for each in inside if each.is_directory]

    def _files_below(self, path: str) -> list[str]:
        found: list[str] = []
        for each in self.files.iter_directory(path):
            found += self._files_below(each.path) if each.is_directory else [each.path]
        return found


def _checked_position(data: bytes, position: int) -> int:
    """A position, or one of the same batch that its checksum covers: that of base offset, length, leader epoch and
    magic does not count, so that no reader of a compacted log, Kafka's neither, can tell when they rot. Nor does that
    of the last offset: by it a fetch is looked for, and the batch passed over whose checksum nobody sees then, as Kafka
    does; with the magic of an older format the base offset is the last one.
    """
    start = 0
    while start + _BATCH_HEAD.size <= len(data):
        end = start + 12 + _BATCH_HEAD.unpack_from(data, start)[0]
        if start <= position < end:
            in_batch = position - start
            return (
                start + _COVERED_POSITION if in_batch <= _MAGIC_POSITION or in_batch in _LAST_OFFSET_DELTA else position
            )
        if end <= start:
            break
        start = end
    return position
