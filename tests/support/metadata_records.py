"""Values of ``__remote_log_metadata`` records."""

from __future__ import annotations

import dataclasses

from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import RemoteLogSegmentMetadataSnapshot

PARTITION = TopicIdPartition(Uuid(bytes.fromhex("0123456789abcdef1122334455667788")), "orders", 3)


SEGMENT = RemoteLogSegmentId(PARTITION, Uuid(bytes.fromhex("0a0b0c0d0e0f10112021222324252627")))


STARTED = RemoteLogSegmentMetadata(
    remote_log_segment_id=SEGMENT,
    start_offset=0,
    end_offset=100,
    max_timestamp_ms=1700000000000,
    broker_id=1,
    event_timestamp_ms=1700000000123,
    segment_size_in_bytes=1024,
    segment_leader_epochs={0: 0, 1: 20, 2: 80},
)


FINISHED = dataclasses.replace(
    STARTED, custom_metadata=b"\x01\x02\x03", state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED, txn_idx_empty=True
)


SNAPSHOT = RemoteLogSegmentMetadataSnapshot(
    segment_id=SEGMENT.id,
    start_offset=0,
    end_offset=100,
    broker_id=1,
    max_timestamp_ms=1700000000000,
    event_timestamp_ms=1700000000123,
    segment_leader_epochs=EpochMap({0: 0, 1: 20, 2: 80}),
    segment_size_in_bytes=1024,
    custom_metadata=b"\x01\x02\x03",
    state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    txn_idx_empty=True,
)
