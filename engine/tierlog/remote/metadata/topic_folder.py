"""What a copy of the metadata topic's files knows: which segments there are, in which state, and how far it reaches.

A segment's life has one direction and its id is never used again, so that the furthest state of all records is its
state, whatever order they are read in; several brokers' folders add up, replicas of one partition too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tierlog.errors import ConfigError, CorruptDataError, CorruptRecordError
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.batch_stream import iter_batch_runs
from tierlog.remote.metadata.records.record_serde import RemoteLogMetadataRecord, decode_record
from tierlog.remote.metadata.topic_backed.metadata_log import METADATA_TOPIC
from tierlog.remote.storage.chunks.segment import StoredSegment
from tierlog.remote.storage.tier.tier import Tier


@dataclass(slots=True)
class KnownSegment:
    """One segment, as far as records tell of it.

    Attributes:
        metadata: With the last custom metadata that was told; None if only updates of it were read.
    """

    segment_id: RemoteLogSegmentId
    state: RemoteLogSegmentState
    metadata: RemoteLogSegmentMetadata | None = None
    custom_metadata: bytes | None = None

    @property
    def owns(self) -> bool:
        """Whether objects of this id belong to somebody: in any state but the last."""
        return self.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

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
        first_offsets: Metadata partition → the first offset that is still there.
        records: How many were read.
    """

    segments: dict[Uuid, KnownSegment] = field(default_factory=dict)
    partitions: dict[tuple[Uuid, int], set[int]] = field(default_factory=dict)
    newest_ms: dict[int, int] = field(default_factory=dict)
    first_offsets: dict[int, int] = field(default_factory=dict)
    records: int = 0

    def knows(self, partition: TopicIdPartition) -> bool:
        """Whether any record is of this partition."""
        return (partition.topic_id, partition.partition) in self.partitions

    def newest_record_ms(self, partition: TopicIdPartition) -> int:
        """How far the metadata of a partition reaches: what was done later is not in it."""
        places = self.partitions.get((partition.topic_id, partition.partition), set())
        return max((self.newest_ms[place] for place in places), default=-1)

    def add(self, place: int, timestamp_ms: int, record: RemoteLogMetadataRecord) -> None:
        """Take one record of a metadata partition. Raises CorruptRecordError for one that belongs nowhere."""
        self.records += 1
        self.newest_ms[place] = max(self.newest_ms.get(place, -1), timestamp_ms)
        if isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            segment_id = record.remote_log_segment_id
            known = self.segments.setdefault(segment_id.id, KnownSegment(segment_id, record.state))
            if known.segment_id != segment_id:
                text = f"segment id {segment_id.id} of {segment_id} was that of {known.segment_id}"
                raise CorruptRecordError(text, fault="BAD_ENTRY")
            known.state = max(known.state, record.state)
            if isinstance(record, RemoteLogSegmentMetadata):
                known.metadata = record
            if record.custom_metadata is not None:
                known.custom_metadata = record.custom_metadata
            self._place(segment_id.topic_id_partition, place)
        elif (partition := getattr(record, "topic_id_partition", None)) is not None:
            self._place(partition, place)
        else:
            raise CorruptRecordError("a snapshot record, which no version writes into the topic", fault="BAD_VERSION")

    def _place(self, partition: TopicIdPartition, place: int) -> None:
        self.partitions.setdefault((partition.topic_id, partition.partition), set()).add(place)


def read_metadata_topic(tiers: Sequence[Tier]) -> MetadataTopic:
    """Read all records of the topic, to the end of what is there now.

    Args:
        tiers: Log directories with folders of the topic; several brokers' hold different partitions, or replicas.

    Raises:
        ConfigError: a directory without such a folder, without any record of a segment, or whose oldest records are
            gone: nothing can be concluded from it. CorruptDataError: a batch or a record is damaged; names its place.
        StoreError and its kinds.
    """
    found = MetadataTopic()
    for tier in tiers:
        firsts: dict[int, int] = {}
        for segment in tier.iter_segments(METADATA_TOPIC):
            place = segment.topic_id_partition.partition
            firsts.setdefault(place, segment.start_offset)
            for timestamp_ms, record in _iter_records(tier, segment):
                found.add(place, timestamp_ms, record)
        if not firsts:
            raise ConfigError(f"{tier.describe()}: no records of {METADATA_TOPIC} are there")
        for place, first in firsts.items():
            found.first_offsets[place] = min(first, found.first_offsets.get(place, first))
    if not found.segments:
        raise ConfigError("the metadata given has no record of any segment: nothing can be concluded from that")
    trimmed = {place: first for place, first in found.first_offsets.items() if first > 0}
    if trimmed:
        told = ", ".join(f"{METADATA_TOPIC}-{place} begins at {first}" for place, first in sorted(trimmed.items()))
        raise ConfigError(f"the oldest metadata is gone ({told}): what it said of segments is not known")
    return found


def _iter_records(tier: Tier, segment: StoredSegment) -> Iterator[tuple[int, RemoteLogMetadataRecord]]:
    """(timestamp in ms, record) in the order of the log."""
    for run in iter_batch_runs(tier, segment):
        try:
            rows = decode(run.data, columns=("value", "offset", "timestamp"), base_position=run.position)
        except CorruptDataError as error:
            raise error.located(segment.name) from None
        times = rows.column("timestamp").cast(pa.int64()).to_pylist()
        offsets = rows.column("offset").to_pylist()
        for value, offset, timestamp_ms in zip(rows.column("value"), offsets, times, strict=True):
            try:
                if not value.is_valid:
                    raise CorruptRecordError("the record has no value", fault="BAD_FIELD_LENGTH")
                yield timestamp_ms, decode_record(value.as_buffer())
            except CorruptRecordError as error:
                error.base_offset = offset
                raise error.located(segment.name) from None
