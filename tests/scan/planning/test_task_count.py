"""``min_partitions`` is a promise: so many tasks, as far as there are batches."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog import open_tier
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import ScanPlan, plan_scan, prepare_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.reading.tables import read_batches
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

ORDERS = TopicSelection.of_names(["orders"])
ASKED = (1, 2, 3, 7, 29, 30, 31, 100_000)


def offsets(tier: Tier, plan: ScanPlan) -> list[int]:
    found: list[int] = []
    for each in plan.ranges:
        for batch in read_scan_range(tier, each, columns=("offset",)):
            found += batch["offset"].to_pylist()
    return found


def bucket_of(root: pathlib.Path, segments: list[list[int]], **how: object) -> Bucket:
    """Segments of batches of these sizes, of two records each."""
    bucket = Bucket(root, **how)
    first = 0
    for number, sizes in enumerate(segments):
        batches = []
        for size in sizes:
            batches.append(Batch(first, (b"x" * size, b""), timestamp_ms=1000 * first))
            first += 2
        bucket.segment(f"u{number}", batches, lineage={0: 0})
    return bucket


@pytest.mark.parametrize("interval", [1, 4096, 1 << 20])
def test_as_many_as_there_are_batches(tmp_path: pathlib.Path, interval: int) -> None:
    """A cluster of a hundred cores would work with the few that the index's entries allow."""
    bucket = bucket_of(tmp_path, [[50] * 10] * 3, index_interval_bytes=interval)
    with open_tier(str(bucket.root)) as tier:
        for asked in ASKED:
            plan = plan_scan(tier, ScanRequest(ORDERS, min_partitions=asked))
            assert min(asked, 30) <= len(plan.tasks()) <= max(30, asked)
            assert offsets(tier, plan) == list(range(60))
            assert plan.warnings == ()
            scan = prepare_scan(tier, ScanRequest(ORDERS, min_partitions=asked))
            assert list(scan.iter_tasks()) == plan.tasks()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    segments=st.lists(st.lists(st.sampled_from([0, 10, 500, 30_000]), min_size=1, max_size=8), min_size=1, max_size=4),
    interval=st.sampled_from([1, 1000, 1 << 20]),
    asked=st.integers(1, 40),
    records=st.none() | st.integers(1, 10),
)
def test_sizes_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[int]], interval: int, asked: int, records: int | None
) -> None:
    """One batch of half the log, and the other tasks would be too few."""
    bucket = bucket_of(tmp_path_factory.mktemp("sizes"), segments, index_interval_bytes=interval)
    batches = sum(map(len, segments))
    with open_tier(str(bucket.root)) as tier:
        request = ScanRequest(ORDERS, min_partitions=asked, max_records_per_partition=records, max_partitions=1000)
        plan = plan_scan(tier, request)
        assert len(plan.tasks()) >= min(asked, batches)
        assert offsets(tier, plan) == list(range(2 * batches))
        assert [each for task in plan.tasks() for each in task] == list(plan.ranges)


def test_bounds_count_too(tmp_path: pathlib.Path) -> None:
    """The number is of what is read: a filter by time leaves little of what sizes were taken from."""
    bucket = bucket_of(tmp_path, [[50] * 100], index_interval_bytes=1 << 20)
    late = RecordFilter(first_timestamp_ms=180_000)
    with open_tier(str(bucket.root)) as tier:
        for request in (
            ScanRequest(ORDERS, min_partitions=10, record_filter=late),
            ScanRequest(ORDERS, min_partitions=10, starting_offsets={"orders": {0: 180}}),
        ):
            plan = plan_scan(tier, request)
            assert len(plan.tasks()) >= 10
            assert offsets(tier, plan) == list(range(180, 200))


@pytest.mark.parametrize("run", ["main-plain/fx-txn", "zstd-aes/fx-zstd-a-json"])
def test_what_brokers_and_the_plugin_wrote(data: pathlib.Path, run: str) -> None:
    """Compressed and encrypted chunks lie across the borders of batches."""
    folder, topic = run.split("/")
    with open_tier(str(data / folder / "objects"), config=config_of(data / folder)) as tier:
        request = ScanRequest(TopicSelection.of_names([topic]))
        whole = plan_scan(tier, request)
        batches = sum(part.num_rows for each in whole.ranges for part in read_batches(tier, each))
        plan = plan_scan(tier, ScanRequest(request.topics, min_partitions=100_000))
        assert len(plan.tasks()) == batches
        assert offsets(tier, plan) == offsets(tier, whole)
        rows = [part for each in plan.ranges for part in read_batches(tier, each)]
        wanted = [part for each in whole.ranges for part in read_batches(tier, each)]
        assert pa.Table.from_batches(rows).equals(pa.Table.from_batches(wanted))


def test_a_log_that_is_large_is_not_read_to_divide_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan would read what the tasks are there to read."""
    monkeypatch.setattr("tierlog.scan.planning.range_cutting.WALKED_BYTES_MAX", 1000)
    bucket = bucket_of(tmp_path, [[50] * 10] * 3, index_interval_bytes=1 << 20)
    with open_tier(str(bucket.root)) as tier:
        plan = plan_scan(tier, ScanRequest(ORDERS, min_partitions=30))
        assert 3 <= len(plan.tasks()) < 30
        (warning,) = plan.warnings
        assert warning.startswith(f"{len(plan.tasks())} tasks, not 30")


def test_damage_is_told_by_who_reads(tmp_path: pathlib.Path) -> None:
    """A plan that fails for a batch which failOnDataLoss=false leaves out would leave out everything."""
    bucket = bucket_of(tmp_path, [[50] * 10] * 3, index_interval_bytes=1 << 20)
    path = bucket.path("u1", "log")
    path.write_bytes(path.read_bytes()[:-100])
    with open_tier(str(bucket.root)) as tier:
        plan = plan_scan(tier, ScanRequest(ORDERS, min_partitions=1000, fail_on_data_loss=False))
        assert len(plan.tasks()) >= 21
        assert [n for n in offsets(tier, plan) if not 20 <= n < 40] == [*range(20), *range(40, 60)]
