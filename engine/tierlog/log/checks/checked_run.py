"""Checked batches of a segment, as the checks of its other parts take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tierlog.log.checks.findings import Finding
from tierlog.records.batch_runs import BatchColumns


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """Neighbouring whole batches of a segment, n of them, in file order.

    Attributes:
        table: The columns of ``scan_batches``, each of shape (n,).
        sound: bool[n]: whether checksum, codec and records of the batch are right.
        record_timestamp_max: int64[n], ms: largest timestamp of the batch's records; -1 if it has none or is not sound.
        markers: Index of a control batch in the run -> type of its first record (0 abort, 1 commit).
    """

    table: BatchColumns
    sound: NDArray[np.bool_]
    record_timestamp_max: NDArray[np.int64]
    markers: Mapping[int, int]

    def column(self, name: str) -> NDArray[np.int64]:
        return self.table[name].astype(np.int64, copy=False)

    @property
    def end_position(self) -> int:
        return int(self.column("position")[-1] + self.column("size_bytes")[-1])


class Walk(Protocol):
    """How far the batches of a log could be followed.

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
        """The findings, after the last run. What the walk could not reach is reported as a note."""
