"""What a segment answers: where a batch lies, the bytes of a fetch, a record found by its time."""

from __future__ import annotations

from typing import NamedTuple

from tierlog.log.local.segments.log_slice import LogSlice


class BatchPosition(NamedTuple):
    """Where a batch lies in its segment; ``base_offset`` and ``last_offset`` as its header has them."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class SegmentRead(NamedTuple):
    """What a segment has for a fetch.

    Attributes:
        records: The bytes; they begin with a whole batch's first byte and may end inside one.
        first_offset: Base offset of the first batch, as its header has it.
        first_entry_incomplete: Whether the first batch does not fit into what was asked for.
    """

    records: LogSlice
    first_offset: int
    first_entry_incomplete: bool


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp; -1 where there is none; ``leader_epoch`` None if it is not known."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None
