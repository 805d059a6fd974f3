"""Records of a byte range as one Arrow record batch, for a caller that has the bytes at hand.

Streams, and data larger than memory, are decoded piece by piece with a ``RecordDecoder``; this is one call of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.decoding import RecordDecoder
from tierlog._native.indexes import sort_aborted
from tierlog.arguments import (
    require_buffer,
    require_flag,
    require_names,
    require_text,
    require_type,
)

#: The columns of Spark's Kafka source that a log has, in their order.
DEFAULT_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
#: More than any record batch can hold, so that the decoder fills one.
_ALL_BYTES: Final = 2**62


def decode(
    buffer: Buffer,
    *,
    columns: Collection[str] | None = None,
    verify_crc: bool = True,
    base_position: int = 0,
    from_offset: int = 0,
    to_offset_exclusive: int = 2**63 - 1,
    from_timestamp_ms: int = -(2**63),
    to_timestamp_exclusive_ms: int = 2**63 - 1,
    aborted: NDArray[np.void] | None = None,
    control_records: bool = False,
    timestamp_unit: str = "ms",
    decompressed_limit: int = 1 << 28,
    allow_partial: bool = False,
) -> pa.RecordBatch:
    """Decode all records of a byte range that begins at a batch border.

    Args:
        buffer: Any contiguous buffer; keys and values are copied out of it.
        columns: Which columns, of key, value (binary), offset (int64), timestamp (UTC, -1 ms = none), timestampType
            (int32: -1 none, 0 CreateTime, 1 LogAppendTime), headers (list<struct<key: string, value: binary>>, null =
            none), leaderEpoch (int32), batchPosition (int64), sequence (int32); they come in this order. None:
            ``DEFAULT_COLUMNS``.
        verify_crc: Check the checksum of each batch before its records are given.
        base_position: Position of the first byte in its file, bytes; for errors and batchPosition.
        from_offset: Records below are left out; batches that end below are not read.
        to_offset_exclusive: Records at or above are left out; the first batch that begins there ends the decode.
        from_timestamp_ms: Records with an earlier timestamp are left out.
        to_timestamp_exclusive_ms: Records with this timestamp or a later one are left out.
        aborted: Aborted transactions (``indexes.ABORTED_DTYPE``, any order): their data is left out (read_committed).
        control_records: Give control records as rows too.
        timestamp_unit: "ms" or "us".
        decompressed_limit: Largest size of one batch, stored or decompressed, bytes.
        allow_partial: Whether the data may end inside a batch, as the active segment of a live log does; the records of
            whole batches are then returned.

    Returns:
        One record batch, all fields nullable, in log order; without rows where nothing is wanted.

    Raises:
        CorruptRecordError: the first malformed batch or record, with position and offset.
        SizeLimitError: a batch is larger than ``decompressed_limit``, or a column larger than 2 GiB.
        ConfigError: a column or a unit is unknown. TypeError: an argument is of another type; it is named.
            ValueError: a number is not of 64 bits, or negative where it is a size or a position; it is named.

    Thread safety: any number of threads; the GIL is released in every loop.
    """
    require_buffer("buffer", buffer)
    for name, flag in {
        "verify_crc": verify_crc,
        "control_records": control_records,
        "allow_partial": allow_partial,
    }.items():
        require_flag(name, flag)
    if aborted is not None:
        require_type("aborted", aborted, np.ndarray, "an array of ABORTED_DTYPE")
    decoder = RecordDecoder(
        DEFAULT_COLUMNS if columns is None else require_names("columns", columns),
        base_position=base_position,
        verify_crc=verify_crc,
        from_offset=from_offset,
        to_offset_exclusive=to_offset_exclusive,
        from_timestamp_ms=from_timestamp_ms,
        to_timestamp_exclusive_ms=to_timestamp_exclusive_ms,
        aborted=None if aborted is None else sort_aborted(aborted),
        control_records=control_records,
        timestamp_unit=require_text("timestamp_unit", timestamp_unit),
        decompressed_limit=decompressed_limit,
        target_bytes=_ALL_BYTES,
    )
    batches = [*decoder.feed(buffer), *decoder.finish(allow_partial=allow_partial)]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=decoder.schema)
    (batch,) = batches
    return batch
