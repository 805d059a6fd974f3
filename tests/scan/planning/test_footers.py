"""A bucket with footers gives the answers of one without, whatever state they are in, and is asked for less."""

from __future__ import annotations

import contextlib
import pathlib
import random
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest

from tests.support.batches import Batch
from tests.support.footers import (
    DAMAGE,
    DAY_KEYS,
    HOUR_MS,
    RangesStore,
    fill,
    fill_day,
    footers_in,
    indexed_copy,
    stored_between,
)
from tests.support.golden import config_of
from tests.support.segments import make_segment
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.tier import Tier, open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.scan.history import TierHistory
from tierlog.scan.planning.offset_lookup import find_max_timestamp, find_offset_by_timestamp
from tierlog.scan.planning.plan import ScanPlan, plan_scan, prepare_scan
from tierlog.scan.reading.read import read_scan_range, records_schema, summarise_range
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

FIELDS: tuple[SummaryField, ...] = ("count", "min_offset", "max_offset", "min_timestamp", "max_timestamp")
EVERYTHING = TopicSelection.matching(".*")
COLUMNS = ("topic", "partition", "offset", "timestamp", "value")
RUNS = ("main-plain", "zstd-aes", "custom-meta")
Isolation = Literal["read_uncommitted", "read_committed"]


def rows_of(tier: Tier, plan: ScanPlan) -> pa.Table:
    batches = [batch for each in plan.ranges for batch in read_scan_range(tier, each, columns=COLUMNS)]
    return pa.Table.from_batches(batches, schema=records_schema(COLUMNS))


def summaries_of(rows: pa.Table) -> dict[tuple[str, int], RecordSummary]:
    """The slow way: every record."""
    found: dict[tuple[str, int], RecordSummary] = {}
    times = rows["timestamp"].cast("int64").to_pylist()
    places = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    for place, offset, time in zip(places, rows["offset"].to_pylist(), times, strict=True):
        found.setdefault(place, RecordSummary()).add(RecordSummary(1, offset, offset, time, time))
    return found


def answered(tier: Tier, request: ScanRequest, field: SummaryField) -> tuple[dict[tuple[str, int], RecordSummary], int]:
    """What footers say and the rest read, and the bytes that were left to read."""
    found, rest = prepare_scan(tier, request).answered_by_footers({field})
    ranges = list(rest.iter_ranges())
    for each in ranges:
        summary = summarise_range(tier, each, frozenset({field}))
        found.setdefault((each.topic, each.partition), RecordSummary()).add(summary)
    return {place: summary for place, summary in found.items() if summary.count}, sum(e.size_bytes for e in ranges)


def requests_of(rows: pa.Table, chance: random.Random, isolation: Isolation) -> Iterator[ScanRequest]:
    """Cuts by offset and by time through the records of a bucket."""
    offsets, times = rows["offset"].to_pylist(), rows["timestamp"].cast("int64").to_pylist()
    sizes: dict[str, Any] = {"isolation_level": isolation, "max_bytes_per_range": 30_000}
    yield ScanRequest(EVERYTHING, **sizes)
    yield ScanRequest(EVERYTHING, isolation_level=isolation, min_partitions=200)
    for _ in range(2):
        first, last = sorted(chance.choices(offsets, k=2))
        early, late = sorted(chance.choices(times, k=2))
        yield ScanRequest(EVERYTHING, **sizes, record_filter=RecordFilter(None, first, last + 1))
        yield ScanRequest(EVERYTHING, **sizes, record_filter=RecordFilter(None, 0, 2**63 - 1, early, late))
        yield ScanRequest(EVERYTHING, **sizes, record_filter=RecordFilter(None, first, last + 1, early, 2**63 - 1))
        yield ScanRequest(EVERYTHING, **sizes, record_filter=RecordFilter(None, 0, 2**63 - 1, -(2**63), late))
        yield ScanRequest(
            EVERYTHING,
            **sizes,
            starting_timestamps=early,
            ending_timestamps=late,
            no_match="latest",
            clamp_offsets=True,
        )


