"""One SQLite database: opened for this process alone, in a form in which a commit survives a crash."""

from __future__ import annotations

import contextlib
import operator
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from tierlog.errors import (
    CorruptDataError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, Files
from tierlog.runtime.sqlite.write_ahead_log import check_write_ahead_log

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
#: Takes the lock, and fails where nothing can be written: BEGIN IMMEDIATE alone succeeds in a file that calls itself
#: read-only.
_PROBE: Final = ("BEGIN IMMEDIATE", "CREATE TABLE tierlog_probe (k)", "ROLLBACK")


class Database:
    """A database in a file, which ``open_database`` opens. One thread at a time may use it; which one may change.

    Raises (all methods but close):
        CorruptDataError: the file is damaged. StoreUnavailableError: another process has it open.
        StorePermissionError: it cannot be written. StoreError: the disk is full or failed; the next call may work.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with _translated(path):
            self._connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
        self._connection.text_factory = operator.methodcaller("decode", "utf-8", "surrogateescape")

    def prepare(self, *, whole: bool) -> None:
        """Take the file's lock, choose how it is written, and read all of it once if it is to be ``whole``."""
        with _translated(self._path):
            for setting in _SETTINGS:
                self._connection.execute(setting).fetchall()
            for step in _PROBE:
                self._connection.execute(step)
            found = self._connection.execute("PRAGMA quick_check(1)").fetchall() if whole else [("ok",)]
        if found != [("ok",)]:
            raise CorruptDataError(f"SQLite finds damage: {found[0][0]}", where=self._path)

    def commit(self, steps: Iterable[Step]) -> None:
        """Run the statements as one transaction, which is durable on return. After an error none of it has happened."""
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
        """Yield the rows of a query. Bytes of a text that are no UTF-8 are surrogates, as ``surrogateescape`` makes
        them.
        """
        with _translated(self._path):
            cursor = self._connection.execute(statement)
            # Not "yield from": that closes the cursor, which fails where the database was closed before.
            for row in cursor:  # noqa: UP028
                yield row

    def close(self) -> None:
        """Close the database; idempotent."""
        with _translated(self._path):
            self._connection.close()


def open_database(files: Files, path: str, *, create: Sequence[str]) -> Database:
    """Open a database for this process alone, or make it with the statements of ``create``.

    A new file gets its name when it is whole: a file that is there and empty is damaged. Its directory must exist.
    Blocks while the file, and the journal that a killed process left, are read once. After an error both are as they
    were, unless SQLite alone saw the damage: it then has written the journal into the file.

    Raises:
        CorruptDataError: the file or its journal is damaged, or only that is there. StoreUnavailableError: another
        process has it open. StoreError and its kinds: it cannot be made or opened.
    """
    journal = f"{path}-wal"
    has_journal = files.find(journal) is not None
    if files.find(path) is None:
        if has_journal:
            text = "the database is gone and its journal is still there: restore the one, or remove the other"
            raise CorruptDataError(text, where=journal)
        _create(files, path, create)
    elif has_journal:
        try:
            check_write_ahead_log(files, journal)
        except (CorruptDataError, ObjectNotFoundError):  # or another process writes it now
            _require_unused(path)
            raise
    database = Database(path)
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
    database = Database(temporary)
    try:
        database.prepare(whole=False)
        database.commit([(statement, None) for statement in statements])
    finally:
        database.close()
    files.rename(temporary, path)


def _require_unused(path: str) -> None:
    """Raise StoreUnavailableError if another process has a database open. Changes nothing."""
    with _translated(path):
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=0.0)
        with contextlib.closing(connection):
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # else it makes a file for shared memory
            try:
                connection.execute("SELECT 1 FROM sqlite_master").fetchall()
            except sqlite3.Error as error:  # any other one: the caller's error says more
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """A block whose errors of SQLite become those of :mod:`tierlog.errors`."""
    try:
        yield
    except sqlite3.Error as cause:
        raise _error_of(cause, path) from cause
    except UnicodeDecodeError as cause:  # SQLite quotes the bytes it found
        raise CorruptDataError(f"SQLite finds damage: {cause.object!r}", where=path) from cause


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
