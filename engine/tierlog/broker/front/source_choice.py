"""The choice of the source of a partition's records, tier or broker: rules over values, which ask nobody.

A tier stands for a partition only while its history is the beginning of the broker's log. Two logs of one topic id
whose records at an offset are of one leader epoch are equal up to that offset (Kafka's log matching), so one record
decides: the last one of the tier, at the seam. It lies in the broker's log where the broker's end of its epoch e lies
above it, and the end of epoch e - 1 at or below it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from tierlog.broker.partitions import UNKNOWN, EpochEndOffset
from tierlog.remote.api import ZERO_UUID, Uuid


class TierEnd(NamedTuple):
    """The end of a tier's history of a partition.

    Args:
        topic_id: Of the topic in the bucket; ZERO_UUID where unknown.
        end_offset: Behind its last record.
        last_stable_offset: Behind the last record for which the tier lists all aborted transactions.
        leader_epoch: Of its last record; UNKNOWN where the bucket does not say.
    """

    topic_id: Uuid
    end_offset: int
    last_stable_offset: int
    leader_epoch: int


class EpochEnds(NamedTuple):
    """A broker's answers about an epoch, as of OffsetForLeaderEpoch.

    Args:
        leader_epoch: The epoch that was asked about.
        end: Of it.
        end_before: Of the one before.
    """

    leader_epoch: int
    end: EpochEndOffset
    end_before: EpochEndOffset


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """A partition as its leader said that it is.

    Args:
        topic_id: Of its topic.
        leader_epoch: Of its leader.
        log_start_offset: First offset that can be read.
        high_watermark: Behind the last offset that read_uncommitted may read.
        last_stable_offset: Behind the last offset that read_committed may read.
        earliest_local_offset: First offset that lies on the leader's disk; UNKNOWN if it was not asked.
        ends: Of the epoch at the tier's seam.
        asked_at_seconds: When the first question went out, by the loop's clock: all of it was so at that time or later.
    """

    topic_id: Uuid
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    earliest_local_offset: int
    ends: EpochEnds
    asked_at_seconds: float


class Source(enum.Enum):
    """The source of a partition's records."""

    TIER = "tier"
    UPSTREAM = "upstream"
    #: Upstream's state is to be asked first; if it does not say more then, upstream.
    REFRESH = "refresh"


class Preference(enum.Enum):
    """The source where both have the records: all that the tier has, or what is on no broker's disk."""

    REMOTE = "remote"
    LOCAL = "local"


class Wish(NamedTuple):
    """The parts of a request that matter for the source.

    Args:
        fetch_offset: The first offset that is wanted.
        current_leader_epoch: The leader's epoch as the client knows it; UNKNOWN for no check.
        last_fetched_epoch: Of the record before; UNKNOWN for no check.
        is_read_committed: Whether records of open and aborted transactions are hidden.
        is_search: Whether the whole log is searched, from its start on, in place of a read.
    """

    fetch_offset: int
    current_leader_epoch: int = UNKNOWN
    last_fetched_epoch: int = UNKNOWN
    is_read_committed: bool = False
    is_search: bool = False


def fault_of_lineage(seam: TierEnd, state: UpstreamState) -> str:
    """Return the reason why a tier's history is not the beginning of a broker's log; "" if it is.

    Args:
        seam: Of the tier.
        state: Of the broker; its ``ends`` are of the seam's epoch.
    """
    if seam.topic_id == ZERO_UUID or seam.topic_id != state.topic_id:
        return f"the bucket's topic id is {seam.topic_id}, the brokers' {state.topic_id}"
    epoch, ends = seam.leader_epoch, state.ends
    if epoch == UNKNOWN:
        return "the bucket does not tell leader epochs"
    if ends.end.leader_epoch != epoch:
        return f"the bucket ends with records of leader epoch {epoch}, of which the brokers' log has none"
    if ends.end.end_offset < seam.end_offset:
        return (
            f"the bucket has records of leader epoch {epoch} up to offset {seam.end_offset - 1}, "
            f"the brokers' log up to {ends.end.end_offset - 1}"
        )
    if ends.end_before.end_offset >= seam.end_offset:
        return (
            f"the brokers' log has records of leader epoch {ends.end_before.leader_epoch} up to offset "
            f"{ends.end_before.end_offset - 1}, the bucket those of {epoch}"
        )
    return ""


def is_behind_tier(wish: Wish, seam: TierEnd) -> bool:
    """Whether the tier has no record that is wanted, or not the client's last one: a question for the brokers alone."""
    end_offset = seam.last_stable_offset if wish.is_read_committed else seam.end_offset
    return wish.fetch_offset >= end_offset or wish.last_fetched_epoch > seam.leader_epoch


def choose_source(
    wish: Wish,
    seam: TierEnd,
    state: UpstreamState | None,
    *,
    oldest_seconds: float,
    seam_since_seconds: float,
    preference: Preference,
    may_read: bool,
) -> Source:
    """Choose the source of one partition's records.

    What the tier cannot answer exactly as the broker would (an offset out of range, another leader epoch, another
    history) is the broker's to answer.

    Args:
        wish: Of the client.
        seam: Of the tier.
        state: Of the partition's leader; None if it is not known.
        oldest_seconds: A state that was asked before counts no more.
        seam_since_seconds: Since when the front knows this end of the tier: a state that was asked later is decisive.
        preference: Where both have the records.
        may_read: Whether the client may read the topic.
    """
    if not may_read or is_behind_tier(wish, seam):
        return Source.UPSTREAM
    if state is None or state.asked_at_seconds < oldest_seconds:
        return Source.REFRESH
    if wish.current_leader_epoch > state.leader_epoch:
        return Source.REFRESH
    if wish.current_leader_epoch not in (UNKNOWN, state.leader_epoch):
        return Source.UPSTREAM
    end_offset = state.last_stable_offset if wish.is_read_committed else state.high_watermark
    seam_offset = seam.last_stable_offset if wish.is_read_committed else seam.end_offset
    if state.ends.leader_epoch != seam.leader_epoch or end_offset < seam_offset:
        # The tier may have grown since: then the state says nothing about its end.
        return Source.REFRESH if state.asked_at_seconds < seam_since_seconds else Source.UPSTREAM
    if state.log_start_offset >= seam_offset:
        return Source.UPSTREAM  # brokers have deleted all of it, and with it what they knew of its epochs
    if fault_of_lineage(seam, state):
        return Source.REFRESH if state.asked_at_seconds < seam_since_seconds else Source.UPSTREAM
    if wish.is_search:
        return Source.TIER
    # A record before the log start has no epoch in the broker's lineage, which the client's is compared with.
    first_offset = state.log_start_offset + (wish.last_fetched_epoch != UNKNOWN)
    if wish.fetch_offset < first_offset:
        return Source.UPSTREAM
    if preference is Preference.LOCAL and wish.fetch_offset >= state.earliest_local_offset:
        return Source.UPSTREAM
    return Source.TIER
