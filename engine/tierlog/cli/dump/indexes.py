"""The comparison of index entries with their log for ``tierlog dump``, as kafka-dump-log does it.

Entries are taken as they lie in the file: the first entry of a preallocated index is always shown, the zeros behind the
last are not. Zeros are no fault: a broker trims them when it closes the segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tierlog.cli.dump.sources import LogOutline
from tierlog.log.formats import offset_index, time_index

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


@dataclass(slots=True)
class IndexFindings:
    """Entries that the log contradicts.

    Attributes:
        offset_mismatches: Entry's offset → last offset of the batch at its position.
        no_batch: (offset, position) of entries whose position is no batch border.
        timestamp_mismatches: (entry's timestamp, that of the batch).
        out_of_order: (entry's timestamp, that of the entry before).
        offsets_not_found: (entry's offset, last offset of the batch that holds it; -1 if none does).
    """

    offset_mismatches: dict[int, int] = field(default_factory=dict)
    no_batch: list[tuple[int, int]] = field(default_factory=list)
    timestamp_mismatches: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    offsets_not_found: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.offset_mismatches
            or self.no_batch
            or self.timestamp_mismatches
            or self.out_of_order
            or self.offsets_not_found
        )


def offset_entries(data: bytes, base_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(offsets, positions) of the entries that kafka-dump-log shows."""
    raw = np.frombuffer(data, _OFFSET_ENTRY, count=len(data) // offset_index.ENTRY_SIZE_BYTES)
    shown = raw[: _shown(raw["offset"])]
    return shown["offset"].astype(np.int64) + base_offset, shown["position"].astype(np.int64)


def time_entries(data: bytes, base_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(timestamps, offsets) of the entries that kafka-dump-log shows."""
    raw = np.frombuffer(data, _TIME_ENTRY, count=len(data) // time_index.ENTRY_SIZE_BYTES)
    shown = raw[: _shown(raw["offset"])]
    return shown["timestamp"].astype(np.int64), shown["offset"].astype(np.int64) + base_offset


def _shown(relative_offsets: NDArray[np.int32]) -> int:
    """How many entries are shown: up to the first, but the very first, that has the base offset; there preallocation
    begins.
    """
    zeros = np.flatnonzero(relative_offsets[1:] == 0)
    return int(zeros[0]) + 1 if zeros.size else int(relative_offsets.size)


def compare_offsets(offsets: NDArray[np.int64], positions: NDArray[np.int64], log: LogOutline) -> IndexFindings:
    """Compare each entry's offset with the last offset of the batch at its position."""
    findings = IndexFindings()
    places = np.searchsorted(log.positions, positions)
    for offset, position, place in zip(offsets.tolist(), positions.tolist(), places.tolist(), strict=True):
        if place == log.positions.size or int(log.positions[place]) != position:
            findings.no_batch.append((offset, position))
        elif int(log.last_offsets[place]) != offset:
            findings.offset_mismatches[offset] = int(log.last_offsets[place])
    return findings


def compare_times(timestamps: NDArray[np.int64], offsets: NDArray[np.int64], log: LogOutline) -> IndexFindings:
    """Compare each entry with the batch that ends with its offset, and with the entry before."""
    findings = IndexFindings()
    places = np.searchsorted(log.last_offsets, offsets)
    before = -1
    for timestamp, offset, place in zip(timestamps.tolist(), offsets.tolist(), places.tolist(), strict=True):
        found = int(log.last_offsets[place]) if place < log.last_offsets.size else -1
        if found != offset:
            findings.offsets_not_found.append((offset, found))
        else:
            if int(log.max_timestamps[place]) != timestamp:
                findings.timestamp_mismatches.append((timestamp, int(log.max_timestamps[place])))
            if before >= timestamp:
                findings.out_of_order.append((timestamp, before))
        before = timestamp
    return findings
