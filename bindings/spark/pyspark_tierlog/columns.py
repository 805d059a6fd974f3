"""The columns of each table: names, types and order, in Arrow's words and in Spark's.

``records`` has the columns of Spark's Kafka source, in its order and all nullable; ``headers`` follows with
``includeHeaders``. ``leaderEpoch`` and ``segment`` come only where ``columns`` or the user's schema name them. The
columns of the other tables are those of ``tierlog.remote.manager.tables``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as spark

from pyspark_tierlog.options import ReadOptions
from tierlog.errors import ConfigError
from tierlog.remote.manager.scan_read import COLUMNS, DEFAULT_COLUMNS, records_schema
from tierlog.remote.manager.tables import TRANSACTIONS_SCHEMA, batches_schema, segments_schema

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Spark keeps microseconds and takes Arrow's timestamps only in UTC."""


_SPARK_TYPES: dict[pa.DataType, spark.DataType] = {
    pa.binary(): spark.BinaryType(),
    pa.string(): spark.StringType(),
    pa.bool_(): spark.BooleanType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float64(): spark.DoubleType(),
    TIMESTAMP: spark.TimestampType(),
}


def table_schema(table: str) -> pa.Schema:
    """All columns of a table, those on request too."""
    if table == "records":
        return records_schema(COLUMNS, timestamp_unit="us")
    if table == "batches":
        return batches_schema("us")
    return segments_schema("us") if table == "segments" else TRANSACTIONS_SCHEMA


def chosen_schema(options: ReadOptions) -> pa.Schema:
    """The columns that these options ask for, in their order. Reads nothing.

    Raises:
        ConfigError: ``columns`` names one that the table does not have.
    """
    known = table_schema(options.table)
    if options.columns is not None:
        return _pick(known, options.columns, table=options.table)
    if options.table != "records":
        return known
    return _pick(known, (*DEFAULT_COLUMNS, *(["headers"] if options.include_headers else [])), table=options.table)


def checked_schema(options: ReadOptions, schema: spark.StructType) -> pa.Schema:
    """The columns of the schema that Spark wants filled: our own, or the one that the user gave.

    Raises:
        ConfigError: the user's schema names a column that the table does not have, or gives it another type, or
            contradicts ``columns``.
    """
    picked = _pick(table_schema(options.table), schema.names, table=options.table)
    if options.columns is not None and set(options.columns) != set(schema.names):
        raise ConfigError(f"columns={','.join(options.columns)} and the given schema {','.join(schema.names)} differ")
    for field, wanted in zip(picked, schema.fields, strict=True):
        offered = spark_type(field.type)
        if wanted.dataType != offered:
            given = wanted.dataType.simpleString()
            raise ConfigError(f"column {field.name} is {offered.simpleString()}, the given schema says {given}")
    return pa.schema(
        [field.with_nullable(wanted.nullable) for field, wanted in zip(picked, schema.fields, strict=True)]
    )


def to_spark(schema: pa.Schema) -> spark.StructType:
    """The same columns in Spark's words."""
    return spark.StructType([spark.StructField(f.name, spark_type(f.type), f.nullable) for f in schema])


def spark_type(kind: pa.DataType) -> spark.DataType:
    """The Spark type for one of the Arrow types that this source makes."""
    if isinstance(kind, pa.ListType):
        return spark.ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if isinstance(kind, pa.MapType):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    if isinstance(kind, pa.StructType):
        return to_spark(pa.schema(list(kind)))
    return _SPARK_TYPES[kind]


def _pick(known: pa.Schema, names: Sequence[str], *, table: str) -> pa.Schema:
    by_name = {name.lower(): name for name in known.names}
    picked = []
    for name in names:
        if name not in known.names:
            near = difflib.get_close_matches(name.lower(), by_name, n=1, cutoff=0.4)
            hint = f"; did you mean {by_name[near[0]]!r}?" if near else f"; it has {', '.join(known.names)}"
            raise ConfigError(f"table {table} has no column {name!r}{hint}")
        picked.append(known.field(name))
    return pa.schema(picked)
