"""Batches of a broker's log that are in the tier alone: which segments have them, and where its own branch ends there.

A segment may hold records of a branch that this log has given up: they are never sent. Kafka sends them, and reads one
segment an answer (``remote.log.manager.kafka.semantics``).

Source: Kafka RemoteLogManager#read, #findFirstBatch, #findNextSegmentMetadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from tierlog.errors import TierlogError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.log_errors import KafkaError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.partition_log import PartitionLog
from tierlog.marks import mark
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager.aborted_transactions import AbortedSearch
from tierlog.remote.manager.batch_reads import BatchChecks, BatchReads, FoundBatches, WantedBatches
from tierlog.remote.manager.pending_reads import RemoteRead, empty_data
from tierlog.remote.manager.remote_source import RemoteLog, RemoteSource
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import epochs_with_records, offsets_of_log
from tierlog.replication.messages import ReplicationError
from tierlog.runtime.waiting.waits import WaitingThreads

_log = logging.getLogger(__name__)

#: So often a segment is looked up again, because the one that was found has been deleted.
_LOOKUPS_MAX: Final = 3
#: Segments whose end is remembered.
_ENDS_MAX: Final = 4096
#: Values of logs' epochs that are remembered; most logs have one for days.
_EPOCHS_MAX: Final = 1024


class TieredLog(NamedTuple):
    """A log at the begin of a read: what counts is decided by one value of its epochs."""

    topic_id_partition: TopicIdPartition
    log: PartitionLog
    epochs: LeaderEpochs


class _Found(NamedTuple):
    """Batches, their segment, and the end of what counts in it, exclusive."""

    data: FoundBatches
    segment: RemoteLogSegmentMetadata
    end_offset: int


class TierReads:
    """Reads batches of the tier, in the calling thread.

    Args:
        services: What the manager works with.

    Thread safety: any number of threads.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services
        self._source = RemoteSource(services.storage)
        self._threads = WaitingThreads(services.machine)
        #: Where what counts of a segment ends, by the segment and a log's epochs.
        self._ends: dict[tuple[Uuid, LeaderEpochs], int] = {}
        self._lock = services.machine.scheduler.lock()
        self._batches: BatchReads[RemoteLogSegmentMetadata, RemoteLog] = BatchReads(
            self._source, services.machine, checks=BatchChecks()
        )

    def read(
        self,
        request: RemoteRead,
        *,
        end_offset: int,
        max_bytes: int,
        is_first_whole: bool,
        goes_on: Callable[[], bool],
        on_part: Callable[[FoundBatches], None],
    ) -> FoundBatches:
        """Read batches of a partition; none where nothing counts yet.

        Args:
            request: The partition, and from where on.
            end_offset: None at or behind this: the end that is answered with them. The log's own may have moved.
            max_bytes: At most so many, > 0 …
            is_first_whole: … but all of the first batch.
            goes_on: Asked before each following segment: whether there is time for it.
            on_part: Called with what there is before the next segment is read; of committed reads once, with what the
                first segment gave: each part needs a search of its own.

        Raises:
            OffsetOutOfRangeError: no segment of the tier has the offset in this log's epoch. ReplicationError: there is
            no log here. CorruptDataError and its kinds: of the segment's log, or of a transaction index. Else what the
            managers and the log raise.
        """
        topic_id_partition, offset = request.topic_id_partition, request.fetch_offset
        log = self._services.require_log(topic_id_partition)
        tiered = TieredLog(topic_id_partition, log, epochs_of(log))
        end = min(end_offset, _end_of(log, request.isolation))
        if offset >= end:
            return empty_data(request)
        first = self._read_at(tiered, WantedBatches(offset, end, max_bytes, is_first_whole))
        if first is None:
            return empty_data(request)
        is_committed = request.isolation is FetchIsolation.TXN_COMMITTED

        def note(part: FoundBatches) -> None:
            if not is_committed:
                on_part(part)
            elif part is first.data:
                on_part(self._committed(tiered, first.segment, part, offset))

        data = first.data
        if not self._services.config.kafka_semantics:
            more = WantedBatches(offset, end, max_bytes, is_first_whole=False)
            data = self._read_on(tiered, first, more, goes_on, note)
        return self._committed(tiered, first.segment, data, offset) if is_committed else data

    def _read_on(
        self,
        tiered: TieredLog,
        first: _Found,
        wanted: WantedBatches,
        goes_on: Callable[[], bool],
        on_part: Callable[[FoundBatches], None],
    ) -> FoundBatches:
        """Add the batches of the following segments, for as long as they are in the tier alone."""
        data, last = first.data, first
        while data.size_bytes < wanted.max_bytes and data.last_offset + 1 >= last.end_offset:
            offset = data.last_offset + 1
            if offset >= min(wanted.end_offset_exclusive, tiered.log.local_log_start_offset) or not goes_on():
                break
            on_part(data)
            more = wanted._replace(offset=offset, max_bytes=wanted.max_bytes - data.size_bytes)
            try:
                found = self._read_at(tiered, more)
            except (TierlogError, LookupError) as error:  # the next fetch begins there, and gets it
                _log.debug("%s: not read on at %d: %s", tiered.topic_id_partition, offset, error)
                break
            if found is None or not found.data.size_bytes:
                break
            mark("reads: goes on with the next segment")
            last = found
            data = data._replace(
                records=[*data.records, *found.data.records],
                size_bytes=data.size_bytes + found.data.size_bytes,
                last_offset=found.data.last_offset,
            )
        return data

    def _read_at(self, tiered: TieredLog, wanted: WantedBatches) -> _Found | None:
        """Read batches of the segment that has the wanted offset, or of the next one that has later ones; None if there
        are none in the tier.
        """
        at, gone = wanted.offset, set[RemoteLogSegmentId]()
        while at < wanted.end_offset_exclusive:
            segment = self._find_segment(tiered, at)
            if segment is None:
                if at > wanted.offset:
                    return None
                raise _out_of_range(tiered.log, at)
            end = self._end_within(tiered, segment)
            within = wanted._replace(end_offset_exclusive=min(end, wanted.end_offset_exclusive))
            try:
                data = self._threads.run(self._batches.read_waits(segment, within))
            except RemoteResourceNotFoundException:
                if self._services.config.kafka_semantics or segment.remote_log_segment_id in gone:
                    raise
                mark("reads: the segment was deleted meanwhile")
                gone.add(segment.remote_log_segment_id)
                if len(gone) > _LOOKUPS_MAX:
                    raise
                continue  # deleted meanwhile: the metadata say so now, or it is a fault of the store
            if data is not None:
                return _Found(data, segment, end)
            at = max(end, at + 1)  # its records from there on are of another branch, or it has none
        return None

    def _find_segment(self, tiered: TieredLog, offset: int) -> RemoteLogSegmentMetadata | None:
        epoch = tiered.epochs.epoch_for_offset(offset)
        if epoch is None or offset < tiered.log.log_start_offset:
            return None
        try:
            return self._services.metadata.remote_log_segment_metadata(tiered.topic_id_partition, epoch, offset)
        except RemoteResourceNotFoundException as cause:  # of the partition, which this broker has no more
            raise ReplicationError(str(cause), KafkaError.NOT_LEADER_OR_FOLLOWER) from cause

    def _end_within(self, tiered: TieredLog, segment: RemoteLogSegmentMetadata) -> int:
        """The end of a segment's batches that are the log's, exclusive."""
        if self._services.config.kafka_semantics:
            return segment.end_offset + 1
        key = segment.remote_log_segment_id.id, tiered.epochs
        end = self._ends.get(key)
        if end is None:
            end = offsets_of_log(segment, tiered.epochs, log_end_offset=segment.end_offset + 1)[1]
            with self._lock:
                self._ends[key] = end
                if len(self._ends) > _ENDS_MAX:
                    del self._ends[next(iter(self._ends))]
        return min(end, tiered.log.log_end_offset)

    def _committed(
        self, tiered: TieredLog, segment: RemoteLogSegmentMetadata, data: FoundBatches, fetch_offset: int
    ) -> FoundBatches:
        """A read's batches with the aborted transactions that touch them. Raises OffsetOutOfRangeError: these have
        expired.
        """
        if not data.size_bytes:
            return data._replace(aborted_transactions=())
        search = AbortedSearch(
            self._services.metadata,
            self._source,
            tiered.topic_id_partition,
            tiered.log,
            tiered.epochs,
            takes_dead_markers=self._services.config.kafka_semantics,
        )
        aborted = search.find(segment, data.first_offset, data.last_offset + 1)
        if self._find_segment(tiered, fetch_offset) is None:
            # Segments go from the lowest on: that of a marker may have gone before it was looked for, and a follower
            # hears later than its metadata that the log starts behind it.
            mark("reads: the segments of a committed read have gone")
            raise _out_of_range(tiered.log, fetch_offset)
        return data._replace(aborted_transactions=aborted)

    def find_next(self, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """Return the segment that is read behind one, as far as that is known now: for a storage manager's prefetch."""
        topic_id_partition = segment.topic_id_partition
        try:
            log = self._services.find_log(topic_id_partition)
            if log is None:
                return None
            tiered = TieredLog(topic_id_partition, log, epochs_of(log))
            end = self._end_within(tiered, segment)
            if not segment.start_offset < end < log.local_log_start_offset:
                return None
            return self._find_segment(tiered, end)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is fetched ahead
            _log.debug("%s: the segment behind it is not known: %s", segment.remote_log_segment_id, error)
            return None


def epochs_of(log: PartitionLog) -> LeaderEpochs:
    """Return a log's epochs as they are now, those with records."""
    return _epochs_with_records(tuple(log.leader_epoch_cache.epoch_with_offsets().items()))


@lru_cache(maxsize=_EPOCHS_MAX)
def _epochs_with_records(entries: tuple[tuple[int, int], ...]) -> LeaderEpochs:
    return epochs_with_records(entries)


def _end_of(log: PartitionLog, isolation: FetchIsolation) -> int:
    if isolation is FetchIsolation.LOG_END:
        return log.log_end_offset
    return log.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.high_watermark


def _out_of_range(log: PartitionLog, offset: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{log.folder}: in no segment of the tier",
        offset=offset,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
    )
