"""The kind of Spark's Python process that runs this; for facts that Spark passes on in no other way."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Final

#: How Spark names the folder that it gives an application's workers, and removes when the application ends.
_APPLICATION_FOLDER: Final = "blockmgr-"


def main_module() -> str:
    """Return the module with which this process was started; "" for none."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main.name if main else ""


def runs_worker(module: str) -> bool:
    """Whether this process runs a worker whose module's name has this beginning; no other process imports that module.

    With ``spark.python.use.daemon=false`` it is the main module.
    """
    return any(name.startswith(module) for name in (*sys.modules, main_module()))


def is_first(mark: str) -> bool:
    """Whether no process of this Spark application has asked with that mark before.

    Each ``load()`` may have a process of its own. Outside of Spark's workers, and where nothing can be written, the
    answer is True.
    """
    from tierlog.errors import StoreError
    from tierlog.runtime.machine import Machine

    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not pathlib.PurePath(folder).name.startswith(_APPLICATION_FOLDER):
        return True
    files, path = Machine().files, f"{folder}/tierlog-{mark}"
    try:
        if files.find(path) is not None:
            return False
        files.make_directories(path, durable=False)
    except StoreError:
        return True  # a full disk: logged again rather than never
    return True
