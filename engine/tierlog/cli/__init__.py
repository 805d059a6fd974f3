"""The ``tierlog`` command: a list of verbs over a bucket, a log directory or one file.

What belongs here: arguments, the texts and tables that people read, progress, exit codes, and the reading of
configuration files. What does not: anything that a Spark job or a server would want too. That lies in
``tierlog.remote.manager`` and below, where nothing prints.

Machine output goes to stdout, everything for people to stderr. Exit codes are those of
:class:`tierlog.cli.exits.ExitCode`. One module a verb; a verb imports heavy modules when it runs, so that ``tierlog
--version`` and shell completion answer at once.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn


def main() -> NoReturn:
    """Entry point of the ``tierlog`` script. Never returns; never lets a traceback out."""
    from tierlog.cli.exits import leave_quietly

    leave_quietly(_run)


#: What libraries import where it is installed, and the command has no use for: pyarrow imports pandas at its first
#: array (0.4 s), kio imports hypothesis (0.1 s).
_UNUSED: Final = frozenset({"pandas", "hypothesis"})


class _WithoutUnused:
    """An import hook that hides optional modules from libraries, since the command has no use for them."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name in _UNUSED:
            raise ModuleNotFoundError(f"the command has no use for {name}", name=name)


def use_all_packages() -> None:
    """Let libraries import what is hidden from them, for a verb that has a use for it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WithoutUnused)]


def _run() -> None:
    sys.meta_path.insert(0, _WithoutUnused())
    # pydantic would look for plugins in the metadata of every installed package (20 ms and more).
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from tierlog.cli.app import application
    from tierlog.cli.exits import end_orderly_on_signals

    end_orderly_on_signals()

    application(sys.argv[1:])(prog_name="tierlog")
