"""Segments and the calls of their lives, by which tests fill a metadata manager."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)

STATE = RemoteLogSegmentState
REMOVAL = RemotePartitionDeleteState
WAIT_SECONDS = 30.0
TIME = 1_700_000_000_000
PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\7"), "orders", 0)
OTHER = TopicIdPartition(Uuid(bytes(15) + b"\7"), "orders", 1)

STARTED, FINISHED, DELETING, DELETED = STATE
VALID = {
    (None, STARTED),
    (STARTED, STARTED),
    (STARTED, FINISHED),
    (STARTED, DELETING),
    (FINISHED, FINISHED),
    (FINISHED, DELETING),
    (DELETING, DELETING),
    (DELETING, DELETED),
}


def segment(
    number: int,
    start: int,
    end: int,
    epochs: dict[int, int] | None = None,
    *,
    partition: TopicIdPartition = PARTITION,
    size: int = 1024,
    txn_idx_empty: bool = False,
) -> RemoteLogSegmentMetadata:
    """The segment u<number>, before its copy."""
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(partition, Uuid(b"\1" + number.to_bytes(15, "big"))),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=TIME + end,
        broker_id=1,
        event_timestamp_ms=TIME,
        segment_size_in_bytes=size,
        segment_leader_epochs=epochs or {0: start},
        txn_idx_empty=txn_idx_empty,
    )


def to(
    of: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, custom: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        of.remote_log_segment_id, event_timestamp_ms=1_700_000_000_001, custom_metadata=custom, state=state, broker_id=2
    )


def removal(
    state: RemotePartitionDeleteState, partition: TopicIdPartition = PARTITION
) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(partition, state, event_timestamp_ms=1_700_000_000_002, broker_id=1)


def lead(manager: RemoteLogMetadataManager, *partitions: TopicIdPartition, follow: bool = False) -> None:
    """Tell a manager, and wait until it can be asked."""
    none: frozenset[TopicIdPartition] = frozenset()
    told = frozenset(partitions)
    manager.on_partition_leadership_changes(*((none, told) if follow else (told, none)))
    until = time.monotonic() + WAIT_SECONDS
    while not all(manager.is_ready(partition) for partition in partitions):
        assert time.monotonic() < until, "never ready"
        time.sleep(0.002)


def add(manager: RemoteLogMetadataManager, *segments: RemoteLogSegmentMetadata) -> None:
    for each in segments:
        manager.add_remote_log_segment_metadata(each).result(WAIT_SECONDS)


def update(
    manager: RemoteLogMetadataManager,
    of: RemoteLogSegmentMetadata,
    state: RemoteLogSegmentState,
    custom: bytes | None = None,
) -> None:
    manager.update_remote_log_segment_metadata(to(of, state, custom)).result(WAIT_SECONDS)


def put(manager: RemoteLogMetadataManager, state: RemotePartitionDeleteState) -> None:
    manager.put_remote_partition_delete_metadata(removal(state)).result(WAIT_SECONDS)


def finish(manager: RemoteLogMetadataManager, *segments: RemoteLogSegmentMetadata) -> None:
    """Copy them, one after the other."""
    for each in segments:
        add(manager, each)
        update(manager, each, FINISHED)


def bring(manager: RemoteLogMetadataManager, of: RemoteLogSegmentMetadata, state: RemoteLogSegmentState | None) -> None:
    """A segment into a state, by the usual way."""
    ways: dict[RemoteLogSegmentState | None, tuple[RemoteLogSegmentState, ...]] = {
        None: (),
        STARTED: (),
        FINISHED: (FINISHED,),
        DELETING: (FINISHED, DELETING),
        DELETED: (FINISHED, DELETING, DELETED),
    }
    if state is not None:
        add(manager, of)
    for each in ways[state]:
        update(manager, of, each)


def ids(segments: Iterable[RemoteLogSegmentMetadata]) -> list[int]:
    return [int.from_bytes(each.remote_log_segment_id.id.raw[1:], "big") for each in segments]


def found(manager: RemoteLogMetadataManager, epoch: int, offset: int) -> int | None:
    answer = manager.remote_log_segment_metadata(PARTITION, epoch, offset)
    return None if answer is None else ids([answer])[0]


def listed(manager: RemoteLogMetadataManager, epoch: int | None = None) -> list[int]:
    answer = ids(manager.list_remote_log_segments(PARTITION, epoch))
    return sorted(answer) if epoch is None else answer
