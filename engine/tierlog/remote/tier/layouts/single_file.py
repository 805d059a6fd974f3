"""One ``.log`` file: a segment by itself, with what lies beside it under the same name.

A closed segment: bytes behind the last whole batch are damage, not a torn tail. Topic and partition come from the
folders above where they are those of a known layout; else the topic is the file's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tierlog.errors import ObjectNotFoundError
from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT
from tierlog.remote.api import ZERO_UUID, RemoteLogSegmentId, TopicIdPartition
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.file_parts import (
    described,
    end_of,
    epochs_of,
    fetch_epochs,
    id_of,
    measure,
    reader_of,
    whole_object,
)
from tierlog.remote.tier.layouts.listing import Candidate, Layout, SegmentFilter
from tierlog.remote.tier.objects.object_keys import (
    LOCAL_TIERED_CHECKPOINT,
    LOCAL_TIERED_SUFFIXES,
    LOG,
    PARSERS,
    SNAPSHOT,
    TRANSACTION_INDEX,
    ObjectKey,
)
from tierlog.remote.tier.objects.segment_bounds import OFFSET_SPAN_MAX, first_offset
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore

_OFFSET_NAME: Final = re.compile(r"(\d{20})(?:-[A-Za-z0-9_-]{22})?")


class SingleFileLayout(Layout):
    """One log file as a tier of one segment.

    Args:
        store: Of the file's folder.
        file_name: The file in it.
        path: As the caller gave it, for the folders above and for messages.
    """

    name = "file"

    def __init__(self, store: ObjectStore, file_name: str, path: str) -> None:
        self._store = store
        self._file_name = file_name
        self._path = path
        self._stem = file_name.removesuffix(".log")
        self._key = _find_key(path)

    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        """Yield the one file. Raises ObjectNotFoundError if it is not there."""
        beside = {info.key: info for info in (self._store.list_folder().objects if objects is None else objects)}
        if self._file_name not in beside:
            raise ObjectNotFoundError(f"{self._path}: not there")
        parts: dict[str, ObjectInfo] = {LOG: beside[self._file_name]}
        for suffix in LOCAL_TIERED_SUFFIXES.values():
            if (info := beside.get(f"{self._stem}.{suffix}")) is not None:
                parts[suffix] = info
        if self._key is None or self._key.segment_id is None:
            # On a broker's disk a snapshot covers what lies before its name: the one under this name is not ours.
            parts.pop(SNAPSHOT, None)
            if (info := beside.get(LEADER_EPOCH_CHECKPOINT)) is not None:
                parts[LOCAL_TIERED_CHECKPOINT] = info
        partition = self._key.topic_id_partition if self._key else TopicIdPartition(ZERO_UUID, self._stem or "log", 0)
        if wanted.accepts(partition):
            yield Candidate(partition, self._start_offset(parts[LOG]), self._stem, parts)

    def _start_offset(self, log: ObjectInfo) -> int:
        found = _OFFSET_NAME.fullmatch(self._stem)
        if found is not None:
            return min(int(found[1]), 2**63 - 1 - OFFSET_SPAN_MAX)
        return first_offset(reader_of(self._store, log), log.size_bytes)

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Find where the segment ends."""
        log, start, objects = candidate.objects[LOG], candidate.start_offset, candidate.objects
        checkpoint = fetch_epochs(self._store, objects.get(LOCAL_TIERED_CHECKPOINT))
        bounds = measure(self._store, objects, whole=not checkpoint.entries)
        end, max_timestamp_ms = end_of(bounds, start, log.size_bytes)
        segment_id = self._key.segment_id if self._key else None
        return StoredSegment(
            metadata=described(
                RemoteLogSegmentId(candidate.topic_id_partition, segment_id or id_of(self._path)),
                start_offset=start,
                end_offset=end,
                max_timestamp_ms=max_timestamp_ms,
                size_bytes=log.size_bytes,
                epochs=epochs_of(checkpoint, bounds, start, end),
                modified_ms=log.last_modified_ms,
                txn_idx_empty=TRANSACTION_INDEX not in objects,
            ),
            layout=self.name,
            name=self._path,
            log=whole_object(log),
            parts=tuple((kind, whole_object(objects[s])) for kind, s in LOCAL_TIERED_SUFFIXES.items() if s in objects),
            last_modified_ms=log.last_modified_ms,
        )


def _find_key(path: str) -> ObjectKey | None:
    """Find the path parsed as a key of one of the layouts; None if it is none."""
    for parse in PARSERS.values():
        if (key := parse(path.replace("://", "/").lstrip("/"))) is not None:
            return key
    return None
