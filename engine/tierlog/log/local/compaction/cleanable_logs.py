"""The part of a log that may be compacted, and how urgent that is. Rules alone: nothing is changed here.

Source: Kafka LogCleanerManager's static functions, LogToClean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from tierlog.log.local.directory.directory_files import PartitionKey
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import LogState
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.log.local.unified_log import UnifiedLog

_NEVER: Final = 2**63 - 1


class CleanableOffsets(NamedTuple):
    """The offsets of a log that may be cleaned (Kafka OffsetsToClean).

    Attributes:
        first_uncleanable_offset: Exclusive end; at or above ``first_dirty_offset``.
        is_reset: Whether the checkpoint is not one of this log, and has to become ``first_dirty_offset``.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_reset: bool


def find_cleanable_offsets(
    state: LogState, config: LogConfig, last_clean_offset: int | None, now_ms: int
) -> CleanableOffsets:
    """Find what may be cleaned: from the checkpoint on, in front of the active segment, of the last stable offset, and
    of the first segment that has a record younger than ``min.compaction.lag.ms``.

    Args:
        state: The log.
        config: The log's.
        last_clean_offset: The checkpoint; None: there is none.
        now_ms: The time, ms since 1970 UTC.

    Raises:
        CorruptIndexError: of a segment's time index. StoreError.
    """
    offsets, active = state.offsets, state.segments.active
    start = offsets.log_start_offset
    first_dirty = start if last_clean_offset is None else last_clean_offset
    is_reset = not start <= first_dirty <= offsets.log_end_offset
    if is_reset:
        first_dirty = start
    limits = [offsets.last_stable_offset, active.base_offset]
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        dirty = _closed_from(state, first_dirty)
        young = (segment for segment in dirty if segment.largest_timestamp_ms > now_ms - lag_ms)
        limits.append(next(young, active).base_offset)
    return CleanableOffsets(first_dirty, max(first_dirty, min(limits)), is_reset)


def find_cleanable_bytes(state: LogState, first_dirty_offset: int, uncleanable_offset: int) -> tuple[int, int]:
    """(base offset of the first segment that cannot be cleaned, bytes of the dirty segments in front of it)."""
    first = next(iter(_closed_from(state, uncleanable_offset)), state.segments.active).base_offset
    dirty = _between(state, min(first_dirty_offset, first), first)
    return first, sum(segment.size_bytes for segment in dirty)


def find_compaction_delay_ms(state: LogState, config: LogConfig, first_dirty_offset: int, now_ms: int) -> int:
    """Find for how long a log has been due by ``max.compaction.lag.ms``; 0 if it is not.

    Raises:
        CorruptRecordError: of a segment's first batch. StoreError.
    """
    clean_until_ms = now_ms - config.max_compaction_lag_ms
    if clean_until_ms <= 0:
        return 0  # no batch has such a timestamp, and none is read for it
    firsts = (segment.first_batch_timestamp_ms for segment in _closed_from(state, first_dirty_offset))
    earliest_ms = min((first_ms for first_ms in firsts if first_ms is not None and first_ms > 0), default=_NEVER)
    return max(0, clean_until_ms - earliest_ms)


def _closed_from(state: LogState, from_offset: int) -> tuple[LogSegment, ...]:
    """The segments in front of the active one, from the one that contains an offset on."""
    return _between(state, from_offset, state.segments.active.base_offset)


def _between(state: LogState, from_offset: int, to_offset: int) -> tuple[LogSegment, ...]:
    """The segments from the one that contains an offset on, with base offsets below another; none if the first is not
    below the second.
    """
    return state.segments.between(from_offset, to_offset) if from_offset < to_offset else ()


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with what may be cleaned of it.

    Attributes:
        first_uncleanable_offset: The base offset of a segment.
        clean_bytes: Of the segments that begin in front of ``first_dirty_offset``.
        cleanable_bytes: Of the dirty ones.
        delay_ms: For how long it has been due by ``max.compaction.lag.ms``; 0 if it is not.
    """

    key: PartitionKey
    log: UnifiedLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @classmethod
    def of(cls, key: PartitionKey, log: UnifiedLog, state: LogState, offsets: CleanableOffsets, now_ms: int) -> Self:
        """Look at a log, in this state. Raises as ``find_compaction_delay_ms``."""
        first_dirty = offsets.first_dirty_offset
        delay_ms = find_compaction_delay_ms(state, log.config, first_dirty, now_ms)
        clean_bytes = sum(segment.size_bytes for segment in _between(state, -1, first_dirty))
        uncleanable, cleanable_bytes = find_cleanable_bytes(state, first_dirty, offsets.first_uncleanable_offset)
        return cls(key, log, first_dirty, uncleanable, clean_bytes, cleanable_bytes, delay_ms)

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it has to be cleaned by ``max.compaction.lag.ms``, whatever its ratio."""
        return self.delay_ms > 0 and self.cleanable_bytes > 0

    @property
    def may_be_cleaned(self) -> bool:
        """Whether it is due, or enough of it is new by ``min.cleanable.dirty.ratio``."""
        return self.is_due or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio

    @property
    def urgency(self) -> tuple[bool, float]:
        """The greatest goes first: a due log, then that of the greatest ratio. Kafka goes by the ratio alone, so that a
        due log waits behind all that are dirtier.
        """
        return self.is_due, self.cleanable_ratio
