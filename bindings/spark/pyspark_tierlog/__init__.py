"""PySpark data source over Kafka tiered storage: ``spark.read.format("tierlog")``.

Spark imports every installed package whose name starts with ``pyspark_`` when a data source is first looked up, and an
error in one of them breaks the look-up of all. So this module imports nothing until ``DefaultSource`` is asked for, and
that class imports nothing but PySpark until it is used.

Belongs here: what Spark needs to know (options, schema, partitions, filters). Does not belong here: anything that knows
Kafka's bytes, object stores or layouts; ``tierlog.scan`` plans and reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_tierlog.jar import enable, jar_path
    from pyspark_tierlog.source import DefaultSource

__all__ = ["DefaultSource", "enable", "jar_path"]


def __getattr__(name: str) -> object:
    if name in ("enable", "jar_path"):
        from pyspark_tierlog import jar

        return getattr(jar, name)
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from pyspark_tierlog.source import DefaultSource
    except ImportError as error:  # PySpark before 4.0: no data source, and hasattr() must say so instead of failing
        raise AttributeError(f"{__name__}.{name} needs PySpark 4.0 or newer: {error}") from error
    return DefaultSource


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
