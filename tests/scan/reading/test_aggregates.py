"""Counts and extremes from headers are those of the records, whatever the log holds."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog import open_tier
from tierlog._native.decoding import RecordDecoder
from tierlog.errors import ConfigError, CorruptRecordError
from tierlog.records.builder import encode_batch, encode_record
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading import read as range_reading
from tierlog.scan.reading.read import ScanCounters, range_decoder, read_scan_range, summarise_range
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import ScanRequest, TopicSelection

FIELDS: tuple[SummaryField, ...] = ("count", "min_offset", "max_offset", "min_timestamp", "max_timestamp")
EVERYTHING = TopicSelection.matching(".*")


def of_records(tier: Tier, scan_range: ScanRange) -> RecordSummary:
    """The slow way: every record."""
    found = RecordSummary()
    for batch in read_scan_range(tier, scan_range, columns=("offset", "timestamp")):
        offsets, stamps = (np.asarray(batch[name].cast("int64")) for name in ("offset", "timestamp"))
        parts = (int(offsets.min()), int(offsets.max()), int(stamps.min()), int(stamps.max()))
        found.add(RecordSummary(batch.num_rows, *parts))
    return found


def check(tier: Tier, scan_range: ScanRange) -> None:
    wanted = of_records(tier, scan_range)
    for name in FIELDS:
        found = summarise_range(tier, scan_range, frozenset({name}))
        if name == "count" or wanted.count:
            assert getattr(found, name) == getattr(wanted, name), (name, scan_range)
        else:
            assert found.count == 0, "nothing counts, so there is no extreme"


def narrowed(chance: random.Random, scan_range: ScanRange, summary: RecordSummary) -> Iterator[ScanRange]:
    """Cuts through batches: by offset, by time, by both."""
    if not summary.count:
        return
    offsets, stamps = (summary.min_offset, summary.max_offset), (summary.min_timestamp, summary.max_timestamp)
    for _ in range(1):
        first, last = sorted(chance.randint(int(offsets[0] or 0), int(offsets[1] or 0)) for _ in range(2))
        early, late = sorted(chance.randint(int(stamps[0] or 0), int(stamps[1] or 0)) for _ in range(2))
        by_offset = replace(scan_range, from_offset=first, to_offset_exclusive=last + 1)
        yield by_offset
        yield replace(scan_range, from_timestamp_ms=early, to_timestamp_exclusive_ms=late)
        yield replace(by_offset, from_timestamp_ms=early)
        yield replace(by_offset, to_timestamp_exclusive_ms=late)


def tiers_of(data: pathlib.Path) -> Iterator[Tier]:
    for run in ("main-plain", "zstd-aes", "custom-meta", "local-tiered"):
        with open_tier(str(data / run / "objects"), config=config_of(data / run)) as tier:
            yield tier
    for log in sorted((data / "record-v0-v1").glob("*.log")):
        with open_tier(str(log)) as tier:
            yield tier


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_log_of_the_golden_data(data: pathlib.Path, isolation: str) -> None:
    """Control records, aborted transactions, compacted and old formats: count(*) must not see a record more or less."""
    chance = random.Random(5)
    for tier in tiers_of(data):
        request = ScanRequest(EVERYTHING, isolation_level=isolation, max_bytes_per_range=100_000)  # type: ignore[arg-type]
        for scan_range in plan_scan(tier, request).ranges:
            check(tier, scan_range)
            for cut in narrowed(chance, scan_range, of_records(tier, scan_range)):
                check(tier, cut)


def test_offsets_that_compaction_left_out(tmp_path: pathlib.Path) -> None:
    """The log cleaner keeps a batch's offsets and takes records away: its span is no count."""
    log = tmp_path / "00000000000000000100.log"
    log.write_bytes(
        sparse_batch(100, [0, 1, 2], 3)  # whole
        + sparse_batch(103, [2, 5], 9)  # first and last record gone
        + sparse_batch(112, [], 4)  # all gone: the header stays, for the producer's sequence
        + sparse_batch(116, [0, 3], 4, append_time=True)
    )
    with open_tier(str(log)) as tier:
        (whole,) = plan_scan(tier, ScanRequest(EVERYTHING)).ranges
        found = summarise_range(tier, whole, frozenset(FIELDS))
        assert (found.count, found.min_offset, found.max_offset) == (7, 100, 119)
        for first in range(99, 121):
            for end in range(first + 1, 122):
                check(tier, replace(whole, from_offset=first, to_offset_exclusive=end))


