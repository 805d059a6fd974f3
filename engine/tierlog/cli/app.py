"""The application: its verbs, and the options that come before any verb."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from tierlog._version import __version__

#: One module a verb; each has ``register(app)``. A new verb is a module and a line here.
VERBS = (
    "ls",
    "cat",
    "dump",
    "verify",
    "export",
    "copy",
    "orphans",
    "rewrap",
    "restore",
    "recover",
    "snapshot",
    "replica",
    "check_config",
    "bench",
)


#: Options that may stand before a verb.
_VERBOSE: Final = ("--verbose", "-v")


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command with all its verbs, or with the one alone that the arguments begin with: each verb takes 5 ms."""
    app = typer.Typer(
        name="tierlog",
        help="Read, write and look after Kafka tiered storage (KIP-405) and log directories, without a broker.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # no traceback reaches a user
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_before_any_verb)
    asked = next((each for each in arguments if each not in _VERBOSE), "").replace("-", "_")
    for verb in (asked,) if asked in VERBS else VERBS:
        importlib.import_module(f"tierlog.cli.verbs.{verb}").register(app)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tierlog {__version__}")
        raise typer.Exit


def _before_any_verb(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done, on stderr.")] = False,
) -> None:
    """Read, write and maintain Kafka tiered storage (KIP-405) and log directories, without a broker.

    Exit codes: 0 done, 1 faults found, 2 wrong use, 3 a store or data error.
    """
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="tierlog: %(levelname)s: %(message)s")
    # No linear algebra is done here; a thread a core would only reserve address space.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
