"""What a plan reads: enough, no more, in pieces of even size; and what it says when something is missing."""

from __future__ import annotations

import pathlib
import pickle
import shutil
from collections.abc import Iterable
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import ROW_COLUMNS, config_of
from tests.support.segments import Aborted, topic_uuid
from tierlog import open_tier
from tierlog.errors import ConfigError, DataLossError, UnknownTopicError
from tierlog.remote.tier import Tier
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.scan.planning.plan import ScanPlan, plan_scan
from tierlog.scan.reading.read import read_scan_range, records_schema
from tierlog.scan.scan_range import ScanRange, TaskLimits, group_ranges
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

ORDERS = TopicSelection.of_names(["orders"])
EPOCHS = TopicSelection.of_names(["fx-epochs"])


def read_ranges(tier: Tier, ranges: Iterable[ScanRange], columns: tuple[str, ...] = ROW_COLUMNS) -> pa.Table:
    batches = [batch for each in ranges for batch in read_scan_range(tier, each, columns=columns)]
    return pa.Table.from_batches(batches, schema=records_schema(columns))


def offsets(tier: Tier, plan: ScanPlan) -> list[int]:
    column: list[int] = read_ranges(tier, plan.ranges, ("offset",))["offset"].to_pylist()
    return column


@pytest.fixture
def thirty(tmp_path: pathlib.Path) -> Bucket:
    """Three segments of ten batches of ten records: offsets 0 to 299, record n at n seconds."""
    bucket = Bucket(tmp_path)
    for number in range(3):
        first = 100 * number
        batches = [Batch(first + 10 * n, (b"x" * 50,) * 10, timestamp_ms=1000 * (first + 10 * n)) for n in range(10)]
        bucket.segment(f"u{number}", batches, lineage={0: 0})
    return bucket


class TestPruning:
    """Objects that hold nothing of the answer are not even there in these tests: fetching one would fail."""

    @pytest.mark.parametrize(
        "request_",
        [
            ScanRequest(ORDERS, starting_offsets={"orders": {0: 100}}, ending_offsets={"orders": {0: 200}}),
            ScanRequest(ORDERS, starting_offsets=100, ending_offsets=200, clamp_offsets=True),
            ScanRequest(ORDERS, record_filter=RecordFilter(first_offset=100, end_offset_exclusive=200)),
        ],
        ids=["by partition", "for all", "pushed down"],
    )
    def test_segments_outside_of_the_offsets(self, thirty: Bucket, request_: ScanRequest) -> None:
        """A read of an hour would fetch a year."""
        for name in ("u0", "u2"):
            thirty.path(name, "log").unlink()
        thirty.path("u0", "indexes").unlink()
        with open_tier(str(thirty.root)) as tier:
            plan = plan_scan(tier, request_)
            assert offsets(tier, plan) == list(range(100, 200))

    def test_segments_before_a_time(self, thirty: Bucket) -> None:
        """A filter on recent timestamps would fetch the whole topic."""
        for name in ("u0", "u1"):
            thirty.path(name, "log").unlink()
        thirty.path("u0", "indexes").unlink()
        chosen = RecordFilter(first_timestamp_ms=250_000, end_timestamp_exclusive_ms=260_000)
        with open_tier(str(thirty.root)) as tier:
            plan = plan_scan(tier, ScanRequest(ORDERS, record_filter=chosen))
            (only,) = plan.ranges
            assert only.start_position > 0, "the time index cuts inside of the first segment"
            assert offsets(tier, plan) == list(range(250, 260))

    def test_whole_segments_need_no_index(self, thirty: Bucket) -> None:
        """Planning a large topic would cost a request for each segment."""
        for name in ("u0", "u1"):
            thirty.path(name, "indexes").unlink()
        with open_tier(str(thirty.root)) as tier:
            assert offsets(tier, plan_scan(tier, ScanRequest(ORDERS))) == list(range(300))

    def test_other_topics_and_partitions(self, thirty: Bucket) -> None:
        """One damaged topic would make every other one unreadable."""
        other = Bucket(thirty.root, topic="payments")
        other.segment("u1", [Batch(0)], lineage={0: 0})
        other.path("u1", "rsm-manifest").write_bytes(b"not a manifest")
        second = Bucket(thirty.root, partition=1)
        second.segment("u1", [Batch(0)], lineage={0: 0})
        second.path("u1", "log").unlink()
        chosen = RecordFilter(partitions=frozenset([0]))
        with open_tier(str(thirty.root)) as tier:
            for request in (
                ScanRequest(TopicSelection.assign({"orders": [0]})),
                ScanRequest(ORDERS, record_filter=chosen),
            ):
                assert offsets(tier, plan_scan(tier, request)) == list(range(300))

    def test_an_upload_without_a_manifest_is_no_segment(self, thirty: Bucket) -> None:
        """Half of an upload would be read, or make the topic unreadable."""
        thirty.path("u2", "rsm-manifest").unlink()
        with open_tier(str(thirty.root)) as tier:
            assert offsets(tier, plan_scan(tier, ScanRequest(ORDERS))) == list(range(200))


