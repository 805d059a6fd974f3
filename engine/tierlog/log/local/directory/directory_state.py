"""Whether a log directory works, and its own files: whose it is, how it was left, what is known of its logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator

from tierlog.errors import CorruptDataError, StoreError
from tierlog.log.formats.meta_properties import MetaProperties
from tierlog.log.local.directory.clean_marker import take_marker
from tierlog.log.local.directory.directory_checkpoints import DirectoryCheckpoints, PartitionKey
from tierlog.log.local.directory.directory_identity import (
    DirectoryIdentity,
    check_identity,
    read_identity,
    write_identity,
)
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)


class DirectoryState:
    """The state of a directory that is locked. Making one removes the marker of a clean stop.

    Args:
        machine: Has the files.
        path: The directory.
        there: The logs that it has.
        identity: Whose it is to be; None: anybody's.
        on_failure: Called once, with what takes the directory offline. It must not raise or wait.

    Attributes:
        properties: Its ``meta.properties``; None if there are none.
        last_stop: How it was left.
        checkpoints: To be changed in a ``writing`` block.
        failure: What took it offline; None while nothing has.

    Raises:
        ConfigError: it is another broker's, or meta.properties is malformed. StoreError.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        machine: Machine,
        path: str,
        *,
        there: Collection[PartitionKey],
        identity: DirectoryIdentity | None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._path = path
        self._on_failure = on_failure
        self._lock = machine.scheduler.lock()
        self.failure: Exception | None = None
        self.properties = _agreed_identity(machine, path, identity)
        self.last_stop = take_marker(machine.files, path)
        self.checkpoints = DirectoryCheckpoints(machine.files, path, there=there)

    def fail(self, cause: Exception) -> None:
        """Take the directory offline; the first cause stays. Waits for nobody: a log's own threads call it."""
        if self.failure is None:
            self.failure = cause
            _log.error("%s: the log directory is offline: %s", self._path, cause)
            self._on_failure(cause)

    def check_online(self) -> None:
        """Raises LogOfflineError."""
        if self.failure is not None:
            raise LogOfflineError(f"{self._path}: the log directory is offline: {self.failure}") from self.failure

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """A block whose failure to read or write takes the directory offline. Raises LogOfflineError."""
        self.check_online()
        try:
            yield
        except (StoreError, CorruptDataError) as error:
            self.fail(error)
            self.check_online()

    @contextlib.contextmanager
    def writing(self) -> Iterator[DirectoryCheckpoints]:
        """A ``working`` block of one thread at a time, which changes the directory's own files."""
        with self._lock, self.working():
            yield self.checkpoints


def _agreed_identity(machine: Machine, path: str, identity: DirectoryIdentity | None) -> MetaProperties | None:
    """The directory's ``meta.properties``, checked, or written if somebody is to have the directory."""
    if identity is None:
        return read_identity(machine.files, path)
    return check_identity(machine.files, path, identity) or write_identity(machine, path, identity)
