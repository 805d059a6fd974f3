"""A log directory: the folders of its logs, its checkpoints, and whether it was closed cleanly.

One failed disk fails for all: when a log goes offline, so do the directory and all its logs, as in Kafka. No checkpoint
is written any more and no marker of a clean stop: the next start recovers the logs.

Source: Kafka LogManager, ReplicaManager's checkpoints of high watermarks (docs/formats/log-files.md).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Self

from tierlog.arguments import INT64_MAX, require_flag, require_int64, require_path, require_text, require_type
from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.compaction.log_cleaner import LogCleaner
from tierlog.log.local.compaction.log_cleaner_manager import LogCleanerManager
from tierlog.log.local.directory.directory_files import DirectoryIdentity, PartitionKey, write_marker
from tierlog.log.local.directory.directory_state import DirectoryState
from tierlog.log.local.directory.open_logs import OpenLogs
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
from tierlog.log.local.log_errors import InconsistentTopicIdError, LogClosedError, LogOfflineError
from tierlog.log.local.log_folder import (
    deleted_folder_name,
    future_folder_name,
    future_folders,
    iter_partition_folders,
    lock_directory,
    partition_folder_name,
    remove_folder,
    require_topic_id,
)
from tierlog.log.local.producers.producer_entries import ProducerSettings
from tierlog.log.local.recovery.log_loader import LogCheckpoints, require_opening
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.files import FileLock
from tierlog.runtime.machine.process import Closeable, Origin
from tierlog.runtime.machine.scheduling import Pool
from tierlog.runtime.waiting.threads import run_all

_log = logging.getLogger(__name__)


class LogDirectory(Closeable):
    """A directory of logs that this process alone has open (Kafka's ``.lock``). ``open`` makes one.

    A context manager: leaving it closes the logs, writes the checkpoints and, last, ``.kafka_cleanshutdown``. That
    marker says that every log is whole: after an unclean stop it is written only if all logs were loaded since.

    Attributes:
        last_stop: How the directory was left before it was opened.
        properties: Its ``meta.properties``; None if there are none.
        cleaner_manager: Which of its logs are compacted, how far, and which cannot be.
        cleaner: What compacts its logs; None: nothing does.

    Raises (all methods with arguments): TypeError: an argument is of another type; nothing has changed then.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        machine: Machine,
        path: str,
        lock: FileLock,
        *,
        config: LogConfig,
        directory_config: LogDirectoryConfig,
        remote_log_enabled: bool,
        is_sole_replica: bool,
        identity: DirectoryIdentity | None,
        runs_tasks: bool,
        cleaner: LogCleaner | None,
        on_offline: Callable[[Exception], None] | None,
    ) -> None:
        self._machine = machine
        self._path = path
        self._lock = lock
        self._config = config
        self._directory_config = directory_config
        self._remote_log_enabled = remote_log_enabled
        self._is_sole_replica = is_sole_replica
        self._origin = Origin()
        self._logs = OpenLogs(machine.scheduler, path)
        self._deleted: list[UnifiedLog] = []
        self._own_cleaner: LogCleaner | None = None
        self._on_offline = on_offline

        folders = list(iter_partition_folders(machine.files, path))
        self._futures = future_folders(folders)
        self._unloaded = {(each.topic, each.partition) for each in folders if not each.is_deleted}
        self._state = DirectoryState(machine, path, there=self._unloaded, identity=identity, on_failure=self._failed)
        self.properties = self._state.properties
        self.last_stop = self._state.last_stop
        self.cleaner_manager = LogCleanerManager(machine, path, state=self._state, logs=lambda: self.logs)
        self._tasks = BackgroundTasks(machine) if runs_tasks else None
        for each in folders:
            if each.is_deleted:
                self._later(partial(remove_folder, machine.files, each.path), config.file_delete_delay_ms)
        if self._tasks is not None:
            _schedule_jobs(self._tasks, self, directory_config, machine.clock)
        self.cleaner = cleaner
        if cleaner is not None:
            cleaner.add(self.cleaner_manager)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        machine: Machine | None = None,
        config: LogConfig | None = None,
        directory_config: LogDirectoryConfig | None = None,
        remote_log_enabled: bool = False,
        is_sole_replica: bool = True,
        identity: DirectoryIdentity | None = None,
        runs_tasks: bool = True,
        cleaner: LogCleaner | None = None,
        cleaner_config: CleanerConfig | None = None,
        on_offline: Callable[[Exception], None] | None = None,
    ) -> Self:
        """Lock the directory, made if it does not exist, and read its checkpoints. Logs are loaded by ``log``, or all
        of them by ``load_logs``.

        Args:
            path: Of the directory.
            machine: Clock, chance, threads and files; None: this machine's.
            config: Of topics that are given none; None: Kafka's defaults.
            directory_config: The broker's; None: Kafka's defaults.
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).
            is_sole_replica: High watermarks follow the ends of the logs: there is no follower to wait for.
            identity: The directory's owner: checked, or written if there is none. None: any directory is opened.
            runs_tasks: Whether a thread runs retention, the periodic checkpoints, flushes by ``flush.ms`` and the
                removal of deleted files. False: the caller calls ``checkpoint`` and each log's ``delete_old_segments``,
                and what logs would leave for later is done at once; nothing is compacted but by ``cleaner``.
            cleaner: Compacts the logs, and those of other directories; the caller starts and closes it. None: with
                ``runs_tasks`` one of the directory's own.
            cleaner_config: Of its own cleaner; None: Kafka's defaults.
            on_offline: Called once, when a failure takes the directory offline. It must not raise, wait or call a log.

        Raises:
            DirectoryInUseError: another process has it. ConfigError: it is another broker's, or meta.properties is
                malformed, or two logs of one partition move in. StoreError.
        """
        path = require_path("path", path)
        require_opening(machine, config, remote_log_enabled=remote_log_enabled)
        require_flag("is_sole_replica", is_sole_replica)
        wanted = "a LogDirectoryConfig"
        require_type("directory_config", directory_config, (LogDirectoryConfig, type(None)), wanted)
        require_type("identity", identity, (DirectoryIdentity, type(None)), "a DirectoryIdentity")
        require_flag("runs_tasks", runs_tasks)
        require_type("cleaner", cleaner, (LogCleaner, type(None)), "a LogCleaner")
        require_type("cleaner_config", cleaner_config, (CleanerConfig, type(None)), "a CleanerConfig")
        machine = machine or Machine()
        machine.files.make_directories(path)
        lock = lock_directory(machine.files, path)
        own = LogCleaner(machine, config=cleaner_config) if cleaner is None and runs_tasks else None
        try:
            opened = cls(
                machine,
                path,
                lock,
                config=config or LogConfig(),
                directory_config=directory_config or LogDirectoryConfig(),
                remote_log_enabled=remote_log_enabled,
                is_sole_replica=is_sole_replica,
                identity=identity,
                runs_tasks=runs_tasks,
                cleaner=cleaner or own,
                on_offline=on_offline,
            )
        except BaseException:
            lock.release()
            raise
        opened._own_cleaner = own
        if own is not None:
            own.start()
        return opened

    # ---- the logs

    def log(
        self,
        topic: str,
        partition: int,
        *,
        config: LogConfig | None = None,
        topic_id: Uuid | None = None,
        must_exist: bool = False,
    ) -> UnifiedLog:
        """Return the log of a partition, loaded or made by the first call; a closed one is loaded anew.

        Args:
            topic: Its name.
            partition: Its number.
            config: The topic's, for the call that loads the log; None: the directory's.
            topic_id: Written to ``partition.metadata`` or compared with it; None: whatever is there.
            must_exist: Whether none is made.

        Raises:
            ConfigError: no topic is called so. InconsistentTopicIdError: the folder has another topic's id.
                LogOfflineError: the log cannot be loaded, or the directory is offline. LogClosedError. ValueError: the
                topic id is not one, or the partition's log here is a future one. ObjectNotFoundError: ``must_exist``.
        """
        require_flag("must_exist", must_exist)
        folder = f"{self._path}/{partition_folder_name(topic, partition)}"
        return self._opened(
            (topic, partition), lambda: folder, config, topic_id, is_future=False, must_exist=must_exist
        )

    def future_log(
        self, topic: str, partition: int, *, config: LogConfig | None = None, topic_id: Uuid | None = None
    ) -> UnifiedLog:
        """Return the log of a partition that moves in from another directory: as ``log``, in a folder ``…-future``.

        Raises:
            As ``log``. ConfigError: the topic's name is too long. ValueError: the partition's log here is none that
                moves in.
        """
        name = future_folder_name(topic, partition, self._machine.rng)
        key = topic, partition
        return self._opened(
            key, lambda: self._futures.setdefault(key, f"{self._path}/{name}"), config, topic_id, is_future=True
        )

    def known_logs(self, *, is_future: bool = False) -> frozenset[PartitionKey]:
        """The partitions that have a log here, loaded or not; or those whose log moves in."""
        there = self._logs.keys() | self._unloaded
        return there & self._futures.keys() if is_future else there - self._futures.keys()

    def has(self, topic: str, partition: int, *, is_future: bool = False) -> bool:
        """Whether there is a log of a partition, loaded or not; or one that moves in."""
        key = topic, partition
        return (self._logs.find(key) is not None or key in self._unloaded) and is_future == (key in self._futures)

    @property
    def log_count(self) -> int:
        """The number of logs here, loaded or not, with the future ones."""
        return len(self._logs.keys() | self._unloaded)

    def _opened(
        self,
        key: PartitionKey,
        folder_of: Callable[[], str],
        config: LogConfig | None,
        topic_id: Uuid | None,
        *,
        is_future: bool,
        must_exist: bool = False,
    ) -> UnifiedLog:
        require_type("config", config, (LogConfig, type(None)), "a LogConfig")
        require_topic_id(topic_id)
        self._check_usable()
        with self._logs.alone(key):
            self._check_usable()
            if self.has(*key, is_future=not is_future):
                which = "no" if is_future else "a"
                raise ValueError(f"{self._path}: the log of {key[0]}-{key[1]} here is {which} future one")
            if must_exist and not self.has(*key, is_future=is_future):
                raise ObjectNotFoundError(f"{self._path}: there is no log of {key[0]}-{key[1]} here")
            folder = folder_of()
            known = self._logs.find(key)
            if known is not None and not known.is_closed:
                return _same_topic(known, topic_id)
            checkpoints = self._state.checkpoints.of(key) if known is None else _left_by(known)
            is_clean = self.last_stop.was_clean and known is None
            opened = self._load(folder, config, topic_id, checkpoints, key=key, had_clean_shutdown=is_clean)
            self._logs.put(key, opened)
            self._unloaded.discard(key)
            if self._state.checkpoints.promises_more(opened):  # or a crash makes the next start believe later appends
                self.write_recovery_points()
            self.cleaner_manager.check_loaded(key, opened)
            if self._state.failure is not None:
                opened.take_offline(self._state.failure)
            return opened

    def load_logs(self, *, configs: Mapping[str, LogConfig] | None = None) -> Mapping[PartitionKey, UnifiedLog]:
        """Load all logs of the directory, several at a time (``num.recovery.threads.per.data.dir``).

        Args:
            configs: By topic; the directory's for those that are not named.

        Raises:
            As ``log``, the first that fails: the directory is offline then.
        """
        known = require_type("configs", {} if configs is None else configs, Mapping, "a mapping of topic to LogConfig")
        for topic, config in known.items():
            require_text("each topic of configs", topic)
            require_type("each value of configs", config, LogConfig, "a LogConfig")
        self._check_usable()

        def load(key: PartitionKey) -> UnifiedLog:
            load_it = self.future_log if key in self._futures else self.log
            return load_it(*key, config=known.get(key[0]))

        with self._pool("tierlog-log-recovery") as pool:
            for _ in run_all(pool, load, sorted(self._unloaded)):
                pass
        return self.logs

    @property
    def logs(self) -> Mapping[PartitionKey, UnifiedLog]:
        """The logs that are open now, by topic and partition; without the future ones."""
        return {key: log for key, log in self._logs.open_ones().items() if key not in self._futures}

    @property
    def future_logs(self) -> Mapping[PartitionKey, UnifiedLog]:
        """The logs that move in from other directories and are open now."""
        return {key: log for key, log in self._logs.open_ones().items() if key in self._futures}

    def delete_log(self, topic: str, partition: int) -> bool:
        """Delete a log, open or not, a future one too; return whether there was one. It can be made anew at once; its
        folder is renamed, and deleted after the ``file.delete.delay.ms`` of its topic, or at the next start. Readers
        that have it open may read on.

        Raises:
            ConfigError: no topic is called so. LogOfflineError. LogClosedError. LogBusyError: a cleaning of the log
                did not end in time.
        """
        key = topic, partition
        folder = f"{self._path}/{partition_folder_name(topic, partition)}"
        self._check_usable()
        is_future = self.has(*key, is_future=True)
        if not is_future and not self.has(*key) and self._machine.files.find(folder) is None:
            return False
        log = (self.future_log if is_future else self.log)(topic, partition)
        with self.held(topic, partition) as held:
            if held is not log:
                return False  # another thread was faster
            log.rename_folder(f"{self._path}/{deleted_folder_name(topic, partition, self._machine.rng)}")
            self.forget(log)
            self.cleaner_manager.forget(key)
        return True

    @contextlib.contextmanager
    def held(self, topic: str, partition: int) -> Iterator[UnifiedLog | None]:
        """A block in which no other thread loads, deletes or cleans a log; the log, None if it is not open.

        Raises:
            LogOfflineError. LogClosedError. LogBusyError: a cleaning of the log did not end in time.
        """
        self._check_usable()
        key = topic, partition
        with self._logs.alone(key), self.cleaner_manager.paused(key):
            yield self._logs.find(key)

    def has_moved_in(self, topic: str, partition: int) -> None:
        """Note that a future log has its partition's name now. The caller holds it."""
        self._futures.pop((topic, partition), None)

    def set_aside(self, topic: str, partition: int) -> None:
        """Delete the folder of a log that is not loaded: a move has left it. Raises LogOfflineError."""
        key = topic, partition
        aside = f"{self._path}/{deleted_folder_name(topic, partition, self._machine.rng)}"
        with self._logs.alone(key):
            with self._state.writing() as checkpoints:
                files = self._machine.files
                files.rename(f"{self._path}/{partition_folder_name(topic, partition)}", aside)
                self._unloaded.discard(key)
                checkpoints.forget(key)
            self._later(partial(remove_folder, files, aside), self._config.file_delete_delay_ms)

    @property
    def name(self) -> str:
        """The directory's id, or its path if it has none."""
        known = None if self.properties is None else self.properties.directory_id
        return self._path if known is None else str(known)

    def forget(self, log: UnifiedLog) -> None:
        """Forget a log whose folder was set aside, and delete it later. The caller holds it. Raises LogOfflineError."""
        key = log.topic, log.partition
        self._logs.remove(key)
        self._futures.pop(key, None)
        self._deleted.append(log)
        try:
            with self._state.writing() as checkpoints:
                checkpoints.forget(key)
        finally:
            self._later(partial(self._remove_deleted, log), log.config.file_delete_delay_ms)

    # ---- checkpoints

    def checkpoint(self) -> None:
        """Write the recovery points, log starts and high watermarks of the open logs; the recovery points, if their
        file was lost, only while all logs are open that the directory had then.

        Raises:
            LogOfflineError: a file cannot be written, or the directory is offline already. LogClosedError.
        """
        self._check_usable()
        with self._state.writing() as checkpoints:
            checkpoints.write_all(self._open_ones())

    def write_checkpoints(self) -> None:
        """As ``checkpoint``; a failure takes the directory offline, and is not raised."""
        with contextlib.suppress(LogOfflineError), self._state.writing() as checkpoints:
            checkpoints.write_all(self._open_ones())

    def write_recovery_points(self) -> None:
        """Write up to where the open logs are flushed; a failure takes the directory offline, and is not raised."""
        with contextlib.suppress(LogOfflineError), self._state.writing() as checkpoints:
            checkpoints.write_recovery_points(self._open_ones())

    def write_log_starts(self) -> None:
        """Write where the open logs start; a failure takes the directory offline, and is not raised."""
        with contextlib.suppress(LogOfflineError), self._state.writing() as checkpoints:
            checkpoints.write_log_starts(self._open_ones())

    def write_high_watermarks(self) -> None:
        """Write the open logs' high watermarks; a failure takes the directory offline, and is not raised."""
        with contextlib.suppress(LogOfflineError), self._state.writing() as checkpoints:
            checkpoints.write_high_watermarks(self._open_ones())

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_offline(self) -> bool:
        """Whether a file failed, of the directory or of any of its logs: all of them are offline then."""
        return self._state.failure is not None

    def take_offline(self, cause: Exception) -> LogOfflineError:
        """Take the directory and its logs offline: its disk failed for the caller, who may raise the error. Does not
        wait.
        """
        self._state.fail(cause)
        return LogOfflineError(f"{self._path}: the log directory is offline: {cause}")

    def close(self, *, broker_epoch: int = -1) -> None:
        """Close the logs and the directory; idempotent. Where a log is offline, the directory is left unclean.

        Args:
            broker_epoch: For the marker of a clean stop; -1: none.

        Raises:
            LogOfflineError: a file could not be written now; the directory is closed all the same. ValueError: the
                epoch does not fit into 64 bits; nothing is closed.
        """
        broker_epoch = require_int64("broker_epoch", broker_epoch)
        if not self._origin.is_here:
            return  # all that is here is the parent's
        logs = self._logs.close()
        if logs is None:
            return
        was_offline = self.is_offline
        try:
            self._close_cleaner()
            if self._tasks is not None:
                self._tasks.close()
            self._close_logs(logs)
            if not was_offline:
                with self._state.writing() as checkpoints:
                    checkpoints.write_all(logs)
                    self._write_marker(broker_epoch)
        finally:
            self._lock.release()

    # ---- inside

    def _open_ones(self) -> Iterable[UnifiedLog]:
        return self._logs.open_ones().values()

    def _failed(self, cause: Exception) -> None:
        self._logs.take_offline(cause)
        if self._on_offline is not None:
            self._on_offline(cause)

    def _check_usable(self) -> None:
        self._origin.require(f"the log directory {self._path}")
        self._state.check_online()
        self._logs.check_open()

    def _load(
        self,
        folder: str,
        config: LogConfig | None,
        topic_id: Uuid | None,
        checkpoints: LogCheckpoints,
        *,
        key: PartitionKey,
        had_clean_shutdown: bool,
    ) -> UnifiedLog:
        with self._state.working():
            return UnifiedLog.open(
                folder,
                machine=self._machine,
                config=config or self._config,
                producer_settings=ProducerSettings.of(self._directory_config),
                checkpoints=checkpoints,
                had_clean_shutdown=had_clean_shutdown,
                topic_id=topic_id,
                remote_log_enabled=self._remote_log_enabled,
                is_sole_replica=self._is_sole_replica,
                tasks=self._tasks,
                on_offline=self._state.fail,
                directory_lock=self._lock,
                write_checkpoints=self.write_checkpoints,
                pause_cleaning=partial(self.cleaner_manager.paused, key),
            )

    def _later(self, function: Callable[[], None], delay_ms: int) -> None:
        if self._tasks is None:
            function()
        else:
            self._tasks.submit(function, delay_ms=delay_ms)

    def _remove_deleted(self, log: UnifiedLog) -> None:
        try:
            log.delete()
        except StoreError as error:
            _log.warning("%s: a deleted log stays until the next start: %s", log.folder, error)
        self._deleted.remove(log)

    def _close_cleaner(self) -> None:
        """Abort what is being cleaned here, and let nothing be cleaned any more."""
        if self.cleaner is not None:
            self.cleaner.remove(self.cleaner_manager)
        self.cleaner_manager.close()
        if self._own_cleaner is not None:
            self._own_cleaner.close()

    def _close_logs(self, logs: list[UnifiedLog]) -> None:
        """Close all, several at a time; the first failure takes the directory offline."""
        with self._pool("tierlog-log-closing") as pool:
            calls = [pool.submit(log.close) for log in (*logs, *self._deleted)]
            for call in calls:
                error = call.exception()
                if isinstance(error, Exception):
                    self._state.fail(error)

    def _write_marker(self, broker_epoch: int) -> None:
        if self.last_stop.was_clean or not self._unloaded:
            write_marker(self._machine.files, self._path, broker_epoch=broker_epoch)
        else:
            text = "%s: left unclean: %d logs were not loaded since the last, unclean, stop"
            _log.warning(text, self._path, len(self._unloaded))

    def _pool(self, name: str) -> Pool:
        return self._machine.scheduler.pool(self._directory_config.num_recovery_threads_per_data_dir, name=name)


