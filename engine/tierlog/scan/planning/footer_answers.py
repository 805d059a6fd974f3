"""Summaries of records out of footers: what they say exactly, and the offsets of which they do not say enough.

A footer's totals answer for a segment that counts as a whole; its table for each batch that does. What is left is a
cut through a batch that is not dense, a batch across a bound of time, or a transactional one where something was
aborted: its offsets are read as without a footer. The rules are those of batch headers (``cext/core/batch/summary.c``),
but that a footer knows the least time of a batch too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog.records.batch_table import TRANSACTIONAL
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.objects.footer import FooterBatches, FooterTotals
from tierlog.remote.tier.tier import Tier
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_request import RecordFilter

#: Pieces of a segment that are left; where they are more, all of the segment is.
_PIECES_MAX: Final = 16
_FACTS: Final[tuple[SummaryField, ...]] = ("min_offset", "max_offset", "min_timestamp", "max_timestamp")
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FooterAnswer:
    """The answer of one span's footer.

    Attributes:
        summary: Of the records that it knows of.
        left: Offsets [first, end) that are to be read for the others, ascending, disjoint.
    """

    summary: RecordSummary = field(default_factory=RecordSummary)
    left: tuple[tuple[int, int], ...] = ()


def answer_span(
    tier: Tier,
    span: Span,
    chosen: RecordFilter,
    aborted: NDArray[np.void] | None,
    wanted: Collection[SummaryField],
) -> FooterAnswer:
    """Answer for the records of a span.

    Args:
        tier: Has the segment.
        span: Of the segment.
        chosen: Its bounds of time are looked at alone.
        aborted: The aborted transactions that touch the span, as ABORTED_DTYPE; None for read_uncommitted.
        wanted: The facts that are needed.

    Raises:
        EncryptionKeyError: no key of the ring opens the segment. StoreError and its kinds.

    Cost: one request of 4 KiB; the table, where totals are not enough.
    """
    everything = FooterAnswer(left=((span.first_offset, span.end_offset_exclusive),))
    totals = tier.footers.fetch_totals(span.segment)
    if totals is None:
        return everything
    summary = _of_totals(totals, span, chosen, aborted, wanted)
    if summary is not None:
        return FooterAnswer(summary)
    batches = tier.footers.fetch_batches(span.segment)
    if batches is None:
        return everything
    found = _of_batches(batches, span, chosen, aborted, wanted)
    return everything if len(found.left) > _PIECES_MAX else found


def _of_totals(
    totals: FooterTotals,
    span: Span,
    chosen: RecordFilter,
    aborted: NDArray[np.void] | None,
    wanted: Collection[SummaryField],
) -> RecordSummary | None:
    """Return the summary of a span that is all of its segment; None if the totals do not say enough."""
    first_ms, end_ms = chosen.first_timestamp_ms, chosen.end_timestamp_exclusive_ms
    if span.first_offset > totals.base_offset or span.end_offset_exclusive <= totals.last_offset:
        return None
    least, greatest = totals.least_timestamp_ms, totals.greatest_timestamp_ms
    if totals.records and chosen.bounds_time:
        if least is None or greatest is None:
            return None
        if greatest < first_ms or (end_ms < _INT64_MAX and least >= end_ms):
            return RecordSummary()
        if least < first_ms or (end_ms < _INT64_MAX and greatest >= end_ms):
            return None
    if totals.has_transactions and aborted is not None and len(aborted):
        return None
    found = _summary(wanted, totals.records, totals.least_offset, totals.greatest_offset, least, greatest)
    needed = [getattr(found, name) for name in wanted if name != "count"]
    return None if totals.records and None in needed else found


def _summary(wanted: Collection[SummaryField], count: int, *facts: int | None) -> RecordSummary:
    """Return a summary with the wanted facts alone: others may be wrong."""
    return RecordSummary(count, *(fact if name in wanted else None for name, fact in zip(_FACTS, facts, strict=True)))


def _of_batches(
    batches: FooterBatches,
    span: Span,
    chosen: RecordFilter,
    aborted: NDArray[np.void] | None,
    wanted: Collection[SummaryField],
) -> FooterAnswer:
    first, end = span.first_offset, span.end_offset_exclusive
    counts = batches.has_data & (batches.last_offset >= first) & (batches.base_offset < end)
    counts &= ~_outside_of_time(batches, chosen)
    inside = (batches.base_offset >= first) & (batches.last_offset < end)
    one_time = batches.times_known & (batches.least_timestamp == batches.greatest_timestamp)
    known = counts & _inside_of_time(batches, chosen) & ~_may_be_aborted(batches, aborted)
    known &= inside | batches.is_dense
    if not {"min_offset", "max_offset"}.isdisjoint(wanted):
        known &= batches.is_dense
    if "max_timestamp" in wanted:
        known &= inside | one_time
    if "min_timestamp" in wanted:
        known &= (inside & batches.times_known) | one_time
    left = tuple(_runs(batches, counts & ~known, first, end))
    chosen_rows = np.flatnonzero(known)
    if not len(chosen_rows):
        return FooterAnswer(left=left)
    low = np.maximum(batches.base_offset[chosen_rows], first)
    high = np.minimum(batches.last_offset[chosen_rows], end - 1)
    count = np.where(inside[chosen_rows], batches.record_count[chosen_rows], high - low + 1)
    least_ms, greatest_ms = batches.least_timestamp[chosen_rows].min(), batches.greatest_timestamp[chosen_rows].max()
    facts = (int(low[0]), int(high[-1]), int(least_ms), int(greatest_ms))
    return FooterAnswer(_summary(wanted, int(count.sum()), *facts), left)


def _outside_of_time(batches: FooterBatches, chosen: RecordFilter) -> NDArray[np.bool_]:
    """bool[n]: no record of the batch is within the bounds."""
    found: NDArray[np.bool_] = batches.greatest_timestamp < chosen.first_timestamp_ms
    if chosen.end_timestamp_exclusive_ms < _INT64_MAX:
        found |= batches.times_known & (batches.least_timestamp >= chosen.end_timestamp_exclusive_ms)
    return found


def _inside_of_time(batches: FooterBatches, chosen: RecordFilter) -> NDArray[np.bool_]:
    """bool[n]: each record of the batch is within the bounds."""
    found = np.ones(len(batches), np.bool_)
    if chosen.first_timestamp_ms > _INT64_MIN:
        found &= batches.times_known & (batches.least_timestamp >= chosen.first_timestamp_ms)
    if chosen.end_timestamp_exclusive_ms < _INT64_MAX:
        found &= batches.times_known & (batches.greatest_timestamp < chosen.end_timestamp_exclusive_ms)
    return found


def _may_be_aborted(batches: FooterBatches, aborted: NDArray[np.void] | None) -> NDArray[np.bool_]:
    """bool[n]: the batch is transactional, and lies among the offsets of a transaction that was aborted."""
    transactional = (batches.attributes & TRANSACTIONAL) != 0
    if aborted is None or not len(aborted):
        return np.zeros(len(batches), np.bool_)
    by_first = np.argsort(aborted["first_offset"])
    starts = aborted["first_offset"][by_first]
    ends = np.maximum.accumulate(aborted["last_offset"][by_first])
    place = np.searchsorted(starts, batches.last_offset, side="right") - 1
    touched: NDArray[np.bool_] = transactional & (place >= 0) & (ends[np.maximum(place, 0)] >= batches.base_offset)
    return touched


def _runs(batches: FooterBatches, chosen: NDArray[np.bool_], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets [first, end) of neighbouring batches, within those of a span; no more than are of use."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    for start, stop in edges.reshape(-1, 2)[: _PIECES_MAX + 1].tolist():
        yield max(first, int(batches.base_offset[start])), min(end, int(batches.last_offset[stop - 1]) + 1)
