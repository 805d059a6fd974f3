"""The jar of this package: where it is, and how a running Spark session gets it.

With the jar ``spark.read.format("tierlog")`` is read inside the executors' JVM; without it, by Python workers.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Final

from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "tierlog-spark.jar"


def jar_path() -> str:
    """Return the jar's absolute path, for ``spark.jars``, ``--jars`` and ``spark.driver.extraClassPath``.

    Raises:
        ConfigError: this install has no jar.
    """
    from tierlog._version import __version__
    from tierlog.runtime.machine import Machine

    path = str(pathlib.PurePath(__file__).parent / "jars" / _NAME)
    if Machine().files.find(path) is None:
        raise ConfigError(
            "install the wheel of tierlog that carries the jar; or build it: TIERLOG_JAR=build pip install "
            f"--no-cache-dir --force-reinstall --no-deps --no-binary tierlog tierlog=={__version__} (takes a JDK 17, "
            f"Maven, CMake and Rust), in a checkout `make jar`. This install has none ({path} does not exist): without "
            "it Python workers read"
        )
    return path


def why_python_reads() -> str:
    """Return a message that explains why Python workers read if no engine was asked for, and how to switch;
    ``explain()`` shows only ``(Python)``.
    """
    why = "Python workers read, (Python) in explain(): Spark has no tierlog jar on its class path"
    try:
        found = (
            "with it reads are several times faster: pyspark_tierlog.enable(spark), or before the session starts "
            f"spark.jars={jar_path()}"
        )
    except ConfigError:
        found = "nor has this install of tierlog: pyspark_tierlog.jar_path() says how to get it"
    return f"{why}, {found}; option engine=python says that this is meant (told once)"


def enable(spark: SparkSession) -> None:
    """Give the jar to a running session, classic or of Spark Connect; a second call changes nothing.

    Reads created afterwards use the jar. A session that is not built yet gets the jar by ``spark.jars``; in a running
    one that setting is silently ignored.

    Raises:
        ConfigError: this install has no jar, or its path cannot be written in Spark's SQL.
    """
    path = jar_path()
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(path)
        return
    if any(row[0].rpartition("/")[2] == _NAME for row in spark.sql("LIST JARS").collect()):
        return
    if '"' in path or "\n" in path:
        raise ConfigError(f"{path!r}: Spark's ADD JAR cannot name this path; give it by --jars")
    spark.sql(f'ADD JAR "{path}"')
