"""When things go wrong under a query: objects deleted, damaged, added; a worker killed. Also: what must not be told."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from pyspark_tierlog.source import DefaultSource
from tests.bindings.spark.conftest import Read, batches, offsets
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import config_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark


@pytest.mark.both_engines
def test_an_object_deleted_meanwhile_is_named_with_its_age(read: Read, bucket: Bucket) -> None:
    """Retention runs while a query waits; called corruption, it would send an operator looking for bad disks."""
    frame = read(bucket.root, subscribe="orders")
    bucket.path("s20", "log").unlink()
    with pytest.raises(Exception, match="gone since it was listed") as caught:
        frame.collect()
    text = str(caught.value)
    assert pathlib.Path(bucket.keys["s20"]).name in text
    assert "retention may have deleted it; it was written" in text
    assert "Corrupt" not in text


def test_data_loss_allowed_skips_what_is_gone(read: Read, bucket: Bucket) -> None:
    """failOnDataLoss=false is how an old job over an expiring topic ends at all."""
    frame = read(bucket.root, subscribe="orders", failOnDataLoss="false")
    bucket.path("s20", "log").unlink()
    assert offsets(frame) == [*range(20), *range(40, 60)]


def test_a_timestamp_beyond_microseconds_is_an_error(read: Read, tmp_path: pathlib.Path) -> None:
    """Spark's timestamps end in the year 294247; wrapped around, a record of garbage would look like one of 1970."""
    Bucket(tmp_path).segment("s0", [Batch(0, (b"x",), timestamp_ms=2**60)], lineage={0: 0})
    with pytest.raises(Exception, match="timestamp out of range"):
        read(tmp_path, subscribe="orders").collect()
    assert read(tmp_path, subscribe="orders", columns="offset").count() == 1


@pytest.mark.both_engines
def test_damage_fails_and_is_skipped_where_allowed(read: Read, bucket: Bucket) -> None:
    """A flipped bit must never be read as data, and never be hidden by default."""
    path = bucket.path("s20", "log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"CRC|checksum") as caught:
        read(bucket.root, subscribe="orders").collect()
    assert "orders-0" in str(caught.value)
    assert offsets(read(bucket.root, subscribe="orders", failOnDataLoss="false")) == [*range(20), *range(25, 60)]


@pytest.mark.both_engines
def test_what_is_whole_before_a_cut_is_read_where_allowed(read: Read, bucket: Bucket) -> None:
    """A disk that was full ends a segment in its last batch; nothing of it would come back, of 1 GiB perhaps."""
    path = bucket.path("s20", "log")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(Exception, match=r"CorruptObjectError: .*ends early"):
        read(bucket.root, subscribe="orders").collect()
    assert offsets(read(bucket.root, subscribe="orders", failOnDataLoss="false")) == [*range(35), *range(40, 60)]
    path.write_bytes(b"")
    assert offsets(read(bucket.root, subscribe="orders", failOnDataLoss="false")) == [*range(20), *range(40, 60)]


@pytest.mark.few(1)
@pytest.mark.parametrize("left", [0.97, 0.5, 0.0])
def test_whole_chunks_before_a_cut_are_read_where_allowed(
    by_engine: dict[str, Read], data: pathlib.Path, tmp_path: pathlib.Path, left: float
) -> None:
    """The same of a segment in encrypted chunks: a part of a chunk is nothing, those before it are all there."""
    run = data / "zstd-aes"
    shutil.copytree(run / "objects", tmp_path / "objects")
    log = max((tmp_path / "objects").glob("fx-zstd-a-json-*/0/*.log"), key=lambda path: path.stat().st_size)
    whole = log.read_bytes()
    log.write_bytes(whole[: int(len(whole) * left)])
    options = config_of(run) | {"subscribe": "fx-zstd-a-json", "columns": "offset", "failOnDataLoss": "false"}
    found = {engine: offsets(read(tmp_path / "objects", **options)) for engine, read in by_engine.items()}
    assert found["jar"] == found["python"]
    log.write_bytes(whole)
    rows = offsets(by_engine["python"](tmp_path / "objects", **options))
    log.write_bytes(b"")
    without = offsets(by_engine["python"](tmp_path / "objects", **options))
    assert len(without) <= len(found["jar"]) < len(rows)
    assert (len(found["jar"]) > len(without)) == (left > 0)


def test_a_bucket_that_lost_a_segment_is_told(read: Read, bucket: Bucket) -> None:
    """A hole between two segments is silent loss otherwise."""
    for suffix in ("log", "indexes", "rsm-manifest"):
        bucket.path("s20", suffix).unlink()
    with pytest.raises(Exception, match="offsets 20 to 39 are in no segment of the tier"):
        read(bucket.root, subscribe="orders").collect()
    assert offsets(read(bucket.root, subscribe="orders", failOnDataLoss="false")) == [*range(20), *range(40, 60)]


def test_all_queries_of_a_frame_see_one_listing(spark: SparkSession, read: Read, bucket: Bucket) -> None:
    """A self-join over a growing topic would compare two different sets of segments."""
    frame = read(bucket.root, subscribe="orders")
    bucket.segment("s60", batches(60), lineage={0: 0})
    assert offsets(frame) == [*range(60)]
    assert frame.alias("a").join(frame.alias("b"), "offset").count() == 60
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(80)]


