"""The application: its verbs, and the options that come before any verb."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from tierlog._version import __version__
from tierlog.cli.exits import guarded
from tierlog.cli.stderr import LogFormat, LogLevel, set_up_logs

#: One module a verb, which has a function of its name. A new verb is a module and a line here.
VERBS = (
    "ls",
    "cat",
    "dump",
    "verify",
    "export",
    "copy",
    "index",
    "orphans",
    "rewrap",
    "restore",
    "recover",
    "snapshot",
    "replica",
    "sidecar",
    "check_config",
    "bench",
)


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Make the command with all its verbs, or with the one alone that the arguments begin with: each verb
    takes 5 ms.
    """
    app = typer.Typer(
        name="tierlog",
        help="Read, write and look after Kafka tiered storage (KIP-405) and log directories, without a broker.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # no traceback reaches a user
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_before_any_verb)
    # No option in front of a verb takes a value that is a verb's name.
    asked = next((verb for each in arguments if (verb := each.replace("-", "_")) in VERBS), None)
    for verb in VERBS if asked is None else (asked,):
        module = importlib.import_module(f"tierlog.cli.verbs.{verb}")
        app.command(verb.replace("_", "-"))(guarded(getattr(module, verb)))
    return app


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tierlog {__version__}")
        raise typer.Exit


def _before_any_verb(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="The same as --log-level info.")] = False,
    log_level: Annotated[
        LogLevel | None, typer.Option("--log-level", help="The least level that is logged, on stderr.")
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="What stands on stderr: text, or a JSON object a line.")
    ] = LogFormat.TEXT,
) -> None:
    """Read, write and maintain Kafka tiered storage (KIP-405) and log directories, without a broker.

    Exit codes: 0 done, 1 faults found, 2 wrong use, 3 a store or data error.
    """
    set_up_logs(log_level or (LogLevel.INFO if verbose else LogLevel.WARNING), log_format)
    # No linear algebra is done here; a thread a core would only reserve address space.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