def _left_by(log: UnifiedLog) -> LogCheckpoints:
    """Return the checkpoints of a log that was closed while the directory was open."""
    return LogCheckpoints(log.recovery_point, log.log_start_offset, log.high_watermark)


def _same_topic(log: UnifiedLog, topic_id: Uuid | None) -> UnifiedLog:
    """Return the log, if it is of this topic; None is any."""
    if topic_id is not None and log.topic_id is not None and log.topic_id != topic_id:
        raise InconsistentTopicIdError(f"{log.folder}: topic id {log.topic_id}, not {topic_id}")
    return log


def _schedule_jobs(tasks: BackgroundTasks, directory: LogDirectory, config: LogDirectoryConfig, clock: Clock) -> None:
    """Schedule retention, flushes by ``flush.ms``, checkpoints and the expiry of producers by Kafka's intervals; those
    of 2^63-1 ms never (Kafka LogManager#startup).
    """
    first = config.log_initial_task_delay_ms
    expiry = config.producer_id_expiration_check_interval_ms
    watermarks = config.replica_high_watermark_checkpoint_interval_ms
    jobs: tuple[tuple[int, int, Callable[[], None]], ...] = (
        (config.log_retention_check_interval_ms, first, lambda: _each(directory, directory.cleaner_manager.retain)),
        (config.log_flush_scheduler_interval_ms, first, lambda: _flush_dirty(directory, clock)),
        (config.log_flush_offset_checkpoint_interval_ms, first, directory.write_recovery_points),
        (config.log_flush_start_offset_checkpoint_interval_ms, first, directory.write_log_starts),
        (watermarks, watermarks, directory.write_high_watermarks),
        (expiry, expiry, lambda: _each(directory, UnifiedLog.remove_expired_producers)),
    )
    for interval_ms, delay_ms, job in jobs:
        if interval_ms < INT64_MAX:
            tasks.submit_every(interval_ms, job, delay_ms=delay_ms)


def _each(directory: LogDirectory, job: Callable[[UnifiedLog], object]) -> None:
    for log in (*directory.logs.values(), *directory.future_logs.values()):
        with contextlib.suppress(LogOfflineError, LogClosedError):  # the directory knows the first one
            job(log)


def _flush_dirty(directory: LogDirectory, clock: Clock) -> None:
    now_ms = clock.time_ms()

    def flush(log: UnifiedLog) -> None:
        if now_ms - log.last_flush_ms >= log.config.flush_ms:
            log.flush()

    _each(directory, flush)
