"""The end of a segment, for layouts that do not say: from the ends of its indexes and the batches behind them.

A broker's disk and Kafka's own test storage have no description of a segment. Its last offset, largest timestamp and
(of an active segment) last valid batch are in the log behind the last entry of the offset index: at most
``index.interval.bytes`` and one batch. Without an index the whole log is walked, headers only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tierlog._native import indexes
from tierlog._native.batches import find_batch_header, find_batch_size, scan_batches
from tierlog.errors import CorruptRecordError
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX
from tierlog.records.batch_table import HEADER_BYTES
from tierlog.remote.api import IndexType

#: A segment's offsets lie within an int32 of its first one: the offset index cannot hold more.
OFFSET_SPAN_MAX: Final = 2**31 - 1
UNKNOWN_TIMESTAMP_MS: Final = 2**63 - 1
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_MAGIC_V2: Final = 2
_WALK_BYTES: Final = 1 << 20

#: (start, end exclusive) → exactly these bytes of a file.
ReadRange = Callable[[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """The bounds that the batches of a log show.

    Args:
        end_offset: Last offset of the last batch that counts; None without any.
        max_timestamp_ms: Largest one; -1 without any.
        valid_bytes: Behind the last batch that counts. Less than the file's size: a torn or damaged tail.
        leader_epochs: Epoch → first offset, of the batches that were walked.
        from_start: The whole log was walked, so that ``leader_epochs`` is complete.
    """

    end_offset: int | None
    max_timestamp_ms: int
    valid_bytes: int
    leader_epochs: dict[int, int] = field(default_factory=dict)
    from_start: bool = False


def find_last_entry(read: ReadRange, size_bytes: int, entry_bytes: int) -> bytes | None:
    """Find the last entry of an index that is not all zero; None without one.

    The file of an active segment is allocated ahead (10 MiB by default) and zero behind its last entry, which a binary
    search finds in a few small reads.
    """
    count = size_bytes // entry_bytes

    def entry(number: int) -> bytes:
        return bytes(read(number * entry_bytes, (number + 1) * entry_bytes))

    if count == 0:
        return None
    if any(last := entry(count - 1)):
        return last
    low, high = 0, count - 1  # entry(high) is zero; all below low are not
    found: bytes | None = None
    while low < high:
        middle = (low + high) // 2
        if any(candidate := entry(middle)):
            found, low = candidate, middle + 1
        else:
            high = middle
    return found


def last_indexed_position(entry: bytes | None) -> int:
    """Return the position in the log that the last entry of an offset index gives; 0 without one."""
    return max(0, int(_OFFSET_ENTRY.unpack(entry)[1])) if entry else 0


def last_indexed_timestamp_ms(entry: bytes | None) -> int:
    """Largest timestamp that a time index gives: its last entry's; -1 without one."""
    return int(_TIME_ENTRY.unpack(entry)[0]) if entry else -1


def find_bounds(
    read: ReadRange, size_bytes: int, *, from_position: int = 0, max_timestamp_ms: int = -1
) -> SegmentBounds:
    """Walk the batches of a log from a position on; the last one with a right checksum is the last that counts.

    Args:
        read: Of the log.
        size_bytes: Of the log.
        from_position: A batch begins there, says the offset index; if none does, the walk begins at 0.
        max_timestamp_ms: Largest timestamp of what lies before.
    """
    if 0 < from_position < size_bytes:
        found = _walk(read, size_bytes, from_position, max_timestamp_ms)
        if found.end_offset is not None:
            return found
    return _walk(read, size_bytes, 0, -1)


def first_offset(read: ReadRange, size_bytes: int) -> int:
    """Base offset of the first batch; 0 where it does not say (an old wrapper's is its last record's, or damage)."""
    try:
        header = find_batch_header(read(0, min(HEADER_BYTES, size_bytes)))
    except CorruptRecordError:
        return 0
    if header is None or header.magic != _MAGIC_V2 or not 0 <= header.base_offset < 2**63 - 1 - OFFSET_SPAN_MAX:
        return 0
    return header.base_offset


def _walk(read: ReadRange, size: int, start: int, max_timestamp_ms: int) -> SegmentBounds:
    at = valid = start
    end_offset: int | None = None
    epochs: dict[int, int] = {}
    while at < size:
        window = _window(read, at, size)
        if window is None:
            break
        columns, behind, _, fault = scan_batches(window, base_position=at, verify_crc=True)
        good = np.flatnonzero(columns["crc_ok"])
        if good.size:
            last = int(good[-1])
            end_offset = int(columns["last_offset"][last])
            valid = int(columns["position"][last]) + int(columns["size_bytes"][last])
            max_timestamp_ms = max(max_timestamp_ms, int(columns["max_timestamp"][: last + 1].max()))
            _add_epochs(epochs, columns["leader_epoch"][: last + 1], columns["base_offset"][: last + 1])
        at = behind
        if fault is not None:
            break
    return SegmentBounds(end_offset, max_timestamp_ms, valid, epochs, from_start=start == 0)


def _window(read: ReadRange, at: int, size: int) -> memoryview | None:
    """Read the bytes from a batch border on, with at least one whole batch; None if there is no whole one."""
    window = read(at, min(at + _WALK_BYTES, size))
    try:
        batch_bytes = find_batch_size(window)
    except CorruptRecordError:
        return None
    if batch_bytes is None or at + batch_bytes > size:
        return None
    if batch_bytes <= len(window):
        return window
    return read(at, at + batch_bytes) if batch_bytes <= BATCH_SIZE_BYTES_MAX else None


def _add_epochs(epochs: dict[int, int], leader_epochs: np.ndarray, base_offsets: np.ndarray) -> None:
    changes = np.flatnonzero(np.diff(leader_epochs, prepend=leader_epochs[0] - 1))
    for epoch, offset in zip(leader_epochs[changes].tolist(), base_offsets[changes].tolist(), strict=True):
        last_epoch, last_offset = next(reversed(epochs.items()), (-1, -1))
        if epoch > last_epoch and offset > last_offset:  # both rise in a sound log; damage must not look like lineage
            epochs[epoch] = offset


def without_preallocation(index_type: IndexType, data: bytes, *, leaves_mark: bool = False) -> bytes:
    """Return the entries of an offset or time index; any other part of a segment as it is.

    Args:
        index_type: Of the part.
        data: The part's bytes.
        leaves_mark: Leave one zero entry where there were any: ``is_untrimmed`` goes on to say that entries which a
            truncation took back may stand behind those in use.
    """
    if index_type is IndexType.OFFSET:
        entries, size_bytes = indexes.offset_index_entries(data), OFFSET_ENTRY_BYTES
    elif index_type is IndexType.TIMESTAMP:
        entries, size_bytes = indexes.time_index_entries(data), TIME_ENTRY_BYTES
    else:
        return data
    return data[: (entries + leaves_mark) * size_bytes]
