"""What the jar's plans take from Spark: filters, limits, aggregates, joins, partitioning."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import pytest

from tests.bindings.spark.conftest import batches, offsets
from tests.bindings.spark.jar.conftest import Read, executed
from tests.support.buckets import Bucket
from tierlog.records.builder import encode_batch, encode_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Topics orders and clicks, two partitions each, 1,000 records of 4 kB in each: more than the driver sums up."""
    root = tmp_path_factory.mktemp("topics")
    for topic in ("orders", "clicks"):
        for partition in (0, 1):
            bucket = Bucket(root, topic=topic, partition=partition, index_interval_bytes=4096)
            for first in (0, 500):
                bucket.segment(f"s{first}", batches(first, 100, value_bytes=4000), lineage={0: 0})
    return root


def by_python(spark: SparkSession, root: pathlib.Path, topics: str) -> DataFrame:
    """The records as Python workers read them, kept: what is asked of it is evaluated by Spark alone."""
    source = spark.read.format("tierlog").option("engine", "python").option("subscribe", topics)
    return source.load(str(root)).localCheckpoint()


@pytest.fixture(scope="module")
def topics_by_python(spark_session: SparkSession, topics: pathlib.Path) -> DataFrame:
    return by_python(spark_session, topics, "orders,clicks")


@pytest.fixture(scope="module")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """As the bucket of the other tests."""
    made = Bucket(tmp_path_factory.mktemp("sixty"), index_interval_bytes=1)
    for first in (0, 20, 40):
        made.segment(f"s{first}", batches(first), lineage={0: 0})
    return made.root


@pytest.fixture(scope="module")
def sixty_by_python(spark_session: SparkSession, sixty: pathlib.Path) -> DataFrame:
    return by_python(spark_session, sixty, "orders")


def test_pushdown_fetches_nothing_else(read: Read, bucket: Bucket) -> None:
    """The promise of pushdown is requests that are not made: here the other objects are not there any more."""
    frame = read(bucket.root, subscribe="orders")
    bucket.path("s0", "log").unlink()
    after, last = "timestamp_millis(1700000000024)", "timestamp_millis(1700000000029)"
    assert offsets(frame.filter(f"timestamp > {after} AND timestamp <= {last}")) == [*range(25, 30)]
    bucket.path("s40", "log").unlink()
    by_offset = frame.filter("partition = 0 AND offset >= 22 AND 30 > offset AND topic = 'orders'")
    assert "Filter " not in executed(by_offset)
    assert offsets(by_offset) == [*range(22, 30)]
    assert offsets(frame.filter("offset IN (23, 27)")) == [23, 27]
    assert offsets(frame.filter("topic IN ('clicks', 'views')")) == []
    assert frame.filter("partition > 0").count() == 0
    with pytest.raises(Exception, match="gone since it was listed"):
        frame.collect()


@pytest.mark.few(8)
@pytest.mark.parametrize(
    "condition",
    [
        "offset = 31",
        "offset != 31",
        "offset < 3 OR offset > 57",
        "offset <=> 31",
        "offset > 1.5",
        "offset IN (1, 2, 3) AND offset NOT IN (2)",
        "timestamp >= timestamp_micros(1700000000030001)",
        "timestamp < timestamp_micros(1700000000030999)",
        "timestamp IN (timestamp_millis(1700000000030), timestamp_millis(1700000000010))",
        "offset BETWEEN 18 AND 22 AND topic = 'orders' AND partition < 1",
        "topic > 'a' AND offset < 3",
        "value = X'3331'",
        "offset = -1",
        "offset < -9223372036854775808",
        "partition IS NULL",
    ],
)
def test_filters_agree_with_spark(read: Read, sixty: pathlib.Path, sixty_by_python: DataFrame, condition: str) -> None:
    """A filter that is absorbed is evaluated by nobody else."""
    by_jar = read(sixty, subscribe="orders").filter(condition)
    by_spark = sixty_by_python.filter(condition)
    assert offsets(by_jar) == offsets(by_spark)
    assert by_jar.count() == by_spark.count()


