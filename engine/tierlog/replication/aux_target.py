"""Where a follower's log begins if its leader has what it lacks in the tier alone: a rule without I/O.

The first offset to fetch is the leader's earliest local one, or, for an empty follower that may, the first that is not
in the tier yet. What lies in front of it comes from the tier: the segment that holds the offset before, in the epoch
that this offset has in the leader's log. That epoch is asked for below the one of the first offset, since between two
epochs that have records there may be any number without.

Source: Kafka TierStateMachine (KIP-405, KIP-1023).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, cast

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


class BeginAnew(NamedTuple):
    """All of the leader's log is local there: the follower's begins anew at its start, and takes nothing of the tier.

    Attributes:
        offset: The leader's log start.
    """

    offset: int


#: The requests of the rule to the leader, their answers, and the outcome.
AuxSteps = Generator[FollowerRequest, FollowerAnswer | KafkaError, BuildAuxState | BeginAnew]

_RESULT_OF_NONE: Final = "nothing of the log is in the tier alone any more"


def aux_target(log: PartitionLog, leader_epoch: int, *, fetch_last_tiered_offset: bool) -> AuxSteps:
    """Ask the leader what is needed, and return what the RemoteLogManager has to build.

    Args:
        log: The follower's; it is not changed.
        leader_epoch: Of the leadership in which the requests are made.
        fetch_last_tiered_offset: ``follower.fetch.last.tiered.offset.enable``.

    Raises ReplicationError: OFFSET_NOT_AVAILABLE: the leader does not know yet what is in the tier, or nothing has to
    come from there any more. To be tried again later.
    """
    start = cast("OffsetAndEpoch", (yield AskOffset(leader_epoch, EARLIEST_TIMESTAMP)))
    first = yield from _first_to_fetch(log, leader_epoch, start.offset, may_skip=fetch_last_tiered_offset)
    if 0 <= first.offset <= start.offset and log.must_be_rebuilt:
        return BeginAnew(start.offset)
    if first.offset <= 0 or first.epoch < 0:
        raise ReplicationError(f"{log.folder}: {_RESULT_OF_NONE}", KafkaError.OFFSET_NOT_AVAILABLE)
    last_tiered = first.offset - 1
    epoch = 0
    if first.epoch > 0:
        end = cast("EpochEnd", (yield AskEpochEnd(leader_epoch, first.epoch - 1)))
        epoch = end.epoch if end.end_offset > last_tiered else first.epoch
    return BuildAuxState(leader_epoch, epoch, last_tiered, start.offset)


def _first_to_fetch(
    log: PartitionLog, leader_epoch: int, log_start_offset: int, *, may_skip: bool
) -> Generator[FollowerRequest, FollowerAnswer | KafkaError, OffsetAndEpoch]:
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