@contextlib.contextmanager
def both(data: pathlib.Path, run: str, folder: pathlib.Path) -> Iterator[tuple[Tier, Tier]]:
    """The bucket as the plugin wrote it, and the same with footers."""
    config = config_of(data / run)
    with open_tier(str(data / run / "objects"), config=config) as plain, open_tier(str(folder), config=config) as other:
        yield plain, other


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.few(5)
def test_the_same_answers(data: pathlib.Path, tmp_path: pathlib.Path, run: str, damage: str) -> None:
    """If this fails, a count, a row or a time depends on whether somebody wrote footers, or on what became of them."""
    folder = indexed_copy(data / run, tmp_path / "bucket")
    DAMAGE[damage](footers_in(folder))
    chance = random.Random(run + damage)
    with both(data, run, folder) as (plain, indexed):
        isolations: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
        for isolation in isolations:
            everything = rows_of(plain, plan_scan(plain, ScanRequest(EVERYTHING, isolation_level=isolation)))
            for number, request in enumerate(requests_of(everything, chance, isolation)):
                wanted = rows_of(plain, plan_scan(plain, request))
                assert rows_of(indexed, plan_scan(indexed, request)).equals(wanted), request
                summaries = summaries_of(wanted)
                for field in FIELDS if number == 0 else chance.sample(FIELDS, 2):
                    found, left_bytes = answered(indexed, request, field)
                    assert found.keys() == summaries.keys(), (request, field)
                    for place, summary in found.items():
                        assert getattr(summary, field) == getattr(summaries[place], field), (request, field)
                    if damage == "none" and number == 0 and isolation == "read_uncommitted":
                        assert left_bytes == 0, field
        assert (indexed.footers.passed_over > 0) == (damage not in ("none", "absent in half"))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.few(3)