def test_queries_over_one_frame_do_not_mix(read: Read, bucket: Bucket) -> None:
    """Spark 4.1 to 4.3 keep the plan of a filtered query for the Python source; the jar must not."""
    frame = read(bucket.root, subscribe="orders")
    assert offsets(frame.filter("offset < 5")) == [*range(5)]
    assert offsets(frame) == [*range(60)]
    pair = frame.filter("offset < 5").alias("a").join(frame.filter("offset > 2").alias("b"), "offset")
    assert offsets(pair) == [3, 4]


def test_a_limit_is_kept(read: Read, bucket: Bucket) -> None:
    """A plan that ends too early would give too few rows; one too late, too many."""
    frame = read(bucket.root, subscribe="orders")
    assert "limit=7" in executed(frame.limit(7))
    for limit in (0, 1, 7, 59, 60, 1000):
        assert len(frame.limit(limit).collect()) == min(limit, 60)
    assert frame.filter("offset > 30").limit(100).count() == 29
    assert frame.filter("value != X'3331'").limit(100).count() == 59


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM records",
        "SELECT min(offset), max(offset) FROM records",
        "SELECT count(*), min(timestamp), max(timestamp), max(offset) FROM records",
        "SELECT topic, count(*), max(timestamp) FROM records GROUP BY topic ORDER BY 1",
        "SELECT topic, partition, count(offset), min(offset) FROM records GROUP BY topic, partition ORDER BY 1, 2",
        "SELECT partition, topic, max(offset) FROM records GROUP BY partition, topic ORDER BY 1, 2",
        "SELECT DISTINCT topic FROM records ORDER BY 1",
        "SELECT count(*), max(timestamp) FROM records WHERE offset >= 7 AND offset < 993",
        "SELECT count(*), min(offset) FROM records WHERE timestamp >= timestamp_millis(1700000000501)",
        "SELECT count(*), min(offset) FROM records WHERE topic = 'views'",
        "SELECT topic, count(*) FROM records WHERE topic = 'views' GROUP BY topic",
        "SELECT partition, count(*) FROM records WHERE topic = 'clicks' GROUP BY 1 HAVING count(*) > 5 ORDER BY 1",
    ],
)
def test_aggregates_without_records(
    jar_spark: SparkSession, read: Read, topics: pathlib.Path, topics_by_python: DataFrame, query: str
) -> None:
    """A count that is not exact is worse than a slow one: it is compared to that of the records."""
    read(topics, subscribe="orders,clicks", maxBytesPerPartition="1m").createOrReplaceTempView("records")
    frame = jar_spark.sql(query)
    plan = executed(frame)
    assert "from headers" in plan or "LocalTableScan" in plan
    found = frame.collect()
    topics_by_python.createOrReplaceTempView("records")
    assert found == jar_spark.sql(query).collect()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(value), avg(offset), count(DISTINCT topic) FROM records",
        "SELECT count(*) FROM records WHERE `offset` IN (3, 9)",
        "SELECT timestampType, count(*) FROM records GROUP BY timestampType",
        "SELECT sum(length(value)) FROM records",
        "SELECT max(offset + 1) FROM records",
    ],
)
def test_other_aggregates_read_the_records(
    jar_spark: SparkSession, read: Read, topics: pathlib.Path, topics_by_python: DataFrame, query: str
) -> None:
    """What headers do not say has to be read, not guessed."""
    read(topics, subscribe="orders").createOrReplaceTempView("records")
    frame = jar_spark.sql(query)
    assert "from headers" not in executed(frame)
    found = frame.collect()
    topics_by_python.filter("topic = 'orders'").createOrReplaceTempView("records")
    assert found == jar_spark.sql(query).collect()


