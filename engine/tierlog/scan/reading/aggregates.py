"""How many records a range has, and their smallest and largest offset and timestamp, from batch headers where they say.

An offset range is not a count: control records take offsets, compaction takes records away. A header says how many
records its batch has; it does not say how many of them lie beyond a cut, nor the smallest timestamp of a producer's
clock. Where a header does not say enough, its batch is decoded: the answer is exact either way. The rules are the
core's (``cext/core/batch/summary.c``), the same for every binding.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from tierlog.errors import CorruptDataError
from tierlog.remote.tier.tier import Tier
from tierlog.scan.reading.read import range_decoder
from tierlog.scan.scan_range import ScanRange

SummaryField = Literal["count", "min_offset", "max_offset", "min_timestamp", "max_timestamp"]


@dataclass(slots=True)
class RecordSummary:
    """Count and extremes of some records; None for what was not asked for or is not there. Timestamps in ms."""

    count: int = 0
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None

    def add(self, other: RecordSummary) -> None:
        """Make this one the summary of both."""
        self.count += other.count
        self.min_offset = _least(self.min_offset, other.min_offset)
        self.max_offset = _greatest(self.max_offset, other.max_offset)
        self.min_timestamp = _least(self.min_timestamp, other.min_timestamp)
        self.max_timestamp = _greatest(self.max_timestamp, other.max_timestamp)


def summarise_range(
    tier: Tier, scan_range: ScanRange, wanted: frozenset[SummaryField], *, verify_checksums: bool = True
) -> RecordSummary:
    """The summary of the records that ``read_scan_range`` would give.

    Args:
        tier: Where the range was planned.
        scan_range: What to read.
        wanted: What has to be known: less of it needs fewer batches decoded.
        verify_checksums: Check every batch's CRC, whether it is decoded or not.

    Raises:
        CorruptRecordError, SizeLimitError, CorruptObjectError, ObjectNotFoundError, StoreError and its kinds: as
            ``read_scan_range``; nothing is left out, whatever ``fail_on_data_loss`` says.
    """
    decoder = range_decoder(scan_range, (), verify_checksums=verify_checksums, summary=wanted)
    windows = tier.iter_log_windows(scan_range.segment, scan_range.start_position, scan_range.read_end_position)
    with closing(windows):
        try:
            for _, window in windows:
                for _ in decoder.feed(window):
                    raise AssertionError("a summary has no rows")
                if decoder.done:
                    break
            list(decoder.finish())
        except CorruptDataError as error:
            raise error.located(scan_range.describe()) from error.__cause__
    return RecordSummary(**decoder.summary)  # type: ignore[arg-type]


def _least(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def _greatest(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None
