"""The answers: from a request of the jar to frames, by the same calls as the Python path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark_tierlog.listing import Listing, TierListing, list_tiers
from pyspark_tierlog.options import ReadOptions, parse_options
from pyspark_tierlog.plan.frames import FrameWriter, PlanProtocolError
from pyspark_tierlog.plan.listing_frames import read_listing, write_listing
from pyspark_tierlog.plan.requests import ListRequest, PlanRequest, Request
from pyspark_tierlog.plan.segment_frames import TaskFrames, write_store
from pyspark_tierlog.request import scan_requests, tier_config
from pyspark_tierlog.table_columns import chosen_schema, picked_schema
from tierlog.errors import ConfigError
from tierlog.remote.manager.scan_plan import PreparedScan, prepare_scan
from tierlog.remote.storage import Tier, open_tier
from tierlog.remote.storage.config import read_tier_config
from tierlog.runtime.store_opening import address_store


def answer(request: Request, blobs: Sequence[bytes], out: FrameWriter) -> None:
    """Write all frames of an answer but its end.

    Raises:
        TierlogError: what the Python path would raise.
        PlanProtocolError: the request makes no sense.
    """
    if isinstance(request, ListRequest):
        _list(request, out)
    else:
        _plan(request, read_listing(blobs), out)


def _list(request: ListRequest, out: FrameWriter) -> None:
    options, warning = parse_options(request.options)
    chosen_schema(options)  # a column that is not there is told at load()
    if warning is not None:
        out.warn(warning)
    listing = list_tiers(options)
    listing.checked()
    write_listing(out, listing)


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
    record_filter, _ = request.record_filter()
    config = tier_config(options)
    with ExitStack() as opened:
        parts = []
        for pinned, wanted in zip(tiers, scan_requests(options, tiers, record_filter), strict=True):
            tier = opened.enter_context(open_tier(pinned.path, layout=pinned.layout, config=config))
            parts.append(_Part(pinned, tier, prepare_scan(tier, wanted, histories=pinned.histories)))
        _write_head(options, parts, out)
        key_files = read_tier_config(config)
        for part in parts:
            address = address_store(part.tier.url, key_files.store_options)
            write_store(out, address, key_files.private_key_files)
        tasks = TaskFrames(out)
        for number, part in enumerate(parts):
            for ranges in part.scan.iter_tasks():
                tasks.write(number, ranges)
            for warning in (*part.pinned.warnings, *part.scan.warnings):
                out.warn(warning)


def _write_head(options: ReadOptions, parts: Sequence[_Part], out: FrameWriter) -> None:
    rows = sum(part.scan.limits.total_records for part in parts)
    out.write_json(
        "P",
        {
            "rows": rows,
            "exact_rows": rows == 0,
            "bytes": sum(part.scan.limits.total_bytes for part in parts),
            "tasks": None,
            "fail_on_data_loss": options.fail_on_data_loss,
            "verify_checksums": options.verify_checksums,
            "limit_taken": False,
            "aggregates_taken": False,
            "header_only": False,
        },
    )
