"""The files beside one log as two replicas have them, which may differ, and the facts in which they may not.

Two replicas of a partition have the same log, byte for byte, but each its own files beside it: a follower forgets
expired producers at other moments than the leader (``producer.id.expiration.ms`` by its own clock), puts index entries
at other batches since it appends other amounts at once, and has epochs from before its own log start. Consumers learn
the same facts from both: the transactions that are open at the segment's end, those that were aborted in it, and the
epoch of each offset.
"""

from __future__ import annotations

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import TransactionIndex
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata


def is_same_part(sent: bytes | None, found: Buffer | None) -> bool:
    """Whether two parts are equal. A layout may leave out the zeros behind the last entry of a preallocated index."""
    if sent is None or found is None:
        return sent is found
    size = memoryview(found).nbytes
    return sent[:size] == found and not any(sent[size:])


def find_contradiction(
    kind: IndexType, source: bytes | None, stored: bytes | None, metadata: RemoteLogSegmentMetadata
) -> str | None:
    """Return a fact on which two replicas' files of one segment contradict each other.

    Args:
        kind: The kind of file.
        source: One replica's file; None if it has none. A file that is damaged or missing contradicts nothing.
        stored: The other replica's file, which was checked.
        metadata: The segment's metadata, for its offsets.

    Returns:
        The contradiction in words; None if the files differ only as replicas' may.
    """
    try:
        if kind is IndexType.PRODUCER_SNAPSHOT:
            return _of_open_transactions(source, stored)
        if kind is IndexType.TRANSACTION:
            return _of_aborted_transactions(source, stored)
        if kind is IndexType.LEADER_EPOCH:
            return _of_epochs(source, stored, metadata)
    except CorruptIndexError:
        return None
    return None  # a sparse index may point at any of its log's batches


def _of_open_transactions(source: bytes | None, stored: bytes | None) -> str | None:
    if source is None or stored is None:
        return None
    here, there = (parse_producer_snapshot(data).open_transactions() for data in (source, stored))
    return None if here == there else f"open transactions by producer: {there}, the source has {here}"


def _of_aborted_transactions(source: bytes | None, stored: bytes | None) -> str | None:
    here, there = (_aborted(data or b"") for data in (source, stored))
    if here == there:
        return None
    only = f"{_shown(there - here)}, the source has {_shown(here - there)}"
    return f"aborted transactions (producer, first, last offset): {only}"


def _aborted(data: bytes) -> set[tuple[int, int, int]]:
    """The aborted transactions without their last stable offsets, which depend on other producers' expiry."""
    rows = TransactionIndex(data).entries()
    return set(zip(*(rows[name].tolist() for name in ("producer_id", "first_offset", "last_offset")), strict=True))


def _of_epochs(source: bytes | None, stored: bytes | None, metadata: RemoteLogSegmentMetadata) -> str | None:
    end = metadata.end_offset + 1
    here, there = (parse_leader_epochs(data or b"").range(metadata.start_offset, end) for data in (source, stored))
    return None if here == there else f"leader epochs of its offsets: {there}, the source has {here}"


def _shown(transactions: set[tuple[int, int, int]]) -> str:
    return ", ".join(map(str, sorted(transactions)[:5])) or "no others"
