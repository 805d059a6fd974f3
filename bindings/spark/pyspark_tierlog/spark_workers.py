"""Which of Spark's Python processes this is; for facts that Spark passes on in no other way."""

from __future__ import annotations

import sys


def main_module() -> str:
    """The module with which this process was started; "" for none."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main.name if main else ""


def runs_worker(module: str) -> bool:
    """Whether this process runs a worker whose module's name has this beginning; no other process imports that module.

    With ``spark.python.use.daemon=false`` it is the main module.
    """
    return any(name.startswith(module) for name in (*sys.modules, main_module()))
