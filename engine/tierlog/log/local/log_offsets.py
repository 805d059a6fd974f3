"""The offsets of a log as one value, and how far a read may go."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, Protocol

from tierlog.log.local.segments.log_segments import LogSegments

#: Special timestamps of ListOffsets.
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6


class FetchIsolation(enum.Enum):
    """Up to where a read sees the log."""

    LOG_END = "log end"
    """Followers: all of it."""
    HIGH_WATERMARK = "high watermark"
    """Consumers that read uncommitted: what is replicated."""
    TXN_COMMITTED = "last stable offset"
    """Consumers that read committed: what lies before the first open transaction."""


class LogOffsets(NamedTuple):
    """The offsets of a log at one moment: log start <= local log start <= HW <= log end, and log start <= LSO <= HW.

    The LSO lies below the local log start where a transaction is open that began in the tier: of a follower that was
    built from it, until the marker is fetched.

    Attributes:
        log_start_offset: First that can be read, here or in the tier.
        local_log_start_offset: First that can be read here.
        last_stable_offset: Where readers of committed records end, exclusive.
        high_watermark: Replicated up to here, exclusive.
        log_end_offset: The next one.
        recovery_point: Flushed up to here, exclusive.
        highest_offset_in_remote_storage: Last one that is copied, inclusive; -1 if none is.
    """

    log_start_offset: int
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int
    highest_offset_in_remote_storage: int = -1


class OffsetsListener(Protocol):
    """Who wants to know when offsets change: a long poll, a lag metric."""

    def __call__(self, offsets: LogOffsets) -> None:
        """Take the log's newest offsets. Called after a change, outside the log's lock, by the thread that made the
        change; it may come twice with the same offsets, and must neither raise nor wait.
        """


class LogState(NamedTuple):
    """A log at one moment, as readers take it: nothing of it is changed, it is replaced as a whole.

    Attributes:
        end_position: Size of the active segment: where the log end offset lies.
        generation: How often the log was cut: positions of another generation mean nothing.
    """

    offsets: LogOffsets
    segments: LogSegments
    end_position: int
    generation: int
