"""The threads that compact logs: each cleans the most urgent log, runs retention of the compacted ones, and waits.

Source: Kafka LogCleaner.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.arguments import require_type
from tierlog.errors import NoThreadError
from tierlog.log.local.compaction.cleanable_logs import LogToClean
from tierlog.log.local.compaction.cleaner import Cleaner, CleanerStats
from tierlog.log.local.compaction.log_cleaner_manager import LogCleanerManager
from tierlog.log.local.compaction.throttler import Throttler
from tierlog.log.local.log_config import CleanerConfig
from tierlog.log.local.log_errors import LogCleaningAbortedError
from tierlog.marks import mark
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable, Origin
from tierlog.runtime.machine.scheduling import Future

_log = logging.getLogger(__name__)

#: The longest wait for the end of the threads: each notices between two windows of bytes.
STOP_SECONDS_MAX: Final = 60.0
#: The longest wait in one piece: Python's locks know no year.
_WAIT_SECONDS_MAX: Final = 3600.0
#: An offset map is larger in no thread.
_DEDUPE_BYTES_MAX: Final = 2**31 - 1
#: Of a buffer, whatever the key says: less is a read for each header.
_IO_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True)
class PreCleanStats:
    """The logs as they were before one of them was cleaned.

    Attributes:
        max_compaction_delay_ms: For how long one has been due by ``max.compaction.lag.ms``, at most.
        delayed_partitions: How many are.
        cleanable_partitions: How many could be cleaned.
    """

    max_compaction_delay_ms: int = 0
    delayed_partitions: int = 0
    cleanable_partitions: int = 0


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A log that a thread cleans, with its directory's manager."""

    manager: LogCleanerManager
    log: LogToClean
    stats: PreCleanStats


