"""The tables of the groups' database: changes to statements, and rows back to values.

Each stored value is written whole: a group is replaced with its members, an offset by the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

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
SCHEMA_VERSION: Final = 1

CREATE: Final = (
    """CREATE TABLE groups (
        group_id TEXT NOT NULL PRIMARY KEY, generation_id INTEGER NOT NULL, protocol_type TEXT, protocol_name TEXT,
        leader_id TEXT, state_timestamp_ms INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE members (
        group_id TEXT NOT NULL, position INTEGER NOT NULL, member_id TEXT NOT NULL, group_instance_id TEXT,
        client_id TEXT NOT NULL, client_host TEXT NOT NULL, rebalance_timeout_ms INTEGER NOT NULL,
        session_timeout_ms INTEGER NOT NULL, assignment BLOB NOT NULL,
        PRIMARY KEY (group_id, position)) WITHOUT ROWID""",
    """CREATE TABLE protocols (
        group_id TEXT NOT NULL, member_position INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL,
        metadata BLOB NOT NULL, PRIMARY KEY (group_id, member_position, position)) WITHOUT ROWID""",
    """CREATE TABLE offsets (
        group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, committed_offset INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL, commit_timestamp_ms INTEGER NOT NULL,
        expire_timestamp_ms INTEGER, topic_id BLOB NOT NULL,
        PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_TABLES_OF_GROUPS: Final = ("groups", "members", "protocols")
_FORGET: Final = {table: f"DELETE FROM {table} WHERE group_id = ?" for table in (*_TABLES_OF_GROUPS, "offsets")}  # noqa: S608
_SAVE_OFFSET: Final = "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE_OFFSET: Final = "DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?"


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
    return (
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
    row = (key, group.generation_id, group.protocol_type, group.protocol_name, group.leader_id)
    yield "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)", [(*row, group.state_timestamp_ms)]
    members: list[tuple[object, ...]] = []
    protocols: list[tuple[object, ...]] = []
    for position, member in enumerate(group.members):
        times = (member.rebalance_timeout_ms, member.session_timeout_ms)
        ids = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
        members.append((key, position, *ids, *times, member.assignment))
        protocols.extend((key, position, rank, *protocol) for rank, protocol in enumerate(member.protocols))
    yield "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", members
    yield "INSERT INTO protocols VALUES (?, ?, ?, ?, ?)", protocols


def loaded(database: Database) -> StoredState:
    """All rows as values.

    Raises:
        CorruptDataError: rows contradict each other, or hold what was never written. Else what the database raises.
    """
    try:
        protocols = _protocols(database)
        members = _members(database, protocols)
        groups = {group.group_id: group for group in _groups(database, members)}
        offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        for group_id, topic, partition, offset in _offsets(database):
            offsets.setdefault(group_id, {})[topic, partition] = offset
    except (TypeError, ValueError) as cause:
        if isinstance(cause, CorruptDataError):
            raise
        raise CorruptDataError(f"the groups' tables hold what was never written: {cause}") from cause
    if protocols or members:
        left = next(iter(protocols or members))
        raise CorruptDataError(f"the groups' tables have members of {left!r}, and no such group")
    return StoredState(groups, offsets)


def _checked(kind: type | tuple[type, ...], *values: object) -> None:
    """SQLite's columns take any type: a damaged page shows as one that we never write."""
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} where {kind} belongs")


_Rows = Iterator[tuple[Any, ...]]


def _protocols(database: Database) -> dict[tuple[str, int], Protocols]:
    rows: _Rows = database.rows(
        "SELECT group_id, member_position, name, metadata FROM protocols ORDER BY group_id, member_position, position"
    )
    found = {}
    for key, group in itertools.groupby(rows, key=lambda row: (row[0], row[1])):
        protocols = tuple((name, metadata) for *_, name, metadata in group)
        for name, metadata in protocols:
            _checked(str, name)
            _checked(bytes, metadata)
        found[key] = protocols
    return found


def _members(database: Database, protocols: dict[tuple[str, int], Protocols]) -> dict[str, tuple[StoredMember, ...]]:
    rows: _Rows = database.rows("SELECT * FROM members ORDER BY group_id, position")
    found: dict[str, tuple[StoredMember, ...]] = {}
    for group_id, of_group in itertools.groupby(rows, key=lambda row: row[0]):
        members = []
        for (
            _,
            position,
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_ms,
            session_ms,
            assignment,
        ) in of_group:
            _checked(str, member_id, client_id, client_host)
            _checked((str, type(None)), instance_id)
            _checked(int, position, rebalance_ms, session_ms)
            _checked(bytes, assignment)
            supported = protocols.pop((group_id, position), ())
            ids = (member_id, instance_id, client_id, client_host)
            members.append(StoredMember(*ids, rebalance_ms, session_ms, supported, assignment))
        found[group_id] = tuple(members)
    return found


def _groups(database: Database, members: dict[str, tuple[StoredMember, ...]]) -> Iterator[StoredGroup]:
    for group_id, generation_id, protocol_type, protocol_name, leader_id, timestamp_ms in database.rows(
        "SELECT * FROM groups"
    ):
        _checked(str, group_id)
        _checked(int, generation_id, timestamp_ms)
        _checked((str, type(None)), protocol_type, protocol_name, leader_id)
        its = members.pop(group_id, ())
        if its and (protocol_type is None or leader_id not in {member.member_id for member in its}):
            raise CorruptDataError(f"group {group_id!r} has members, but no leader among them")
        if any(protocol_name not in dict(member.protocols) for member in its):
            raise CorruptDataError(f"group {group_id!r} uses a protocol that not all its members support")
        yield StoredGroup(group_id, generation_id, protocol_type, protocol_name, leader_id, timestamp_ms, its)


def _offsets(database: Database) -> Iterator[tuple[str, str, int, CommittedOffset]]:
    for group_id, topic, partition, offset, epoch, metadata, committed_ms, expire_ms, topic_id in database.rows(
        "SELECT * FROM offsets"
    ):
        _checked(str, group_id, topic, metadata)
        _checked(int, partition, offset, epoch, committed_ms)
        _checked((int, type(None)), expire_ms)
        yield (
            group_id,
            topic,
            partition,
            CommittedOffset(offset, epoch, metadata, committed_ms, expire_ms, Uuid(topic_id)),
        )
