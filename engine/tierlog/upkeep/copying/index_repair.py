"""The indexes of a segment, compared with its log and built anew from it.

Kafka makes a transaction index with a segment's first aborted transaction, so that a segment without the file is as a
rule one without aborts: only the abort markers of the log itself show them. A broker that recovers a log builds the
index from the batches, beginning with the transactions that were open at the segment's start: the producer snapshot of
that offset has them.

Source: Kafka LogSegment#recover, ProducerStateManager#completeTxn.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing

import numpy as np
import xxhash

from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptRecordError, DataLossError, ObjectNotFoundError
from tierlog.log.checks.index_checks import IndexBuilder
from tierlog.log.checks.transactions import ABORT, TransactionReplay, read_markers
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import encode_transaction_index
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.api import IndexType
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.runtime.machine.cancelling import require_wanted
from tierlog.upkeep.verification.index_comparison import IndexComparison


def rebuild_indexes(tier: Tier, segment: StoredSegment) -> dict[IndexType, bytes]:
    """Return the offset and the time index of a closed segment, from its batches: one pass over its log.

    Raises:
        CorruptRecordError: a batch is damaged: no index is built from a damaged log. StoreError and its kinds.
    """
    builder = IndexBuilder(segment.start_offset)
    for run in iter_batch_runs(tier, segment, verify_crc=True):
        wrong = np.flatnonzero(~run.columns["crc_ok"].astype(np.bool_))
        if len(wrong):
            batch = int(wrong[0])
            raise CorruptRecordError(
                "the batch does not match its checksum",
                fault="BAD_CRC",
                position=int(run.column("position")[batch]),
                base_offset=int(run.column("base_offset")[batch]),
                where=segment.place,
            )
        builder.add(run.columns)
    return {IndexType.OFFSET: builder.offset_index(), IndexType.TIMESTAMP: builder.time_index()}


def wrong_indexes(tier: Tier, segment: StoredSegment, parts: Mapping[IndexType, bytes]) -> dict[IndexType, str]:
    """Return the indexes that do not fit the log, with the first fault of each.

    Raises:
        CorruptRecordError: the log itself ends in damage. StoreError and its kinds.
    """
    compared = IndexComparison(segment, parts)
    for run in iter_batch_runs(tier, segment):
        compared.add(run.columns)
    return compared.finish()


def digested(tier: Tier, segment: StoredSegment, digest: xxhash.xxh3_128) -> Generator[memoryview]:
    """Yield the untransformed log in order, which goes into a digest on the way."""
    with closing(tier.iter_log_windows(segment)) as windows:
        for _, window in windows:
            require_wanted()  # reads of a disk are not cancelled
            digest.update(window)
            yield window


def read_through(tier: Tier, segment: StoredSegment) -> tuple[bytes, bytes | None]:
    """Read a log of a log directory once: its XXH3 (128 bits), and the transaction index that it should have.

    Returns:
        The index is None if nothing was aborted. Of a damaged log, the index covers the batches before the damage,
        which the copy reports elsewhere.

    Raises:
        DataLossError: a transaction was aborted, and the transactions that were open at the segment's start are not
            known.
        StoreError and its kinds.
    """
    digest = xxhash.xxh3_128()
    opened = _open_at_start(tier, segment)
    replay = TransactionReplay({} if isinstance(opened, str) else opened)
    has_abort = False
    read = digested(tier, segment, digest)
    for run in BatchRuns(read):
        try:
            markers = read_markers(run.data, run.columns, base_position=run.position, verify_crc=False)
        except CorruptDataError:
            break
        has_abort |= ABORT in markers.values()
        replay.add(run.columns, markers)
    for _ in read:
        pass
    if has_abort and isinstance(opened, str):
        raise DataLossError(
            f"{segment.name}: there is no transaction index, the log has aborted transactions, and what was open at "
            f"its start is not known: {opened}. Without it read_committed would show what was aborted; a broker that "
            "recovers the folder builds it anew"
        )
    rows = replay.aborted()
    return digest.digest(), encode_transaction_index(rows) if rows.size else None


def _open_at_start(tier: Tier, segment: StoredSegment) -> dict[int, int] | str:
    """Producer id → first offset of its open transaction, or why that is not known."""
    if segment.start_offset == 0:
        return {}
    key = f"{segment.log.key.rpartition('/')[0]}/{segment.start_offset:020d}.snapshot"
    try:
        return parse_producer_snapshot(tier.store.fetch(key.lstrip("/"))).open_transactions()
    except ObjectNotFoundError:
        return f"there is no producer snapshot {segment.start_offset:020d}.snapshot"
    except CorruptIndexError as error:
        return str(error.located(key))
