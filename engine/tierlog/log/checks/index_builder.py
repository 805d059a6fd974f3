"""The indexes of a segment, rebuilt from its batches as Kafka 4.3 builds them while appending.

A copy without one of its indexes (or with one that does not pass its check) is made whole by this, and the verifier
compares with it. Brokers before 4.3 wrote one entry an append of several batches, not one a batch: their indexes are
sound and differ from what is built here.

Source: Kafka LogSegment#append, #recover and #onBecomeInactiveSegment
(docs/formats/log-files.md, Offset index).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.offset_index import encode_offset_index
from tierlog.log.formats.time_index import encode_time_index
from tierlog.records.batch_runs import BatchColumns

#: Kafka's default of index.interval.bytes.
INDEX_INTERVAL_BYTES = 4096
NO_TIMESTAMP = -1
_INT32_MAX = 2**31 - 1


class IndexBuilder:
    """Builds the offset index and the time index of one segment from its batches in file order.

    An offset entry (last offset, position) is due at the first batch that lies more than ``index_interval_bytes``
    behind the last entry's; so the first batch never gets one. With each goes a time entry of the largest timestamp so
    far, if that rose. The last time entry is that of closing the segment.

    Args:
        base_offset: The segment's base offset.
        index_interval_bytes: The topic's index.interval.bytes when the segment was written.
    """

    def __init__(self, base_offset: int, *, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._offset_entries: list[tuple[int, int]] = []
        self._time_entries: list[tuple[int, int]] = []
        self._last_offset = base_offset - 1
        self._largest = (NO_TIMESTAMP, base_offset)

    def add(self, columns: BatchColumns) -> None:
        """Take further batches.

        Args:
            columns: Columns of ``scan_batches``; positions count from the start of the segment.

        Raises:
            CorruptRecordError: offsets do not rise, or do not fit an index of this base offset.
        """
        last_offsets = columns["last_offset"].astype(np.int64)
        positions = columns["position"].astype(np.int64)
        if not last_offsets.size:
            return
        self._check(last_offsets, positions)
        times, offsets = self._running_maximum(columns["max_timestamp"].astype(np.int64), last_offsets)
        indexed = self._offset_entries[-1][1] if self._offset_entries else 0
        while (at := int(np.searchsorted(positions, indexed + self._interval, side="right"))) < positions.size:
            indexed = int(positions[at])
            self._offset_entries.append((int(last_offsets[at]), indexed))
            self._append_time(int(times[at]), int(offsets[at]))
        self._last_offset = int(last_offsets[-1])
        self._largest = (int(times[-1]), int(offsets[-1]))

    def offset_index(self) -> bytes:
        """The ``.index`` of the batches so far."""
        entries = np.array(self._offset_entries, np.int64).reshape(-1, 2)
        return encode_offset_index(self._base_offset, entries[:, 0], entries[:, 1])

    def time_index(self, *, closed: bool = True) -> bytes:
        """The ``.timeindex`` of the batches so far.

        Args:
            closed: Whether to add the entry of a roll or a clean stop; False for a segment that is still written to.
        """
        rows = list(self._time_entries)
        if closed and self._largest[0] > self._last_time():
            rows.append(self._largest)
        entries = np.array(rows, np.int64).reshape(-1, 2)
        return encode_time_index(self._base_offset, entries[:, 0], entries[:, 1])

    def _last_time(self) -> int:
        return self._time_entries[-1][0] if self._time_entries else NO_TIMESTAMP

    def _append_time(self, timestamp_ms: int, offset: int) -> None:
        if timestamp_ms > self._last_time():
            self._time_entries.append((timestamp_ms, offset))

    def _running_maximum(
        self, timestamps: NDArray[np.int64], last_offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(largest timestamp up to each batch, last offset of the batch that first had it)."""
        largest, offset = self._largest
        times = np.maximum.accumulate(np.concatenate(([largest], timestamps)))
        rises = times[1:] > times[:-1]
        holder = np.maximum.accumulate(np.where(rises, np.arange(timestamps.size), -1))
        return times[1:], np.where(holder < 0, offset, last_offsets[holder])

    def _check(self, last_offsets: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        before = np.concatenate(([self._last_offset], last_offsets[:-1]))
        wrong = (last_offsets <= before) | (last_offsets - self._base_offset > _INT32_MAX) | (positions > _INT32_MAX)
        if wrong.any():
            at = int(np.argmax(wrong))
            last = int(last_offsets[at])
            raise CorruptRecordError(
                f"the batch ends at offset {last}, behind {int(before[at])}: no index of base {self._base_offset} fits",
                fault="BAD_OFFSET",
                position=int(positions[at]),
                expected=int(before[at]) + 1,
                found=last,
            )
