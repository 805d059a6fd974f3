"""What Kafka's formatter prints of a metadata record."""

from __future__ import annotations

import dataclasses

from tests.support.metadata_records import FINISHED, PARTITION, SEGMENT, SNAPSHOT, STARTED
from tierlog.remote.api import (
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from tierlog.remote.metadata.record_text import record_text

SEGMENT_TEXT = "RemoteLogSegmentId{topicIdPartition=ASNFZ4mrze8RIjNEVWZ3iA:orders-3, id=CgsMDQ4PEBEgISIjJCUmJw}"


def test_segment_metadata() -> None:
    """Else a dump of the metadata topic cannot be compared with Kafka's own."""
    assert record_text(FINISHED) == (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={SEGMENT_TEXT}, startOffset=0, endOffset=100, brokerId=1, "
        "maxTimestampMs=1700000000000, eventTimestampMs=1700000000123, segmentLeaderEpochs={0=0, 1=20, 2=80}, "
        "segmentSizeInBytes=1024, customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, "
        "txnIdxEmpty=true}"
    )
    assert "customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, txnIdxEmpty=false}" in record_text(STARTED)
    empty = dataclasses.replace(STARTED, custom_metadata=b"")
    assert "customMetadata=Optional[CustomMetadata{0 bytes}]" in record_text(empty)


def test_the_other_records() -> None:
    """The same for updates, partition deletions and snapshots."""
    state = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    assert record_text(
        RemoteLogSegmentMetadataUpdate(
            SEGMENT, event_timestamp_ms=1700000000456, custom_metadata=None, state=state, broker_id=1
        )
    ) == (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={SEGMENT_TEXT}, customMetadata=Optional.empty, "
        "state=COPY_SEGMENT_FINISHED, eventTimestampMs=1700000000456, brokerId=1}"
    )
    marked = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    assert record_text(
        RemotePartitionDeleteMetadata(PARTITION, marked, event_timestamp_ms=1700000000789, broker_id=1)
    ) == (
        "RemotePartitionDeleteMetadata{topicPartition=ASNFZ4mrze8RIjNEVWZ3iA:orders-3, "
        "state=DELETE_PARTITION_MARKED, eventTimestampMs=1700000000789, brokerId=1}"
    )
    assert record_text(SNAPSHOT) == (
        "RemoteLogSegmentMetadataSnapshot{segmentId=CgsMDQ4PEBEgISIjJCUmJw, startOffset=0, endOffset=100, "
        "maxTimestampMs=1700000000000, segmentLeaderEpochs={0=0, 1=20, 2=80}, segmentSizeInBytes=1024, "
        "customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, txnIdxEmpty=true}"
    )
