"""The configurations of a log and of a log directory, under Kafka's names, with their defaults and limits."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tierlog.arguments import INT32_MAX, INT64_MAX, require_texts, require_type
from tierlog.config_keys import Int32, Key, check_values, key, names_of, nearest_name, read_values, rows
from tierlog.errors import ConfigError
from tierlog.runtime.machine.randomness import Rng

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_REPLICAS: Final = (r"[0-9]+:[0-9]+", "* or <partition>:<broker> expected")
#: In a test's configuration: ``segment.bytes`` without its lower limit; it wins over that.
_INTERNAL_SEGMENT_BYTES: Final = Key(
    "internal.segment.bytes", "int", 1 << 30, "`segment.bytes` without its minimum.", minimum=1, maximum=INT32_MAX
)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's configuration; the fields are Kafka's names with "_" for "." (Kafka 4.3 LogConfig).

    Sizes are bytes, times ms. Immutable and hashable; a changed configuration is another value, which
    ``UnifiedLog.update_config`` takes. Code may set what text may not (segments below 1 MiB).

    Raises:
        ConfigError: a field is of another type or outside Kafka's limits, or two contradict each other.
    """

    cleanup_policy: frozenset[str] = key(
        "What becomes of old segments; empty: only what lies before the log start is deleted.",
        default=frozenset(("delete",)),
        choices=("compact", "delete"),
        other_names=("log.cleanup.policy",),
    )
    compression_gzip_level: int = key(
        "Level where the log compresses.",
        default=-1,
        minimum=1,
        maximum=9,
        also=-1,
        other_names=("compression.gzip.level",),
    )
    compression_lz4_level: int = key(
        "Level where the log compresses.", default=9, minimum=1, maximum=17, other_names=("compression.lz4.level",)
    )
    compression_type: str = key(
        "How batches are stored; `producer`: as they come.",
        default="producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        other_names=("compression.type",),
    )
    compression_zstd_level: int = key(
        "Level where the log compresses.",
        default=3,
        minimum=-131_072,
        maximum=22,
        other_names=("compression.zstd.level",),
    )
    delete_retention_ms: int = key(
        "How long compaction keeps tombstones.",
        default=_DAY_MS,
        minimum=0,
        other_names=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = key(
        "How long deleted files stay, renamed, for those who read them.",
        default=_MINUTE_MS,
        minimum=0,
        other_names=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = key(
        "After how many records the log is fsynced.",
        default=INT64_MAX,
        minimum=1,
        other_names=("log.flush.interval.messages",),
    )
    flush_ms: int = key(
        "After what time the log is fsynced.",
        default=INT64_MAX,
        minimum=0,
        other_names=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        "For whoever replicates the log; it does not look at it.", default=(), pattern=_REPLICAS
    )
    index_interval_bytes: Int32 = key(
        "After how many bytes of a log its indexes get another entry.",
        default=4096,
        minimum=0,
        other_names=("log.index.interval.bytes",),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        "For whoever replicates the log; it does not look at it.", default=(), pattern=_REPLICAS
    )
    local_retention_bytes: int = key(
        "With tiering, the size to which the local log is cut down; -2: as `retention.bytes`.",
        default=-2,
        minimum=-2,
        other_names=("log.local.retention.bytes",),
    )
    local_retention_ms: int = key(
        "With tiering, the age from which local segments are deleted; -2: as `retention.ms`.",
        default=-2,
        minimum=-2,
        other_names=("log.local.retention.ms",),
    )
    max_compaction_lag_ms: int = key(
        "After what time a record is compacted; a compacted topic's segments are closed by it too.",
        default=INT64_MAX,
        minimum=1,
        other_names=("log.cleaner.max.compaction.lag.ms",),
    )
    max_decompressed_message_bytes: int = key(
        "To how many bytes a batch may decompress.", default=256 << 20, minimum=1, own=True
    )
    max_message_bytes: Int32 = key(
        "The largest batch that a leader takes.", default=1_048_588, minimum=0, other_names=("message.max.bytes",)
    )
    message_timestamp_after_max_ms: int = key(
        "By how much a record may be ahead of the leader's clock.",
        default=_HOUR_MS,
        minimum=0,
        other_names=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = key(
        "By how much a record may be older than the leader's clock.",
        default=INT64_MAX,
        minimum=0,
        other_names=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = key(
        "Whose clock the records' timestamps are: the producer's or the leader's.",
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        other_names=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = key(
        "Which part of a log must be new before it is compacted.",
        default=0.5,
        minimum=0,
        maximum=1,
        other_names=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = key(
        "How long compaction leaves a record alone.",
        default=0,
        minimum=0,
        other_names=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: Int32 = key(
        "For whoever replicates the log; it does not look at it.",
        default=1,
        minimum=1,
        other_names=("min.insync.replicas",),
    )
    preallocate: bool = key(
        "Kafka reserves a segment's space at once; taken, without effect here.",
        default=False,
        other_names=("log.preallocate",),
    )
    remote_copy_lag_bytes: int | None = key(
        "With tiering, a closed segment is copied once so many bytes lie behind it; -1: as the local retention. Kafka "
        "4.4's (KIP-1241).",
        minimum=-1,
        own=True,
        other_names=("log.remote.copy.lag.bytes",),
    )
    remote_copy_lag_ms: int | None = key(
        "The same by the age of its newest record; the first of both that is over counts. Without both: at once.",
        minimum=-1,
        own=True,
        other_names=("log.remote.copy.lag.ms",),
    )
    remote_log_copy_disable: bool = key(
        "Nothing more is copied to the tier; what is there stays readable.", default=False
    )
    remote_log_delete_on_disable: bool = key(
        "Tiering may be switched off, and what is in the tier goes.", default=False
    )
    remote_storage_enable: bool = key("The topic is tiered, if the broker has tiered storage.", default=False)
    retention_bytes: int = key(
        "Size of the log from which its oldest segments are deleted; -1: never.",
        default=-1,
        other_names=("log.retention.bytes",),
    )
    retention_ms: int = key(
        "Age from which segments are deleted; -1: never.",
        default=7 * _DAY_MS,
        minimum=-1,
        other_names=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        negative_means=-1,
    )
    segment_bytes: Int32 = key(
        "When the active segment is closed, by size. Tests go below the minimum by `internal.segment.bytes`.",
        default=1 << 30,
        minimum=1 << 20,
        minimum_in_code=1,
        other_names=("log.segment.bytes",),
    )
    segment_index_bytes: Int32 = key(
        "The largest offset index and time index; a full one closes the segment.",
        default=10 << 20,
        minimum=4,
        other_names=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = key(
        "By how much less, at most: chance decides for each segment.",
        default=0,
        minimum=0,
        other_names=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = key(
        "When the active segment is closed, by age.",
        default=7 * _DAY_MS,
        minimum=1,
        other_names=("log.roll.ms", "log.roll.hours"),
    )
    unclean_leader_election_enable: bool = key(
        "For whoever elects leaders; the log does not look at it.",
        default=False,
        other_names=("unclean.leader.election.enable",),
    )

    def __post_init__(self) -> None:
        check_values(self)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms {self.min_compaction_lag_ms} is above "
                f"max.compaction.lag.ms {self.max_compaction_lag_ms}"
            )

    @classmethod
    def from_kafka(cls, given: Mapping[str, str], *, defaults: LogConfig | None = None) -> Self:
        """Parse a configuration from text, as a topic or a broker's file has it.

        A topic's name (``segment.ms``) wins over a broker's for the same (``log.roll.ms``, which wins over
        ``log.roll.hours``); ``internal.segment.bytes`` wins over ``segment.bytes``. Keys of ``LogDirectoryConfig`` and
        ``CleanerConfig`` are passed over: one file has all.

        Args:
            given: By name.
            defaults: What counts where nothing is given: the broker's configuration, for a topic's. None: Kafka's.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), a malformed value or one outside Kafka's
                limits, or two that contradict each other (``check_tiering``). TypeError: a key or a value is no str.
        """
        require_texts("given", given)
        require_type("defaults", defaults, (LogConfig, type(None)), "a LogConfig")
        found = cls() if defaults is None else cls(**{field: getattr(defaults, field) for field in rows(LogConfig)})
        found = dataclasses.replace(found, **_read_topic_values(given))
        found.check_tiering()
        return found

    def with_changes(self, changes: Mapping[str, str | None], *, defaults: LogConfig | None = None) -> Self:
        """Return the configuration after a dynamic change, with names and checks of ``from_kafka``.

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
        fields = {row.name: field for field, row in rows(LogConfig).items()}
        restored: dict[str, Any] = {}
        for name in changes:
            if changes[name] is None:
                field = fields.get("segment.bytes" if name == _INTERNAL_SEGMENT_BYTES.name else name)
                if field is None:
                    raise _unknown_key(name, fields)
                restored[field] = getattr(base, field)
        given = {name: text for name, text in changes.items() if text is not None}
        changed = dataclasses.replace(self, **(restored | _read_topic_values(given)))
        changed.check_tiering()
        changed.check_change(self)
        return changed

    def to_kafka(self, *, changed_only: bool = False) -> dict[str, str]:
        """Return the topic's keys as text; ``from_kafka`` makes an equal value of it.

        A segment size below Kafka's minimum is ``internal.segment.bytes``; a key of ours is there if it is not at its
        default.

        Args:
            changed_only: Leave out keys at Kafka's default.
        """
        found: dict[str, str] = {}
        for field, row in rows(LogConfig).items():
            value = getattr(self, field)
            if value == row.default and (changed_only or row.own):
                continue
            is_internal = field == "segment_bytes" and self.segment_bytes < row.minimum
            found[_INTERNAL_SEGMENT_BYTES.name if is_internal else row.name] = row.shown(value)
        return found

    def check_tiering(self, *, remote_log_enabled: bool = True) -> None:
        """Check what Kafka asks of a tiered topic; nothing where ``remote.storage.enable`` is false.

        Args:
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).

        Raises:
            ConfigError: the broker has none, ``cleanup.policy`` is neither ``delete`` nor empty, or the local retention
                is more than the whole one, differs from it although nothing is copied any more, or ends before copies.
        """
        if not self.remote_storage_enable:
            return
        if not remote_log_enabled:
            raise ConfigError("remote.storage.enable is true, and this broker has no tiered storage")
        if self.is_compacted:
            raise ConfigError("remote.storage.enable is true: cleanup.policy must be delete, or empty")
        for name, local, whole, lag in (
            ("bytes", self.local_retention_bytes, self.retention_bytes, self.remote_copy_lag_bytes),
            ("ms", self.local_retention_ms, self.retention_ms, self.remote_copy_lag_ms),
        ):
            resolved = whole if local == -2 else local
            if whole > -1 and (local == -1 or local > whole):
                raise ConfigError(
                    f"local.retention.{name} {local}: at most the {whole} of retention.{name} expected, or -2"
                )
            if self.remote_log_copy_disable and resolved != whole:
                wanted = f"the {whole} of retention.{name} expected, or -2: remote.log.copy.disable is true"
                raise ConfigError(f"local.retention.{name} {local}: {wanted}")
            if lag is not None and -1 < resolved < lag:
                raise ConfigError(
                    f"remote.copy.lag.{name} {lag}: at most the {resolved} of the local retention expected"
                )

    def check_change(self, before: LogConfig) -> None:
        """Check a change from another configuration. Raises ConfigError: tiering is switched off, and the segments in
        the tier are to stay.
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
        """Draw the ms by which one segment is closed earlier: 0 … the least of ``segment.jitter.ms`` and
        ``segment.ms``, exclusive.
        """
        return rng.integer_below(min(self.segment_jitter_ms, self.segment_ms)) if self.segment_jitter_ms else 0


def _read_topic_values(given: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a LogConfig that are given, by any of their names. Raises ConfigError, as ``from_kafka``."""
    _check_names(given)
    values = read_values(LogConfig, given)
    if _INTERNAL_SEGMENT_BYTES.name in given:
        values["segment_bytes"] = _INTERNAL_SEGMENT_BYTES.read(given[_INTERNAL_SEGMENT_BYTES.name])
    return values


def _check_names(given: Iterable[str]) -> None:
    known = names_of(LogConfig, LogDirectoryConfig, CleanerConfig) | {_INTERNAL_SEGMENT_BYTES.name}
    for name in given:
        if name not in known:
            raise _unknown_key(name, known)


def _unknown_key(name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"unknown key {name!r:.80}: the nearest known one is {nearest_name(name, known)}")


@dataclass(frozen=True, slots=True)
class LogDirectoryConfig:
    """A broker's configuration, as far as its logs go by it; the fields are Kafka's names with "_" for ".".

    Times are ms. Immutable and hashable.

    Raises:
        ConfigError: a field is of another type or outside Kafka's limits.
    """

    log_retention_check_interval_ms: int = key(
        "How often retention looks for segments to delete.", default=300_000, minimum=1
    )
    log_flush_scheduler_interval_ms: int = key(
        "How often logs are looked at whose `flush.ms` is over. Kafka's default is never: a `flush.ms` alone has no "
        "effect.",
        default=INT64_MAX,
        minimum=1,
    )
    log_flush_offset_checkpoint_interval_ms: Int32 = key(
        "How often the recovery points are written.", default=60_000, minimum=0
    )
    log_flush_start_offset_checkpoint_interval_ms: Int32 = key(
        "How often the log starts are written.", default=60_000, minimum=0
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        "How often the high watermarks are written.", default=5_000, minimum=1
    )
    num_recovery_threads_per_data_dir: Int32 = key(
        "How many logs are loaded, or closed, at a time.", default=2, minimum=1
    )
    log_initial_task_delay_ms: int = key(
        "How long after opening the first of these tasks runs.", default=30_000, minimum=0
    )
    producer_id_expiration_ms: Int32 = key(
        "After what silence a producer's sequence numbers are forgotten.",
        default=86_400_000,
        minimum=1,
    )
    producer_id_expiration_check_interval_ms: Int32 = key(
        "How often such producers are looked for.", default=600_000, minimum=1
    )
    transaction_max_timeout_ms: Int32 = key(
        "The longest transaction; a late one is told by it.",
        default=900_000,
        minimum=1,
    )
    transaction_partition_verification_enable: bool = key(
        "Whether a transaction's first append must have been verified with its coordinator. Kafka: true. "
        "Here nobody speaks for a coordinator unless whoever embeds the log does.",
        default=False,
    )

    def __post_init__(self) -> None:
        check_values(self)

    @classmethod
    def from_kafka(cls, given: Mapping[str, str]) -> Self:
        """Parse a configuration from text; keys of the others are passed over: one file has all.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), or a malformed value. TypeError: a key or a
                value is no str.
        """
        require_texts("given", given)
        _check_names(given)
        return cls(**read_values(LogDirectoryConfig, given))

    def to_kafka(self) -> dict[str, str]:
        """Return the keys as text; ``from_kafka`` makes an equal value of it."""
        return {row.name: row.shown(getattr(self, field)) for field, row in rows(LogDirectoryConfig).items()}


#: log.cleaner.dedupe.buffer.size, and no less for a thread.
_DEDUPE_BYTES_PER_THREAD: Final = 1 << 20
#: Of an offset map.
_BYTES_PER_KEY: Final = 24


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """A broker's configuration of its log cleaner; the fields are Kafka's names with "_" for ".".

    Sizes are bytes, times ms. Immutable and hashable; a changed one is another value, which ``LogCleaner.reconfigure``
    takes.

    Raises:
        ConfigError: a field is of another type or outside Kafka's limits, or a thread would have 1 MiB or less of
            ``log.cleaner.dedupe.buffer.size``, or a map of no key; Kafka's threads die of that one.
    """

    log_cleaner_threads: Int32 = key("How many threads compact logs.", default=1, minimum=1, live=True)
    log_cleaner_io_max_bytes_per_second: float = key(
        "How many bytes all of these threads together read and write a second, at most; a negative one: no limit.",
        default=sys.float_info.max,
        maximum=int(sys.float_info.max),
        live=True,
    )
    log_cleaner_dedupe_buffer_size: int = key(
        "Memory of the offset maps of all of these threads; more than 1 MiB for each.", default=128 << 20, live=True
    )
    log_cleaner_io_buffer_size: Int32 = key(
        "Memory of the buffers by which all of these threads read and write.", default=512 << 10, minimum=0, live=True
    )
    log_cleaner_io_buffer_load_factor: float = key(
        "Which part of an offset map is used: the more, the more of a log is cleaned at once, and the slower.",
        default=0.9,
        minimum=0,
        maximum=1,
        live=True,
    )
    log_cleaner_backoff_ms: int = key(
        "How long a thread waits when no log is to be compacted.", default=15_000, minimum=0, live=True
    )
    log_cleaner_enable: bool = key(
        "Whether logs are compacted. Without it compacted logs only grow: retention leaves them alone. Kafka 5 will "
        "have no such key.",
        default=True,
    )
    message_max_bytes: Int32 = key(
        "Kafka's bound of the cleaner's buffers. It has no effect here: they grow for any batch that a log has.",
        default=1_048_588,
        minimum=0,
        live=True,
    )

    def __post_init__(self) -> None:
        check_values(self)
        threads, size_bytes = self.log_cleaner_threads, self.log_cleaner_dedupe_buffer_size
        factor = self.log_cleaner_io_buffer_load_factor
        if size_bytes // threads <= _DEDUPE_BYTES_PER_THREAD:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size {size_bytes}: more than {_DEDUPE_BYTES_PER_THREAD} expected for each "
                f"of {threads} threads"
            )
        if size_bytes // threads // _BYTES_PER_KEY * factor <= 1:
            raise ConfigError(f"log.cleaner.io.buffer.load.factor {factor}: the offset map would hold no key")

    @classmethod
    def from_kafka(cls, given: Mapping[str, str]) -> Self:
        """Parse a configuration from text; keys of ``LogConfig`` and ``LogDirectoryConfig`` are passed over.

        Raises:
            ConfigError: an unknown key (the nearest known one is named), or a malformed value, or too little memory.
                TypeError: a key or a value is no str.
        """
        require_texts("given", given)
        _check_names(given)
        return cls(**read_values(CleanerConfig, given))

    def to_kafka(self) -> dict[str, str]:
        """Return the keys as text; ``from_kafka`` makes an equal value of it."""
        return {row.name: row.shown(getattr(self, field)) for field, row in rows(CleanerConfig).items()}

    def check_change(self, before: CleanerConfig) -> None:
        """Check a change at run time from another configuration.

        Raises:
            ConfigError: a key that cannot change at run time, or the number of threads falls below half or rises above
                the double.
        """
        fixed = [
            row.name
            for field, row in rows(CleanerConfig).items()
            if not row.live and getattr(self, field) != getattr(before, field)
        ]
        if fixed:
            raise ConfigError(f"{', '.join(fixed)}: cannot be changed at run time")
        threads, current = self.log_cleaner_threads, before.log_cleaner_threads
        if threads < current // 2:
            raise ConfigError(f"log.cleaner.threads {threads}: at least half of the current value {current} expected")
        if threads > current * 2:
            raise ConfigError(f"log.cleaner.threads {threads}: at most double the current value {current} expected")
