"""Errors for the user are shown as one line, without this package's traceback.

A Python worker of Spark sends the traceback of what ended it to the driver. PySpark leaves it out where
``SPARK_HIDE_TRACEBACK`` is set (its setting ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``), and a worker
ends with its first error, so setting it then concerns that one error: tracebacks of the user's own functions stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_tierlog.spark_workers import main_module


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """A decorator of all functions that Spark calls: TierlogErrors are shown without their traceback, our own bugs with
    it.
    """
    try:
        yield
    except Exception as error:
        # By name: in an interpreter that cannot run Tierlog the module cannot be imported either.
        if any(f"{each.__module__}.{each.__name__}" == "tierlog.errors.TierlogError" for each in type(error).__mro__):
            hide_traceback()
        raise


def hide_traceback() -> None:
    """Have the error that ends this Spark worker shown as one line. In any other process it does nothing."""
    if main_module().startswith("pyspark."):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
