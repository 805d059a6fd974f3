"""How many records a range has, and their smallest and largest offset and timestamp, from batch headers where they say.

An offset range is not a count: control records take offsets, compaction takes records away. A header says how many
records its batch has; it does not say how many of them lie beyond a cut, nor the smallest timestamp of a producer's
clock. Where a header does not say enough, its batch is decoded: the answer is exact either way.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tierlog.errors import CorruptDataError
from tierlog.records.batch_runs import BatchRun
from tierlog.remote.manager.scan_range import ScanRange
from tierlog.remote.manager.scan_read import range_decoder
from tierlog.remote.metadata.batch_stream import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, iter_batch_runs
from tierlog.remote.storage.tier import Tier

SummaryField = Literal["count", "min_offset", "max_offset", "min_timestamp_ms", "max_timestamp_ms"]

_LOG_APPEND_ATTRIBUTE: Final = 0x08
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(slots=True)
class RecordSummary:
    """Of some records; what was not asked for may be None, and all but the count is where there are none."""

    count: int = 0
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None

    def add(self, other: RecordSummary) -> None:
        """Make this one the summary of both."""
        self.count += other.count
        self.min_offset = _least(self.min_offset, other.min_offset)
        self.max_offset = _greatest(self.max_offset, other.max_offset)
        self.min_timestamp_ms = _least(self.min_timestamp_ms, other.min_timestamp_ms)
        self.max_timestamp_ms = _greatest(self.max_timestamp_ms, other.max_timestamp_ms)


def summarise_range(
    tier: Tier, scan_range: ScanRange, wanted: frozenset[SummaryField], *, verify_checksums: bool = True
) -> RecordSummary:
    """The summary of the records that ``read_scan_range`` would give.

    Args:
        tier: Where the range was planned.
        scan_range: What to read.
        wanted: What has to be known: less of it needs fewer batches decoded.
        verify_checksums: Check every batch's CRC.

    Raises:
        CorruptRecordError, SizeLimitError, CorruptObjectError, ObjectNotFoundError, StoreError and its kinds: as
            ``read_scan_range``; nothing is left out, whatever ``fail_on_data_loss`` says.
    """
    summary = RecordSummary()
    runs = iter_batch_runs(
        tier, scan_range.segment, scan_range.start_position, scan_range.end_position, verify_crc=verify_checksums
    )
    with closing(runs):  # type: ignore[type-var]
        for run in runs:
            summary.add(summarise_run(run, scan_range, wanted, verify_checksums=verify_checksums))
            if int(run.column("last_offset")[-1]) >= scan_range.to_offset_exclusive - 1:
                break
    return summary


def summarise_run(
    run: BatchRun, scan_range: ScanRange, wanted: frozenset[SummaryField], *, verify_checksums: bool
) -> RecordSummary:
    """The same of some batches of the range. Raises CorruptDataError and its kinds, located."""
    kept, decoded = _sorted_out(run, scan_range, wanted, verify_checksums=verify_checksums)
    summary = _of_headers(run, scan_range, kept & ~decoded)
    try:
        for first, end in _neighbours(np.flatnonzero(kept & decoded)):
            summary.add(_of_records(run, scan_range, first, end, verify_checksums=verify_checksums))
    except CorruptDataError as error:
        raise error.located(scan_range.describe()) from error.__cause__
    return summary


def _sorted_out(
    run: BatchRun, scan_range: ScanRange, wanted: frozenset[SummaryField], *, verify_checksums: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(batches that may have records that count, batches whose header does not say which)."""
    base, last, count = run.column("base_offset"), run.column("last_offset"), run.column("record_count")
    attributes, latest = run.column("attributes"), run.column("max_timestamp")
    plain = run.column("magic") >= 2
    at_append = attributes & _LOG_APPEND_ATTRIBUTE != 0
    inside = (base >= scan_range.from_offset) & (last < scan_range.to_offset_exclusive)
    span = last - base + 1
    dense = count == span
    kept = last >= scan_range.from_offset
    # The header of the old formats has the last offset only: where such a batch begins is not known.
    kept &= ~plain | ((base < scan_range.to_offset_exclusive) & (attributes & CONTROL_ATTRIBUTE == 0) & (count != 0))
    decoded = ~plain | ~(dense | inside) | (count < 0) | (count > span)
    if scan_range.from_timestamp_ms > _INT64_MIN or scan_range.to_timestamp_exclusive_ms < _INT64_MAX:
        early, late = latest < scan_range.from_timestamp_ms, latest >= scan_range.to_timestamp_exclusive_ms
        kept &= ~(plain & (early | (at_append & late)))
        decoded |= ~at_append
    aborted = scan_range.aborted_transactions
    if aborted is not None and len(aborted):
        transactional = attributes & TRANSACTIONAL_ATTRIBUTE != 0
        decoded |= transactional & np.isin(run.column("producer_id"), aborted["producer_id"])
    if wanted & {"min_offset", "max_offset"}:
        decoded |= ~dense
    if "min_timestamp_ms" in wanted:
        decoded |= ~at_append
    if "max_timestamp_ms" in wanted:
        decoded |= ~(at_append | inside)
    if verify_checksums:
        damaged = ~run.columns["crc_ok"].astype(bool)
        kept |= damaged  # reading the records tells what is wrong with it
        decoded |= damaged
    return kept, decoded


def _of_headers(run: BatchRun, scan_range: ScanRange, chosen: NDArray[np.bool_]) -> RecordSummary:
    if not chosen.any():
        return RecordSummary()
    base, last, count = (run.column(name)[chosen] for name in ("base_offset", "last_offset", "record_count"))
    latest = run.column("max_timestamp")[chosen]
    first = np.maximum(base, scan_range.from_offset)
    end = np.minimum(last, scan_range.to_offset_exclusive - 1) + 1
    cut = (first > base) | (end <= last)  # dense, or it had been decoded
    return RecordSummary(
        int(np.where(cut, end - first, count).sum()),
        int(first.min()),
        int(end.max()) - 1,
        int(latest.min()),
        int(latest.max()),
    )


def _of_records(
    run: BatchRun, scan_range: ScanRange, first: int, end_exclusive: int, *, verify_checksums: bool
) -> RecordSummary:
    position, size = run.columns["position"], run.columns["size_bytes"]
    start, stop = int(position[first]), int(position[end_exclusive - 1]) + int(size[end_exclusive - 1])
    decoder = range_decoder(
        scan_range, ["offset", "timestamp"], verify_checksums=verify_checksums, start_position=start
    )
    summary = RecordSummary()
    for rows in (*decoder.feed(run.data[start - run.position : stop - run.position]), *decoder.finish()):
        if rows.num_rows:
            offsets, stamps = (np.asarray(rows[name].cast("int64")) for name in ("offset", "timestamp"))
            found = (int(offsets.min()), int(offsets.max()), int(stamps.min()), int(stamps.max()))
            summary.add(RecordSummary(rows.num_rows, *found))
    return summary


def _neighbours(batches: NDArray[np.intp]) -> Iterable[tuple[int, int]]:
    """Runs of consecutive numbers as [first, end)."""
    if not len(batches):
        return []
    parts = np.split(batches, np.flatnonzero(np.diff(batches) != 1) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def _least(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def _greatest(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None
