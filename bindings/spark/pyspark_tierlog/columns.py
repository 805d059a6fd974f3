"""The columns as Spark types, and the check of a schema that the user gives."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

from pyspark_tierlog.options.source_options import ReadOptions
from pyspark_tierlog.table_columns import picked_schema
from tierlog.errors import ConfigError

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


def checked_schema(options: ReadOptions, schema: spark.StructType) -> pa.Schema:
    """Return the columns of the schema that Spark wants filled: our own schema, or the user's.

    Raises:
        ConfigError: the user's schema names a column that the table does not have, or gives it another type, or
            contradicts ``columns``.
    """
    picked = picked_schema(options, schema.names)
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
    """Arrow columns as a Spark schema."""
    return spark.StructType([spark.StructField(f.name, spark_type(f.type), f.nullable) for f in schema])


def spark_type(kind: pa.DataType) -> spark.DataType:
    """Return the Spark type for one of the Arrow types that this source makes."""
    if isinstance(kind, pa.ListType):
        return spark.ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if isinstance(kind, pa.MapType):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    if isinstance(kind, pa.StructType):
        return to_spark(pa.schema(list(kind)))
    return _SPARK_TYPES[kind]
