"""The log directories of one broker (``log.dirs``): a partition's log lies in one of them, and one that fails is
offline alone.

Source: Kafka LogManager, ReplicaManager#alterReplicaLogDirs and #describeLogDirs (docs/formats/log-files.md).
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Self

from tierlog.arguments import require_flag, require_function, require_int64, require_path, require_text, require_type
from tierlog.errors import ConfigError, ObjectNotFoundError, StoreError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.compaction.log_cleaner import LogCleaner
from tierlog.log.local.directory.directory_files import DirectoryIdentity, PartitionKey
from tierlog.log.local.directory.meta_properties import MetaPropertiesEnsemble
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import DirectoryInUseError, LogOfflineError
from tierlog.log.local.log_folder import future_folder_name, partition_folder_name
from tierlog.log.local.log_switch import LogSwitch, settle
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.waiting.threads import run_all

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogDescription:
    """A log of a directory, as DescribeLogDirs answers.

    Attributes:
        size_bytes: Of all its segments.
        offset_lag: Offsets that it lacks: a future log of the current one's end, another one of its high watermark; -1
            where there is no current log.
        is_future: Whether it moves in from another directory.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class DirectoryDescription:
    """A directory, as DescribeLogDirs answers.

    Attributes:
        error: Why it is offline; None while it is not. Of one that is offline nothing else is known.
        is_cordoned: Whether it gets no new log.
        logs: By topic and partition.
        total_bytes, usable_bytes: Of the file system that holds it; -1 = not known.
    """

    path: str
    error: Exception | None
    logs: tuple[LogDescription, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class LogDirectories(Closeable):
    """Several log directories of one broker. ``open`` makes one.

    A context manager: leaving it closes the directories, each with its marker of a clean stop. A directory that cannot
    be opened, or that fails later, is offline, and with it its logs; the others go on.

    Attributes:
        paths: Of all directories, in the order of ``log.dirs``.
        cleaner: What compacts the logs of all; None: nothing does.

    Raises (all methods with arguments): TypeError: an argument is of another type; nothing has changed then.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, paths: Sequence[str], *, on_offline: Callable[[str], None] | None) -> None:
        self._machine = machine
        self.paths = tuple(paths)
        self._on_offline = on_offline
        self._directories: dict[str, LogDirectory] = {}
        self._failures: dict[str, Exception] = {}
        self._preferred: dict[PartitionKey, str] = {}
        self._cordoned: frozenset[str] = frozenset()
        #: Of the cleaning of logs that move: what the cleaner has done must not come behind what was copied.
        self._pauses: dict[PartitionKey, contextlib.ExitStack] = {}
        self._changing = machine.scheduler.lock()
        self.cleaner: LogCleaner | None = None

    @classmethod
    def open(
        cls,
        paths: Sequence[str],
        *,
        machine: Machine | None = None,
        config: LogConfig | None = None,
        directory_config: LogDirectoryConfig | None = None,
        remote_log_enabled: bool = False,
        is_sole_replica: bool = True,
        identity: DirectoryIdentity | None = None,
        runs_tasks: bool = True,
        cleaner_config: CleanerConfig | None = None,
        on_offline: Callable[[str], None] | None = None,
    ) -> Self:
        """Lock the directories, made if they do not exist, and read their checkpoints.

        Args:
            paths: Of the directories, in the order of ``log.dirs``.
            machine: Clock, chance, threads and files; None: this machine's.
            config: Of topics that are given none; None: Kafka's defaults.
            directory_config: The broker's; None: Kafka's defaults.
            remote_log_enabled: Whether this broker has tiered storage.
            is_sole_replica: High watermarks follow the ends of the logs.
            identity: Their owner, without a directory id: checked, or written where there is none. None: they may have
                any one owner.
            runs_tasks: Whether a thread of each directory does its periodic work, as ``LogDirectory.open`` says, and
                one cleaner compacts the logs of all.
            cleaner_config: Of the cleaner; None: Kafka's defaults.
            on_offline: Called once for each directory that is offline, with its path, as soon as it is: a broker tells
                its controller, and stops at the last one. It must not raise, wait or call a log.

        Raises:
            DirectoryInUseError: another process has one of them. ConfigError: a path stands twice, the directories are
                different brokers', or two have the log of one partition. LogOfflineError: none of them can be opened.
        """
        given = require_type("paths", paths, (list, tuple), "a list of paths")
        known = [_normal(require_path("each of paths", each)) for each in given]
        if not known or len({posixpath.normpath(each) for each in known}) < len(known):
            text = f"Duplicate log directory found: {', '.join(known)}" if known else "paths: no log directory is given"
            raise ConfigError(text)
        require_type("machine", machine, (Machine, type(None)), "a Machine")
        require_type("identity", identity, (DirectoryIdentity, type(None)), "a DirectoryIdentity")
        if on_offline is not None:
            require_function("on_offline", on_offline)
        require_flag("runs_tasks", runs_tasks)
        require_type("cleaner_config", cleaner_config, (CleanerConfig, type(None)), "a CleanerConfig")
        made = cls(machine or Machine(), known, on_offline=on_offline)
        if runs_tasks:
            made.cleaner = LogCleaner(made._machine, config=cleaner_config)
        try:
            made._open_all(
                identity,
                config=config,
                directory_config=directory_config,
                remote_log_enabled=remote_log_enabled,
                is_sole_replica=is_sole_replica,
                runs_tasks=runs_tasks,
            )
            if made.cleaner is not None:
                made.cleaner.start()
        except BaseException:
            made.close()
            raise
        return made

    def _open_all(self, owner: DirectoryIdentity | None, **options: object) -> None:
        ensemble = MetaPropertiesEnsemble(self._machine, self.paths)
        identities = ensemble.identities(owner)
        for path, error in ensemble.errors.items():
            self._failed(path, error)
        for path, identity in identities.items():
            try:
                self._directories[path] = LogDirectory.open(
                    path,
                    machine=self._machine,
                    identity=identity,
                    cleaner=self.cleaner,
                    on_offline=partial(self._failed, path),
                    **options,  # type: ignore[arg-type]
                )
            except DirectoryInUseError:
                raise
            except StoreError as error:
                self._failed(path, error)
        self._check_any_online()
        self._settle()
        for key in chain.from_iterable(each.known_logs(is_future=True) for each in self.online):
            self._begin_pause(key, self._find(key, is_future=False))

    # ---- the directories

    def _failed(self, path: str, cause: Exception) -> None:
        """Note a directory that is offline from now on. Does not wait: a log's own threads call it."""
        if path in self._failures:
            return
        self._failures[path] = cause
        _log.error("%s: the log directory is offline, %d are left: %s", path, len(self.online), cause)
        if self._on_offline is not None:
            self._on_offline(path)

    @property
    def online(self) -> tuple[LogDirectory, ...]:
        """The directories that work, in the order of ``log.dirs``."""
        return tuple(each for path, each in self._directories.items() if path not in self._failures)

    @property
    def offline(self) -> Mapping[str, Exception]:
        """The errors that took directories offline, by path."""
        return MappingProxyType(dict(self._failures))

    def directory(self, path: str) -> LogDirectory:
        """Return the directory of a path.

        Raises:
            ConfigError: none of ``log.dirs`` (Kafka's LOG_DIR_NOT_FOUND). LogOfflineError.
        """
        known = _normal(require_path("path", path))
        if known not in self.paths:
            raise ConfigError(f"Log dir {path} is not found in the config.")
        if known in self._failures:
            cause = self._failures[known]
            raise LogOfflineError(f"{known}: the log directory is offline: {cause}") from cause
        return self._directories[known]

    def directory_of(self, directory_id: Uuid) -> LogDirectory | None:
        """Return the directory that works and has an id; None if none has it."""
        require_type("directory_id", directory_id, Uuid, "a Uuid")
        for each in self.online:
            if each.properties is not None and each.properties.directory_id == directory_id:
                return each
        return None

    def _check_any_online(self) -> None:
        if not self.online:
            cause = next(iter(self._failures.values()))
            raise LogOfflineError(f"all log directories in {', '.join(self.paths)} have failed") from cause

    def _settle(self) -> None:
        """Finish moves that were interrupted. A disk that fails meanwhile is offline, as one that cannot be opened."""
        while True:
            try:
                return settle(self._machine, self.online)
            except LogOfflineError:
                self._check_any_online()

    # ---- the logs

    @property
    def logs(self) -> Mapping[PartitionKey, UnifiedLog]:
        """The logs that are open now and not offline, by topic and partition; without the future ones."""
        return dict(chain.from_iterable(each.logs.items() for each in self.online))

    @property
    def future_logs(self) -> Mapping[PartitionKey, UnifiedLog]:
        """The logs that move from one directory to another, open now and not offline."""
        return dict(chain.from_iterable(each.future_logs.items() for each in self.online))

    def load_logs(self, *, configs: Mapping[str, LogConfig] | None = None) -> Mapping[PartitionKey, UnifiedLog]:
        """Load all logs, ``num.recovery.threads.per.data.dir`` of each directory at a time. A directory with a log that
        cannot be loaded is offline.

        Args:
            configs: By topic; the directories' for those that are not named.

        Raises:
            LogOfflineError: all directories are.
        """

        def load(directory: LogDirectory) -> None:
            with contextlib.suppress(LogOfflineError):  # noted already
                directory.load_logs(configs=configs)

        directories = self.online
        with self._machine.scheduler.pool(len(directories), name="tierlog-log-directories") as pool:
            for _ in run_all(pool, load, directories):
                pass
        self._check_any_online()
        return self.logs

    def log(
        self,
        topic: str,
        partition: int,
        *,
        config: LogConfig | None = None,
        topic_id: Uuid | None = None,
        is_new: bool = False,
        directory_id: Uuid | None = None,
    ) -> UnifiedLog:
        """Return the log of a partition, loaded or made by the first call; a new one in the directory with the fewest
        logs, or in the one that it is assigned to.

        Args:
            topic: Its name.
            partition: Its number.
            config: The topic's, for the call that loads the log; None: the directory's.
            topic_id: Written to ``partition.metadata`` or compared with it; None: whatever is there.
            is_new: Whether this broker never had the partition. Else none is made while a directory is offline, which
                may have it.
            directory_id: Where a new log is made, unless ``assign`` says otherwise; None: anywhere.

        Raises:
            ConfigError: no topic is called so, or no directory that works has this id. InconsistentTopicIdError: the
                folder has another topic's id. LogOfflineError: the log cannot be loaded, it may be in a directory that
                is offline, or all are. LogClosedError. ValueError: the topic id is not one, or the only directory for
                the log has the partition's future one, which ``recover_abandoned_future_logs`` is for.
        """
        partition_folder_name(topic, partition)
        require_flag("is_new", is_new)
        key = topic, partition

        def opened(directory: LogDirectory, *, must_exist: bool = False) -> UnifiedLog:
            return directory.log(topic, partition, config=config, topic_id=topic_id, must_exist=must_exist)

        found = self._find(key, is_future=False)
        if found is not None:
            with contextlib.suppress(ObjectNotFoundError):  # it moves just now: none is made where it was
                return opened(found, must_exist=True)
        with self._changing:
            found = self._find(key, is_future=False)
            if found is not None:
                return opened(found)
            log = self._first_log(self._directories_for_new(key, is_new=is_new, directory_id=directory_id), opened)
            self._preferred.pop(key, None)
            return log

    def _first_log(
        self, candidates: Sequence[LogDirectory], open_log: Callable[[LogDirectory], UnifiedLog]
    ) -> UnifiedLog:
        """The log of the first directory that does not fail with it. Raises the last one's error."""
        for directory in candidates[:-1]:
            with contextlib.suppress(LogOfflineError):
                return open_log(directory)
        return open_log(candidates[-1])

    def _find(self, key: PartitionKey, *, is_future: bool) -> LogDirectory | None:
        return next((each for each in self.online if each.has(*key, is_future=is_future)), None)

    def _directories_for_new(
        self, key: PartitionKey, *, is_new: bool, directory_id: Uuid | None
    ) -> Sequence[LogDirectory]:
        self._check_any_online()
        if self._failures and not is_new:
            gone = ", ".join(self._failures)
            raise LogOfflineError(
                f"Can not create log for {key[0]}-{key[1]} because log directories {gone} are offline"
            )
        if key in self._preferred:
            return [self.directory(self._preferred[key])]
        if directory_id is not None:
            found = self.directory_of(directory_id)
            if found is None:
                raise ConfigError(f"no log directory that works has the id {directory_id}")
            return [found]
        moving = self._find(key, is_future=True)  # its checkpoints would be those of both
        free = [each for each in self.online if each is not moving] or self.online
        open_ones = [each for each in free if each.path not in self._cordoned] or free[:1]
        return sorted(open_ones, key=lambda each: each.log_count)

    def delete_log(self, topic: str, partition: int) -> bool:
        """Delete the log of a partition, and the one that it moves into; whether there was one.

        Raises:
            ConfigError: no topic is called so. LogOfflineError: the directory of one is offline. LogClosedError.
        """
        partition_folder_name(topic, partition)
        key, gone = (topic, partition), False
        with self._changing:
            self._preferred.pop(key, None)
            for is_future in (True, False):
                directory = self._find(key, is_future=is_future)
                gone |= directory is not None and directory.delete_log(topic, partition)
            self._end_pause(key)
        return gone

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Use another configuration for the open logs of a topic from now on, the future ones too."""
        require_text("topic", topic)
        require_type("config", config, LogConfig, "a LogConfig")
        with self._changing:  # a log that moves meanwhile would be closed, or its future one take the old configuration
            for (name, _), log in chain(self.logs.items(), self.future_logs.items()):
                if name == topic:
                    with contextlib.suppress(LogOfflineError):  # of a directory that failed just now
                        log.update_config(config)

    # ---- moves

    @property
    def cordoned(self) -> frozenset[str]:
        """The directories that get no new log, unless all are cordoned (``cordoned.log.dirs``); may be replaced."""
        return self._cordoned

    @cordoned.setter
    def cordoned(self, paths: Iterable[str]) -> None:
        self._cordoned = frozenset(_normal(require_path("each of paths", each)) for each in paths)

    def begin_move(self, topic: str, partition: int, path: str) -> UnifiedLog | None:
        """Begin to move a partition's log to a directory (AlterReplicaLogDirs): its future log there, which
        ``tierlog.replication.LogMove`` fills from the current one; ``finish_move`` ends that. A move to another
        directory is cancelled. A partition without a log gets its log there, once it is made.

        Returns:
            The future log, also of a move that goes on; None: there is nothing to move.

        Raises:
            ConfigError: no topic is called so, its name is too long for a future log's folder, or the path is no
                directory, or a cordoned one. LogOfflineError: the directory is offline, or another one is, which may
                have a future log. LogClosedError. LogBusyError: a cleaning of the log did not end in time.
        """
        future_folder_name(topic, partition, self._machine.rng)
        target, key = self.directory(path), (topic, partition)
        if target.path in self._cordoned:
            raise ConfigError(f"Log directory {path} is cordoned")
        with self._changing:
            moving, source = self._find(key, is_future=True), self._find(key, is_future=False)
            if moving is not target:
                self._cancel(key, moving)
            if source is None:
                self._preferred[key] = target.path
                return None
            if source is target:
                return None
            if self._failures and moving is not target:
                gone = ", ".join(self._failures)
                text = f"Can not create log for {topic}-{partition} because log directories {gone} are offline"
                raise LogOfflineError(text)
            current = source.log(topic, partition)
            self._begin_pause(key, source)
            return target.future_log(topic, partition, config=current.config, topic_id=current.topic_id)

    def cancel_move(self, topic: str, partition: int) -> bool:
        """Delete the future log of a partition; whether there was one. It also ends a move into a directory that has
        failed: until then the log is neither cleaned nor retained.

        Raises:
            ConfigError: no topic is called so. LogOfflineError: of the future log's directory. LogClosedError.
        """
        partition_folder_name(topic, partition)
        key = topic, partition
        with self._changing:
            return self._cancel(key, self._find(key, is_future=True))

    def _cancel(self, key: PartitionKey, moving: LogDirectory | None) -> bool:
        try:
            return moving is not None and moving.delete_log(*key)
        finally:
            self._end_pause(key)

    def finish_move(self, topic: str, partition: int) -> UnifiedLog | None:
        """Put the future log of a partition in the place of the current one, if it has all that this one has; the log
        from now on. The old one is closed: what waits for it, or asks it, goes on with the new one.

        Returns:
            None: it lacks something, or no log of the partition moves.

        Raises:
            ConfigError: no topic is called so. LogOfflineError: of one of the two directories. LogClosedError.
                LogBusyError: a cleaning of the log did not end in time.
        """
        partition_folder_name(topic, partition)
        key = topic, partition
        with self._changing:
            moving, source = self._find(key, is_future=True), self._find(key, is_future=False)
            if moving is None or source is None:
                return None
            try:
                return LogSwitch(self._machine, key, moving, source).run()
            finally:
                if not moving.has(topic, partition, is_future=True):
                    self._end_pause(key)

    def recover_abandoned_future_logs(self, assigned: Mapping[PartitionKey, Uuid]) -> list[UnifiedLog]:
        """Put future logs in the place of what is left of their partitions, where the controller says that the
        partition is in their directory: the move was ended by a failure (Kafka recoverAbandonedFutureLogs). For a
        start, before logs are made.

        Args:
            assigned: Directory ids by partition.

        Raises:
            LogOfflineError. LogBusyError.
        """
        require_type("assigned", assigned, Mapping, "a mapping of partition to directory id")
        found = []
        with self._changing:
            for directory in self.online:
                for key in sorted(directory.known_logs(is_future=True)):
                    known = None if directory.properties is None else directory.properties.directory_id
                    if known is not None and assigned.get(key) == known:
                        found.append(self._recover(key, directory))
        return found

    def _recover(self, key: PartitionKey, directory: LogDirectory) -> UnifiedLog:
        source = self._find(key, is_future=False)
        if source is not None:
            source.delete_log(*key)
        directory.future_log(*key)
        log = LogSwitch(self._machine, key, directory, None).run()
        assert log is not None
        self._end_pause(key)
        return log

    def _begin_pause(self, key: PartitionKey, source: LogDirectory | None) -> None:
        if source is not None and key not in self._pauses:
            with contextlib.ExitStack() as stack:
                stack.enter_context(source.cleaner_manager.paused(key))
                self._pauses[key] = stack.pop_all()

    def _end_pause(self, key: PartitionKey) -> None:
        if key in self._pauses:
            self._pauses.pop(key).close()

    # ---- what a broker tells

    def describe(self) -> tuple[DirectoryDescription, ...]:
        """Describe all directories and their open logs, as DescribeLogDirs answers."""
        current = self.logs
        return tuple(self._describe(path, current) for path in self.paths)

    def _describe(self, path: str, current: Mapping[PartitionKey, UnifiedLog]) -> DirectoryDescription:
        if path in self._failures:
            return DirectoryDescription(path, self._failures[path], is_cordoned=path in self._cordoned)
        directory, files = self._directories[path], self._machine.files
        told = [_described(key, log, current, is_future=False) for key, log in directory.logs.items()]
        told += [_described(key, log, current, is_future=True) for key, log in directory.future_logs.items()]
        told.sort(key=lambda each: (each.topic, each.partition))
        try:
            sizes = files.total_bytes(path), files.free_bytes(path)
            return DirectoryDescription(path, None, tuple(told), *sizes, is_cordoned=path in self._cordoned)
        except StoreError as error:
            directory.take_offline(error)
            return DirectoryDescription(path, error)

    # ---- the end

    def checkpoint(self) -> None:
        """Write the checkpoints of all directories that work; one that cannot be written is offline."""
        for each in self.online:
            with contextlib.suppress(LogOfflineError):
                each.checkpoint()

    def close(self, *, broker_epoch: int = -1) -> None:
        """Close all logs and directories, each with its marker of a clean stop if its logs are whole; idempotent.

        Args:
            broker_epoch: For the markers; -1: none.

        Raises:
            LogOfflineError: a directory could not be written now; all are closed all the same. ValueError: the epoch
                does not fit into 64 bits; nothing is closed.
        """
        broker_epoch = require_int64("broker_epoch", broker_epoch)
        directories = tuple(self._directories.values())
        if not directories:
            return
        with self._machine.scheduler.pool(len(directories), name="tierlog-log-directories") as pool:
            calls = [pool.submit(partial(each.close, broker_epoch=broker_epoch)) for each in directories]
            errors = [error for error in (call.exception() for call in calls) if error is not None]
        if self.cleaner is not None:
            self.cleaner.close()
        if errors:
            raise errors[0]


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"


def _described(
    key: PartitionKey, log: UnifiedLog, current: Mapping[PartitionKey, UnifiedLog], *, is_future: bool
) -> LogDescription:
    known, end_offset = current.get(key), log.log_end_offset
    lag = -1
    if known is not None:
        lag = known.log_end_offset - end_offset if is_future else max(known.high_watermark - end_offset, 0)
    return LogDescription(*key, log.size(), lag, is_future)
