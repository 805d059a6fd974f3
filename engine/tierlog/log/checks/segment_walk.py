"""A walk over the batches of a segment's log: its own checks, and the runs that other checks read.

A SegmentWalk passes once over the bytes, cut anywhere: sound batches, in order, within the segment.

Each batch has a checksum, offsets rise, and all of them lie within the segment. This holds for every caller: a copy
before the broker deletes its own, or a reader of chunks, which authenticate one by one and not their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tierlog._native.batches import RangeCheck
from tierlog.errors import CorruptDataError
from tierlog.log.checks.findings import Finding
from tierlog.records.batch_runs import BatchColumns


class SegmentWalk:
    """The walk over one range, whose bytes are passed in order to ``feed`` or ``collect``. It holds none of them.

    A range that begins inside a batch cannot be checked. Position 0 is a border; any other start is one if the first
    batch that stands there is sound, and this says nothing until it has seen that. Brokers ask for positions of the
    offset index, which are borders.

    Args:
        position: Of the first byte in the log.
        first_offset: Of the segment.
        last_offset: Of the segment, inclusive.
        size_bytes: Of the whole log.
        name: Of the file or object, for messages.
        kind: Class of the errors.
        misplaced_hint: The likely cause of a batch out of order, for its message.
    """

    def __init__(
        self,
        *,
        position: int,
        first_offset: int,
        last_offset: int,
        size_bytes: int,
        name: str,
        kind: type[CorruptDataError],
        misplaced_hint: str = "",
    ) -> None:
        self._name = name
        self._last = last_offset
        self._size_bytes = size_bytes
        self._misplaced_hint = misplaced_hint
        self._check = RangeCheck(
            position=position,
            first_offset=first_offset,
            last_offset=last_offset,
            size_bytes=size_bytes,
            kind=kind,
        )

    @property
    def is_checking(self) -> bool:
        """Whether the bytes so far began at a border, as far as can be known."""
        return self._check.is_checking

    @property
    def end_position(self) -> int:
        """Behind the last whole batch, bytes in the log."""
        return self._check.end_position

    @property
    def is_inside_batch(self) -> bool:
        """Whether a batch has begun at ``end_position`` and not ended."""
        return self._check.partial

    def feed(self, data: memoryview) -> None:
        """Check the next bytes.

        Raises:
            CorruptDataError (of ``kind``): a batch among those that are whole now does not match its checksum, lies
                outside the segment's offsets or behind a later one; no batch begins where one ends; or the one that has
                begun says that it ends behind the segment. ValueError: fed behind such a fault.
        """
        found = self._check.feed(data)
        if found is not None:
            raise self._told(*found)

    def collect(self, data: memoryview) -> BatchColumns:
        """Check the next bytes; the headers of the batches that ended in them. Raises as ``feed``."""
        columns, found = self._check.collect(data)
        if found is not None:
            raise self._told(*found)
        return columns

    def _told(self, rule: str, error: CorruptDataError) -> CorruptDataError:
        if rule == "crc":
            error.text = "the batch does not match its checksum"
        elif rule == "size":
            left = self._size_bytes - error.position
            error.text = f"no batch of the segment can be so large: its log ends inside a batch, {left} bytes from here"
        elif rule == "order":
            error.text = (
                f"a batch of offsets {error.base_offset} … {error.found} where only {error.expected} … {self._last} "
                f"can stand{self._misplaced_hint}"
            )
        return error.located(self._name)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """Neighbouring whole batches of a segment, n of them, in file order.

    Attributes:
        table: The columns of ``scan_batches``, each of shape (n,).
        sound: bool[n]: whether checksum, codec and records of the batch are right.
        record_timestamp_max: int64[n], ms: largest timestamp of the batch's records; -1 if it has none or is not sound.
        markers: Index of a control batch in the run -> type of its first record (0 abort, 1 commit).
        record_timestamp_min: int64[n], ms: least timestamp of the batch's records; 2^63-1 if it has none. None: records
            were not looked at.
    """

    table: BatchColumns
    sound: NDArray[np.bool_]
    record_timestamp_max: NDArray[np.int64]
    markers: Mapping[int, int]
    record_timestamp_min: NDArray[np.int64] | None = None

    def column(self, name: str) -> NDArray[np.int64]:
        return self.table[name].astype(np.int64, copy=False)

    @property
    def end_position(self) -> int:
        return int(self.column("position")[-1] + self.column("size_bytes")[-1])


class Walk(Protocol):
    """The extent to which the batches of a log could be followed.

    Attributes:
        end_position: Byte position behind the last whole batch.
        complete: Whether the end of the log was reached, so that the bytes behind ``end_position`` are known.
        findings: The faults of the batches so far.
    """

    @property
    def findings(self) -> list[Finding]: ...
    @property
    def end_position(self) -> int: ...
    @property
    def complete(self) -> bool: ...


class SegmentCheck(Protocol):
    """A check that takes a segment's batches as they stream by."""

    def observe(self, run: CheckedRun) -> Iterator[Finding]: ...
    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        """Return the findings, after the last run. Bytes that the walk could not reach are reported as a note."""
