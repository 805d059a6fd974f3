"""Retention: the segments that a log deletes by start offset, by size, by time. Rules alone: nothing is deleted here.

Source: Kafka UnifiedLog#deleteOldSegments, #deletableSegments (docs/formats/log-files.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import LogState
from tierlog.log.local.segments.log_segment import LogSegment

#: Whether a rule lets a segment go: it, and the base offset of the next one (None for the last).
Breach = Callable[[LogSegment, int | None], bool]


class Deletable(NamedTuple):
    """Segments that may go, oldest first.

    Attributes:
        rolls: Whether the active segment breaches the rule and has to be rolled, so that it can be copied and go.
    """

    segments: tuple[LogSegment, ...]
    rolls: bool


class RetentionRules:
    """The rules of one log, of which the first applies before the next is asked.

    Args:
        remote_log_enabled: Whether the log is tiered.
    """

    def __init__(self, config: LogConfig, *, remote_log_enabled: bool) -> None:
        self._config = config
        self._tiered = remote_log_enabled
        self._copies = remote_log_enabled and not config.remote_log_copy_disable

    @property
    def copies(self) -> bool:
        """Whether segments are copied to the tier, so that deleting them here moves the local log start alone."""
        return self._copies

    def breaches(self, now_ms: int) -> tuple[Callable[[LogState], Breach | None], ...]:
        """Return the rules in Kafka's order; each gets the state after the deletions of the one before."""
        policy = self._config.cleanup_policy
        if "delete" in policy or (not policy and self._copies):
            return (self._by_start, self._by_size, lambda state: self._by_time(state, now_ms))
        return (self._by_start,)

    def deletable(self, state: LogState, breach: Breach) -> Deletable:
        """Return the segments that a rule deletes: from the oldest on, up to the first that stays."""
        segments, offsets = state.segments.segments, state.offsets
        gone: list[LogSegment] = []
        rolls = False
        for at, segment in enumerate(segments):
            following = segments[at + 1].base_offset if at + 1 < len(segments) else None
            upper = offsets.log_end_offset if following is None else following
            if offsets.high_watermark < upper or not breach(segment, following):
                break
            rolls = rolls or (self._tiered and following is None and segment.size_bytes > 0)
            if (following is None and segment.size_bytes == 0) or not self._may_go(state, following, upper):
                break
            gone.append(segment)
        return Deletable(tuple(gone), rolls)

    def _may_go(self, state: LogState, following: int | None, upper: int) -> bool:
        """Copied, or below the log start: a tiered log deletes nothing else."""
        if not self._copies:
            return True
        offsets = state.offsets
        if upper > 0 and upper - 1 <= offsets.highest_offset_in_remote_storage:
            return True
        return following is not None and offsets.log_start_offset >= following

    def _by_start(self, state: LogState) -> Breach | None:
        offsets = state.offsets
        start = offsets.local_log_start_offset if self._tiered else offsets.log_start_offset
        return lambda _, following: following is not None and following <= start

    def _by_size(self, state: LogState) -> Breach | None:
        config = self._config
        limit = config.local_retention_bytes_resolved if self._copies else config.retention_bytes
        over = state.segments.size_bytes - limit
        if limit < 0 or over < 0:
            return None

        def breach(segment: LogSegment, _: int | None) -> bool:
            nonlocal over
            if over - segment.size_bytes < 0:
                return False
            over -= segment.size_bytes
            return True

        return breach

    def _by_time(self, state: LogState, now_ms: int) -> Breach | None:
        config, offsets = self._config, state.offsets
        limit = config.local_retention_ms_resolved if self._copies else config.retention_ms
        # Where nothing more is copied, the log's start rises with what goes here, and what the tier has in front of it
        # goes too: that may be newer. Here nothing goes by time until nothing lies in front. (Kafka's does not wait.)
        tier_is_first = self._tiered and not self._copies and offsets.log_start_offset < offsets.local_log_start_offset
        if limit < 0 or tier_is_first:
            return None
        return lambda segment, _: now_ms - segment.largest_timestamp_ms > limit
