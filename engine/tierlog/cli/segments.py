"""Segments as several verbs print them: the JSON fields of one, its leader epochs, and rows as a table."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tierlog.cli.times import utc_text

if TYPE_CHECKING:
    from tierlog.remote.api import RemoteLogSegmentMetadata


def metadata_fields(metadata: RemoteLogSegmentMetadata) -> dict[str, object]:
    """Return the metadata that brokers store of a segment, under the names of ``ls``."""
    partition = metadata.topic_id_partition
    return {
        "topic": partition.topic,
        "topicId": str(partition.topic_id),
        "partition": partition.partition,
        "segment": str(metadata.remote_log_segment_id.id),
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "sizeBytes": metadata.segment_size_in_bytes,
        "maxTimestamp": metadata.max_timestamp_ms,
        "eventTimestamp": metadata.event_timestamp_ms,
        "brokerId": metadata.broker_id,
        "leaderEpochs": {str(epoch): start for epoch, start in metadata.segment_leader_epochs.items()},
        "customMetadata": base64_text(metadata.custom_metadata),
        "txnIndexEmpty": metadata.txn_idx_empty,
        "state": metadata.state.name,
    }


def base64_text(data: bytes | None) -> str | None:
    """Return the bytes in base64; None for none."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def epochs_text(epochs: Mapping[Any, int]) -> str:
    """Return leader epochs and their first offsets."""
    return ",".join(f"{epoch}:{start}" for epoch, start in epochs.items())


def time_text(timestamp_ms: int) -> str:
    """Return a time in UTC; "-" for none."""
    return utc_text(timestamp_ms) if timestamp_ms >= 0 else "-"


def table(rows: Sequence[Sequence[str]], *, numbers: int) -> Iterator[str]:
    """Yield columns as wide as their widest cell; the first ones are numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if place < numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