def test_pushdown_fetches_nothing_else(pushing: SparkSession, read: Read, bucket: Bucket) -> None:
    """The promise of pushdown is requests that are not made: here the other objects are not there any more."""

    def fresh() -> DataFrame:
        return read(bucket.root, subscribe="orders", pushDownPredicate="true")

    bucket.path("s0", "log").unlink()
    after, last = "timestamp_millis(1700000000024)", "timestamp_millis(1700000000029)"
    assert offsets(fresh().filter(f"timestamp > {after} AND timestamp <= {last}")) == [*range(25, 30)]
    bucket.path("s40", "log").unlink()  # a later segment may hold earlier times, so only offsets rule it out
    by_offset = fresh().filter("partition = 0 AND offset >= 22 AND offset < 30")
    assert "Filter (" not in by_offset._jdf.queryExecution().executedPlan().toString()
    assert offsets(by_offset) == [*range(22, 30)]
    assert offsets(fresh().filter("offset IN (23, 27)")) == [23, 27]
    assert offsets(fresh().filter("partition > 0")) == []
    assert fresh().filter("partition IN (5, 6)").count() == 0
    with pytest.raises(Exception, match="gone since it was listed"):
        fresh().collect()


@pytest.mark.parametrize(
    "condition",
    [
        "offset = 31",
        "offset != 31",
        "offset < 3 OR offset > 57",
        "timestamp >= timestamp_micros(1700000000030001)",
        "timestamp < timestamp_micros(1700000000030999)",
        "offset BETWEEN 18 AND 22 AND topic = 'orders' AND partition < 1",
    ],
)
def test_pushdown_agrees_with_spark(pushing: SparkSession, read: Read, bucket: Bucket, condition: str) -> None:
    """A filter that is absorbed is evaluated by nobody else."""
    with_it = offsets(read(bucket.root, subscribe="orders", pushDownPredicate="true").filter(condition))
    pushing.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert with_it == offsets(read(bucket.root, subscribe="orders").filter(condition))


@pytest.mark.both_engines
def test_queries_over_one_frame_do_not_mix(pushing: SparkSession, read: Read, bucket: Bucket) -> None:
    """Spark 4.1 to 4.3 run df.count() by the plan of an earlier df.filter(…): rows would be missing silently."""
    frame = read(bucket.root, subscribe="orders")
    assert offsets(frame.filter("offset = 31")) == [31]
    assert offsets(frame) == [*range(60)]
    both = frame.filter("offset = 3").union(frame.filter("offset = 5")).union(frame.filter("offset = 7"))
    assert offsets(both) == [3, 5, 7]


class DyingOnce(DefaultSource):
    """The source, with a reader whose worker is killed once in the middle of a task."""

    marker = ""

    @classmethod
    def name(cls) -> str:
        return "tierlog_dying_once"

    def reader(self, schema: StructType) -> DataSourceReader:
        marker = self.marker
        reader = super().reader(schema)
        inner = reader.read

        def read_and_die(partition: InputPartition) -> Iterator[pa.RecordBatch]:
            for batch in inner(partition):
                yield batch.slice(0, 1)
                if not pathlib.Path(marker).exists():
                    pathlib.Path(marker).touch()
                    os.kill(os.getpid(), 9)
                yield batch.slice(1)

        reader.read = read_and_die  # type: ignore[method-assign]
        return reader


