"""The object beside a segment that has its entry of the remote log index: ``log.index.object.enabled``.

Content: the bytes of a remote log index (``log.remote_log_index``) with what is to be said of this segment, in the
clear. One entry: the whole segment, at the start of its log's object. Followers append the entries of a partition's
segments to an index of their own. It is written before the description, so that a segment that is whole has it; none of
the readers of segments looks at it, the plugin's neither.
"""

from __future__ import annotations

from typing import Final

from tierlog._native.batches import find_batch_header
from tierlog.errors import (
    CorruptIndexError,
    CorruptObjectError,
    CorruptRecordError,
    ObjectNotFoundError,
    SizeLimitError,
)
from tierlog.log.formats.remote_log_index_entry import (
    DATA_LENGTH_MAX,
    NO_TIMESTAMP_MS,
    RemoteLogIndexEntry,
    encode_identifier,
    iter_entries,
)
from tierlog.records.batch_table import HEADER_BYTES, LOG_APPEND_TIME
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.layouts.segment_objects import log_index_keys
from tierlog.runtime.machine.files import ReadableFile
from tierlog.runtime.stores.protocol.object_store import ObjectStore

#: Of the object; ours have one entry.
OBJECT_BYTES_MAX: Final = 4 << 20


def segment_entry(
    metadata: RemoteLogSegmentMetadata, *, log_key: str, stored_bytes: int, first_timestamp_ms: int
) -> RemoteLogIndexEntry:
    """What the index says of a segment.

    Args:
        metadata: Of the segment.
        log_key: Of its log's object.
        stored_bytes: Of that object. The entry's field ends at 2^31-1, which is what it says of a larger one.
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
    """Of the first record, as the header of its batch says; -1 where that says nothing (magic 0, an empty log)."""
    data = bytearray(HEADER_BYTES)
    size = log.read_into(data, position=0)
    try:
        header = find_batch_header(memoryview(data)[:size])
    except CorruptRecordError:
        return NO_TIMESTAMP_MS
    if header is None or header.magic == 0:
        return NO_TIMESTAMP_MS
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp


def fetch_log_index(
    store: ObjectStore, config: StorageConfig, metadata: RemoteLogSegmentMetadata
) -> tuple[RemoteLogIndexEntry, ...]:
    """The entries of a segment, as they were shipped with it.

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
