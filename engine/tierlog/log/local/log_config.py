"""The configurations of a log and of a log directory, under Kafka's names, with their defaults and limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tierlog.arguments import require_flag, require_int64, require_texts, require_type
from tierlog.errors import ConfigError
from tierlog.log.local.config_keys import (
    BROKER_KEYS,
    INT64_MAX,
    INTERNAL_SEGMENT_BYTES,
    KNOWN_NAMES,
    TOPIC_KEYS,
    LogKey,
    Value,
    unknown_key,
)
from tierlog.log.local.config_keys import INT32_MAX as INT32_MAX  # noqa: PLC0414 - for those who bound a log
from tierlog.runtime.machine.randomness import Rng

_BY_NAME: Final = {key.name: key for key in TOPIC_KEYS}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's configuration; the fields are Kafka's names with "_" for "." (Kafka 4.3 LogConfig).

    Sizes are bytes, times ms. Immutable and hashable; a changed configuration is another value, which
    ``UnifiedLog.update_config`` takes. A plain dataclass and no pydantic model, as configurations elsewhere are: one is
    made for each topic and each change, and code may set what text may not (segments below 1 MiB).

    Raises:
        ConfigError: a field is of another type or outside Kafka's limits, or two contradict each other.
    """

    cleanup_policy: frozenset[str] = frozenset(("delete",))
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = INT64_MAX
    max_decompressed_message_bytes: int = 256 << 20
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    def __post_init__(self) -> None:
        for key in TOPIC_KEYS:
            key.checked_in_code(getattr(self, key.field))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms {self.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms {self.max_compaction_lag_ms}"
            )

    @classmethod
    def from_kafka(cls, given: Mapping[str, str], *, defaults: LogConfig | None = None) -> Self:
        """A configuration from text, as a topic or a broker's file has it.

        A topic's name (``segment.ms``) wins over a broker's for the same (``log.roll.ms``, which wins over
        ``log.roll.hours``); ``internal.segment.bytes`` wins over ``segment.bytes``. Keys of ``LogDirectoryConfig`` are
        passed over: one file has both.

        Args:
            given: By name.
            defaults: What counts where nothing is given: the broker's configuration, for a topic's. None: Kafka's.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), a malformed value or one outside Kafka's
                limits, or two that contradict each other (``check_tiering``). TypeError: a key or a value is no str.
        """
        require_texts("given", given)
        require_type("defaults", defaults, (LogConfig, type(None)), "a LogConfig")
        found = cls() if defaults is None else cls(**_fields(defaults))
        found = dataclasses.replace(found, **read_topic_values(given))
        found.check_tiering()
        return found

    def with_changes(self, changes: Mapping[str, str | None], *, defaults: LogConfig | None = None) -> Self:
        """The configuration after a dynamic change, with names and checks of ``from_kafka``.

        Args:
            changes: By name; None sets a topic's key back to its default.
            defaults: What None sets a key back to; None: Kafka's.

        Raises:
            ConfigError: as ``from_kafka``, or tiering is switched off without ``remote.log.delete.on.disable``.
            TypeError: as ``from_kafka``.
        """
        require_type("changes", changes, Mapping, "a mapping of str to str or None")
        require_texts("changes", {name: "" if text is None else text for name, text in changes.items()})
        require_type("defaults", defaults, (LogConfig, type(None)), "a LogConfig")
        base = LogConfig() if defaults is None else defaults
        restored: dict[str, Any] = {}
        for name in changes:
            if changes[name] is None:
                key = _BY_NAME.get("segment.bytes" if name == INTERNAL_SEGMENT_BYTES.name else name)
                if key is None:
                    raise unknown_key(name, _BY_NAME)
                restored[key.field] = getattr(base, key.field)
        given = {name: text for name, text in changes.items() if text is not None}
        changed = dataclasses.replace(self, **(restored | read_topic_values(given)))
        changed.check_tiering()
        changed.check_change(self)
        return changed

    def to_kafka(self, *, changed_only: bool = False) -> dict[str, str]:
        """The topic's keys as text; ``from_kafka`` makes an equal value of it.

        A segment size below Kafka's minimum is ``internal.segment.bytes``; a key of ours is there if it is not at its
        default.

        Args:
            changed_only: Leave out what is at Kafka's default.
        """
        found: dict[str, str] = {}
        for key in TOPIC_KEYS:
            value = getattr(self, key.field)
            if value == key.default and (changed_only or key.own):
                continue
            name = key.name
            if name == "segment.bytes" and self.segment_bytes < key.minimum:
                name = INTERNAL_SEGMENT_BYTES.name
            found[name] = key.shown(value)
        return found

    def check_tiering(self, *, remote_log_enabled: bool = True) -> None:
        """Check what Kafka asks of a tiered topic; nothing where ``remote.storage.enable`` is false.

        Args:
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).

        Raises:
            ConfigError: the broker has none, ``cleanup.policy`` is neither ``delete`` nor empty, or the local retention
                is more than the whole one, or differs from it although nothing is copied any more.
        """
        if not self.remote_storage_enable:
            return
        if not remote_log_enabled:
            raise ConfigError("remote.storage.enable is true, and this broker has no tiered storage")
        if self.is_compacted:
            raise ConfigError("remote.storage.enable is true: cleanup.policy must be delete, or empty")
        for name, local, whole in (
            ("retention.bytes", self.local_retention_bytes, self.retention_bytes),
            ("retention.ms", self.local_retention_ms, self.retention_ms),
        ):
            if local == -2:
                continue
            if whole > -1 and (local == -1 or local > whole):
                raise ConfigError(f"local.{name} {local}: at most the {whole} of {name} expected, or -2")
            if self.remote_log_copy_disable and local != whole:
                raise ConfigError(
                    f"local.{name} {local}: the {whole} of {name} expected, or -2: remote.log.copy.disable is true"
                )

    def check_change(self, before: LogConfig) -> None:
        """Check a change from another configuration. Raises ConfigError: tiering is switched off, and what is in the
        tier is to stay.
        """
        if before.remote_storage_enable and not self.remote_storage_enable and not self.remote_log_delete_on_disable:
            raise ConfigError(
                "remote.storage.enable becomes false: that needs remote.log.delete.on.disable=true, and removes what "
                "is in the tier; to keep it and read on, set remote.log.copy.disable=true instead"
            )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def local_retention_bytes_resolved(self) -> int:
        """``local.retention.bytes``, or what its -2 stands for."""
        return self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes

    @property
    def local_retention_ms_resolved(self) -> int:
        """``local.retention.ms``, or what its -2 stands for."""
        return self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms

    @property
    def segment_ms_max(self) -> int:
        """``segment.ms``, for a compacted topic at most ``max.compaction.lag.ms`` (Kafka maxSegmentMs)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    def random_segment_jitter_ms(self, rng: Rng) -> int:
        """By how much earlier one segment is closed: 0 … the least of ``segment.jitter.ms`` and ``segment.ms``,
        exclusive.
        """
        return rng.integer_below(min(self.segment_jitter_ms, self.segment_ms)) if self.segment_jitter_ms else 0


def _fields(config: LogConfig) -> dict[str, Any]:
    return {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}


def read_topic_values(given: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a LogConfig that are given, by any of their names. Raises ConfigError, as ``from_kafka``."""
    for name in given:
        if name not in KNOWN_NAMES:
            raise unknown_key(name, KNOWN_NAMES)
    values: dict[str, Any] = {}
    for key in TOPIC_KEYS:
        value = _given_value(key, given)
        if value is not None:
            values[key.field] = value
    if INTERNAL_SEGMENT_BYTES.name in given:
        values["segment_bytes"] = INTERNAL_SEGMENT_BYTES.parse(given[INTERNAL_SEGMENT_BYTES.name])
    return values


