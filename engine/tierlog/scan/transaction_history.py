"""The transactions of a partition's history, for read_committed: its last stable offset, and those that were aborted.

The tier's own files say it: the producer snapshot of the newest segment (open transactions) and the transaction indexes
(aborted ones). Where a file is missing (one ``.log`` alone, the active segment of a log directory) or damaged, the
batches themselves are replayed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.indexes import ABORTED_DTYPE, read_transaction_index, sort_aborted
from tierlog.errors import CorruptDataError, CorruptIndexError, ObjectNotFoundError, TierlogError
from tierlog.log.checks.transactions import TransactionReplay, read_markers
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.remote.api import IndexType
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.scan.history import PartitionHistory


def find_last_stable_offset(tier: Tier, history: PartitionHistory) -> int:
    """Return the first offset of the earliest transaction that is open at the end of the tier; the end if none is.

    Raises:
        CorruptDataError, StoreError and their kinds: a log that has to be replayed cannot be read.

    Cost: one small part, where the newest segment has a sound producer snapshot; else its log (and so on back).
    """
    end = history.end_offset_exclusive
    return _replay_to_end(tier, history).last_stable_offset(end)


def open_transactions(tier: Tier, history: PartitionHistory) -> dict[int, int]:
    """Return producer id to first offset of each transaction that is open at the end of the tier; as above."""
    return _replay_to_end(tier, history).open_transactions


def aborted_transactions(
    tier: Tier, history: PartitionHistory, first_offset: int, end_offset_exclusive: int
) -> tuple[NDArray[np.void], list[TierlogError]]:
    """Return the aborted transactions that touch [first, end), from the segments that hold their markers.

    Only markers inside of a span count: those of an abandoned branch aborted nothing.

    Returns:
        (rows of ABORTED_DTYPE as RecordDecoder wants them, errors of transaction indexes that could not be used).

    Raises:
        CorruptDataError, StoreError and their kinds: a log that has to be replayed cannot be read.
    """
    spans = history.spans_between(first_offset, history.end_offset_exclusive)
    faults: list[TierlogError] = []
    if any(span.segment.is_bare for span in spans):
        replay = TransactionReplay()
        for span in history.lineage.spans:
            _replay(tier, span, replay)
        return sort_aborted(_touching(replay.aborted_ranges(), first_offset, end_offset_exclusive)), faults
    found: list[NDArray[np.void]] = []
    for span in spans:
        try:
            entries = aborted_in(tier, span)
        except (CorruptDataError, ObjectNotFoundError) as error:
            faults.append(error)
            continue
        found.append(_as_ranges(entries))
        # Kafka TransactionIndex#collectAbortedTxns: records that were stable at the end cannot be aborted by a later
        # marker.
        if (entries["last_stable_offset"] >= end_offset_exclusive).any():
            break
    ranges = np.concatenate([np.empty(0, ABORTED_DTYPE), *found])
    return sort_aborted(_touching(ranges, first_offset, end_offset_exclusive)), faults


def aborted_in(tier: Tier, span: Span) -> NDArray[np.void]:
    """Return the rows (TRANSACTION_DTYPE) of a segment's transaction index whose marker lies inside of the span.

    Raises:
        CorruptIndexError, CorruptObjectError, ObjectNotFoundError: the index cannot be used; named.
    """
    segment = span.segment
    return entries_inside(
        span, None if segment.metadata.txn_idx_empty else tier.fetch_index(segment, IndexType.TRANSACTION)
    )


def entries_inside(span: Span, index: Buffer | None) -> NDArray[np.void]:
    """Return the entries of ``aborted_in`` in a fetched index. Raises CorruptIndexError, which names the segment."""
    try:
        entries = read_transaction_index(index or b"")
    except CorruptIndexError as error:
        raise error.located(f"{span.segment.name} (transaction index)") from None
    inside = (entries["last_offset"] >= span.first_offset) & (entries["last_offset"] < span.end_offset_exclusive)
    return entries[inside]


def _replay_to_end(tier: Tier, history: PartitionHistory) -> TransactionReplay:
    """The open transactions at the end, by the batches from the last sound producer snapshot on."""
    behind: list[Span] = []
    replay = TransactionReplay()
    for span in reversed(history.lineage.spans):
        known = _snapshot_transactions(tier, span)
        if known is not None:
            replay.open_transactions.update(known)
            break
        behind.append(span)
    for span in reversed(behind):
        _replay(tier, span, replay)
    return replay


def _snapshot_transactions(tier: Tier, span: Span) -> dict[int, int] | None:
    """The transactions open at the end of a span, if its segment ends there and its snapshot can be used."""
    if span.end_offset_exclusive != span.segment.end_offset + 1:
        return None
    try:
        data = tier.fetch_index(span.segment, IndexType.PRODUCER_SNAPSHOT)
        return None if data is None else parse_producer_snapshot(data).open_transactions()
    except (CorruptDataError, ObjectNotFoundError):
        return None


def _replay(tier: Tier, span: Span, replay: TransactionReplay) -> None:
    for run in iter_batch_runs(tier, span.segment):
        columns = run.columns
        base_offsets = run.column("base_offset")
        inside = (base_offsets >= span.first_offset) & (base_offsets < span.end_offset_exclusive)
        counted = {name: values[inside] for name, values in columns.items()}
        replay.add(counted, read_markers(run.data, counted, base_position=run.position, verify_crc=False))


def _as_ranges(entries: NDArray[np.void]) -> NDArray[np.void]:
    ranges = np.empty(len(entries), ABORTED_DTYPE)
    for name in ABORTED_DTYPE.names or ():
        ranges[name] = entries[name]
    return ranges


def _touching(ranges: NDArray[np.void], first_offset: int, end_offset_exclusive: int) -> NDArray[np.void]:
    return ranges[(ranges["last_offset"] >= first_offset) & (ranges["first_offset"] < end_offset_exclusive)]
