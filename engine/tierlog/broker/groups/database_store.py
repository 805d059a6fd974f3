"""The groups' store in SQLite: writes that wait for each other share one transaction, and so one fsync.

Each stored value is written whole: a group is replaced with its members, an offset by the next one. The last column of
each row is a checksum over the table's name and all other columns: SQLite's own check sees the pages' structure alone.
"""

from __future__ import annotations

import collections
import itertools
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import xxhash

from tierlog.broker.groups.stored_state import (
    Change,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    GroupStore,
    MemoryStore,
    Protocols,
    SaveGroup,
    SaveOffsets,
    StoredGroup,
    StoredMember,
    StoredState,
)
from tierlog.errors import ConfigError, CorruptDataError, StoreError, StoreUnavailableError
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.sqlite.database import Database, Step, open_database

#: "TLgr", so that another program's database never passes for ours.
APPLICATION_ID: Final = 0x544C6772
SCHEMA_VERSION: Final = 2

TABLES: Final = (
    """CREATE TABLE groups (
        group_id TEXT NOT NULL PRIMARY KEY, generation_id INTEGER NOT NULL, protocol_type TEXT, protocol_name TEXT,
        leader_id TEXT, state_timestamp_ms INTEGER NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE members (
        group_id TEXT NOT NULL, position INTEGER NOT NULL, member_id TEXT NOT NULL, group_instance_id TEXT,
        client_id TEXT NOT NULL, client_host TEXT NOT NULL, rebalance_timeout_ms INTEGER NOT NULL,
        session_timeout_ms INTEGER NOT NULL, assignment BLOB NOT NULL, checksum BLOB NOT NULL,
        PRIMARY KEY (group_id, position)) WITHOUT ROWID""",
    """CREATE TABLE protocols (
        group_id TEXT NOT NULL, member_position INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL,
        metadata BLOB NOT NULL, checksum BLOB NOT NULL,
        PRIMARY KEY (group_id, member_position, position)) WITHOUT ROWID""",
    """CREATE TABLE offsets (
        group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, committed_offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL, commit_timestamp_ms INTEGER NOT NULL,
        expire_timestamp_ms INTEGER, topic_id BLOB NOT NULL, checksum BLOB NOT NULL,
        PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID""",
)
CREATE: Final = (
    *TABLES,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_TABLES_OF_GROUPS: Final = ("groups", "members", "protocols")
_FORGET: Final = {table: f"DELETE FROM {table} WHERE group_id = ?" for table in (*_TABLES_OF_GROUPS, "offsets")}  # noqa: S608
_SAVE_OFFSET: Final = "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE_OFFSET: Final = "DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?"
#: The type of a value, and the value or its size.
_INTEGER: Final = struct.Struct("<cq").pack
_REAL: Final = struct.Struct("<cd").pack
_SIZE: Final = struct.Struct("<cQ").pack
#: Number of damaged rows that an error shows.
_SHOWN_ROWS: Final = 3
_SHOWN_CHARACTERS: Final = 100


def steps_of(changes: Sequence[Change]) -> Iterator[Step]:
    """Yield the statements of changes, in their order."""
    for change in changes:
        match change:
            case SaveOffsets(group_id, offsets):
                yield _SAVE_OFFSET, [_offset_row(group_id, *offset) for offset in offsets]
            case DeleteOffsets(group_id, partitions):
                yield _DELETE_OFFSET, [(group_id, *partition) for partition in partitions]
            case DeleteGroup(group_id):
                yield from ((statement, [(group_id,)]) for statement in _FORGET.values())
            case SaveGroup(group):
                yield from _save_group(group)


def _offset_row(group_id: str, topic: str, partition: int, offset: CommittedOffset) -> tuple[object, ...]:
    return _row(
        "offsets",
        group_id,
        topic,
        partition,
        offset.committed_offset,
        offset.leader_epoch,
        offset.metadata,
        offset.commit_timestamp_ms,
        offset.expire_timestamp_ms,
        offset.topic_id.raw,
    )


def _save_group(group: StoredGroup) -> Iterator[Step]:
    key = group.group_id
    yield from ((_FORGET[table], [(key,)]) for table in _TABLES_OF_GROUPS)
    names = (group.protocol_type, group.protocol_name, group.leader_id)
    row = _row("groups", key, group.generation_id, *names, group.state_timestamp_ms)
    yield "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?, ?)", [row]
    members: list[tuple[object, ...]] = []
    protocols: list[tuple[object, ...]] = []
    for position, member in enumerate(group.members):
        times = (member.rebalance_timeout_ms, member.session_timeout_ms)
        ids = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
        members.append(_row("members", key, position, *ids, *times, member.assignment))
        for rank, protocol in enumerate(member.protocols):
            protocols.append(_row("protocols", key, position, rank, *protocol))
    yield "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", members
    yield "INSERT INTO protocols VALUES (?, ?, ?, ?, ?, ?)", protocols


def _row(table: str, *values: object) -> tuple[object, ...]:
    return (*values, _checksum(table, values))


def _checksum(table: str, values: Sequence[Any]) -> bytes:
    """XXH3-64 over a table's name and the values of a row, each with its type and its length."""
    parts = [table.encode()]
    for value in values:
        if isinstance(value, int):
            parts.append(_INTEGER(b"i", value))
        elif value is None:
            parts.append(b"n")
        elif isinstance(value, str):
            encoded = value.encode("utf-8", "surrogateescape")
            parts += (_SIZE(b"t", len(encoded)), encoded)
        elif isinstance(value, bytes):
            parts += (_SIZE(b"b", len(value)), value)
        else:  # no written row has one, but a damaged one may
            parts.append(_REAL(b"r", value))
    return xxhash.xxh3_64_digest(b"".join(parts))


def loaded(database: Database) -> StoredState:
    """Load all rows as values.

    Raises:
        CorruptDataError: rows do not match their checksums, or contradict each other; else the database's errors.
    """
    protocols = _protocols(database)
    members = _members(database, protocols)
    groups = {group.group_id: group for group in _groups(database, members)}
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
    for row in _rows(database, "offsets"):
        group_id, topic, partition, offset, epoch, metadata, commit_ms, expire_ms, topic_id = row
        committed = CommittedOffset(offset, epoch, metadata, commit_ms, expire_ms, Uuid(topic_id))
        offsets.setdefault(group_id, {})[topic, partition] = committed
    if protocols or members:
        left = next(iter(protocols or members))
        raise CorruptDataError(f"the groups' tables have members of {left!r}, and no such group")
    return StoredState(groups, offsets)


def _rows(database: Database, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, ascending by key, without their checksums. When all are read, those that do not match
    theirs are one error, which shows their values.
    """
    shown: list[str] = []
    damaged = 0
    for *values, checksum in database.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3"):  # noqa: S608
        if checksum == _checksum(table, values):
            yield tuple(values)
            continue
        damaged += 1
        if len(shown) < _SHOWN_ROWS:
            shown.append(", ".join(ascii(value)[:_SHOWN_CHARACTERS] for value in values))
    if damaged:
        columns = ", ".join(name for [name] in database.rows(f"SELECT name FROM pragma_table_info('{table}')"))  # noqa: S608
        raise CorruptDataError(
            f"{damaged} row(s) of table {table} do not match their checksum: ({columns.removesuffix(', checksum')}) is "
            + " and ".join(f"({values})" for values in shown)
            + (" and more" if damaged > len(shown) else "")
        )


def _protocols(database: Database) -> dict[tuple[str, int], Protocols]:
    rows = itertools.groupby(_rows(database, "protocols"), key=lambda row: (row[0], row[1]))
    return {key: tuple((name, metadata) for *_, name, metadata in of_member) for key, of_member in rows}


def _members(database: Database, protocols: dict[tuple[str, int], Protocols]) -> dict[str, tuple[StoredMember, ...]]:
    found: dict[str, list[StoredMember]] = {}
    for group_id, position, *ids, rebalance_ms, session_ms, assignment in _rows(database, "members"):
        member_id, instance_id, client_id, client_host = ids
        supported = protocols.pop((group_id, position), ())
        member = StoredMember(
            member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, supported, assignment
        )
        found.setdefault(group_id, []).append(member)
    return {group_id: tuple(members) for group_id, members in found.items()}


def _groups(database: Database, members: dict[str, tuple[StoredMember, ...]]) -> Iterator[StoredGroup]:
    for group_id, generation_id, protocol_type, protocol_name, leader_id, timestamp_ms in _rows(database, "groups"):
        its = members.pop(group_id, ())
        if its and (protocol_type is None or leader_id not in {member.member_id for member in its}):
            raise CorruptDataError(f"group {group_id!r} has members, but no leader among them")
        if any(protocol_name not in dict(member.protocols) for member in its):
            raise CorruptDataError(f"group {group_id!r} uses a protocol that not all its members support")
        yield StoredGroup(group_id, generation_id, protocol_type, protocol_name, leader_id, timestamp_ms, its)


_log: Final = logging.getLogger(__name__)
FILE_NAME: Final = "groups.sqlite"
#: A disk that is full fails every commit: failures are logged at this interval, and counted meanwhile.
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
        #: Of the writing thread: changes that were not stored since the last log line, and its time.
        self._unstored = 0
        self._told_at_seconds: float | None = None
        self._waiting: collections.deque[tuple[Sequence[Change], Done]] = collections.deque()
        self._is_writing = False
        self._fault: Exception | None = None

    def load(self) -> StoredState:
        """Load all that is stored, every row checked; blocks."""
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
                # A bad value of one write must not fail those that happened to wait beside it.
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
        except Exception as error:  # noqa: BLE001 - the waiters get it, whatever it is
            self._warn(len(changes), error)
            return error
        return None

    def _warn(self, unstored: int, error: Exception) -> None:
        """Log that changes were not stored, unless that was logged within the last minute."""
        self._unstored += unstored
        now = self._clock.monotonic_seconds()
        if self._told_at_seconds is None or now - self._told_at_seconds >= _WARNING_SECONDS:
            _log.warning("groups: %d changes were not stored: %s", self._unstored, error)
            self._unstored, self._told_at_seconds = 0, now


def open_group_store(machine: Machine, directory: str | None) -> GroupStore:
    """Open the store of a state directory, made if it is not there; None: a store that lasts as long as the process.

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
