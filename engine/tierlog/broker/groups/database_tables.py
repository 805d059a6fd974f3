"""The tables of the groups' database: changes to statements, and rows back to values.

Each stored value is written whole: a group is replaced with its members, an offset by the next one. The last column of
each row is a checksum over the table's name and all other columns: SQLite's own check sees the pages' structure alone.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import xxhash

from tierlog.broker.groups.stored_state import (
    Change,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    Protocols,
    SaveGroup,
    SaveOffsets,
    StoredGroup,
    StoredMember,
    StoredState,
)
from tierlog.errors import CorruptDataError
from tierlog.remote.api import Uuid
from tierlog.runtime.sqlite.database import Database, Step

#: "TLgr", so that another program's database is never taken for ours.
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
#: What an error tells of damaged rows.
_SHOWN_ROWS: Final = 3
_SHOWN_CHARACTERS: Final = 100


def steps_of(changes: Sequence[Change]) -> Iterator[Step]:
    """The statements of changes, in their order."""
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
        else:  # no row that is written has one, but one that is damaged
            parts.append(_REAL(b"r", value))
    return xxhash.xxh3_64_digest(b"".join(parts))


def loaded(database: Database) -> StoredState:
    """All rows as values.

    Raises:
        CorruptDataError: rows do not match their checksums, or contradict each other; else what the database raises.
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
    """The rows of a table, ascending by key, without their checksums. When all are read, those that do not match theirs
    are one error, which tells what they hold now.
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
