"""The seam of a partition: the offset below which records come from the tier, and from which on from brokers.

It is exact, since a tier has what brokers had committed, at the same offsets: as long as both are of one log. A bucket
of another cluster is not, nor one whose topic was deleted and made anew, nor a log from which an unclean election took
what was tiered already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tierlog.errors import ConfigError
from tierlog.scan.history import PartitionHistory

Mode = Literal["remote-only", "remote-preferred", "local-preferred", "local-only"]
"""Who gives what both have: the tier alone, the tier first, the brokers' local logs first, the brokers alone."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A partition at its leader.

    Attributes:
        topic_id: Kafka's text of it; None from brokers before 2.8, which have none.
        end_offset: Offset behind the last record that every replica in sync has; None: nobody asked.
        first_offset, first_epoch: Of the first record from one in front of the seam on, with its leader epoch; None:
            nobody asked, there is none, or its format has no epoch.
    """

    topic_id: str | None = None
    end_offset: int | None = None
    first_offset: int | None = None
    first_epoch: int | None = None


def seam_offset(start: int, end: int, tier_end: int, local_start: int | None) -> int:
    """Find the seam of a partition.

    Args:
        start: Of what is read.
        end: Of the same, exclusive.
        tier_end: Where the tier ends, exclusive.
        local_start: Where the leader's local log begins, if brokers are to give all that is in it.

    Returns:
        An offset between ``start`` and ``end``; it is ``start`` where the tier gives nothing.
    """
    seam = tier_end if local_start is None else min(tier_end, local_start)
    return max(start, min(seam, end))


def last_epoch(history: PartitionHistory) -> int | None:
    """Return the leader epoch of the tier's last record; None: nobody knows."""
    return history.lineage.epochs.epoch_for_offset(history.end_offset_exclusive - 1)


def require_one_log(history: PartitionHistory, facts: BrokerFacts) -> None:
    """Check that a partition's tier is of the log that brokers have.

    Raises:
        ConfigError: it is not.
    """
    name, why = history.topic_id_partition, "an unclean election has taken records that were tiered"
    topic_id, end = str(name.topic_id), history.end_offset_exclusive
    if facts.topic_id is not None and facts.topic_id != topic_id:
        raise _foreign(
            f"topic {name.topic} has the id {topic_id} in the tier, and {facts.topic_id} at the brokers",
            "the topic was deleted and made anew",
        )
    if facts.end_offset is not None and facts.end_offset < end:
        raise _foreign(f"{name} ends at offset {end} in the tier, and at {facts.end_offset} at the brokers", why)
    if facts.first_offset is None or facts.first_epoch is None:
        return
    at = min(facts.first_offset, end - 1)
    known = history.lineage.epochs.epoch_for_offset(at)
    if known is None:
        return
    is_one = facts.first_epoch == known if facts.first_offset < end else facts.first_epoch >= known
    if not is_one:
        raise _foreign(
            f"{name} has leader epoch {facts.first_epoch} at offset {facts.first_offset} at the brokers, and "
            f"{known} in the tier",
            why,
        )


def _foreign(what: str, why: str) -> ConfigError:
    return ConfigError(f"{what}: the bucket is of another cluster, or {why}; nothing is read across such a seam")
