"""The frames of docs/sidecar-protocol.md: values from requests, bytes of responses."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import TierlogError
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.serving.response_writer import Reply

MAGIC: Final = 0x544C5343
VERSION: Final = 1
#: The most bytes of a piece of a segment or of an index.
PIECE_BYTES_MAX: Final = 4 << 20
_TEXT_BYTES_MAX: Final = 4096
_PREFIX: Final = "rsm.config."
#: Keys that Kafka adds.
_BROKERS: Final = ("broker.id", "node.id")
#: Keys of the client alone.
_CLIENTS: Final = "tierlog."
_LENGTH: Final = struct.Struct(">i")
_STATUS: Final = struct.Struct(">ib")
#: What is behind the segment of a fetch: positions and most bytes; an index's type, position and most bytes.
_RANGE: Final = struct.Struct(">3i")
_INDEX: Final = struct.Struct(">b2i")
#: Of a segment that is known by its bytes.
_KNOWN_BYTES_MAX: Final = 1024


class Kind(IntEnum):
    """Requests, by the number that each begins with."""

    HELLO = 0
    COPY = 1
    FETCH_RANGE = 2
    FETCH_INDEX = 3
    DELETE = 4
    HEALTH = 5
    METRICS = 6


class Status(IntEnum):
    """How a request ended."""

    OK = 0
    NOT_FOUND = 1
    RETRIABLE = 2
    FAILED = 3
    REFUSED = 4
    CONFIGURATION = 5
    STOPPING = 6


class MalformedFrameError(TierlogError):
    """A request is none of this protocol: the connection ends."""


class RefusedRequestError(TierlogError):
    """A request that is understood is not done: its answer has status REFUSED."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first request of a connection.

    Attributes:
        digest: Of the client's configuration; None: it takes any.
    """

    versions: tuple[int, int]
    broker_id: int
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class Copy:
    """A segment to be copied, and the paths of its files."""

    metadata: RemoteLogSegmentMetadata
    log_segment: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str
    leader_epoch_index: bytes


@dataclass(frozen=True, slots=True)
class FetchRange:
    """A piece of a segment.

    Attributes:
        end_position: Inclusive; None: the end of the segment.
    """

    metadata: RemoteLogSegmentMetadata
    start_position: int
    end_position: int | None
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchIndex:
    """A piece of a part beside the log."""

    metadata: RemoteLogSegmentMetadata
    index_type: IndexType
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A segment whose objects are removed."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Health:
    """The question whether the server is ready."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The question for the figures of MBeans."""


Request = Hello | Copy | FetchRange | FetchIndex | Delete | Health | Metrics

_INDEX_TYPES: Final = (
    IndexType.OFFSET,
    IndexType.TIMESTAMP,
    IndexType.PRODUCER_SNAPSHOT,
    IndexType.TRANSACTION,
    IndexType.LEADER_EPOCH,
)


def parse_request(frame: memoryview) -> Request:
    """Parse a request.

    Raises:
        MalformedFrameError: it is none. RefusedRequestError: a field is out of its range.
    """
    fields = _Fields(frame)
    kind = fields.int8()
    request: Request
    match kind:
        case Kind.HELLO:
            request = _hello(fields)
        case Kind.COPY:
            request = _copy(fields)
        case Kind.FETCH_RANGE:
            segment, tail = fields.segment_before(_RANGE.size)
            start, end, most = _RANGE.unpack(tail)
            request = FetchRange(segment, start, _end(end), most)
        case Kind.FETCH_INDEX:
            segment, tail = fields.segment_before(_INDEX.size)
            number, position, most = _INDEX.unpack(tail)
            request = FetchIndex(segment, _index_type(number), position, most)
        case Kind.DELETE:
            request = Delete(fields.segment())
        case Kind.HEALTH:
            request = Health()
        case Kind.METRICS:
            request = Metrics()
        case _:
            raise MalformedFrameError(f"kind {kind} is none")
    fields.end()
    return request


def _hello(fields: _Fields) -> Hello:
    if fields.int32() != MAGIC:
        raise MalformedFrameError("the client speaks another protocol")
    return Hello((fields.int16(), fields.int16()), fields.int32(), fields.bytes())


def _copy(fields: _Fields) -> Copy:
    metadata = fields.segment()
    log, offsets, times = fields.string(), fields.string(), fields.string()
    has_transactions, transactions = fields.boolean(), fields.string()
    return Copy(
        metadata,
        log,
        offsets,
        times,
        transactions if has_transactions else None,
        fields.string(),
        fields.bytes() or b"",
    )


def _whole_segment(data: memoryview | bytes) -> RemoteLogSegmentMetadata:
    """The segment that some bytes are."""
    fields = _Fields(memoryview(data))
    segment = fields.segment()
    fields.end()
    return segment


