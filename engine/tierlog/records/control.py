"""Control records: the keys and values of a control batch.

Key: ``int16 version, int16 type``; a version above 0 is read as 0. Values of types 0 and 1 (the markers that end a
transaction) are ``int16 version, int32 coordinatorEpoch``; those of types 2 to 6 are KRaft's, in the flexible encoding
(compact arrays and strings, tagged fields), and stand in the metadata log alone.

Source: Kafka ControlRecordType, EndTransactionMarker, ControlRecordUtils; LeaderChangeMessage.json,
SnapshotHeaderRecord.json, SnapshotFooterRecord.json, KRaftVersionRecord.json, VotersRecord.json.
"""

from __future__ import annotations

import enum
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from typing_extensions import Buffer

from tierlog.errors import CorruptRecordError

_VARINT_SIZE_MAX: Final = 5
_T = TypeVar("_T")


class ControlRecordType(enum.IntEnum):
    """Kafka's names; UNKNOWN stands for any other number, which clients pass over."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1

    @property
    def is_end_of_transaction(self) -> bool:
        return self in (ControlRecordType.ABORT, ControlRecordType.COMMIT)


@dataclass(frozen=True, slots=True)
class ControlKey:
    """A parsed key: ``number`` as it stands there, ``type`` as this module knows it."""

    version: int
    number: int

    @property
    def type(self) -> ControlRecordType:
        if self.number in _KNOWN:
            return ControlRecordType(self.number)
        return ControlRecordType.UNKNOWN


_KNOWN: Final = frozenset(kind.value for kind in ControlRecordType) - {-1}


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The value of a marker that ends a transaction; ``type`` is ABORT or COMMIT."""

    type: ControlRecordType
    coordinator_epoch: int
    version: int = 0

    def encode(self) -> bytes:
        """Encode the value of the record."""
        return struct.pack(">hi", self.version, self.coordinator_epoch)


@dataclass(frozen=True, slots=True)
class Voter:
    """``directory_id`` is None before version 1 of the message."""

    voter_id: int
    directory_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The value of a record by which a leader of a metadata log begins its epoch."""

    version: int
    leader_id: int
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    version: int
    last_contained_log_timestamp: int


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    version: int


@dataclass(frozen=True, slots=True)
class KraftVersion:
    version: int
    kraft_version: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class KraftVoter:
    voter_id: int
    directory_id: uuid.UUID
    endpoints: tuple[Endpoint, ...]
    kraft_version_min: int
    kraft_version_max: int


@dataclass(frozen=True, slots=True)
class KraftVoters:
    version: int
    voters: tuple[KraftVoter, ...]


ControlValue = EndTransactionMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KraftVersion | KraftVoters


def encode_control_key(kind: ControlRecordType) -> bytes:
    """Encode the key of a control record."""
    if kind is ControlRecordType.UNKNOWN:
        raise ValueError("a control record of an unknown type is not written")
    return struct.pack(">hh", 0, kind)


def parse_control_key(key: Buffer | None) -> ControlKey:
    """Read the key of a control record.

    Raises:
        CorruptRecordError: BAD_CONTROL: null, shorter than 4 bytes, or of a negative version.
    """
    data = b"" if key is None else bytes(key)
    if len(data) < 4:
        raise _bad(f"the key has {len(data)} bytes, 4 are needed")
    version, number = struct.unpack_from(">hh", data)
    if version < 0:
        raise _bad(f"the key has version {version}")
    return ControlKey(version, number)


def parse_control_value(key: ControlKey, value: Buffer | None) -> ControlValue | None:
    """Read the value of a control record; None for a type that is unknown.

    Fields that a newer version put behind the known ones are passed over, as Kafka's own parsers do.

    Raises:
        CorruptRecordError: BAD_CONTROL: null, cut short, of a negative version, or with counts that cannot be.
    """
    parse = _PARSERS.get(key.type)
    if parse is None:
        return None
    if value is None:
        raise _bad("the value is null")
    reader = _Reader(bytes(value))
    version = reader.number("h")
    if version < 0:
        raise _bad(f"the value has version {version}")
    return parse(reader, version, key.type)


def _bad(text: str) -> CorruptRecordError:
    return CorruptRecordError(f"control record: {text}", fault="BAD_CONTROL")


class _Reader:
    """A read position over one value; each read raises where the bytes do not hold it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size_bytes: int) -> bytes:
        left = len(self._data) - self._at
        if size_bytes > left:
            raise _bad(f"a field of {size_bytes} bytes, {left} are left")
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]
        return value

    def unsigned_varint(self) -> int:
        value = 0
        for place in range(_VARINT_SIZE_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise _bad("a varint of more than 5 bytes")

    def string(self) -> str:
        length = self.unsigned_varint() - 1
        if length < 0:
            raise _bad("a string is null")
        return self.take(length).decode("utf-8", errors="replace")

    def array(self, element: Callable[[], _T]) -> tuple[_T, ...]:
        count = self.unsigned_varint() - 1
        left = len(self._data) - self._at
        if not 0 <= count <= left:  # an element has a byte at least
            raise _bad(f"{count} elements in {left} bytes")
        return tuple(element() for _ in range(count))

    def skip_tags(self) -> None:
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self.take(self.unsigned_varint())

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.take(16))


