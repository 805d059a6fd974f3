"""The objects of a segment that was copied: whether all of them are there, their deletion, its entry of the log index.

The store's objects decide whether an id was copied before. A deletion removes the description first, so that no reader
begins with half a segment, and goes to the place that the segment's custom metadata names as well as to the configured
one: the plugin goes by the configured prefix alone, and leaves objects under another one for ever
(docs/formats/objects.md, Where Tierlog and the plugin differ).

With ``log.index.object.enabled`` one more object holds the segment's entry of the remote log index: the bytes of an
index (``log.formats.remote_log_index_entry``) with one entry, in the clear, which covers the whole segment from the
start of its log's object. Followers append the entries of a partition's segments to an index of their own. The object
is written before the description, so that a whole segment has it; no reader of segments looks at it, the plugin's
neither.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from tierlog.errors import (
    CorruptDataError,
    CorruptIndexError,
    CorruptObjectError,
    ObjectNotFoundError,
    SizeLimitError,
    StoreError,
)
from tierlog.log.formats.remote_log_index_entry import (
    DATA_LENGTH_MAX,
    NO_TIMESTAMP_MS,
    RemoteLogIndexEntry,
    encode_identifier,
    iter_entries,
)
from tierlog.records.batch_table import LOG_APPEND_TIME
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.copy.copy_checks import read_header
from tierlog.remote.tier.layouts.segment_lookup import look_up, make_lookup
from tierlog.remote.tier.layouts.segment_objects import Removal, log_index_keys, optional_keys, plan_removal
from tierlog.runtime.machine.files import ReadableFile
from tierlog.runtime.stores.protocol.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """A whole segment that is in the store already.

    Args:
        stored_bytes: Of all its objects.
        digest: SHA-256 of its description.
    """

    stored_bytes: int
    digest: bytes


def find_copied_before(
    store: ObjectStore, config: StorageConfig, metadata: RemoteLogSegmentMetadata, description_key: str
) -> CopiedSegment | None:
    """Find an earlier copy of this id, if all of it is there: described as this segment, each object whole.

    Returns:
        None: nothing, or less than a segment, or not this one.

    Raises:
        StoreError and its kinds: the store does not say.
    """
    lookup = make_lookup(config.layout, key_prefix=config.key_prefix, mask=config.key_prefix_mask)
    try:
        found = look_up(lookup, store, replace(metadata, custom_metadata=None))
        description = memoryview(store.fetch(description_key)).cast("B")
    except (ObjectNotFoundError, CorruptDataError):
        return None
    segment, beside_bytes = found.segment, len(description)
    ends: dict[str, int] = {}
    for part in (segment.log, *(part for _, part in segment.parts)):
        ends[part.key] = max(ends.get(part.key, 0), part.position + part.size_bytes)
    for key, size_bytes in ends.items():
        info = store.find(key)
        if info is None or info.size_bytes != size_bytes:
            return None
    for key in optional_keys(config, replace(metadata, custom_metadata=None)):
        info = store.find(key)
        beside_bytes += info.size_bytes if info is not None else 0  # it may have been copied when none was asked for
    return CopiedSegment(sum(ends.values()) + beside_bytes, hashlib.sha256(description).digest())


def delete_segment(
    store: ObjectStore, config: StorageConfig, metadata: RemoteLogSegmentMetadata, *, uploads_too: bool = False
) -> None:
    """Remove all objects of a segment; missing ones are fine.

    Args:
        store: Has it.
        config: Its layout and prefix.
        metadata: With its custom metadata.
        uploads_too: Look for uploads that were begun and never ended as well: a request more.

    Raises:
        StoreError and its kinds: some of it is still there; call again. If the description could not be removed,
            nothing else was touched. CorruptObjectError: its custom metadata is damaged, and the objects of the
            configured place were removed.
    """
    try:
        removal = plan_removal(config, metadata)
    except CorruptObjectError:
        configured = plan_removal(config, replace(metadata, custom_metadata=None))
        _remove(store, configured, uploads_too=uploads_too)
        raise
    _remove(store, removal, uploads_too=uploads_too)


def _remove(store: ObjectStore, removal: Removal, *, uploads_too: bool) -> None:
    store.delete(removal.descriptions)
    failed: StoreError | None = None
    try:
        store.delete(removal.others)
    except StoreError as error:
        failed = error
    if uploads_too:
        for key in removal.others:
            for upload in list(store.iter_uploads(key)):
                store.abort_upload(upload)
    if failed is not None:
        raise failed


#: Of the object; ours have one entry.
OBJECT_BYTES_MAX: Final = 4 << 20


def segment_entry(
    metadata: RemoteLogSegmentMetadata, *, log_key: str, stored_bytes: int, first_timestamp_ms: int
) -> RemoteLogIndexEntry:
    """Make the index's entry of a segment.

    Args:
        metadata: Of the segment.
        log_key: Of its log's object.
        stored_bytes: Of that object. The entry's field ends at 2^31-1, also for a larger object.
        first_timestamp_ms: See ``first_timestamp_ms``.

    Raises:
        ValueError: the key is too long for an entry.
    """
    return RemoteLogIndexEntry(
        metadata.start_offset,
        metadata.end_offset,
        first_timestamp_ms,
        metadata.max_timestamp_ms,
        min(stored_bytes, DATA_LENGTH_MAX),
        encode_identifier(log_key),
    )


def first_timestamp_ms(log: ReadableFile) -> int:
    """Return the timestamp of the first record, from the header of its batch; -1 where that has none (magic 0, an empty
    log).
    """
    header = read_header(log, 0)
    if header is None or header.magic == 0:
        return NO_TIMESTAMP_MS
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp


def fetch_log_index(
    store: ObjectStore, config: StorageConfig, metadata: RemoteLogSegmentMetadata
) -> tuple[RemoteLogIndexEntry, ...]:
    """Fetch the entries of a segment, as they were shipped with it.

    Raises:
        ObjectNotFoundError: there is no such object: the segment is gone, or was copied without it.
        CorruptObjectError: unreadable, or not of this segment. SizeLimitError. StoreError and its kinds.
    """
    missing: ObjectNotFoundError | None = None
    for key in log_index_keys(config, metadata):
        try:
            data = store.fetch_range(key, start_position=0, end_position_exclusive=OBJECT_BYTES_MAX + 1)
        except ObjectNotFoundError as error:
            missing = missing or error
            continue
        return _checked(memoryview(data).cast("B"), metadata, str(metadata.remote_log_segment_id))
    assert missing is not None
    raise missing


def _checked(data: memoryview, metadata: RemoteLogSegmentMetadata, where: str) -> tuple[RemoteLogIndexEntry, ...]:
    if len(data) > OBJECT_BYTES_MAX:
        text = f"a remote log index of more than {OBJECT_BYTES_MAX} bytes beside one segment"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=OBJECT_BYTES_MAX, found=len(data), where=where)
    try:
        entries = tuple(entry for _, entry in iter_entries(data))
    except CorruptIndexError as error:
        text = f"remote log index: {error.text}"
        raise CorruptObjectError(text, fault=error.fault, position=error.position, where=where) from error
    if not entries:
        raise CorruptObjectError("a remote log index without an entry", fault="BAD_SIZE", where=where)
    for entry in entries:
        if entry.first_offset < metadata.start_offset or entry.last_offset > metadata.end_offset:
            text = (
                f"remote log index: offsets {entry.first_offset} … {entry.last_offset}, "
                f"the segment has {metadata.start_offset} … {metadata.end_offset}"
            )
            raise CorruptObjectError(text, fault="BAD_ENTRY", base_offset=metadata.start_offset, where=where)
    return entries
