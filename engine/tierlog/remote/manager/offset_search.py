"""ListOffsets over the tier and the log: the first record from a time on, and Kafka's special timestamps.

The segments that only the tier has are looked at from the log's start on, by their greatest timestamps; in one that may
hold such a record the time index gives an offset, the offset index a position, and batches are scanned from there. Of a
segment that counts which a reader could be given: offsets whose epoch is the log's. The rest of the log is searched
here. If local segments went to the tier alone meanwhile, the search goes on with those.

Where Kafka differs (``remote.log.manager.kafka.semantics``): it looks at segments alone that are the log's as a whole,
and at no further one after a segment without such a record.

Source: Kafka RemoteLogManager#findOffsetByTimestamp, RemoteLogOffsetReader, DelayedRemoteListOffsets (KIP-1075).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from typing_extensions import Buffer

from tierlog._native.batches import BatchSearch
from tierlog._native.buffers import copy_into, joined
from tierlog._native.indexes import lookup_offset, lookup_timestamp
from tierlog.arguments import INT64_MAX, require_int64
from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import KafkaError, LogTruncatedError
from tierlog.log.local.segments.segment_view import ReadInto, TimestampAndOffset, find_record_by_timestamp
from tierlog.log.partition_log import PartitionLog
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    TopicIdPartition,
)
from tierlog.remote.manager.remote_source import RemoteLog, RemoteSource
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import epochs_with_records, is_within, offsets_of_log
from tierlog.remote.manager.timed_calls import Submit, TimedCall, TimedCalls
from tierlog.replication.messages import ReplicationError
from tierlog.runtime.machine.cancelling import CancelScope, require_wanted
from tierlog.runtime.machine.process import Closeable

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
#: Bytes of a segment that are fetched at once: an index entry is a few KiB before the wanted batch, as a rule.
_WINDOW_BYTES: Final = 64 << 10
#: Bytes that are looked at together for headers of batches.
_PIECE_BYTES: Final = 4096
_DECOMPRESSED_LIMIT: Final = LogConfig().max_decompressed_message_bytes

Search = TimedCall[TimestampAndOffset | None]


class OffsetSearch(Closeable):
    """Searches of partitions' offsets, by threads of a pool. A context manager.

    Args:
        services: What the manager works with.
        submit: Of the reader threads.

    Thread safety: any number of threads.
    """

    def __init__(self, services: TierServices, submit: Submit) -> None:
        self._services = services
        self._source = RemoteSource(services.storage)
        self._calls = TimedCalls(services.machine, submit, name="tierlog-rlm-list-offsets-deadlines")

    def __len__(self) -> int:
        """The number of searches under way."""
        return len(self._calls)

    def list_offsets(
        self,
        topic_id_partition: TopicIdPartition,
        timestamp_ms: int,
        *,
        timeout_ms: int | None = None,
        term: CancelScope | None = None,
    ) -> Search:
        """Search a partition's offset by time. What of it a client may see is the request layer's
        (``Leader.limit_listed`` of ``tierlog.replication``).

        Args:
            topic_id_partition: The partition.
            timestamp_ms: From this time on; or a special one of ``log_reads``.
            timeout_ms: None: ``remote.list.offsets.request.timeout.ms``.
            term: The search is cancelled with it.

        Returns:
            The future of the record; None: no record is late enough. It raises ReplicationError: REQUEST_TIMED_OUT; or
            there is no log of the partition here. Else what the managers and the log raise.

        Raises:
            TypeError, ValueError: the timestamp is no number of 64 bits.
        """
        timestamp_ms = require_int64("timestamp_ms", timestamp_ms)
        services = self._services
        timeout = services.config.list_offsets_request_timeout_ms if timeout_ms is None else timeout_ms
        log = services.find_log(topic_id_partition)
        is_remote = timestamp_ms >= 0 and log is not None and log.remote_log_enabled()

        def late() -> ReplicationError:
            services.metrics.add("list_offsets_expired", topic_id_partition.topic)
            text = f"{topic_id_partition}: no offset for time {timestamp_ms} within {timeout} ms"
            return ReplicationError(text, KafkaError.REQUEST_TIMED_OUT)

        return self._calls.start(
            lambda _: self.search(topic_id_partition, timestamp_ms),
            seconds=timeout / 1000,
            late=late,
            term=term,
            after=services.when_ready(topic_id_partition) if is_remote else None,
        )

    def search(self, topic_id_partition: TopicIdPartition, timestamp_ms: int) -> TimestampAndOffset | None:
        """Search in this thread, with no deadline. Raises as the future of ``list_offsets``."""
        log = self._services.require_log(topic_id_partition)
        if timestamp_ms < 0 or not log.remote_log_enabled():
            return log.fetch_offset_by_timestamp(timestamp_ms)
        if self._services.config.kafka_semantics:
            return self._search_as_kafka(topic_id_partition, log, timestamp_ms)
        from_offset = log.log_start_offset
        while True:
            require_wanted()
            local_start = log.local_log_start_offset
            if from_offset < local_start:
                found = self._search_tier(topic_id_partition, log, timestamp_ms, from_offset, local_start)
                if found is not None:
                    return found
            from_offset = local_start
            try:
                found = log.fetch_offset_by_timestamp(timestamp_ms)
            except LogTruncatedError:  # segments went meanwhile
                continue
            if log.local_log_start_offset <= local_start:
                return found

    # ---- the tier

    def _search_tier(
        self,
        topic_id_partition: TopicIdPartition,
        log: PartitionLog,
        timestamp_ms: int,
        start_offset: int,
        end_offset_exclusive: int,
    ) -> TimestampAndOffset | None:
        """Find the first record of a range of offsets from a time on that only the tier has."""
        epochs = epochs_with_records(log.leader_epoch_cache.epoch_with_offsets().items())
        log_end = log.log_end_offset
        for segment in self._iter_candidates(
            topic_id_partition, epochs, timestamp_ms, start_offset, end_offset_exclusive
        ):
            low, high = offsets_of_log(segment, epochs, log_end_offset=log_end)
            low, high = max(low, start_offset), min(high, end_offset_exclusive)
            if low >= high:
                continue
            try:
                found = find_in_segment(self._source, segment, timestamp_ms, low, high)
            except RemoteResourceNotFoundException:
                if log.log_start_offset <= segment.end_offset:
                    raise
                continue  # it has expired meanwhile
            if found is not None:
                return found
        return None

    def _iter_candidates(
        self,
        topic_id_partition: TopicIdPartition,
        epochs: LeaderEpochs,
        timestamp_ms: int,
        start_offset: int,
        end_offset_exclusive: int,
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the copied segments that may have such a record, ascending by start offset."""
        metadata = self._services.metadata
        listed = metadata.list_segments_from_time(
            topic_id_partition, timestamp_ms, start_offset=start_offset, end_offset_exclusive=end_offset_exclusive
        )
        if listed is not None:
            yield from listed
            return
        known = {
            each.remote_log_segment_id: each
            for entry in epochs
            for each in metadata.list_remote_log_segments(topic_id_partition, entry.epoch)
            if each.state is _FINISHED
            and each.max_timestamp_ms >= timestamp_ms
            and each.end_offset >= start_offset
            and each.start_offset < end_offset_exclusive
        }
        yield from sorted(known.values(), key=lambda each: each.start_offset)

    def _search_as_kafka(
        self, topic_id_partition: TopicIdPartition, log: PartitionLog, timestamp_ms: int
    ) -> TimestampAndOffset | None:
        start_offset = log.log_start_offset
        segment = self._find_as_kafka(topic_id_partition, log, timestamp_ms, start_offset)
        if segment is not None and segment.start_offset < log.log_segments()[0].base_offset:
            found = find_in_segment(self._source, segment, timestamp_ms, start_offset, INT64_MAX)
            if found is not None:
                return found
        return log.fetch_offset_by_timestamp(timestamp_ms)

    def _find_as_kafka(
        self, topic_id_partition: TopicIdPartition, log: PartitionLog, timestamp_ms: int, start_offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Find the only segment of the tier that Kafka looks into."""
        epochs = epochs_with_records(log.leader_epoch_cache.epoch_with_offsets().items())
        first = epochs.epoch_for_offset(start_offset)
        for entry in epochs if first is not None else ():
            if first is None or entry.epoch < first:
                continue
            for each in self._services.metadata.list_remote_log_segments(topic_id_partition, entry.epoch):
                if (
                    each.state is _FINISHED
                    and each.max_timestamp_ms >= timestamp_ms
                    and each.end_offset >= start_offset
                    and is_within(each, epochs, log_end_offset=log.log_end_offset)
                ):
                    return each
        return None

    def close(self) -> None:
        """Cancel the searches under way; idempotent. The pool is the caller's."""
        self._calls.close()


def find_in_segment(
    source: RemoteSource,
    segment: RemoteLogSegmentMetadata,
    timestamp_ms: int,
    start_offset: int,
    end_offset_exclusive: int,
) -> TimestampAndOffset | None:
    """Find the first record of a segment in a range of offsets from a time on.

    Raises:
        CorruptRecordError, SizeLimitError: of the segment's log. Else as the storage manager's ``fetch_index`` and
            ``fetch_log_segment``.
    """
    log = SegmentWindows(source, segment)
    position = _find_position(source, segment, timestamp_ms, start_offset)
    try:
        return _scan(log, position, timestamp_ms, start_offset, end_offset_exclusive)
    except CorruptRecordError:
        if not position:
            raise
    return _scan(log, 0, timestamp_ms, start_offset, end_offset_exclusive)  # the index is wrong, or the log is


def _find_position(
    source: RemoteSource, segment: RemoteLogSegmentMetadata, timestamp_ms: int, start_offset: int
) -> int:
    """Find a position at or before the first such record, by the indexes; 0 where they are none."""
    try:
        times = source.fetch_index(segment, IndexType.TIMESTAMP)
        offset = max(lookup_timestamp(times, segment.start_offset, timestamp_ms)[1], start_offset)
        if offset <= segment.start_offset:
            return 0
        offsets = source.fetch_index(segment, IndexType.OFFSET)
        _, position = lookup_offset(offsets, segment.start_offset, offset)
    except CorruptIndexError:  # slower without them, never wrong
        return 0
    return position if 0 <= position < segment.segment_size_in_bytes else 0


def _scan(
    log: SegmentWindows, position: int, timestamp_ms: int, start_offset: int, end_offset_exclusive: int
) -> TimestampAndOffset | None:
    while True:
        search = BatchSearch(
            position=position,
            end_position=log.size_bytes,
            least_last_offset=start_offset,
            least_max_timestamp=timestamp_ms,
        )
        try:
            _search_pieces(search, log.read_into)
        except CorruptRecordError as error:
            raise error.located(log.name) from None
        batch = search.found
        if batch is None or batch.base_offset >= end_offset_exclusive:
            return None
        found = find_record_by_timestamp(
            batch,
            log.read_into,
            path=log.name,
            timestamp_ms=timestamp_ms,
            starting_offset=start_offset,
            end_offset_exclusive=end_offset_exclusive,
            decompressed_limit=_DECOMPRESSED_LIMIT,
        )
        if found is not None:
            return found
        position = batch.position + batch.size_bytes


class SegmentWindows:
    """The log of a segment in the tier, which is read at any position: a window of it is fetched at once.

    Attributes:
        name: Of the segment, for messages.
        size_bytes: Of its log.
    """

    def __init__(self, source: RemoteSource, segment: RemoteLogSegmentMetadata) -> None:
        self._source = source
        self._log = RemoteLog(segment)
        self._start = 0
        self._window = memoryview(b"")
        self.name = str(segment.remote_log_segment_id)
        self.size_bytes = segment.segment_size_in_bytes

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Fill a buffer from a position on; returns the bytes read, fewer only at the end. Raises as
        RemoteSource.
        """
        out = memoryview(buffer).cast("B")
        size = min(len(out), self.size_bytes - position)
        if size <= 0:
            return 0
        at = position - self._start
        if not 0 <= at <= len(self._window) - size:
            end = min(position + max(size, _WINDOW_BYTES), self.size_bytes)
            pieces = self._source.fetch_range(self._log, position, end, least_bytes=size)
            self._window = pieces[0] if len(pieces) == 1 else memoryview(joined(pieces))
            self._start, at = position, 0
        copy_into(out[:size], self._window[at : at + size])
        return size


def _search_pieces(search: BatchSearch, read_into: ReadInto) -> None:
    """Run a search over a log that the process has no file of. Raises CorruptRecordError, and as ``read_into``."""
    piece = bytearray(_PIECE_BYTES)
    while not search.is_done:
        position = search.position
        count = read_into(piece, position)
        search.feed(memoryview(piece)[:count])
        if search.position == position and not search.is_done:
            raise CorruptRecordError("the file ends before the log does", position=position + count)
