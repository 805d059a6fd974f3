"""The sparse indexes of a segment, held against its batches while these go by for another purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from typing_extensions import Buffer

from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.checks.index_checks import OffsetIndexCheck, TimeIndexCheck
from tierlog.log.checks.segment_walk import CheckedRun, SegmentCheck
from tierlog.records.batch_runs import BatchColumns
from tierlog.remote.api import IndexType
from tierlog.remote.tier.chunks.stored_segment import StoredSegment

_CHECKS: Final[Mapping[IndexType, Callable[[Buffer, int, str], SegmentCheck]]] = {
    IndexType.OFFSET: OffsetIndexCheck,
    IndexType.TIMESTAMP: TimeIndexCheck,
}


@dataclass(slots=True)
class _Walked:
    """The progress of a walk over the log, as ``finish`` of a check takes it."""

    end_position: int = 0
    complete: bool = False
    findings: list[Finding] = field(default_factory=list)


class IndexComparison:
    """The comparison of one closed segment.

    Args:
        segment: Named in the faults.
        parts: Its offset and time index, those that there are.
    """

    def __init__(self, segment: StoredSegment, parts: Mapping[IndexType, Buffer]) -> None:
        base, name = segment.start_offset, segment.name
        self._checks = {kind: make(parts[kind], base, name) for kind, make in _CHECKS.items() if kind in parts}
        self._walked = _Walked()
        self._wrong: dict[IndexType, str] = {}

    def add(self, columns: BatchColumns) -> None:
        """Compare further batches, in the order of the log from its first one on."""
        count = len(columns["position"])
        run = CheckedRun(columns, columns["crc_ok"].astype(np.bool_), np.full(count, -1, np.int64), {})
        self._walked.end_position = run.end_position
        for kind, check in self._checks.items():
            self._take(kind, check.observe(run))

    def finish(self) -> dict[IndexType, str]:
        """Return the indexes that do not fit the log, which has no more batches, with the first fault of each."""
        self._walked.complete = True
        for kind, check in self._checks.items():
            self._take(kind, check.finish(self._walked))
        return self._wrong

    def _take(self, kind: IndexType, findings: Iterator[Finding]) -> None:
        for finding in findings:
            if finding.severity is not Severity.NOTE:
                self._wrong.setdefault(kind, str(finding))
