"""A log as its readers take it: its offsets and segments as one value, and fetches, look-ups by timestamp and aborted
transactions over that value. No lock: a read goes by the state that it takes.


A truncation meanwhile shows as missing bytes, which is a typed error.

Source: Kafka LocalLog#read, UnifiedLog#fetchOffsetByTimestamp (docs/formats/log-files.md).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierlog._native.appends import LogEnd
from tierlog.arguments import INT64_MAX
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.log_errors import OffsetOutOfRangeError
from tierlog.log.local.segments.log_segment import LogSegment, LogSegments
from tierlog.log.local.segments.segment_view import LogSlice, TimestampAndOffset

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
        highest_offset_in_remote_storage: Last copied one, inclusive; -1 if there is none.
    """

    log_start_offset: int
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int
    highest_offset_in_remote_storage: int = -1


#: Called with a log's newest offsets after a change (for a long poll, a lag metric), outside the log's lock, by the
#: thread that made the change; it may come twice with the same offsets, and must neither raise nor wait.
OffsetsListener = Callable[[LogOffsets], None]


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

    def closed_segments(self, from_offset: int) -> tuple[tuple[LogSegment, int], ...]:
        """(segment, end offset exclusive) of those that end at or below the last stable offset, from an offset on."""
        segments = self.segments.between(from_offset, INT64_MAX)
        ends = (segment.base_offset for segment in segments[1:])
        stable = self.offsets.last_stable_offset
        return tuple((segment, end) for segment, end in zip(segments, ends, strict=False) if end <= stable)

    @property
    def only_local(self) -> list[LogSegment]:
        """The segments that the tier does not have, but for those in front of the log start, which retention deletes.
        Kafka counts these too: after a DeleteRecords, retention by size takes as many bytes of the log again; and it
        counts a copied segment of a single offset here as well as in the tier.
        """
        copied = self.offsets.highest_offset_in_remote_storage
        segments = self.segments.from_floor(max(copied, self.offsets.log_start_offset))
        return [segment for segment in segments if segment.base_offset > copied]


@dataclass(slots=True)
class PublishedState:
    """The published state of readers.

    Attributes:
        seen: As it was published, or as a reader found it since.
        end: What native appends move; nothing else is moved without being published.
        unstable: Where readers of committed records end, if that is below the high watermark.
    """

    seen: LogState
    end: LogEnd
    unstable: int | None


def last_stable_offset(high_watermark: int, unstable: int | None, log_start_offset: int) -> int:
    """Return where readers of committed records end; ``unstable`` is the first offset of an open transaction."""
    return high_watermark if unstable is None or unstable >= high_watermark else max(unstable, log_start_offset)


NO_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1

#: (generation, offset, base offset of its segment, position): where a limit lies.
_Limit = tuple[int, int, int, int]


class LogReader:
    """The reader of one log's states.

    Args:
        folder: For messages.

    Thread safety: any number of threads; they overwrite each other's cached place of a limit.
    """

    __slots__ = ("_folder", "_limit")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._limit: _Limit | None = None

    def read(
        self, state: LogState, start_offset: int, *, max_bytes: int, isolation: FetchIsolation, min_one_message: bool
    ) -> FetchDataInfo[LogSlice]:
        """Read like ``UnifiedLog.read``. Raises OffsetOutOfRangeError, CorruptRecordError, StoreError."""
        offsets, segments = state.offsets, state.segments
        segment = segments.floor(start_offset)
        if start_offset < offsets.log_start_offset or start_offset > offsets.log_end_offset or segment is None:
            raise OffsetOutOfRangeError(
                self._folder,
                offset=start_offset,
                log_start_offset=offsets.log_start_offset,
                local_log_start_offset=offsets.local_log_start_offset,
                log_end_offset=offsets.log_end_offset,
            )
        committed = isolation is FetchIsolation.TXN_COMMITTED
        limit = _limit_of(offsets, isolation)
        if start_offset >= limit:
            return self._nothing(state, start_offset, min(start_offset, offsets.log_end_offset), committed=committed)
        limit_base, limit_position = self._place_of(state, limit)
        while segment is not None and segment.base_offset <= limit_base:
            end = limit_position if segment.base_offset == limit_base else segment.size_bytes
            found = segment.read(start_offset, max_bytes=max_bytes, end_position=end, min_one_message=min_one_message)
            if found is not None:
                if not committed:
                    return found
                return found._replace(aborted_transactions=self._aborted_of(state, segment, start_offset, found))
            segment = segments.higher(segment.base_offset)
        # All behind the offset was compacted away, or does not count yet.
        return self._nothing(state, start_offset, offsets.log_end_offset, committed=committed)

    def collect_aborted(
        self, state: LogState, start_offset: int, upper_bound_offset: int
    ) -> tuple[tuple[int, int, int], ...]:
        """(producer id, first offset, last offset) of the aborted transactions that touch [start, upper bound)."""
        found: list[tuple[int, int, int]] = []
        for segment in state.segments.from_floor(start_offset):
            entries, complete = segment.collect_aborted(
                fetch_offset=start_offset, upper_bound_offset=upper_bound_offset
            )
            found += entries
            if complete:
                break
        return tuple(found)

    def find_by_timestamp(
        self, state: LogState, epochs: LeaderEpochs, timestamp_ms: int, *, remote_log_enabled: bool
    ) -> TimestampAndOffset | None:
        """Find Kafka's answer to ListOffsets in the local log. Raises StoreError, CorruptRecordError."""
        if timestamp_ms in _SPECIAL:
            return _special(state.offsets, epochs, timestamp_ms, remote_log_enabled=remote_log_enabled)
        if timestamp_ms == MAX_TIMESTAMP:
            return _find_greatest(state)
        for segment in state.segments:
            if segment.largest_timestamp_ms >= timestamp_ms:
                # As in Kafka, no later segment is asked when this one has no such record at or behind the start: nor
                # when it is empty, after compaction, and its file was changed at or after that time.
                return segment.find_offset_by_timestamp(timestamp_ms, state.offsets.local_log_start_offset)
        return None

    def _nothing(self, state: LogState, start_offset: int, offset: int, *, committed: bool) -> FetchDataInfo[LogSlice]:
        base, position = self._place_of(state, offset)
        return FetchDataInfo(start_offset, base, position, aborted_transactions=() if committed else None)

    def _place_of(self, state: LogState, offset: int) -> tuple[int, int]:
        """(base offset of the segment, position) at which the batches from an offset on begin."""
        if offset >= state.offsets.log_end_offset:
            return state.segments.active.base_offset, state.end_position
        known = self._limit
        if known is not None and known[0] == state.generation and known[1] == offset:
            return known[2], known[3]
        base, position = state.segments.active.base_offset, state.end_position
        for segment in state.segments.from_floor(offset):  # a gap may be at a segment's end
            batch = segment.find_batch(offset)
            if batch is not None:
                base, position = segment.base_offset, batch.position
                self._limit = (state.generation, offset, base, position)  # the log's end, else, which moves
                break
        return base, position

    def _aborted_of(
        self, state: LogState, segment: LogSegment, start_offset: int, found: FetchDataInfo[LogSlice]
    ) -> tuple[tuple[int, int], ...]:
        upper = segment.fetch_upper_bound_offset(position=found.position, size_bytes=found.size_bytes)
        if upper is None:
            following = state.segments.higher(segment.base_offset)
            upper = state.offsets.log_end_offset if following is None else following.base_offset
        return tuple((producer, first) for producer, first, _ in self.collect_aborted(state, start_offset, upper))


