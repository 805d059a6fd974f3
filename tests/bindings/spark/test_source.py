"""The data source in a real Spark session: found by name, equal to what real consumers got, in every form of asking."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING

import pytest

from pyspark_tierlog import DefaultSource
from pyspark_tierlog.options.catalog_tables import table_options
from tests.bindings.spark.conftest import Read, in_milliseconds
from tests.conftest import DATA, FIXTURES
from tests.support.fault_proxy import FaultProxy
from tests.support.golden import (
    ROW_COLUMNS,
    Case,
    Row,
    answers,
    config_of,
    consumed,
    list_offsets,
    log_folders,
    rows_of,
    tiered_topics,
)
from tests.support.kip_scripts import SCRIPTS
from tests.support.servers import StoreServer
from tests.support.spark_driver import need_store_client
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ISOLATIONS = ("read_uncommitted", "read_committed")
FULL = FIXTURES if (FIXTURES / "README.md").is_file() else None
TXN = DATA / "main-plain" / "objects"


def options_of(run: pathlib.Path) -> dict[str, str]:
    """A run's keys as Spark options, every other one in its short form."""
    keys = sorted(config_of(run).items())
    short = {key.replace("rsm.config.", "rsm."): value for key, value in keys[::2]}
    return short | dict(keys[1::2])


def rows(frame: DataFrame) -> list[Row]:
    return sorted(rows_of(in_milliseconds(frame.select(*ROW_COLUMNS).toArrow())))


def check_bucket(read: Read, case: Case, isolation: str) -> None:
    wanted = answers(case, isolation)
    if wanted is None:
        pytest.skip(f"no answers for {case}")
    options = options_of(case.run) | {"subscribe": case.topic, "kafka.isolation.level": isolation}
    assert rows(read(case.objects, columns=",".join(ROW_COLUMNS), **options)) == wanted


@pytest.mark.few(8)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("case", [*tiered_topics(DATA)], ids=str)
def test_a_bucket_reads_as_a_consumer_read_it(read: Read, case: Case, isolation: str) -> None:
    """Rows would be missing, repeated or wrong through Spark, though the command line has them right."""
    check_bucket(read, case, isolation)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("case", [*tiered_topics(FULL)] if FULL else [], ids=str)
def test_every_bucket_reads_as_a_consumer_read_it(read: Read, case: Case, isolation: str) -> None:
    """The same over all golden data."""
    check_bucket(read, case, isolation)


@pytest.mark.few(3)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_of_the_kip(read: Read, tmp_path: pathlib.Path, script: str) -> None:
    """After a failover Spark would count records twice, or count those that the cluster had given up."""
    wanted = SCRIPTS[script](tmp_path)
    found = read(tmp_path, subscribe="orders", columns="offset,value,leaderEpoch").sort("offset").collect()
    assert [(row.offset, bytes(row.value).decode(), row.leaderEpoch) for row in found] == wanted


@pytest.mark.both_engines
def test_keys_from_a_file(read: Read, tmp_path: pathlib.Path) -> None:
    """The way to keep keys out of plans and event logs."""
    run = DATA / "zstd-aes"
    keys = tmp_path / "broker.properties"
    keys.write_text("".join(f"{key}={value}\n" for key, value in config_of(run).items()))
    frame = read(run / "objects", subscribe="fx-zstd-a-json", **{"rsm.config.file": str(keys)})
    assert frame.count() == 735


def check_log_directory(read: Read, folder: pathlib.Path, topic: str, isolation: str) -> None:
    run = next(parent for parent in folder.parents if (parent / "topics.json").exists())
    wanted = consumed(run, topic, isolation)
    assert wanted is not None
    here = {int(path.name.rpartition("-")[2]) for path in folder.glob(f"{topic}-*") if path.is_dir()}
    frame = read(folder, subscribe=topic, columns=",".join(ROW_COLUMNS), **{"kafka.isolation.level": isolation})
    assert rows(frame) == [row for row in wanted if row[0] in here]


@pytest.mark.parametrize(("folder", "topic"), [*log_folders(DATA)][:2], ids=lambda value: str(value)[-24:])
@pytest.mark.both_engines
def test_a_log_directory_reads_as_a_consumer_read_it(read: Read, folder: pathlib.Path, topic: str) -> None:
    """A broker's disk is a source too; its active segment grows."""
    check_log_directory(read, folder, topic, "read_committed")


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("folder", "topic"), [*log_folders(FULL)] if FULL else [], ids=lambda value: str(value)[-24:])
def test_every_log_directory_reads_as_a_consumer_read_it(
    read: Read, folder: pathlib.Path, topic: str, isolation: str
) -> None:
    """The same over all golden data."""
    check_log_directory(read, folder, topic, isolation)


