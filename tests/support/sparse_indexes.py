"""Offset and time indexes in plain Python: files of given entries, and those of a segment of given batches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from tierlog.arguments import INT32_MAX

_OFFSET_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])


def encode_offset_index(base_offset: int, offsets: ArrayLike, positions: ArrayLike) -> bytes:
    """Encode an index, without preallocation.

    Raises:
        ValueError: offsets do not strictly rise, or an offset or position does not fit its 31 bits.
    """
    absolute = np.asarray(offsets, np.int64)
    relative = absolute - base_offset
    places = np.asarray(positions, np.int64)
    if absolute.shape != places.shape or absolute.ndim != 1:
        raise ValueError("offsets and positions differ in shape")
    if absolute.size and (relative[0] < 0 or relative[-1] > INT32_MAX or (np.diff(absolute) <= 0).any()):
        raise ValueError(f"offsets must strictly rise from {base_offset}, at most 2^31-1 above it")
    if ((places < 0) | (places > INT32_MAX)).any():
        raise ValueError("a position is not 0 … 2^31-1")
    entries = np.empty(absolute.size, _OFFSET_ENTRY)
    entries["relative_offset"] = relative
    entries["position"] = places
    return entries.tobytes()


def encode_time_index(base_offset: int, timestamps_ms: ArrayLike, offsets: ArrayLike) -> bytes:
    """Encode an index, without preallocation.

    Raises:
        ValueError: timestamps do not strictly rise, offsets fall, or an offset does not fit its 31 bits.
    """
    times = np.asarray(timestamps_ms, np.int64)
    relative = np.asarray(offsets, np.int64) - base_offset
    if times.shape != relative.shape or times.ndim != 1:
        raise ValueError("timestamps and offsets differ in shape")
    if times.size and (relative[0] < 0 or relative[-1] > INT32_MAX or (np.diff(relative) < 0).any()):
        raise ValueError(f"offsets may not fall, nor leave {base_offset} … {base_offset + INT32_MAX}")
    if (np.diff(times) <= 0).any():
        raise ValueError("timestamps must strictly rise")
    entries = np.empty(times.size, _TIME_ENTRY)
    entries["timestamp"] = times
    entries["relative_offset"] = relative
    return entries.tobytes()


def indexes_of(
    base_offset: int, batches: Iterable[tuple[int, int, int]], *, interval_bytes: int
) -> tuple[bytes, bytes]:
    """(offset index, time index) of a closed segment of batches: (last offset, greatest timestamp, size in bytes).

    Source: Kafka LogSegment#append, #onBecomeInactiveSegment (4.3).
    """
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position, since_entry, greatest = 0, 0, (-1, base_offset)
    for last_offset, timestamp_ms, size_bytes in batches:
        if timestamp_ms > greatest[0]:
            greatest = (timestamp_ms, last_offset)
        if since_entry > interval_bytes:
            offsets.append((last_offset, position))
            since_entry = 0
            if greatest[0] > (times[-1][0] if times else -1):
                times.append(greatest)
        position += size_bytes
        since_entry += size_bytes
    if greatest[0] > (times[-1][0] if times else -1):
        times.append(greatest)
    columns = [list(column) for rows in (offsets, times) for column in (zip(*rows, strict=True) if rows else ((), ()))]
    return encode_offset_index(base_offset, *columns[:2]), encode_time_index(base_offset, *columns[2:])
