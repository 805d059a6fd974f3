"""The content of a file in memory: its readers' view, the disk's, and the remains of both after a power cut.

Writes reach the disk in sectors, at any moment before the fsync and in any order; a sector is written whole, as it is
then, so it never has a later write without the earlier ones to the same sector. The length is the file system's own
record: it reaches the disk in its own order, and bytes below it that were not written read as zeros. Sectors that a
truncation frees have no owner: later writes there are not seen until the truncation is on the disk.
"""

from __future__ import annotations

from typing import Final

from tierlog.runtime.machine.files import FileInfo, ReadableFile
from tierlog.runtime.machine.randomness import Rng

#: What of a file survives a crash or not, in one.
SECTOR_BYTES: Final = 512

#: A write at a position, or, without bytes, a change of the length to the position.
Change = tuple[int, bytes | None]


class Content:
    """The bytes of one file. Not thread-safe.

    Attributes:
        modified_ms: Last change of the bytes.
        names: How many names the file has.
        is_locked: Whether a program has locked the file.
        data: What readers see.
        durable: The bytes that are on the disk for certain.
    """

    __slots__ = ("_changes", "_clean", "data", "durable", "is_locked", "modified_ms", "names")

    def __init__(self, modified_ms: int, data: bytes | bytearray = b"") -> None:
        self.modified_ms = modified_ms
        self.names = 0
        self.is_locked = False
        self.data = bytearray(data)
        self.durable = bytearray(data)
        #: The readers' view at the last fsync, where it is not that of the disk: after an fsync that failed.
        self._clean: bytearray | None = None
        #: Since the last fsync.
        self._changes: list[Change] = []

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def info(self, path: str) -> FileInfo:
        """Return the size and times, under a path."""
        return FileInfo(path, self.size_bytes, self.modified_ms, is_directory=False)

    def growth_bytes(self, position: int, size_bytes: int) -> int:
        """Return the additional memory that a write would take."""
        return max(0, position + size_bytes - self.size_bytes)

    def read(self, view: memoryview, position: int, base: ReadableFile | None) -> int:  # noqa: ARG002 - of BaseContent
        """Fill a view from a position on; returns the bytes read, fewer only at the end."""
        part = self.data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def write(self, data: bytes, position: int, base: ReadableFile | None) -> None:  # noqa: ARG002 - as above
        """Write, and go on behind the end; a gap in front becomes zeros."""
        self._changes.append((position, data))
        _put(self.data, data, position)

    def resize(self, size_bytes: int) -> None:
        """Cut, or lengthen with zeros."""
        self._changes.append((size_bytes, None))
        _resize(self.data, size_bytes)

    def fsync(self) -> None:
        """Write all changes since the last fsync to the disk; not those that an earlier fsync lost."""
        if self._clean is None:
            for position, data in self._changes:
                if data is None:
                    _resize(self.durable, position)
                else:
                    _put(self.durable, data, position)
        else:
            disk = self._written(None, lengths=len(self._changes), whole=len(self._changes))
            _resize(disk, len(self.data))
            self.durable, self._clean = disk, bytearray(self.data)
        self._changes.clear()

    def fail_fsync(self, rng: Rng) -> None:
        """Fail as Linux does: some of the changes are on the disk, and none is tried again by a later fsync. Readers
        see them as long as they are in memory; they may be gone at once.
        """
        disk = self.after_power_cut(rng)
        self.durable = bytearray(disk)
        if rng.integer_below(2):
            _resize(disk, len(self.data))
            self.data = disk
        self._clean = bytearray(self.data)
        self._changes.clear()

    def flip_bit(self, position: int, bit: int) -> bool:
        """Flip a bit of a byte on the disk, and in what readers see, unless the byte was changed since the last fsync.
        False if there is no such byte on the disk.
        """
        if position >= len(self.durable):
            return False
        stored = self.durable[position]
        for view in (self.durable, self._clean, self.data):
            if view is not None and position < len(view) and view[position] == stored:
                view[position] = stored ^ 1 << bit
        return True

    def after_power_cut(self, rng: Rng) -> bytearray:
        """Return the disk's bytes after a power cut: of the changes since the last fsync the oldest ones, and of the
        others each write on its own whole, by some of its sectors, or not at all; and the length of some moment.
        """
        count = len(self._changes)
        lengths = count if rng.integer_below(2) else rng.integer_below(count + 1)
        whole = count if not rng.integer_below(4) else rng.integer_below(count + 1)
        return self._written(rng, lengths=lengths, whole=whole)

    def _written(self, rng: Rng | None, *, lengths: int, whole: int) -> bytearray:
        """Return the disk's bytes with the first ``lengths`` changes of the length and the first ``whole`` writes;
        which of the other writes are there is drawn.
        """
        cached, disk = bytearray(self.durable if self._clean is None else self._clean), bytearray(self.durable)
        size, still_named_bytes = len(disk), 1 << 62
        for number, (position, data) in enumerate(self._changes):
            if data is None:
                if number < lengths:
                    _resize(disk, position)
                elif position < len(cached):
                    still_named_bytes = min(still_named_bytes, position)
                _resize(cached, position)
            else:
                _put(cached, data, position)
                fate = 2 if rng is None or number < whole else rng.integer_below(3)
                first = position - position % SECTOR_BYTES
                for sector in range(first, min(position + len(data), still_named_bytes), SECTOR_BYTES):
                    if fate == 2 or (fate == 1 and rng is not None and rng.integer_below(2)):
                        _put(disk, cached[sector : sector + SECTOR_BYTES], sector)
            if number < lengths:
                size = len(cached)
        _resize(disk, size)
        return disk