def test_the_name_is_found_without_registration(spark: SparkSession, read: Read) -> None:
    """A user who has to register a class by hand first will not find this source at all."""
    frame = read(TXN, subscribe="fx-txn", includeHeaders="true")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert all(field.nullable for field in frame.schema.fields)
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_registering_by_hand_does_no_harm(spark: SparkSession, read: Read) -> None:
    """Notebooks do it out of habit; Spark 4.0 refuses it once the package was found."""
    if spark.version < "4.1":
        pytest.skip("Spark 4.0 refuses a name that it found itself")
    before = read(TXN, subscribe="fx-txn").count()
    spark.dataSource.register(DefaultSource)
    assert read(TXN, subscribe="fx-txn").count() == before


def test_a_jar_that_is_not_there_is_asked_for() -> None:
    """The other path would be taken, and a user who measures it would never learn why it is slow."""
    with pytest.raises(ConfigError, match="jar was asked for"):
        DefaultSource({"path": str(TXN), "subscribe": "fx-txn", "engine": "jar"})


def test_who_reads_is_told_without_the_jar(caplog: pytest.LogCaptureFixture) -> None:
    """Spark lets no Python source write into explain(): the slow path would look like all that there is."""
    DefaultSource({"path": str(TXN), "subscribe": "fx-txn"})
    (line,) = caplog.messages
    assert line.startswith("tierlog: Python workers read, (Python) in explain(): Spark has no tierlog jar on its class")
    caplog.clear()
    DefaultSource({"path": str(TXN), "subscribe": "fx-txn", "engine": "python"})
    DefaultSource({"path": str(TXN), "subscribe": "fx-txn", "table": "segments"})
    assert caplog.messages == []


def test_load_lists_the_bucket_once(read: Read, engine: str, s3: StoreServer, data: pathlib.Path) -> None:
    """Each load() would pay several round trips to the store, and see the bucket at several times."""
    if engine == "jar":
        need_store_client()
    path = s3.upload(data / "main-plain" / "objects", f"lists-once-{engine}")
    with FaultProxy.before(s3) as proxy:
        frame = read(path, subscribe="fx-txn", **{**s3.options, "store.endpoint": proxy.endpoint})
        assert frame.count() == read(TXN, subscribe="fx-txn").count()
        lists = [seen.query for seen in proxy.seen if "list-type" in seen.query]
    assert len(lists) == 1, lists


