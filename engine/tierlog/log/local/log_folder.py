"""A log's folder: its name and topic id, whether another process has it, and its files, opened when they are needed.

A broker has more segments than it may have files open: a LazyFile is opened by its first reader or writer. A rename of
the folder moves all of its files at once.

Source: Kafka UnifiedLog#parseTopicPartitionName, LocalLog#logDeleteDirName, PartitionMetadataFile.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from tierlog.arguments import require_int, require_path, require_text, require_type
from tierlog.errors import ConfigError, CorruptIndexError, ObjectNotFoundError, StoreError
from tierlog.log.formats.identity_files import (
    ZERO_UUID,
    PartitionMetadata,
    Uuid,
    encode_partition_metadata,
    parse_partition_metadata,
)
from tierlog.log.formats.segment_files import (
    LOCK,
    PARTITION_MAX,
    PARTITION_METADATA,
    REMOTE_INDEX_CACHE,
    find_partition_folder,
)
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import (
    DirectoryInUseError,
    InconsistentTopicIdError,
    LogClosedError,
    LogTruncatedError,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import FileLock, Files, ReadableFile, UpdatableFile
from tierlog.runtime.machine.randomness import Rng

NEVER_TIERED: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata")
)


Parsed = TypeVar("Parsed")


def require_topic_id(topic_id: object) -> None:
    """Raises TypeError. ValueError: all zero, which Kafka takes for none."""
    if topic_id is not None and require_type("topic_id", topic_id, Uuid, "a Uuid") == ZERO_UUID:
        raise ValueError("topic_id: not all zero is wanted")


def partition_of(folder: str) -> tuple[str, int]:
    """(topic, partition) of a folder's name. Raises ValueError."""
    name = folder.rstrip("/").rpartition("/")[2]
    found = find_partition_folder(name)
    if found is None:
        raise ValueError(f"{folder}: {name!r} is not the name of a partition, as orders-0")
    return found.topic, found.partition


def require_sibling(folder: str, other: object) -> str:
    """Return the other folder. Raises TypeError: no path. ValueError: in another directory, or not a
    partition's name.
    """
    path = require_path("folder", other)
    if path.rpartition("/")[0] != folder.rstrip("/").rpartition("/")[0]:
        raise ValueError(f"{folder}: {path!r} is in another directory")
    partition_of(path)
    return path


def is_tiered(topic: str, config: LogConfig, *, broker_tiers: bool) -> bool:
    return broker_tiers and config.remote_storage_enable and not config.is_compacted and topic not in NEVER_TIERED


def lock_directory(files: Files, path: str) -> FileLock:
    """Lock a log directory that exists, against brokers and against Tierlog; the file stays, as Kafka's does.

    Raises:
        DirectoryInUseError: somebody has the directory open. StoreError: the file cannot be made or locked.
    """
    held = files.try_record_lock(f"{path}/{LOCK}")
    if held is None:
        raise DirectoryInUseError(f"{path}: a broker, or another process, has this log directory open ({LOCK})")
    return held


def check_unlocked(files: Files, folder: str) -> None:
    """Raise StoreUnavailableError if another process has the log directory of a partition's folder open. StoreError."""
    directory = folder.rstrip("/").rpartition("/")[0] or "."
    if files.find(f"{directory}/{LOCK}") is not None:
        lock_directory(files, directory).release()


def read_small_file(
    files: Files, path: str, parse: Callable[[bytes], Parsed], *, limit_bytes: int = 1 << 30
) -> Parsed | None:
    """Read a file's content; None if there is no file. Raises CorruptIndexError: with the path. StoreError."""
    try:
        return parse(files.read_whole(path, limit_bytes=limit_bytes))
    except ObjectNotFoundError:
        return None
    except CorruptIndexError as error:
        raise error.located(path) from None


def agreed_topic_id(machine: Machine, folder: str, topic_id: Uuid | None) -> Uuid | None:
    """Return the topic's id by ``partition.metadata``, which is written if the caller knows it and there is none."""
    path = f"{folder}/{PARTITION_METADATA}"
    found = read_small_file(machine.files, path, parse_partition_metadata)
    if topic_id is None:
        return None if found is None else found.topic_id
    if found is None:
        machine.files.write_whole(path, encode_partition_metadata(PartitionMetadata(topic_id)))
    elif found.topic_id != topic_id:
        raise InconsistentTopicIdError(f"{folder}: topic id {found.topic_id}, not {topic_id}")
    return topic_id


_log = logging.getLogger(__name__)

#: Of KRaft's metadata log, which is no log of a log directory's.
CLUSTER_METADATA: Final = "__cluster_metadata"
#: The end of the name of a folder whose log moves in from another directory.
FUTURE: Final = "-future"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME_BYTES_MAX: Final = 255


