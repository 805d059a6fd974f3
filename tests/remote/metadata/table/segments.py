"""Segments and their events, as short as tests can write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import MetadataValues
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, encode_record

ORDERS = TopicIdPartition(Uuid(bytes.fromhex("0123456789abcdef1122334455667788")), "orders", 3)
STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState


def segment_id(number: int, partition: TopicIdPartition = ORDERS) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(partition, Uuid(number.to_bytes(16, "big")))


def segment(
    number: int,
    start: int,
    end: int,
    epochs: Mapping[int, int] | None = None,
    *,
    partition: TopicIdPartition = ORDERS,
    state: RemoteLogSegmentState = STARTED,
    custom: bytes | None = None,
    txn_idx_empty: bool = False,
    size: int = 1024,
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=segment_id(number, partition),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=1_700_000_000_000 + number,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_123,
        segment_size_in_bytes=size,
        segment_leader_epochs={0: start} if epochs is None else epochs,
        custom_metadata=custom,
        state=state,
        txn_idx_empty=txn_idx_empty,
    )


def update(
    number: int, state: RemoteLogSegmentState, *, partition: TopicIdPartition = ORDERS, custom: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id(number, partition),
        event_timestamp_ms=1_700_000_000_456,
        custom_metadata=custom,
        state=state,
        broker_id=2,
    )


def run_of(
    records: Sequence[RemoteLogMetadataRecord | bytes | None],
    *,
    first: int = 0,
    place: int = 0,
    keys: Sequence[bytes | None] | None = None,
) -> MetadataValues:
    """Records of one metadata partition, offset by offset; bytes are a value as they are, None a tombstone."""
    values = [each if each is None or isinstance(each, bytes) else encode_record(each) for each in records]
    offsets = range(first, first + len(values))
    return MetadataValues(
        partition=place,
        next_offset=first + len(values),
        offsets=offsets,
        timestamps_ms=[1_700_000_000_000 + offset for offset in offsets],
        keys=keys or [None] * len(values),
        values=values,
    )
