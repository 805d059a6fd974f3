"""Limits, and our speed beside them: memory, checksum, codecs; plain GETs of a tier's bytes, a scan of the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from tierlog._native.checksums import crc32c
from tierlog._native.codecs import decompress_into
from tierlog._native.decoding import RecordDecoder
from tierlog.errors import ConfigError, TierlogError
from tierlog.measuring.made_log import MadeLog, can_make, make_log
from tierlog.measuring.measurement import Measurement, Task, measure
from tierlog.records.batch_table import CODEC_NAMES, scan
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.tier import LOCAL_WINDOW_BYTES, REMOTE_PREFETCH, REMOTE_WINDOW_BYTES, Tier
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.machine.scheduling import Scheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.parallel_scan import ParallelScan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import ScanRequest, TopicSelection

#: A group of measurements takes at most about this long; there are seven.
GROUP_SECONDS = 2.0
#: What Spark asks for; the decoder's record batches are as large as the pieces of the copy.
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
PIECE_BYTES = 2 << 20
#: Stored bytes that one round reads at most.
PATH_BYTES = 256 << 20
RANGE_BYTES = 16 << 20

Span = tuple[str, int, int]
COMPRESSED = ("lz4", "zstd", "snappy", "gzip")


class WrongAnswerError(TierlogError):
    """A benchmark's result is wrong, so that its times mean nothing."""


def measure_memory(
    clock: Clock, *, size_bytes: int, rounds: int, budget_seconds: float, skipped: list[str]
) -> Iterator[list[Measurement]]:
    """Measure groups of a limit and the calls compared with it.

    Args:
        clock: Source of monotonic time.
        size_bytes: Uncompressed size of each codec's log.
        rounds: As in ``measure``.
        budget_seconds: For each group.
        skipped: Gets a line for each codec that cannot be written here.
    """
    log = make_log("none", size_bytes=size_bytes)
    size = len(log.data)
    _check(log, int(scan(log.data).record_count.sum()), "scan")
    _check(log, decode(log.data), "decode")
    copy = Task("memcpy into Arrow's pool", lambda: copy_into_pool(log.data), size)
    ours = Task("decode, none", lambda: decode(log.data), size, log.records)
    yield measure(clock, copy, [ours], rounds=rounds, budget_seconds=budget_seconds)
    checksum = Task("CRC-32C", lambda: crc32c(log.data), size)
    ours = Task("scan", lambda: scan(log.data), size, log.records)
    yield measure(clock, checksum, [ours], rounds=rounds, budget_seconds=budget_seconds)
    for codec in COMPRESSED:
        if not can_make(codec):
            skipped.append(f"{codec}: this pyarrow cannot write data to read")
            continue
        log = make_log(codec, size_bytes=size_bytes)
        yield _measure_codec(clock, codec, log, rounds=rounds, budget_seconds=budget_seconds)


def _measure_codec(clock: Clock, codec: str, log: MadeLog, *, rounds: int, budget_seconds: float) -> list[Measurement]:
    payloads = log.payloads()
    number = CODEC_NAMES.index(codec)
    out = bytearray(log.largest_batch_bytes)

    def alone() -> int:
        return sum(decompress_into(payload, number, out) for payload in payloads)

    if alone() != log.record_bytes:
        raise WrongAnswerError(f"{codec}: the codec gives other bytes than were compressed")
    _check(log, decode(log.data), f"decode, {codec}")
    limit = Task(f"{codec} alone", alone, log.uncompressed_bytes)
    ours = Task(f"decode, {codec}", lambda: decode(log.data), log.uncompressed_bytes, log.records)
    return measure(clock, limit, [ours], rounds=rounds, budget_seconds=budget_seconds)


def decode(data: bytes) -> int:
    """Decode the log on one core into Arrow; returns the number of records. Each record batch is dropped before the
    next.
    """
    decoder = RecordDecoder(COLUMNS, timestamp_unit="us", target_bytes=PIECE_BYTES)
    records = 0
    for step in (decoder.feed(data), decoder.finish()):
        for batch in step:
            records += batch.num_rows
    return records


def copy_into_pool(data: bytes) -> None:
    """Copy the bytes piece by piece into new buffers of Arrow's pool: the least cost of decoding uncompressed data."""
    source = np.frombuffer(data, np.uint8)
    for at in range(0, len(source), PIECE_BYTES):
        piece = source[at : at + PIECE_BYTES]
        np.copyto(np.frombuffer(pa.allocate_buffer(len(piece)), np.uint8), piece)


def _check(log: MadeLog, records: int, what: str) -> None:
    if records != log.records:
        raise WrongAnswerError(f"{what}: {records} records of {log.records}")


def measure_path(
    clock: Clock, tier: Tier, store: CountingStore, topic: str | None, *, rounds: int, budget_seconds: float
) -> list[Measurement]:
    """Measure the store's bandwidth by plain ranged GETs, and a scan of the same bytes; both count stored bytes.

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
    """Return the first ranges, as many as fit PATH_BYTES, at least one."""
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


def measure_all(
    clock: Clock,
    path: str | None,
    topic: str | None,
    *,
    config: Mapping[str, str] | None,
    layout: str,
    size_bytes: int,
    rounds: int,
    skipped: list[str],
) -> Iterator[list[Measurement]]:
    """Measure a limit and our calls, group by group; PATH first, so that a wrong PATH fails soon.

    Args:
        clock: Source of monotonic time.
        path: A tier to measure too, as for ``tierlog.open_tier``; None for memory alone.
        topic: As for ``measure_path``.
        config: Of the tier.
        layout: Of the tier.
        size_bytes: As for ``measure_memory``.
        rounds: As for ``measure``.
        skipped: As for ``measure_memory``.
    """
    if path is not None:
        counting: list[CountingStore] = []

        def counted(store: ObjectStore) -> CountingStore:
            counting.append(CountingStore(store))
            return counting[-1]

        with open_tier(path, layout=layout, config=config, wrap_store=counted) as tier:
            yield measure_path(clock, tier, counting[-1], topic, rounds=rounds, budget_seconds=3 * GROUP_SECONDS)
    yield from measure_memory(
        clock, size_bytes=size_bytes, rounds=rounds, budget_seconds=GROUP_SECONDS, skipped=skipped
    )