class FoundFolder(NamedTuple):
    """A folder of a partition.

    Attributes:
        is_deleted: Whether it is the rest of a deleted log, to be removed.
        is_future: Whether its log moves in from another directory.
    """

    path: str
    topic: str
    partition: int
    is_deleted: bool
    is_future: bool


def partition_folder_name(topic: str, partition: int) -> str:
    """Return the name of a partition's folder.

    Raises:
        ConfigError: Kafka has no topic, or no partition, of this name. TypeError: of another type.
    """
    require_text("topic", topic)
    require_int("partition", partition)
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise ConfigError(f"{topic!r:.80} is no topic's name: 1 … 249 of a-z, A-Z, 0-9, '.', '_', '-'")
    if not 0 <= partition <= PARTITION_MAX:
        raise ConfigError(f"partition {partition} of {topic}: 0 … {PARTITION_MAX} expected")
    return f"{topic}-{partition}"


def deleted_folder_name(topic: str, partition: int, rng: Rng) -> str:
    """Make an unused name for the folder of a deleted log: the topic cut so that it fits."""
    ending = f"-{partition}.{rng.secret_bytes(16).hex()}-delete"
    return topic[: _NAME_BYTES_MAX - len(ending)] + ending


def future_folder_name(topic: str, partition: int, rng: Rng) -> str:
    """Make an unused name for the folder of a log that moves in from another directory.

    Raises:
        ConfigError: no topic is called so, or its name is so long that Kafka cannot move it either.
    """
    name = f"{partition_folder_name(topic, partition)}.{rng.secret_bytes(16).hex()}{FUTURE}"
    if len(name) > _NAME_BYTES_MAX:
        raise ConfigError(f"{topic}: a folder's name has no room for {len(name) - _NAME_BYTES_MAX} of its characters")
    return name


def iter_partition_folders(files: Files, directory: str) -> Iterator[FoundFolder]:
    """Iterate the folders of a log directory, by name; those that Kafka set aside, and foreign ones, are left alone and
    logged.

    Raises:
        StoreError: the directory cannot be read.
    """
    for entry in files.iter_directory(directory):
        if not entry.is_directory or entry.name == REMOTE_INDEX_CACHE:
            continue
        found = find_partition_folder(entry.name)
        if found is None or (not found.purpose and entry.name != f"{found.topic}-{found.partition}"):
            _log.warning("%s: not a partition's folder: left alone", entry.path)
        elif found.purpose == "stray":
            _log.info("%s: a stray replica: left alone", entry.path)
        elif found.topic != CLUSTER_METADATA:
            is_deleted, is_future = found.purpose == "delete", found.purpose == "future"
            yield FoundFolder(entry.path, found.topic, found.partition, is_deleted, is_future)


def future_folders(folders: Sequence[FoundFolder]) -> dict[tuple[str, int], str]:
    """Return the folders of the logs that move in, by topic and partition. Beside the log that it would replace such a
    folder is left alone.

    Raises:
        ConfigError: two logs of one partition move in.
    """
    found: dict[tuple[str, int], str] = {}
    current = {(each.topic, each.partition) for each in folders if not each.is_deleted and not each.is_future}
    for each in folders:
        key = each.topic, each.partition
        if each.is_future and key in current:
            _log.warning("%s: a future log beside its partition's log: left alone", each.path)
        elif each.is_future and found.setdefault(key, each.path) != each.path:
            raise ConfigError(f"Duplicate log directories found: {each.path}, {found[key]}")
    return found


def remove_folder(files: Files, path: str) -> None:
    """Remove a folder of files; failures are logged, and left to the next start."""
    try:
        if files.find(path) is None:
            return
        _remove_all(files, path)
        files.fsync_directory(path.rpartition("/")[0] or ".")
    except StoreError as error:
        _log.warning("%s: a deleted log stays until the next start: %s", path, error)


def _remove_all(files: Files, path: str) -> None:
    for entry in list(files.iter_directory(path)):
        files.remove(entry.path)
    files.remove(path)


class LogFolder:
    """The folder of a log, whose files are opened by paths that a rename changes for all of them at once.

    Attributes:
        path: The folder now.
        parent: The directory that the folder is in.
        lock: Held while a file of the folder is opened, renamed or removed, which is seldom, and never while one is
            read: else a reader would find no file under a path that was just left, or another log's.
        is_deleted: Whether the folder was removed, with all that is in it.
    """

    __slots__ = ("_files", "is_deleted", "lock", "parent", "path")

    def __init__(self, machine: Machine, path: str) -> None:
        self.path = path
        self.parent = path.rstrip("/").rpartition("/")[0] or "."
        self.is_deleted = False
        self.lock = machine.scheduler.lock()
        self._files = machine.files

    def rename_to(self, path: str) -> None:
        """Rename the folder within its directory, durably. Raises StoreError."""
        with self.lock:
            self._files.rename(self.path, path, durable=False)
            self.path = path
        self._files.fsync_directory(self.parent)

    def remove(self, name: str) -> None:
        """Remove a file of the folder, if it exists. Raises StoreError."""
        with self.lock:
            self._files.remove(f"{self.path}/{name}")

    def delete(self) -> None:
        """Remove the folder and all files in it, durably: later look-ups of a file raise that the log is closed. Raises
        StoreError: some are still there.
        """
        with self.lock:
            self.is_deleted = True
            _remove_all(self._files, self.path)
        self._files.fsync_directory(self.parent)


