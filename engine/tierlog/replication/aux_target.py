"""Where a follower's log begins if its leader has what it lacks in the tier alone: a rule without I/O.

The first offset to fetch is the leader's earliest local one, or, for an empty follower that may, the first that is not
in the tier yet. What lies in front of it comes from the tier: the segment that holds the offset before, in the epoch
that this offset has in the leader's log. That epoch is asked for below the one of the first offset, since between two
epochs that have records there may be any number without.

A log with records that only lacks its lineage, as a real Kafka leaves one that was killed between its two steps, keeps
them if they begin in the leader's log as they do here: an in-sync replica that empties its log loses what the leader
has told producers is safe. Kafka appends to such a log as it is, and what leads later does not find its tier.

The segment may go on where the leader's log does not, in a branch that an unclean election has ended. The follower that
began behind it is told so by its next fetch, and cuts its log to the last offset that both have, below all that it has
here. From then on it begins there at the latest; behind the segment again, it would be cut again, for ever.

Source: Kafka TierStateMachine (KIP-405, KIP-1023), which begins the emptied log there without producers.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Final, NamedTuple, TypeVar, cast

from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
)
from tierlog.log.partition_log import PartitionLog
from tierlog.replication.messages import (
    AskEpochEnd,
    AskOffset,
    BuildAuxState,
    EpochEnd,
    FollowerAnswer,
    FollowerRequest,
    OffsetAndEpoch,
    ReplicationError,
)

_log = logging.getLogger(__name__)


class BeginAnew(NamedTuple):
    """All of the leader's log is local there: the follower's begins anew at its start, and takes nothing of the tier.

    Attributes:
        offset: The leader's log start.
    """

    offset: int

    def apply(self, log: PartitionLog) -> None:
        """Empty the log."""
        _log.warning("%s: begun anew at %d, where all of the leader's log is", log.folder, self.offset)
        log.truncate_fully_and_start_at(self.offset)


class StartLater(NamedTuple):
    """The log lacks the lineage only of what the partition has no more: it starts with records that it has.

    Attributes:
        offset: The log start, of records that are committed.
    """

    offset: int

    def apply(self, log: PartitionLog) -> None:
        """Raise the log start."""
        _log.warning("%s: nothing is in front of %d any more, where the log starts now", log.folder, self.offset)
        log.maybe_increment_high_watermark(self.offset)
        log.maybe_increment_log_start_offset(self.offset, "nothing is in front of it any more")
        log.complete_lineage(log.leader_epoch_cache.epoch_with_offsets().items())


AuxTarget = BuildAuxState | BeginAnew | StartLater

_Result = TypeVar("_Result")

#: The requests of the rule to the leader, their answers, and the outcome.
_Steps = Generator[FollowerRequest, FollowerAnswer | KafkaError, _Result]
AuxSteps = _Steps[AuxTarget]

_RESULT_OF_NONE: Final = "nothing of the log is in the tier alone any more"


def aux_target(
    log: PartitionLog, leader_epoch: int, *, fetch_last_tiered_offset: bool, keeps_records: bool = True
) -> AuxSteps:
    """Ask the leader what is needed, and return what the RemoteLogManager has to build, or what is done here.

    Args:
        log: The follower's; it is not changed.
        leader_epoch: Of the leadership in which the requests are made.
        fetch_last_tiered_offset: ``follower.fetch.last.tiered.offset.enable``.
        keeps_records: Whether the records of a log that must be rebuilt may stay.

    Raises ReplicationError: OFFSET_NOT_AVAILABLE: the leader does not know yet what is in the tier, or nothing has to
    come from there any more. To be tried again later.
    """
    start = cast("OffsetAndEpoch", (yield AskOffset(leader_epoch, EARLIEST_TIMESTAMP)))
    if keeps_records and log.must_be_rebuilt:
        kept = yield from _keep_records(log, leader_epoch, start.offset)
        if kept is not None:
            return kept
    first = yield from _first_to_fetch(log, leader_epoch, start.offset, may_skip=fetch_last_tiered_offset)
    if 0 <= first.offset <= start.offset and log.must_be_rebuilt:
        return BeginAnew(start.offset)
    if first.offset <= 0 or first.epoch < 0:
        raise ReplicationError(f"{log.folder}: {_RESULT_OF_NONE}", KafkaError.OFFSET_NOT_AVAILABLE)
    epoch = yield from _epoch_in_front(leader_epoch, first)
    end = log.log_end_offset
    has_agreed = log.must_be_rebuilt and log.local_log_start_offset == end >= first.offset
    return BuildAuxState(
        leader_epoch, epoch, first.offset - 1, start.offset, end_offset_max=end if has_agreed else None
    )


def _keep_records(
    log: PartitionLog, leader_epoch: int, log_start_offset: int
) -> _Steps[BuildAuxState | StartLater | None]:
    """Find how the log can keep its records; None: they do not begin as the leader's, or their epoch is unknown.

    Two logs that have an offset in the same epoch are equal up to it, so one question suffices; what differs behind it
    is cut when the follower fetches.
    """
    local_start = log.local_log_start_offset
    first = max(local_start, log_start_offset)
    epoch = log.leader_epoch_cache.epoch_for_offset(first)
    if epoch is None or first >= log.log_end_offset:
        return None
    end = cast("EpochEnd", (yield AskEpochEnd(leader_epoch, epoch)))
    if end.epoch != epoch or end.end_offset <= first:
        return None
    if log_start_offset >= local_start:
        return StartLater(log_start_offset)
    epoch_in_front = yield from _epoch_in_front(leader_epoch, OffsetAndEpoch(first, epoch))
    return BuildAuxState(leader_epoch, epoch_in_front, first - 1, log_start_offset, keeps_records=True)


def _epoch_in_front(leader_epoch: int, first: OffsetAndEpoch) -> _Steps[int]:
    """Ask for the epoch that the offset in front of another has in the leader's log."""
    if first.epoch == 0:
        return 0
    end = cast("EpochEnd", (yield AskEpochEnd(leader_epoch, first.epoch - 1)))
    return end.epoch if end.end_offset >= first.offset else first.epoch


def _first_to_fetch(
    log: PartitionLog, leader_epoch: int, log_start_offset: int, *, may_skip: bool
) -> _Steps[OffsetAndEpoch]:
    """Ask for the first offset to fetch from the leader."""
    may_skip = may_skip and log.log_end_offset == 0
    if may_skip:
        pending = cast("OffsetAndEpoch", (yield AskOffset(leader_epoch, EARLIEST_PENDING_UPLOAD_TIMESTAMP)))
        if pending.offset >= 0:
            return pending
    local = cast("OffsetAndEpoch", (yield AskOffset(leader_epoch, EARLIEST_LOCAL_TIMESTAMP)))
    if may_skip and local.offset != log_start_offset:
        text = f"{log.folder}: the leader does not know yet what is in the tier"
        raise ReplicationError(text, KafkaError.OFFSET_NOT_AVAILABLE)
    return local
