"""What a consumer makes of a log's fetches: the rows of the golden data, in both isolation levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tests.support.golden import ROW_COLUMNS, Row, rows_of
from tierlog._native.appends import find_marker
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.decoding import decode

_COLUMNS = [name for name in ROW_COLUMNS if name != "partition"]
_LENGTH_END, _HEADER_BYTES = 12, 61
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def number(batch: bytes, position: int, size: int) -> int:
    """A field of a batch header."""
    return int.from_bytes(batch[position : position + size], "big", signed=True)


def last_offset(batch: bytes) -> int:
    return number(batch, 0, 8) + number(batch, 23, 4)


def batches_in(data: bytes) -> Iterator[bytes]:
    """The whole batches at the start of some bytes."""
    position = 0
    while position + _LENGTH_END <= len(data):
        end = position + _LENGTH_END + number(data[position : position + _LENGTH_END], 8, 4)
        if end > len(data):
            return
        yield data[position:end]
        position = end


def aborted_in(batches: Iterable[bytes]) -> list[tuple[int, int, int]]:
    """(producer, first offset, offset of the marker) of the transactions that are aborted in some batches."""
    aborted, first = [], dict[int, int]()
    for batch in batches:
        producer, attributes = number(batch, 43, 8), number(batch, 21, 2)
        if attributes & _CONTROL:
            began, marker = first.pop(producer, None), find_marker(batch)
            if began is not None and marker is not None and not marker.is_commit:
                aborted.append((producer, began, number(batch, 0, 8)))
        elif attributes & _TRANSACTIONAL:
            first.setdefault(producer, number(batch, 0, 8))
    return aborted


def fetches(
    log: UnifiedLog, start: int, isolation: FetchIsolation, *, max_bytes: int
) -> Iterator[tuple[list[bytes], Sequence[tuple[int, int]]]]:
    """(whole batches, aborted transactions) of fetch after fetch, until there is nothing more."""
    while True:
        found = log.read(start, max_bytes=max_bytes, isolation=isolation)
        if not found.records:
            return
        whole = list(batches_in(bytes(found.records[0].read())))
        if not whole:
            return
        yield whole, found.aborted_transactions or ()
        start = last_offset(whole[-1]) + 1


def consume(log: UnifiedLog, *, isolation: str, start: int | None = None, max_bytes: int = 1 << 16) -> list[Row]:
    """The rows from an offset on, as ``read_uncommitted`` or ``read_committed``.

    Without ``start`` it begins with the first that is there; ``max_bytes`` is that of a fetch.
    """
    committed = isolation == "read_committed"
    first = log.local_log_start_offset if start is None else start
    level = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
    kept = bytearray()
    for batches, aborted in fetches(log, first, level, max_bytes=max_bytes):
        for batch in _decided(batches, aborted) if committed else batches:
            kept += batch
    rows = decode(bytes(kept), columns=_COLUMNS, from_offset=first, decompressed_limit=1 << 30)
    table = pa.Table.from_batches([rows])
    return rows_of(table.append_column("partition", pa.array([log.partition] * len(table), pa.int32())))


def _decided(batches: Sequence[bytes], aborted: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Without the data of aborted transactions, as Kafka's consumer leaves them out of one fetch."""
    waiting, gone = sorted(aborted, key=lambda entry: entry[1]), set[int]()
    for batch in batches:
        while waiting and waiting[0][1] <= last_offset(batch):
            gone.add(waiting.pop(0)[0])
        producer, attributes = number(batch, 43, 8), number(batch, 21, 2)
        if attributes & _CONTROL:
            marker = find_marker(batch)
            if marker is not None and not marker.is_commit:
                gone.discard(producer)
        elif not (attributes & _TRANSACTIONAL and producer in gone):
            yield batch
