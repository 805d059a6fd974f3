"""Batches of a ``.log`` by their headers, and a record by its timestamp, read piece by piece."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tierlog._native.batches import BatchSearch, FoundBatch
from tierlog._native.decoding import RecordDecoder
from tierlog.errors import CorruptRecordError, StoreError
from tierlog.log.local.segments.segment_values import TimestampAndOffset
from tierlog.runtime.machine.files import UpdatableFile, store_error

_PIECE_BYTES: Final = 4096
_RECORDS_PIECE_BYTES: Final = 1 << 20


def search_batches(search: BatchSearch, file: UpdatableFile, *, path: str) -> BatchSearch:
    """Run a search over a log; the same search, done.

    Raises:
        CorruptRecordError: no batch stands where one must, or the log ends before the search does. StoreError.
    """
    descriptor = file.descriptor
    try:
        if descriptor is None:
            _search_pieces(search, file)
        else:
            search.run(descriptor)
    except CorruptRecordError as error:
        raise error.located(path) from None
    except StoreError:
        raise
    except OSError as cause:
        raise store_error(cause, path) from cause
    return search


def _search_pieces(search: BatchSearch, file: UpdatableFile) -> None:
    """The search over a file that the process has no number of."""
    piece = bytearray(_PIECE_BYTES)
    while not search.is_done:
        position = search.position
        count = file.read_into(piece, position=position)
        search.feed(memoryview(piece)[:count])
        if search.position == position and not search.is_done:
            raise CorruptRecordError("the file ends before the log does", position=position + count)


def find_record_by_timestamp(
    batch: FoundBatch,
    file: UpdatableFile,
    *,
    path: str,
    timestamp_ms: int,
    starting_offset: int,
    decompressed_limit: int,
) -> TimestampAndOffset | None:
    """The first record of a batch at or behind an offset whose timestamp is at or above one; control records count.

    Raises:
        CorruptRecordError: the batch is damaged, or no longer there. SizeLimitError: its content is above the limit.
            StoreError.
    """
    decoder = RecordDecoder(
        ("offset", "timestamp"),
        base_position=batch.position,
        from_offset=starting_offset,
        from_timestamp_ms=timestamp_ms,
        control_records=True,
        decompressed_limit=decompressed_limit,
    )
    end_position = batch.position + batch.size_bytes
    try:
        for position in range(batch.position, end_position, _RECORDS_PIECE_BYTES):
            piece = memoryview(bytearray(min(_RECORDS_PIECE_BYTES, end_position - position)))
            count = file.read_into(piece, position=position)
            for rows in decoder.feed(piece[:count]):
                return _first_row(rows, batch)
        for rows in decoder.finish():
            return _first_row(rows, batch)
    except CorruptRecordError as error:
        raise error.located(path) from None
    return None


def _first_row(rows: pa.RecordBatch, batch: FoundBatch) -> TimestampAndOffset:
    timestamp_ms, offset = (rows.column(name)[0] for name in ("timestamp", "offset"))
    epoch = batch.leader_epoch
    return TimestampAndOffset(timestamp_ms.value, offset.as_py(), epoch if epoch >= 0 else None)
