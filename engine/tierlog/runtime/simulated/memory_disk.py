"""A disk in memory: its operations and how one fails, what readers see, and what a power cut leaves.

Writes reach the disk in sectors, at any moment before the fsync and in any order; a sector is written whole, as it is
then, so it never has a later write without the earlier ones to the same sector. The length is the file system's own
record: it reaches the disk in its own order, and what lies below it and was not written reads as zeros. Sectors that a
truncation frees belong to nobody: what is written there afterwards is not seen until the truncation is on the disk.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import posixpath
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import FileInfo, Files, ReadableFile, store_error
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


#: What of a file survives a crash or not, in one.
SECTOR_BYTES = 512


class _Change(NamedTuple):
    """A write at a position, or, without bytes, a change of the length to ``position``."""

    position: int
    data: bytes | None


class Content:
    """The bytes of one file. Not thread-safe.

    Attributes:
        modified_ms: Last change of the bytes.
        names: How many names the file has.
        data: What readers see.
        durable: What is on the disk for certain.
    """

    __slots__ = ("_changes", "_clean", "data", "durable", "modified_ms", "names")

    def __init__(self, modified_ms: int, data: bytes = b"") -> None:
        self.modified_ms = modified_ms
        self.names = 0
        self.data = bytearray(data)
        self.durable = bytes(data)
        #: What readers saw at the last fsync; other than what is on the disk only after one that failed.
        self._clean = self.durable
        #: Since the last fsync.
        self._changes: list[_Change] = []

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def info(self, path: str) -> FileInfo:
        """Size and times, under a path."""
        return FileInfo(path, self.size_bytes, self.modified_ms, is_directory=False)

    def growth_bytes(self, position: int, size_bytes: int) -> int:
        """How much more memory a write would take."""
        return max(0, position + size_bytes - self.size_bytes)

    def read(self, view: memoryview, position: int, base: ReadableFile | None) -> int:  # noqa: ARG002 - of BaseContent
        """Fill a view from a position on; returns the bytes read, fewer only at the end."""
        part = self.data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def write(self, view: memoryview, position: int, base: ReadableFile | None) -> None:  # noqa: ARG002 - as above
        """Write, and go on behind the end; a gap in front becomes zeros."""
        data = bytes(view)
        self._changes.append(_Change(position, data))
        _put(self.data, data, position)

    def resize(self, size_bytes: int) -> None:
        """Cut, or lengthen with zeros."""
        self._changes.append(_Change(size_bytes, None))
        _resize(self.data, size_bytes)

    def fsync(self) -> None:
        """Have all changes since the last fsync on the disk; not those that an fsync before it lost."""
        if self.durable is self._clean:
            self.durable = self._clean = bytes(self.data)
        else:
            disk = self._written(None, lengths=len(self._changes), whole=len(self._changes))
            _resize(disk, len(self.data))
            self.durable, self._clean = bytes(disk), bytes(self.data)
        self._changes.clear()

    def fail_fsync(self, rng: Rng) -> None:
        """Fail as Linux does: some of the changes are on the disk, and none is tried again by a later fsync. Readers
        see them as long as they are in memory; they may be gone at once.
        """
        disk = self.after_power_cut(rng)
        self.durable = bytes(disk)
        if rng.integer_below(2):
            _resize(disk, len(self.data))
            self.data = disk
        self._clean = bytes(self.data)
        self._changes.clear()

    def after_power_cut(self, rng: Rng) -> bytearray:
        """The disk's bytes after a power cut: of the changes since the last fsync the oldest ones, and of the others
        each write on its own whole, by some of its sectors, or not at all; and the length of some moment.
        """
        count = len(self._changes)
        lengths = count if rng.integer_below(2) else rng.integer_below(count + 1)
        whole = count if not rng.integer_below(4) else rng.integer_below(count + 1)
        return self._written(rng, lengths=lengths, whole=whole)

    def _written(self, rng: Rng | None, *, lengths: int, whole: int) -> bytearray:
        """The disk's bytes with the first ``lengths`` changes of the length and the first ``whole`` writes; which of
        the other writes are there is drawn.
        """
        cached, disk = bytearray(self._clean), bytearray(self.durable)
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
    """The bytes of a file of the file system below, which is only read: a first part that is there, and what was
    written behind it. A change in the first part copies it into memory. It has no disk, and no power to lose.
    """

    __slots__ = ("_info", "base_bytes")

    def __init__(self, info: FileInfo) -> None:
        super().__init__(info.modified_ms)
        self._info = info
        self.base_bytes = info.size_bytes

    @property
    def base_path(self) -> str:
        return self._info.path

    @property
    def size_bytes(self) -> int:
        return self.base_bytes + len(self.data)

    def info(self, path: str) -> FileInfo:
        """Size, times and rights, under a path; the identity of a file that was not changed."""
        identity = self._info.identity if self.modified_ms == self._info.modified_ms else (0, 0)
        return replace(
            self._info, path=path, size_bytes=self.size_bytes, modified_ms=self.modified_ms, identity=identity
        )

    def growth_bytes(self, position: int, size_bytes: int) -> int:
        """How much more memory a write would take."""
        return super().growth_bytes(position, size_bytes) + (self.base_bytes if position < self.base_bytes else 0)

    def read(self, view: memoryview, position: int, base: ReadableFile | None) -> int:
        """As Content says; ``base`` is the open file below."""
        done = 0
        if base is not None and position < self.base_bytes:
            done = base.read_into(view[: self.base_bytes - position], position=position)
        return done + super().read(view[done:], max(0, position + done - self.base_bytes), None)

    def write(self, view: memoryview, position: int, base: ReadableFile | None) -> None:
        """As Content says; ``base`` is the open file below."""
        if position < self.base_bytes:
            copied = bytearray(self.base_bytes)
            self.read(memoryview(copied), 0, base)
            self.data[:0] = copied
            self.base_bytes = 0
        _put(self.data, bytes(view), position - self.base_bytes)

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


@dataclass(frozen=True, slots=True)
class NameChange:
    """What each of some names becomes in one step, None for nothing; ``moved``: a directory's old and new name."""

    names: dict[str, Content | None]
    moved: tuple[str, str] | None = None

    def is_of(self, folder: str) -> bool:
        """Whether an fsync of a directory makes it durable."""
        return folder in {parent(name) for name in (self.names if self.moved is None else self.moved)}


