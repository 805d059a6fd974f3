"""The reader of ``tierlog.read``: what closes it, and that pandas, polars and DuckDB take it as pyarrow's own."""

from __future__ import annotations

import gc
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

import tierlog
from tests.support.fault_proxy import FaultProxy
from tests.support.manager_configs import local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer
from tests.support.waiting import ENDLESS_STORE, ends, wait_until
from tierlog.errors import CorruptRecordError
from tierlog.record_reader import RecordReader
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.scan.reading.parallel_scan import ParallelScan

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
RANGES = 40


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """8 MiB of one partition: several batches."""
    folder = tmp_path_factory.mktemp("bucket")
    segment = make_segment(sound_log(8000, base_offset=100)).closed_in(folder / "log")
    with TieredStorageManager() as manager:
        manager.configure(local_keys(folder / "bucket") | {"compression.enabled": "true"})
        manager.copy_log_segment_data(segment.metadata, segment.data)
    return folder / "bucket"


def scan_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tierlog-")]


def close(reader: RecordReader) -> None:
    reader.close()


def leave(reader: RecordReader) -> None:
    with reader:
        pass


@pytest.mark.parametrize("end", [close, leave])
def test_a_closed_reader_reads_no_more(bucket: pathlib.Path, end: Callable[[RecordReader], None]) -> None:
    """Threads and requests of a reader that its user has left would go on; a later batch would come all the same."""
    reader = tierlog.read(bucket, "orders")
    reader.read_next_batch()
    end(reader)
    assert scan_threads() == []
    for call in (reader.read_next_batch, reader.read_all, reader.read_pandas, lambda: pa.table(reader)):
        with pytest.raises(ValueError, match="the reader is closed"):
            call()
    reader.close()
    assert reader.schema.names[:2] == ["key", "value"]


def test_a_stream_that_was_handed_on_ends_with_an_error(bucket: pathlib.Path) -> None:
    """DuckDB would count the part of a topic that it had got for the whole."""
    reader = tierlog.read(bucket, "orders")
    handed = pa.RecordBatchReader.from_stream(reader)
    handed.read_next_batch()
    reader.close()
    with pytest.raises(pa.ArrowInvalid, match="the reader is closed"):
        handed.read_all()


def test_a_stream_that_was_handed_on_outlives_the_name_of_its_reader(bucket: pathlib.Path) -> None:
    """``duckdb.sql("from reader")`` and ``polars.from_arrow(tierlog.read(…))`` hold the stream alone."""
    rows = tierlog.read(bucket, "orders").read_all().num_rows
    handed = pa.RecordBatchReader.from_stream(tierlog.read(bucket, "orders"))
    gc.collect()
    assert handed.read_all().num_rows == rows > 0
    handed = pa.RecordBatchReader.from_stream(tierlog.read(bucket, "orders"))
    handed.read_next_batch()
    handed.close()
    assert scan_threads() == []


def wait_for_a_batch(read_next: Callable[[], pa.RecordBatch]) -> None:
    with pytest.raises(ValueError, match="closed"):
        read_next()


class TestAStalledStore:
    """A bucket that answers the plan and then nothing."""

    @pytest.fixture
    def reader(self, s3: StoreServer, bucket: pathlib.Path) -> Iterator[list[RecordReader]]:
        url = s3.upload(bucket, "stalled-reader")
        with FaultProxy.before(s3) as proxy:
            proxy.add("stall", verb="GET", path=".log", times=None)
            options = dict(s3.options) | ENDLESS_STORE | {"store.endpoint": proxy.endpoint}
            reader = tierlog.read(url, "orders", config=options)
            threading.Thread(target=wait_for_a_batch, args=(reader.read_next_batch,)).start()
            wait_until(lambda: any(".log" in seen.path and seen.verb == "GET" for seen in list(proxy.seen)))
            yield [reader]

    @pytest.mark.parametrize("end", [close, leave])
    def test_closing_is_not_held_up(self, reader: list[RecordReader], end: Callable[[RecordReader], None]) -> None:
        """A notebook's cell, or a service's shutdown, would hang for the store's time limits times its tries."""
        with ends():
            end(reader.pop())
        assert scan_threads() == []

    def test_dropping_is_not_held_up(self, s3: StoreServer, bucket: pathlib.Path) -> None:
        """A reader that goes out of scope would take its thread and its connections for minutes."""
        url = s3.upload(bucket, "dropped-reader")
        with FaultProxy.before(s3) as proxy:
            rule = proxy.add("stall", verb="GET", path=".log", skip=1, times=None)
            options = dict(s3.options) | ENDLESS_STORE | {"store.endpoint": proxy.endpoint}
            reader = tierlog.read(url, "orders", config=options)
            iter(reader)
            reader._scan._top_up()
            wait_until(lambda: rule.struck > 0)
            with ends():
                del reader
                gc.collect()
            assert scan_threads() == []


