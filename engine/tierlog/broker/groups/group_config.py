"""The configuration of group coordination: Kafka's keys of a broker, and bounds of our own."""

from __future__ import annotations

from dataclasses import dataclass

from tierlog.arguments import INT32_MAX
from tierlog.config_keys import Int32, key
from tierlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The limits of members and offsets. Times in ms, sizes in bytes.

    Args:
        new_member_join_timeout_ms: How long a new member's request to join is parked (Kafka: 5 minutes).
        groups_max: Groups at once.
        member_size_max: Size of one member's JoinGroup at most.
        memory_max: What all groups and offsets may take together.

    The other fields are keys of a broker's file.

    Raises:
        ConfigError: the longest session is shorter than the shortest.
    """

    min_session_timeout_ms: Int32 = key("The shortest session.", default=6_000, under="group.", minimum=0)
    max_session_timeout_ms: Int32 = key("The longest session.", default=1_800_000, under="group.", minimum=0)
    initial_rebalance_delay_ms: Int32 = key(
        "How long the first members of a group wait for others.", default=3_000, under="group.", minimum=0
    )
    max_size: Int32 = key("Members of a group.", default=INT32_MAX, under="group.", minimum=1)
    offset_metadata_max_bytes: Int32 = key(
        "UTF-16 units of an offset's metadata, as Kafka counts.", default=4_096, minimum=0
    )
    offsets_retention_minutes: Int32 = key(
        "How long the offsets of an empty group stay.", default=7 * 24 * 60, minimum=1
    )
    offsets_retention_check_interval_ms: Int32 = key(
        "How often such offsets are looked for.", default=600_000, minimum=1
    )
    new_member_join_timeout_ms: int = 5 * 60_000
    groups_max: int = 20_000
    member_size_max: int = 4 << 20
    memory_max: int = 256 << 20

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


class GroupsMemory:
    """Bytes that are in use, about, and the most that may be.

    Only new requests are measured against the limit: memory in use is never revoked.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether more bytes may be used."""
        return more_bytes <= 0 or self.used_bytes + more_bytes <= self.limit_bytes

    def take(self, more_bytes: int) -> None:
        """Count bytes as in use; negative ones are released."""
        self.used_bytes += more_bytes