class MemoryDisk:
    """Contents and names of a disk in memory. Names have no "/" in front or behind; "" is the root.

    Over a ``base`` a name is looked for there when it is first asked for, and a directory when it is first listed: from
    then on it is this disk's.
    """

    def __init__(self, clock: Clock, capacity_bytes: int, base: Files | None = None) -> None:
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.lost = False
        self.hook: DiskHook | None = None
        self._lock = threading.RLock()
        self.files: dict[str, Content] = {}
        self.locked: set[str] = set()
        self.used_bytes = 0
        #: Of each directory.
        self._children: dict[str, set[str]] = {"": set()}
        self._durable: dict[str, Content] = {}
        self._changes: list[NameChange] = []
        self.base = base
        #: Directories that stand for one of the base's, and its path there without a "/" behind.
        self._based: dict[str, str] = {} if base is None else {"": ""}
        #: Names that were looked for in the base, and its directories that were listed.
        self._sought: set[str] = {""}
        self._listed: set[str] = set()

    def name_of(self, path: str) -> str:
        """A path as the disk's names have it."""
        return normal(path if self.base is None else posixpath.abspath(path))

    def _seek(self, name: str) -> None:
        """Look for a name in the base, and for the directories above it."""
        if self.base is None or name in self._sought:
            return
        self._seek(parent(name))
        self._sought.add(name)
        folder = self._based.get(parent(name))
        found = None if folder is None else self.base.find(f"{folder}/{name.rpartition('/')[2]}")
        if found is not None and found.is_directory:
            self.add_directory(name)
            self._based[name] = found.path
        elif found is not None:
            self._set(name, BaseContent(found))

    def find(self, name: str) -> Content | None:
        """The content of a file; None if the name is no file's."""
        self._seek(name)
        return self.files.get(name)

    def directory_info(self, name: str, path: str) -> FileInfo:
        """A directory, under a path."""
        found = self.base.find(self._based[name] or "/") if self.base is not None and name in self._based else None
        return FileInfo(path, 0, 0, is_directory=True) if found is None else replace(found, path=path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A block in which nobody else changes anything; its holder can enter it again.

        Raises:
            StoreError: the machine has crashed.
        """
        with self._lock:
            self._check()
            yield

    def _check(self) -> None:
        if self.lost:
            raise StoreError("the machine has crashed: what it ran before is no more")

    def fault(self, operation: DiskOperation, path: str) -> DiskFault | None:
        """How an operation fails that is about to be done; None if it does not.

        Raises:
            StoreError: the power went in front of it.
        """
        found = None if self.hook is None else self.hook(operation, path)
        self._check()
        return found

    def meet(self, operation: DiskOperation, path: str) -> None:
        """Fail here if the operation that is about to be done is to fail. Raises StoreError."""
        found = self.fault(operation, path)
        if found is not None:
            raise found.error(path)

    def change(self, names: dict[str, Content | None]) -> None:
        """Change names; a crash may undo this until the directory is fsynced."""
        self._changes.append(NameChange(names))
        for name, content in names.items():
            self._set(name, content)

    def _list_all(self, folder: str) -> None:
        """Have all names in a directory, and in those in it, from the base."""
        for name in self.children(folder):
            if name in self._children:
                self._list_all(name)

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory with all that is in it; a crash may undo this until the one above is fsynced."""
        self._list_all(source)
        inside = {name: content for name, content in self.files.items() if name.startswith(source + "/")}
        names: dict[str, Content | None] = dict.fromkeys(inside)
        names |= {target + name[len(source) :]: content for name, content in inside.items()}
        for name in [each for each in self._children if is_in(each, source)]:
            self.add_directory(target + name[len(source) :])
        self._changes.append(NameChange(names, (source, target)))
        for name, content in names.items():
            self._set(name, content)
        for name in sorted((each for each in self._children if is_in(each, source)), reverse=True):
            self.remove_directory(name)

    def _set(self, name: str, content: Content | None) -> None:
        old = self.files.pop(name, None)
        if old is not None:
            old.names -= 1
            self.used_bytes -= 0 if old.names else len(old.data)
            self._children[parent(name)].discard(name)
        if content is not None:
            self.files[name] = content
            self.used_bytes += 0 if content.names else len(content.data)
            content.names += 1
            self._children[parent(name)].add(name)

    def is_directory(self, name: str) -> bool:
        self._seek(name)
        return name in self._children

    def children(self, folder: str) -> list[str]:
        """The files and directories in a directory, by name."""
        if self.base is not None and folder in self._based and folder not in self._listed:
            self._listed.add(folder)
            for entry in self.base.iter_directory(self._based[folder] or "/"):
                self._seek(f"{folder}/{entry.name}".removeprefix("/"))
        return sorted(self._children[folder])

    def add_directory(self, name: str) -> None:
        """Add a directory and its parents."""
        made = []
        while name not in self._children:
            made.append(name)
            name = parent(name)
        for each in reversed(made):
            self._children[each] = set()
            self._children[parent(each)].add(each)

    def remove_directory(self, name: str) -> None:
        """Remove an empty directory."""
        self._based.pop(name, None)
        del self._children[name]
        self._children[parent(name)].discard(name)

    def make_durable(self, folder: str) -> None:
        """Make the names in a directory survive a crash; of a rename both names, and the directories above."""
        wanted: set[str] = set()
        kept: list[NameChange] = []
        made: list[NameChange] = []
        for change in reversed(self._changes):
            if change.is_of(folder) or not wanted.isdisjoint(change.names):
                made.append(change)
                wanted |= change.names.keys()
            else:
                kept.append(change)
        for change in reversed(made):
            _apply(self._durable, change.names)
        self._changes = kept[::-1]

    def crash(self, rng: Rng | None) -> MemoryDisk:
        """Lose power, as ``MemoryFiles.crash`` says."""
        if self.base is not None:
            raise ValueError("files over others have no disk of their own")
        with self.held():
            self.lost = True
        left = MemoryDisk(self.clock, self.capacity_bytes)
        lost: set[str] = set()
        directories = set(self._children)
        undone: list[tuple[str, str]] = []
        for change in self._changes:
            # What follows from a change that was lost is lost too.
            if rng is None or not lost.isdisjoint(change.names) or rng.integer_below(2):
                lost |= change.names.keys()
                if change.moved is not None:
                    undone.append(change.moved)
            else:
                _apply(self._durable, change.names)
        for source, target in reversed(undone):
            directories = {source + each[len(target) :] if is_in(each, target) else each for each in directories}
        found: dict[int, Content] = {}
        for name, content in self._durable.items():
            if id(content) not in found:
                data = content.durable if rng is None else bytes(content.after_power_cut(rng))
                found[id(content)] = Content(content.modified_ms, data)
            left._durable[name] = found[id(content)]
            left.add_directory(parent(name))
            left._set(name, found[id(content)])
        for name in directories:
            left.add_directory(name)
        return left

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes)

    def note_size(self, content: Content, change_bytes: int) -> None:
        """Note that an open file grew or shrank. A file without a name takes no space."""
        self.used_bytes += change_bytes if content.names else 0

    def require_room(self, path: str, more_bytes: int) -> None:
        """Raise StoreError if so many more bytes do not fit."""
        if more_bytes <= self.free_bytes():
            return
        if self.base is not None:
            raise StoreError(f"{path}: more than {self.capacity_bytes} bytes were changed: too much to keep in memory")
        raise DiskFault(errno.ENOSPC).error(path)


