"""The segments that go from a partition's tier, and the log start that is published before. Rules without any I/O.

Of the log's epochs, ascending, segments go from the oldest on while a rule says so: those in front of the log's start,
those whose newest record is too old, those that the log is too large by. Segments whose deletion has begun go again.
Segments that are none of the log's are passed over, until all that they have of it lies in front of its start, or is
too old, or all of their epochs lie in front of its epochs.

The log start is published first, so that no broker answers for offsets whose segments are gone; a log that does not
take it keeps its segments (``ExpiryPlan.allowed``). Then segments go by their last offsets (``lowest_first``): a leader
that has not got the start finds no hole behind the first segment that is left.

Source: Kafka RemoteLogManager.RLMExpirationTask; KAFKA-20732: the copied offset must be known before a size rule is
asked, or local bytes count twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Final, NamedTuple

from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs
from tierlog.marks import mark
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierlog.remote.manager.tiered_lineage import is_within, offsets_of_log

_STATE = RemoteLogSegmentState


#: Segments of one plan at most, so that a first limit on a long tier takes no more memory than it must.
PLANNED_MAX: Final = 10_000


class ExpiryReason(Enum):
    """The rule by which a segment goes."""

    DELETION_BEGAN = "its deletion began before"
    LOG_START_OFFSET = "it lies in front of the log's start"
    RETENTION_TIME = "retention.ms"
    RETENTION_SIZE = "retention.bytes"
    UNREFERENCED = "all of its epochs lie in front of the log's"
    UNFINISHED = "its copy, or its deletion, began long ago, and nobody goes on with it"


class Expired(NamedTuple):
    """A segment that goes.

    Attributes:
        last: Epoch and offset of its last record; of one of another branch in part, of the last that is the log's.
    """

    segment: RemoteLogSegmentMetadata
    reason: ExpiryReason
    last: tuple[int, int]


def _whole(segment: RemoteLogSegmentMetadata, reason: ExpiryReason) -> Expired:
    return Expired(segment, reason, (max(segment.segment_leader_epochs), segment.end_offset))


def lowest_first(found: Iterable[Expired]) -> list[Expired]:
    """Return each segment once, in the order in which they go: by their last offsets. However they overlap, those that
    are left have no hole behind the first one.
    """
    each_once: dict[RemoteLogSegmentId, Expired] = {}
    for each in sorted(found, key=lambda each: each.last):
        each_once.setdefault(each.segment.remote_log_segment_id, each)
    return list(each_once.values())


@dataclass(frozen=True, slots=True)
class ExpiryRules:
    """The limits of one run.

    Attributes:
        cutoff_ms: Segments whose newest record is older go, ms since 1970 UTC; None: none goes by time.
        breached_bytes: By which the log is larger than ``retention.bytes``; 0: none goes by size.
    """

    cutoff_ms: int | None
    breached_bytes: int


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """The segments that go, in the order in which they were listed.

    Attributes:
        log_start_offset: The start to publish before any goes; None: it stays.
        stays: The first segment of the log that stays, at which the plan ends; None: there is none.
        stays_bytes: What would go with it by size.
        next_ms: Timestamp of the newest record of what goes by time next; None: nothing does.
        is_whole: Whether nothing but a change of the tier, of the log, or of its limits adds to the plan: it neither
            ended at a copy that goes on nor has it PLANNED_MAX segments.
    """

    expired: tuple[Expired, ...]
    log_start_offset: int | None
    stays: RemoteLogSegmentMetadata | None = field(default=None, compare=False)
    stays_bytes: int = field(default=0, compare=False)
    next_ms: int | None = field(default=None, compare=False)
    is_whole: bool = field(default=True, compare=False)

    def allowed(self, log_start_offset: int) -> tuple[Expired, ...]:
        """The segments that may go once the log starts at an offset: what a log answered that it became. One that
        holds offsets of the log at or behind it stays.
        """
        began = ExpiryReason.DELETION_BEGAN
        return tuple(each for each in self.expired if each.reason is began or each.last[1] < log_start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(each.segment.segment_size_in_bytes for each in self.expired)


def find_expiry_rules(
    *, retention_ms: int, retention_bytes: int, now_ms: int, only_local_bytes: int, tiered_bytes: int
) -> ExpiryRules:
    """Find the limits of a run.

    Args:
        retention_ms: ``retention.ms``; negative: for ever.
        retention_bytes: ``retention.bytes``; negative: no limit.
        now_ms: The time, ms since 1970 UTC.
        only_local_bytes: Of the local segments that the tier has not, by a copied offset that is known.
        tiered_bytes: ``size_within`` of the tier.
    """
    cutoff_ms = now_ms - retention_ms if 0 <= retention_ms <= now_ms else None
    breached = only_local_bytes + tiered_bytes - retention_bytes if retention_bytes >= 0 else 0
    return ExpiryRules(cutoff_ms, max(0, breached))


def size_within(segments: Iterable[RemoteLogSegmentMetadata], epochs: LeaderEpochs, *, log_end_offset: int) -> int:
    """Bytes of the segments that are copied and all the log's, each offset once: after a change of the leader the tier
    may have two copies of a segment, or two segments that overlap. (Kafka counts both.)

    Two leaders' segments that end at different offsets are counted as one of them has them: whole, as long as another
    segment begins behind each. Where none does, the part of the one that reaches furthest is estimated by its number of
    offsets.
    """
    longest: dict[int, RemoteLogSegmentMetadata] = {}
    for each in segments:
        if each.state is _STATE.COPY_SEGMENT_FINISHED and is_within(each, epochs, log_end_offset=log_end_offset):
            known = longest.get(each.start_offset)
            if known is None or each.end_offset > known.end_offset:
                longest[each.start_offset] = each
    starts = deque(sorted(longest))
    size, offset = 0, starts[0] if starts else 0
    begun: list[tuple[int, int]] = []  # (minus the end, the start) of those that may have the offset: a heap
    while starts or begun:
        while starts and starts[0] <= offset:
            start = starts.popleft()
            heappush(begun, (-longest[start].end_offset, start))
        while begun and -begun[0][0] < offset:
            heappop(begun)
        if begun:
            counted = longest.get(offset) or longest[begun[0][1]]
            size += _bytes_from(counted, offset)
            offset = counted.end_offset + 1
        elif starts:
            offset = starts[0]  # behind a hole
    return size


def _bytes_from(segment: RemoteLogSegmentMetadata, offset: int) -> int:
    """The bytes of a segment from an offset on; within the segment, by the number of its offsets."""
    size, start, end = segment.segment_size_in_bytes, segment.start_offset, segment.end_offset
    return size if offset <= start else size * max(0, end + 1 - offset) // (end + 1 - start)


def plan_expiry(
    epochs: LeaderEpochs,
    list_segments: Callable[[int], Iterable[RemoteLogSegmentMetadata]],
    rules: ExpiryRules,
    *,
    log_start_offset: int,
    log_end_offset: int,
    being_copied: AbstractSet[RemoteLogSegmentId] = frozenset(),
    local_bytes: Callable[[int, int], int],
) -> ExpiryPlan:
    """Choose the segments that go.

    Args:
        epochs: Of the log, those with records.
        list_segments: The segments of an epoch in every state, ascending by start offset.
        rules: The limits.
        log_start_offset: Of the log.
        log_end_offset: Exclusive.
        being_copied: By this broker, now: neither they go nor what lies behind them.
        local_bytes: The bytes that the tier does not have of a range: they go with the segment behind. Another leader
            may have deleted what lay in front, with a start that this log has not heard of.
    """
    return _Planning(epochs, rules, log_start_offset, log_end_offset, being_copied, local_bytes).run(list_segments)


class _Planning:
    """One call of plan_expiry."""

    def __init__(
        self,
        epochs: LeaderEpochs,
        rules: ExpiryRules,
        log_start_offset: int,
        log_end_offset: int,
        being_copied: AbstractSet[RemoteLogSegmentId],
        local_bytes: Callable[[int, int], int],
    ) -> None:
        self._epochs = epochs
        self._cutoff_ms = rules.cutoff_ms
        self._breached = rules.breached_bytes
        self._log_start = log_start_offset
        self._log_end = log_end_offset
        self._being_copied = being_copied
        self._local_bytes = local_bytes
        self._expired: dict[RemoteLogSegmentId, Expired] = {}
        self._others: dict[RemoteLogSegmentId, Expired] = {}
        self._new_start: int | None = None
        self._stays: RemoteLogSegmentMetadata | None = None
        self._stays_bytes = 0
        self._next_ms: int | None = None
        self._is_whole = True

    def run(self, list_segments: Callable[[int], Iterable[RemoteLogSegmentMetadata]]) -> ExpiryPlan:
        for entry in self._epochs:
            if not self._look_at(list_segments(entry.epoch)):
                break
        if self._stays is not None:
            self._next_ms = self._stays.max_timestamp_ms
        if self._is_whole:
            self._expire_others_by_time()
        self._expire_others()
        expired = tuple(self._expired.values())
        return ExpiryPlan(
            expired, self._new_start, self._stays, self._stays_bytes, next_ms=self._next_ms, is_whole=self._is_whole
        )

    def _look_at(self, segments: Iterable[RemoteLogSegmentMetadata]) -> bool:
        """Look at the segments of an epoch; whether to go on with the next one."""
        for segment in segments:
            if segment.remote_log_segment_id in self._being_copied or len(self._expired) == PLANNED_MAX:
                self._is_whole = False
                return False
            if segment.state is _STATE.DELETE_SEGMENT_FINISHED or segment.remote_log_segment_id in self._expired:
                continue
            if self._stays is not None and segment.start_offset >= self._log_start:
                return False
            if segment.state is _STATE.DELETE_SEGMENT_STARTED:
                self._expire(segment, ExpiryReason.DELETION_BEGAN)
            elif self._lies_in_front(segment):
                mark("expiry: in front of the log start")
                self._expire(segment, ExpiryReason.LOG_START_OFFSET)
            elif self._stays is None and not is_within(segment, self._epochs, log_end_offset=self._log_end):
                self._pass_over(segment)
            elif self._stays is None and not self._breaks_a_limit(segment):
                self._stays = segment  # it may have the log start: copies of what it has in front of that go
        return self._stays is None

    def _expire(self, segment: RemoteLogSegmentMetadata, reason: ExpiryReason) -> None:
        self._expired[segment.remote_log_segment_id] = _whole(segment, reason)

    def _pass_over(self, segment: RemoteLogSegmentMetadata) -> None:
        """Note a finished segment that is the log's in part; one of a later epoch is the next leader's."""
        latest = self._epochs.latest
        assert latest is not None  # segments are listed by epoch
        if segment.state is not _STATE.COPY_SEGMENT_FINISHED or max(segment.segment_leader_epochs) > latest.epoch:
            return
        _, end = offsets_of_log(segment, self._epochs, log_end_offset=self._log_end)
        epoch = self._epochs.epoch_for_offset(end - 1) if end else None
        if epoch is not None:
            reason = ExpiryReason.LOG_START_OFFSET
            self._others[segment.remote_log_segment_id] = Expired(segment, reason, (epoch, end - 1))

    def _expire_others_by_time(self) -> None:
        """Those in front of the first one that stays, up to one that is not too old: what the log has of them may be
        nowhere else.
        """
        for segment, _, last in self._others.values():
            if self._stays is not None and self._stays.start_offset <= last[1]:
                break
            newest_ms = segment.max_timestamp_ms
            if self._cutoff_ms is None or newest_ms >= self._cutoff_ms:
                self._next_ms = newest_ms if self._next_ms is None else min(self._next_ms, newest_ms)
                break
            mark("expiry: another branch's, by time")
            reason = ExpiryReason.RETENTION_TIME
            self._expired[segment.remote_log_segment_id] = Expired(segment, reason, last)
            self._new_start = max(self._new_start or 0, last[1] + 1)

    def _expire_others(self) -> None:
        """Those that have nothing of the log behind its new start go with what they lie beside: a leader that has not
        got that start would begin with them.
        """
        start = max(self._log_start, self._new_start or 0)
        for segment_id, each in self._others.items():
            if each.last[1] < start and segment_id not in self._expired:
                mark("expiry: another branch's, in front of the log start")
                self._expired[segment_id] = each

    def _lies_in_front(self, segment: RemoteLogSegmentMetadata) -> bool:
        first = self._epochs.earliest
        assert first is not None  # segments are listed by epoch
        epochs = segment.segment_leader_epochs
        return segment.end_offset < self._log_start and all(epoch <= first.epoch for epoch in epochs)

    def _breaks_a_limit(self, segment: RemoteLogSegmentMetadata) -> bool:
        new_start = self._new_start or 0
        size = _bytes_from(segment, new_start)
        start = max(self._log_start, new_start)
        if start < segment.start_offset:
            size += self._local_bytes(start, segment.start_offset)
        if self._cutoff_ms is not None and segment.max_timestamp_ms < self._cutoff_ms:
            mark("expiry: by time")
            self._expire(segment, ExpiryReason.RETENTION_TIME)
        elif segment.end_offset < new_start or 0 < self._breached >= size:
            mark("expiry: by size")
            self._expire(segment, ExpiryReason.RETENTION_SIZE)
        else:
            self._stays_bytes = size
            return False
        self._breached = max(0, self._breached - size)
        self._new_start = max(new_start, segment.end_offset + 1)
        return True


def find_unreferenced(
    segments: Iterable[RemoteLogSegmentMetadata],
    epochs: LeaderEpochs,
    *,
    being_copied: AbstractSet[RemoteLogSegmentId] = frozenset(),
) -> Sequence[Expired]:
    """Find the segments all of whose epochs lie in front of a log's earliest one: no offset of the log is theirs, and
    its start stays where it is.

    Args:
        segments: Of the partition, in every state and any order.
        epochs: Of the log; without any, nothing is known to be unreferenced.
        being_copied: By this broker, now.
    """
    first = epochs.earliest
    if first is None:
        return ()
    return tuple(
        _whole(each, ExpiryReason.UNREFERENCED)
        for each in segments
        if each.state is not _STATE.DELETE_SEGMENT_FINISHED
        and each.remote_log_segment_id not in being_copied
        and all(epoch < first.epoch for epoch in each.segment_leader_epochs)
    )


def find_unfinished(
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    began_until_ms: int,
    latest_epoch: int | None = None,
    being_copied: AbstractSet[RemoteLogSegmentId] = frozenset(),
) -> Sequence[Expired]:
    """Find the copies and the deletions that began and never finished: their brokers have ended, or lost the partition.
    Kafka waits for the topic's retention.

    Args:
        segments: Of the partition, in every state and any order.
        began_until_ms: Those that began later stay.
        latest_epoch: Of the log: those of a later one stay, for their leader has taken this one's place; None: unknown.
        being_copied: By this broker, now.
    """
    return tuple(
        _whole(each, ExpiryReason.UNFINISHED)
        for each in segments
        if each.state in (_STATE.COPY_SEGMENT_STARTED, _STATE.DELETE_SEGMENT_STARTED)
        and each.event_timestamp_ms <= began_until_ms
        and (latest_epoch is None or max(each.segment_leader_epochs) <= latest_epoch)
        and each.remote_log_segment_id not in being_copied
    )


class TierSummary(NamedTuple):
    """The findings of a run about a partition of which nothing goes, so that the next run need not list its segments.

    Attributes:
        version: The metadata manager's, of the partition's segments.
        log_start_offset: Of the log.
        start_is_tiered: Whether the tier has that offset.
        epochs: Of the log, the earliest and the latest. Between two such runs of one term others do not change.
        tiered_bytes: ``size_within`` of the tier; None: it was not asked.
        copied_offset: Up to which segments count for it.
        newest_record_ms: Timestamp of the newest record of what goes by time next; None: nothing does.
        stays_bytes: The size of what goes by size next; None: nothing does.
        unfinished_since_ms: When the oldest copy or deletion began that goes as an unfinished one; None: there is none.
            A copy of what no other segment has is none of them.
    """

    version: int
    log_start_offset: int
    start_is_tiered: bool
    epochs: tuple[EpochEntry | None, EpochEntry | None]
    tiered_bytes: int | None
    copied_offset: int
    newest_record_ms: int | None
    stays_bytes: int | None
    unfinished_since_ms: int | None

    def holds(self, rules: ExpiryRules, *, began_until_ms: int) -> bool:
        """Whether still nothing goes, by the limits as they are now."""
        if self.unfinished_since_ms is not None and self.unfinished_since_ms <= began_until_ms:
            return False
        newest_ms, cutoff_ms = self.newest_record_ms, rules.cutoff_ms
        if newest_ms is not None and cutoff_ms is not None and newest_ms < cutoff_ms:
            return False
        return self.stays_bytes is None or not 0 < rules.breached_bytes >= self.stays_bytes
