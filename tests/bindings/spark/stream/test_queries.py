"""Streaming queries through Spark, by both engines: each record once, whatever ends the query and goes on with it."""

from __future__ import annotations

import ast
import json
import pathlib
import re
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.bindings.spark.conftest import ENGINES, batches
from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.checkout import ROOT
from tests.support.command import run_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Run = Callable[..., "StreamingQuery"]
WAIT_SECONDS = 60


@pytest.fixture
def run(spark: SparkSession, engine: str, bucket: Bucket, tmp_path: pathlib.Path) -> Run:
    """Runs a query over the bucket to its end, into ``out``."""

    def start(**given: str) -> StreamingQuery:
        query = started(spark, bucket.root, tmp_path, **{"engine": engine} | given)
        assert query.awaitTermination(WAIT_SECONDS)
        return query

    return start


def stream(spark: SparkSession, path: pathlib.Path, **given: str) -> DataFrame:
    options = {"subscribe": "orders", "startingOffsets": "earliest"} | given
    return spark.readStream.format("tierlog").options(**options).load(str(path))


def started(spark: SparkSession, path: pathlib.Path, work: pathlib.Path, **given: str) -> StreamingQuery:
    writing = stream(spark, path, **given).writeStream.format("parquet").option("path", str(work / "out"))
    return writing.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()


def rows(spark: SparkSession, work: pathlib.Path) -> list[tuple[int, int, str]]:
    found = spark.read.parquet(str(work / "out")).selectExpr("partition", "offset", "string(value) AS value")
    return sorted((row.partition, row.offset, row.value) for row in found.collect())


def wanted(*ends: int) -> list[tuple[int, int, str]]:
    return [(partition, offset, str(offset)) for partition, end in enumerate(ends) for offset in range(end)]


