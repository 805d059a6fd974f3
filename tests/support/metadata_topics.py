"""The records of a metadata topic's folders, one by one, without the table that the product reads them into."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC
from tierlog.remote.metadata.record_serde import decode_record
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.tier import iter_batch_runs


@dataclass
class TopicRecords:
    """What the folders say.

    Attributes:
        begun: Segment id → its record of COPY_SEGMENT_STARTED.
        segments: Segment id → its metadata after all records; the custom metadata is the last that was told.
        places: User partition → the metadata partitions with records of it.
        count: Records of segments.
    """

    begun: dict[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    segments: dict[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    places: dict[TopicIdPartition, set[int]] = field(default_factory=dict)
    count: int = 0

    def add(self, place: int, value: bytes) -> None:
        record = decode_record(value)
        if not isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            return
        self.count += 1
        segment_id = record.remote_log_segment_id
        self.places.setdefault(segment_id.topic_id_partition, set()).add(place)
        if isinstance(record, RemoteLogSegmentMetadata):
            self.begun[segment_id.id] = self.segments[segment_id.id] = record
        else:
            known = self.segments[segment_id.id]
            custom = known.custom_metadata if record.custom_metadata is None else record.custom_metadata
            self.segments[segment_id.id] = replace(known.create_with_updates(record), custom_metadata=custom)

    @property
    def finished(self) -> dict[Uuid, RemoteLogSegmentMetadata]:
        """The segments that can be read."""
        state = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        return {segment_id: each for segment_id, each in self.segments.items() if each.state is state}


def read_topic(folders: Sequence[pathlib.Path]) -> TopicRecords:
    """Read the topic's folders of some log directories."""
    found = TopicRecords()
    for folder in folders:
        with open_tier(str(folder), layout="log-dir") as tier:
            for segment in tier.iter_segments(METADATA_TOPIC):
                for run in iter_batch_runs(tier, segment):
                    for value in decode(run.data, columns=("value",)).column("value"):
                        found.add(segment.topic_id_partition.partition, value.as_py())
    return found
