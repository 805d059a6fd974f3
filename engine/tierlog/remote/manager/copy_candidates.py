"""Which segments of a log are copied to the tier now. A rule alone, without any I/O."""

from __future__ import annotations

from typing import NamedTuple

from tierlog.log.partition_log import PartitionConfig, PartitionLog, PartitionSegment


class CopyCandidate(NamedTuple):
    """A closed segment that is copied.

    Attributes:
        end_offset: Exclusive.
    """

    segment: PartitionSegment
    end_offset: int


def find_copy_candidate(log: PartitionLog, *, copied_offset: int, now_ms: int) -> CopyCandidate | None:
    """Find the next segment to copy: the first closed one that holds an offset which the tier lacks, and that the log
    still has. All of it lies below the last stable offset.

    A topic may delay its copies: then a segment waits until its newest record is ``remote.copy.lag.ms`` old, or until
    ``remote.copy.lag.bytes`` lie behind it, whichever comes first.

    Args:
        log: The leader's.
        copied_offset: The last one in the tier, inclusive; -1: none is.
        now_ms: The time, ms since 1970 UTC.

    Source: Kafka RLMCopyTask#candidateLogSegments; KIP-1241.
    """
    first = max(copied_offset + 1, log.log_start_offset)
    closed = log.closed_segments(first)
    if not closed:
        return None
    segment, end_offset = closed[0]
    if end_offset <= first or not _is_due(log, segment, end_offset, now_ms):
        return None
    return CopyCandidate(segment, end_offset)


def _is_due(log: PartitionLog, segment: PartitionSegment, end_offset: int, now_ms: int) -> bool:
    config: PartitionConfig = log.config
    lag_ms = _lag(config.remote_copy_lag_ms, config.local_retention_ms, config.retention_ms)
    lag_bytes = _lag(config.remote_copy_lag_bytes, config.local_retention_bytes, config.retention_bytes)
    if lag_ms is None and lag_bytes is None:
        return True
    if lag_ms is not None and lag_ms >= 0 and now_ms - segment.largest_timestamp_ms >= lag_ms:
        return True
    if lag_bytes is None or lag_bytes < 0:
        return False
    return sum(each.size_bytes for each in log.log_segments(end_offset)) >= lag_bytes


def _lag(lag: int | None, local_retention: int, retention: int) -> int | None:
    """Return a lag where it stands for the local retention; negative: that has no limit, and the check never passes."""
    if lag is None or lag >= 0:
        return lag
    return retention if local_retention == -2 else local_retention
