"""The ``tierlog`` command: a list of verbs over a bucket, a log directory or one file.

What belongs here: arguments, the texts and tables that people read, progress, exit codes, and the reading of
configuration files. What does not: anything that a Spark job or a server would want too. That lies in
``tierlog.remote.manager`` and below, where nothing prints.

Machine output goes to stdout, everything for people to stderr. Exit codes are those of
:class:`tierlog.cli.exits.ExitCode`. One module a verb; a verb imports what is heavy when it runs, so that
``tierlog --version`` and shell completion answer at once.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the ``tierlog`` script. Never returns; never lets a traceback out."""
    from tierlog.cli.exits import leave_quietly

    leave_quietly(_run)


class _WithoutPandas:
    """Keeps pyarrow from importing pandas, which it does at its first array where pandas is installed (0.4 s)."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the command has no use for pandas", name=name)


def _run() -> None:
    sys.meta_path.insert(0, _WithoutPandas())
    from tierlog.cli.app import application
    from tierlog.cli.exits import end_orderly_when_told

    end_orderly_when_told()

    application()(prog_name="tierlog")
