"""The footer of a segment against its log: each batch, where both know it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tierlog.log.checks.findings import Finding, fault
from tierlog.log.checks.segment_walk import CheckedRun, Walk
from tierlog.records.batch_table import CONTROL, LOG_APPEND_TIME
from tierlog.remote.tier.objects.footer import FooterBatches, FooterTotals
from tierlog.remote.tier.objects.footer_builder import FooterBuilder

#: Columns of a footer's table that headers give, in the order in which a difference is told.
_COLUMNS: Final = (
    "position",
    "size_bytes",
    "base_offset",
    "last_offset",
    "record_count",
    "greatest_timestamp",
    "attributes",
)


class FooterCheck:
    """Checks that a footer says of each batch what the log says.

    Args:
        totals: The footer's.
        batches: The footer's; None if it has none.
        where: Name of the footer's object.

    A log with damage is compared with nothing: what is wrong with it is told elsewhere.
    """

    def __init__(self, totals: FooterTotals, batches: FooterBatches | None, where: str) -> None:
        self._totals = totals
        self._batches = batches
        self._where = where
        self._builder = FooterBuilder()

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        greatest = run.column("max_timestamp")
        told = (run.column("attributes") & (CONTROL | LOG_APPEND_TIME)) != 0
        told |= run.column("record_count") == 0
        known = told | (run.sound & (run.record_timestamp_max == greatest))
        least = greatest if run.record_timestamp_min is None else np.where(told, greatest, run.record_timestamp_min)
        self._builder.add_timed(run.table, least, known)
        yield from ()

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        made = self._builder.finish()
        if not walk.complete or walk.findings:
            return
        if made is None:
            yield fault("FOOTER", f"a footer of a log that can have none: {self._builder.unfit}", self._where)
        elif made.batches is not None and self._batches is not None:
            yield from self._compare(made.batches, self._batches)
        elif (made.totals.records, made.totals.batches) != (self._totals.records, self._totals.batches):
            yield self._differs("number of records", made.totals.records, self._totals.records)

    def _compare(self, log: FooterBatches, footer: FooterBatches) -> Iterator[Finding]:
        if len(log) != len(footer):
            yield self._differs("number of batches", len(log), len(footer))
            return
        for name in _COLUMNS:
            ours, theirs = getattr(log, name), getattr(footer, name)
            wrong = np.flatnonzero(ours != theirs)
            if len(wrong):
                yield self._of_batch(log, int(wrong[0]), name, int(ours[wrong[0]]), int(theirs[wrong[0]]))
                return
        both = log.times_known & footer.times_known & log.has_data
        wrong = np.flatnonzero(both & (log.least_timestamp != footer.least_timestamp))
        if len(wrong):
            row = int(wrong[0])
            yield self._of_batch(
                log, row, "least_timestamp", int(log.least_timestamp[row]), int(footer.least_timestamp[row])
            )

    def _of_batch(self, log: FooterBatches, row: int, name: str, expected: int, found: int) -> Finding:
        return fault(
            "FOOTER",
            f"the {name.replace('_', ' ')} of a batch is not the log's",
            self._where,
            position=int(log.position[row]),
            offset=int(log.base_offset[row]),
            expected=expected,
            found=found,
        )

    def _differs(self, what: str, expected: int, found: int) -> Finding:
        return fault("FOOTER", f"the {what} is not the log's", self._where, expected=expected, found=found)
