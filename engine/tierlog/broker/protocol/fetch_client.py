"""Fetch as a client speaks it: requests outside of any session, and answers whose records stay views of their bytes.

The counterpart of ``fetch_response``, which has the wire form of an answer. A request is
``[replica_id:i32](..14) max_wait_ms:i32 min_bytes:i32 max_bytes:i32 isolation:i8 [session_id:i32 session_epoch:i32](7+)
topics [forgotten](7+) [rack](11+)``; a partition of it ``index:i32 [leader_epoch:i32](9+) fetch_offset:i64
[fetched_epoch:i32](12+) [log_start_offset:i64](5+) max_bytes:i32``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tierlog.broker.protocol.decoding import Cursor, MalformedRequestError
from tierlog.broker.protocol.fetch_response import (
    FLEXIBLE,
    LOG_START,
    NODE_ENDPOINTS,
    PREFERRED_REPLICA,
    SESSIONS,
    TOPIC_IDS,
    FetchablePartition,
    FetchableTopic,
    NodeEndpoint,
    compact_text,
    unsigned_varint,
)
from tierlog.errors import TierlogError

_LEADER_EPOCH: Final = 9
#: From this version on the asking replica is a tagged field, which a consumer leaves out.
_REPLICA_STATE: Final = 15
#: Of a request: a consumer's replica id; that it wants no session.
_CONSUMER: Final = -1
_NO_SESSION: Final = (0, -1)
#: Of a consumer's log start offset.
_UNKNOWN: Final = -1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">iiib")
_PARTITION: Final = struct.Struct(">ihqq")
_TWO_INT32: Final = struct.Struct(">ii")
_EPOCH_END: Final = struct.Struct(">iq")
_TWO_INT64: Final = struct.Struct(">qq")
_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1
_ENDPOINTS_TAG: Final = 0


class MalformedResponseError(TierlogError, ValueError):
    """The bytes are no answer: nothing behind them on their connection can be trusted."""


class WantedPartition(NamedTuple):
    """One partition of a request. The names are Kafka's; -1 for an epoch that is not known."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_bytes: int


class WantedTopic(NamedTuple):
    """Partitions of one topic in a request.

    Args:
        name: Sent below version 13.
        topic_id: The 16 bytes of its id, sent from version 13 on.
        partitions: In order.
    """

    name: str
    topic_id: bytes
    partitions: Sequence[WantedPartition]


def encode_fetch_request(
    api_version: int,
    topics: Sequence[WantedTopic],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    is_read_committed: bool,
    rack_id: str = "",
) -> bytes:
    """Encode the body of a consumer's Fetch request outside of any session, 4 <= version <= 18.

    Raises:
        struct.error: a number does not fit its field.
    """
    run = bytearray()
    if api_version < _REPLICA_STATE:
        run += _INT32.pack(_CONSUMER)
    run += _HEAD.pack(max_wait_ms, min_bytes, max_bytes, is_read_committed)
    if api_version >= SESSIONS:
        run += _TWO_INT32.pack(*_NO_SESSION)
    is_flexible = api_version >= FLEXIBLE
    run += _count(len(topics), is_flexible=is_flexible)
    pack, unknown = _wanted_partition(api_version), (_UNKNOWN,)
    for name, topic_id, partitions in topics:
        run += topic_id if api_version >= TOPIC_IDS else _text(name, is_flexible=is_flexible)
        run += _count(len(partitions), is_flexible=is_flexible)
        for partition, leader_epoch, fetch_offset, fetched_epoch, partition_max_bytes in partitions:
            fields: tuple[int, ...] = (partition,)
            if api_version >= _LEADER_EPOCH:
                fields += (leader_epoch,)
            fields += (fetch_offset,)
            if is_flexible:
                fields += (fetched_epoch,)
            if api_version >= LOG_START:
                fields += unknown
            run += pack(*fields, partition_max_bytes)
        if is_flexible:
            run.append(0)
    if api_version >= SESSIONS:
        run += _count(0, is_flexible=is_flexible)
    if api_version >= PREFERRED_REPLICA:
        run += _text(rack_id, is_flexible=is_flexible)
    if is_flexible:
        run.append(0)
    return bytes(run)


def _wanted_partition(api_version: int) -> Callable[..., bytes]:
    layout = ">i" + "i" * (api_version >= _LEADER_EPOCH) + "q" + "i" * (api_version >= FLEXIBLE)
    return struct.Struct(layout + "q" * (api_version >= LOG_START) + "i" + "x" * (api_version >= FLEXIBLE)).pack