class LazyFile:
    """A file that any thread may open, and one thread at a time rename or remove.

    Attributes:
        name: In its folder, now.
        file: Once it is open. A reader that holds it reads on, whatever becomes of the path.
    """

    __slots__ = ("_files", "_folder", "_is_closed", "_is_removed", "_is_written", "_lock", "file", "name")

    def __init__(self, machine: Machine, folder: LogFolder, name: str) -> None:
        self.name = name
        self.file: UpdatableFile | None = None
        self._folder = folder
        self._files = machine.files
        self._lock = folder.lock
        self._is_removed = self._is_closed = self._is_written = False

    @property
    def path(self) -> str:
        """The file's current path."""
        return f"{self._folder.path}/{self.name}"

    def opened(self) -> UpdatableFile:
        """Return the open file.

        Raises:
            ObjectNotFoundError: it does not exist. LogTruncatedError: the log has removed it. LogClosedError.
            StoreError.
        """
        found = self.file or self.find()
        if found is None:
            raise ObjectNotFoundError(f"{self.path}: there is no such file")
        return found

    def find(self) -> UpdatableFile | None:
        """Return the open file; None if it does not exist. Raises as ``opened``."""
        if self.file is not None:
            return self.file
        with self._lock:
            return self._open(make=False)

    def made(self) -> UpdatableFile:
        """Return the open file, which is made if it does not exist. Raises LogClosedError, StoreError."""
        if self.file is not None:
            return self.file
        with self._lock:
            file = self._open(make=True)
            assert file is not None
            return file

    def _check(self) -> None:
        if self._is_closed or self._folder.is_deleted:
            raise LogClosedError(f"{self.path}: closed")
        if self._is_removed:
            raise LogTruncatedError(f"{self.path}: removed, while it was read")

    def _open(self, *, make: bool) -> UpdatableFile | None:
        if self.file is None:
            self._check()
            if make or self._files.find(self.path) is not None:
                self.file = self._files.open_update(self.path)
        return self.file

    def modified_ms(self) -> int:
        """Return the time of the file's last change, ms since 1970 UTC. Raises as ``opened``."""
        with self._lock:
            self._check()
            return self._files.stat(self.path).modified_ms

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the time of the file's last change, if it exists. Raises StoreError."""
        with self._lock:
            if self._files.find(self.path) is not None:
                self._files.set_modified_ms(self.path, modified_ms)

    def peek(self) -> ReadableFile | UpdatableFile | None:
        """Return the open file, or a file that is closed after the caller's last use; None if it does not exist."""
        with self._lock:
            if self.file is not None:
                return self.file
            self._check()
            return None if self._files.find(self.path) is None else self._files.open_read(self.path)

    def fsync(self) -> None:
        """Fsync the file, unless the log has removed it meanwhile. Raises as ``opened``."""
        with contextlib.suppress(LogTruncatedError):
            self.opened().fsync()

    def begin_writing(self) -> None:
        """Hold the file open from now on: a file that is opened beside a write would have an old size."""
        with self._lock:
            self._is_written = True

    def end_writing(self) -> None:
        """Note that no more is written: ``let_go`` may close the file."""
        with self._lock:
            self._is_written = False

    def let_go(self) -> None:
        """Close the file, until it is needed again, unless it is written to. Any thread."""
        with self._lock:
            if not self._is_written:
                self.file = None

    def rename_to(self, name: str) -> None:
        """Rename the file in its folder, if it exists. The folder is not fsynced."""
        with self._lock:
            if self._files.find(self.path) is not None:
                self._files.rename(self.path, f"{self._folder.path}/{name}", durable=False)
            self.name = name

    def remove(self) -> None:
        """Remove the file, if it exists."""
        with self._lock:
            self._is_removed = True
            self._files.remove(self.path)

    def unmake(self) -> None:
        """Remove the file, if it exists; ``made`` makes another. The folder is not fsynced."""
        with self._lock:
            self.file = None
            self._files.remove(self.path)

    def close(self) -> None:
        """Release the file: it is closed when its last reader has gone. Idempotent."""
        with self._lock:
            self._is_closed = True
            self.file = None
