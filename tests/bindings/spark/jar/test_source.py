"""The jar's data source: what is read by whom, under which columns, and what explain() says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyspark_tierlog.columns import to_spark
from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.table_columns import chosen_schema, table_schema
from tests.bindings.spark.conftest import batches, offsets
from tests.bindings.spark.jar.conftest import Read, executed
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError
from tierlog.scan.reading.read import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_plan_says_who_reads(read: Read, bucket: Bucket) -> None:
    """A user who adds the jar and sees no speed has nothing else to look at."""
    frame = read(bucket.root, subscribe="orders").select("offset", "value").filter("offset > 3")
    assert f"tierlog engine=jar path={bucket.root} columns=[value, offset] filters=[offset > 3]" in executed(frame)
    by_python = read(bucket.root, subscribe="orders", engine="python")
    assert "tierlog engine=python (by option engine)" in executed(by_python)
    assert offsets(by_python) == [*range(60)]


def test_other_tables_are_read_by_python(read: Read, bucket: Bucket) -> None:
    """The jar reads records; a table that vanished with it would break a job that had worked."""
    frame = read(bucket.root, subscribe="orders", table="batches")
    assert "tierlog engine=python (the jar reads records only)" in executed(frame)
    assert frame.count() == 12
    assert read(bucket.root, subscribe="orders", table="segments").count() == 3


def test_no_secret_reaches_the_plan(read: Read, bucket: Bucket) -> None:
    """Plans go into the event log, which everybody may read."""
    frame = read(bucket.root, subscribe="orders", **{"store.secret_access_key": "hush-hush"})
    text = frame._jdf.queryExecution().toString() + executed(frame)
    assert "hush" not in text
    assert "columns=[" in text


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeHeaders": "true"},
        {"includeHeaders": "False"},
        {"columns": "offset"},
        {"columns": " headers, leaderEpoch,segment ,,key"},
        {"columns": ",".join(COLUMNS)},
    ],
)
def test_the_schema_is_that_of_python(read: Read, bucket: Bucket, options: dict[str, str]) -> None:
    """A job would see other columns, or other types, on the day that the jar is added."""
    given = {"path": str(bucket.root), "subscribe": "orders"} | options
    expected = to_spark(chosen_schema(parse_options({name.lower(): text for name, text in given.items()})[0]))
    frame = read(bucket.root, subscribe="orders", **options)
    assert frame.schema == expected
    assert frame.schema == read(bucket.root, subscribe="orders", engine="python", **options).schema
    assert frame.collect() == read(bucket.root, subscribe="orders", engine="python", **options).collect()


@pytest.mark.parametrize("name", ["offst", "leaderepoch", "zzzz", "time", "Header", "tipic", "type", "ke", "e"])
def test_an_unknown_column_has_the_error_of_python(read: Read, bucket: Bucket, name: str) -> None:
    """The hint is the same on both paths, or one of them helps less."""
    options = parse_options({"path": "/x", "subscribe": "orders", "columns": f"key,{name}"})[0]
    with pytest.raises(ConfigError) as expected:
        chosen_schema(options)
    with pytest.raises(Exception, match="no column") as caught:
        read(bucket.root, subscribe="orders", columns=f"key,{name}")
    assert f"ConfigError: {expected.value}" in str(caught.value)


def test_a_given_schema_is_honoured(jar_spark: SparkSession, bucket: Bucket) -> None:
    """spark.read.schema(...) chooses and orders columns."""
    reader = (
        jar_spark.read.format("tierlog").schema("offset bigint NOT NULL, value binary").option("subscribe", "orders")
    )
    assert reader.load(str(bucket.root)).first() == (0, b"0")


@pytest.mark.parametrize(
    ("ddl", "given", "text"),
    [
        ("offset int", {}, "column offset is bigint, the given schema says int"),
        ("timestamp timestamp_ntz", {}, "column timestamp is timestamp, the given schema says timestamp_ntz"),
        ("Value binary", {}, "table records has no column 'Value'; did you mean 'value'?"),
        ("offset bigint", {"columns": "offset,key"}, "columns=offset,key and the given schema offset differ"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    jar_spark: SparkSession, bucket: Bucket, ddl: str, given: dict[str, str], text: str
) -> None:
    """Read as another type, the bytes of a column are garbage."""
    reader = jar_spark.read.format("tierlog").schema(ddl).option("subscribe", "orders").options(**given)
    with pytest.raises(Exception, match="ConfigError") as caught:
        reader.load(str(bucket.root)).collect()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colums": "key"}, "unknown option 'colums'; did you mean 'columns'?"),
        ({"columns": "offset,offset"}, "option columns: names offset twice"),
        ({"includeHeaders": "banana"}, "option includeHeaders: expected true or false"),
        ({"engine": "fast"}, "option engine: Input should be 'auto', 'jar' or 'python'"),
        ({"assign": "{}"}, "option assign: names no partition"),
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest (-1) for a batch query"),
    ],
)
def test_options_have_the_errors_of_python(read: Read, bucket: Bucket, options: dict[str, str], text: str) -> None:
    """An option that is taken wrongly without a word is a wrong result; told at load(), nothing has been paid yet."""
    with pytest.raises(Exception, match="ConfigError") as caught:
        read(bucket.root, **{"subscribe": "orders"} | options)
    assert text in str(caught.value)


def test_a_listing_that_fails_is_told_by_the_query(read: Read, bucket: Bucket) -> None:
    """As on the Python path: load() comes back, and the reason arrives with the query, in its own words."""
    bucket.path("s20", "rsm-manifest").write_bytes(b"{")
    frame = read(bucket.root, subscribe="orders")
    with pytest.raises(Exception, match="Corrupt") as caught:
        frame.collect()
    by_python = read(bucket.root, subscribe="orders", engine="python")
    with pytest.raises(Exception, match="Corrupt") as expected:
        by_python.collect()
    line = next(line for line in str(expected.value).splitlines() if "tierlog.errors." in line)
    assert re.sub(r".*tierlog\.errors\.\w+: ", "", line).removesuffix(" SQLSTATE: 38000") in str(caught.value)


def test_all_queries_of_a_frame_see_one_listing(read: Read, bucket: Bucket) -> None:
    """A self-join over a growing topic would compare two different sets of segments."""
    frame = read(bucket.root, subscribe="orders")
    bucket.segment("s60", batches(60), lineage={0: 0})
    assert offsets(frame) == [*range(60)]
    assert frame.alias("a").join(frame.alias("b"), "offset").count() == 60
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(80)]


def test_loads_share_a_listing_until_one_refreshes_it(read: Read, bucket: Bucket) -> None:
    """Each query of a session that works on a bucket of a million segments would list them again, for a minute."""
    options = {"subscribe": "orders", "refreshInterval": "1h"}
    assert offsets(read(bucket.root, **options)) == [*range(60)]
    bucket.segment("s60", batches(60), lineage={0: 0})
    assert offsets(read(bucket.root, **options)) == [*range(60)]
    assert offsets(read(bucket.root, **(options | {"refreshInterval": "2 H", "SUBSCRIBE": "orders"}))) == [*range(60)]
    assert offsets(read(bucket.root, **options, startingTimestamp="0")) == [*range(80)], "of other options"
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(80)], "listed anew"
    assert offsets(read(bucket.root, **options)) == [*range(80)], "which took the place of the old one"
    with pytest.raises(Exception, match="option refreshInterval: expected a time above 0"):
        read(bucket.root, subscribe="orders", refreshInterval="0s")


def test_a_table_shares_its_listing(jar_spark: SparkSession, bucket: Bucket) -> None:
    """Spark makes a table of the catalog anew for each query of it."""
    jar_spark.sql(
        f"CREATE TABLE old USING tierlog OPTIONS (path '{bucket.root}', subscribe 'orders', refreshInterval '1h')"
    )
    assert jar_spark.sql("SELECT count(*) FROM old").first()[0] == 60
    bucket.segment("s60", batches(60), lineage={0: 0})
    assert jar_spark.sql("SELECT count(*) FROM old").first()[0] == 60
    fresh = jar_spark.sql("SELECT count(*) FROM old WITH (refreshInterval = '1ms')")
    assert fresh.first()[0] == 80
    assert jar_spark.sql("SELECT count(*) FROM old").first()[0] == 80


def test_tables_and_views_take_the_jar(jar_spark: SparkSession, bucket: Bucket) -> None:
    """SQL users never see an option; their queries are the same."""
    options = f"OPTIONS (path '{bucket.root}', subscribe 'orders')"
    jar_spark.sql(f"CREATE TABLE kept USING tierlog {options}")
    jar_spark.sql(f"CREATE TEMPORARY VIEW seen USING tierlog {options}")
    for name in ("kept", "seen"):
        frame = jar_spark.table(name)
        assert "tierlog engine=jar" in executed(frame)
        assert offsets(frame) == [*range(60)]


def test_every_column_is_known(read: Read, bucket: Bucket) -> None:
    """A column of the table that the jar does not know could not be asked for."""
    assert to_spark(table_schema("records")) == read(bucket.root, subscribe="orders", columns=",".join(COLUMNS)).schema


@pytest.mark.parametrize("mode", ["remote-preferred", "local-only"])
def test_brokers_need_the_source_of_spark(jar_spark: SparkSession, bucket: Bucket, mode: str) -> None:
    """If this fails, a mode that asks brokers is a stack trace of Scala's where spark-sql-kafka is missing."""
    options = {"subscribe": "orders", "mode": mode, "kafka.bootstrap.servers": "127.0.0.1:9"}
    frame = jar_spark.read.format("tierlog").options(**options).load(str(bucket.root))
    with pytest.raises(Exception, match="put spark-sql-kafka-0-10 of this Spark where this jar is"):
        frame.collect()