def _count(count: int, *, is_flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if is_flexible else _INT32.pack(count)


def _text(text: str, *, is_flexible: bool) -> bytes:
    if is_flexible:
        return compact_text(text)
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


class FetchAnswer(NamedTuple):
    """A Fetch response.

    Args:
        throttle_time_ms: How long the client is to pause.
        error_code: Of the whole answer; 0 for none.
        session_id: 0 for no session.
        topics: In the order of the answer.
        node_endpoints: Of the leaders that partitions name.
    """

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: Sequence[FetchableTopic]
    node_endpoints: Sequence[NodeEndpoint]


def parse_fetch_response(api_version: int, data: memoryview) -> FetchAnswer:
    """Parse the body of a Fetch response, 4 <= version <= 18. Tagged fields that are not ``FetchablePartition``'s are
    dropped.

    Args:
        api_version: Of the request.
        data: The body. The records of the result are views of it.

    Raises:
        MalformedResponseError: the bytes are no such response.

    Memory: at most 250,000 elements of arrays are made.
    """
    try:
        return _Parser(api_version, data).parse()
    except struct.error:
        raise MalformedResponseError(f"Fetch {api_version}: the answer ends in the midst of a field") from None
    except (MalformedRequestError, UnicodeDecodeError) as error:
        raise MalformedResponseError(f"Fetch {api_version}: {error}") from None


class _Parser:
    """Reads one answer."""

    def __init__(self, api_version: int, data: memoryview) -> None:
        self._version = api_version
        self._is_flexible = api_version >= FLEXIBLE
        self._cursor = Cursor(data)

    def parse(self) -> FetchAnswer:
        version, cursor = self._version, self._cursor
        throttle_time_ms = self._int32()
        error_code, session_id = 0, 0
        if version >= SESSIONS:
            (error_code,) = _INT16.unpack(cursor.take(2))
            session_id = self._int32()
        topics = [self._topic() for _ in range(self._count(2))]
        endpoints: list[NodeEndpoint] = []
        if self._is_flexible:
            for tag, end in self._tagged_fields():
                if tag == _ENDPOINTS_TAG and version >= NODE_ENDPOINTS:
                    endpoints = [self._endpoint() for _ in range(self._count(10))]
                    self._check_end(end)
                cursor.position = end
        if cursor.position != cursor.end:
            raise MalformedRequestError(f"{cursor.end - cursor.position} bytes follow the answer")
        return FetchAnswer(throttle_time_ms, error_code, session_id, topics, endpoints)

    def _topic(self) -> FetchableTopic:
        name, topic_id = "", bytes(16)
        if self._version >= TOPIC_IDS:
            topic_id = bytes(self._cursor.take(16))
        else:
            name = self._text() or ""
        partitions = [self._partition() for _ in range(self._count(26))]
        if self._is_flexible:
            self._cursor.skip_tagged_fields()
        return FetchableTopic(name, topic_id, partitions)

    def _partition(self) -> FetchablePartition:
        version, cursor = self._version, self._cursor
        index, error_code, high_watermark, last_stable_offset = _PARTITION.unpack(cursor.take(_PARTITION.size))
        log_start_offset = _UNKNOWN
        if version >= LOG_START:
            (log_start_offset,) = _INT64.unpack(cursor.take(8))
        aborted_count = cursor.count(_TWO_INT64.size, flexible=self._is_flexible)
        aborted = None if aborted_count < 0 else [self._aborted() for _ in range(aborted_count)]
        replica = self._int32() if version >= PREFERRED_REPLICA else _UNKNOWN
        records = self._records()
        diverging_epoch = current_leader = None
        if self._is_flexible:
            for tag, end in self._tagged_fields():
                if tag == _DIVERGING_EPOCH_TAG:
                    diverging_epoch = _EPOCH_END.unpack(cursor.take(_EPOCH_END.size))
                elif tag == _CURRENT_LEADER_TAG:
                    current_leader = _TWO_INT32.unpack(cursor.take(_TWO_INT32.size))
                if tag in (_DIVERGING_EPOCH_TAG, _CURRENT_LEADER_TAG):
                    cursor.skip_tagged_fields()
                    self._check_end(end)
                cursor.position = end
        return FetchablePartition(
            index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            (records,) if records else (),
            len(records),
            aborted,
            diverging_epoch,
            current_leader,
            replica,
        )

    def _aborted(self) -> tuple[int, int]:
        producer_id, first_offset = _TWO_INT64.unpack(self._cursor.take(_TWO_INT64.size))
        if self._is_flexible:
            self._cursor.skip_tagged_fields()
        return producer_id, first_offset

    def _endpoint(self) -> NodeEndpoint:
        node_id = self._int32()
        host = self._text()
        if host is None:
            raise MalformedRequestError(f"node {node_id} has no host")
        endpoint = NodeEndpoint(node_id, host, self._int32(), self._text())
        self._cursor.skip_tagged_fields()
        return endpoint

    def _tagged_fields(self) -> Iterator[tuple[int, int]]:
        """Yield (tag, position behind its value), with the cursor in front of the value."""
        cursor = self._cursor
        for _ in range(cursor.tagged_field_count()):
            tag, size_bytes = cursor.unsigned_varint(), cursor.unsigned_varint()
            start = cursor.position
            cursor.take(size_bytes)
            cursor.position = start
            yield tag, start + size_bytes

    def _check_end(self, end: int) -> None:
        if self._cursor.position != end:
            raise MalformedRequestError(f"a tagged field ends at {self._cursor.position}, not at {end}")

    def _records(self) -> memoryview:
        size_bytes = self._cursor.unsigned_varint() - 1 if self._is_flexible else self._int32()
        if size_bytes < -1:
            raise MalformedRequestError(f"records of {size_bytes} bytes at {self._cursor.position}")
        return self._cursor.take(max(size_bytes, 0))  # null is as good as none

    def _text(self) -> str | None:
        cursor = self._cursor
        if self._is_flexible:
            size_bytes = cursor.unsigned_varint() - 1
        else:
            (size_bytes,) = _INT16.unpack(cursor.take(2))
        return None if size_bytes < 0 else str(cursor.take(size_bytes), "utf-8")

    def _count(self, size_bytes_min: int) -> int:
        return max(self._cursor.count(size_bytes_min, flexible=self._is_flexible), 0)

    def _int32(self) -> int:
        value: int
        (value,) = _INT32.unpack(self._cursor.take(4))
        return value
