"""The two sparse indexes of a segment compared with its log, and built anew from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tierlog.errors import CorruptRecordError
from tierlog.log.checks.checked_run import CheckedRun, SegmentCheck
from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.checks.index_builder import IndexBuilder
from tierlog.log.checks.index_checks import OffsetIndexCheck, TimeIndexCheck
from tierlog.remote.api import IndexType
from tierlog.remote.metadata.batch_stream import iter_batch_runs, place_of
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.tier import Tier


def rebuild_indexes(tier: Tier, segment: StoredSegment) -> dict[IndexType, bytes]:
    """The offset and the time index of a closed segment, from its batches: one pass over its log.

    Raises:
        CorruptRecordError: a batch is damaged: no index is built from a damaged log. StoreError and its kinds.
    """
    builder = IndexBuilder(segment.start_offset)
    for run in iter_batch_runs(tier, segment, verify_crc=True):
        wrong = np.flatnonzero(~run.columns["crc_ok"].astype(np.bool_))
        if len(wrong):
            batch = int(wrong[0])
            raise CorruptRecordError(
                "the batch does not match its checksum",
                fault="BAD_CRC",
                position=int(run.column("position")[batch]),
                base_offset=int(run.column("base_offset")[batch]),
                where=place_of(segment),
            )
        builder.add(run.columns)
    return {IndexType.OFFSET: builder.offset_index(), IndexType.TIMESTAMP: builder.time_index()}


@dataclass(slots=True)
class _Walked:
    """How far the log was followed; see Walk."""

    end_position: int = 0
    complete: bool = False
    findings: list[Finding] = field(default_factory=list)


def wrong_indexes(tier: Tier, segment: StoredSegment, parts: Mapping[IndexType, bytes]) -> dict[IndexType, str]:
    """The indexes that do not fit the log, with the first fault of each.

    Raises:
        CorruptRecordError: the log itself ends in damage. StoreError and its kinds.
    """
    base = segment.start_offset
    checks: dict[IndexType, SegmentCheck] = {
        IndexType.OFFSET: OffsetIndexCheck(parts[IndexType.OFFSET], base, segment.name),
        IndexType.TIMESTAMP: TimeIndexCheck(parts[IndexType.TIMESTAMP], base, segment.name),
    }
    found: dict[IndexType, str] = {}

    def take(kind: IndexType, finding: Finding) -> None:
        if finding.severity is not Severity.NOTE:
            found.setdefault(kind, str(finding))

    walked = _Walked()
    for run in iter_batch_runs(tier, segment):
        count = len(run.columns["position"])
        checked = CheckedRun(run.columns, np.ones(count, np.bool_), np.full(count, -1, np.int64), {})
        walked.end_position = checked.end_position
        for kind, check in checks.items():
            for finding in check.observe(checked):
                take(kind, finding)
    walked.complete = True
    for kind, check in checks.items():
        for finding in check.finish(walked):
            take(kind, finding)
    return found