def _given_value(key: LogKey, given: Mapping[str, str]) -> Value | None:
    """The value under the first of a key's names that is given; the others are checked all the same."""
    found: Value | None = None
    names = [(key.name, 1, None), *((each.name, each.unit_ms, each.negative_means) for each in key.broker_names)]
    for name, unit_ms, negative_means in names:
        if name not in given:
            continue
        if unit_ms == 1 and negative_means is None:
            value = key.parse(given[name], name)
        else:
            value = key.parse_scaled(given[name], name, unit_ms=unit_ms, negative_means=negative_means)
        found = value if found is None else found
    return found


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The broker's settings about producers.

    Args:
        producer_id_expiration_ms: ``producer.id.expiration.ms``.
        transaction_max_timeout_ms: ``transaction.max.timeout.ms``.
        transaction_partition_verification_enable: ``transaction.partition.verification.enable``.

    Raises:
        TypeError: a field is of another type. ValueError: a time that does not fit into 64 bits, or is not above 0.
    """

    producer_id_expiration_ms: int = 86_400_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        require_int64("producer_id_expiration_ms", self.producer_id_expiration_ms, least=1)
        require_int64("transaction_max_timeout_ms", self.transaction_max_timeout_ms, least=1)
        require_flag("transaction_partition_verification_enable", self.transaction_partition_verification_enable)


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
