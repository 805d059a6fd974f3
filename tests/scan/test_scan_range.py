"""What travels to a task: the chunks of its own range, and the same bytes and faults as from the whole segment."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Iterable

import pyarrow as pa
import pytest

from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket
from tierlog import open_tier
from tierlog.errors import CorruptObjectError
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_range import ScanRange, TaskLimits, group_ranges
from tierlog.scan.scan_request import ScanRequest, TopicSelection

ORDERS = TopicSelection.of_names(["orders"])


def read_ranges(tier: Tier, ranges: Iterable[ScanRange]) -> pa.Table:
    return pa.Table.from_batches(batch for each in ranges for batch in read_scan_range(tier, each))


CHUNK = 64


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    bucket = Bucket(tmp_path_factory.mktemp("many"), chunk_size=CHUNK)
    value = bytes(range(256)) * 8
    batches = [Batch(2 * n, (value + b"%d" % n, value)) for n in range(1001)]
    log_bytes = sum(len(encode(batch)) for batch in batches)
    assert log_bytes < 65_536 * CHUNK
    last = Batch(2002, (b"v" * (65_536 * CHUNK - log_bytes - 80),))
    bucket.segment("a", [*batches, last], lineage={0: 0}, compression=True)
    return bucket


class TestManyChunks:
    """A segment of 65,536 compressed chunks, whose list of sizes is 256 KiB."""

    def test_a_range_carries_its_own_chunks_only(self, bucket: Bucket) -> None:
        """Every task of a scan would carry the sizes of all chunks of its segment, and the driver a copy a task."""
        with open_tier(str(bucket.root)) as tier:
            (whole,) = plan_scan(tier, ScanRequest(ORDERS)).ranges
            assert whole.segment.chunk_index is not None
            assert whole.segment.chunk_index.chunk_count == 65_536
            wanted = read_ranges(tier, [whole])
            plan = plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=4000))
        assert len(plan.ranges) >= 1000
        for each in plan.ranges:
            chunks = each.size_bytes // CHUNK + 2
            assert len(pickle.dumps(each)) < 4096 + 4 * chunks
        wire = pickle.dumps(plan.ranges)
        own = sum(4 * (each.size_bytes // CHUNK + 2) for each in plan.ranges)
        assert len(wire) < own + 300 * len(plan.ranges)
        with open_tier(str(bucket.root), layout=plan.layout) as elsewhere:
            assert read_ranges(elsewhere, pickle.loads(wire)).equals(wanted)

    def test_damage_is_found_at_the_same_place(self, bucket: Bucket) -> None:
        """An error would name a byte of the object that is sound."""
        log = bucket.path("a", "log")
        with open_tier(str(bucket.root)) as tier:
            (segment,) = tier.iter_segments()
            assert segment.chunk_index is not None
            position = int(segment.chunk_index.views(2_000_000, 2_000_001)["transformed_position"][0])
            sound = log.read_bytes()
            stored = bytearray(sound)
            stored[position] ^= 0xFF
            log.write_bytes(stored)
            errors = []
            for max_bytes in (4000, 1 << 30):
                plan = plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=max_bytes))
                with pytest.raises(CorruptObjectError) as caught:
                    read_ranges(tier, plan.ranges)
                errors.append(caught.value)
            log.write_bytes(sound)
            assert [error.position for error in errors] == [position, position]
            assert str(errors[0]) == str(errors[1])


class TestTasks:
    """Ranges put together: tasks of even size, and as many as were asked for."""

    @pytest.fixture
    def ranges(self, tmp_path: pathlib.Path) -> list[ScanRange]:
        """Twelve equal ones."""
        bucket = Bucket(tmp_path, index_interval_bytes=1)
        for number in range(12):
            bucket.segment(f"u{number}", [Batch(2 * number, (b"a", b"b"))], lineage={0: 0})
        with open_tier(str(tmp_path)) as tier:
            found = list(plan_scan(tier, ScanRequest(ORDERS, max_bytes_per_range=1)).ranges)
        assert len({each.size_bytes for each in found}) == 1
        assert len(found) == 12
        return found

    def sizes(self, ranges: list[ScanRange], limits: TaskLimits) -> list[int]:
        tasks = list(group_ranges(ranges, limits))
        assert [each for task in tasks for each in task] == ranges
        return [len(task) for task in tasks]

    def test_bytes_and_records_bound_a_task(self, ranges: list[ScanRange]) -> None:
        """If this fails, an executor gets more than the option says, or half of it."""
        size = ranges[0].size_bytes
        assert self.sizes(ranges, TaskLimits(3 * size)) == [3, 3, 3, 3]
        assert self.sizes(ranges, TaskLimits(3 * size - 1)) == [2] * 6
        assert self.sizes(ranges, TaskLimits(100 * size, max_records=8)) == [4, 4, 4]
        assert self.sizes(ranges, TaskLimits(100 * size, max_records=7)) == [3, 3, 3, 3]

    @pytest.mark.parametrize(("most", "wanted"), [(1, [12]), (3, [4, 4, 4]), (5, [3, 3, 2, 2, 2]), (12, [1] * 12)])
    def test_at_most_so_many_tasks_share_evenly(self, ranges: list[ScanRange], most: int, wanted: list[int]) -> None:
        """If this fails, the last task of a job reads what the others left."""
        size = ranges[0].size_bytes
        for limits in (
            TaskLimits(size, max_tasks=most, total_bytes=12 * size),
            TaskLimits(100 * size, max_records=2, max_tasks=most, total_bytes=12 * size, total_records=24),
        ):
            assert sorted(self.sizes(ranges, limits)) == sorted(wanted)

    def test_at_least_so_many_tasks(self, ranges: list[ScanRange]) -> None:
        """If this fails, a cluster of many cores reads with a few of them."""
        size = ranges[0].size_bytes
        for least in range(1, 13):
            found = self.sizes(ranges, TaskLimits(3 * size, min_tasks=least, ranges=12))
            assert len(found) == max(4, least)