class LogCleaner(Closeable):
    """Compacts the logs of one or several directories. ``start`` starts its threads; a context manager.

    Args:
        machine: Has the clock and the threads.
        config: Its configuration; None: Kafka's defaults.
        managers: The ``cleaner_manager`` of each directory.

    Thread safety: any number of threads; ``close`` and ``reconfigure`` not by its own.
    """

    def __init__(
        self, machine: Machine, *, config: CleanerConfig | None = None, managers: Iterable[LogCleanerManager] = ()
    ) -> None:
        self._machine = machine
        self._origin = Origin()
        self._config = config or CleanerConfig()
        self._changed = machine.scheduler.condition()
        self._managers = tuple(managers)
        self._threads: tuple[CleanerThread, ...] = ()
        self._is_restarting = False
        self._is_closed = False
        self._last_run_seconds = machine.clock.monotonic_seconds()
        self._dirtiest_ratio = 0.0
        self.throttler = Throttler(machine, self._config.log_cleaner_io_max_bytes_per_second)

    # ---- directories

    @property
    def managers(self) -> tuple[LogCleanerManager, ...]:
        return self._managers

    def add(self, manager: LogCleanerManager) -> None:
        """Clean the logs of another directory too."""
        with self._changed:
            self._managers = (*self._managers, manager)
            self._changed.notify_all()

    def remove(self, manager: LogCleanerManager) -> None:
        """Choose no log of a directory any more; its ``close`` aborts those that are being cleaned."""
        with self._changed:
            self._managers = tuple(each for each in self._managers if each is not manager)

    # ---- threads

    @property
    def config(self) -> CleanerConfig:
        return self._config

    def start(self) -> None:
        """Start the threads; does nothing where ``log.cleaner.enable`` is false, or when they run already."""
        with self._changed:
            if self._config.log_cleaner_enable and not self._threads and not self._is_closed:
                self._start()

    def _start(self) -> None:
        count = self._config.log_cleaner_threads
        self._threads = tuple(CleanerThread(self._machine, self, self._config, number) for number in range(count))
        for thread in self._threads:
            thread.start()

    def reconfigure(self, config: CleanerConfig) -> None:
        """Use another configuration: the threads end, each between two windows of bytes, and others start.

        Raises:
            ConfigError: Kafka allows no such change at run time; nothing has changed.
        """
        require_type("config", config, CleanerConfig, "a CleanerConfig")
        with self._changed:
            while self._is_restarting:
                self._changed.wait(_WAIT_SECONDS_MAX)
            config.check_change(self._config)
            self._config = config
            threads, self._is_restarting = self._threads, True
        try:
            if config.log_cleaner_io_max_bytes_per_second != self.throttler.bytes_per_second:
                self.throttler.set_rate(config.log_cleaner_io_max_bytes_per_second)
            self._stop(threads)
        finally:
            with self._changed:
                if threads and not self._is_closed:
                    self._start()
                self._is_restarting = False
                self._changed.notify_all()

    def close(self) -> None:
        """End the threads; a cleaning that is under way is aborted, and begins anew later. Idempotent. A thread that
        does not end in time goes on, and changes nothing of a directory that is closed.
        """
        if not self._origin.is_here:
            return
        with self._changed:
            self._is_closed = True
            threads = self._threads
        self._stop(threads)

    def _stop(self, threads: tuple[CleanerThread, ...]) -> None:
        with self._changed:
            for thread in threads:
                thread.is_stopping = True
            self._changed.notify_all()
        latest = self._machine.clock.monotonic_seconds() + STOP_SECONDS_MAX
        for thread in threads:
            if not thread.wait(latest - self._machine.clock.monotonic_seconds()):
                _log.warning("%s: still cleans %.0f s after it was to end", thread.name, STOP_SECONDS_MAX)

    def wait(self, thread: CleanerThread) -> None:
        """Wait until a thread is to look for a log again, or to end."""
        until = self._machine.clock.monotonic_seconds() + self._config.log_cleaner_backoff_ms / 1000
        managers = self._managers
        with self._changed:
            while not thread.is_stopping and self._managers is managers:
                left = until - self._machine.clock.monotonic_seconds()
                if left <= 0:
                    return
                self._changed.wait(min(left, _WAIT_SECONDS_MAX))

    # ---- choosing

    def begin_most_urgent(self) -> _Chosen | None:
        """Choose the most urgent log of all directories, and begin to clean it; None: no log may be cleaned."""
        clock = self._machine.clock
        now_ms, self._last_run_seconds = clock.time_ms(), clock.monotonic_seconds()
        dirty = [(manager, each) for manager in self._managers for each in manager.find_dirty_logs(now_ms)]
        self._dirtiest_ratio = max((each.cleanable_ratio for _, each in dirty), default=0.0)
        delays = [each.delay_ms for _, each in dirty if each.delay_ms]
        found = [pair for pair in dirty if pair[1].may_be_cleaned]
        stats = PreCleanStats(max(delays, default=0), len(delays), len(found))
        for manager, log in sorted(found, key=lambda pair: pair[1].urgency, reverse=True):
            begun = manager.begin(log, now_ms)  # looked at again: it may have been cut since
            if begun is not None:
                return _Chosen(manager, begun, stats)
        return None

    # ---- what operators look at, under Kafka's names

    @property
    def max_buffer_utilization_percent(self) -> int:
        """How full the offset map of one thread was in its last cleaning, at most."""
        return int(100 * max((stats.buffer_utilization for stats in self._last_stats), default=0.0))

    @property
    def cleaner_recopy_percent(self) -> int:
        """Which part of the bytes that the last cleanings read was written again."""
        stats = self._last_stats
        read = max(sum(each.bytes_read for each in stats), 1)
        return int(100 * sum(each.bytes_written for each in stats) / read)

    @property
    def max_clean_time_secs(self) -> int:
        """How long the last cleaning of one thread took, at most."""
        return int(max((stats.elapsed_seconds for stats in self._last_stats), default=0.0))

    @property
    def max_compaction_delay_secs(self) -> int:
        """For how long a log had been due by ``max.compaction.lag.ms`` when a thread began its last cleaning."""
        return max((thread.last_pre_clean_stats.max_compaction_delay_ms for thread in self._threads), default=0) // 1000

    @property
    def dead_thread_count(self) -> int:
        """How many threads ended by an error, which ``reconfigure`` starts anew."""
        return sum(thread.is_dead for thread in self._threads)

    @property
    def max_dirty_percent(self) -> int:
        """The cleanable part of the log that had the greatest one when a thread last looked."""
        return int(100 * self._dirtiest_ratio)

    @property
    def time_since_last_run_ms(self) -> int:
        """How long ago a thread last looked for a log."""
        return int(1000 * (self._machine.clock.monotonic_seconds() - self._last_run_seconds))

    @property
    def _last_stats(self) -> list[CleanerStats]:
        return [thread.last_stats for thread in self._threads if thread.last_stats is not None]


