"""How groups are coordinated: Kafka's keys of a broker, and bounds of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError
from tierlog.serving.serving_config import INT32_MAX, read_number


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What a coordinator holds members and offsets to. Times in ms, sizes in bytes.

    Args:
        min_session_timeout_ms: ``group.min.session.timeout.ms``.
        max_session_timeout_ms: ``group.max.session.timeout.ms``.
        initial_rebalance_delay_ms: ``group.initial.rebalance.delay.ms``: how long the first members of a group wait
            for others.
        max_size: ``group.max.size``: members a group.
        offset_metadata_max_size: ``offset.metadata.max.bytes``: UTF-16 units, as Kafka counts.
        offsets_retention_ms: ``offsets.retention.minutes``: how long the offsets of an empty group stay.
        offsets_retention_check_interval_ms: ``offsets.retention.check.interval.ms``.
        new_member_join_timeout_ms: How long a new member's request to join is parked (Kafka: 5 minutes).
        groups_max: Groups at once.
        member_size_max: What one member may send to join with.
        memory_max: What all groups and offsets may take together.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = INT32_MAX
    offset_metadata_max_size: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 5 * 60_000
    groups_max: int = 20_000
    member_size_max: int = 4 << 20
    memory_max: int = 256 << 20


#: Kafka's keys: the field that each sets, its smallest value, and what it is multiplied with.
KEYS: Final[Mapping[str, tuple[str, int, int]]] = {
    "group.min.session.timeout.ms": ("min_session_timeout_ms", 0, 1),
    "group.max.session.timeout.ms": ("max_session_timeout_ms", 0, 1),
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay_ms", 0, 1),
    "group.max.size": ("max_size", 1, 1),
    "offset.metadata.max.bytes": ("offset_metadata_max_size", 0, 1),
    "offsets.retention.minutes": ("offsets_retention_ms", 1, 60_000),
    "offsets.retention.check.interval.ms": ("offsets_retention_check_interval_ms", 1, 1),
}


def read_group_config(properties: Mapping[str, str]) -> GroupConfig:
    """The configuration of a broker's properties; keys that are not of groups are left alone.

    Raises:
        ConfigError: a value is no number, or out of range.
    """
    values = {
        field: read_number(properties, key, smallest) * factor
        for key, (field, smallest, factor) in KEYS.items()
        if key in properties
    }
    config = GroupConfig(**values)
    if config.min_session_timeout_ms > config.max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
    return config


class GroupsMemory:
    """Bytes that are in use, about, and the most that may be.

    Only what a client asks for anew is measured against the limit: what is there is never taken away.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether more bytes may be taken."""
        return more_bytes <= 0 or self.used_bytes + more_bytes <= self.limit_bytes

    def take(self, more_bytes: int) -> None:
        """Count bytes as in use; negative ones are given back."""
        self.used_bytes += more_bytes
