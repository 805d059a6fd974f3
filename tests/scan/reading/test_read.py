"""Reading one range: columns, damage, and what an error says."""

from __future__ import annotations

import logging
import os
import pathlib
import shutil
from collections import deque

import pyarrow as pa
import pytest

from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog import open_tier
from tierlog.errors import ConfigError, CorruptDataError, CorruptRecordError, ObjectNotFoundError
from tierlog.remote.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import COLUMNS, ScanCounters, read_scan_range, records_schema
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

ORDERS = TopicSelection.of_names(["orders"])


def ten(number: int) -> Batch:
    """Batch ``number``: ten records, the value is the offset."""
    values = tuple(b"%d" % offset for offset in range(10 * number, 10 * number + 10))
    return Batch(10 * number, values, timestamp_ms=10_000 * number)


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    """One segment of ten batches of ten records: record n is at n seconds and some."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [ten(n) for n in range(10)], lineage={0: 0})
    return bucket


def read(tier: Tier, request: ScanRequest, **options: object) -> tuple[pa.Table, ScanCounters]:
    counters = ScanCounters()
    columns = options.get("columns", ("offset",))
    batches = [
        batch
        for each in plan_scan(tier, request).ranges
        for batch in read_scan_range(tier, each, **{"columns": columns, "counters": counters, **options})
    ]
    return pa.Table.from_batches(batches, schema=records_schema(columns)), counters


def test_all_columns_in_any_order(bucket: Bucket) -> None:
    """A query of some columns would get others, or values of another range."""
    with open_tier(str(bucket.root)) as tier:
        table, _ = read(tier, ScanRequest(ORDERS), columns=tuple(reversed(COLUMNS)))
    assert table.column_names == list(reversed(COLUMNS))
    first = table.slice(0, 1).to_pylist()[0]
    segment = bucket.keys["u1"][-22:]
    assert (first["topic"], first["partition"], first["segment"], first["leaderEpoch"]) == ("orders", 0, segment, 0)
    assert (first["key"], first["value"], first["headers"], first["timestampType"]) == (None, b"0", None, 0)
    assert all(field.nullable for field in table.schema)


def test_record_filters_by_time_and_offset_are_exact(bucket: Bucket) -> None:
    """Pushed-down filters would let rows through that the engine believes are gone, or drop some."""
    chosen = RecordFilter(
        first_offset=15, end_offset_exclusive=48, first_timestamp_ms=20_003, end_timestamp_exclusive_ms=40_005
    )
    with open_tier(str(bucket.root)) as tier:
        table, counters = read(tier, ScanRequest(ORDERS, record_filter=chosen))
    assert table["offset"].to_pylist() == [*range(23, 45)]
    assert counters.records == 22
    assert counters.log_bytes <= 4 * 151 + 8, "four of the ten batches, and the base offset of the fifth"


def test_counters_say_what_was_asked_of_the_store(bucket: Bucket) -> None:
    """The metrics of a scan would show windows for requests, and bytes of the log for bytes that were paid for."""
    request = ScanRequest(ORDERS)
    watching: list[CountingStore] = []

    def watched(store: ObjectStore) -> ObjectStore:
        watching.append(CountingStore(store))
        return watching[-1]

    for compressed in (False, True):
        if compressed:
            bucket.chunk_size = 100
            bucket.segment("u1", [ten(n) for n in range(10)], lineage={0: 0}, compression=True)
        with open_tier(str(bucket.root), wrap_store=watched) as tier:
            ranges = plan_scan(tier, request).ranges
            counters = ScanCounters()
            watching[-1].reset()
            for each in ranges:
                rows = sum(b.num_rows for b in read_scan_range(tier, each, window_bytes=400, counters=counters))
        counts = watching[-1].counts
        (only,) = ranges
        stored = bucket.path("u1", "log").stat().st_size
        assert (counters.requests, counters.stored_bytes) == (counts.gets, counts.bytes) == (-(-1510 // 400), stored)
        assert (counters.log_bytes, counters.batches, counters.records) == (only.size_bytes, 10, rows)
        assert (stored == only.size_bytes) is not compressed


def test_record_batches_keep_the_target_size_and_none_is_empty(tmp_path: pathlib.Path) -> None:
    """Executors would be handed one huge batch, or thousands of tiny ones."""
    values = (b"x" * 100,) * 100
    Bucket(tmp_path).segment("u1", [Batch(100 * n, values) for n in range(150)], lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        (only,) = plan_scan(tier, ScanRequest(ORDERS)).ranges
        sizes = [b.num_rows for b in read_scan_range(tier, only, columns=["value"], target_bytes=300_000)]
    assert sum(sizes) == 15_000
    assert all(2200 <= rows <= 3400 for rows in sizes[:-1]), sizes


class TestDamage:
    """One bit is flipped in the base timestamp of batch 4 (offsets 40 to 49)."""

    @pytest.fixture
    def position(self, bucket: Bucket) -> int:
        before = sum(len(encode(ten(number))) for number in range(4))
        log = bytearray(bucket.path("u1", "log").read_bytes())
        log[before + 34] ^= 1
        bucket.path("u1", "log").write_bytes(log)
        return before

    def test_the_error_names_partition_object_position_and_offset(self, bucket: Bucket, position: int) -> None:
        """An operator could not find the damage, and rows before it would be lost."""
        rows: list[int] = []
        with open_tier(str(bucket.root)) as tier:
            (only,) = plan_scan(tier, ScanRequest(ORDERS)).ranges
            batches = (batch["offset"].to_pylist() for batch in read_scan_range(tier, only, columns=["offset"]))
            with pytest.raises(CorruptRecordError) as raised:
                deque(map(rows.extend, batches), maxlen=0)
        assert rows == list(range(40))
        error = raised.value
        assert (error.position, error.base_offset, error.fault) == (position, 40, "BAD_CRC")
        assert str(error).startswith(f"orders-0 {bucket.keys['u1']}.log @ {position} (offset 40): ")

    def test_without_fail_on_data_loss_the_batch_is_left_out_and_named(
        self, bucket: Bucket, position: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """failOnDataLoss=false would lose the rest of the segment, or lose rows without a word."""
        with open_tier(str(bucket.root)) as tier, caplog.at_level(logging.WARNING):
            table, counters = read(tier, ScanRequest(ORDERS, fail_on_data_loss=False))
        assert table["offset"].to_pylist() == [*range(40), *range(50, 100)]
        (warning,) = counters.warnings
        assert f"{bucket.keys['u1']}.log @ {position} (offset 40)" in warning
        assert warning in caplog.text

    def test_checksums_can_be_left_unchecked(self, bucket: Bucket, position: int) -> None:
        """The option would do nothing."""
        with open_tier(str(bucket.root)) as tier:
            (only,) = plan_scan(tier, ScanRequest(ORDERS)).ranges
            batches = read_scan_range(tier, only, columns=["offset"], verify_checksums=False)
            assert sum(batch.num_rows for batch in batches) == 100

    def test_a_length_that_cannot_be_trusted_ends_the_range(self, bucket: Bucket) -> None:
        """The search for the next batch would take payload for a batch."""
        log = bytearray(bucket.path("u1", "log").read_bytes())
        log[8:12] = b"\x7f\xff\xff\xff"
        bucket.path("u1", "log").write_bytes(log)
        with open_tier(str(bucket.root)) as tier:
            with pytest.raises(CorruptDataError, match="orders-0"):
                read(tier, ScanRequest(ORDERS))
            table, counters = read(tier, ScanRequest(ORDERS, fail_on_data_loss=False))
        assert table.num_rows == 0
        assert "the rest of the range" in counters.warnings[0]

    @pytest.mark.parametrize("keep", [0, 100, 777, 1400])
    def test_a_short_object_is_never_a_short_answer(self, bucket: Bucket, keep: int) -> None:
        """A truncated upload would silently give fewer rows, or none of those that are there where this is allowed."""
        log = bucket.path("u1", "log").read_bytes()
        whole = sum(len(b"".join(encode(ten(n)) for n in range(number + 1))) <= keep for number in range(10))
        bucket.path("u1", "log").write_bytes(log[:keep])
        with open_tier(str(bucket.root)) as tier:
            with pytest.raises(CorruptDataError, match=bucket.keys["u1"]):
                read(tier, ScanRequest(ORDERS))
            table, counters = read(tier, ScanRequest(ORDERS, fail_on_data_loss=False))
        assert table["offset"].to_pylist() == list(range(10 * whole))
        (warning,) = counters.warnings
        assert "the rest of the range from position" in warning
        assert "ends early" in warning

    def test_a_cut_object_of_chunks_gives_those_that_are_whole(
        self, data: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        """Of a compressed, encrypted segment that lost its end nothing at all would come back."""
        run = data / "zstd-aes"
        shutil.copytree(run / "objects", tmp_path / "b")
        log = max((tmp_path / "b").glob("fx-zstd-a-json-*/0/*.log"))
        log.write_bytes(log.read_bytes()[:-10])
        topics = TopicSelection.of_names(["fx-zstd-a-json"])
        with open_tier(str(tmp_path / "b"), config=config_of(run)) as tier:
            with pytest.raises(CorruptDataError, match="ends early"):
                read(tier, ScanRequest(topics))
            table, counters = read(tier, ScanRequest(topics, fail_on_data_loss=False))
        with open_tier(str(run / "objects"), config=config_of(run)) as tier:
            everything, _ = read(tier, ScanRequest(topics))
        lost = set(everything["offset"].to_pylist()) - set(table["offset"].to_pylist())
        assert 0 < len(lost) < 100
        assert len(counters.warnings) == 1

    def test_a_log_that_ends_inside_a_batch_is_named(self, tmp_path: pathlib.Path) -> None:
        """The last records of a closed segment would be missing without a word, since they were allowed to be."""
        for start in (0, 10):
            path = tmp_path / "orders-0" / f"{start:020d}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode(ten(start // 10))[: -5 if start == 0 else None])
        with open_tier(str(tmp_path)) as tier:
            table, counters = read(tier, ScanRequest(ORDERS, fail_on_data_loss=False))
        assert table["offset"].to_pylist() == list(range(10, 20))
        assert "the rest of the range from position 0" in counters.warnings[0]

    def test_an_object_that_retention_deleted_meanwhile(self, bucket: Bucket) -> None:
        """Deletion would look like corruption."""
        with open_tier(str(bucket.root)) as tier:
            strict = plan_scan(tier, ScanRequest(ORDERS)).ranges[0]
            lenient = plan_scan(tier, ScanRequest(ORDERS, fail_on_data_loss=False)).ranges[0]
            bucket.path("u1", "log").unlink()
            with pytest.raises(ObjectNotFoundError, match=r"gone since it was listed.*ago"):
                list(read_scan_range(tier, strict))
            counters = ScanCounters()
            assert not list(read_scan_range(tier, lenient, counters=counters))
        assert "gone since it was listed" in counters.warnings[0]


def test_closing_the_iterator_early_leaves_nothing_open(bucket: Bucket) -> None:
    """A LIMIT query would leak a file or a thread each time (the leak check looks for them)."""
    with open_tier(str(bucket.root)) as tier:
        (only,) = plan_scan(tier, ScanRequest(ORDERS)).ranges
        batches = read_scan_range(tier, only, target_bytes=1, window_bytes=200)
        next(batches)
        batches.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("columns", [["offset", "offset"], ["value", "nonsense"]])
def test_wrong_columns_are_refused(columns: list[str]) -> None:
    """A typing error would come back as nulls."""
    with pytest.raises(ConfigError, match="known are"):
        records_schema(columns)


@pytest.mark.parametrize("window_bytes", [150, 400, 1 << 20])
@pytest.mark.parametrize("lost_bytes", [1, 200, 500])
def test_of_a_log_that_was_cut_all_whole_batches_are_read_once(
    tmp_path: pathlib.Path, window_bytes: int, lost_bytes: int
) -> None:
    """With data loss allowed, batches in front of the cut would be lost too, or come twice."""
    made = Bucket(tmp_path)
    batches = [Batch(offset, (b"v" * 20,)) for offset in range(20)]
    made.segment("u", batches, lineage={0: 0})
    path = made.path("u", "log")
    size = path.stat().st_size // len(batches)
    os.truncate(path, path.stat().st_size - lost_bytes)
    with open_tier(str(tmp_path)) as tier:
        (only,) = plan_scan(tier, ScanRequest(ORDERS, fail_on_data_loss=False)).ranges
        counters = ScanCounters()
        rows = read_scan_range(tier, only, columns=("offset",), window_bytes=window_bytes, counters=counters)
        offsets = [offset for batch in rows for offset in batch.column(0).to_pylist()]
    assert offsets == [*range(len(batches) - -(-lost_bytes // size))]
    assert len(counters.warnings) == 1
