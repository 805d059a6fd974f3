"""The disk behind MemoryFiles: its operations and their faults, its space, and its open files."""

from __future__ import annotations

import enum
import errno
import os
import posixpath
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import Files, ReadableFile, store_error
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.simulated.directory_tree import BaseDirectory, Directory, DirectoryTree, Node
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


class MemoryDisk:
    """Contents and names of a disk in memory. Names have no "/" in front or behind; "" is the root.

    Attributes:
        lost: Whether the power has gone.
        hooks: Called before each operation, in order.
        tree: The names.
    """

    def __init__(self, clock: Clock, capacity_bytes: int, base: Files | None = None) -> None:
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.lost = False
        self.hooks: list[DiskHook] = []
        self.base = base
        self.tree = DirectoryTree(None if base is None else BaseDirectory(base, "/"))
        #: Names that are in no directory, and open what they were made of until they are removed.
        self._leased: dict[str, Content] = {}
        self._leases = 0
        self._opened: weakref.WeakSet[OpenContent] = weakref.WeakSet()
        self._held = _Held(self)

    def name_of(self, path: str) -> str:
        """Return a path as the disk's names have it."""
        if self.base is not None:
            path = posixpath.abspath(path)
        return "/".join(part for part in path.split("/") if part not in ("", "."))

    def find(self, path: str) -> Node | None:
        """Find the file or directory of a path; None if the path names nothing."""
        name = self.name_of(path)
        return self._leased.get(name) or self.tree.find(name)

    def find_file(self, path: str) -> Content | None:
        """Find the content of a file; None if the path is no file's."""
        found = self.find(path)
        return found if isinstance(found, Content) else None

    def find_place(self, path: str) -> tuple[Directory | None, str]:
        """Find the directory above a path, None if it does not exist; and the name in it, "" of the root."""
        above, _, name = self.name_of(path).rpartition("/")
        directory = self.tree.find(above)
        return directory if isinstance(directory, Directory) else None, name

    def lease(self, content: Content) -> str:
        """Add another name of a content, which is in no directory and ends with the power."""
        self._leases += 1
        name = f"proc/leases/{self._leases}"
        self._leased[name] = content
        return name

    def end_lease(self, name: str) -> None:
        """Remove a name of ``lease``."""
        self._leased.pop(name, None)

    def note_opened(self, file: OpenContent) -> None:
        """Note an open file, which is one until it is closed, or nobody has it."""
        self._opened.add(file)

    def open_paths(self) -> list[str]:
        """Return the paths that files were opened by which are open now, and the names of leases."""
        return sorted([*self._leased, *(each.path for each in self._opened if each.is_open)])

    def held(self) -> _Held:
        """Return a block with the disk's lock held, which is reentrant.

        Raises:
            StoreError: the machine has crashed.
        """
        return self._held

    def check(self) -> None:
        """Raise StoreError if the machine has crashed."""
        if self.lost:
            raise StoreError("the machine has crashed: what it ran before is no more")

    def fault(self, operation: DiskOperation, path: str) -> DiskFault | None:
        """Return the fault of the next operation; None if it does not fail.

        Raises:
            StoreError: the power went in front of it.
        """
        found = None
        for hook in self.hooks:
            fault = hook(operation, path)
            self.check()
            found = found or fault
        return found

    def meet(self, operation: DiskOperation, path: str) -> None:
        """Fail here if the operation that is about to be done is to fail. Raises StoreError."""
        found = self.fault(operation, path)
        if found is not None:
            raise found.error(path)

    def crash(self, rng: Rng | None) -> MemoryDisk:
        """Lose power, as ``MemoryFiles.crash`` says."""
        if self.base is not None:
            raise ValueError("files over others have no disk of their own")
        with self.held():
            self.lost = True
        left = MemoryDisk(self.clock, self.capacity_bytes)
        left.tree = self.tree.after_crash(rng)
        return left

    def free_bytes(self) -> int:
        """Return the number of bytes that can still be written."""
        return max(0, self.capacity_bytes - self.tree.used_bytes)

    def note_size(self, content: Content, change_bytes: int) -> None:
        """Note that an open file grew or shrank. A file without a name takes no space."""
        self.tree.used_bytes += change_bytes if content.names else 0

    def require_room(self, path: str, more_bytes: int) -> None:
        """Raise StoreError if so many more bytes do not fit."""
        if more_bytes <= self.free_bytes():
            return
        if self.base is not None:
            raise StoreError(f"{path}: more than {self.capacity_bytes} bytes were changed: too much to keep in memory")
        raise DiskFault(errno.ENOSPC).error(path)


class _Held:
    """A block with a disk's lock held."""

    __slots__ = ("_disk", "_lock")

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk, self._lock = disk, threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._disk.lost:
            self._lock.release()
            self._disk.check()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@dataclass(slots=True, eq=False, weakref_slot=True)
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
        self.disk.note_opened(self)

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
        taken = data if isinstance(data, bytes) else bytes(data)
        with self.disk.held():
            self._check()
            fault = self.disk.fault(DiskOperation.WRITE, self.path)
            if fault is None:
                self._write(taken, position)
                return
            taken = b"" if fault.rng is None else taken[: fault.rng.integer_below(len(taken) + 1)]
            if taken:
                self._write(taken, position)
            raise fault.error(self.path)

    def _write(self, data: bytes, position: int) -> None:
        content, disk = self.content, self.disk
        growth_bytes = content.growth_bytes(position, len(data))
        if growth_bytes:
            disk.require_room(self.path, growth_bytes)
        before = len(content.data)
        content.write(data, position, self.base)
        disk.note_size(content, len(content.data) - before)
        content.modified_ms = disk.clock.time_ms()

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
