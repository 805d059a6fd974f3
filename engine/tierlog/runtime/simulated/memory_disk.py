"""The disk behind MemoryFiles: its operations and their faults, contents, names, and the remains of both
after a crash.
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
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import FileInfo, Files, ReadableFile, store_error
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.simulated.page_cache import BaseContent, Content


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


#: Operations that change the disk's content, or make it durable.
CHANGES: Final = frozenset(DiskOperation) - {DiskOperation.OPEN, DiskOperation.READ}


@dataclass(frozen=True, slots=True)
class DiskFault:
    """A failure of an operation.

    Attributes:
        errno: The system's error number.
        rng: Draws how much of a write was done before it failed, and what of a file a failed fsync leaves; None: a
            write does nothing, and a failed fsync writes nothing.
    """

    errno: int
    rng: Rng | None = None

    def error(self, path: str) -> StoreError:
        """Return the error that a caller of ``Files`` sees."""
        cause = OSError(self.errno, os.strerror(self.errno), path)
        error = store_error(cause, path)
        error.__cause__ = cause
        return error


#: A function that is called before each operation, with the path; a power cut is a hook that calls ``crash`` of the
#: files.
DiskHook = Callable[[DiskOperation, str], DiskFault | None]


@dataclass(frozen=True, slots=True)
class NameChange:
    """The content that each of some names gets in one step, None for no file; ``moved``: a directory's old and new
    name.
    """

    names: dict[str, Content | None]
    moved: tuple[str, str] | None = None

    def is_of(self, folder: str) -> bool:
        """Whether an fsync of a directory makes it durable."""
        return folder in {parent(name) for name in (self.names if self.moved is None else self.moved)}

    def leads_to(self, names: set[str]) -> bool:
        """Whether later changes of some names follow from it: it is of one of them, or of a directory above."""
        if not names.isdisjoint(self.names):
            return True
        return self.moved is not None and any(is_in(name, self.moved[1]) for name in names)


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
        #: Names that are in no directory, and open what they were made of until they are removed.
        self.leased: dict[str, Content] = {}
        self._leases = 0
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
        """Return a path as the disk's names have it."""
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
        """Return the content of a file; None if the name is no file's."""
        if name in self.leased:
            return self.leased[name]
        self._seek(name)
        return self.files.get(name)

    def lease(self, content: Content) -> str:
        """Another name of a content, which is in no directory and ends with the power."""
        self._leases += 1
        name = f"proc/leases/{self._leases}"
        self.leased[name] = content
        return name

    def end_lease(self, name: str) -> None:
        """Let a name of ``lease`` open nothing any more."""
        self.leased.pop(name, None)

    def directory_info(self, name: str, path: str) -> FileInfo:
        """Return a directory, under a path."""
        found = self.base.find(self._based[name] or "/") if self.base is not None and name in self._based else None
        return FileInfo(path, 0, 0, is_directory=True) if found is None else replace(found, path=path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Return a block with the disk's lock held, which is reentrant.

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
        """Return the fault of the next operation; None if it does not fail.

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
        """List all names of the base in a directory, and in those in it."""
        for name in self.children(folder):
            if name in self._children:
                self._list_all(name)

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory with all that is in it; a crash may undo this until the one above is fsynced. Files that
        were removed and may come back are in it, too.
        """
        self._list_all(source)
        known = dict.fromkeys([*self._durable, *(name for change in self._changes for name in change.names)])
        inside = {name: content for name, content in (known | self.files).items() if name.startswith(source + "/")}
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
        """Return the files and directories in a directory, by name."""
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
            if change.is_of(folder) or change.leads_to(wanted):
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
        moves: list[NameChange] = []
        directories = set(self._children)
        for change in self._changes:
            # What follows from a change that was lost is lost too.
            names = {*change.names, *(change.moved or ())}
            if rng is None or names & lost or any(move.leads_to(names) for move in moves) or rng.integer_below(2):
                lost |= names
                moves += [] if change.moved is None else [change]
            else:
                _apply(self._durable, change.names)
        undone = [change.moved for change in moves if change.moved is not None]
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
    """Return a path as the disk's names have it."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def parent(name: str) -> str:
    return name.rpartition("/")[0]


def is_in(name: str, folder: str) -> bool:
    """Whether a name is a directory's or of something in it."""
    return name == folder or name.startswith(folder + "/")
