"""Batches: Spark believes the schema that it was promised, so each batch is checked against it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_tierlog.batches import BATCH_BYTES_MIN, conformed, joined
from tierlog.errors import ConfigError

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(values)), pa.int64()), pa.array(values, pa.binary())], schema=SCHEMA)


def test_every_batch_is_checked() -> None:
    """Spark checks the first one only; a second of another type would be read as garbage or kill the JVM's task."""
    wrong = pa.record_batch([pa.array([1], pa.int32()), pa.array([b""])], names=["offset", "value"])
    given = conformed([batch(b"a"), wrong], SCHEMA)
    assert next(given) == batch(b"a")
    with pytest.raises(TypeError, match="offset: int32"):
        next(given)


def test_not_null_is_checked_too() -> None:
    """A null in a column that Spark compiled as NOT NULL gives a wrong value without an error."""
    strict = pa.schema([SCHEMA.field(0).with_nullable(False), SCHEMA.field(1).with_nullable(False)])
    given = conformed([batch(b"a"), batch(None)], strict)
    assert next(given).schema == strict
    with pytest.raises(ConfigError, match="column value is NOT NULL"):
        next(given)


def test_small_batches_are_put_together() -> None:
    """A topic of small segments would cost a hand-over to the JVM for every few rows."""
    small = [batch(bytes([n])) for n in range(50)]
    (only,) = joined(iter(small))
    assert only.column("value").to_pylist() == [bytes([n]) for n in range(50)]


def test_large_batches_are_not_copied() -> None:
    """Joining large batches would double the memory traffic of the whole read."""
    large = batch(bytes(BATCH_BYTES_MIN))
    first, second, third = joined([large, large, batch(b"x")])
    assert first is large
    assert second is large
    assert third.num_rows == 1
