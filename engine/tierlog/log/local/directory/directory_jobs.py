"""What a log directory does by itself, again and again, and how often. Source: Kafka LogManager#startup."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from tierlog.log.local.background_tasks import LogTasks
from tierlog.log.local.config.config_key import INT64_MAX
from tierlog.log.local.directory.directory_checkpoints import PartitionKey
from tierlog.log.local.directory.directory_config import LogDirectoryConfig
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine.clock import Clock


class JobDirectory(Protocol):
    """A log directory as its jobs see it. The writes must not raise."""

    @property
    def logs(self) -> Mapping[PartitionKey, UnifiedLog]: ...
    def write_recovery_points(self) -> None: ...
    def write_log_starts(self) -> None: ...
    def write_high_watermarks(self) -> None: ...


def schedule_jobs(tasks: LogTasks, directory: JobDirectory, config: LogDirectoryConfig, clock: Clock) -> None:
    """Have retention, flushes by ``flush.ms``, checkpoints and the expiry of producers run by Kafka's intervals; those
    of 2^63-1 ms never.
    """
    first = config.log_initial_task_delay_ms
    expiry = config.producer_id_expiration_check_interval_ms
    watermarks = config.replica_high_watermark_checkpoint_interval_ms
    jobs: tuple[tuple[int, int, Callable[[], None]], ...] = (
        (config.log_retention_check_interval_ms, first, lambda: _each(directory, UnifiedLog.delete_old_segments)),
        (config.log_flush_scheduler_interval_ms, first, lambda: _flush_dirty(directory, clock)),
        (config.log_flush_offset_checkpoint_interval_ms, first, directory.write_recovery_points),
        (config.log_flush_start_offset_checkpoint_interval_ms, first, directory.write_log_starts),
        (watermarks, watermarks, directory.write_high_watermarks),
        (expiry, expiry, lambda: _each(directory, UnifiedLog.remove_expired_producers)),
    )
    for interval_ms, delay_ms, job in jobs:
        if interval_ms < INT64_MAX:
            tasks.submit_every(interval_ms, job, delay_ms=delay_ms)


def _each(directory: JobDirectory, job: Callable[[UnifiedLog], object]) -> None:
    for log in directory.logs.values():
        with contextlib.suppress(LogOfflineError, LogClosedError):  # the directory has been told of the first
            job(log)


def _flush_dirty(directory: JobDirectory, clock: Clock) -> None:
    now_ms = clock.time_ms()

    def flush(log: UnifiedLog) -> None:
        if now_ms - log.last_flush_ms >= log.config.flush_ms:
            log.flush()

    _each(directory, flush)