def _end_transaction(reader: _Reader, version: int, kind: ControlRecordType) -> EndTransactionMarker:
    return EndTransactionMarker(kind, reader.number("i"), version)


def _leader_change(reader: _Reader, version: int, _: ControlRecordType) -> LeaderChange:
    def voter() -> Voter:
        voter_id = reader.number("i")
        directory_id = reader.uuid() if version >= 1 else None
        reader.skip_tags()
        return Voter(voter_id, directory_id)

    leader_id = reader.number("i")
    voters, granting = reader.array(voter), reader.array(voter)
    reader.skip_tags()
    return LeaderChange(version, leader_id, voters, granting)


def _snapshot_header(reader: _Reader, version: int, _: ControlRecordType) -> SnapshotHeader:
    timestamp = reader.number("q")
    reader.skip_tags()
    return SnapshotHeader(version, timestamp)


def _snapshot_footer(reader: _Reader, version: int, _: ControlRecordType) -> SnapshotFooter:
    reader.skip_tags()
    return SnapshotFooter(version)


def _kraft_version(reader: _Reader, version: int, _: ControlRecordType) -> KraftVersion:
    kraft_version = reader.number("h")
    reader.skip_tags()
    return KraftVersion(version, kraft_version)


def _kraft_voters(reader: _Reader, version: int, _: ControlRecordType) -> KraftVoters:
    def endpoint() -> Endpoint:
        found = Endpoint(reader.string(), reader.string(), reader.number("H"))
        reader.skip_tags()
        return found

    def voter() -> KraftVoter:
        voter_id, directory_id, endpoints = reader.number("i"), reader.uuid(), reader.array(endpoint)
        low, high = reader.number("h"), reader.number("h")
        reader.skip_tags()  # of the pair of versions, which is a structure of its own
        reader.skip_tags()
        return KraftVoter(voter_id, directory_id, endpoints, low, high)

    voters = reader.array(voter)
    reader.skip_tags()
    return KraftVoters(version, voters)


_PARSERS: Final[dict[ControlRecordType, Callable[[_Reader, int, ControlRecordType], ControlValue]]] = {
    ControlRecordType.ABORT: _end_transaction,
    ControlRecordType.COMMIT: _end_transaction,
    ControlRecordType.LEADER_CHANGE: _leader_change,
    ControlRecordType.SNAPSHOT_HEADER: _snapshot_header,
    ControlRecordType.SNAPSHOT_FOOTER: _snapshot_footer,
    ControlRecordType.KRAFT_VERSION: _kraft_version,
    ControlRecordType.KRAFT_VOTERS: _kraft_voters,
}