def test_a_killed_worker_is_replaced(
    spark: SparkSession, bucket: Bucket, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors die of memory and preemption; the task that runs again must not repeat or lose rows."""
    marker = tmp_path / "died"
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(DyingOnce, "marker", str(marker))
    spark.dataSource.register(DyingOnce)
    frame = spark.read.format("tierlog_dying_once").option("subscribe", "orders").load(str(bucket.root))
    assert offsets(frame) == [*range(60)]
    assert marker.exists()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "orders", "failOnDataLoss": "no"}, "ConfigError: option failOnDataLoss: expected true or false"),
        ({"subscribe": "orders", "columns": "offset,valeu"}, "ConfigError: table records has no column 'valeu'"),
        ({"subscribe": "ordrs"}, "UnknownTopicError: "),
        ({"subscribe": "orders", "endingOffsets": '{"orders":{"0":9999}}'}, "DataLossError: "),
        ({"subscribe": "orders", "maxBytesPerPartition": "100"}, "CorruptRecordError: "),
        ({"subscribe": "orders", "rsm.chunk.size": "x"}, "ConfigError: "),
        ({"subscribe": "orders", "rsm.config.file": "/no/such/file"}, "/no/such/file"),
    ],
    ids=["option", "column", "topic", "offset", "damage", "key", "file"],
)
def test_an_error_shows_no_traceback_of_ours(read: Read, bucket: Bucket, options: dict[str, str], text: str) -> None:
    """The one line that says what to do stands below fifty that look like a fault of the program."""
    path = bucket.path("s20", "log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=text) as caught:
        read(bucket.root, **options).collect()
    said = str(caught.value)
    assert "Traceback" not in said
    assert "pyspark_tierlog/" not in said
    assert ", line " not in said


SECRET = "hunter2hunter2"


@pytest.mark.both_engines
def test_secrets_are_in_no_plan_and_no_message(spark: SparkSession, read: Read, bucket: Bucket) -> None:
    """Plans, event logs and errors are read by more people than the bucket."""
    frame = read(bucket.root, subscribe="orders", **{"store.secret_access_key": SECRET})
    plan = frame._jdf.queryExecution()
    mode = spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")
    assert SECRET not in plan.toString() + plan.explainString(mode)
    bucket.path("s20", "log").unlink()
    with pytest.raises(Exception, match="gone since") as caught:
        frame.collect()
    assert SECRET not in str(caught.value)
    with pytest.raises(Exception, match="unknown") as caught:
        read(bucket.root, subscribe="orders", **{"store.secret_access_key": SECRET, "rsm.no.such.key": SECRET}).count()
    assert SECRET not in str(caught.value)


def test_partitions_are_small_and_free_of_secrets(data: pathlib.Path) -> None:
    """They are logged, broadcast and kept by the scheduler, one for each task."""
    config = config_of(data / "zstd-aes")
    keys = [pathlib.Path(path).read_bytes() for key, path in config.items() if key.endswith("private.key.file")]
    assert keys
    options = config | {"path": str(data / "zstd-aes" / "objects"), "subscribe": "fx-zstd-a-json"}
    source = pickle.loads(pickle.dumps(DefaultSource(options | {"store.secret_access_key": SECRET})))
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    assert tasks
    for task in tasks:
        pickled = pickle.dumps(task)
        assert len(pickled) < 16 << 10
        assert SECRET.encode() not in pickled
        assert SECRET not in repr(task)
        assert not any(key[32:64] in pickled for key in keys)
    assert SECRET not in repr(reader)
    assert SECRET not in repr(reader.__dict__)
    shipped = cloudpickle.dumps((source, reader))
    assert not any(key[32:64] in shipped for key in keys)
    assert len(shipped) < 16 << 10


def test_the_listing_is_taken_once(bucket: Bucket) -> None:
    """The pickle of load() is what all plans start from: taken again, each would see another bucket."""
    source = DefaultSource({"path": str(bucket.root), "subscribe": "orders"})
    source.schema()
    first = pickle.dumps(source)
    shutil.rmtree(bucket.root / pathlib.Path(bucket.keys["s40"]).parent)
    pinned = pickle.loads(first)
    assert pickle.loads(pickle.dumps(pinned))._listing == pinned._listing
    ranges = [each for task in pinned.reader(pinned.schema()).partitions() for each in task.ranges]
    assert [each.segment.start_offset for each in ranges] == [0, 20, 40]
