"""Aggregates that the planner answers itself: by footers, and for the rest if a few small reads are enough. Else the
executors read headers.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tierlog.errors import TierlogError
from tierlog.remote.tier import Tier
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.planning.plan import PreparedScan
from tierlog.scan.planning.probes import ByteBudget, OverBudgetError, find_first_offset, find_last_offset
from tierlog.scan.reading.read import summarise_range
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_range import ScanRange

if TYPE_CHECKING:
    from pyspark_tierlog.plan.requests import Aggregates

_logger = logging.getLogger(__name__)

#: Of logs that are read here, since a Spark job would cost more.
SMALL_BYTES: Final = 8 << 20
_SMALL_RANGES: Final = 32
#: Bytes that a search for first and last offsets may read: so many, or this share of a scan's bytes.
_PROBE_BYTES: Final = 64 << 20
_PROBE_PART: Final = 64
_CONCURRENCY: Final = 16

Partition = tuple[str, int]
Summaries = dict[Partition, RecordSummary]


def fields_of(aggregates: Aggregates) -> frozenset[SummaryField]:
    """Return the facts of the records that an aggregate needs."""
    found: set[SummaryField] = set()
    for function in aggregates.functions:
        if function[0] == "count":
            found.add("count")
        elif function[1] == "offset":
            found.add("min_offset" if function[0] == "min" else "max_offset")
        else:
            found.add("min_timestamp" if function[0] == "min" else "max_timestamp")
    return frozenset(found or {"min_offset"})  # without a function the groups alone are asked for


def ask_footers(
    scans: Sequence[tuple[Tier, PreparedScan]], wanted: frozenset[SummaryField]
) -> tuple[Summaries, list[tuple[Tier, PreparedScan]]]:
    """Ask the footers for the summary of each partition.

    Returns:
        What they say, and the scans of the records that no footer knows of.

    Raises:
        TierlogError: a footer cannot be fetched, or the segment has no key here.
    """
    found: Summaries = {}
    left = []
    for tier, scan in scans:
        summaries, rest = scan.answered_by_footers(wanted)
        _add(found, summaries.items())
        left.append((tier, rest))
    return found, left


def find_summaries(
    scans: Sequence[tuple[Tier, PreparedScan]],
    wanted: frozenset[SummaryField],
    *,
    verify_checksums: bool,
    ends_suffice: bool = True,
) -> Summaries | None:
    """Find the summary of each partition by small reads; None if it costs too much here, or if something is damaged,
    which reading the records will then report.

    Args:
        scans: The scans that are summed up.
        wanted: The facts that are needed.
        verify_checksums: Whether to check the CRC of every batch that is read here.
        ends_suffice: Whether the first and the last batches of a partition show its least and greatest offset. If
            damage is left out, batches behind it may be left out too, so that everything must be read.
    """
    total_bytes = sum(scan.limits.total_bytes for _, scan in scans)
    found: Summaries = {}
    try:
        if ends_suffice and wanted <= {"min_offset", "max_offset"}:
            budget = ByteBudget(max(_PROBE_BYTES, total_bytes // _PROBE_PART), scans[0][0].machine if scans else None)
            for tier, scan in scans:
                _add(found, _extremes(tier, scan, wanted, budget, verify_checksums))
        elif total_bytes <= SMALL_BYTES:
            for tier, scan in scans:
                ranges = list(itertools.islice(scan.iter_ranges(), _SMALL_RANGES + 1))
                if len(ranges) > _SMALL_RANGES:
                    return None
                _add(found, _read(tier, ranges, wanted, verify_checksums))
        else:
            return None
    except OverBudgetError:
        return None
    except TierlogError as error:
        _logger.info("aggregates are left to the executors: %s", error)
        return None
    return found


def rows_of(aggregates: Aggregates, summaries: Summaries) -> list[list[object]]:
    """Return the rows of the answer: one for each group that has records, in order; without grouping exactly one."""
    by_topic, by_partition = "topic" in aggregates.group_by, "partition" in aggregates.group_by
    groups: dict[tuple[str, int], RecordSummary] = {} if aggregates.group_by else {("", 0): RecordSummary()}
    for (topic, partition), summary in summaries.items():
        if summary.count:
            key = (topic if by_topic else "", partition if by_partition else 0)
            groups.setdefault(key, RecordSummary()).add(summary)
    rows = []
    for (topic, partition), summary in sorted(groups.items(), key=lambda item: item[0]):
        place: dict[str, object] = {"topic": topic, "partition": partition}
        row = [place[name] for name in aggregates.group_by]
        rows.append([*row, *(_value(function, summary) for function in aggregates.functions)])
    return rows


def _value(function: tuple[str, ...], summary: RecordSummary) -> int | None:
    if function[0] == "count":
        return summary.count
    if function[1] == "offset":
        return summary.min_offset if function[0] == "min" else summary.max_offset
    stamp_ms = summary.min_timestamp if function[0] == "min" else summary.max_timestamp
    return None if stamp_ms is None else 1000 * stamp_ms


def add_up(found: Summaries, more: Summaries) -> Summaries:
    """Return the summaries of both, whose records are others."""
    joined: Summaries = {}
    for each in (found, more):
        _add(joined, each.items())
    return joined


def _add(found: Summaries, more: Iterable[tuple[Partition, RecordSummary]]) -> None:
    for partition, summary in more:
        found.setdefault(partition, RecordSummary()).add(summary)


def _read(
    tier: Tier, ranges: Sequence[ScanRange], wanted: frozenset[SummaryField], verify_checksums: bool
) -> Iterator[tuple[Partition, RecordSummary]]:
    def summary(scan_range: ScanRange) -> RecordSummary:
        return summarise_range(tier, scan_range, wanted, verify_checksums=verify_checksums)

    with tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-summaries") as pool:
        for scan_range, found in zip(ranges, run_all(pool, summary, ranges), strict=True):
            yield (scan_range.topic, scan_range.partition), found


def _extremes(
    tier: Tier, scan: PreparedScan, wanted: frozenset[SummaryField], budget: ByteBudget, verify_checksums: bool
) -> Iterator[tuple[Partition, RecordSummary]]:
    """Yield the extremes of each partition; ``count`` is 1 if it has any record."""

    def summary(item: tuple[Partition, list[ScanRange]]) -> tuple[Partition, RecordSummary]:
        partition, ranges = item
        least = greatest = None
        if "min_offset" in wanted:
            least = find_first_offset(tier, ranges, budget, verify_checksums=verify_checksums)
        if "max_offset" in wanted:
            greatest = find_last_offset(tier, ranges, budget, verify_checksums=verify_checksums)
        any_record = least is not None or greatest is not None
        return partition, RecordSummary(int(any_record), least, greatest)

    grouped = itertools.groupby(scan.iter_ranges(), key=lambda each: (each.topic, each.partition))
    partitions = ((partition, list(ranges)) for partition, ranges in grouped)
    with tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-extremes") as pool:
        while some := list(itertools.islice(partitions, _CONCURRENCY)):
            yield from run_all(pool, summary, some)
