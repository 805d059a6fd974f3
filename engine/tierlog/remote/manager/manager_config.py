"""The configuration of a RemoteLogManager, under Kafka's names, with its defaults and limits.

Source: Kafka 4.3 RemoteLogManagerConfig; ``remote.partition.remover.task.interval.ms`` is KIP-405's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from tierlog.arguments import INT64_MAX, require_type
from tierlog.config_keys import Int32, check_values, key, nearest_name, read_values, rows
from tierlog.errors import ConfigError

_TASKS: Final = "remote.log.manager."


@dataclass(frozen=True, slots=True)
class RemoteLogManagerConfig:
    """The configuration; immutable. Sizes are bytes, times ms. A changed one is another value, which ``update_config``
    of the manager makes.

    Raises:
        ConfigError: a field is of another type or outside Kafka's limits.
    """

    copier_thread_pool_size: Int32 = key("Threads that copy.", default=10, under=_TASKS, minimum=1, live=True)
    expiration_thread_pool_size: Int32 = key(
        "Threads that delete what has expired.", default=10, under=_TASKS, minimum=1, live=True
    )
    follower_thread_pool_size: Int32 = key(
        "Threads that look up what is copied of partitions that this broker follows, and remove deleted partitions.",
        default=2,
        under=_TASKS,
        minimum=1,
        other_names=("remote.log.manager.thread.pool.size",),
        live=True,
    )
    aux_state_thread_pool_size: Int32 = key(
        "Threads that begin followers' logs from the tier.", default=2, under=_TASKS, own=True, minimum=1
    )
    aux_state_timeout_ms: int = key(
        "How long it may take to begin a follower's log from the tier, with the wait for the partition's metadata; "
        "it is tried again then.",
        default=60_000,
        under=_TASKS,
        own=True,
        minimum=1,
    )
    follower_fetch_last_tiered_offset_enable: bool = key(
        "Begin an empty follower's log at the first offset that the tier does not have, not where the leader's local "
        "log starts.",
        default=False,
        name="follower.fetch.last.tiered.offset.enable",
    )
    task_interval_ms: int = key(
        "From the end of one run of a partition's task to the next one.",
        default=30_000,
        under=_TASKS,
        minimum=1,
    )
    task_retry_backoff_ms: int = key(
        "The first pause of a task after an error; Kafka reads it nowhere.", default=500, under=_TASKS, minimum=1
    )
    task_retry_backoff_max_ms: int = key(
        "The longest pause of a task after errors; Kafka reads it nowhere.", default=30_000, under=_TASKS, minimum=1
    )
    task_retry_jitter: float = key(
        "The part of a pause that is drawn at random; Kafka reads it nowhere.",
        default=0.2,
        under=_TASKS,
        minimum=0,
        maximum=1,
    )
    metadata_timeout_ms: int = key(
        "How long a task waits until the metadata manager has stored a change.",
        default=180_000,
        under=_TASKS,
        own=True,
        minimum=1,
    )
    copy_max_bytes_per_second: int = key("Limit of copying.", default=INT64_MAX, under=_TASKS, minimum=1, live=True)
    copy_quota_window_num: Int32 = key("Windows of that limit.", default=11, under=_TASKS, minimum=1)
    copy_quota_window_size_seconds: Int32 = key("Length of such a window.", default=1, under=_TASKS, minimum=1)
    fetch_max_bytes_per_second: int = key(
        "Limit of remote reads of consumers.", default=INT64_MAX, under=_TASKS, minimum=1, live=True
    )
    fetch_quota_window_num: Int32 = key("Windows of that limit.", default=11, under=_TASKS, minimum=1)
    fetch_quota_window_size_seconds: Int32 = key("Length of such a window.", default=1, under=_TASKS, minimum=1)
    unfinished_copy_retention_ms: int = key(
        "Age from which the leader removes a copy of another broker that was begun and never finished: more than the "
        "longest copy takes, and than the brokers' clocks differ by. What it has of the local log must have been "
        "copied anew. With `kafka.semantics` it goes by the topic's retention.",
        default=3_600_000,
        under=_TASKS,
        own=True,
        minimum=1,
    )
    clock_jump_max_ms: int = key(
        "Difference between the broker's clock and the store's beyond which nothing expires by time.",
        default=3_600_000,
        under=_TASKS,
        own=True,
        minimum=1,
    )
    kafka_semantics: bool = key(
        "Do as Kafka 4.3 does where Tierlog knows better "
        "([embedding-manager.md](../embedding-manager.md#where-kafka-differs)).",
        default=False,
        under=_TASKS,
        own=True,
    )
    reader_threads: Int32 = key(
        "Threads of remote reads.", default=10, name="remote.log.reader.threads", minimum=1, live=True
    )
    reader_max_pending_tasks: Int32 = key(
        "Remote reads that wait for a thread; further ones are refused.",
        default=100,
        name="remote.log.reader.max.pending.tasks",
        minimum=1,
    )
    fetch_max_wait_ms: Int32 = key(
        "How long a consumer's fetch waits for remote reads.",
        default=500,
        name="remote.fetch.max.wait.ms",
        minimum=1,
        live=True,
    )
    list_offsets_request_timeout_ms: Int32 = key(
        "How long a search by timestamp may take, where the request has no limit of its own.",
        default=30_000,
        name="remote.list.offsets.request.timeout.ms",
        minimum=1,
        live=True,
    )
    custom_metadata_bytes_max: Int32 = key(
        "The most custom metadata that a storage manager may give for a segment.",
        default=128,
        name="remote.log.metadata.custom.metadata.max.bytes",
        minimum=0,
    )
    partition_remover_task_interval_ms: int = key(
        "How often partitions that are marked for deletion are looked for. KIP-405's; Kafka has no remover.",
        default=3_600_000,
        name="remote.partition.remover.task.interval.ms",
        own=True,
        minimum=1,
    )
    index_cache_bytes: int | None = key(
        "Size of the storage manager's cache of indexes. At the start its own key wins (Tierlog's: "
        "`fetch.indexes.cache.size`). A third party's manager may have none.",
        name="remote.log.index.file.cache.total.size.bytes",
        minimum=1,
        live=True,
    )
    metrics_recording_level: str = key(
        "`DEBUG` and `TRACE` collect figures by partition, too.",
        default="INFO",
        name="metrics.recording.level",
        choices=("INFO", "DEBUG", "TRACE"),
    )
    log_index_enable: bool = key(
        "Append to the remote log index of each partition ([remote-log-index.md](../remote-log-index.md)).",
        default=False,
        name="remote.log.index.enable",
        own=True,
    )

    def __post_init__(self) -> None:
        check_values(self)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Read a broker's keys; those that are not the manager's are passed over.

        Raises:
            ConfigError: an unknown key under ``remote.log.manager.`` (the nearest known one is named), or a malformed
                value.
        """
        known = {name for row in rows(cls).values() for name in row.names}
        for name in require_type("given", given, Mapping, "a mapping"):
            if name.startswith(_TASKS) and name not in known:
                raise ConfigError(f"unknown key {name}; the nearest known one is {nearest_name(name, known)}")
        return cls(**read_values(cls, given))

    def changed(self, given: Mapping[str, str]) -> Self:
        """Return the configuration with keys changed at run time.

        Raises:
            ConfigError: a key is unknown, or cannot be changed at run time, its value is malformed, or a number of
                threads is less than half or more than twice the present one (as in Kafka).
        """
        by_name = {name: (field, row) for field, row in rows(type(self)).items() for name in row.names}
        values: dict[str, object] = {}
        for name, text in require_type("given", given, Mapping, "a mapping").items():
            if name not in by_name or not by_name[name][1].live:
                raise ConfigError(f"{name} cannot be changed at run time")
            field, row = by_name[name]
            value = row.read(text, name)
            if field.endswith(("_thread_pool_size", "_threads")):
                _check_resized(name, getattr(self, field), int(str(value)))
            values[field] = value
        return dataclasses.replace(self, **values)  # type: ignore[arg-type]


def _check_resized(name: str, now: int, wanted: int) -> None:
    if not now / 2 <= wanted <= now * 2:
        text = f"{name} {wanted}: at least half and at most twice the present number of threads, {now}, expected"
        raise ConfigError(text)
