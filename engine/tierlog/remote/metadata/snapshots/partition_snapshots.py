"""Snapshots of one partition each, in a folder that is named as Kafka names a partition's: written, and read back.

Kafka 3.x's ``remote_log_snapshot`` lies in the partition's folder on the broker's disk, beside ``partition.metadata``,
which has the topic's id. The KIP names no file for its flat form; ours is ``remote_log_flat_file`` there.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final

from tierlog.errors import ConfigError, CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.identity_files import (
    PartitionMetadata,
    encode_partition_metadata,
    parse_partition_metadata,
)
from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierlog.remote.metadata.record_serde import RemoteLogSegmentMetadataSnapshot
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots import kafka_snapshot
from tierlog.remote.metadata.snapshots.kafka_snapshot import (
    KafkaSnapshot,
    encode_kafka_snapshot,
    in_reading_order,
    parse_kafka_snapshot,
)
from tierlog.remote.metadata.snapshots.kip_flat_file import (
    KipFlatFile,
    KipRemoval,
    encode_kip_flat_file,
    kip_segment,
    parse_kip_flat_file,
)
from tierlog.runtime.machine.files import Files

KIP_FILE_NAME: Final = "remote_log_flat_file"
_METADATA_NAME: Final = "partition.metadata"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FOLDER = re.compile(r"(.+)-([0-9]{1,10})")


class PartitionForm(enum.Enum):
    """The form of a folder's file."""

    KAFKA = kafka_snapshot.FILE_NAME
    KIP = KIP_FILE_NAME


def write_partition_folder(
    folder: str,
    partition: TopicIdPartition,
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    form: PartitionForm,
    metadata_partition: int,
    offset: int,
    files: Files,
) -> str:
    """Write the snapshot of one partition into a folder of its own; returns the file's path.

    Args:
        folder: In which the partition's is made.
        partition: Of which the segments are.
        segments: In any order.
        form: Kafka 3.x's, or the KIP's.
        metadata_partition: That has the partition's events.
        offset: Of the partition's last event in it.
        files: Where it is written.

    Raises:
        ConfigError: a segment has a field that the form cannot hold, no offset is known, or no folder can have the
            name. StoreError and its kinds.
    """
    if offset < 0 or metadata_partition < 0:
        raise ConfigError(
            f"{partition}: at which offset of the metadata topic it stands is not known: {form.value} says so"
        )
    if _TOPIC.fullmatch(partition.topic) is None:
        raise ConfigError(f"{partition.topic!r:.80} is no topic's name: no folder can be called so")
    ordered = in_reading_order(segments)
    try:
        if form is PartitionForm.KAFKA:
            held = tuple(map(RemoteLogSegmentMetadataSnapshot.from_metadata, ordered))
            data = encode_kafka_snapshot(KafkaSnapshot(metadata_partition, offset, held))
        else:
            entries = tuple(map(kip_segment, ordered))
            data = encode_kip_flat_file(KipFlatFile(partition.topic, partition.topic_id, offset, entries))
    except ValueError as error:
        raise ConfigError(f"{partition}: {error}") from None
    place = f"{folder.rstrip('/')}/{partition}"
    files.make_directories(place)
    files.write_whole(f"{place}/{_METADATA_NAME}", encode_partition_metadata(PartitionMetadata(partition.topic_id)))
    path = f"{place}/{form.value}"
    files.write_whole(path, data)
    return path


def is_partition_snapshot(path: str) -> bool:
    """Whether a path has the name of such a file."""
    return path.rsplit("/", 1)[-1] in {each.value for each in PartitionForm}


def read_partition_file(path: str, table: SegmentTable, *, files: Files) -> TopicIdPartition:
    """Put the segments of one such file into a table; returns their partition.

    Args:
        path: Of ``remote_log_snapshot`` (beside a ``partition.metadata``) or ``remote_log_flat_file`` in a folder
            ``<topic>-<partition>``.
        table: Takes the partition's segments.
        files: Where it lies.

    Raises:
        ConfigError: the folder's name is not that of a partition, or nothing says the topic's id.
        CorruptIndexError: damaged, of another topic than its folder says, or the segments cannot be; located.
        ObjectNotFoundError, StoreError and its kinds.
    """
    folder, _, name = path.rpartition("/")
    found = _FOLDER.fullmatch(folder.rsplit("/", 1)[-1])
    if found is None:
        raise ConfigError(f"{path}: the folder's name is not <topic>-<partition>, which the file does not say")
    data = files.read_whole(path)
    try:
        if name == PartitionForm.KIP.value:
            flat = parse_kip_flat_file(data)
            partition = _partition(flat.topic_id, found)
            if flat.topic != partition.topic:
                raise CorruptIndexError(f"of the topic {flat.topic!r}, in a folder of another one", fault="BAD_ENTRY")
            segments = [each.of(partition) for each in flat.entries if not isinstance(each, KipRemoval)]
        else:
            snapshot = parse_kafka_snapshot(data)
            partition = _partition(_topic_id(folder, files), found)
            segments = [] if snapshot is None else [each.of(partition) for each in snapshot.segments()]
        table.assign(partition)
        for segment in segments:
            table.put(segment)
    except CorruptIndexError as error:
        raise error.located(path) from None
    except ValueError as error:
        raise CorruptIndexError(str(error), fault="BAD_ENTRY").located(path) from error
    return partition


def _partition(topic_id: Uuid, found: re.Match[str]) -> TopicIdPartition:
    return TopicIdPartition(topic_id, found[1], int(found[2]))


def _topic_id(folder: str, files: Files) -> Uuid:
    path = f"{folder}/{_METADATA_NAME}"
    try:
        return parse_partition_metadata(files.read_whole(path, limit_bytes=4096)).topic_id
    except ObjectNotFoundError:
        raise ConfigError(f"{path} is not there, and nothing else says the topic's id") from None
    except CorruptIndexError as error:
        raise error.located(path) from None
