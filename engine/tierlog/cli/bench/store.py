"""The part of ``tierlog bench`` that reads PATH: plain GETs of the stored bytes, and our scan of the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from tierlog.cli.bench.measuring import Measurement, Task, measure
from tierlog.errors import ConfigError
from tierlog.remote.tier.tier import LOCAL_WINDOW_BYTES, REMOTE_PREFETCH, REMOTE_WINDOW_BYTES, Tier
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.scheduling import Scheduler, run_all
from tierlog.runtime.stores.wrappers.counting_store import CountingStore
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.parallel_scan import ParallelScan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import ScanRequest, TopicSelection

#: Stored bytes that one round reads at most.
PATH_BYTES = 256 << 20
RANGE_BYTES = 16 << 20

Span = tuple[str, int, int]


def measure_path(
    clock: Clock, tier: Tier, store: CountingStore, topic: str | None, *, rounds: int, budget_seconds: float
) -> list[Measurement]:
    """The store's bandwidth by plain ranged GETs, and a scan of the same bytes; both count stored bytes.

    Args:
        clock: Source of monotonic time.
        tier: The tier at PATH.
        store: The store through which the tier reads.
        topic: None for all topics, in their order.
        rounds: As in ``measure``.
        budget_seconds: As in ``measure``.

    Raises:
        ConfigError: there is nothing to read. Also the errors of ``plan_scan`` and of the scan.
    """
    topics = TopicSelection.matching(".*") if topic is None else TopicSelection.of_names([topic])
    plan = plan_scan(tier, ScanRequest(topics, max_bytes_per_range=RANGE_BYTES))
    ranges = _first_ranges(plan.ranges)
    spans = [_stored_span(scan_range) for scan_range in ranges]
    size = sum(end - start for _, start, end in spans)
    if not size:
        raise ConfigError("there are no records to read")
    store.reset()
    records = _scan(tier, ranges)
    gets = store.reset().gets
    limit = Task("store GET", partial(_plain_gets, store, tier.machine.scheduler, spans), size)
    ours = Task("scan PATH", partial(_scan, tier, ranges), size, records)
    first, second = measure(clock, limit, [ours], rounds=rounds, budget_seconds=budget_seconds)
    log_bytes = sum(scan_range.size_bytes for scan_range in ranges)
    notes = {"getsPerGiB": round(gets * 2**30 / size, 1), "logBytesPerStoredByte": round(log_bytes / size, 3)}
    return [first, replace(second, notes=notes)]


def _first_ranges(ranges: Sequence[ScanRange]) -> list[ScanRange]:
    """The first ranges, as many as fit PATH_BYTES, at least one."""
    chosen: list[ScanRange] = []
    size = 0
    for scan_range in ranges:
        _, start, end = _stored_span(scan_range)
        size += end - start
        if chosen and size > PATH_BYTES:
            break
        chosen.append(scan_range)
    return chosen


def _stored_span(scan_range: ScanRange) -> Span:
    """(key, first byte, end exclusive) of the stored bytes that a range needs."""
    segment = scan_range.segment
    base, start, end = segment.log.position, scan_range.start_position, scan_range.end_position
    if segment.transformed and segment.chunk_index is not None and end > start:
        views = segment.chunk_index.views(start, end)
        start = int(views[0]["transformed_position"])
        end = int(views[-1]["transformed_position"]) + int(views[-1]["transformed_size"])
    return segment.log.key, base + start, base + end


def _plain_gets(store: CountingStore, scheduler: Scheduler, spans: Sequence[Span]) -> int:
    """Fetch the spans by GETs of the size and number that our scan uses; returns the bytes that came."""
    window = LOCAL_WINDOW_BYTES if store.is_local else REMOTE_WINDOW_BYTES
    under_way = scheduler.cores * (1 if store.is_local else REMOTE_PREFETCH + 1)

    def get(piece: Span) -> int:
        key, start, end = piece
        return memoryview(store.fetch_range(key, start_position=start, end_position_exclusive=end)).nbytes

    with scheduler.pool(under_way, name="tierlog-bench") as pool:
        return sum(run_all(pool, get, _pieces(spans, window)))


def _pieces(spans: Sequence[Span], window: int) -> Iterator[Span]:
    for key, start, end in spans:
        for at in range(start, end, window):
            yield key, at, min(at + window, end)


def _scan(tier: Tier, ranges: Sequence[ScanRange]) -> int:
    """Scan the ranges; returns the number of records."""
    return sum(batch.num_rows for batch in ParallelScan(ranges, partial(read_scan_range, tier), machine=tier.machine))
