"""The reader: it plans on Spark's driver, and reads on the executors.

On the driver, the pinned listing, the options and the pushed filters become tasks. On an executor, ranges become Arrow
record batches. The pickle that travels between them is small: the path, the layout that was found, the storage keys
that the user gave (never credentials that were resolved here: temporary ones expire), and the names of the columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_tierlog.batches import conformed, joined
from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.spark_workers import runs_worker
from pyspark_tierlog.tasks import HistoriesTask, RangesTask
from tierlog.opening import TierLocation
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.reading.tables import read_batches, segments_table, transactions_table
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import RecordFilter

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pyspark_tierlog.listing import Listing
    from pyspark_tierlog.options.source_options import ReadOptions
    from tierlog.remote.tier import Tier

logger = logging.getLogger(__name__)

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown"


class TierlogReader(DataSourceReader):
    """Plans on the driver, reads on executors. Made by :func:`make_reader`."""

    def __init__(self, options: ReadOptions, listing: Listing, schema: pa.Schema) -> None:
        from pyspark_tierlog.request import tier_config

        config = tier_config(options)
        self._table = options.table
        self._schema = schema
        self._verify_checksums = options.verify_checksums
        self._tiers = tuple(TierLocation(tier.path, tier.layout, config) for tier in listing.checked())
        self._filter = RecordFilter()
        self._planning: tuple[ReadOptions, Listing] | None = (options, listing)

    def __getstate__(self) -> dict[str, object]:
        """Return the state that an executor needs. Spark pickles the reader before it asks for the partitions."""
        return self.__dict__ | {"_planning": None}

    @told_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """Cut the pinned segments into tasks.

        Raises:
            DataLossError, CorruptDataError, StoreError and their kinds: those of ``plan_scan``.
        """
        from pyspark_tierlog.planning import plan_tasks
        from pyspark_tierlog.request import scan_requests

        assert self._planning is not None, "planned on the driver only"
        options, listing = self._planning
        tasks: list[InputPartition] = []
        tiers = listing.checked()
        requests = scan_requests(options, [tier.size_bytes for tier in tiers], self._filter)
        for number, (location, pinned, request) in enumerate(zip(self._tiers, tiers, requests, strict=True)):
            planned, warnings = plan_tasks(options, location, number, pinned.histories, request)
            tasks.extend(planned)
            for warning in (*pinned.warnings, *warnings):
                logger.warning("tierlog: %s", warning)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow record batches under the promised schema."""
        with told_in_one_line():
            yield from joined(conformed(self._rows(partition), self._schema))

    def _rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(task, (RangesTask, HistoriesTask)):  # with nothing to read Spark makes a task of its own
            return
        with self._tiers[task.tier].opened() as tier:
            if isinstance(task, HistoriesTask):
                yield from self._table_rows(tier, task)
                return
            for scan_range in task.ranges:
                yield from self._range_rows(tier, scan_range)

    def _range_rows(self, tier: Tier, scan_range: ScanRange) -> Iterator[pa.RecordBatch]:
        verify = self._verify_checksums
        if self._table == "records":
            names = self._schema.names
            yield from read_scan_range(tier, scan_range, columns=names, timestamp_unit="us", verify_checksums=verify)
            return
        for batch in read_batches(tier, scan_range, timestamp_unit="us", verify_checksums=verify):
            yield batch.select(self._schema.names)

    def _table_rows(self, tier: Tier, task: HistoriesTask) -> Iterator[pa.RecordBatch]:
        if self._table == "segments":
            table = segments_table(task.histories, timestamp_unit="us", tier=tier)
        else:
            table = transactions_table(tier, task.histories)
        yield from table.select(self._schema.names).to_batches()


class PushdownReader(TierlogReader):
    """A TierlogReader that takes filters. Defining ``pushFilters`` where Spark does not offer filters is an error to
    Spark.
    """

    @told_in_one_line()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Store the filters that the plan applies exactly; yield the others for Spark to evaluate."""
        from pyspark_tierlog.pushdown import absorb

        self._filter, left = absorb(filters, self._filter, table=self._table)
        return left


def make_reader(options: ReadOptions, listing: Listing, schema: StructType) -> TierlogReader:
    """Make the reader for the planner process that calls.

    Raises:
        ConfigError: the schema does not fit the table, or the storage configuration cannot be read.
        TierlogError: the listing had failed.
    """
    from pyspark_tierlog.columns import checked_schema

    kind = PushdownReader if takes_filters(options.push_down_predicate) else TierlogReader
    return kind(options, listing, checked_schema(options, schema))


def takes_filters(wanted: bool | None) -> bool:
    """Whether to accept filters in this process, in which Spark pushes them.

    Spark 4.1 to 4.3 cache the plan of a filtered query in the loaded DataFrame, run later queries over it without a
    filter by that plan, and a query with two filters by the last one's: rows would be missing silently. In these
    versions filters are accepted only if the user promises one query for each ``load()``. Limit pushdown (SPARK-58551)
    fixes it.
    """
    if not _filters_are_offered():
        return False
    if wanted is None and not hasattr(DataSourceReader, "pushLimit"):
        logger.warning(
            "tierlog: filters are not pushed down, since this version of Spark applies them to other queries over the "
            "same DataFrame too: give option pushDownPredicate=true where each load() serves one query, or bound the "
            "read by startingOffsets, startingTimestamp and assign"
        )
    return hasattr(DataSourceReader, "pushLimit") if wanted is None else wanted


def _filters_are_offered() -> bool:
    """Whether this process is the one in which Spark pushes filters.

    Such a process exists only if ``spark.sql.python.filterPushdown.enabled`` is true, a setting that Python cannot see.
    """
    return runs_worker(_PUSHDOWN_WORKER)
