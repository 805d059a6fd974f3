"""Record batch headers of a byte range as numpy columns: one row a batch, no record looked at.

The native scan fills the columns that the headers store; what follows from them by arithmetic is derived here, a
whole column at a time.

Source: Kafka FileLogInputStream, DefaultRecordBatch, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.batches import scan_batches
from tierlog.arguments import require_buffer, require_flag, require_int64, require_text
from tierlog.errors import CorruptRecordError

#: All that a header of magic 2 has; those of older formats are shorter.
HEADER_BYTES: Final = 61
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

#: Names of the codecs by their number, as ``compression.type`` and kafka-dump-log spell them.
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, eq=False)
class BatchTable:
    """The headers of a run of batches: one array a field, all of shape (n_batches,), in file order.

    Of magic 0 and 1: ``base_offset`` and ``last_offset`` are the entry's offset (of a compressed wrapper that of its
    last message), missing fields are -1, ``record_count`` is 1, or -1 for a compressed wrapper.

    Attributes:
        base_offset, last_offset: int64. Kafka offsets, both inclusive; compaction does not move them.
        position: int64, bytes, ascending; of the batch in its file.
        size_bytes: int32, with the 12 bytes of offset and length.
        leader_epoch: int32. producer_id: int64. producer_epoch: int16. base_sequence: int32. -1 = none.
        base_timestamp, max_timestamp: int64, ms; -1 = none.
        record_count: int32, as the header declares it.
        attributes: int16. magic: int8. crc: uint32, as stored.
        crc_ok: bool; all true when checksums were not verified.
        end_position: Byte position in the file behind the last whole batch.
        partial: Whether the data end inside a batch, which begins at ``end_position``.
        fault: The fault of the batch at ``end_position``; None if there is none. A wrong checksum is no fault here but
            a value of ``crc_ok``.
    """

    base_offset: NDArray[np.int64]
    last_offset: NDArray[np.int64]
    position: NDArray[np.int64]
    size_bytes: NDArray[np.int32]
    leader_epoch: NDArray[np.int32]
    base_timestamp: NDArray[np.int64]
    max_timestamp: NDArray[np.int64]
    producer_id: NDArray[np.int64]
    producer_epoch: NDArray[np.int16]
    base_sequence: NDArray[np.int32]
    record_count: NDArray[np.int32]
    attributes: NDArray[np.int16]
    magic: NDArray[np.int8]
    crc: NDArray[np.uint32]
    crc_ok: NDArray[np.bool_]
    end_position: int
    partial: bool
    fault: CorruptRecordError | None

    def __len__(self) -> int:
        """Return the number of whole batches."""
        return len(self.base_offset)

    @property
    def end_positions(self) -> NDArray[np.int64]:
        """int64, bytes: where each batch ends, exclusive."""
        return self.position + self.size_bytes

    @property
    def codec(self) -> NDArray[np.int8]:
        """int8: index into ``CODEC_NAMES``; 5 to 7 are in no batch that can be read."""
        return (self.attributes & CODEC_MASK).astype(np.int8)

    @property
    def timestamp_type(self) -> NDArray[np.int8]:
        """int8: -1 none (magic 0), 0 CreateTime, 1 LogAppendTime."""
        append_time = (self.attributes & LOG_APPEND_TIME) != 0
        return np.where(self.magic == 0, -1, append_time).astype(np.int8)

    @property
    def is_transactional(self) -> NDArray[np.bool_]:
        """bool: data or marker of a transaction."""
        return self._has(TRANSACTIONAL)

    @property
    def is_control(self) -> NDArray[np.bool_]:
        """bool: the records are markers for the system, no data."""
        return self._has(CONTROL)

    @property
    def delete_horizon_ms(self) -> NDArray[np.int64]:
        """int64, ms: when compaction may drop the tombstones and markers of the batch; -1 = none is set."""
        return np.where(self._has(DELETE_HORIZON), self.base_timestamp, -1)

    @property
    def last_sequence(self) -> NDArray[np.int32]:
        """int32: sequence of the last record, -1 = none. After 2147483647 comes 0."""
        delta = self.last_offset - self.base_offset
        last = (self.base_sequence.astype(np.int64) + delta) & 0x7FFFFFFF
        return np.where(self.base_sequence < 0, -1, last).astype(np.int32)

    def _has(self, bit: int) -> NDArray[np.bool_]:
        # In magic 0 and 1 the bits above the timestamp type mean nothing.
        has: NDArray[np.bool_] = ((self.attributes & bit) != 0) & (self.magic == 2)
        return has


def scan(
    buffer: Buffer,
    *,
    verify_crc: bool = True,
    base_position: int = 0,
    on_fault: Literal["raise", "return"] = "raise",
) -> BatchTable:
    """Index the record batches of a byte range that begins at a batch border.

    Args:
        buffer: Any contiguous buffer; not copied.
        verify_crc: Compute each batch's checksum for ``crc_ok``. Without it only headers are touched.
        base_position: Position of the first byte in its file, bytes.
        on_fault: What to do at a batch whose size or magic cannot be: raise, or return the batches in front of it
            with ``fault`` set. Batches behind it cannot be found.

    Raises:
        CorruptRecordError: BAD_SIZE or BAD_MAGIC, with the batch's position.
        TypeError: an argument is of another type; it is named. ValueError: base_position is negative, or has more than
            64 bits.

    Thread safety: any number of threads; the GIL is released for the whole range. Cost: with ``verify_crc`` one pass
    over the bytes at the speed of CRC-32C.
    """
    require_buffer("buffer", buffer)
    require_flag("verify_crc", verify_crc)
    require_int64("base_position", base_position, least=0)
    if require_text("on_fault", on_fault) not in ("raise", "return"):
        raise ValueError(f"on_fault is 'raise' or 'return', not {on_fault!r}")
    columns, end_position, partial, fault = scan_batches(buffer, base_position=base_position, verify_crc=verify_crc)
    if fault is not None and on_fault == "raise":
        raise fault
    return BatchTable(**columns, end_position=end_position, partial=partial, fault=fault)  # type: ignore[arg-type]
