"""The aborted transactions that touch batches of the tier: their markers may lie in any later segment, or in the log.

Only markers that are the log's own count: those of an abandoned branch aborted nothing (Kafka takes them).

Source: Kafka RemoteLogManager#addAbortedTransactions, #collectAbortedTransactions, TransactionIndex#collectAbortedTxns.
"""

from __future__ import annotations

from tierlog._native.indexes import read_transaction_index
from tierlog.errors import CorruptIndexError, StoreError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.partition_log import PartitionLog
from tierlog.remote.api import (
    IndexType,
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    TopicIdPartition,
)
from tierlog.remote.manager.remote_source import RemoteSource
from tierlog.remote.manager.tiered_lineage import offsets_of_log


class AbortedSearch:
    """A search of the aborted transactions that touch the offsets [first, end) of a log, from one segment on.

    Args:
        metadata, source: Of the tier.
        topic_id_partition: The partition.
        log: Its log.
        epochs: Of the log, those with records.
        takes_dead_markers: Whether markers of abandoned branches count, as in Kafka.

    Thread safety: one thread.
    """

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        source: RemoteSource,
        topic_id_partition: TopicIdPartition,
        log: PartitionLog,
        epochs: LeaderEpochs,
        *,
        takes_dead_markers: bool,
    ) -> None:
        self._metadata = metadata
        self._source = source
        self._partition = topic_id_partition
        self._log = log
        self._epochs = epochs
        self._takes_dead_markers = takes_dead_markers
        self._found: set[tuple[int, int]] = set()

    def find(
        self, segment: RemoteLogSegmentMetadata, first_offset: int, end_offset_exclusive: int
    ) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of each, ascending by first offset, distinct.

        Raises:
            CorruptIndexError: of a transaction index: without it aborted records would be returned. Else what the
                managers and the log raise.
        """
        touched = first_offset, end_offset_exclusive
        following: RemoteLogSegmentMetadata | None = segment
        at, local_start = first_offset, -1
        while local_start != self._log.local_log_start_offset:  # else retention took segments from here meanwhile
            while following is not None:
                low, at = self._bounds(following)
                if not following.txn_idx_empty and self._take_index(following, touched, low, at):
                    return self._ordered()
                following = self._next_with_index(at)
            local_start = self._log.local_log_start_offset
            following = self._next_with_index(at)
            if following is None and self._take_local(touched, local_start):
                break
        return self._ordered()

    def _ordered(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(self._found, key=lambda entry: (entry[1], entry[0])))

    def _bounds(self, segment: RemoteLogSegmentMetadata) -> tuple[int, int]:
        """The offsets [low, high) whose markers count."""
        if self._takes_dead_markers:
            return segment.start_offset, segment.end_offset + 1
        return offsets_of_log(segment, self._epochs, log_end_offset=self._log.log_end_offset)

    def _take_index(self, segment: RemoteLogSegmentMetadata, touched: tuple[int, int], low: int, high: int) -> bool:
        """Take what a segment's index has; whether no later marker can count."""
        try:
            data = self._source.fetch_index(segment, IndexType.TRANSACTION)
        except RemoteResourceNotFoundException:  # brokers before 4.0 do not say that there is none
            return False
        try:
            entries = read_transaction_index(data)
        except CorruptIndexError as error:
            raise error.located(f"{segment.remote_log_segment_id} (transaction index)") from None
        first, end = touched
        entries = entries[(entries["last_offset"] >= low) & (entries["last_offset"] < high)]
        touching = entries[(entries["last_offset"] >= first) & (entries["first_offset"] < end)]
        self._found.update(zip(touching["producer_id"].tolist(), touching["first_offset"].tolist(), strict=True))
        return bool((entries["last_stable_offset"] >= end).any())

    def _next_with_index(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """Find the next segment that may have a transaction index; None: the log has what follows."""
        epoch = self._epochs.epoch_for_offset(offset)
        while epoch is not None and offset < self._log.local_log_start_offset:
            found = self._metadata.next_segment_with_txn_index(self._partition, epoch, offset)
            if found is not None and self._bounds(found)[1] > offset:
                return found
            entry = self._epochs.find_next(epoch)
            if entry is None:
                return None
            epoch, offset = entry.epoch, max(offset, entry.start_offset)
        return None

    def _take_local(self, touched: tuple[int, int], local_start: int) -> bool:
        """Take what the local segments have; whether no later marker can count."""
        first, end = touched
        try:
            for segment in self._log.log_segments():
                entries, is_complete = segment.collect_aborted(fetch_offset=first, upper_bound_offset=end)
                self._found.update((producer, begin) for producer, begin, _ in entries)
                if is_complete:
                    return segment.base_offset <= local_start or self._log.local_log_start_offset == local_start
        except StoreError:
            if self._log.local_log_start_offset == local_start:
                raise
        return False