class BaseContent(Content):
    """The bytes of a file of the file system below, which is only read: a first part in the file below, and the bytes
    that were written behind it. A change in the first part copies it into memory. It has no disk, and no power to lose.
    """

    __slots__ = ("_info", "base_bytes")

    def __init__(self, info: FileInfo) -> None:
        super().__init__(info.modified_ms)
        self.names = 1
        self._info = info
        self.base_bytes = info.size_bytes

    @property
    def base_path(self) -> str:
        return self._info.path

    @property
    def size_bytes(self) -> int:
        return self.base_bytes + len(self.data)

    def info(self, path: str) -> FileInfo:
        """Return size, times and rights, under a path; the identity of a file that was not changed."""
        identity = self._info.identity if self.modified_ms == self._info.modified_ms else (0, 0)
        return self._info._replace(
            path=path, size_bytes=self.size_bytes, modified_ms=self.modified_ms, identity=identity
        )

    def growth_bytes(self, position: int, size_bytes: int) -> int:
        """Return the additional memory that a write would take."""
        return super().growth_bytes(position, size_bytes) + (self.base_bytes if position < self.base_bytes else 0)

    def read(self, view: memoryview, position: int, base: ReadableFile | None) -> int:
        """Read like ``Content.read``; ``base`` is the open file below."""
        done = 0
        if base is not None and position < self.base_bytes:
            done = base.read_into(view[: self.base_bytes - position], position=position)
        return done + super().read(view[done:], max(0, position + done - self.base_bytes), None)

    def write(self, data: bytes, position: int, base: ReadableFile | None) -> None:
        """Write like ``Content.write``; ``base`` is the open file below."""
        if position < self.base_bytes:
            copied = bytearray(self.base_bytes)
            self.read(memoryview(copied), 0, base)
            self.data[:0] = copied
            self.base_bytes = 0
        _put(self.data, data, position - self.base_bytes)

    def resize(self, size_bytes: int) -> None:
        """Cut, or lengthen with zeros."""
        self.base_bytes = min(self.base_bytes, size_bytes)
        _resize(self.data, size_bytes - self.base_bytes)

    def fsync(self) -> None:
        """Do nothing: there is no disk."""


def _put(into: bytearray, data: bytes | bytearray, position: int) -> None:
    if position > len(into):
        into.extend(bytes(position - len(into)))
    into[position : position + len(data)] = data


def _resize(data: bytearray, size_bytes: int) -> None:
    del data[size_bytes:]
    data.extend(bytes(size_bytes - len(data)))
