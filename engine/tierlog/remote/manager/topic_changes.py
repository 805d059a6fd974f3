"""What a change of a topic's configuration does to its tier: for a controller that is to refuse it, and for a broker
that carries it out. Rules alone, without any I/O.

Source: Kafka LogConfig#validate, TopicConfigHandler#maybeUpdateRemoteLogComponents.
"""

from __future__ import annotations

import enum

from tierlog.arguments import require_text, require_type
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_folder import is_tiered


class TierChange(enum.Enum):
    """The effect of a change on the tier of a topic's partitions."""

    NONE = "nothing"
    ENTERS = "tasks begin, and all closed segments are copied"
    LEAVES = "what is in the tier is deleted, and the logs start where they are local"
    STOPS_COPYING = "nothing more is copied; what is in the tier is read, and expires"
    RESUMES_COPYING = "copying goes on behind the last copied offset"


def judge_topic(
    topic: str, config: LogConfig, *, before: LogConfig | None = None, system_enabled: bool = True
) -> TierChange:
    """Judge the configuration of a topic that is created, or altered.

    Args:
        topic: Its name.
        config: All of its keys, with the broker's where the topic has none.
        before: The same before the change; None: the topic is created.
        system_enabled: Whether the brokers have tiered storage, ``remote.log.storage.system.enable``.

    Returns:
        What the brokers have to do: ``RemoteLogManager.on_config_change`` does it.

    Raises:
        ConfigError: Kafka's INVALID_CONFIG. The topic is to be tiered, and the brokers have no tiered storage, or it is
            compacted, or more is to stay locally than in all, or it copies no more and its local retention differs;
            or it leaves the tier, and what is there is not to be deleted (``remote.log.delete.on.disable``).
        TypeError: an argument is of another type.
    """
    require_text("topic", topic)
    require_type("config", config, LogConfig, "a LogConfig")
    config.check_tiering(remote_log_enabled=system_enabled)
    was = False
    if before is not None:
        require_type("before", before, LogConfig, "a LogConfig")
        config.check_change(before)
        was = is_tiered(topic, before, broker_tiers=system_enabled)
    now = is_tiered(topic, config, broker_tiers=system_enabled)
    if was != now:
        return TierChange.ENTERS if now else TierChange.LEAVES
    copied_before = before is None or not before.remote_log_copy_disable
    if not now or copied_before != config.remote_log_copy_disable:
        return TierChange.NONE
    return TierChange.STOPS_COPYING if copied_before else TierChange.RESUMES_COPYING
