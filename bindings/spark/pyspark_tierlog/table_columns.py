"""The columns of each table as Arrow fields: names, types and order.

``records`` has the columns of Spark's Kafka source, in its order and all nullable; ``headers`` follows with
``includeHeaders``. ``leaderEpoch`` and ``segment`` come only where ``columns`` or the user's schema name them. The
columns of the other tables are those of ``tierlog.scan.reading.tables``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_tierlog.options.source_options import COLUMNS_OF_THE_TIER
from tierlog.errors import ConfigError
from tierlog.scan.reading.read import COLUMNS, DEFAULT_COLUMNS, records_schema
from tierlog.scan.reading.tables import TRANSACTIONS_SCHEMA, batches_schema, segments_schema

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions


def table_schema(table: str) -> pa.Schema:
    """Return all columns of a table, also those that must be asked for."""
    if table == "records":
        return records_schema(COLUMNS, timestamp_unit="us")
    if table == "batches":
        return batches_schema("us")
    return segments_schema("us") if table == "segments" else TRANSACTIONS_SCHEMA


def chosen_schema(options: ReadOptions) -> pa.Schema:
    """Return the columns that these options ask for, in their order. Reads nothing.

    Raises:
        ConfigError: ``columns`` names a column that the table does not have.
    """
    if options.columns is not None:
        return picked_schema(options, options.columns)
    if options.table != "records":
        return table_schema(options.table)
    return picked_schema(options, (*DEFAULT_COLUMNS, *(["headers"] if options.include_headers else [])))


def picked_schema(options: ReadOptions, names: Sequence[str]) -> pa.Schema:
    """Return the named columns of the options' table, in the given order.

    Raises:
        ConfigError: the table has no column of one of the names; the nearest is named. Or brokers, who are asked too,
            do not have it.
    """
    known = table_schema(options.table)
    by_name = {name.lower(): name for name in known.names}
    picked = []
    for name in names:
        if name not in known.names:
            near = difflib.get_close_matches(name.lower(), by_name, n=1, cutoff=0.4)
            hint = f"; did you mean {by_name[near[0]]!r}?" if near else f"; it has {', '.join(known.names)}"
            raise ConfigError(f"table {options.table} has no column {name!r}{hint}")
        if options.asks_brokers and name in COLUMNS_OF_THE_TIER:
            raise ConfigError(
                f"mode={options.mode} does not have the column {name}, which is of the tier alone: records of brokers "
                "come without"
            )
        picked.append(known.field(name))
    return pa.schema(picked)
