"""The indexes of a segment in plain Python: what the native entries of a growing segment are compared with."""

from __future__ import annotations

from collections.abc import Iterable

from tierlog.log.formats.segment_indexes import encode_offset_index, encode_time_index


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