class TestCutting:
    """Ranges of even size at batch borders."""

    @pytest.mark.parametrize("run", ["main-plain/fx-txn", "zstd-aes/fx-zstd-a-json", "main-plain/fx-epochs"])
    def test_any_size_gives_the_same_rows(self, data: pathlib.Path, run: str) -> None:
        """Whether a record comes, comes twice or not at all would depend on an option for speed."""
        folder, topic = run.split("/")
        topics = TopicSelection.of_names([topic])
        with open_tier(str(data / folder / "objects"), config=config_of(data / folder)) as tier:
            for isolation in ("read_uncommitted", "read_committed"):
                whole = plan_scan(tier, ScanRequest(topics, isolation_level=isolation))
                wanted = read_ranges(tier, whole.ranges)
                for size in (1, 4096, 20_000, 65_536):
                    plan = plan_scan(tier, ScanRequest(topics, isolation_level=isolation, max_bytes_per_range=size))
                    assert len(plan.ranges) > len(whole.ranges) or size == 65_536
                    assert read_ranges(tier, plan.ranges).equals(wanted)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
    @given(
        size=st.integers(1, 20_000),
        records=st.none() | st.integers(1, 400),
        tasks=st.none() | st.integers(1, 50),
        first=st.integers(0, 300),
        end=st.integers(0, 300),
    )
    def test_any_cut_of_any_window_gives_its_records_once(
        self, thirty: Bucket, size: int, records: int | None, tasks: int | None, first: int, end: int
    ) -> None:
        """Some combination of options would lose or repeat records at a border."""
        request = ScanRequest(
            ORDERS,
            starting_offsets={"orders": {0: first}},
            ending_offsets={"orders": {0: end}},
            max_bytes_per_range=size,
            max_records_per_partition=records,
            min_partitions=tasks,
        )
        with open_tier(str(thirty.root)) as tier:
            plan = plan_scan(tier, request)
            assert offsets(tier, plan) == list(range(first, end))
            assert [r for task in plan.tasks() for r in task] == list(plan.ranges)
            if records is not None:
                assert all(len(offsets_of_task) <= records for offsets_of_task in task_offsets(tier, plan))

    def test_sizes_are_even_and_small_segments_share_a_task(self, data: pathlib.Path) -> None:
        """One task would read nearly everything while the others wait; or a thousand tasks would read a KiB each."""
        with open_tier(str(data / "main-plain" / "objects")) as tier:
            plan = plan_scan(tier, ScanRequest(EPOCHS, max_bytes_per_range=16_384))
            sizes = [r.size_bytes for r in plan.ranges]
            assert max(sizes) < 2 * 16_384
            assert min(sizes) > 4096
            whole = plan_scan(tier, ScanRequest(EPOCHS, max_bytes_per_range=1 << 27))
            assert len(whole.ranges) == 10
            assert len(whole.tasks()) == 1
            divided = plan_scan(tier, ScanRequest(EPOCHS, min_partitions=20))
            assert 20 <= len(divided.tasks()) <= 40
            assert divided.size_bytes == whole.size_bytes

    def test_one_large_batch_is_one_range(self, tmp_path: pathlib.Path) -> None:
        """A batch larger than the target size would be cut in two, or planned for ever."""
        Bucket(tmp_path).segment("u1", [Batch(0), Batch(1, (b"x" * 100_000,)), Batch(2)], lineage={0: 0})
        with open_tier(str(tmp_path)) as tier:
            plan = plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=1000))
            assert offsets(tier, plan) == [0, 1, 2]
            assert len(plan.ranges) <= 3

    @pytest.mark.parametrize("damage", ["missing", "other bytes"])
    def test_a_damaged_offset_index_costs_speed_alone(self, thirty: Bucket, damage: str) -> None:
        """Records that are there would not be readable for want of an index."""
        path = thirty.path("u1", "indexes")
        content = b"\x7f" * path.stat().st_size
        path.unlink() if damage == "missing" else path.write_bytes(content)
        with open_tier(str(thirty.root)) as tier:
            plan = plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=500))
            assert offsets(tier, plan) == list(range(300))
        (warning,) = plan.warnings
        assert "read whole" in warning
        assert str(thirty.keys["u1"]) in warning


