"""Folders of ``__remote_log_metadata`` as a broker has them, and what readers make of metadata."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence

from tests.support.batches import Batch, encode
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.metadata.metadata_view import MetadataView, PartitionKey
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, encode_record
from tierlog.remote.metadata.segment_table import SegmentTable


def write_topic(
    root: pathlib.Path,
    partition: int,
    records: Sequence[RemoteLogMetadataRecord | bytes | None],
    *,
    first_offset: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
    key: bytes | None = None,
) -> pathlib.Path:
    """Write one metadata partition below a log directory: a batch a record, record i at ``timestamp_ms + i``.

    Records can be values as they are, and None for a tombstone. All have the key.
    """
    folder = root / f"__remote_log_metadata-{partition}"
    folder.mkdir(parents=True, exist_ok=True)
    batches = []
    for number, record in enumerate(records):
        value = record if isinstance(record, bytes) or record is None else encode_record(record)
        batches.append(encode(Batch(first_offset + number, (value,), timestamp_ms=timestamp_ms + number, keys=(key,))))
    log = folder / f"{first_offset:020d}.log"
    log.write_bytes(b"".join(batches))
    return log


def view_of(
    segments: Iterable[RemoteLogSegmentMetadata], *, newest_ms: Mapping[PartitionKey, int] | None = None
) -> MetadataView:
    """Metadata that knows these segments as they stand."""
    table = SegmentTable()
    for segment in segments:
        table.assign(segment.topic_id_partition)
        table.put(segment)
    return MetadataView("these segments", table, newest_ms=newest_ms)
