"""The package itself: Spark imports it in every application of the environment."""

from __future__ import annotations

import subprocess
import sys

import pyspark_tierlog


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_costs_nothing() -> None:
    """Every Spark application of the environment would start slower, also those that read no Kafka."""
    heavy = python(
        "import sys, pyspark_tierlog; "
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'pydantic', 'obstore', 'tierlog') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_look_up_needs_only_pyspark() -> None:
    """Spark asks every package for DefaultSource; what fails there breaks the look-up of all sources."""
    heavy = python(
        "import sys, pyspark_tierlog; from pyspark.sql.datasource import DataSource; before = set(sys.modules); "
        "assert hasattr(pyspark_tierlog, 'DefaultSource') and issubclass(pyspark_tierlog.DefaultSource, DataSource); "
        "assert pyspark_tierlog.DefaultSource.name() == 'tierlog'; "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('pyspark')))"
    )
    assert heavy == "[]"


def test_without_pyspark_4_nothing_breaks() -> None:
    """An old PySpark has no data sources: the package must say that it has none either, not raise."""
    found = python(
        "import sys; sys.modules['pyspark.sql.datasource'] = None\n"
        "import pyspark_tierlog; print(hasattr(pyspark_tierlog, 'DefaultSource'), hasattr(pyspark_tierlog, 'nonsense'))"
    )
    assert found == "False False"


def test_a_broken_interpreter_is_named() -> None:
    """Spark takes python3 of the PATH unless told; "No module named …" alone does not say which Python lacks it."""
    text = python(
        "import sys; sys.modules['tierlog.errors'] = None\n"
        "from pyspark_tierlog import DefaultSource\n"
        "try: DefaultSource({'path': '/x', 'subscribe': 'a'})\n"
        "except ImportError as error: print(error)"
    )
    assert sys.executable in text
    assert "PYSPARK_PYTHON" in text


def test_the_class_is_listed() -> None:
    """Inspect and tab completion look at dir()."""
    assert "DefaultSource" in dir(pyspark_tierlog)


def test_executors_import_no_planning() -> None:
    """Every new worker process would parse options classes before its first row."""
    heavy = python(
        "import sys, pyspark_tierlog.reader; "
        "heavy = ('pyspark_tierlog.options.source_options', 'pyspark_tierlog.planning', 'tierlog.scan.planning.plan'); "
        "print([m for m in heavy "
        "if m in sys.modules])"
    )
    assert heavy == "[]"
