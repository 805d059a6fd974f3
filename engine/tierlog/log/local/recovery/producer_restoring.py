"""Producers' state restored from the newest snapshot and the log behind it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.local.producers.producer_replay import ProducerReplay
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.log.local.segments.log_segments import LogSegments
from tierlog.records.batch_runs import BatchRuns
from tierlog.runtime.machine.buffers import new_buffer

_log = logging.getLogger(__name__)

#: Of one read.
WINDOW_BYTES: Final = 1 << 20


def restore_producers(
    *,
    segments: LogSegments,
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    log_start_offset: int,
    up_to_offset: int,
    now_ms: int,
    keep_later_snapshots: bool = False,
) -> None:
    """Let the producers be as they were at an offset: of a log that was cut there, or is opened (Kafka
    rebuildProducerState).

    Snapshots that lie outside of the log are deleted, the newest of the others is loaded, and the batches from there on
    are replayed, which needs no checksum. Snapshots are taken at the begin of the last two segments and at the offset.

    Args:
        segments: Those of the log; only what is in front of ``up_to_offset`` is read.
        producers: Changed.
        snapshots: Of the log's folder.
        log_start_offset: Of the log.
        up_to_offset: Behind the last batch that counts.
        now_ms: Producers that have expired by then are forgotten.
        keep_later_snapshots: Those behind the offset are of records that are in the log.

    Raises:
        CorruptRecordError: the log cannot be read. StoreError.
    """
    was_empty = producers.is_empty and producers.end_offset >= up_to_offset
    if not keep_later_snapshots:
        snapshots.truncate(log_start_offset=log_start_offset, log_end_offset=up_to_offset)
    if producers.end_offset == up_to_offset:
        latest = max((offset for offset in snapshots.offsets if offset <= up_to_offset), default=None)
        producers.on_log_start(log_start_offset, latest_snapshot_offset=latest)
    else:
        snapshots.load_latest(producers, log_start_offset=log_start_offset, log_end_offset=up_to_offset, now_ms=now_ms)
    # Kafka skips the replay of a log that knew no producer, and so leaves a transaction of the snapshot open for ever
    # if its producer expired since: its marker lies behind the snapshot.
    if up_to_offset > producers.end_offset and not (was_empty and producers.is_empty):
        due_at = {segment.base_offset for segment in segments.segments[-2:]}
        for segment in segments.between(producers.end_offset, up_to_offset):
            producers.end_offset = max(segment.base_offset, producers.end_offset, log_start_offset)
            if segment.base_offset in due_at:
                snapshots.take(producers)
            _replay(segment, producers, up_to_offset)
    producers.end_offset = up_to_offset
    snapshots.take(producers)


def _replay(segment: LogSegment, producers: ProducerState, up_to_offset: int) -> None:
    """Take a segment's batches from the producers' end on, up to the one that reaches an offset."""
    from_offset = producers.end_offset
    start, end = _bounds(segment, from_offset, up_to_offset)

    def read(position: int, size_bytes: int) -> memoryview:
        buffer = new_buffer(size_bytes)
        return buffer[: segment.read_into(buffer, position=position)]

    runs = BatchRuns(_windows(segment, start, end), end_position=start)
    replay = ProducerReplay(producers, read=read)
    try:
        for run in runs:
            last_offsets = run.column("last_offset")
            inside = (last_offsets >= from_offset) & (last_offsets < up_to_offset)
            replay.feed({name: column[inside] for name, column in run.columns.items()})
        replay.finish()
        if runs.broken is not None:
            raise runs.broken
        if runs.oversized:
            text = f"a batch of {runs.rest_size_bytes} bytes: none is so large"
            raise CorruptRecordError(text, fault="BAD_SIZE", position=runs.end_position)
    except CorruptRecordError as error:
        raise error.located(segment.log_path) from None


def _bounds(segment: LogSegment, from_offset: int, up_to_offset: int) -> tuple[int, int]:
    """Where the batches of a range lie, bytes; all of the log where the offset index is of no use."""
    try:
        first = segment.find_batch(from_offset)
        behind = segment.find_batch(up_to_offset)
    except CorruptIndexError as error:
        _log.warning("%s: read without its index: %s", segment.log_path, str(error))  # not its traceback's segments
        return 0, segment.size_bytes
    if first is None:
        return 0, 0
    return first.position, segment.size_bytes if behind is None else behind.position


def _windows(segment: LogSegment, position: int, end: int) -> Iterator[memoryview]:
    """The bytes of a range; each window is good until the next is asked for."""
    buffer = new_buffer(min(WINDOW_BYTES, max(0, end - position)))
    while position < end:
        count = segment.read_into(buffer[: min(len(buffer), end - position)], position=position)
        if not count:
            return
        yield buffer[:count]
        position += count
