"""Which aborted transactions touch what a read gave, as a broker tells its read_committed consumers.

Source: Kafka RemoteLogManager#addAbortedTransactions, #collectAbortedTransactions, TransactionIndex#collectAbortedTxns.
Unlike there, markers outside of a segment's span do not count: those of an abandoned branch aborted nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tierlog._native.indexes import find_upper_bound_offset, read_transaction_index
from tierlog.broker.replica.batch_reads import FoundBatches
from tierlog.broker.replica.partition_view import PartitionView
from tierlog.broker.replica.segment_reads import SegmentReads
from tierlog.errors import CorruptDataError, CorruptIndexError
from tierlog.remote.api import IndexType
from tierlog.remote.metadata.lineage import Span
from tierlog.runtime.waiting.loops import SharedCall
from tierlog.scan.transaction_history import aborted_transactions


class AbortedTransactions:
    """The aborted transactions of one history.

    Args:
        reads: Of the segments.
        view: The history.
    """

    def __init__(self, reads: SegmentReads, view: PartitionView) -> None:
        self._reads = reads
        self._view = view
        self._replay = SharedCall(self._replay_log)
        self._replayed: NDArray[np.void] | None = None

    async def find(self, number: int, found: FoundBatches, until_seconds: float) -> list[tuple[int, int]]:
        """(producer id, first offset) of those that touch some batches, ascending by first offset, distinct.

        Args:
            number: Of the span that the batches are of.
            found: The batches.
            until_seconds: When the read is late, as ``SegmentReads.deadline``.

        Raises:
            CorruptIndexError, CorruptObjectError: a transaction index cannot be used: without it aborted records would
                be handed out. Else as ``SegmentReads.index``.
        """
        first_offset, segment = found.first_base_offset, self._view.spans[number].segment
        if self._view.is_bare:
            entries = (
                self._replayed
                if self._replayed is not None
                else await self._replay.result(seconds=self._reads.timeout_seconds)
            )
            return _ordered(_touching(entries, first_offset, segment.end_offset + 1))
        spans = self._view.iter_transactional(number)
        span = next(spans, None)
        if span is None:
            return []
        upper_bound_offset = await self._upper_bound(self._view.spans[number], found, until_seconds)
        aborted: set[tuple[int, int]] = set()
        while span is not None:
            entries = await self._entries(span, until_seconds)
            aborted.update(_touching(entries, first_offset, upper_bound_offset))
            if (entries["last_stable_offset"] >= upper_bound_offset).any():
                break
            span = next(spans, None)
        return _ordered(aborted)

    async def _upper_bound(self, span: Span, found: FoundBatches, until_seconds: float) -> int:
        """An offset behind the batches, as near as the offset index tells."""
        segment = span.segment
        bound = None
        try:
            data = await self._reads.index(segment, IndexType.OFFSET, until_seconds=until_seconds)
            if data:
                bound = find_upper_bound_offset(data, segment.start_offset, found.position, found.size_bytes)
        except CorruptDataError:  # no bound is only a longer list
            bound = None
        return segment.end_offset + 1 if bound is None else bound

    async def _entries(self, span: Span, until_seconds: float) -> NDArray[np.void]:
        """The rows (TRANSACTION_DTYPE) of a segment's transaction index whose markers lie in the span."""
        data = await self._reads.index(span.segment, IndexType.TRANSACTION, until_seconds=until_seconds)
        try:
            entries = read_transaction_index(data or b"")
        except CorruptIndexError as error:
            raise error.located(f"{span.segment.name} (transaction index)") from None
        inside = (entries["last_offset"] >= span.first_offset) & (entries["last_offset"] < span.end_offset_exclusive)
        return entries[inside]

    async def _replay_log(self) -> NDArray[np.void]:
        """The same of a log without indexes: the markers in its batches tell, of which all are looked at, once."""
        history = self._view.history
        first, end = history.earliest_offset, history.end_offset_exclusive
        found, _ = await self._reads.look_up(lambda: aborted_transactions(self._reads.tier, history, first, end))
        self._replayed = found
        return found


def _touching(entries: NDArray[np.void], first_offset: int, end_offset_exclusive: int) -> Iterable[tuple[int, int]]:
    touching = entries[(entries["last_offset"] >= first_offset) & (entries["first_offset"] < end_offset_exclusive)]
    return zip(touching["producer_id"].tolist(), touching["first_offset"].tolist(), strict=True)


def _ordered(aborted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(set(aborted), key=lambda entry: (entry[1], entry[0]))
