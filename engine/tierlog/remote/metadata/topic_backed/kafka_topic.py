"""What ``__remote_log_metadata`` has to be like in a running Kafka: made where it is not there, and checked.

Source: Kafka 4.3 TopicBasedRemoteLogMetadataManager, which makes the topic so, and checks its partition count alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError, StorePermissionError, StoreUnavailableError
from tierlog.remote.metadata.topic_backed.config import TopicBasedConfig
from tierlog.remote.metadata.topic_backed.metadata_log import METADATA_TOPIC
from tierlog.runtime.kafka.topic_admin import TopicAdmin, TopicDescription
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.1
_REMOTE_STORAGE: Final = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class TopicWishes:
    """How the topic is made, and what it is checked against."""

    partition_count: int
    replication_factor: int
    retention_ms: int
    min_insync_replicas: int

    @classmethod
    def of(cls, config: TopicBasedConfig) -> TopicWishes:
        """Those of the manager's configuration; never more replicas in sync than replicas: brokers since 3.7 take the
        smaller number themselves, older ones would refuse every write.
        """
        replicas = config.topic_replication_factor
        in_sync = min(config.topic_min_isr, replicas)
        return cls(config.topic_num_partitions, replicas, config.topic_retention_ms, in_sync)


def ensure_topic(admin: TopicAdmin, wishes: TopicWishes, *, until: float, machine: Machine) -> TopicDescription:
    """The topic, made if it is not there, and checked.

    Args:
        admin: Asks the cluster.
        wishes: What it has to be like.
        until: In the clock's monotonic seconds.
        machine: Has the clock.

    Raises:
        ConfigError: it is one in which metadata would be lost, or that Kafka's own managers would refuse.
        StoreUnavailableError: the cluster cannot be asked, or make it, yet. StorePermissionError. StoreError.
    """
    clock = machine.clock
    found = admin.describe_topic(METADATA_TOPIC, timeout_seconds=until - clock.monotonic_seconds())
    if found is None:
        _create(admin, wishes, until=until, machine=machine)
        while found is None:
            left = until - clock.monotonic_seconds()
            if left <= 0:
                raise StoreUnavailableError(f"{METADATA_TOPIC} was made, and is not known to the brokers yet")
            clock.sleep(min(_LOOK_SECONDS, left))
            found = admin.describe_topic(METADATA_TOPIC, timeout_seconds=left)
    check_topic(admin, found, wishes, timeout_seconds=until - clock.monotonic_seconds())
    return found


def _create(admin: TopicAdmin, wishes: TopicWishes, *, until: float, machine: Machine) -> None:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(wishes.retention_ms),
        "min.insync.replicas": str(wishes.min_insync_replicas),
        _REMOTE_STORAGE: "false",
    }
    while True:
        try:
            made = admin.create_topic(
                METADATA_TOPIC,
                partitions=wishes.partition_count,
                replication_factor=wishes.replication_factor,
                config=config,
                timeout_seconds=until - machine.clock.monotonic_seconds(),
            )
        except ConfigError as error:
            if _REMOTE_STORAGE in config and _REMOTE_STORAGE in str(error):  # a broker from before tiered storage
                del config[_REMOTE_STORAGE]
                continue
            raise
        what = "made with" if made else "was made meanwhile by another broker; wanted:"
        _log.info("%s %s %s, %s", METADATA_TOPIC, what, wishes, config)
        return


def check_topic(admin: TopicAdmin, found: TopicDescription, wishes: TopicWishes, *, timeout_seconds: float) -> None:
    """Check a topic that is there, as ``ensure_topic`` says. What loses metadata only under circumstances that its
    owner may have meant is told in the log.
    """
    count = len(found.replicas)
    if count != wishes.partition_count:
        raise ConfigError(
            f"{METADATA_TOPIC} has {count} partitions, and remote.log.metadata.topic.num.partitions is "
            f"{wishes.partition_count}: every record would be looked for in another partition"
        )
    try:
        config = admin.topic_config(METADATA_TOPIC, timeout_seconds=timeout_seconds)
    except StorePermissionError as error:
        _log.warning("the configuration of %s is not checked: %s", METADATA_TOPIC, error)
        return
    if "compact" in config.get("cleanup.policy", "delete"):
        raise ConfigError(
            f"{METADATA_TOPIC} has cleanup.policy={config['cleanup.policy']}: its records have no keys, and metadata "
            "would be lost; it has to be delete"
        )
    in_sync, replicas = int(config.get("min.insync.replicas", "1")), min(found.replicas, default=1)
    if in_sync > replicas:
        _log.warning(
            "%s has min.insync.replicas=%d and %d replicas: brokers take the smaller number, those before 3.7 refuse "
            "every write",
            *(METADATA_TOPIC, in_sync, replicas),
        )
    if min(in_sync, replicas) < wishes.min_insync_replicas:
        _log.warning(
            "%s has min.insync.replicas=%d, not %d",
            *(METADATA_TOPIC, min(in_sync, replicas), wishes.min_insync_replicas),
        )
    retention_ms = int(config.get("retention.ms", "-1"))
    if retention_ms != -1 and (wishes.retention_ms == -1 or retention_ms < wishes.retention_ms):
        _log.warning(
            "%s has retention.ms=%d, not %d: metadata of segments that live longer is lost, and their data with it",
            *(METADATA_TOPIC, retention_ms, wishes.retention_ms),
        )
    if config.get("retention.bytes", "-1") != "-1":
        _log.warning(
            "%s has retention.bytes=%s: metadata is lost once it is larger, and the segments' data with it",
            *(METADATA_TOPIC, config["retention.bytes"]),
        )
