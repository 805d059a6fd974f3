"""The frames that answer a request of the jar, by the same calls as the Python path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from pyspark_tierlog.listing import Listing, list_tiers
from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.plan.frames import FrameWriter, PlanProtocolError
from pyspark_tierlog.plan.listing_frames import read_listing, write_listing
from pyspark_tierlog.plan.plan_answer import PlanAnswer, PlannedTier
from pyspark_tierlog.plan.requests import ListRequest, PlanRequest, Request, StreamRequest
from pyspark_tierlog.plan.streams import answer_stream
from pyspark_tierlog.request import scan_requests, tier_config
from pyspark_tierlog.table_columns import chosen_schema, picked_schema
from tierlog.errors import ConfigError
from tierlog.remote.tier import open_tier
from tierlog.scan.planning.plan import prepare_scan


def answer(request: Request, blobs: Sequence[bytes], out: FrameWriter) -> None:
    """Write all frames of an answer but its last one.

    Raises:
        TierlogError: the same errors as on the Python path.
        PlanProtocolError: the request makes no sense.
    """
    if isinstance(request, ListRequest):
        _list(request, read_listing(blobs) if blobs else None, out)
    elif isinstance(request, StreamRequest):
        answer_stream(request, out)
    else:
        _plan(request, read_listing(blobs), out)


def _list(request: ListRequest, previous: Listing | None, out: FrameWriter) -> None:
    options, warning = parse_options(request.options)
    chosen_schema(options)  # a missing column is an error at load()
    for text in filter(None, (warning, options.ineffective(keeps_listings=True))):
        out.warn(text)
    listing = list_tiers(options, previous)
    listing.checked()
    write_listing(out, listing)


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
            parts.append(PlannedTier(tier, prepare_scan(tier, wanted, histories=pinned.histories)))
        answer = PlanAnswer(options, parts, out)
        if request.aggregates is not None and exact:
            answer.write_aggregates(request.aggregates)
        elif request.aggregates is not None:
            answer.write_head()
        else:
            limit = request.limit if exact and options.fail_on_data_loss else None
            answer.write_records(limit)
        for pinned, part in zip(tiers, parts, strict=True):
            for warning in dict.fromkeys((*pinned.warnings, *part.scan.warnings)):  # ranges may be cut twice
                out.warn(warning)
