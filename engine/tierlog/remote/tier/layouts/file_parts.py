"""Segments whose parts are plain files under Kafka's suffixes: what local-tiered and log-dir share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import xxhash

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.leader_epochs import LeaderEpochs, parse_leader_epochs
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Uuid,
)
from tierlog.remote.tier.chunks.stored_segment import StoredPart, fetch_exactly
from tierlog.remote.tier.objects.object_keys import LOG, OFFSET_INDEX, TIME_INDEX
from tierlog.remote.tier.objects.segment_bounds import (
    OFFSET_SPAN_MAX,
    UNKNOWN_TIMESTAMP_MS,
    ReadRange,
    SegmentBounds,
    find_bounds,
    find_last_entry,
    last_indexed_position,
    last_indexed_timestamp_ms,
)
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore

_OFFSET_ENTRY_BYTES: Final = 8
_TIME_ENTRY_BYTES: Final = 12
#: A checkpoint has a line an epoch; this is millions of them.
_CHECKPOINT_BYTES_MAX: Final = 64 << 20


def whole_object(info: ObjectInfo) -> StoredPart:
    """Return a part that is an object of its own."""
    return StoredPart(info.key, 0, info.size_bytes, info.size_bytes)


def id_of(key: str) -> Uuid:
    """Make a segment id where a layout has none: of the log's key, so that it is the same each time it is listed."""
    return Uuid(xxhash.xxh3_128_digest(key.encode("utf-8", "surrogateescape")))


def reader_of(store: ObjectStore, info: ObjectInfo) -> ReadRange:
    """Return ranges of one object; a short answer is a CorruptObjectError."""
    part = whole_object(info)

    def read(start: int, end: int) -> memoryview:
        return fetch_exactly(store, part, info.key, start, end)

    return read


def measure(store: ObjectStore, objects: Mapping[str, ObjectInfo], *, whole: bool) -> SegmentBounds:
    """Measure the bounds of a log from its indexes' ends and its last batches.

    Args:
        store: Of the objects.
        objects: By suffix; "log" is there.
        whole: Walk the log from its start, so that the epochs are complete.
    """
    position = 0 if whole else last_indexed_position(_last(store, objects.get(OFFSET_INDEX), _OFFSET_ENTRY_BYTES))
    log = objects[LOG]
    return find_bounds(
        reader_of(store, log),
        log.size_bytes,
        from_position=position,
        max_timestamp_ms=indexed_timestamp_ms(store, objects),
    )


def indexed_timestamp_ms(store: ObjectStore, objects: Mapping[str, ObjectInfo]) -> int:
    """Largest timestamp that the time index gives; -1 without one."""
    return last_indexed_timestamp_ms(_last(store, objects.get(TIME_INDEX), _TIME_ENTRY_BYTES))


def _last(store: ObjectStore, info: ObjectInfo | None, entry_bytes: int) -> bytes | None:
    if info is None or info.size_bytes < entry_bytes:
        return None
    return find_last_entry(reader_of(store, info), info.size_bytes, entry_bytes)


def fetch_epochs(store: ObjectStore, info: ObjectInfo | None) -> LeaderEpochs:
    """Fetch a leader-epoch checkpoint; empty without one. Raises CorruptIndexError."""
    if info is None or info.size_bytes == 0:
        return LeaderEpochs()
    if info.size_bytes > _CHECKPOINT_BYTES_MAX:
        text = f"a checkpoint of {info.size_bytes} bytes"
        raise CorruptIndexError(text, fault="OVER_LIMIT", expected=_CHECKPOINT_BYTES_MAX, where=info.key)
    try:
        return parse_leader_epochs(store.fetch(info.key))
    except CorruptIndexError as error:
        raise error.located(info.key) from None


def end_of(bounds: SegmentBounds, start_offset: int, size_bytes: int) -> tuple[int, int]:
    """Return (end offset inclusive, max timestamp in ms) of a segment that is closed.

    A damaged tail says nothing of the end: then both are the largest that they can be, so that the segment is never
    left out of a read, and reading it names the damage.
    """
    if bounds.valid_bytes != size_bytes:
        return min(start_offset + OFFSET_SPAN_MAX, 2**63 - 1), UNKNOWN_TIMESTAMP_MS
    return start_offset if bounds.end_offset is None else bounds.end_offset, bounds.max_timestamp_ms


def epochs_of(
    checkpoint: LeaderEpochs, bounds: SegmentBounds | None, start_offset: int, end_offset: int
) -> dict[int, int]:
    """Return epochs of a segment: of the checkpoint, else of its batches, else epoch 0 for all of it."""
    known = dict(checkpoint.range(start_offset, end_offset + 1).entries)
    return known or (bounds.leader_epochs if bounds is not None else {}) or {0: start_offset}


def described(
    segment_id: RemoteLogSegmentId,
    *,
    start_offset: int,
    end_offset: int,
    max_timestamp_ms: int,
    size_bytes: int,
    epochs: Mapping[int, int],
    modified_ms: int,
    txn_idx_empty: bool,
) -> RemoteLogSegmentMetadata:
    """Make the metadata of a segment without a description: broker unknown, written at its log's time."""
    return RemoteLogSegmentMetadata(
        segment_id,
        start_offset=start_offset,
        end_offset=max(start_offset, end_offset),
        max_timestamp_ms=max_timestamp_ms,
        broker_id=-1,
        event_timestamp_ms=modified_ms,
        segment_size_in_bytes=size_bytes,
        segment_leader_epochs=epochs,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_idx_empty=txn_idx_empty,
    )