def test_the_same_offsets_of_times(data: pathlib.Path, tmp_path: pathlib.Path, damage: str) -> None:
    """If this fails, ListOffsets and starting timestamps answer otherwise where somebody wrote footers."""
    folder = indexed_copy(data / "main-plain", tmp_path / "bucket")
    DAMAGE[damage](footers_in(folder))
    with both(data, "main-plain", folder) as (plain, indexed):
        for one, other in zip(TierHistory(plain).partitions(), TierHistory(indexed).partitions(), strict=True):
            rows = rows_of(plain, plan_scan(plain, ScanRequest(EVERYTHING), histories=[one]))
            times = sorted({*rows["timestamp"].cast("int64").to_pylist()})
            for time in [0, *times[:: max(1, len(times) // 40)], times[-1] + 1]:
                for each in (time - 1, time):
                    found = find_offset_by_timestamp(indexed, other, each)
                    assert found == find_offset_by_timestamp(plain, one, each)
            assert find_max_timestamp(indexed, other) == find_max_timestamp(plain, one)


def asked(folder: pathlib.Path, config: dict[str, str]) -> tuple[Tier, list[RangesStore]]:
    stores: list[RangesStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(RangesStore(store))
        return stores[-1]

    return open_tier(str(folder), config=config, wrap_store=wrap), stores


def test_an_hour_of_a_day(tmp_path: pathlib.Path) -> None:
    """If this fails, an hour of a day costs indexes, or the bytes of more than the hour."""
    fill_day(tmp_path)
    first, end = 9 * HOUR_MS, 10 * HOUR_MS
    request = ScanRequest(
        TopicSelection.of_names(["orders"]), record_filter=RecordFilter(None, 0, 2**63 - 1, first, end)
    )
    tier, stores = asked(tmp_path / "bucket", {"key.prefix": "", **DAY_KEYS})
    with tier:
        histories = TierHistory(tier).partitions(["orders"])
        stores[-1].ranges.clear()
        plan = plan_scan(tier, request, histories=histories)
        rows = rows_of(tier, plan)
        assert rows.num_rows > 2 * 200
        times = rows["timestamp"].cast("int64").to_numpy()
        assert (times.min() >= first, times.max() < end) == (True, True)
        assert stores[-1].of("indexes") == []
        fetched = sum(size for _, _, size in stores[-1].ranges)
        assert fetched <= 1.1 * stored_between(tier, histories, first, end)
    for path in footers_in(tmp_path / "bucket"):
        path.unlink()
    tier, stores = asked(tmp_path / "bucket", {"key.prefix": "", **DAY_KEYS})
    with tier:
        assert rows_of(tier, plan_scan(tier, request)).equals(rows)
        assert sum(size for _, _, size in stores[-1].ranges) > 2 * fetched  # no index has an upper bound of time


def test_a_count_reads_no_log(tmp_path: pathlib.Path) -> None:
    """If this fails, count(*) of a day costs the day."""
    fill_day(tmp_path)
    tier, stores = asked(tmp_path / "bucket", {"key.prefix": "", **DAY_KEYS})
    with tier:
        scan = prepare_scan(tier, ScanRequest(TopicSelection.of_names(["orders"])))
        stores[-1].ranges.clear()
        for field in FIELDS:
            found, rest = scan.answered_by_footers({field})
            assert list(rest.iter_ranges()) == []
            assert {place: summary.count for place, summary in found.items()} == {
                ("orders", 0): 6000,
                ("orders", 1): 6000,
            }
        assert len(stores[-1].ranges) == 4
        assert all(kind == "footer" and size <= 4096 for kind, _, size in stores[-1].ranges)


def test_compacted_batches_are_counted_and_not_cut(tmp_path: pathlib.Path) -> None:
    """If this fails, the offsets of a compacted batch are taken for its records."""
    log = bytearray()
    for base, deltas, span in ((0, (0, 1, 2), 3), (3, (2, 5), 9), (12, (), 4), (16, (0, 3), 4), (20, (0,), 1)):
        builder = RecordBatchBuilder(base, leader_epoch=0)
        for delta in deltas:
            builder.append(None, b"v", timestamp_ms=1000 - 10 * delta, offset=base + delta)
        log += builder.build(last_offset=base + span - 1)
    segment = make_segment(bytes(log), lineage={0: 0})
    fill(tmp_path / "bucket", [segment.closed_in(tmp_path / "log")], {})
    with open_tier(str(tmp_path / "bucket"), config={"key.prefix": ""}) as tier:
        for first in range(22):
            for end in range(first + 1, 23, 3):
                request = ScanRequest(
                    EVERYTHING, starting_offsets=first, ending_offsets=end, clamp_offsets=True, fail_on_data_loss=False
                )
                wanted = summaries_of(rows_of(tier, plan_scan(tier, request)))
                for field in FIELDS:
                    found, _ = answered(tier, request, field)
                    assert found.keys() == wanted.keys()
                    for place, summary in found.items():
                        assert getattr(summary, field) == getattr(wanted[place], field), (first, end, field)


def test_a_marker_is_no_record(tmp_path: pathlib.Path) -> None:
    """If this fails, count(*) counts transaction markers, or records that were aborted."""
    batches = []
    for number in range(0, 60, 3):
        producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        batches.append(Batch(number, (b"a", b"b"), timestamp_ms=1000 + number, **producer))
        batches.append(Batch(number + 2, timestamp_ms=90_000, marker="abort" if number % 2 else "commit", **producer))
    from tests.support.segments import Aborted

    aborted = [Aborted(7, number, number + 2, number + 3) for number in range(3, 60, 6)]
    segment = make_segment(batches, aborted=aborted)
    fill(tmp_path / "bucket", [segment.closed_in(tmp_path / "log")], {})
    with open_tier(str(tmp_path / "bucket"), config={"key.prefix": ""}) as tier:
        for isolation, count in (("read_uncommitted", 40), ("read_committed", 20)):
            request = ScanRequest(EVERYTHING, isolation_level=isolation)  # type: ignore[arg-type]
            (found,) = answered(tier, request, "count")[0].values()
            assert found.count == count
            (found,) = answered(tier, request, "max_timestamp")[0].values()
            assert found.max_timestamp is not None
            assert found.max_timestamp < 90_000
