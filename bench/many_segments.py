"""A bucket of very many segments in the plugin's layout, and a snapshot of its metadata: what planning is measured on.

Segments of a partition follow each other, one leader epoch a partition, SEGMENT_OFFSETS offsets and SEGMENT_MS each.
Each has a manifest of its own; logs and indexes are hard links to few files, since planning reads of them but the
checkpoint of each partition's newest segment. So a query over it plans, and cannot be run.
"""

from __future__ import annotations

import os
import pathlib
from dataclasses import replace
from typing import Final

from tests.support.batches import Batch
from tests.support.segments import make_segment
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, write_snapshot
from tierlog.remote.tier.objects.manifest import parse_manifest
from tierlog.remote.tier.objects.manifest_writing import encode_manifest
from tierlog.runtime.machine import Machine

PARTITIONS_EACH_TOPIC: Final = 100
SEGMENT_OFFSETS: Final = 1000
SEGMENT_MS: Final = 60_000
FIRST_MS: Final = 1_700_000_000_000
#: ext4 allows 65,000 links of a file.
_LINKS_MAX: Final = 60_000


def partition_of(index: int) -> TopicIdPartition:
    topic, number = divmod(index, PARTITIONS_EACH_TOPIC)
    return TopicIdPartition(Uuid((topic + 2).to_bytes(16, "big")), f"topic-{topic:02}", number)


def metadata_of(partition: TopicIdPartition, index: int, number: int, size_bytes: int) -> RemoteLogSegmentMetadata:
    """The metadata of a partition's segment by its number."""
    segment_id = RemoteLogSegmentId(partition, Uuid(((index + 1) << 64 | number + 1).to_bytes(16, "big")))
    start = number * SEGMENT_OFFSETS
    last_ms = FIRST_MS + (number + 1) * SEGMENT_MS - 1
    return RemoteLogSegmentMetadata(
        segment_id,
        start_offset=start,
        end_offset=start + SEGMENT_OFFSETS - 1,
        max_timestamp_ms=last_ms,
        broker_id=1,
        event_timestamp_ms=last_ms,
        segment_size_in_bytes=size_bytes,
        segment_leader_epochs={0: start},
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_idx_empty=True,
    )


class _Links:
    """Hard links to a content: a new file each time that one has as many as it may have."""

    def __init__(self, folder: pathlib.Path, name: str, content: bytes) -> None:
        self._folder, self._name, self._content = folder, name, content
        self._links = 0
        self._path = ""

    def put(self, path: str) -> None:
        if self._links % _LINKS_MAX == 0:
            self._path = str(self._folder / f"{self._name}-{self._links}")
            pathlib.Path(self._path).write_bytes(self._content)
        os.link(self._path, path)
        self._links += 1


def write_bucket(root: pathlib.Path, sources: pathlib.Path, *, partitions: int, segments: int) -> int:
    """Write ``segments`` segments of each of ``partitions`` partitions below ``root``; the size of each log, in bytes.

    ``sources`` is a folder of the same file system, for the linked files.
    """
    batch = [Batch(0, (b"x" * 10,) * 10)]
    template = make_segment(batch, topic="topic", lineage={0: 0}, end_offset=SEGMENT_OFFSETS - 1).stored()
    contents = {key.rpartition(".")[2]: content for key, content in template.objects.items()}
    described = parse_manifest(contents["rsm-manifest"], where="the template")
    sources.mkdir(parents=True, exist_ok=True)
    links = {suffix: _Links(sources, suffix, contents[suffix]) for suffix in ("log", "indexes")}
    size_bytes = len(contents["log"])
    for index in range(partitions):
        partition = partition_of(index)
        folder = f"{root}/{partition.topic}-{partition.topic_id}/{partition.partition}"
        pathlib.Path(folder).mkdir(parents=True)
        for number in range(segments):
            metadata = metadata_of(partition, index, number, size_bytes)
            base = f"{folder}/{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}"
            for suffix, linked in links.items():
                linked.put(f"{base}.{suffix}")
            content = encode_manifest(replace(described, metadata=metadata))
            pathlib.Path(f"{base}.rsm-manifest").write_bytes(content)
    return size_bytes


def write_metadata(path: pathlib.Path, *, partitions: int, segments: int, size_bytes: int) -> None:
    """Write a snapshot of the metadata of such a bucket."""
    with SegmentTable() as table:
        for index in range(partitions):
            partition = partition_of(index)
            table.assign(partition)
            for number in range(segments):
                table.put(metadata_of(partition, index, number, size_bytes))
        write_snapshot(str(path), table, SnapshotState(), machine=Machine())