def test_who_reads_is_told_once_a_session(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A notebook would show the same four lines under each cell that loads; other sessions would not be told."""
    for session in ("blockmgr-1", "blockmgr-2"):
        (tmp_path / session).mkdir()
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / session},{tmp_path / 'other'}")  # as Spark sets it
        for _ in range(3):
            DefaultSource({"path": str(TXN), "subscribe": "fx-txn"})
        (line,) = caplog.messages
        assert "pyspark_tierlog.enable(spark)" in line or "nor has this install" in line
        caplog.clear()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))  # a cluster's setting, which outlives the application
    for _ in range(2):
        DefaultSource({"path": str(TXN), "subscribe": "fx-txn"})
    assert len(caplog.messages) == 2


def test_sql_view(spark: SparkSession, read: Read, engine: str) -> None:
    """SQL users have no DataFrameReader."""
    options = f"path '{TXN}', subscribe 'fx-txn', engine '{engine}'"
    spark.sql(f"CREATE TEMPORARY VIEW txn USING tierlog OPTIONS ({options})")
    assert spark.sql("SELECT count(*) AS n FROM txn").head().n == read(TXN, subscribe="fx-txn").count()


def test_sql_table_of_the_catalog(spark: SparkSession, read: Read, engine: str) -> None:
    """Spark forgets the options of a table on every query; the table would be there and never readable."""
    options = f"path '{TXN}', subscribe 'fx-txn', engine '{engine}', columns 'offset,value'"
    spark.sql(f"CREATE TABLE txn USING tierlog OPTIONS ({options})")
    assert spark.table("txn").columns == ["offset", "value"]
    assert spark.sql("SELECT value FROM txn").count() == read(TXN, subscribe="fx-txn").count()
    assert spark.sql('SELECT offset FROM txn WITH (startingOffsets=\'{"fx-txn":{"0":1500}}\')').count() > 0


def test_sql_table_that_cannot_remember(spark: SparkSession, engine: str) -> None:
    """With columns of its own Spark asks us nothing when it is created, and tells us nothing when it is read."""
    options = f"path '{TXN}', subscribe 'fx-txn', engine '{engine}'"
    spark.sql(f"CREATE TABLE txn (value BINARY) USING tierlog OPTIONS ({options})")
    with pytest.raises(Exception, match="leave its list of columns out, or use CREATE TEMPORARY VIEW"):
        spark.table("txn").count()
    with pytest.raises(Exception, match="option path is missing"):
        spark.sql("CREATE TABLE nothing USING tierlog OPTIONS (subscribe 'fx-txn')")


def test_secrets_do_not_enter_the_catalog(spark: SparkSession, engine: str) -> None:
    """Table properties are readable by every user of the catalog."""
    with pytest.raises(Exception, match=r"rsm\.config\.file") as caught:
        spark.sql(
            f"CREATE TABLE txn USING tierlog OPTIONS (path '{TXN}', subscribe 'fx-txn', engine '{engine}', "
            "`store.secret_access_key` 'hunter2hunter2')"
        )
    assert "hunter2hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("kafka.sasl.jaas.config", True),
        ("kafka.ssl.keystore.password", True),
        ("kafka.ssl.keystore.key", True),
        ("kafka.sasl.oauthbearer.client.credentials.client.secret", True),
        ("kafka.sasl.mechanism", False),
        ("kafka.ssl.keystore.location", False),
    ],
)
def test_secrets_of_kafkas_clients_do_not_enter_the_catalog(key: str, *, is_secret: bool) -> None:
    """A table with a mode that asks brokers has them among its options, and its schema would show them."""
    given = {"provider": "tierlog", "option.path": "/x", f"option.{key}": "hunter2"}
    if not is_secret:
        assert table_options(given) == {"path": "/x", key: "hunter2"}
        return
    with pytest.raises(ConfigError, match="CREATE TEMPORARY VIEW") as caught:
        table_options(given)
    assert key in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_several_paths_are_one_frame(spark: SparkSession, read: Read, engine: str) -> None:
    """A cluster's tiers, or old and new bucket, are read together by load([a, b])."""
    other = DATA / "local-tiered" / "objects"
    both = spark.read.format("tierlog").option("subscribePattern", "fx-.*").option("engine", engine)
    both = both.load([str(TXN), str(other)])
    counts = {row.topic: row["count"] for row in both.groupBy("topic").count().collect()}
    assert counts["fx-txn"] == read(TXN, subscribe="fx-txn").count()
    assert counts["fx-local-txn"] == read(other, subscribe="fx-local-txn").count()


@pytest.mark.both_engines
def test_columns_and_a_given_schema_choose_and_order(spark: SparkSession, read: Read, engine: str) -> None:
    """Spark's Python sources get no column pruning: there this is the only way not to ship every payload."""
    chosen = read(TXN, subscribe="fx-txn", columns="segment, leaderEpoch,offset")
    assert chosen.columns == ["segment", "leaderEpoch", "offset"]
    source = spark.read.format("tierlog").option("subscribe", "fx-txn").option("engine", engine)
    frame = source.schema("offset LONG NOT NULL, topic STRING").load(str(TXN))
    assert frame.columns == ["offset", "topic"]
    assert {row.topic for row in frame.collect()} == {"fx-txn"}
    assert sorted(row.offset for row in frame.collect()) == sorted(row.offset for row in chosen.collect())
    with pytest.raises(Exception, match="column offset is bigint, the given schema says int"):
        source.schema("offset INT").load(str(TXN)).count()


@pytest.mark.both_engines
def test_null_in_a_not_null_column_fails(spark: SparkSession, engine: str) -> None:
    """Spark would read something else in its place, without an error."""
    frame = spark.read.schema("key BINARY NOT NULL").format("tierlog").option("subscribe", "fx-local-json")
    frame = frame.option("engine", engine)
    with pytest.raises(Exception, match="column key is NOT NULL in the given schema, and holds nulls"):
        frame.load(str(DATA / "local-tiered" / "objects")).collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "fx-txn", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "fx-txn", "assign": '{"fx-txn":[0]}'}, "exactly one of"),
        ({}, "exactly one of"),
        ({"subscribe": "fx-txn", "columns": "offset,keys"}, "did you mean 'key'"),
    ],
)
def test_wrong_options_fail_in_load(read: Read, options: dict[str, str], text: str) -> None:
    """An error that comes with the first action comes after a night's queue."""
    with pytest.raises(Exception, match=text):
        read(TXN, **options)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("path", "options", "text"),
    [
        (TXN, {"subscribe": "fx-none"}, "no topic fx-none; there are: fx-epochs, fx-lso, fx-txn"),
        (TXN, {"assign": '{"fx-txn":[0,7]}'}, r"topic fx-txn has no segments of partitions \[7\]"),
        (DATA / "nowhere", {"subscribe": "a"}, "nowhere: No such file"),
        (TXN, {"subscribe": "fx-txn", "startingOffsets": '{"fx-txn":{"1":0}}'}, "fx-txn"),
        (TXN, {"subscribe": "fx-txn", "endingOffsets": '{"fx-txn":{"0":99999999}}'}, "99999999"),
        (DATA / "zstd-aes" / "objects", {"subscribe": "fx-zstd-a-json"}, "k1"),
    ],
)
def test_what_is_not_there_is_named(read: Read, path: pathlib.Path, options: dict[str, str], text: str) -> None:
    """An empty DataFrame in place of an error is taken for an answer."""
    with pytest.raises(Exception, match=text):
        read(path, **options).count()


