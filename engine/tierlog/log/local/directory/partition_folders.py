"""The folders of a log directory: whose they are, what they are called once a log is deleted, and how they go.

Source: Kafka UnifiedLog#parseTopicPartitionName, LocalLog#logDeleteDirName.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tierlog.arguments import require_int, require_text
from tierlog.errors import ConfigError, StoreError
from tierlog.log.formats.segment_files import PARTITION_MAX, REMOTE_INDEX_CACHE, find_partition_folder
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import Rng

_log = logging.getLogger(__name__)

#: Of KRaft's metadata log, which is no log of a log directory's.
CLUSTER_METADATA: Final = "__cluster_metadata"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME_BYTES_MAX: Final = 255


class FoundFolder(NamedTuple):
    """A folder of a partition.

    Attributes:
        is_deleted: Whether it is what a deleted log left, to be removed.
    """

    path: str
    topic: str
    partition: int
    is_deleted: bool


def partition_folder_name(topic: str, partition: int) -> str:
    """The name of a partition's folder.

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
    """A name that nobody has, for the folder of a log that was deleted: the topic cut so that it fits."""
    ending = f"-{partition}.{rng.secret_bytes(16).hex()}-delete"
    return topic[: _NAME_BYTES_MAX - len(ending)] + ending


def iter_partition_folders(files: Files, directory: str) -> Iterator[FoundFolder]:
    """The folders of a log directory, by name; those that Kafka set aside, and foreign ones, are left alone and told.

    Raises:
        StoreError: the directory cannot be read.
    """
    for entry in files.iter_directory(directory):
        if not entry.is_directory or entry.name == REMOTE_INDEX_CACHE:
            continue
        found = find_partition_folder(entry.name)
        if found is None or (not found.purpose and entry.name != f"{found.topic}-{found.partition}"):
            _log.warning("%s: not a partition's folder: left alone", entry.path)
        elif found.purpose in ("stray", "future"):
            _log.info("%s: a %s replica: left alone", entry.path, found.purpose)
        elif found.topic != CLUSTER_METADATA:
            yield FoundFolder(entry.path, found.topic, found.partition, found.purpose == "delete")


def remove_folder(files: Files, path: str) -> None:
    """Remove a folder of files, for good; what cannot be removed is told, and left to the next start."""
    try:
        if files.find(path) is None:
            return
        for entry in list(files.iter_directory(path)):
            files.remove(entry.path)
        files.remove(path)
        files.fsync_directory(path.rpartition("/")[0] or ".")
    except StoreError as error:
        _log.warning("%s: a deleted log stays until the next start: %s", path, error)
