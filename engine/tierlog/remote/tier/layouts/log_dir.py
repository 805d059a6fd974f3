"""A broker's disk: ``<topic>-<partition>/<base offset>.log`` and the files beside it.

The segment with the highest base offset is the active one: it may grow while it is read, and a crash may have torn its
tail, so that it counts up to its last valid batch. Of the others the next base offset says where they end.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.identity_files import parse_partition_metadata
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from tierlog.remote.api import RemoteLogSegmentId, TopicIdPartition
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.file_parts import (
    described,
    epochs_of,
    fetch_epochs,
    id_of,
    indexed_timestamp_ms,
    measure,
    whole_object,
)
from tierlog.remote.tier.layouts.listing import Candidate, ListedLayout, Scope, SegmentFilter
from tierlog.remote.tier.objects.object_keys import LOG, PART_SUFFIXES, SNAPSHOT, TRANSACTION_INDEX, parse_log_dir
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore

_log = logging.getLogger(__name__)

_METADATA_BYTES_MAX: Final = 4096


@dataclass(slots=True)
class _Folder:
    """One partition folder: its files by base offset and suffix, and the two that belong to all."""

    partition: TopicIdPartition
    segments: dict[int, dict[str, ObjectInfo]] = field(default_factory=dict)
    snapshots: dict[int, ObjectInfo] = field(default_factory=dict)
    shared: dict[str, ObjectInfo] = field(default_factory=dict)


class LogDirLayout(ListedLayout):
    """A broker's disk. Files that Kafka has renamed (``.deleted``, ``.cleaned``, ``.swap``) are no keys of it."""

    name = "log-dir"

    def __init__(self, store: ObjectStore, scope: Scope, machine: Machine | None = None) -> None:
        super().__init__(store, scope, parse_log_dir, machine or Machine())
        self._checkpoints: dict[str, LeaderEpochs] = {}

    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        """Find the segments in a listing; the topic id is in ``partition.metadata``, which is read here."""
        folders: dict[str, _Folder] = {}
        for key, info in self.iter_objects(wanted, objects):
            folder = folders.setdefault(key.segment_path, _Folder(key.topic_id_partition))
            if key.suffix in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
                folder.shared[key.suffix] = info
            elif key.suffix == SNAPSHOT:
                folder.snapshots[key.start_offset] = info
            else:
                folder.segments.setdefault(key.start_offset, {})[key.suffix] = info
        with self._lock:
            for path in tuple(self._checkpoints) if objects is None else folders:
                self._checkpoints.pop(path, None)
        for path in sorted(folders, key=lambda path: (folders[path].partition, path)):
            yield from self._candidates(path, folders[path], is_listing=objects is None)

    def _candidates(self, path: str, folder: _Folder, *, is_listing: bool) -> Iterator[Candidate]:
        partition = self._identified(folder)
        starts = sorted(start for start, objects in folder.segments.items() if LOG in objects)
        if is_listing:
            orphans = [objects for objects in folder.segments.values() if LOG not in objects]
            self.count_foreign(sum(len(objects) for objects in orphans))
        for start in starts:
            place = bisect.bisect_right(starts, start)
            following = starts[place] if place < len(starts) else None
            objects = folder.segments[start] | folder.shared
            objects |= {_snapshot_name(offset): i for offset, i in folder.snapshots.items() if offset > start}
            yield Candidate(partition, start, path, objects, next_start_offset=following)

    def _identified(self, folder: _Folder) -> TopicIdPartition:
        """Return the partition with its topic id, where the broker wrote one."""
        info = folder.shared.get(PARTITION_METADATA)
        if info is None or info.size_bytes > _METADATA_BYTES_MAX:
            return folder.partition
        try:
            topic_id = parse_partition_metadata(self._store.fetch(info.key)).topic_id
        except ObjectNotFoundError:
            return folder.partition
        except CorruptIndexError as error:  # Kafka would refuse the folder; its records can be read all the same
            _log.warning("%s: the topic id is unknown: %s", info.key, error)
            return folder.partition
        return TopicIdPartition(topic_id, folder.partition.topic, folder.partition.partition)

    def _checkpoint(self, path: str, info: ObjectInfo | None) -> LeaderEpochs:
        """Return the folder's one checkpoint, read once a listing."""
        with self._lock:
            known = self._checkpoints.get(path)
        if known is None:
            known = fetch_epochs(self._store, info)
            with self._lock:
                self._checkpoints[path] = known
        return known

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Find where the segment ends. None if it is empty and active, or was deleted since it was listed."""
        try:
            return self._load(candidate)
        except ObjectNotFoundError:
            return None

    def _load(self, candidate: Candidate) -> StoredSegment | None:
        objects, start = candidate.objects, candidate.start_offset
        log = objects[LOG]
        closed = candidate.next_start_offset is not None
        checkpoint = self._checkpoint(candidate.segment_path, objects.get(LEADER_EPOCH_CHECKPOINT))
        timestamp_ms = indexed_timestamp_ms(self._store, objects) if closed else -1
        bounds = None
        if not closed or timestamp_ms < 0 or not checkpoint.entries:
            bounds = measure(self._store, objects, whole=not checkpoint.entries)
            timestamp_ms = bounds.max_timestamp_ms
        if candidate.next_start_offset is not None:
            end, size = candidate.next_start_offset - 1, log.size_bytes
        else:
            assert bounds is not None
            if bounds.end_offset is None:
                return None
            end, size = bounds.end_offset, bounds.valid_bytes
        # A snapshot describes the segment's end only if it was made there.
        snapshot = objects.get(_snapshot_name(end + 1))
        named = objects if snapshot is None else objects | {SNAPSHOT: snapshot}
        metadata = described(
            RemoteLogSegmentId(candidate.topic_id_partition, id_of(log.key)),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=timestamp_ms,
            size_bytes=size,
            epochs=epochs_of(checkpoint, bounds, start, end),
            modified_ms=log.last_modified_ms,
            txn_idx_empty=TRANSACTION_INDEX not in objects,
        )
        return StoredSegment(
            metadata=metadata,
            layout=self.name,
            name=log.key,
            log=whole_object(log),
            parts=tuple((kind, whole_object(named[s])) for kind, s in PART_SUFFIXES.items() if s in named),
            last_modified_ms=log.last_modified_ms,
            closed=closed,
        )


def _snapshot_name(offset: int) -> str:
    """Return the name, among a candidate's objects, of the snapshot before this offset."""
    return f"{SNAPSHOT}-{offset}"
