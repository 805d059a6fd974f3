"""Building a transaction index that is missing beside a log with aborted transactions.

Kafka makes the file with a segment's first aborted transaction, so that a segment without one is as a rule one without
aborts: only the abort markers of the log itself tell. A broker that recovers a log builds the index from the batches,
beginning with the transactions that were open at the segment's start: the producer snapshot of that offset has them.

Source: Kafka LogSegment#recover, ProducerStateManager#completeTxn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import xxhash
from typing_extensions import Buffer

from tierlog.errors import CorruptDataError, CorruptIndexError, DataLossError, ObjectNotFoundError
from tierlog.log.checks.transactions import ABORT, TransactionReplay, read_markers
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.transaction_index import encode_transaction_index
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.tier import Tier


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

    def windows() -> Iterator[Buffer]:
        with closing(tier.iter_log_windows(segment)) as drawn:
            for _, window in drawn:
                digest.update(window)
                yield window

    opened = _open_at_start(tier, segment)
    replay = TransactionReplay({} if isinstance(opened, str) else opened)
    has_abort = False
    read = windows()
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