@dataclass(slots=True)
class OpenContent:
    """An open file."""

    disk: MemoryDisk
    path: str
    content: Content
    is_open: bool = True
    base: ReadableFile | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        content, files = self.content, self.disk.base
        if files is not None and isinstance(content, BaseContent) and content.base_bytes:
            self.base = files.open_read(content.base_path)

    @property
    def size_bytes(self) -> int:
        return self.content.size_bytes

    def close(self) -> None:
        self.is_open = False
        if self.base is not None:
            self.base.close()

    def _check(self) -> None:
        if not self.is_open:
            raise StoreError(f"{self.path}: closed")

    def read_into(self, buffer: Buffer, position: int) -> int:
        view = memoryview(buffer).cast("B")
        with self.disk.held():
            self._check()
            self.disk.meet(DiskOperation.READ, self.path)
            return self.content.read(view, position, self.base)

    def write(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        with self.disk.held():
            self._check()
            fault = self.disk.fault(DiskOperation.WRITE, self.path)
            if fault is not None and fault.rng is not None:
                view = view[: fault.rng.integer_below(len(view) + 1)]
            if fault is None or len(view):
                self._write(view, position)
            if fault is not None:
                raise fault.error(self.path)

    def _write(self, view: memoryview, position: int) -> None:
        before = len(self.content.data)
        self.disk.require_room(self.path, self.content.growth_bytes(position, len(view)))
        self.content.write(view, position, self.base)
        self.disk.note_size(self.content, len(self.content.data) - before)
        self.content.modified_ms = self.disk.clock.time_ms()

    def truncate(self, size_bytes: int) -> None:
        with self.disk.held():
            self._check()
            self.disk.meet(DiskOperation.TRUNCATE, self.path)
            before = len(self.content.data)
            self.disk.require_room(self.path, size_bytes - self.size_bytes)
            self.content.resize(size_bytes)
            self.disk.note_size(self.content, len(self.content.data) - before)
            self.content.modified_ms = self.disk.clock.time_ms()

    def fsync(self) -> None:
        with self.disk.held():
            self._check()
            fault = self.disk.fault(DiskOperation.FSYNC, self.path)
            if fault is None:
                self.content.fsync()
            else:
                if fault.rng is not None:
                    self.content.fail_fsync(fault.rng)
                raise fault.error(self.path)


def _apply(files: dict[str, Content], names: dict[str, Content | None]) -> None:
    for name, content in names.items():
        if content is None:
            files.pop(name, None)
        else:
            files[name] = content


def normal(path: str) -> str:
    """A path as the disk's names have it."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def parent(name: str) -> str:
    return name.rpartition("/")[0]


def is_in(name: str, folder: str) -> bool:
    """Whether a name is a directory's or of something in it."""
    return name == folder or name.startswith(folder + "/")
