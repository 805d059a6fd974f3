"""Arrow record batches under exactly the schema that Spark was promised, large enough to be worth a hand-over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tierlog.errors import ConfigError

BATCH_BYTES_MIN = 4 << 20
"""Below this, the cost of handing a batch to the JVM outweighs copying it behind another one."""


def conformed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches under exactly this schema. Spark checks only the first batch, and misreads buffers of another
    type.

    Raises:
        ConfigError: the user's schema says NOT NULL of a column that holds a null.
        TypeError: a batch has other columns or types; a fault of ours.
    """
    loose = pa.schema([field.with_nullable(nullable=True) for field in schema])
    strict = [number for number, field in enumerate(schema) if not field.nullable]
    for batch in batches:
        if not batch.schema.equals(loose):
            raise TypeError(f"a record batch has the schema {batch.schema}, Spark was promised {schema}")
        for number in strict:
            if batch.column(number).null_count:
                raise ConfigError(f"column {schema.names[number]} is NOT NULL in the given schema, and holds nulls")
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema) if strict else batch


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows with small neighbouring batches joined, so that small segments do not make small batches."""
    waiting: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= BATCH_BYTES_MIN:
            yield _one(waiting)
            waiting, size_bytes = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
