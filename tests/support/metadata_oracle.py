"""What the files of the metadata topic say, by Python alone: the state that the segment table has to come to.

A segment's life has one direction and its id is never used again, so that the furthest state of all records is its
state, whatever order they are read in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, decode_record
from tierlog.remote.tier import Tier
from tierlog.remote.tier.tier import iter_batch_runs


@dataclass(slots=True)
class KnownSegment:
    """One segment, as far as records tell of it; ``metadata`` is None if only updates of it were read."""

    segment_id: RemoteLogSegmentId
    state: RemoteLogSegmentState
    metadata: RemoteLogSegmentMetadata | None = None
    custom_metadata: bytes | None = None

    def located(self) -> RemoteLogSegmentMetadata | None:
        """The metadata, with what its storage wants back."""
        return None if self.metadata is None else replace(self.metadata, custom_metadata=self.custom_metadata)


@dataclass(slots=True)
class MetadataTopic:
    """Everything that some folders of the topic say.

    Attributes:
        segments: By their id.
        partitions: User partition (topic id and number) → the metadata partitions with records of it: one.
        newest_ms: Metadata partition → time of its newest record.
        records: How many were read.
    """

    segments: dict[Uuid, KnownSegment] = field(default_factory=dict)
    partitions: dict[tuple[Uuid, int], set[int]] = field(default_factory=dict)
    newest_ms: dict[int, int] = field(default_factory=dict)
    records: int = 0

    def add(self, place: int, timestamp_ms: int, record: RemoteLogMetadataRecord) -> None:
        self.records += 1
        self.newest_ms[place] = max(self.newest_ms.get(place, -1), timestamp_ms)
        if not isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            return
        partition = record.remote_log_segment_id.topic_id_partition
        self.partitions.setdefault((partition.topic_id, partition.partition), set()).add(place)
        segment_id = record.remote_log_segment_id
        known = self.segments.setdefault(segment_id.id, KnownSegment(segment_id, record.state))
        assert known.segment_id == segment_id
        known.state = max(known.state, record.state)
        if isinstance(record, RemoteLogSegmentMetadata):
            known.metadata = record
        if record.custom_metadata is not None:
            known.custom_metadata = record.custom_metadata


def read_metadata_topic(tiers: Sequence[Tier]) -> MetadataTopic:
    """Read all records of the topic in some log directories."""
    found = MetadataTopic()
    for tier in tiers:
        for segment in tier.iter_segments(METADATA_TOPIC):
            for run in iter_batch_runs(tier, segment):
                for timestamp_ms, record in _records(run.data):
                    found.add(segment.topic_id_partition.partition, timestamp_ms, record)
    return found


def _records(batches: memoryview) -> Iterator[tuple[int, RemoteLogMetadataRecord]]:
    rows = decode(batches, columns=("value", "timestamp"))
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    for timestamp_ms, value in zip(times, rows.column("value"), strict=True):
        yield timestamp_ms, decode_record(value.as_buffer())
