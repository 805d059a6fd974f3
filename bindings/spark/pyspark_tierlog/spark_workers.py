"""In which of Spark's Python processes this is: some things Spark tells in no other way."""

from __future__ import annotations

import sys


def main_module() -> str:
    """The module that this process was started with; "" where it is none."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main.name if main else ""


def runs_worker(module: str) -> bool:
    """Whether this process runs a worker whose module's name begins so: no other process imports it.

    With ``spark.python.use.daemon=false`` it is the main module.
    """
    return any(name.startswith(module) for name in (*sys.modules, main_module()))