class Scripted(ParallelScan):
    """Batches that a test made, in place of a scan's."""

    def __init__(self, batches: list[pa.RecordBatch], error: Exception | None = None) -> None:
        def read(each: Any) -> Iterator[pa.RecordBatch]:
            if error is not None and each is batches[-1]:
                raise error
            yield each

        super().__init__(batches, read, threads=2)  # type: ignore[arg-type]


def batches() -> list[pa.RecordBatch]:
    return [pa.record_batch([[n, n + 1], [b"v" * 100, None]], schema=SCHEMA) for n in range(0, 2 * RANGES, 2)]


def addresses(found: list[pa.RecordBatch]) -> list[int]:
    return [buffer.address for batch in found for column in batch.columns for buffer in column.buffers() if buffer]


def test_it_is_pyarrows_reader() -> None:
    """Code that asks for the type, as many a library does, would refuse it."""
    with RecordReader(SCHEMA, Scripted(batches())) as reader:
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.schema == SCHEMA
        assert reader.read_next_batch_with_custom_metadata().batch.num_rows == 2
        assert [batch.num_rows for batch, _ in reader.iter_batches_with_custom_metadata()] == [2] * (RANGES - 1)


def test_batches_are_handed_on_without_a_copy() -> None:
    """Reading at memory's speed would become copying at memory's speed."""
    made = batches()
    assert addresses(list(RecordReader(SCHEMA, Scripted(made)))) == addresses(made)
    assert addresses(RecordReader(SCHEMA, Scripted(made)).read_all().to_batches()) == addresses(made)
    stream = pa.RecordBatchReader.from_stream(RecordReader(SCHEMA, Scripted(made)))
    assert addresses(list(stream)) == addresses(made)
    assert addresses(pa.table(RecordReader(SCHEMA, Scripted(made))).to_batches()) == addresses(made)


def test_who_takes_it(tmp_path: pathlib.Path) -> None:
    """The README's examples, and what data engineers do next, would not run."""
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")

    def reader() -> RecordReader:
        return RecordReader(SCHEMA, Scripted(batches()))

    whole = pa.Table.from_batches(batches())
    assert reader().read_all() == whole
    assert len(reader().read_pandas()) == whole.num_rows
    assert polars.from_arrow(reader()).height == whole.num_rows
    assert polars.DataFrame(reader()).height == whole.num_rows
    assert pa.Table.from_batches(reader()) == whole
    target = pa.schema([("offset", pa.int32()), ("value", pa.binary())])
    assert reader().cast(target).read_all() == whole.cast(target)
    with duckdb.connect() as connection:
        found = reader()
        connection.register("found", found)
        assert connection.sql('select count(*), sum("offset") from found').fetchall() == [(80, sum(range(80)))]
    pyarrow.dataset.write_dataset(reader(), tmp_path / "parquet", format="parquet")
    assert pyarrow.dataset.dataset(tmp_path / "parquet").to_table().sort_by("offset") == whole


def test_errors_keep_their_type(tmp_path: pathlib.Path) -> None:
    """A caller that catches CorruptRecordError would not, or would take half of a topic for the whole."""
    polars = pytest.importorskip("polars")
    error = CorruptRecordError("CRC-32C 1, stored 2")

    def reader() -> RecordReader:
        return RecordReader(SCHEMA, Scripted(batches(), error))

    def written() -> object:
        return pyarrow.dataset.write_dataset(reader(), tmp_path / "parquet", format="parquet")

    for call in (lambda: reader().read_all(), lambda: list(reader()), lambda: polars.from_arrow(reader()), written):
        with pytest.raises(CorruptRecordError):
            call()
    again = reader()
    with pytest.raises(CorruptRecordError):
        again.read_all()
    with pytest.raises(CorruptRecordError):
        again.read_next_batch()
    again.close()


def test_it_shows_itself_and_reads_nothing(bucket: pathlib.Path) -> None:
    """A notebook shows the last value of a cell: an address says nothing, and a read would take batches away."""
    with tierlog.read(bucket, "orders", columns=["offset", "value"]) as reader:
        assert isinstance(reader, tierlog.RecordReader)
        assert repr(reader) == "<tierlog.RecordReader (open): offset: int64, value: binary>"
        assert "<td>offset</td><td>int64</td>" in reader._repr_html_()
        assert "read_pandas()" in reader._repr_html_()
        assert (
            reader.read_next_batch().column("offset")[0].as_py()
            == tierlog.topics(bucket)[0].partitions[0].earliest_offset
        )
    assert repr(reader).startswith("<tierlog.RecordReader (ended)")
    assert "ended" in reader._repr_html_()