def test_a_join_prunes_topics(jar_spark: SparkSession, read: Read, tmp_path: pathlib.Path) -> None:
    """A join that leaves three of a thousand topics must not read them all: here the other is not there any more."""
    made = [Bucket(tmp_path, topic=topic) for topic in ("orders", "clicks")]
    for bucket in made:
        bucket.segment("s0", batches(0), lineage={0: 0})
    frame = read(tmp_path, subscribe="orders,clicks")
    made[1].path("s0", "log").unlink()
    rows = jar_spark.createDataFrame([("orders", "x"), ("views", "y")], "topic string, name string")
    joined = frame.join(rows.filter("name = 'x'").hint("broadcast"), "topic")
    assert "dynamicpruning" in executed(joined)
    assert offsets(joined) == [*range(20)]


@pytest.fixture
def bucketing(jar_spark: SparkSession) -> Iterator[None]:
    jar_spark.conf.set("spark.sql.sources.v2.bucketing.enabled", "true")
    yield
    jar_spark.conf.unset("spark.sql.sources.v2.bucketing.enabled")


@pytest.mark.usefixtures("bucketing")
def test_partitioning_is_reported_where_asked(read: Read, topics: pathlib.Path) -> None:
    """Grouping by partition needs no shuffle then; unasked it would make one task a Kafka partition."""
    options = {"subscribe": "orders", "maxBytesPerPartition": "1m"}
    for reported in (True, False):
        frame = read(topics, reportPartitioning=str(reported).lower(), **options)
        grouped = frame.groupBy("topic", "partition").agg({"value": "max", "offset": "sum"})
        assert ("Exchange" not in executed(grouped)) is reported
        rows = sorted((row["partition"], row["sum(offset)"]) for row in grouped.collect())
        assert rows == [(0, 499_500), (1, 499_500)]


def test_sizes_reach_the_optimizer(read: Read, topics: pathlib.Path) -> None:
    """A topic of a few MB is broadcast in a join; without sizes it is shuffled."""
    frame = read(topics, subscribe="orders")
    size = int(frame.select("offset")._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    assert 1000 * 8 <= size <= 2000 * 64
    whole = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    assert 8_000_000 < whole < 9_000_000


def metrics_of(frame: DataFrame, *names: str) -> dict[str, int]:
    """Of the scan of a query that was run."""
    scan = frame._jdf.queryExecution().executedPlan()
    while scan.nodeName() != "BatchScan tierlog":
        scan = scan.children().head()
    return {name: scan.metrics().apply(name).value() for name in names}


def append_time_batch(number: int) -> bytes:
    """A record of 64 kB, appended in second ``number``."""
    record = encode_record(offset_delta=0, timestamp_delta=0, key=None, value=bytes(64_000))
    stamp = 1_700_000_000_000 + 1000 * number
    return encode_batch(
        base_offset=number,
        records=record,
        record_count=1,
        last_offset_delta=0,
        base_timestamp=stamp,
        max_timestamp=stamp,
        attributes=8,
    )


def test_an_end_in_time_reads_headers_alone(read: Read, tmp_path: pathlib.Path) -> None:
    """No index says where a time ends: without headers everything behind it would be read."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = b"".join(append_time_batch(number) for number in range(100))
    (folder / f"{0:020}.log").write_bytes(log)
    frame = read(tmp_path, subscribe="orders").filter("timestamp < timestamp_seconds(1700000010)").select("offset")
    assert [row[0] for row in frame.collect()] == [*range(10)]
    found = metrics_of(frame, "tierlogBytesFetched", "tierlogBatchesSkipped")
    assert found["tierlogBytesFetched"] < len(log) * 0.2
    assert found["tierlogBatchesSkipped"] == 90


def test_the_ui_shows_what_was_read(jar_spark: SparkSession, read: Read, bucket: Bucket) -> None:
    """Bytes fetched are what a bucket's bill counts."""
    frame = read(bucket.root, subscribe="orders").filter("offset >= 20")
    frame.collect()
    metrics = metrics_of(frame, "tierlogBytesFetched", "tierlogRequests", "tierlogCrcTime")
    logs = sum(bucket.path(name, "log").stat().st_size for name in ("s20", "s40"))
    assert metrics["tierlogBytesFetched"] == logs
    assert 0 < metrics["tierlogRequests"] <= 4
    assert 0 < metrics["tierlogCrcTime"] < 1_000_000_000, "nanoseconds"