def test_a_bucket_that_grows(spark: SparkSession, run: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a query that goes on has records twice, or lacks those of new segments or partitions."""
    run()
    assert rows(spark, tmp_path) == wanted(60)
    bucket.segment("s60", batches(60), lineage={0: 0})
    Bucket(bucket.root, partition=1).segment("p0", batches(0), lineage={0: 0})
    run()
    assert rows(spark, tmp_path) == wanted(80, 20)
    run()
    assert rows(spark, tmp_path) == wanted(80, 20)


def test_a_batch_is_tried_again_behind_a_new_partition(
    spark: SparkSession, run: Run, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a query that was killed before a partition came never begins again (SPARK-53560)."""
    run()
    bucket.segment("s60", batches(60), lineage={0: 0})
    run()
    for log in ("checkpoint/commits", "out/_spark_metadata"):
        for name in ("1", ".1.crc"):
            (tmp_path / log / name).unlink()
    Bucket(bucket.root, partition=1).segment("p0", batches(0), lineage={0: 0})
    run()
    assert rows(spark, tmp_path) == wanted(80, 20)


def test_batches_are_limited(spark: SparkSession, run: Run, engine: str, tmp_path: pathlib.Path) -> None:
    """If this fails, the first batch over a year of history is all of it, and fills the cluster."""
    if engine == "python" and spark.version < "4.2":
        with pytest.raises(Exception, match=r"need the jar or Spark 4\.2"):
            run(maxOffsetsPerTrigger="25")
        return
    query = run(maxOffsetsPerTrigger="25")
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert counts == [25, 25, 10]
    assert rows(spark, tmp_path) == wanted(60)
    sources = [progress["sources"][0] for progress in query.recentProgress if progress["numInputRows"]]
    ends = [each["latestOffset"] for each in sources]
    assert [json.loads(end) if isinstance(end, str) else end for end in ends] == [{"orders": {"0": 60}}] * 3
    if engine == "jar":
        assert [each["metrics"]["maxOffsetsBehindLatest"] for each in sources] == ["35", "10", "0"]


def test_each_engine_goes_on_for_the_other(with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a query begins anew, or not at all, when its cluster gets the jar, or loses it."""
    for number, engine in enumerate((*ENGINES, *ENGINES)):
        query = started(with_jar, bucket.root, tmp_path, engine=engine)
        assert query.awaitTermination(WAIT_SECONDS)
        assert rows(with_jar, tmp_path) == wanted(60 + 20 * number)
        first = 60 + 20 * number
        bucket.segment(f"s{first}", batches(first), lineage={0: 0})


def test_another_layout_goes_on(
    spark: SparkSession, engine: str, run: Run, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a bucket that was copied into another layout takes a new query, which has all of it again."""
    run()
    bucket.segment("s60", batches(60), lineage={0: 0})
    other, config = tmp_path / "other", tmp_path / "other.properties"
    config.write_text("rsm.config.layout=kafka\n")
    done = run_process("copy", bucket.root, other, "--dest-config", config)
    assert done.code == 0, done.err
    assert started(spark, other, tmp_path, engine=engine).awaitTermination(WAIT_SECONDS)
    assert rows(spark, tmp_path) == wanted(80)


def test_two_queries_on_one_checkpoint(
    spark: SparkSession, engine: str, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a query that is started twice by mistake has records twice. The second one ends the first."""

    def begun() -> StreamingQuery:
        writing = stream(spark, bucket.root, engine=engine, refreshInterval="100ms").writeStream.format("parquet")
        writing = writing.option("path", str(tmp_path / "out"))
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writing.trigger(processingTime="100 milliseconds").start()

    first = begun()
    _until(lambda: _last_offset(first) == 60, first)
    second = begun()
    try:
        bucket.segment("s60", batches(60), lineage={0: 0})
        _until(lambda: _last_offset(second) == 80, second)
        assert not first.isActive
    finally:
        first.stop()
        second.stop()
    assert rows(spark, tmp_path) == wanted(80)


def test_a_query_that_runs(spark: SparkSession, engine: str, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, new records of a topic never reach a query that waits for them, or its lag is not known."""
    writing = stream(spark, bucket.root, engine=engine, refreshInterval="100ms").writeStream.format("parquet")
    writing = writing.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.trigger(processingTime="100 milliseconds").start()
    try:
        for end in (60, 80, 100):
            _until(lambda end=end: _last_offset(query) == end, query)
            bucket.segment(f"s{end}", batches(end), lineage={0: 0})
        _until(lambda: _last_offset(query) == 120, query)
        if engine == "jar":
            source = query.lastProgress["sources"][0]
            assert source["metrics"]["maxOffsetsBehindLatest"] == "0"
            assert source["description"].startswith("tierlog engine=jar")
    finally:
        query.stop()
    assert rows(spark, tmp_path) == wanted(120)


def _last_offset(query: StreamingQuery) -> int:
    progress = query.lastProgress
    end = None if progress is None else progress["sources"][0]["endOffset"]
    found: Any = ast.literal_eval(end) if isinstance(end, str) else end  # Spark 4.0 and 4.1 give the text of a dict
    return found["orders"]["0"] if found else -1


def _until(holds: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def test_where_it_begins_is_kept(spark: SparkSession, run: Run, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a query that was killed in its first batch begins where the topic ends by then."""
    run(startingOffsets="latest")
    bucket.segment("s60", batches(60), lineage={0: 0})
    run(startingOffsets="latest")
    assert rows(spark, tmp_path) == [(0, offset, str(offset)) for offset in range(60, 80)]


def test_a_first_batch_that_was_not_committed(
    spark: SparkSession, run: Run, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a query that was killed in its first batch is stuck as soon as its tier has grown."""
    run(startingOffsets="latest")
    for folder in ("checkpoint/commits", "out"):
        shutil.rmtree(tmp_path / folder)
    bucket.segment("s60", batches(60), lineage={0: 0})
    run(startingOffsets="latest")
    run(startingOffsets="latest")  # of Spark 4.0 and 4.1 AvailableNow is one batch
    assert rows(spark, tmp_path) == [(0, offset, str(offset)) for offset in range(60, 80)]


def test_the_checkpoint_is_that_of_the_kafka_source(
    with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a query of Spark's Kafka source cannot go on over the tier, nor the other way round."""
    query = started(with_jar, bucket.root, tmp_path, engine="jar")
    assert query.awaitTermination(WAIT_SECONDS)
    source = tmp_path / "checkpoint" / "sources" / "0"
    assert (source / "0").read_bytes() == b'\0v1\n{"orders":{"0":0}}'
    kept = {"topicIds": {"orders": bucket.topic_id}, "read": [["orders", 0, 59, 0]]}
    assert json.loads((source / "tierlog-topics").read_text()) == kept
    offsets = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    assert offsets[-1] == '{"orders":{"0":60}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"orders": "AAAAAAAAAAAAAAAAAAAAAQ"}',
        '{"topicIds": null, "read": []}',
        '{"topicIds": {"orders": null}, "read": []}',
        '{"topicIds": {}, "read": {}}',
        '{"topicIds": {}}',
        '{"topicIds": {}, "read": [["orders", 0, 59]]}',
        '{"topicIds": {}, "read": [["orders", "0", 59, 0]]}',
        '{"topicIds": {}, "read": [["orders", 0, 9223372036854775808, 0]]}',
    ],
)
def test_a_file_of_something_else(with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path, text: str) -> None:
    """If this fails, a checkpoint that was damaged ends a query with an error that names no file, or reads on."""
    source = tmp_path / "checkpoint" / "sources" / "0"
    source.mkdir(parents=True)
    (source / "tierlog-topics").write_text(text)
    with pytest.raises(Exception, match="tierlog-topics has no topics of a query"):
        started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)


def test_the_checkpoint_is_reached_by_the_sessions_settings(
    with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a query does not begin where keys of the checkpoint's store were set by ``spark.conf.set``."""
    with_jar.conf.set("fs.permissions.umask-mode", "077")
    try:
        assert started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)
    finally:
        with_jar.conf.unset("fs.permissions.umask-mode")
    files = [each for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert {each.name for each in files} > {"0", "tierlog-topics"}
    assert {oct(each.stat().st_mode & 0o777) for each in files} == {"0o600"}


def test_a_checkpoint_whose_store_has_no_file_context(
    with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    """If this fails, a query does not begin where Spark itself goes on by Hadoop's other interface (``fs.gs.impl``)."""
    hadoop, key = with_jar.sparkContext._jsc.hadoopConfiguration(), "fs.AbstractFileSystem.file.impl"
    known = hadoop.get(key)
    hadoop.unset(key)
    try:
        for count in (60, 80):
            assert started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)
            assert rows(with_jar, tmp_path) == wanted(count)
            kept = json.loads((tmp_path / "checkpoint" / "sources" / "0" / "tierlog-topics").read_text())
            assert kept["read"] == [["orders", 0, count - 1, 0]]
            bucket.segment(f"s{count}", batches(count), lineage={0: 0})
    finally:
        hadoop.set(key, known)


def test_a_log_that_lost_what_was_read(with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a query goes on behind an unclean election as if it had read what the log has now."""
    assert started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)
    shutil.rmtree(bucket.root)
    led = [message(offset, str(offset), 1 if offset >= 50 else 0) for offset in range(80)]
    Bucket(bucket.root).segment("led", led, lineage={0: 0, 1: 50})
    with pytest.raises(Exception, match="offset 59 was read as of leader epoch 0, and is of 1"):
        started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)
    query = started(with_jar, bucket.root, tmp_path, engine="jar", failOnDataLoss="false")
    assert query.awaitTermination(WAIT_SECONDS)
    assert rows(with_jar, tmp_path) == wanted(80)


def test_a_topic_that_was_made_anew(with_jar: SparkSession, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a query goes on in another topic of the same name, behind records that it never read."""
    assert started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)
    shutil.rmtree(bucket.root)
    again = Bucket(bucket.root, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    for first in range(0, 100, 20):
        again.segment(f"s{first}", batches(first), lineage={0: 0})
    with pytest.raises(Exception, match="topic orders was deleted and made anew"):
        started(with_jar, bucket.root, tmp_path, engine="jar").awaitTermination(WAIT_SECONDS)
    assert rows(with_jar, tmp_path) == wanted(60)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is not valid in a streaming query"),
        ({"subscribe": "order"}, "no topic order; there are: orders"),
        ({"startingOffsets": '{"orders":{"0":77}}'}, "the starting offset is 77"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line(run: Run, given: dict[str, str], text: str) -> None:
    """If this fails, a user reads a traceback of Spark's in place of what to change."""
    with pytest.raises(Exception, match="Error") as caught:
        run(**given)
    assert text in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_table_of_the_catalog(spark: SparkSession, engine: str, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a table that can be read cannot be followed."""
    options = f"OPTIONS (path '{bucket.root}', subscribe 'orders', engine '{engine}', startingOffsets 'earliest')"
    spark.sql(f"CREATE TABLE followed USING tierlog {options}")
    writing = spark.readStream.table("followed").writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS)
    assert rows(spark, tmp_path) == wanted(60)


def test_the_lines_of_the_page_run(spark: SparkSession, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """The lines of the README that follow a topic into a table."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = next(block for block in blocks if "readStream" in block)
    for said, meant in {"s3://tier-bucket/prefix": str(bucket.root), "/data/checkpoint": str(tmp_path / "c")}.items():
        assert said in code
        code = code.replace(said, meant)
    exec(compile(code, "README.md", "exec"), {"spark": spark})  # the page's own code
    assert spark.table("orders_history").count() == 60