def lies(sizes: list[int]) -> list[ScanRange]:
    """Ranges of these sizes, of no log."""
    segment = cast("StoredSegment", None)
    return [ScanRange(segment, 0, size, 0, size) for size in sizes]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 30))
def test_no_more_tasks_than_allowed(sizes: list[int], most: int, max_bytes: int) -> None:
    """A million tasks are a driver out of memory; a last task of everything is a job that never ends."""
    limits = TaskLimits(max_bytes, max_bytes, most, total_bytes=sum(sizes), total_records=sum(sizes))
    tasks = list(group_ranges(lies(sizes), limits))
    assert [each.size_bytes for task in tasks for each in task] == sizes
    assert 1 <= len(tasks) <= most
    fair = max(max_bytes, -(-sum(sizes) // most))
    assert max(sum(each.size_bytes for each in task) for task in tasks) <= 2 * fair + 2 * max(sizes)


def test_max_partitions_makes_ranges_larger(thirty: Bucket) -> None:
    """Tiny tasks are the user's wish up to where the driver cannot hold them."""
    with open_tier(str(thirty.root)) as tier:
        free = plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=500))
        bound = plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=500, max_partitions=4))
        assert len(bound.tasks()) <= 4 < len(free.tasks())
        assert offsets(tier, bound) == list(range(300))
        few = ScanRequest(ORDERS, max_records_per_partition=1, max_partitions=10)
        plan = plan_scan(tier, few)
        assert len(plan.tasks()) <= 10
        assert offsets(tier, plan) == list(range(300))
        assert plan.warnings == ("tasks are of up to 30 offsets, not 1: at most 10 tasks are allowed",)
        with pytest.raises(ConfigError, match="min_partitions 5 is above max_partitions 4"):
            ScanRequest(ORDERS, min_partitions=5, max_partitions=4)


def task_offsets(tier: Tier, plan: ScanPlan) -> list[list[int]]:
    return [read_ranges(tier, task, ("offset",))["offset"].to_pylist() for task in plan.tasks()]


