"""What a living log has to answer, by the list of its batches: reads, timestamps, what retention lets go.

Written from ``docs/formats/log-files.md`` (reading and lookup; retention), like the model itself.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.log_model import LogModel, ModelSegment
from tierlog.log.local.log_config import LogConfig


class ExpectedRead(NamedTuple):
    data: bytes
    segment_base_offset: int
    position: int
    first_entry_incomplete: bool


def expected_read(
    model: LogModel, start: int, *, limit: int, max_bytes: int, min_one_message: bool
) -> ExpectedRead | None:
    """The bytes of a read; None: nothing to read. The start lies in the log."""
    if start >= limit:
        return None
    last = [segment for segment in model.segments if segment.base_offset <= limit][-1]
    end_position = last.position_of(limit)
    first = [segment for segment in model.segments if segment.base_offset <= start][-1]
    for segment in model.segments[model.segments.index(first) :]:
        position = segment.position_of(start)
        if position is None:
            continue
        if segment.base_offset > last.base_offset:
            return None
        end = segment.size if segment is not last or end_position is None else end_position
        size = next(batch.size for batch in segment.batches if batch.last_offset >= start)
        wanted = max(max_bytes, size) if min_one_message else max_bytes
        data = segment.data[position : min(end, position + wanted)]
        return ExpectedRead(data, segment.base_offset, position, wanted < size) if data else None
    return None


def expected_offset_for(model: LogModel, timestamp_ms: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first local record that is late enough."""
    for segment in model.segments:
        if segment.largest_timestamp_ms >= timestamp_ms:
            for batch in segment.batches:
                for record in batch.records:
                    if record.timestamp_ms >= timestamp_ms and record.offset >= max(
                        model.log_start, model.local_log_start
                    ):
                        return record.timestamp_ms, record.offset, batch.leader_epoch
            return None  # Kafka does not go on to the next segment
    return None


def expected_greatest(model: LogModel) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the greatest timestamp; None without records."""
    records = [record for batch in model.batches for record in batch.records]
    greatest = max((record.timestamp_ms for record in records), default=-1)
    return next(((greatest, r.offset) for r in records if r.timestamp_ms == greatest), None)


def apply_retention(model: LogModel, config: LogConfig, *, tiered: bool, now_ms: int) -> int:
    """Retention by start offset, then size, then time; how many segments went."""
    copies = tiered and not config.remote_log_copy_disable
    size_limit, time_limit = config.retention_bytes, config.retention_ms
    if copies and config.local_retention_bytes != -2:
        size_limit = config.local_retention_bytes
    if copies and config.local_retention_ms != -2:
        time_limit = config.local_retention_ms
    gone = 0
    deletes = "delete" in config.cleanup_policy or (not config.cleanup_policy and copies)
    for rule in ("start", "size", "time") if deletes else ("start",):
        over = model.size - size_limit

        def breaches(segment: ModelSegment, following: int | None, rule: str = rule) -> bool:
            nonlocal over
            if rule == "start":
                start = model.local_log_start if tiered else model.log_start
                return following is not None and following <= start
            if rule == "time":
                return time_limit >= 0 and now_ms - segment.largest_timestamp_ms > time_limit
            if size_limit < 0 or over - segment.size < 0:
                return False
            over -= segment.size
            return True

        count, rolls = 0, False
        for at, segment in enumerate(model.segments):
            following = model.segments[at + 1].base_offset if at + 1 < len(model.segments) else None
            upper = model.end if following is None else following
            if model.high_watermark < upper or not breaches(segment, following):
                break
            rolls = rolls or (tiered and following is None and segment.size > 0)
            if following is None and not segment.batches:
                break
            is_copied = upper > 0 and upper - 1 <= model.highest_remote
            if copies and not is_copied and not (following is not None and model.log_start >= following):
                break
            count += 1
        if rolls:
            model.roll(model.end, now_ms)
        model.drop_segments(count, now_ms=now_ms, moves_local_alone=copies)
        gone += count
    return gone
