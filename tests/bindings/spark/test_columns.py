"""Columns: Spark's Kafka source, name by name and type by type."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_tierlog.columns import checked_schema, to_spark
from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.table_columns import chosen_schema
from tierlog.errors import ConfigError

KAFKA = spark.StructType(
    [
        spark.StructField("key", spark.BinaryType()),
        spark.StructField("value", spark.BinaryType()),
        spark.StructField("topic", spark.StringType()),
        spark.StructField("partition", spark.IntegerType()),
        spark.StructField("offset", spark.LongType()),
        spark.StructField("timestamp", spark.TimestampType()),
        spark.StructField("timestampType", spark.IntegerType()),
    ]
)
HEADERS = spark.StructField(
    "headers",
    spark.ArrayType(
        spark.StructType([spark.StructField("key", spark.StringType()), spark.StructField("value", spark.BinaryType())])
    ),
)


def arrow_of_spark(schema: spark.StructType) -> pa.Schema:
    named = inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **({"timezone": "UTC"} if "timezone" in named else {"timestamp_utc": True}))


#: Of a read that brokers answer too.
BROKERS = {"mode": "remote-preferred", "kafka.bootstrap.servers": "broker:9092"}


def options(**given: str):
    return parse_options({"path": "/x", "subscribe": "a"} | given)[0]


def test_the_schema_is_that_of_the_kafka_source() -> None:
    """A job that moves from format("kafka") would fail on a missing or reordered column."""
    assert to_spark(chosen_schema(options())) == KAFKA
    assert to_spark(chosen_schema(options(includeheaders="true"))) == spark.StructType([*KAFKA.fields, HEADERS])


@pytest.mark.parametrize("columns", ["offset", "headers, leaderEpoch,segment ,key", "timestampType,value"])
def test_columns_are_given_in_the_order_asked(columns: str) -> None:
    """The one way to read less than all columns: a wrong order would swap values."""
    names = [name.strip() for name in columns.split(",")]
    assert chosen_schema(options(columns=columns)).names == names


def test_an_unknown_column_names_the_nearest() -> None:
    """columns=leaderepoch is a slip of case, and the message must say so."""
    with pytest.raises(ConfigError, match="no column 'leaderepoch'; did you mean 'leaderEpoch'"):
        chosen_schema(options(columns="key,leaderepoch"))
    with pytest.raises(ConfigError, match="it has key, value, topic"):
        chosen_schema(options(columns="zzzz"))


@pytest.mark.parametrize("table", ["records", "batches", "segments", "transactions"])
def test_arrow_and_spark_agree_on_every_type(table: str) -> None:
    """Spark compares the first batch with its own idea of the Arrow schema, and fails the task where they differ."""
    everything = "key,topic,partition,offset,timestamp,timestampType,headers,segment"
    chosen = chosen_schema(options(columns=everything) if table == "records" else options(table=table))
    assert arrow_of_spark(to_spark(chosen)).equals(chosen)


def test_a_given_schema_is_honoured() -> None:
    """spark.read.schema(...) chooses and orders columns; NOT NULL stays."""
    given = spark.StructType(
        [spark.StructField("offset", spark.LongType(), nullable=False), spark.StructField("value", spark.BinaryType())]
    )
    assert checked_schema(options(), given) == pa.schema(
        [pa.field("offset", pa.int64(), nullable=False), pa.field("value", pa.binary())]
    )


@pytest.mark.parametrize(
    ("ddl", "given", "text"),
    [
        ([("offset", spark.IntegerType())], {}, "column offset is bigint, the given schema says int"),
        ([("timestamp", spark.TimestampNTZType())], {}, "column timestamp is timestamp, the given schema says"),
        ([("Value", spark.BinaryType())], {}, "did you mean 'value'"),
        ([("offset", spark.LongType())], {"columns": "offset,key"}, "columns=offset,key and the given schema offset"),
        ([("leaderEpoch", spark.IntegerType())], BROKERS, "mode=remote-preferred does not have the column leaderEpoch"),
        ([("offset", spark.LongType()), ("segment", spark.StringType())], BROKERS, "does not have the column segment"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    ddl: list[tuple[str, spark.DataType]], given: dict[str, str], text: str
) -> None:
    """Read as another type, the bytes of a column are garbage."""
    with pytest.raises(ConfigError, match=text):
        checked_schema(options(**given), spark.StructType([spark.StructField(*field) for field in ddl]))