class TestTransactions:
    """Aborted transactions in ranges."""

    def test_a_range_carries_only_what_touches_it(self, tmp_path: pathlib.Path) -> None:
        """Plans of a topic with many aborts would grow by all of them for each range."""
        bucket = Bucket(tmp_path)
        batches, entries = [], []
        for n in range(20):
            batches.append(Batch(2 * n, producer_id=n, producer_epoch=0, transactional=True))
            batches.append(Batch(2 * n + 1, producer_id=n, producer_epoch=0, marker="abort"))
            entries.append(Aborted(n, 2 * n, 2 * n + 1, 2 * n + 2))
        bucket.segment("u1", batches, lineage={0: 0}, aborted=entries)
        request = ScanRequest(ORDERS, isolation_level="read_committed", max_bytes_per_range=400)
        with open_tier(str(tmp_path)) as tier:
            plan = plan_scan(tier, request)
            assert len(plan.ranges) > 5
            assert all(len(r.aborted or b"") <= 24 * 6 for r in plan.ranges)
            assert offsets(tier, plan) == []

    def test_an_abort_in_a_later_segment_counts_in_an_earlier_one(self, tmp_path: pathlib.Path) -> None:
        """Aborted records would be given as committed when the marker is in another segment."""
        bucket = Bucket(tmp_path)
        data = {"producer_id": 7, "producer_epoch": 0}
        bucket.segment("u1", [Batch(0, transactional=True, **data), Batch(1)], lineage={0: 0}, open_transactions={7: 0})
        bucket.segment("u2", [Batch(2)], lineage={0: 0}, open_transactions={7: 0})
        bucket.segment("u3", [Batch(3, marker="abort", **data)], lineage={0: 0}, aborted=[Aborted(7, 0, 3, 4)])
        with open_tier(str(tmp_path)) as tier:
            request = ScanRequest(ORDERS, isolation_level="read_committed")
            assert offsets(tier, plan_scan(tier, request)) == [1, 2]
            cut = ScanRequest(ORDERS, isolation_level="read_committed", ending_offsets={"orders": {0: 1}})
            assert offsets(tier, plan_scan(tier, cut)) == []

    def test_a_marker_on_a_dead_branch_aborts_nothing(self, tmp_path: pathlib.Path) -> None:
        """Committed records would be left out for an abort that the cluster took back."""
        bucket = Bucket(tmp_path)
        data = {"producer_id": 7, "producer_epoch": 0}
        start = Batch(0, transactional=True, **data)
        bucket.segment("u1", [start, Batch(1, marker="abort", **data)], lineage={0: 0}, aborted=[Aborted(7, 0, 1, 2)])
        bucket.segment("u2", [Batch(1, epoch=1, marker="commit", **data), Batch(2, epoch=1)], lineage={0: 0, 1: 1})
        with open_tier(str(tmp_path)) as tier:
            plan = plan_scan(tier, ScanRequest(ORDERS, isolation_level="read_committed"))
            assert offsets(tier, plan) == [0, 2]

    def test_an_open_transaction_ends_the_read(self, tmp_path: pathlib.Path) -> None:
        """Undecided records would be given as committed."""
        bucket = Bucket(tmp_path)
        bucket.segment("u1", [Batch(0), Batch(1, producer_id=7, producer_epoch=0, transactional=True)], lineage={0: 0})
        bucket.segment("u2", [Batch(2)], lineage={0: 0}, open_transactions={7: 1})
        with open_tier(str(tmp_path)) as tier:
            plan = plan_scan(tier, ScanRequest(ORDERS, isolation_level="read_committed"))
            assert offsets(tier, plan) == [0]
            assert plan.bounds[0].latest_offset == 1

    def test_a_damaged_transaction_index_is_no_shorter_answer(self, tmp_path: pathlib.Path) -> None:
        """Aborted records would be given as committed in silence."""
        bucket = Bucket(tmp_path)
        bucket.segment("u1", [Batch(0)], lineage={0: 0}, aborted=[Aborted(7, 0, 0, 1)])
        path = bucket.path("u1", "indexes")
        path.write_bytes(path.read_bytes()[:-34] + b"\x09" + path.read_bytes()[-33:])
        with open_tier(str(tmp_path)) as tier:
            request = ScanRequest(ORDERS, isolation_level="read_committed")
            with pytest.raises(ValueError, match="transaction index"):
                plan_scan(tier, request)
            lenient = ScanRequest(ORDERS, isolation_level="read_committed", fail_on_data_loss=False)
            (warning,) = plan_scan(tier, lenient).warnings
            assert "transaction index" in warning


