"""The groups' store in SQLite: writes that wait for each other share one transaction, and so one fsync."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tierlog.broker.groups.database_tables import (
    APPLICATION_ID,
    CREATE,
    SCHEMA_VERSION,
    TABLES,
    loaded,
    steps_of,
)
from tierlog.broker.groups.stored_state import Change, GroupStore, MemoryStore, StoredState
from tierlog.errors import ConfigError, CorruptDataError, StoreError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.sqlite.database import Database, open_database

_log: Final = logging.getLogger(__name__)
FILE_NAME: Final = "groups.sqlite"
#: A disk that is full fails every commit: what failed is told so often, and counted meanwhile.
_WARNING_SECONDS: Final = 60.0
#: Writes that share a transaction: the first one waits for no more than these.
_TRANSACTION_WRITES_MAX: Final = 1000

Done = Callable[[Exception | None], None]


class DatabaseStore:
    """A GroupStore over a database. ``write`` may be called by any thread.

    A transaction that failed leaves nothing behind, and the next one is tried; after damage every write fails.
    """

    def __init__(self, database: Database, machine: Machine, path: str) -> None:
        self._database = database
        self._path = path
        self._clock = machine.clock
        self._pool = machine.scheduler.pool(1, name="tierlog-groups")
        self._lock = machine.scheduler.lock()
        #: Of the writing thread: changes that were not stored since that was told, and when it was.
        self._unstored = 0
        self._told_at_seconds: float | None = None
        self._waiting: collections.deque[tuple[Sequence[Change], Done]] = collections.deque()
        self._is_writing = False
        self._fault: Exception | None = None

    def load(self) -> StoredState:
        """All that is stored, every row checked; blocks."""
        try:
            return loaded(self._database)
        except CorruptDataError as error:
            error.located(self._path)
            raise

    def write(self, changes: Sequence[Change], done: Done) -> None:
        """Make changes durable behind those of all calls before; ``done`` is called in the writing thread."""
        with self._lock:
            self._waiting.append((changes, done))
            if self._is_writing:
                return
            self._is_writing = True
        try:
            self._pool.submit(self._write_waiting)
        except NotSubmitted as error:
            self._refuse(StoreError(f"groups are not written any more: {error}"))

    def close(self) -> None:
        """Wait for the writes under way, and close the database; idempotent."""
        self._pool.close(cancel=False)
        self._database.close()

    def _refuse(self, error: Exception) -> None:
        with self._lock:
            refused = list(self._waiting)
            self._waiting.clear()
            self._is_writing = False
        for _, done in refused:
            done(error)

    def _write_waiting(self) -> None:
        """Write until nothing waits. Runs in the writing thread."""
        while True:
            with self._lock:
                taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _TRANSACTION_WRITES_MAX))]
                if not taken:
                    self._is_writing = False
                    return
            error = self._write([changes for changes, _ in taken])
            for changes, done in taken:
                # What a value of one write did must not fail those that happened to wait beside it.
                done(self._write([changes]) if error is not None and len(taken) > 1 and self._fault is None else error)

    def _write(self, writes: Sequence[Sequence[Change]]) -> Exception | None:
        if self._fault is not None:
            return self._fault
        changes = [change for write in writes for change in write]
        if not changes:
            return None
        try:
            self._database.commit(steps_of(changes))
        except CorruptDataError as error:
            _log.error("groups: the database is damaged, nothing is stored any more: %s", error)
            self._fault = error
            return error
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            self._warn(len(changes), error)
            return error
        return None

    def _warn(self, unstored: int, error: Exception) -> None:
        """Log that changes were not stored, unless that was told within the last minute."""
        self._unstored += unstored
        now = self._clock.monotonic_seconds()
        if self._told_at_seconds is None or now - self._told_at_seconds >= _WARNING_SECONDS:
            _log.warning("groups: %d changes were not stored: %s", self._unstored, error)
            self._unstored, self._told_at_seconds = 0, now


def open_group_store(machine: Machine, directory: str | None) -> GroupStore:
    """The store of a state directory, made if it is not there; None: a store that lasts as long as the process.

    Blocks while the file is read once.

    Raises:
        ConfigError: another process uses the directory, or the file is not one of ours, or of another version.
        CorruptDataError: the file is damaged. StoreError and its kinds: it cannot be read or written.
    """
    if directory is None:
        return MemoryStore()
    machine.files.make_directories(directory)
    path = f"{directory}/{FILE_NAME}"
    try:
        database = open_database(machine.files, path, create=CREATE)
    except StoreUnavailableError as error:
        raise ConfigError(f"{path} is in use: each server needs a state directory of its own ({error})") from error
    try:
        _check(database, path)
    except BaseException:
        database.close()
        raise
    return DatabaseStore(database, machine, path)


def _check(database: Database, path: str) -> None:
    """Whether a database is one of ours, in the form that this version knows."""
    [(application,)] = database.rows("PRAGMA application_id")
    [(version,)] = database.rows("PRAGMA user_version")
    if application != APPLICATION_ID:
        raise ConfigError(f"{path} is an SQLite database, but not one of consumer groups")
    if version != SCHEMA_VERSION:
        raise ConfigError(f"{path} has version {version} of the groups' tables; this release knows {SCHEMA_VERSION}")
    if {sql for [sql] in database.rows("SELECT sql FROM sqlite_master")} != set(TABLES):
        raise CorruptDataError(f"its tables are not those of version {version}", where=path)
