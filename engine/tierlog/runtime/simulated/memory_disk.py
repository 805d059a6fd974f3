"""The disk behind MemoryFiles: contents, names, and what a crash leaves of both."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.simulated.disk_faults import DiskFault, DiskHook, DiskOperation
from tierlog.runtime.simulated.page_cache import Content


@dataclass(frozen=True, slots=True)
class NameChange:
    """What each of some names becomes in one step, None for nothing; ``moved``: a directory's old and new name."""

    names: dict[str, Content | None]
    moved: tuple[str, str] | None = None

    def is_of(self, folder: str) -> bool:
        """Whether an fsync of a directory makes it durable."""
        return folder in {parent(name) for name in (self.names if self.moved is None else self.moved)}


class MemoryDisk:
    """Contents and names of a disk in memory. Names have no "/" in front or behind; "" is the root."""

    def __init__(self, clock: Clock, capacity_bytes: int) -> None:
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

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory with all that is in it; a crash may undo this until the one above is fsynced."""
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
        return name in self._children

    def children(self, folder: str) -> list[str]:
        """The files and directories in a directory, by name."""
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


@dataclass(slots=True)
class OpenContent:
    """An open file."""

    disk: MemoryDisk
    path: str
    content: Content
    is_open: bool = True

    @property
    def size_bytes(self) -> int:
        return len(self.content.data)

    def _check(self) -> None:
        if not self.is_open:
            raise StoreError(f"{self.path}: closed")

    def read_into(self, buffer: Buffer, position: int) -> int:
        view = memoryview(buffer).cast("B")
        with self.disk.held():
            self._check()
            self.disk.meet(DiskOperation.READ, self.path)
            part = self.content.data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

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
        grown = max(0, position + len(view) - self.size_bytes)
        if grown > self.disk.free_bytes():
            raise DiskFault(errno.ENOSPC).error(self.path)
        self.content.write(view, position)
        self.disk.note_size(self.content, grown)
        self.content.modified_ms = self.disk.clock.time_ms()

    def truncate(self, size_bytes: int) -> None:
        with self.disk.held():
            self._check()
            self.disk.meet(DiskOperation.TRUNCATE, self.path)
            change = size_bytes - self.size_bytes
            if change > self.disk.free_bytes():
                raise DiskFault(errno.ENOSPC).error(self.path)
            self.content.resize(size_bytes)
            self.disk.note_size(self.content, change)
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
