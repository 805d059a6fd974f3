"""How the command ends: exit codes, one line a fault, no traceback."""

from __future__ import annotations

import enum
import functools
import os
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

from tierlog.errors import ConfigError, TierlogError
from tierlog.runtime.standard_streams import point_at_nothing

P = ParamSpec("P")


class ExitCode(enum.IntEnum):
    """What a script that calls the command can rely on."""

    DONE = 0
    FAULTS_FOUND = 1  # verify, orphans, rewrap: the check itself ran to its end
    WRONG_USE = 2  # an option, argument or configuration key
    DATA_ERROR = 3  # the store, a disk, or the bytes
    INTERRUPTED = 130  # 128 + SIGINT
    BROKEN_PIPE = 141  # 128 + SIGPIPE, as other filters end under `| head`


def one_line(text: str) -> str:
    """The text on one line, with what a terminal would obey (object names are untrusted) made visible."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in flat)


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"tierlog: {one_line(text)}", file=sys.stderr, flush=True)


def guarded(verb: Callable[P, ExitCode | None]) -> Callable[P, None]:
    """A verb whose every ending is an exit code.

    The verb returns its code (None is DONE). typer would turn an interrupt into code 1 and print a traceback for the
    rest, so no exception may reach it.
    """

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        leave_quietly(lambda: verb(*args, **kwargs))

    return run


def leave_quietly(action: Callable[[], ExitCode | None]) -> NoReturn:
    """Runs the action and ends the process with what came of it."""
    try:
        code = action() or ExitCode.DONE
        sys.stdout.flush()
    except SystemExit as ending:
        _end(ending.code)
    except BaseException as error:  # noqa: BLE001 - no traceback may get out, and pyo3 panics are no Exception
        _end(_code_of(error))
    _end(code)


def _code_of(error: BaseException) -> ExitCode:
    if os.environ.get("TIERLOG_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        return ExitCode.BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        complain("interrupted")
        return ExitCode.INTERRUPTED
    if isinstance(error, MemoryError):
        complain(f"out of memory{': ' + str(error) if str(error) else ''}")
        return ExitCode.DATA_ERROR
    if isinstance(error, ConfigError):
        complain(str(error))
        return ExitCode.WRONG_USE
    if isinstance(error, (TierlogError, OSError)):
        complain(str(error) or type(error).__name__)
        return ExitCode.DATA_ERROR
    complain(f"unexpected {type(error).__name__}: {error} (TIERLOG_DEBUG=1 shows where)")
    return ExitCode.DATA_ERROR


def _end(code: str | int | None) -> NoReturn:
    """Ends with the code even if stdout cannot be flushed any more (Python would end with 120 and a warning)."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        point_at_nothing(1)  # or the interpreter's own last flush fails
    if isinstance(code, str):
        complain(code)
        code = ExitCode.WRONG_USE
    sys.exit(int(code or 0))
