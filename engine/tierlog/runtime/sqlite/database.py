"""One SQLite database: opened for this process alone, in a form in which a commit survives a crash."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from tierlog.errors import CorruptDataError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, Files

#: A statement, with the rows that it is run for, once each; None: once, without any.
Step = tuple[str, Sequence[Sequence[object]] | None]

_DAMAGED: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT))
_DENIED: Final = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH))
_SETTINGS: Final = (
    "PRAGMA locking_mode = EXCLUSIVE",  # this process alone; no shared memory, so that any file system will do
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit fsyncs the journal before it returns
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA journal_size_limit = 16777216",
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
)


class Database(Protocol):
    """A database. One thread at a time may use it; which one may change.

    Raises (all methods but close):
        CorruptDataError: the file is damaged. StoreUnavailableError: another process has it open.
        StorePermissionError: it cannot be written. StoreError: the disk is full or failed; the next call may work.
    """

    def commit(self, steps: Iterable[Step]) -> None:
        """Run the statements as one transaction, which is durable on return. After an error none of it has happened."""

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query."""

    def close(self) -> None:
        """Close the database; idempotent."""


class SqliteDatabase:
    """The Database of a file. Made by ``open_database``."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _translated(path):
            self._connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)

    def prepare(self, *, whole: bool) -> None:
        """Take the file's lock, choose how it is written, and read all of it once if it is to be ``whole``."""
        with _translated(self._path):
            for setting in _SETTINGS:
                self._connection.execute(setting).fetchall()
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("COMMIT")
            found = self._connection.execute("PRAGMA quick_check(1)").fetchall() if whole else [("ok",)]
        if found != [("ok",)]:
            raise CorruptDataError(f"SQLite finds damage: {found[0][0]}", where=self._path)

    def commit(self, steps: Iterable[Step]) -> None:
        """Run the statements as one transaction, which is durable on return."""
        with _translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, rows in steps:
                    if rows is None:
                        self._connection.execute(statement)
                    else:
                        self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have rolled back already
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query."""
        with _translated(self._path):
            yield from self._connection.execute(statement)

    def close(self) -> None:
        """Close the database; idempotent."""
        with _translated(self._path):
            self._connection.close()


def open_database(files: Files, path: str, *, create: Sequence[str]) -> SqliteDatabase:
    """Open a database for this process alone, or make it with the statements of ``create``.

    A new file gets its name when it is whole: a file that is there and empty is damaged. Its directory must exist.
    Blocks while all of the file is read, once.

    Raises:
        CorruptDataError: the file is damaged, or only its journal is there. StoreUnavailableError: another process has
        it open. StoreError and its kinds: it cannot be made or opened.
    """
    if files.find(path) is None:
        if files.find(f"{path}-wal") is not None:
            text = "the database is gone and its journal is still there: restore the one, or remove the other"
            raise CorruptDataError(text, where=f"{path}-wal")
        _create(files, path, create)
    database = SqliteDatabase(path)
    try:
        database.prepare(whole=True)
    except BaseException:
        database.close()
        raise
    return database


def _create(files: Files, path: str, statements: Sequence[str]) -> None:
    """Make a database under its temporary name, and give it its own when it is closed."""
    temporary = path + TEMPORARY_SUFFIX
    for left in (temporary, f"{temporary}-wal", f"{temporary}-journal"):
        files.remove(left)
    database = SqliteDatabase(temporary)
    try:
        database.prepare(whole=False)
        database.commit([(statement, None) for statement in statements])
    finally:
        database.close()
    files.rename(temporary, path)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """A block whose errors of SQLite become those of :mod:`tierlog.errors`."""
    try:
        yield
    except sqlite3.Error as cause:
        raise _error_of(cause, path) from cause


def _error_of(cause: sqlite3.Error, path: str) -> Exception:
    code = getattr(cause, "sqlite_errorcode", None)
    text = f"{path}: {cause}"
    if code is None:  # of Python's module: text that is not UTF-8, or a mistake of ours
        return CorruptDataError(str(cause), where=path) if isinstance(cause, sqlite3.OperationalError) else cause
    code &= 0xFF  # the higher bits say where it happened
    if code in _DAMAGED:
        return CorruptDataError(str(cause), where=path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailableError(text)
    return StorePermissionError(text) if code in _DENIED else StoreError(text)