#: A stream asks for piece after piece of one segment, in the same bytes: parsing them is most of what a request costs.
_known_segment: Final = functools.lru_cache(maxsize=256)(_whole_segment)


def _index_type(number: int) -> IndexType:
    if not 0 <= number < len(_INDEX_TYPES):
        raise RefusedRequestError(f"index type {number} is none")
    return _INDEX_TYPES[number]


def _end(position: int) -> int | None:
    return None if position == -1 else position


class _Fields:
    """The fields of a frame, in order. Raises MalformedFrameError (all methods): there are not so many bytes."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._at = 0

    def int8(self) -> int:
        return self._number(">b", 1)

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def boolean(self) -> bool:
        value = self.int8()
        if value not in (0, 1):
            raise MalformedFrameError(f"{value} is no boolean")
        return bool(value)

    def string(self) -> str:
        try:
            return str(self._take(self.int16()), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrameError(str(error)) from None

    def bytes(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else bytes(self._take(size))

    def uuid(self) -> Uuid:
        return Uuid(bytes(self._take(16)))

    def segment_before(self, tail_bytes: int) -> tuple[RemoteLogSegmentMetadata, memoryview]:
        """The segment that all of the rest but its last bytes is, and these."""
        data = self._take(len(self._frame) - self._at - tail_bytes)
        is_usual = len(data) <= _KNOWN_BYTES_MAX
        return (_known_segment(bytes(data)) if is_usual else _whole_segment(data)), self._take(tail_bytes)

    def segment(self) -> RemoteLogSegmentMetadata:
        topic_id, topic, partition = self.uuid(), self.string(), self.int32()
        segment_id, start, end, newest = self.uuid(), self.int64(), self.int64(), self.int64()
        broker, event, size, state, empty = self.int32(), self.int64(), self.int32(), self.int8(), self.int8()
        count = self.int32()
        if count < 0:
            raise MalformedFrameError(f"{count} leader epochs")
        epochs = [(self.int32(), self.int64()) for _ in range(count)]
        custom = self.bytes()
        try:
            return RemoteLogSegmentMetadata(
                RemoteLogSegmentId(TopicIdPartition(topic_id, topic, partition), segment_id),
                start_offset=start,
                end_offset=end,
                max_timestamp_ms=newest,
                broker_id=broker,
                event_timestamp_ms=event,
                segment_size_in_bytes=size,
                segment_leader_epochs=dict(epochs),
                custom_metadata=custom,
                state=RemoteLogSegmentState(state),
                txn_idx_empty=empty == 1,
            )
        except (ValueError, TypeError) as error:
            raise RefusedRequestError(str(error)) from None

    def end(self) -> None:
        """Raise MalformedFrameError if there is anything left."""
        left = len(self._frame) - self._at
        if left:
            raise MalformedFrameError(f"{left} bytes behind the request")

    def _number(self, form: str, size: int) -> int:
        value: int = struct.unpack(form, self._take(size))[0]
        return value

    def _take(self, size: int) -> memoryview:
        start = self._at
        if not 0 <= size <= len(self._frame) - start:
            raise MalformedFrameError(f"{size} bytes are declared, {len(self._frame) - start} are left")
        self._at = start + size
        return self._frame[start : self._at]


# ---- responses


def encode_string(text: str) -> bytes:
    """Encode a string, cut where it is too long."""
    data = text.encode("utf-8", "replace")[:_TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
    return struct.pack(">h", len(data)) + data


def encode_bytes(data: bytes | None) -> bytes:
    """Encode bytes; None is null."""
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def done(body: bytes = b"") -> Reply:
    """Make the response to a request that was done."""
    data = _STATUS.pack(1 + len(body), Status.OK) + body
    return Reply((data,), len(data))


def piece(views: Sequence[Buffer], size_bytes: int, *, is_last: bool) -> Reply:
    """Make the response with a piece: views of so many bytes together."""
    head = _STATUS.pack(2 + size_bytes, Status.OK) + bytes((is_last,))
    return Reply((head, *views), len(head) + size_bytes)


def failed(status: Status, text: str) -> Reply:
    """Make the response to a request that was not done, with the reason."""
    body = encode_string(text)
    data = _STATUS.pack(1 + len(body), status) + body
    return Reply((data,), len(data))


def config_digest(keys: Mapping[str, object]) -> bytes:
    """Return the digest of a storage manager's keys, with or without the broker's prefix."""
    known = {name.removeprefix(_PREFIX): value for name, value in keys.items() if value is not None}
    digest = hashlib.sha256()
    for name in sorted(known, key=lambda each: each.encode("utf-8", "surrogateescape")):
        if name not in _BROKERS and not name.startswith(_CLIENTS):
            text = f"{name}\0{str(known[name]).strip()}\0"
            digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.digest()
