"""The records that the copy of a segment left in the metadata topic, made anew."""

from __future__ import annotations

from dataclasses import replace

from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState


def records_of(
    finished: RemoteLogSegmentMetadata, *, started_ms: int
) -> tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate]:
    """STARTED, without custom metadata as nothing is copied yet, and FINISHED, as Kafka's copy task writes them."""
    started = replace(
        finished,
        event_timestamp_ms=started_ms,
        custom_metadata=None,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    )
    update = RemoteLogSegmentMetadataUpdate(
        finished.remote_log_segment_id,
        event_timestamp_ms=finished.event_timestamp_ms,
        custom_metadata=finished.custom_metadata,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=finished.broker_id,
    )
    return started, update
