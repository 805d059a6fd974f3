"""The disk behind MemoryFiles: contents, names, and what a crash leaves of both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.randomness import Rng

#: What of a file survives a crash or not, in one.
SECTOR_BYTES = 512


@dataclass(slots=True)
class Content:
    """The bytes of one file; ``durable`` is their state at the last fsync, ``names`` how many names the file has."""

    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    names: int = 0


#: What each of some names becomes in one step, None for nothing.
NameChange = dict[str, Content | None]


class MemoryDisk:
    """Contents and names of a disk in memory. Names have no "/" in front or behind; "" is the root."""

    def __init__(self, clock: Clock, capacity_bytes: int) -> None:
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.lost = False
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
            if self.lost:
                raise StoreError("the machine has crashed: what it ran before is no more")
            yield

    def change(self, names: NameChange) -> None:
        """Change names; a crash may undo this until the directory is fsynced."""
        self._changes.append(names)
        for name, content in names.items():
            self._set(name, content)

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
        wanted = {name for names in self._changes for name in names if parent(name) == folder}
        kept: list[NameChange] = []
        made: list[NameChange] = []
        for names in reversed(self._changes):
            if wanted.isdisjoint(names):
                kept.append(names)
            else:
                made.append(names)
                wanted |= names.keys()
        for names in reversed(made):
            _apply(self._durable, names)
        self._changes = kept[::-1]

    def crash(self, rng: Rng | None) -> MemoryDisk:
        """Lose power, as ``MemoryFiles.crash`` says."""
        with self.held():
            self.lost = True
        left = MemoryDisk(self.clock, self.capacity_bytes)
        lost: set[str] = set()
        for names in self._changes:
            # What follows from a change that was lost is lost too.
            if rng is None or not lost.isdisjoint(names) or rng.integer_below(2):
                lost |= names.keys()
            else:
                _apply(self._durable, names)
        found: dict[int, Content] = {}
        for name, content in self._durable.items():
            if id(content) not in found:
                data = bytearray(content.durable) if rng is None else _torn(content, rng)
                found[id(content)] = Content(content.modified_ms, data, bytes(data))
            left._durable[name] = found[id(content)]
            left.add_directory(parent(name))
            left._set(name, found[id(content)])
        for name in self._children:
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
            part = self.content.data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def write(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        with self.disk.held():
            self._check()
            held = self.content.data
            grown = max(0, position + len(view) - len(held))
            if grown > self.disk.free_bytes():
                raise StoreError(f"{self.path}: no space left on device")
            held.extend(bytes(grown))
            self.disk.note_size(self.content, grown)
            held[position : position + len(view)] = view
            self.content.modified_ms = self.disk.clock.time_ms()

    def truncate(self, size_bytes: int) -> None:
        with self.disk.held():
            self._check()
            self.disk.note_size(self.content, min(0, size_bytes - len(self.content.data)))
            del self.content.data[size_bytes:]
            self.write(b"", size_bytes)

    def fsync(self) -> None:
        with self.disk.held():
            self._check()
            self.content.durable = bytes(self.content.data)


def _apply(files: dict[str, Content], names: NameChange) -> None:
    for name, content in names.items():
        if content is None:
            files.pop(name, None)
        else:
            files[name] = content


def _torn(content: Content, rng: Rng) -> bytearray:
    """A file's content after a crash: one of the two lengths, and each sector durable or as it was written last."""
    old, new = content.durable, content.data
    size = len(old) if rng.integer_below(2) else len(new)
    data = bytearray(old.ljust(size, b"\0")[:size])
    for start in range(0, size, SECTOR_BYTES):
        if rng.integer_below(2):
            part = new[start : min(start + SECTOR_BYTES, size)]
            data[start : start + len(part)] = part
    return data


def normal(path: str) -> str:
    """A path as the disk's names have it."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def parent(name: str) -> str:
    return name.rpartition("/")[0]