def sparse_batch(base_offset: int, deltas: list[int], span: int, *, append_time: bool = False) -> bytes:
    """A batch of these offset deltas, whose header still says ``span`` offsets."""
    records = b"".join(
        encode_record(offset_delta=delta, timestamp_delta=1000 - 10 * delta, key=None, value=b"v") for delta in deltas
    )
    return encode_batch(
        base_offset=base_offset,
        records=records,
        record_count=len(deltas),
        last_offset_delta=span - 1,
        base_timestamp=5_000,
        max_timestamp=max((6_000 - 10 * delta for delta in deltas), default=-1),
        attributes=8 if append_time else 0,
    )


def test_a_damaged_batch_is_told_as_the_records_tell_it(tmp_path: pathlib.Path) -> None:
    """A count over bytes that are known to be wrong is a wrong number without a word."""
    bucket = Bucket(tmp_path)
    bucket.segment("u0", [Batch(10 * n, (b"x" * 20,) * 10) for n in range(5)], lineage={0: 0})
    log = bucket.path("u0", "log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(bytes(data))
    with open_tier(str(tmp_path)) as tier:
        (only,) = plan_scan(tier, ScanRequest(EVERYTHING)).ranges
        with pytest.raises(CorruptRecordError) as by_records:
            list(read_scan_range(tier, only))
        with pytest.raises(CorruptRecordError) as by_headers:
            summarise_range(tier, only, frozenset({"count"}))
        assert str(by_headers.value) == str(by_records.value)
        unchecked = summarise_range(tier, only, frozenset({"count"}), verify_checksums=False)
        assert unchecked.count == 50


def test_what_headers_say_needs_no_decompression(data: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise count(*) over a compressed topic costs what reading it costs."""
    decoders: list[RecordDecoder] = []

    def watched(*arguments: Any, **options: Any) -> RecordDecoder:
        decoders.append(range_decoder(*arguments, **options))
        return decoders[-1]

    monkeypatch.setattr(range_reading, "range_decoder", watched)
    with open_tier(str(data / "main-plain" / "objects")) as tier:
        compressed = 0
        for scan_range in plan_scan(tier, ScanRequest(EVERYTHING)).ranges:
            counters = ScanCounters()
            list(read_scan_range(tier, scan_range, columns=("offset",), counters=counters))
            compressed += counters.decompressed_bytes
            found = summarise_range(tier, scan_range, frozenset({"count", "max_timestamp"}))
            assert found.count == counters.records
            assert found.min_offset is None, "not asked for"
            assert decoders.pop().counters["decompressed_bytes"] == 0
    assert compressed


def test_a_summary_is_asked_for_in_known_words() -> None:
    with pytest.raises(ConfigError, match="unknown summaries \\['sum'\\]; known are"):
        RecordDecoder((), summary=("sum",))
    with pytest.raises(ConfigError, match="a summary has no columns"):
        RecordDecoder(("offset",), summary=("count",))
    with pytest.raises(ValueError, match="gives rows"):
        _ = RecordDecoder(("offset",)).summary
    assert RecordDecoder((), summary=("count", "max_offset")).summary == {"count": 0, "max_offset": None}


def test_a_log_that_ends_within_a_batch_has_no_summary(tmp_path: pathlib.Path) -> None:
    """If this fails, a count leaves out the last batch of a segment that was cut, without an error."""
    bucket = Bucket(tmp_path)
    bucket.segment("u", [Batch(0, (b"a", b"b")), Batch(2, (b"c", b"d"))], lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        (whole,) = plan_scan(tier, ScanRequest(EVERYTHING)).ranges
        end = whole.end_position - 10
        cut = replace(whole, end_position=end, segment=whole.segment.narrowed(0, end))
        assert summarise_range(tier, whole, frozenset({"count"})).count == 4
        with pytest.raises(CorruptRecordError):
            summarise_range(tier, cut, frozenset({"count"}))
