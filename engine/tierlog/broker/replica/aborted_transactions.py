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
from tierlog.scan.history import StoredSpan
from tierlog.scan.transaction_history import aborted_transactions


async def find_aborted(
    reads: SegmentReads, view: PartitionView, number: int, found: FoundBatches
) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions that touch batches, ascending by first offset, distinct.

    Args:
        reads: Of the segments.
        view: The partition's history.
        number: Of the span that the batches are of.
        found: The batches.

    Raises:
        CorruptIndexError, CorruptObjectError: a transaction index cannot be used: without it aborted records would be
            handed out. As ``SegmentReads.index``.
    """
    first_offset = found.first_base_offset
    if view.is_bare:
        return await _replayed(reads, view, first_offset, view.spans[number].segment.end_offset + 1)
    spans = view.iter_transactional(number)
    span = next(spans, None)
    if span is None:
        return []
    upper_bound_offset = await _upper_bound(reads, view.spans[number], found)
    aborted: set[tuple[int, int]] = set()
    while span is not None:
        entries = await _entries(reads, span)
        touching = entries[(entries["last_offset"] >= first_offset) & (entries["first_offset"] < upper_bound_offset)]
        aborted.update(zip(touching["producer_id"].tolist(), touching["first_offset"].tolist(), strict=True))
        if (entries["last_stable_offset"] >= upper_bound_offset).any():
            break
        span = next(spans, None)
    return _ordered(aborted)


async def _upper_bound(reads: SegmentReads, span: StoredSpan, found: FoundBatches) -> int:
    """An offset behind the batches, as near as the offset index tells."""
    segment = span.segment
    try:
        data = await reads.index(segment, IndexType.OFFSET)
        bound = find_upper_bound_offset(data, segment.start_offset, found.position, found.size_bytes) if data else None
    except CorruptDataError:
        bound = None
    return segment.end_offset + 1 if bound is None else bound


async def _entries(reads: SegmentReads, span: StoredSpan) -> NDArray[np.void]:
    """The rows (TRANSACTION_DTYPE) of a segment's transaction index whose markers lie in the span."""
    data = await reads.index(span.segment, IndexType.TRANSACTION)
    try:
        entries = read_transaction_index(data or b"")
    except CorruptIndexError as error:
        raise error.located(f"{span.segment.name} (transaction index)") from None
    inside = (entries["last_offset"] >= span.first_offset) & (entries["last_offset"] < span.end_offset_exclusive)
    return entries[inside]


async def _replayed(
    reads: SegmentReads, view: PartitionView, first_offset: int, end_offset_exclusive: int
) -> list[tuple[int, int]]:
    """The same of logs without indexes: the markers in their batches tell."""
    ranges, _ = await reads.look_up(
        lambda: aborted_transactions(reads.tier, view.history, first_offset, end_offset_exclusive)
    )
    return _ordered(zip(ranges["producer_id"].tolist(), ranges["first_offset"].tolist(), strict=True))


def _ordered(aborted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(aborted, key=lambda entry: (entry[1], entry[0]))
