"""The metadata topic as a directory of local logs: ``__remote_log_metadata-0``, ``-1`` …, as a broker has them.

The last partition is made first: what is the highest number in the directory, plus one, is the number of partitions
from the first moment on, also where the making was cut short; the next opening makes what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tierlog.errors import ConfigError
from tierlog.log.formats.identity_files import parse_partition_metadata
from tierlog.log.formats.segment_files import PARTITION_METADATA, find_partition_folder
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import Uuid
from tierlog.remote.metadata.topic_backed.metadata_log import METADATA_TOPIC
from tierlog.runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class LocalTopic:
    """The open topic.

    Attributes:
        directory: Closes the logs.
        logs: By partition; all that each of them has is on disk, and below its high watermark.
    """

    directory: LogDirectory
    topic_id: Uuid
    logs: tuple[UnifiedLog, ...]


def open_local_topic(path: str, *, partition_count: int, retention_ms: int, machine: Machine) -> LocalTopic:
    """Open the topic of a directory, which is made if it is not there; after a crash its logs are recovered.

    Args:
        path: The directory; this process's alone while it is open.
        partition_count: How many partitions it has.
        retention_ms: How long records are kept; -1 for ever.
        machine: What it runs on.

    Raises:
        ConfigError: the topic has another number of partitions, or partitions of two topics. StoreUnavailableError:
            somebody else has the directory. CorruptIndexError: a file beside the logs is malformed. StoreError.
    """
    config = LogConfig(retention_ms=retention_ms)
    # Not the sole replica: the high watermark is ours to move, behind each fsync.
    directory = LogDirectory.open(path, machine=machine, config=config, is_sole_replica=False)
    try:
        found = _topic_ids(path, machine)
        _check_count(path, found, partition_count)
        ids = {topic_id for topic_id in found.values() if topic_id is not None}
        if len(ids) > 1:
            raise ConfigError(f"{path} has partitions of {len(ids)} topics: {', '.join(sorted(map(str, ids)))}")
        topic_id = ids.pop() if ids else Uuid.random(machine.rng)
        logs = [
            directory.log(METADATA_TOPIC, number, topic_id=topic_id.raw) for number in reversed(range(partition_count))
        ]
        for log in logs:
            log.flush()  # a process that was killed leaves what only the page cache has
            log.update_high_watermark(log.log_end_offset)
    except BaseException:
        directory.close()
        raise
    return LocalTopic(directory, topic_id, tuple(reversed(logs)))


def _topic_ids(path: str, machine: Machine) -> dict[int, Uuid | None]:
    """Topic id by partition, of the partitions that are there; None where none is noted."""
    found: dict[int, Uuid | None] = {}
    for entry in machine.files.iter_directory(path):
        folder = find_partition_folder(entry.name) if entry.is_directory else None
        if folder is None or folder.topic != METADATA_TOPIC:
            continue
        noted = f"{path}/{entry.name}/{PARTITION_METADATA}"
        if machine.files.find(noted) is None:
            found[folder.partition] = None
        else:
            found[folder.partition] = Uuid(parse_partition_metadata(machine.files.read_whole(noted)).topic_id)
    return found


def _check_count(path: str, found: Mapping[int, object], partition_count: int) -> None:
    count = max(found, default=partition_count - 1) + 1
    if count != partition_count:
        raise ConfigError(
            f"{METADATA_TOPIC} in {path} has {count} partitions, and remote.log.metadata.topic.num.partitions is "
            f"{partition_count}: every record would be looked for in another partition"
        )