class CleanerThread:
    """One thread of a LogCleaner, which has its share of the memory, from its first cleaning on.

    Args:
        machine: Has the clock and the threads.
        owner: Chooses logs.
        config: Its memory.
        number: From 0.

    Attributes:
        is_stopping: Set by its owner, to end it.
        is_dead: Whether it ended by an error.
        last_stats: Of its last cleaning; None before the first.
        last_pre_clean_stats: Of the moment before that.
    """

    def __init__(self, machine: Machine, owner: LogCleaner, config: CleanerConfig, number: int) -> None:
        self.name = f"tierlog-log-cleaner-{number}"
        self.is_stopping = False
        self.is_dead = False
        self.last_stats: CleanerStats | None = None
        self.last_pre_clean_stats = PreCleanStats()
        self._machine = machine
        self._owner = owner
        self._config = config
        self._cleaner: Cleaner | None = None
        self._chosen: _Chosen | None = None
        self._ended: Future[None] | None = None

    def start(self) -> None:
        """Start it; where there is no thread for it, it is dead."""
        try:
            self._ended = self._machine.scheduler.start(self._run, name=self.name)
        except NoThreadError as error:
            self.is_dead = True
            _log.error("%s: no log is cleaned by it: %s", self.name, error)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it has ended in time."""
        if self._ended is not None:
            try:
                self._ended.exception(max(seconds, 0.0))
            except TimeoutError:
                return False
        return True

    def _run(self) -> None:
        try:
            while not self.is_stopping:
                with contextlib.suppress(LogCleaningAbortedError):  # of retention: the thread is to end
                    if not self.clean_most_urgent():
                        self._owner.wait(self)
        except Exception:  # noqa: BLE001 - not of one log: nothing says that the next look goes better
            self.is_dead = True
            _log.exception("%s: the thread ends: reconfigure the cleaner, or start anew", self.name)

    def clean_most_urgent(self) -> bool:
        """Clean a log, if one has to be; whether one had to. Then run retention of the compacted logs."""
        chosen = self._owner.begin_most_urgent()
        if chosen is not None:
            self._clean(chosen)
        for manager in self._owner.managers:
            manager.delete_old_segments(self._check_running)
        return chosen is not None

    def _clean(self, chosen: _Chosen) -> None:
        self._chosen, self.last_pre_clean_stats = chosen, chosen.stats
        next_dirty_offset: int | None = None
        try:
            cleaner = self._cleaner = self._cleaner or self._new_cleaner()  # for which there may be no memory
            next_dirty_offset = self._cleaned_up_to(cleaner, chosen)
        finally:
            self._chosen = None
            chosen.manager.end(chosen.log, next_dirty_offset)

    def _cleaned_up_to(self, cleaner: Cleaner, chosen: _Chosen) -> int | None:
        """Clean a log; where its next cleaning begins, as before if this one failed. None: it was aborted."""
        log = chosen.log
        try:
            result = cleaner.clean(
                log.log,
                first_dirty_offset=log.first_dirty_offset,
                first_uncleanable_offset=log.first_uncleanable_offset,
                now_ms=self._machine.clock.time_ms(),
            )
        except LogCleaningAbortedError:
            mark("cleaner: a cleaning was aborted")
            _log.info("%s: the cleaning of %s was aborted", self.name, log.log.folder)
            return None
        except Exception as error:  # noqa: BLE001 - a fault in one log must not keep others from being cleaned
            chosen.manager.note_failure(log.key, log.log, error)
            return log.first_dirty_offset
        self.last_stats = result.stats
        self._note(chosen, result.next_dirty_offset, result.stats)
        return result.next_dirty_offset

    def _new_cleaner(self) -> Cleaner:
        config, threads = self._config, self._config.log_cleaner_threads
        return Cleaner(
            self._machine,
            dedupe_buffer_bytes=min(config.log_cleaner_dedupe_buffer_size // threads, _DEDUPE_BYTES_MAX),
            load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=max(config.log_cleaner_io_buffer_size // threads // 2, _IO_BYTES_MIN),
            throttle=lambda size_bytes: self._owner.throttler.maybe_throttle(size_bytes, self._check_done),
            check_done=self._check_done,
        )

    def _check_running(self) -> None:
        if self.is_stopping:
            raise LogCleaningAbortedError(f"{self.name} is to end")

    def _check_done(self) -> None:
        """Raise LogCleaningAbortedError if this cleaning is to end."""
        self._check_running()
        if self._chosen is not None:
            self._chosen.manager.states.check_aborted(self._chosen.log.key)

    def _note(self, chosen: _Chosen, next_dirty_offset: int, stats: CleanerStats) -> None:
        """Log what a cleaning did."""
        text = "%s: cleaned %s, offsets [%d, %d), in %.1f s: %d of %d bytes left, %d of %d records, buffer %.0f %% full"
        log, records = chosen.log, (stats.messages_written, stats.messages_read)
        sizes = (stats.bytes_written, stats.bytes_read)
        place = (self.name, log.log.folder, log.first_dirty_offset, next_dirty_offset, stats.elapsed_seconds)
        _log.info(text, *place, *sizes, *records, 100 * stats.buffer_utilization)
        if stats.invalid_messages_read:
            _log.warning("%s: %d records without a key went", log.log.folder, stats.invalid_messages_read)
