"""Native and oracle side by side: the same rows, then the same fault, or the test fails with both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tests.support import oracle as reference
from tierlog._native.decoding import RecordDecoder
from tierlog._native.indexes import ABORTED_DTYPE, sort_aborted
from tierlog.errors import CorruptDataError

COLUMNS = (
    "key",
    "value",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "leaderEpoch",
    "batchPosition",
    "sequence",
)

#: What two implementations must agree on about an error. Texts and numbers in them are for people.
Fault = tuple[str, int, int, int]


def fault_of(error: CorruptDataError | None) -> Fault | None:
    return None if error is None else (error.fault, error.position, error.base_offset, error.record)


def aborted_array(entries: Sequence[reference.Aborted]) -> np.ndarray | None:
    if not entries:
        return None
    rows = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
    return sort_aborted(np.array(rows, dtype=ABORTED_DTYPE))


def decode_native(
    pieces: Sequence[bytes],
    options: reference.DecodeOptions,
    *,
    target_bytes: int = 8 << 20,
    columns: Sequence[str] = COLUMNS,
) -> tuple[list[pa.RecordBatch], CorruptDataError | None]:
    """All rows in front of the first fault, and the fault."""
    decoder = RecordDecoder(
        columns,
        base_position=options.base_position,
        verify_crc=options.verify_crc,
        from_offset=options.from_offset,
        to_offset_exclusive=options.to_offset_exclusive,
        least_offset=options.least_offset,
        greatest_offset=options.greatest_offset,
        from_timestamp_ms=options.from_timestamp_ms,
        to_timestamp_exclusive_ms=options.to_timestamp_exclusive_ms,
        aborted=aborted_array(options.aborted),
        control_records=options.control_records,
        timestamp_unit=options.timestamp_unit,
        decompressed_limit=options.decompressed_limit,
        target_bytes=target_bytes,
    )
    batches: list[pa.RecordBatch] = []
    try:
        for piece in pieces:
            batches.extend(decoder.feed(piece))
        batches.extend(decoder.finish(allow_partial=options.allow_partial))
    except CorruptDataError as error:
        return _validated(batches), error
    return _validated(batches), None


def _validated(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    for batch in batches:
        batch.validate(full=True)
    return batches


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[reference.Record]:
    """Arrow rows as the oracle has them."""
    rows = []
    for batch in batches:
        # Timestamps that no datetime can show are legal in a log.
        timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        others = batch.drop_columns(["timestamp"]).to_pylist()
        for row, timestamp in zip(others, timestamps, strict=True):
            headers = row["headers"]
            assert headers != [], "a record without headers is null, as in Spark's Kafka source"
            rows.append(
                reference.Record(
                    key=row["key"],
                    value=row["value"],
                    offset=row["offset"],
                    timestamp=timestamp,
                    timestamp_type=row["timestampType"],
                    headers=tuple((header["key"], header["value"]) for header in headers or ()),
                    leader_epoch=row["leaderEpoch"],
                    batch_position=row["batchPosition"],
                    sequence=row["sequence"],
                )
            )
    return rows
