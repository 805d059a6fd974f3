"""A file of a segment, opened when it is first needed: a broker has more segments than it may have files open."""

from __future__ import annotations

import contextlib

from tierlog.errors import ObjectNotFoundError
from tierlog.log.local.log_errors import LogClosedError, LogTruncatedError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import ReadableFile, UpdatableFile


class LogFolder:
    """The folder of a log, whose files are opened by paths that a rename changes for all of them at once.

    Attributes:
        path: The folder now.
        lock: Held while a file of the folder is opened, renamed or removed, which is seldom, and never while one is
            read: else a reader would find no file under a path that was just left, or another log's.
        is_deleted: Whether the folder was removed, with all that is in it.
    """

    __slots__ = ("_files", "is_deleted", "lock", "path")

    def __init__(self, machine: Machine, path: str) -> None:
        self.path = path
        self.is_deleted = False
        self.lock = machine.scheduler.lock()
        self._files = machine.files

    def rename_to(self, path: str) -> None:
        """Rename the folder within its directory, durably. Raises StoreError."""
        with self.lock:
            self._files.rename(self.path, path, durable=False)
            self.path = path
        self._files.fsync_directory(self.parent)

    @property
    def parent(self) -> str:
        """The directory that the folder is in."""
        return self.path.rstrip("/").rpartition("/")[0] or "."

    def remove(self, name: str) -> None:
        """Remove a file of the folder, if it exists. Raises StoreError."""
        with self.lock:
            self._files.remove(f"{self.path}/{name}")

    def delete(self) -> None:
        """Remove the folder and all files in it, durably: who looks for a file from now on is told that the log is
        closed. Raises StoreError: some are still there.
        """
        with self.lock:
            self.is_deleted = True
            for found in list(self._files.iter_directory(self.path)):
                self._files.remove(found.path)
            self._files.remove(self.path)
        self._files.fsync_directory(self.parent)


class LazyFile:
    """A file that any thread may open, and one thread at a time rename or remove.

    Attributes:
        name: In its folder, now.
        file: Once it is open. Whoever holds it reads on, whatever becomes of the path.
    """

    __slots__ = ("_files", "_folder", "_is_closed", "_is_removed", "_is_written", "_lock", "file", "name")

    def __init__(self, machine: Machine, folder: LogFolder, name: str) -> None:
        self.name = name
        self.file: UpdatableFile | None = None
        self._folder = folder
        self._files = machine.files
        self._lock = folder.lock
        self._is_removed = self._is_closed = self._is_written = False

    @property
    def path(self) -> str:
        """Where the file is now."""
        return f"{self._folder.path}/{self.name}"

    def opened(self) -> UpdatableFile:
        """The open file.

        Raises:
            ObjectNotFoundError: it does not exist. LogTruncatedError: the log has removed it. LogClosedError.
            StoreError.
        """
        found = self.file or self.find()
        if found is None:
            raise ObjectNotFoundError(f"{self.path}: there is no such file")
        return found

    def find(self) -> UpdatableFile | None:
        """The open file; None if it does not exist. Raises as ``opened``."""
        if self.file is not None:
            return self.file
        with self._lock:
            return self._open(make=False)

    def made(self) -> UpdatableFile:
        """The open file, which is made if it does not exist. Raises LogClosedError, StoreError."""
        if self.file is not None:
            return self.file
        with self._lock:
            file = self._open(make=True)
            assert file is not None
            return file

    def _check(self) -> None:
        if self._is_closed or self._folder.is_deleted:
            raise LogClosedError(f"{self.path}: closed")
        if self._is_removed:
            raise LogTruncatedError(f"{self.path}: removed, while it was read")

    def _open(self, *, make: bool) -> UpdatableFile | None:
        if self.file is None:
            self._check()
            if make or self._files.find(self.path) is not None:
                self.file = self._files.open_update(self.path)
        return self.file

    def modified_ms(self) -> int:
        """When the file was last changed, ms since 1970 UTC. Raises as ``opened``."""
        with self._lock:
            self._check()
            return self._files.stat(self.path).modified_ms

    def peek(self) -> ReadableFile | UpdatableFile | None:
        """The open file, or one that is closed when the caller has done with it; None if it does not exist."""
        with self._lock:
            if self.file is not None:
                return self.file
            self._check()
            return None if self._files.find(self.path) is None else self._files.open_read(self.path)

    def fsync(self) -> None:
        """Fsync the file, unless the log has removed it meanwhile. Raises as ``opened``."""
        with contextlib.suppress(LogTruncatedError):
            self.opened().fsync()

    def begin_writing(self) -> None:
        """Keep the file open from now on: one that is opened beside a write would have an old size."""
        with self._lock:
            self._is_written = True

    def end_writing(self) -> None:
        """Nothing is to be written any more: ``let_go`` may close the file."""
        with self._lock:
            self._is_written = False

    def let_go(self) -> None:
        """Close the file, until somebody needs it again, unless it is written to. Any thread."""
        with self._lock:
            if not self._is_written:
                self.file = None

    def rename_to(self, name: str) -> None:
        """Rename the file in its folder, if it exists. The folder is not fsynced."""
        with self._lock:
            if self._files.find(self.path) is not None:
                self._files.rename(self.path, f"{self._folder.path}/{name}", durable=False)
            self.name = name

    def remove(self) -> None:
        """Remove the file, if it exists."""
        with self._lock:
            self._is_removed = True
            self._files.remove(self.path)

    def unmake(self) -> None:
        """Remove the file, if it exists; ``made`` makes another. The folder is not fsynced."""
        with self._lock:
            self.file = None
            self._files.remove(self.path)

    def close(self) -> None:
        """Let go of the file: it is closed when its last reader has gone. Idempotent."""
        with self._lock:
            self._is_closed = True
            self.file = None
