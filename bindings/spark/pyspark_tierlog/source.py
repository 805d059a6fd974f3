"""The class that Spark finds under the name ``tierlog``.

Spark makes one in a Python process of the driver for each ``load()``, stores its pickle, and plans every query over
that DataFrame from the pickle, in a process of its own. The pickle is the one thing that these queries, and both sides
of a self-join, share: so the bucket is listed when the instance is first pickled, and the listing travels in it.

Only PySpark is imported here, other modules when they are used: the look-up of data sources imports this module in
every application of an environment that has the package.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource

from pyspark_tierlog.plain_errors import hide_traceback, told_in_one_line
from pyspark_tierlog.refusals import is_written_to, refuse_writing
from pyspark_tierlog.spark_workers import is_first

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pyspark_tierlog.listing import Listing
    from pyspark_tierlog.options.source_options import ReadOptions

logger = logging.getLogger(__name__)


class DefaultSource(DataSource):
    """Kafka records (and batches, segments, transactions) of a tiered-storage bucket, without a broker.

    Args:
        options: The options of ``spark.read.option``, which :mod:`pyspark_tierlog.options.source_options` lists.

    Raises:
        ConfigError: an option is unknown, malformed, missing or contradicts another.
        ImportError: this interpreter cannot run Tierlog; the message names it.
    """

    @told_in_one_line()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        # PySpark asks not to override this. With a schema of the user's it is the only call of load() in which the
        # options can be checked.
        super().__init__(options)
        _check_interpreter()
        if is_written_to():
            return
        from pyspark_tierlog.options.catalog_tables import table_options

        self._listing: Listing | None = None
        self._read_options: ReadOptions | None = None
        self._table_options = table_options(options)
        self._given = dict(options) if self._table_options is None else self._table_options
        if self._given.keys() & {"path", "paths"}:  # without: a table of the catalog, or an error that schema() raises
            self._read_options = _checked(self._given, creating_table=self._table_options is not None)

    @classmethod
    def name(cls) -> str:
        return "tierlog"

    @told_in_one_line()
    def schema(self) -> StructType:
        """Return the columns that the options ask for; reads nothing."""
        from pyspark_tierlog.columns import to_spark
        from pyspark_tierlog.options.catalog_tables import remember
        from pyspark_tierlog.table_columns import chosen_schema

        schema = to_spark(chosen_schema(self._read_options or _checked(self._given)))
        return schema if self._table_options is None else remember(schema, self._table_options)

    @told_in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader over the pinned listing, for the columns of our schema or of the user's."""
        from pyspark_tierlog.listing import list_tiers
        from pyspark_tierlog.options.catalog_tables import recalled
        from pyspark_tierlog.reader import make_reader

        options = self._read_options or _checked(recalled(schema, self._given))
        if warning := options.ineffective():
            logger.warning("tierlog: %s", warning)
        reader: DataSourceReader
        if options.asks_brokers:
            from pyspark_tierlog.seamed_reader import make_seamed_reader

            reader = make_seamed_reader(options, schema)
        else:
            reader = make_reader(options, self._listing or list_tiers(options), schema)
        # Spark ships this instance with the reader to every task: without what only the driver needs.
        self.__dict__.clear()
        return reader

    @told_in_one_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return a reader that follows the tier."""
        from pyspark_tierlog.options.catalog_tables import recalled
        from pyspark_tierlog.stream.spark_versions import make_stream_reader

        reader = make_stream_reader(self._read_options or _checked(recalled(schema, self._given)), schema)
        self.__dict__.clear()  # as above
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002  Spark's signature
        """Raise ConfigError, always: this source is only read."""
        refuse_writing()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802, ARG002  Spark's
        """Raise ConfigError, always: this source is only read."""
        refuse_writing()

    def __getstate__(self) -> dict[str, object]:
        """Return the state that planning needs, with the listing of the bucket, which is made here unless it exists."""
        options: ReadOptions | None = self.__dict__.get("_read_options")
        is_pinned = options is not None and not options.asks_brokers and self._table_options is None
        if is_pinned and options is not None and self._listing is None:
            from pyspark_tierlog.listing import list_tiers

            self._listing = list_tiers(options)
        return dict(self.__dict__)


def _checked(options: Mapping[str, str], *, creating_table: bool = False) -> ReadOptions:
    """Return the checked options. Raises ConfigError as parse_options does; also if they ask for the jar, unless a
    table is created.
    """
    from pyspark_tierlog.options.source_options import parse_options
    from tierlog.errors import ConfigError

    checked, warning = parse_options(options)
    # With the jar on its class path Spark would have asked that, and not this class.
    if checked.engine == "jar" and not creating_table:
        raise ConfigError(
            "option engine: jar was asked for, and Spark did not find it: put it on the class path (spark.jars), or "
            "use engine=auto"
        )
    if checked.engine == "auto" and checked.table == "records" and not creating_table:
        from pyspark_tierlog.jar import why_python_reads

        if is_first("python-reads"):
            logger.warning("tierlog: %s", why_python_reads())
    if warning:
        logger.warning("tierlog: %s", warning)
    return checked


def _check_interpreter() -> None:
    """Check the imports. Raises ImportError: Spark's interpreter has this package, but lacks its dependencies."""
    try:
        import pyspark_tierlog.columns
        import pyspark_tierlog.options.source_options  # noqa: F401
    except ImportError as error:
        hide_traceback()
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ImportError(
            f"tierlog does not work under {sys.executable} (Python {version}), which Spark chose: {error}; set "
            "PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to an interpreter that has it, before the session starts"
        ) from error
