"""Count and extremes of some records, without the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SummaryField = Literal["count", "min_offset", "max_offset", "min_timestamp", "max_timestamp"]


@dataclass(slots=True)
class RecordSummary:
    """Count and extremes of some records; None for a field that was not requested or has no value. Timestamps in ms."""

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


def _least(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def _greatest(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None
