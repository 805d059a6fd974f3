"""The producers of a log as they were at any offset of the tier.

A segment has a snapshot of its end alone. In front of that: those at its start, from the segment in front of it in its
own lineage, and its batches replayed from there on. What is read of a segment ends with the batch that reaches the
offset.

Kafka has no counterpart: a log that it cuts below its first segment forgets its producers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.leader_epochs import LeaderEpochs, parse_leader_epochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local.producers.producer_entries import ProducerSettings
from tierlog.log.local.producers.producer_snapshots import in_order_of_kafka
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.producer_replay import ProducerReplay
from tierlog.records.batch_runs import BatchRun, BatchRuns
from tierlog.remote.api import IndexType, RemoteLogMetadataManager, RemoteLogSegmentMetadata
from tierlog.remote.manager.remote_source import RemoteLog, RemoteSource
from tierlog.remote.manager.tiered_lineage import epochs_with_records

#: Bytes of a segment that are in memory at once, but for a larger batch.
_WINDOW_BYTES: Final = 1 << 20
#: No producer goes for its age: the log that takes the snapshot decides that by its own settings.
_NO_EXPIRATION: Final = ProducerSettings(producer_id_expiration_ms=2**63 - 1)


class TieredProducers:
    """Reads producers out of the tier, by blocking calls.

    Args:
        metadata: Finds the segments.
        source: Of their bytes.

    Thread safety: any number of threads.
    """

    def __init__(self, metadata: RemoteLogMetadataManager, source: RemoteSource) -> None:
        self._metadata = metadata
        self._source = source

    def snapshot_at(self, segment: RemoteLogSegmentMetadata, offset: int) -> bytes | memoryview:
        """Return the producer snapshot of the lineage of a segment at an offset.

        Args:
            segment: That holds the offset in front.
            offset: From behind its first offset to behind its last one.

        Raises:
            CorruptDataError: a snapshot, the leader epochs or a batch cannot be read. Else what the managers raise;
            RemoteResourceNotFoundException: an object is gone.
        """
        replayed: list[tuple[RemoteLogSegmentMetadata, int]] = []
        front: RemoteLogSegmentMetadata | None = segment
        while front is not None and front.end_offset >= offset:
            replayed.append((front, offset))
            offset = front.start_offset
            front = self._in_front_of(front)
        if front is None:
            state = ProducerState(_NO_EXPIRATION)
            state.end_offset = offset
        else:
            data = self._source.fetch_index(front, IndexType.PRODUCER_SNAPSHOT)
            if not replayed:
                return data
            state = ProducerState(_NO_EXPIRATION)
            state.load(parse_producer_snapshot(data), offset=offset, now_ms=0)
        for each, end_offset in reversed(replayed):
            self._replay(each, state, end_offset)
        return encode_producer_snapshot(in_order_of_kafka(state.snapshot()))

    def _in_front_of(self, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """Find the segment that holds the offset in front of another, in the other's lineage."""
        offset = segment.start_offset - 1
        partition = segment.remote_log_segment_id.topic_id_partition
        epoch = epochs_with_records(self.epochs_of(segment)).epoch_for_offset(offset)
        return None if epoch is None else self._metadata.remote_log_segment_metadata(partition, epoch, offset)

    def epochs_of(self, segment: RemoteLogSegmentMetadata) -> LeaderEpochs:
        """Fetch the lineage of a segment up to its end. Raises CorruptDataError: it cannot be read."""
        return parse_leader_epochs(self._source.fetch_index(segment, IndexType.LEADER_EPOCH))

    def _replay(self, segment: RemoteLogSegmentMetadata, state: ProducerState, end_offset: int) -> None:
        """Replay a segment's batches up to an offset."""
        log = RemoteLog(segment)
        runs = BatchRuns(self._windows(log), verify_crc=True)
        try:
            for run in runs:
                last_offsets = run.column("last_offset")
                inside = last_offsets < end_offset
                _require_sound(run, int(inside.sum()))
                replay = ProducerReplay(state, read=_Bytes(run), rows_held=1)
                replay.feed({name: column[inside] for name, column in run.columns.items()})
                if int(last_offsets[-1]) + 1 >= end_offset:
                    break
            else:
                text = f"ends below offset {end_offset}, which is in the segment by its metadata"
                raise CorruptRecordError(text, fault="TRUNCATED", position=runs.end_position)
        except CorruptRecordError as error:
            raise (runs.broken or error).located(log.place) from None
        state.end_offset = end_offset

    def _windows(self, log: RemoteLog) -> Iterator[memoryview]:
        for start in range(0, log.size_bytes, _WINDOW_BYTES):
            end = min(start + _WINDOW_BYTES, log.size_bytes)
            yield from self._source.fetch_range(log, start, end, least_bytes=end - start)


class _Bytes:
    """The bytes of batches of a run, by their position in the log."""

    def __init__(self, run: BatchRun) -> None:
        self._run = run

    def __call__(self, position: int, size_bytes: int) -> memoryview:
        start = position - self._run.position
        return self._run.data[start : start + size_bytes]


def _require_sound(run: BatchRun, count: int) -> None:
    """Refuse a damaged batch among the first ones of a run."""
    sound = run.columns["crc_ok"][:count]
    if not sound.all():
        position = int(run.column("position")[int(sound.argmin())])
        raise CorruptRecordError("the checksum of a batch differs", fault="BAD_CRC", position=position)