def test_a_pattern_is_javas(read: Read) -> None:
    """A job that moves here from the Kafka source would read other topics in silence."""
    for pattern, topics in ((r"-\p{Alpha}{3}$", {"fx-txn", "fx-lso"}), ("epoch", {"fx-epochs"}), ("^txn$", set())):
        frame = read(TXN, subscribePattern=pattern, columns="topic")
        assert {row.topic for row in frame.distinct().collect()} == topics
    with pytest.raises(Exception, match=r"option subscribePattern: .*the flag x"):
        read(TXN, subscribePattern="(?x)txn")


@pytest.mark.both_engines
def test_offsets_bound_the_read(read: Read) -> None:
    """StartingOffsets are inclusive, endingOffsets exclusive: one off is one record lost for each run of a job."""
    frame = read(TXN, subscribe="fx-txn", startingOffsets='{"fx-txn":{"0":300}}', endingOffsets='{"fx-txn":{"0":320}}')
    wanted = [row.offset for row in read(TXN, subscribe="fx-txn").collect() if 300 <= row.offset < 320]
    assert [row.offset for row in frame.sort("offset").collect()] == wanted


@pytest.mark.both_engines
def test_timestamps_bound_the_read_as_the_broker_answers(read: Read) -> None:
    """OffsetsForTimes decides in Kafka's source; a filter by time would give other rows with unordered timestamps."""
    case = next(case for case in tiered_topics(DATA) if case.topic == "fx-epochs")
    known = {q.partition(":")[2]: a for q, a in list_offsets(case)[0].items() if q.startswith("ts:")}
    asked = [(int(ms), answer["offset"]) for ms, answer in known.items() if 0 <= answer.get("offset", -1) <= 2200]
    asked = [asked[0], asked[len(asked) // 2], asked[-1]]
    total = [row[1] for row in answers(case, "read_uncommitted") or ()]
    for timestamp, offset in asked:
        frame = read(TXN, subscribe="fx-epochs", startingTimestamp=str(timestamp), columns="offset")
        assert sorted(row.offset for row in frame.collect()) == [o for o in total if o >= offset]


def test_log_start_offset_cuts(read: Read) -> None:
    """What DeleteRecords removed is still in the bucket and must not come back."""
    frame = read(TXN, subscribe="fx-txn", logStartOffset='{"fx-txn":{"0":500}}', columns="offset")
    assert min(row.offset for row in frame.collect()) == 500


def test_tasks_are_as_many_as_asked_for(read: Read) -> None:
    """MinPartitions is how a user of Kafka's source fills a cluster."""
    small = read(TXN, subscribe="fx-txn", maxBytesPerPartition="64k")
    assert small.rdd.getNumPartitions() > 3
    assert read(TXN, subscribe="fx-txn").rdd.getNumPartitions() == 1
    assert read(TXN, subscribe="fx-txn", minPartitions="4").rdd.getNumPartitions() >= 4
    capped = read(TXN, subscribe="fx-txn", maxRecordsPerPartition="100", columns="offset")
    sizes = capped.rdd.mapPartitions(lambda part: [sum(1 for _ in part)]).collect()
    assert max(sizes) <= 100
    assert sum(sizes) == read(TXN, subscribe="fx-txn").count()


def test_more_tasks_than_the_index_divides(read: Read) -> None:
    """A cluster of a hundred cores works with thirteen of them; the Kafka source gives it all that there is."""
    batches = read(TXN, subscribe="fx-txn", table="batches").count()
    frame = read(TXN, subscribe="fx-txn", minPartitions="99999", columns="offset")
    assert frame.rdd.getNumPartitions() == batches
    assert sorted(row.offset for row in frame.collect()) == sorted(
        row.offset for row in read(TXN, subscribe="fx-txn", columns="offset").collect()
    )


@pytest.mark.both_engines
def test_records_of_the_oldest_formats(read: Read, data: pathlib.Path) -> None:
    """Magic 0 has no timestamp: -1 ms and type -1, as Kafka's source gives it."""
    folder = data / "record-v0-v1"
    name = "v0-lz4"
    frame = read(folder / f"{name}.log", subscribePattern=".*", columns="offset,timestamp,timestampType")
    (pair,) = frame.selectExpr("unix_millis(timestamp) AS ms", "timestampType AS type").distinct().collect()
    assert (pair.ms, pair.type) == (-1, -1)
    wanted = [json.loads(line)["offset"] for line in (folder / f"{name}.records.jsonl").read_text().splitlines()]
    assert sorted(row.offset for row in frame.collect()) == wanted


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_writing_is_refused_in_words(
    spark: SparkSession, read: Read, engine: str, mode: str, tmp_path: pathlib.Path
) -> None:
    """A user who writes would read which option a reader lacks, one after the other, and at last: not implemented."""
    frame = read(TXN, subscribe="fx-txn")
    batch = frame.write.format("tierlog").mode(mode).option("engine", engine)
    for writing in (batch, batch.option("path", str(tmp_path))):
        with pytest.raises(Exception, match="tierlog only reads") as caught:
            writing.save()
        assert "Traceback" not in str(caught.value)
    ticks = spark.readStream.format("rate").load().writeStream.format("tierlog").option("engine", engine)
    with pytest.raises(Exception, match="tierlog only reads") as caught:
        ticks.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)
    assert "Traceback" not in str(caught.value)


def test_rows_are_written_elsewhere(spark: SparkSession, read: Read, engine: str, tmp_path: pathlib.Path) -> None:
    """A copy to Parquet is the commonest job of all: it must not be taken for a write to the tier."""
    spark.sql(f"CREATE TABLE kept USING tierlog OPTIONS (path '{TXN}', subscribe 'fx-lso', engine '{engine}')")
    for number, frame in enumerate((read(TXN, subscribe="fx-lso"), spark.table("kept"), spark.sql("TABLE kept"))):
        frame.write.parquet(str(tmp_path / str(number)))
        frame.writeTo(f"copy{number}").using("parquet").create()
        frame.write.mode("overwrite").saveAsTable(f"copy{number}")
        assert spark.table(f"copy{number}").count() == frame.count() > 0


@pytest.mark.parametrize("table", ["batches", "segments", "transactions"])
def test_the_other_tables(spark: SparkSession, read: Read, table: str) -> None:
    """They answer what a bucket holds without reading payloads."""
    frame = read(TXN, subscribe="fx-txn", table=table)
    found = frame.collect()
    assert found
    assert {row.topic for row in found} == {"fx-txn"}
    narrow = read(TXN, subscribe="fx-txn", table=table, columns="partition,topic")
    assert narrow.columns == ["partition", "topic"]
    assert narrow.count() == len(found)


def test_the_tables_agree_with_the_records(read: Read) -> None:
    """Counts from headers are what users check a migration with."""
    batches = read(TXN, subscribe="fx-txn", table="batches", maxBytesPerPartition="32k")
    data = batches.filter("NOT isControl").selectExpr("sum(recordCount) AS n", "min(crcOk) AS ok").head()
    assert (data.n, data.ok) == (read(TXN, subscribe="fx-txn").count(), True)
    segments = read(TXN, subscribe="fx-txn", table="segments")
    total = read(TXN, subscribe="fx-txn", table="batches").selectExpr("sum(sizeBytes) AS n").head().n
    assert segments.filter("referenced").selectExpr("sum(sizeBytes) AS n").head().n == total
