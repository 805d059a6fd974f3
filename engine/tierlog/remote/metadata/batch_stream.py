"""The batches of a range of a stored log, and what is wrong where they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tierlog.errors import CorruptRecordError, SizeLimitError
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX, BatchRun, BatchRuns
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.tier import Tier

CONTROL_ATTRIBUTE = 0x20
TRANSACTIONAL_ATTRIBUTE = 0x10


def place_of(segment: StoredSegment) -> str:
    """A segment in messages: its topic-partition and object."""
    return f"{segment.topic_id_partition} {segment.name}"


def iter_batch_runs(
    tier: Tier,
    segment: StoredSegment,
    start_position: int = 0,
    end_position_exclusive: int | None = None,
    *,
    verify_crc: bool = False,
    window_bytes: int | None = None,
) -> Iterator[BatchRun]:
    """Scan a range of a log that begins at a batch border.

    Raises:
        CorruptRecordError: a header is malformed, or the range ends inside a batch; the batches before it were given.
        SizeLimitError: a batch claims more than 256 MiB.
        CorruptObjectError, StoreError and its kinds: as ``Tier.iter_log_windows``.
    """
    windows = tier.iter_log_windows(segment, start_position, end_position_exclusive, window_bytes=window_bytes)
    with closing(windows):
        runs = BatchRuns((window for _, window in windows), verify_crc=verify_crc, end_position=start_position)
        yield from runs
    if runs.broken is not None:
        raise runs.broken.located(place_of(segment))
    if runs.oversized:
        text = f"a batch claims {runs.rest_size_bytes} bytes, more than the limit of {BATCH_SIZE_BYTES_MAX}"
        raise SizeLimitError(text, fault="OVER_LIMIT", position=runs.end_position, where=place_of(segment))
    if runs.rest:
        text = f"the log ends inside a batch, after {len(runs.rest)} of its bytes"
        raise CorruptRecordError(text, fault="TRUNCATED", position=runs.end_position, where=place_of(segment))
