"""A segment's description against its log."""

from __future__ import annotations

import pytest

from tests.support.batches import Batch, encode
from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.checks.segment_walk import SegmentCheck
from tierlog.upkeep.verification.log_walk import LogWalk
from tierlog.upkeep.verification.segment_checks import EpochCheck, RangeCheck

BATCHES = [Batch(offset, (b"v",) * 2, epoch=offset // 10, timestamp_ms=1000 + offset) for offset in range(0, 30, 2)]


def findings(check: SegmentCheck, batches: list[Batch] = BATCHES, window_bytes: int = 200) -> list[Finding]:
    log = b"".join(encode(batch) for batch in batches)
    walk = LogWalk([log[at : at + window_bytes] for at in range(0, len(log), window_bytes)], "a.log")
    found = [finding for run in walk for finding in check.observe(run)]
    return found + list(check.finish(walk))


def ranges(start: int | None = 0, end: int | None = 29, newest: int | None = 1029) -> RangeCheck:
    return RangeCheck("a.log", start_offset=start, end_offset=end, max_timestamp_ms=newest)


def test_what_fits_passes() -> None:
    """Otherwise verify is of no use on sound data."""
    assert not findings(ranges())
    assert not findings(ranges(None, None, None))
    assert not findings(EpochCheck({0: 0, 1: 10, 2: 20}, "a.log", "the checkpoint"))


@pytest.mark.parametrize(
    ("check", "severity", "kind"),
    [
        (ranges(start=5), Severity.FAULT, "SEGMENT_OFFSET"),
        (ranges(end=20), Severity.FAULT, "SEGMENT_OFFSET"),
        (ranges(end=40), Severity.NOTE, "OFFSET_GAP"),
        (ranges(newest=5), Severity.NOTE, "MAX_TIMESTAMP"),
    ],
)
def test_what_does_not_fit_is_said(check: RangeCheck, severity: Severity, kind: str) -> None:
    """Otherwise planners prune by numbers that are wrong, and rows go missing."""
    assert [(finding.severity, finding.kind) for finding in findings(check)] == [(severity, kind)]


@pytest.mark.parametrize("window_bytes", [80, 10_000])
def test_gaps_are_counted_and_legal(window_bytes: int) -> None:
    """Otherwise every compacted log is called damaged."""
    batches = [batch for batch in BATCHES if batch.base_offset not in (4, 6, 12)]
    (finding,) = findings(ranges(), batches, window_bytes)
    assert (finding.severity, finding.kind, finding.offset) == (Severity.NOTE, "OFFSET_GAP", 4)
    assert "2 gaps" in finding.text
    assert "from 4 to 7" in finding.text


def test_a_wrong_epoch_is_said_once() -> None:
    """Otherwise a branch that does not belong passes, or one wrong checkpoint line makes a thousand faults."""
    found = findings(EpochCheck({0: 0, 1: 12, 2: 20}, "a.log", "the checkpoint"))
    assert [(f.kind, f.offset, f.expected, f.found) for f in found] == [("LEADER_EPOCH", 10, 0, 1)]
    assert len(findings(EpochCheck({5: 0}, "a.log", "the checkpoint"))) == 3


def test_what_the_checkpoint_does_not_reach_is_not_judged() -> None:
    """Otherwise each log whose start was moved (retention) is called damaged."""
    assert not findings(EpochCheck({2: 20}, "a.log", "the checkpoint"))
    assert not findings(EpochCheck({}, "a.log", "the checkpoint"))
    unknown = [Batch(offset, epoch=-1) for offset in range(3)]
    assert not findings(EpochCheck({7: 0}, "a.log", "the checkpoint"), unknown)
