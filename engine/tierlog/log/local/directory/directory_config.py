"""What a log directory goes by: the broker's configuration under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tierlog.arguments import require_texts
from tierlog.log.local.config.broker_keys import BROKER_KEYS, KNOWN_NAMES
from tierlog.log.local.config.config_key import INT64_MAX, unknown_key
from tierlog.log.local.log_values import ProducerSettings


@dataclass(frozen=True, slots=True)
class LogDirectoryConfig:
    """A broker's configuration, as far as its logs go by it; the fields are Kafka's names with "_" for ".".

    Times are ms. Immutable and hashable.

    Raises:
        ConfigError: a field is of another type or outside Kafka's limits.
    """

    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = INT64_MAX
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_initial_task_delay_ms: int = 30_000
    log_retention_check_interval_ms: int = 300_000
    num_recovery_threads_per_data_dir: int = 2
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = False

    def __post_init__(self) -> None:
        for key in BROKER_KEYS:
            key.checked_in_code(getattr(self, key.field))

    @classmethod
    def from_kafka(cls, given: Mapping[str, str]) -> Self:
        """A configuration from text; keys of ``LogConfig`` are passed over: one file has both.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), or a malformed value. TypeError: a key or a
                value is no str.
        """
        require_texts("given", given)
        for name in given:
            if name not in KNOWN_NAMES:
                raise unknown_key(name, KNOWN_NAMES)
        values: dict[str, Any] = {key.field: key.parse(given[key.name]) for key in BROKER_KEYS if key.name in given}
        return cls(**values)

    def to_kafka(self) -> dict[str, str]:
        """The keys as text; ``from_kafka`` makes an equal value of it."""
        return {key.name: key.shown(getattr(self, key.field)) for key in BROKER_KEYS}

    @property
    def producer_settings(self) -> ProducerSettings:
        """The settings about producers, which each log of the directory is opened with."""
        return ProducerSettings(
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            transaction_partition_verification_enable=self.transaction_partition_verification_enable,
        )
