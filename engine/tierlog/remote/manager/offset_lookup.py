"""From a time to an offset, as Kafka's ``offsetsForTimes`` answers over a tier.

The first segment whose largest timestamp is late enough is searched: time index, offset index, then the batches from
there on. As there, the first *record* counts, and control records are records: a transaction marker carries the
broker's clock and can be the answer.

Source: Kafka RemoteLogManager#findOffsetByTimestamp, RemoteIndexCache#lookupTimestamp, LogSegment.
Unlike there, a search that finds nothing (the late record lies on an abandoned branch) goes on in the next segment.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from tierlog._native.decoding import RecordDecoder
from tierlog._native.indexes import lookup_timestamp
from tierlog.errors import CorruptDataError, CorruptIndexError
from tierlog.records.batch_runs import BatchRun
from tierlog.remote.api import IndexType
from tierlog.remote.manager.batch_borders import BatchBorders
from tierlog.remote.metadata.batch_stream import iter_batch_runs, place_of
from tierlog.remote.metadata.history import PartitionHistory, StoredSpan
from tierlog.remote.storage.segment import StoredSegment
from tierlog.remote.storage.tier import Tier

#: The search reads on from an index entry, a few KiB before its answer as a rule.
WINDOW_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """The answer: a record's offset and its timestamp in ms."""

    offset: int
    timestamp_ms: int


def find_offset_by_timestamp(
    tier: Tier, history: PartitionHistory, timestamp_ms: int, *, end_offset_exclusive: int | None = None
) -> TimestampedOffset | None:
    """The first record of that time or later; None if there is none below the end.

    Args:
        tier: The tier of the history.
        history: Of one partition.
        timestamp_ms: What to look for.
        end_offset_exclusive: By default the history's end; an answer at or behind it counts as none.

    Raises:
        CorruptRecordError, CorruptObjectError, StoreError and its kinds: as reading the log does.
    """
    end = history.end_offset_exclusive if end_offset_exclusive is None else end_offset_exclusive
    for span in history.spans_between(history.log_start_offset, end):
        if span.segment.metadata.max_timestamp_ms >= timestamp_ms:
            found = _search(tier, span, timestamp_ms)
            if found is not None:
                return found
    return None


def first_late_offset(tier: Tier, segment: StoredSegment, timestamp_ms: int) -> int:
    """An offset below which no record of the segment is of that time or later, as far as its time index knows."""
    try:
        data = tier.fetch_index(segment, IndexType.TIMESTAMP)
        if not data:
            return segment.start_offset
        earlier_ms, offset = lookup_timestamp(data, segment.start_offset, timestamp_ms - 1)
    except CorruptIndexError:
        return segment.start_offset
    return segment.start_offset if earlier_ms < 0 else max(segment.start_offset, offset + 1)


def fetch_borders(tier: Tier, segment: StoredSegment) -> BatchBorders:
    """The batch borders that the segment's offset index knows; none where the layout has no such index.

    Raises:
        CorruptIndexError, CorruptObjectError: the index is damaged; names it.
        ObjectNotFoundError, StoreError and its kinds: as ``Tier.fetch_index``.
    """
    data = tier.fetch_index(segment, IndexType.OFFSET)
    if not data:
        return BatchBorders.unknown(segment.size_bytes)
    try:
        return BatchBorders.of_index(data, segment.start_offset, segment.size_bytes)
    except CorruptIndexError as error:
        raise error.located(f"{segment.name} (offset index)") from None


def _search(tier: Tier, span: StoredSpan, timestamp_ms: int) -> TimestampedOffset | None:
    segment = span.segment
    near = max(span.first_offset, _index_offset(tier, segment, timestamp_ms))
    try:
        position = fetch_borders(tier, segment).start_position(near)
    except CorruptDataError:
        position = 0
    with closing(iter_batch_runs(tier, segment, position, window_bytes=WINDOW_BYTES)) as runs:  # type: ignore[type-var]
        for run in runs:
            found = _search_run(run, span, timestamp_ms)
            if found is not None:
                return found
            if int(run.column("base_offset")[-1]) >= span.end_offset_exclusive:
                return None
    return None


def _index_offset(tier: Tier, segment: StoredSegment, timestamp_ms: int) -> int:
    """Where to begin: the last offset of a batch before which no record is of that time or later."""
    try:
        data = tier.fetch_index(segment, IndexType.TIMESTAMP)
        return lookup_timestamp(data, segment.start_offset, timestamp_ms)[1] if data else segment.start_offset
    except CorruptDataError:
        return segment.start_offset


def _search_run(run: BatchRun, span: StoredSpan, timestamp_ms: int) -> TimestampedOffset | None:
    late = run.column("max_timestamp") >= timestamp_ms
    try:
        inside = (run.column("last_offset") >= span.first_offset) & run.begins_below(span.end_offset_exclusive)
    except CorruptDataError as error:
        raise error.located(place_of(span.segment)) from None
    for batch in np.flatnonzero(late & inside):
        decoder = RecordDecoder(
            ["offset", "timestamp"],
            base_position=int(run.column("position")[batch]),
            from_offset=span.first_offset,
            to_offset_exclusive=span.end_offset_exclusive,
            from_timestamp_ms=timestamp_ms,
            control_records=True,
        )
        try:
            rows = [*decoder.feed(run.bytes_of(int(batch))), *decoder.finish()]
        except CorruptDataError as error:
            raise error.located(place_of(span.segment)) from None
        for part in rows:
            if part.num_rows:
                return TimestampedOffset(part["offset"][0].as_py(), int(part["timestamp"].cast("int64")[0].as_py()))
    return None