class TestLoss:
    """What is asked for and is not there."""

    def test_a_gap_fails_or_is_named(self, thirty: Bucket) -> None:
        """A lost manifest would shorten the answer in silence."""
        thirty.path("u1", "rsm-manifest").unlink()
        with open_tier(str(thirty.root)) as tier:
            with pytest.raises(DataLossError, match="orders-0: offsets 100 to 199 are in no segment"):
                plan_scan(tier, ScanRequest(ORDERS))
            plan = plan_scan(tier, ScanRequest(ORDERS, fail_on_data_loss=False))
            assert offsets(tier, plan) == [*range(100), *range(200, 300)]
            assert len(plan.warnings) == 1
            beside = ScanRequest(ORDERS, starting_offsets={"orders": {0: 200}})
            assert offsets(tier, plan_scan(tier, beside)) == list(range(200, 300))

    @pytest.mark.parametrize(
        ("given", "advice"),
        [
            ({"starting_offsets": {"orders": {0: 7}}}, "starting offsets by partition must name each .* -2, earliest"),
            ({"ending_offsets": {"orders": {0: 7}}}, "ending offsets by partition must name each .* -1, latest"),
            ({"starting_timestamps": {"orders": {0: 7}}}, "starting timestamps by partition .* one timestamp for all"),
            ({"ending_timestamps": {"orders": {0: 7}}}, "ending timestamps by partition .* one timestamp for all"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_a_partition_that_is_not_named(self, thirty: Bucket, given: dict[str, object], advice: str) -> None:
        """The text would advise -2 for a timestamp, which the very option refuses."""
        Bucket(thirty.root, partition=1).segment("v1", [Batch(0)], lineage={0: 0})
        with open_tier(str(thirty.root)) as tier:
            with pytest.raises(ConfigError, match=advice) as caught:
                plan_scan(tier, ScanRequest(ORDERS, **given))
            assert str(caught.value).endswith("; missing: orders-1")
            assert ("-2" in str(caught.value) or "-1," in str(caught.value)) == ("offsets" in next(iter(given)))

    def test_a_partition_that_is_not_read(self, thirty: Bucket) -> None:
        """A user who gave timestamps would look for a wrong offset."""
        with open_tier(str(thirty.root)) as tier:
            request = ScanRequest(ORDERS, starting_timestamps={"orders": {0: 7, 3: 7}})
            with pytest.raises(ConfigError, match=r"starting timestamps are given for .* not read: orders-3"):
                plan_scan(tier, request)

    @pytest.mark.parametrize(("which", "offset"), [("starting", 5), ("starting", 301), ("ending", 301), ("ending", 5)])
    def test_offsets_outside_of_the_tier(self, thirty: Bucket, which: str, offset: int) -> None:
        """The user would take what is left for what was asked for."""
        for suffix in ("log", "indexes", "rsm-manifest"):
            thirty.path("u0", suffix).unlink()
        wrong = {f"{which}_offsets": {"orders": {0: offset}}}
        with open_tier(str(thirty.root)) as tier:
            with pytest.raises(DataLossError, match=f"holds offsets 100 to 299, and the {which} offset is {offset}"):
                plan_scan(tier, ScanRequest(ORDERS, **wrong))
            for lenient in ({"fail_on_data_loss": False}, {"clamp_offsets": True}):
                plan = plan_scan(tier, ScanRequest(ORDERS, **wrong, **lenient))
                whole = (which == "starting") == (offset < 100)
                assert offsets(tier, plan) == (list(range(100, 300)) if whole else [])
                assert len(plan.warnings) == ("fail_on_data_loss" in lenient)

    def test_every_partition_must_be_named(self, thirty: Bucket) -> None:
        """A partition that was forgotten would be read whole or not at all, unlike with Spark's Kafka source."""
        Bucket(thirty.root, partition=1).segment("u1", [Batch(0)], lineage={0: 0})
        with open_tier(str(thirty.root)) as tier:
            with pytest.raises(ConfigError, match="missing: orders-1"):
                plan_scan(tier, ScanRequest(ORDERS, starting_offsets={"orders": {0: 5}}))
            with pytest.raises(ConfigError, match="not read: orders-2"):
                plan_scan(tier, ScanRequest(ORDERS, starting_offsets={"orders": {0: 5, 1: -2, 2: -2}}))
            pushed = RecordFilter(partitions=frozenset([0]))
            named = ScanRequest(ORDERS, starting_offsets={"orders": {0: 299, 1: -2}}, record_filter=pushed)
            assert offsets(tier, plan_scan(tier, named)) == [299]

    def test_a_damaged_manifest_fails_or_is_named(self, thirty: Bucket) -> None:
        """A whole segment would be missing without a word."""
        thirty.path("u2", "rsm-manifest").write_bytes(b"{")
        with open_tier(str(thirty.root)) as tier:
            with pytest.raises(ValueError, match="rsm-manifest"):
                plan_scan(tier, ScanRequest(ORDERS))
            plan = plan_scan(tier, ScanRequest(ORDERS, fail_on_data_loss=False))
            assert offsets(tier, plan) == list(range(200))
            assert "rsm-manifest" in plan.warnings[0]


class TestTopics:
    """Names, patterns and ids."""

    def test_a_name_of_two_topics_must_be_told_apart(self, tmp_path: pathlib.Path) -> None:
        """Records of a deleted topic would be mixed with those of its successor."""
        old, new = (Bucket(tmp_path, topic_id=topic_uuid(name)) for name in ("old", "new"))
        old.segment("u1", [Batch(0, (b"old",))], lineage={0: 0})
        new.segment("u2", [Batch(0, (b"new",))], lineage={0: 0})
        with open_tier(str(tmp_path)) as tier:
            with pytest.raises(ConfigError) as refused:
                plan_scan(tier, ScanRequest(ORDERS))
            assert {f"{bucket.topic_id}:orders" in str(refused.value) for bucket in (old, new)} == {True}
            one = ScanRequest(TopicSelection.of_names([f"{new.topic_id}:orders"]))
            assert read_ranges(tier, plan_scan(tier, one).ranges, ("value",))["value"].to_pylist() == [b"new"]

    def test_patterns_match_whole_names(self, tmp_path: pathlib.Path) -> None:
        """A pattern would drag in topics whose names only begin like it."""
        for topic in ("orders", "orders-eu", "payments"):
            Bucket(tmp_path, topic=topic).segment("u1", [Batch(0)], lineage={0: 0})
        with open_tier(str(tmp_path)) as tier:
            for pattern, wanted in (("orders", ["orders"]), ("orders.*|x", ["orders", "orders-eu"]), ("none", [])):
                plan = plan_scan(tier, ScanRequest(TopicSelection.matching(pattern)))
                assert [r.topic for r in plan.ranges] == wanted
            with pytest.raises(UnknownTopicError, match="no topic order; there are: orders, orders-eu, payments"):
                plan_scan(tier, ScanRequest(TopicSelection.of_names(["orders", "order"])))


def test_plans_are_small_and_hold_no_secret(fixtures: pathlib.Path) -> None:
    """A plan of a large topic would not fit the driver, or would show a key in the event log."""
    run = fixtures / "zstd-aes"
    with open_tier(str(run / "objects"), config=config_of(run)) as tier:
        plan = plan_scan(tier, ScanRequest(TopicSelection.matching(".*"), max_bytes_per_range=30_000))
        for each in plan.ranges:
            pickled = pickle.dumps(each)
            assert len(pickled) < 4096
            assert pickle.loads(pickled) == each
            assert b"PRIVATE" not in pickled
        wanted = read_ranges(tier, plan.ranges)
    with open_tier(str(run / "objects"), layout=plan.layout, config=config_of(run)) as elsewhere:
        assert read_ranges(elsewhere, pickle.loads(pickle.dumps(plan.ranges))).equals(wanted)


def test_a_bucket_may_be_copied_elsewhere(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Plans would hold absolute names and fail on an executor that mounts the bucket elsewhere."""
    with open_tier(str(data / "main-plain" / "objects")) as tier:
        plan = plan_scan(tier, ScanRequest(EPOCHS))
    shutil.copytree(data / "main-plain" / "objects", tmp_path / "copy")
    with open_tier(str(tmp_path / "copy"), layout=plan.layout) as copy:
        assert offsets(copy, plan) == list(range(2201))