_SPECIAL: Final = frozenset(
    (
        LATEST_TIMESTAMP,
        EARLIEST_TIMESTAMP,
        EARLIEST_LOCAL_TIMESTAMP,
        LATEST_TIERED_TIMESTAMP,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    )
)


def _limit_of(offsets: LogOffsets, isolation: FetchIsolation) -> int:
    if isolation is FetchIsolation.LOG_END:
        return offsets.log_end_offset
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return offsets.high_watermark
    return offsets.last_stable_offset


def _special(
    offsets: LogOffsets, epochs: LeaderEpochs, timestamp_ms: int, *, remote_log_enabled: bool
) -> TimestampAndOffset:
    if timestamp_ms == LATEST_TIMESTAMP:
        latest = epochs.latest
        return TimestampAndOffset(NO_TIMESTAMP, offsets.log_end_offset, None if latest is None else latest.epoch)
    if timestamp_ms == EARLIEST_TIMESTAMP or (timestamp_ms == EARLIEST_LOCAL_TIMESTAMP and not remote_log_enabled):
        earliest = epochs.earliest
        known = earliest is not None and earliest.start_offset <= offsets.log_start_offset
        return TimestampAndOffset(
            NO_TIMESTAMP, offsets.log_start_offset, earliest.epoch if known and earliest else None
        )
    if timestamp_ms == EARLIEST_LOCAL_TIMESTAMP:
        local = offsets.local_log_start_offset
        return TimestampAndOffset(NO_TIMESTAMP, local, epochs.epoch_for_offset(local))
    if timestamp_ms == LATEST_TIERED_TIMESTAMP:
        copied = offsets.highest_offset_in_remote_storage if remote_log_enabled else NO_OFFSET
        return TimestampAndOffset(NO_TIMESTAMP, copied, _epoch_of(epochs, copied))
    pending = _earliest_pending_upload(offsets) if remote_log_enabled else NO_OFFSET
    return TimestampAndOffset(NO_TIMESTAMP, pending, _epoch_of(epochs, pending))


def _epoch_of(epochs: LeaderEpochs, offset: int) -> int | None:
    return -1 if offset == NO_OFFSET else epochs.epoch_for_offset(offset)


def _earliest_pending_upload(offsets: LogOffsets) -> int:
    copied = offsets.highest_offset_in_remote_storage
    if copied != NO_OFFSET:
        return max(copied + 1, offsets.log_start_offset)
    return offsets.log_start_offset if offsets.local_log_start_offset == offsets.log_start_offset else NO_OFFSET


def _find_greatest(state: LogState) -> TimestampAndOffset | None:
    """Find the first record of the greatest timestamp in the local segments."""
    timestamp_ms, segment = NO_TIMESTAMP, state.segments.first
    for each in state.segments:
        largest = each.largest_record_timestamp
        if largest is not None and largest[0] > timestamp_ms:
            timestamp_ms, segment = largest[0], each
    return segment.find_offset_by_timestamp(timestamp_ms, segment.base_offset)
