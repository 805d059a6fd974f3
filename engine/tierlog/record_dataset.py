"""``tierlog.dataset``: records as a ``pyarrow.dataset.Dataset``, into which engines push columns and filters."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn, Self

import pyarrow as pa
import pyarrow.dataset as ds

from tierlog.arguments import require_names
from tierlog.opening import Config, Metadata, Path, open_path
from tierlog.reading import Bound, ByPartition, Reading, Topics, reading_of
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.expression_bounds import ExpressionBounds
from tierlog.scan.planning.plan import list_histories, plan_scan, prepare_scan
from tierlog.scan.reading.read import DEFAULT_COLUMNS, records_schema
from tierlog.scan.scan_request import IsolationLevel

#: Columns whose bounds leave out what is not fetched.
_BOUNDED: Final = ("topic", "partition", "offset", "timestamp")


def dataset(
    path: Path,
    topic: Topics,
    *,
    partitions: Iterable[int] | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
    columns: Iterable[str] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    log_start_offsets: ByPartition | None = None,
    verify_checksums: bool = True,
    fail_on_data_loss: bool = True,
    threads: int | None = None,
    machine: Machine | None = None,
) -> RecordDataset:
    """Open the records of a tier as a dataset: DuckDB finds it by its variable's name, polars by
    ``scan_pyarrow_dataset``, and both read the columns and the records alone that a query needs.

    Args:
        path: As for ``read``.
        topic: As for ``read``.
        partitions: As for ``read``.
        start: As for ``read``.
        end: As for ``read``.
        columns: The columns that the dataset has.
        isolation_level: As for ``read``.
        config: As for ``read``.
        layout: As for ``read``.
        metadata: As for ``read``.
        metadata_client: As for ``read``.
        log_start_offsets: As for ``read``.
        verify_checksums: As for ``read``.
        fail_on_data_loss: As for ``read``.
        threads: As for ``read``.
        machine: As for ``read``.

    Returns:
        The dataset. The tier is listed once, here: each query over it sees the same segments.

    Raises:
        As ``read``.
    """
    schema = records_schema(DEFAULT_COLUMNS if columns is None else require_names("columns", columns))
    reading = reading_of(
        topic,
        partitions=partitions,
        start=start,
        end=end,
        isolation_level=isolation_level,
        log_start_offsets=log_start_offsets,
        verify_checksums=verify_checksums,
        fail_on_data_loss=fail_on_data_loss,
        threads=threads,
    )
    tier = open_path(
        path,
        layout=layout,
        config=config,
        metadata=metadata,
        metadata_client=metadata_client,
        machine=machine,
        list_once=True,
    )
    try:
        histories, _ = list_histories(tier, reading.request)
        reading.require_some(tier, histories)
    except BaseException:
        tier.close()
        raise
    return RecordDataset(OpenTier(tier), reading, histories, schema)


class OpenTier(Closeable):
    """A tier that is closed with the last of its datasets.

    Attributes:
        tier: As it was opened.
    """

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self._closing = weakref.finalize(self, tier.close)

    @property
    def is_closed(self) -> bool:
        return not self._closing.alive

    def close(self) -> None:
        """Close the tier; idempotent."""
        self._closing()


class RecordDataset(ds.Dataset):  # type: ignore[misc]
    """The records of a tier, any number of times. A context manager.

    A filter on ``topic``, ``partition``, ``offset`` and ``timestamp`` leaves out segments and parts of them before
    anything is fetched; any other is applied to the records that are read. Functions of pyarrow that take a dataset
    apart in C++ (unions, joins, Acero's scan nodes) cannot see it: give them a scanner's reader, or a table.

    Args:
        opened: The tier, for as long as a dataset of it is there.
        reading: What may be read.
        histories: The partitions as they were listed.
        schema: Of the records.
        held: A filter that all of its records satisfy; None: there is none.

    Thread safety: any number of threads; a reader belongs to one.
    """

    def __init__(
        self,
        opened: OpenTier,
        reading: Reading,
        histories: Sequence[PartitionHistory],
        schema: pa.Schema,
        held: ds.Expression | None = None,
    ) -> None:
        self._opened, self._reading, self._histories, self._schema, self._held = (
            opened,
            reading,
            histories,
            schema,
            held,
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    @property
    def partition_expression(self) -> ds.Expression:
        """True: nothing is known of all records."""
        return ds.scalar(1) == 1

    def close(self) -> None:
        """Close the tier, also for the datasets that were made of this one. Idempotent."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return what it is of; nothing is read for it."""
        columns = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        return f"<tierlog.RecordDataset {self._opened.tier.describe()}: {columns}>"

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: a dataset has an open tier, which no other process can use."""
        raise TypeError("a dataset of a tier is not pickled: call tierlog.dataset in each process")

    # ---- reading

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, ds.Expression] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> ds.Scanner:
        """Make a scanner, as of any dataset; it reads once. Raises as ``read``; ValueError: the dataset is closed.

        Args:
            columns: Names, or names with expressions; None for all.
            filter: Of the records.
            options: pyarrow's others.
        """
        wanted = self._both(filter)
        batches = self._batches(self._needed(columns, wanted), wanted)
        return ds.Scanner.from_batches(batches, columns=self._output(columns), filter=wanted, **options)

    def to_table(self, columns: Any = None, filter: ds.Expression | None = None, **options: Any) -> pa.Table:  # noqa: A002
        """Read all records that a filter leaves, as one table in memory."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(
        self,
        columns: Any = None,
        filter: ds.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read batch by batch."""
        batches: Iterator[pa.RecordBatch] = self.scanner(columns, filter, **options).to_batches()
        return batches

    def head(self, num_rows: int, columns: Any = None, filter: ds.Expression | None = None, **options: Any) -> pa.Table:  # noqa: A002
        """Read the first records."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def take(self, indices: Any, columns: Any = None, filter: ds.Expression | None = None, **options: Any) -> pa.Table:  # noqa: A002
        """Read records by their numbers among those that a filter leaves."""
        return self.scanner(columns, filter, **options).take(indices)

    def count_rows(self, filter: ds.Expression | None = None, **options: Any) -> int:  # noqa: A002
        """Count the records that a filter leaves. Without one, footers say it of segments that have them.

        Raises:
            As ``read``; ValueError: the dataset is closed.
        """
        if self._both(filter) is not None:
            return int(self.scanner([], filter, **options).count_rows())
        tier, column = self._open_tier(), self._smallest()
        counted, left = prepare_scan(tier, self._reading.request, histories=self._histories).counted_by_footers()
        for rows in self._reading.scan(tier, left.plan(), [column]):
            counted += rows.num_rows
        return counted

    def filter(self, expression: ds.Expression) -> RecordDataset:
        """Make a dataset of the records for which an expression holds, over the same tier."""
        both = self._both(expression)
        return RecordDataset(self._opened, self._reading, self._histories, self._schema, both)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Read all, and sort it in memory."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def get_fragments(self, filter: ds.Expression | None = None) -> NoReturn:  # noqa: A002, ARG002
        """Raise NotImplementedError: it has no files."""
        raise _only_records("get_fragments")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:  # noqa: ARG002
        """Raise NotImplementedError: choose columns by ``tierlog.dataset``."""
        raise _only_records("replace_schema")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError: join tables of it."""
        raise _only_records("join")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError: join tables of it."""
        raise _only_records("join_asof")

    # ---- inside

    def _both(self, more: ds.Expression | None) -> ds.Expression | None:
        if self._held is None or more is None:
            return more if self._held is None else self._held
        return self._held & more

    def _needed(self, columns: object, wanted: ds.Expression | None) -> list[str]:
        """The columns to read, in the schema's order. Of an expression those that its text may name."""
        if columns is None:
            return list(self._schema.names)
        texts = [str(wanted)]
        texts += map(str, columns.values()) if isinstance(columns, Mapping) else []
        named = set() if isinstance(columns, Mapping) else set(columns)  # type: ignore[call-overload]
        text = " ".join(texts)
        return [each for each in self._schema.names if each in named or each in text] or [self._smallest()]

    def _smallest(self) -> str:
        """A column that costs least: rows are counted by it."""
        names: list[str] = self._schema.names
        return min(names, key=lambda name: (name in ("key", "value", "headers"), name != "offset"))

    def _output(self, columns: Any) -> Any:
        return columns if columns is None or isinstance(columns, Mapping) else list(columns)

    def _open_tier(self) -> Tier:
        if self._opened.is_closed:
            raise ValueError("the dataset is closed")
        return self._opened.tier

    def _batches(self, columns: list[str], wanted: ds.Expression | None) -> pa.RecordBatchReader:
        tier = self._open_tier()
        schema = pa.schema([self._schema.field(each) for each in columns])
        places = [(each.topic, each.partition) for each in self._histories]
        base = self._reading.request
        bounds = ExpressionBounds(wanted, records_schema(tuple(dict.fromkeys((*_BOUNDED, *self._schema.names)))))
        narrowed = bounds.narrowed(base.record_filter, places)
        if narrowed is None:
            return pa.RecordBatchReader.from_batches(schema, iter(()))
        plan = plan_scan(tier, replace(base, record_filter=narrowed), histories=self._histories)
        return pa.RecordBatchReader.from_batches(schema, self._reading.scan(tier, plan, columns))


def _only_records(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"{what}: a dataset of a tier has records and no files; take a scanner, or a table of it"
    )
