"""Kafka's own test storage, LocalTieredStorage: plain files under ``<topic>-<partition>-<topic id>/``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierlog.errors import ObjectNotFoundError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.tier.chunks.stored_segment import StoredPart, StoredSegment
from tierlog.remote.tier.layouts.file_parts import (
    described,
    end_of,
    epochs_of,
    fetch_epochs,
    measure,
    whole_object,
)
from tierlog.remote.tier.layouts.listing import Candidate, ListedLayout, Scope, SegmentFilter
from tierlog.remote.tier.objects.object_keys import (
    LOCAL_TIERED_CHECKPOINT,
    LOCAL_TIERED_NEEDED_SUFFIXES,
    LOCAL_TIERED_SUFFIXES,
    LOG,
    TRANSACTION_INDEX,
    parse_local_tiered,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore


class LocalTieredLayout(ListedLayout):
    """Segments of Kafka's test storage. One without all required files is an incomplete upload."""

    name = "local-tiered"

    def __init__(self, store: ObjectStore, scope: Scope, machine: Machine | None = None) -> None:
        super().__init__(store, scope, parse_local_tiered, machine or Machine())

    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        yield from self.find_whole(wanted, LOCAL_TIERED_NEEDED_SUFFIXES, objects)

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Find where the segment ends. None if a file was deleted since it was listed."""
        log, start = candidate.objects[LOG], candidate.start_offset
        try:
            checkpoint = fetch_epochs(self._store, candidate.objects[LOCAL_TIERED_CHECKPOINT])
            bounds = measure(self._store, candidate.objects, whole=not checkpoint.entries)
        except ObjectNotFoundError:
            return None
        end, max_timestamp_ms = end_of(bounds, start, log.size_bytes)
        parts = tuple(
            (kind, whole_object(candidate.objects[suffix]))
            for kind, suffix in LOCAL_TIERED_SUFFIXES.items()
            if suffix in candidate.objects
        )
        metadata = described(
            candidate.remote_log_segment_id,
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=max_timestamp_ms,
            size_bytes=log.size_bytes,
            epochs=epochs_of(checkpoint, bounds, start, end),
            modified_ms=log.last_modified_ms,
            txn_idx_empty=TRANSACTION_INDEX not in candidate.objects,
        )
        return StoredSegment(
            metadata=metadata,
            layout=self.name,
            name=self._scope.name(log.key, self._scope.key_prefix),
            log=whole_object(log),
            parts=parts,
            last_modified_ms=log.last_modified_ms,
        )


def describe_local_tiered(base: str, metadata: RemoteLogSegmentMetadata, name: str) -> StoredSegment:
    """Describe a segment by its metadata alone: nothing in this layout describes it, and sizes of indexes are their
    files'.

    Args:
        base: Its key without suffix.
        metadata: Of the segment; its size is the log's.
        name: Of the log for messages.
    """
    absent = IndexType.TRANSACTION if metadata.txn_idx_empty else None
    return StoredSegment(
        metadata=metadata,
        layout="local-tiered",
        name=name,
        log=StoredPart(f"{base}.{LOG}", 0, metadata.segment_size_in_bytes),
        parts=tuple(
            (kind, StoredPart(f"{base}.{suffix}", 0, -1))
            for kind, suffix in LOCAL_TIERED_SUFFIXES.items()
            if kind is not absent
        ),
    )
