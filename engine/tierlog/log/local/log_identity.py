"""Finding out whose log a folder holds, and whether it is free, before it is loaded."""

from __future__ import annotations

from typing import Final, NamedTuple

from tierlog.arguments import require_path, require_type
from tierlog.errors import CorruptIndexError, ObjectNotFoundError, StoreUnavailableError
from tierlog.log.formats.partition_metadata import (
    PartitionMetadata,
    encode_partition_metadata,
    parse_partition_metadata,
)
from tierlog.log.formats.segment_files import LOCK, PARTITION_METADATA, find_partition_folder
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import InconsistentTopicIdError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files

_INTERNAL_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata")
)


class LogIdentity(NamedTuple):
    """Which log a folder holds.

    Attributes:
        topic_id: 16 bytes; None where neither the caller nor ``partition.metadata`` gave one.
    """

    topic: str
    partition: int
    topic_id: bytes | None


def require_topic_id(topic_id: object) -> None:
    """Raises TypeError. ValueError: not 16 bytes, or all of them zero, which Kafka takes for none."""
    if topic_id is not None:
        given = require_type("topic_id", topic_id, bytes, "16 bytes")
        if len(given) != 16 or not any(given):
            raise ValueError("topic_id: 16 bytes are wanted, not all of them zero")


def partition_of(folder: str) -> tuple[str, int]:
    """(topic, partition) of a folder's name. Raises ValueError."""
    name = folder.rstrip("/").rpartition("/")[2]
    found = find_partition_folder(name)
    if found is None:
        raise ValueError(f"{folder}: {name!r} is not the name of a partition, as orders-0")
    return found.topic, found.partition


def require_sibling(folder: str, other: object) -> str:
    """The other folder. Raises TypeError: no path. ValueError: in another directory, or not a partition's name."""
    path = require_path("folder", other)
    if path.rpartition("/")[0] != folder.rstrip("/").rpartition("/")[0]:
        raise ValueError(f"{folder}: {path!r} is in another directory")
    partition_of(path)
    return path


def is_tiered(topic: str, config: LogConfig, *, broker_tiers: bool) -> bool:
    return broker_tiers and config.remote_storage_enable and not config.is_compacted and topic not in _INTERNAL_TOPICS


def check_unlocked(files: Files, folder: str) -> None:
    """Raises StoreUnavailableError: somebody has the log directory of a partition's folder open. StoreError."""
    path = f"{folder.rstrip('/').rpartition('/')[0] or '.'}/{LOCK}"
    if files.find(path) is not None:
        held = files.try_record_lock(path)
        if held is None:
            raise StoreUnavailableError(f"{folder}: a broker, or another process, has its log directory open ({LOCK})")
        held.release()


def agreed_topic_id(machine: Machine, folder: str, topic_id: bytes | None) -> bytes | None:
    """The topic's id by ``partition.metadata``, which is written if the caller knows it and there is none."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        known = parse_partition_metadata(machine.files.read_whole(path)).topic_id
    except ObjectNotFoundError:
        if topic_id is not None:
            machine.files.write_whole(path, encode_partition_metadata(PartitionMetadata(topic_id)))
        return topic_id
    except CorruptIndexError as error:
        raise error.located(path) from None
    if topic_id is not None and topic_id != known:
        raise InconsistentTopicIdError(
            f"{folder}: topic id {PartitionMetadata(known).topic_id_text}, "
            f"not {PartitionMetadata(topic_id).topic_id_text}"
        )
    return known
