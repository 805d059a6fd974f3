"""The frames that answer a request of the jar, by the same calls as the Python path."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pyspark_tierlog.listing import Listing, TierListing, list_tiers
from pyspark_tierlog.options.source_options import ReadOptions, parse_options
from pyspark_tierlog.plan.aggregates import add_up, ask_footers, fields_of, find_summaries, rows_of
from pyspark_tierlog.plan.frames import FrameWriter, PlanProtocolError
from pyspark_tierlog.plan.listing_frames import read_listing, write_listing
from pyspark_tierlog.plan.requests import Aggregates, ListRequest, PlanRequest, Request
from pyspark_tierlog.plan.segment_frames import TaskFrames, write_store
from pyspark_tierlog.request import scan_requests, tier_config
from pyspark_tierlog.table_columns import chosen_schema, picked_schema
from tierlog.errors import ConfigError, TierlogError
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier import Tier, open_tier
from tierlog.remote.tier.configured_store import address_configured_store
from tierlog.scan.planning.plan import PreparedScan, prepare_scan
from tierlog.scan.planning.probes import ByteBudget, OverBudgetError, take_enough
from tierlog.scan.scan_range import ScanRange

#: Bytes that may be read to find out that a part of the plan holds enough records for a limit.
LIMIT_BYTES: Final = 4 << 20


def answer(request: Request, blobs: Sequence[bytes], out: FrameWriter) -> None:
    """Write all frames of an answer but its last one.

    Raises:
        TierlogError: the same errors as on the Python path.
        PlanProtocolError: the request makes no sense.
    """
    if isinstance(request, ListRequest):
        _list(request, out)
    else:
        _plan(request, read_listing(blobs), out)


def _list(request: ListRequest, out: FrameWriter) -> None:
    options, warning = parse_options(request.options)
    chosen_schema(options)  # a missing column is an error at load()
    if warning is not None:
        out.warn(warning)
    listing = list_tiers(options)
    listing.checked()
    write_listing(out, listing)


_Task = tuple[int, tuple[ScanRange, ...]]
"""Number of the store, and what to read of it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One path of the load, ready to be planned."""

    pinned: TierListing
    tier: Tier
    scan: PreparedScan


def _plan(request: PlanRequest, listing: Listing, out: FrameWriter) -> None:
    options, _ = parse_options(request.options)
    if options.table != "records":
        raise ConfigError(f"table={options.table} is read by the Python path, the jar reads records")
    picked_schema(options, request.columns)
    tiers = listing.checked()
    if tuple(tier.path for tier in tiers) != options.paths:
        raise PlanProtocolError("the listing is of other paths than the options name")
    record_filter, exact = request.record_filter()
    config = tier_config(options)
    with ExitStack() as opened:
        parts = []
        sizes = [pinned.size_bytes for pinned in tiers]
        for pinned, wanted in zip(tiers, scan_requests(options, sizes, record_filter), strict=True):
            tier = opened.enter_context(open_tier(pinned.path, layout=pinned.layout, config=config))
            parts.append(_Part(pinned, tier, prepare_scan(tier, wanted, histories=pinned.histories)))
        answer = _Answer(options, parts, out)
        if request.aggregates is not None and exact:
            answer.write_aggregates(request.aggregates)
        elif request.aggregates is not None:
            answer.write_head()
        else:
            limit = request.limit if exact and options.fail_on_data_loss else None
            answer.write_records(limit)
        for part in parts:
            for warning in dict.fromkeys((*part.pinned.warnings, *part.scan.warnings)):  # ranges may be cut twice
                out.warn(warning)


@dataclass(frozen=True, slots=True)
class _Answer:
    options: ReadOptions
    parts: Sequence[_Part]
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
        known, left = ask_footers([(part.tier, part.scan) for part in self.parts], wanted)
        found = find_summaries(
            left,
            wanted,
            verify_checksums=options.verify_checksums,
            ends_suffice=options.fail_on_data_loss or options.trust_headers,
        )
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
