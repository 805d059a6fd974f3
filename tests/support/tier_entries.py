"""Segments of a tier as the metadata manager lists them, without any objects: for rules over metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tierlog.log.formats.identity_files import Uuid
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

PARTITION = TopicIdPartition(Uuid(b"\1" * 16), "orders", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def an_entry(
    start_offset: int,
    end_offset: int,
    epochs: Mapping[int, int],
    *,
    size_bytes: int = 1,
    max_timestamp_ms: int = 0,
    state: RemoteLogSegmentState = FINISHED,
    number: int = 0,
) -> RemoteLogSegmentMetadata:
    """A segment; ``number`` tells its id apart from others' of the same offsets."""
    name = start_offset.to_bytes(6, "big") + end_offset.to_bytes(6, "big") + number.to_bytes(4, "big")
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, Uuid(b"\2" + name[1:])),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=0,
        event_timestamp_ms=0,
        segment_size_in_bytes=size_bytes,
        segment_leader_epochs=dict(epochs),
        state=state,
    )


def listing(
    segments: Iterable[RemoteLogSegmentMetadata],
) -> Callable[[int], list[RemoteLogSegmentMetadata]]:
    """``list_remote_log_segments`` by epoch: ascending by start offset."""
    known = sorted(segments, key=lambda each: each.start_offset)
    return lambda epoch: [each for each in known if epoch in each.segment_leader_epochs]
