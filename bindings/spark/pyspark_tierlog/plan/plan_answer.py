"""The frames of a plan: its head, the tasks or the aggregates."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark_tierlog.options.source_options import ReadOptions
from pyspark_tierlog.plan.aggregates import Summaries, add_up, ask_footers, fields_of, find_summaries, rows_of
from pyspark_tierlog.plan.frames import FrameWriter
from pyspark_tierlog.plan.requests import Aggregates
from pyspark_tierlog.plan.segment_frames import TaskFrames, write_store
from pyspark_tierlog.request import tier_config
from tierlog.errors import TierlogError
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier import Tier
from tierlog.remote.tier.configured_store import address_configured_store
from tierlog.scan.planning.plan import PreparedScan
from tierlog.scan.planning.probes import ByteBudget, OverBudgetError, take_enough
from tierlog.scan.scan_range import ScanRange

#: Bytes that may be read to find out that a part of the plan holds enough records for a limit.
LIMIT_BYTES: Final = 4 << 20

_Task = tuple[int, tuple[ScanRange, ...]]
"""Number of the store, and what to read of it."""


class PlannedTier(NamedTuple):
    """One path of the load, ready to be planned."""

    tier: Tier
    scan: PreparedScan


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The frames of a plan over the paths of a load."""

    options: ReadOptions
    parts: Sequence[PlannedTier]
    out: FrameWriter

    def write_head(self, **told: object) -> None:
        rows = sum(part.scan.limits.total_records for part in self.parts)
        head: dict[str, object] = {
            "rows": rows,
            "exact_rows": rows == 0,
            "bytes": sum(part.scan.limits.total_bytes for part in self.parts),
            "tasks": None,
            "fail_on_data_loss": self.options.fail_on_data_loss,
            "verify_checksums": self.options.verify_checksums,
            "limit_taken": False,
            "aggregates_taken": False,
            "header_only": False,
            "trust_headers": self.options.trust_headers,
        }
        self.out.write_json("P", head | told)

    def write_records(self, limit: int | None) -> None:
        enough = self._enough(limit)
        if enough is None:
            self.write_head()
            self._write_tasks(self._iter_tasks([part.scan for part in self.parts]))
        else:
            self.write_head(limit_taken=True, tasks=1, bytes=sum(each.size_bytes for each in enough[1]))
            self._write_tasks([enough])

    def write_aggregates(self, aggregates: Aggregates) -> None:
        options, wanted = self.options, fields_of(aggregates)
        left = [(part.tier, part.scan) for part in self.parts]
        known: Summaries = {}
        # Where damage may be left out, only reading finds it.
        trusts = options.fail_on_data_loss or options.trust_headers
        if trusts:
            known, left = ask_footers(left, wanted)
        found = find_summaries(left, wanted, verify_checksums=options.verify_checksums, ends_suffice=trusts)
        tasks = self._iter_tasks([scan for _, scan in left])
        first = None if found is not None else next(tasks, None)
        if first is None:
            self.write_head(aggregates_taken=True, tasks=0)
            self.out.write_json("A", rows_of(aggregates, add_up(known, found or {})))
        else:
            self.write_head(aggregates_taken=True, header_only=True)
            if any(summary.count for summary in known.values()):
                self.out.write_json("K", rows_of(aggregates, known))
            self._write_tasks(itertools.chain([first], tasks))

    def _enough(self, limit: int | None) -> _Task | None:
        """Find a task that holds a limit of records, if a small read of the first path finds it."""
        part = self.parts[0]
        if not limit or limit >= part.scan.limits.total_records:
            return None
        try:
            budget = ByteBudget(LIMIT_BYTES, part.tier.machine)
            return 0, tuple(take_enough(part.tier, part.scan.iter_ranges(), limit, budget))
        except (OverBudgetError, TierlogError):  # the task that reads the damage reports it
            return None

    def _iter_tasks(self, scans: Sequence[PreparedScan]) -> Iterator[_Task]:
        for number, scan in enumerate(scans):
            for ranges in scan.iter_tasks():
                if any(each.size_bytes for each in ranges):
                    yield number, ranges

    def _write_tasks(self, tasks: Iterable[_Task]) -> None:
        config = read_storage_config(tier_config(self.options))
        for part in self.parts:
            write_store(self.out, address_configured_store(part.tier.url, config), config.private_key_files)
        frames = TaskFrames(self.out)
        for store, ranges in tasks:
            frames.write(store, ranges)
