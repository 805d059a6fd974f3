"""The ends of the command: exit codes, one line a fault, no traceback."""

from __future__ import annotations

import enum
import functools
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, ParamSpec

from tierlog.cli.stderr import line_of
from tierlog.errors import ConfigError, TierlogError
from tierlog.runtime.machine.process import point_at_nothing

P = ParamSpec("P")
#: What undoing takes at most where nothing is stuck.
PATIENCE_SECONDS = 2.0
#: After what time an exception of a signal is raised again that Python dropped, and between tries.
AGAIN_SECONDS = 0.01


class ExitCode(enum.IntEnum):
    """The exit codes, which scripts can rely on."""

    DONE = 0
    FAULTS_FOUND = 1  # verify, orphans, rewrap: the check itself ran to its end
    WRONG_USE = 2  # an option, argument or configuration key
    DATA_ERROR = 3  # the store, a disk, or the bytes
    INTERRUPTED = 130  # 128 + SIGINT
    BROKEN_PIPE = 141  # 128 + SIGPIPE, as other filters end under `| head`
    TERMINATED = 143  # 128 + SIGTERM


#: Numbers of the signals that came: what fails behind the first fails because of it.
_signals: list[int] = []


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP came: unfinished work is undone on the way out, as at an interrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def end_orderly_on_signals() -> None:
    """Make SIGTERM and SIGHUP exceptions of the main thread, as SIGINT is.

    Signals soon after the first are dropped, since `timeout` sends two and people press ^C twice while unfinished work
    is undone; later ones end that too. An exception that hits a finalizer or a callback of a weak reference, where
    Python drops it, is raised again, by SIGALRM.
    """
    first_at: list[float] = []
    dropped = sys.unraisablehook

    def told(number: int, _frame: FrameType | None) -> None:
        from tierlog.runtime.machine import Machine  # not for --version

        now = Machine().clock.monotonic_seconds()
        first_at.append(now)
        _signals.append(number)
        if len(first_at) > 1 and now - first_at[0] < PATIENCE_SECONDS:
            return
        raise _ending_by(number)

    def told_again(_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is tell_again.__code__:  # Python drops an exception that a hook raises as well
                signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
                return
            frame = frame.f_back
        raise _ending_by(_signals[0])

    def tell_again(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt | TerminatedError):
            dropped(unraisable)
        elif _signals and not sys.is_finalizing():
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)

    signal.signal(signal.SIGALRM, told_again)
    sys.unraisablehook = tell_again
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, told)


def _ending_by(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else TerminatedError(number)


def one_line(text: str) -> str:
    """Return the text on one line, with its control characters made visible: object names are untrusted, and a terminal
    would obey them.
    """
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in flat)


def complain(text: str, *, level: int = logging.ERROR) -> None:
    """Print one line on stderr; the level is for JSON alone."""
    print(line_of(one_line(text), level), file=sys.stderr, flush=True)


def guarded(verb: Callable[P, ExitCode | None]) -> Callable[P, None]:
    """Return a verb whose every ending is an exit code.

    The verb returns its code (None is DONE). typer would turn an interrupt into code 1 and print a traceback for the
    rest, so no exception may reach it.
    """

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        leave_quietly(lambda: verb(*args, **kwargs))

    return run


def leave_quietly(action: Callable[[], ExitCode | None]) -> NoReturn:
    """Run the action, and end the process with its exit code."""
    try:
        code = action() or ExitCode.DONE
        sys.stdout.flush()
    except SystemExit as ending:
        _end(ending.code)
    except BaseException as error:  # noqa: BLE001 - no traceback may get out, and pyo3 panics are no Exception
        ending_code = _code_of(error)
        traceback.clear_frames(error.__traceback__)  # closes resources of the frames that no block reached
        _end(ending_code)
    _end(code)


def _code_of(error: BaseException) -> int:
    if os.environ.get("TIERLOG_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, Exception) and _signals:  # of something that the signal closed, on the way out
        error = _ending_by(_signals[0])
    if isinstance(error, BrokenPipeError):
        return ExitCode.BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt | TerminatedError):
        point_at_nothing(1)  # a reader that does not read must not hold up the end
        complain("interrupted" if isinstance(error, KeyboardInterrupt) else "terminated")
        return ExitCode.INTERRUPTED if isinstance(error, KeyboardInterrupt) else 128 + error.number
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
    """End the process with the code even if stdout cannot be flushed any more (Python would end with 120 and a
    warning).
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        point_at_nothing(1)  # or the interpreter's own last flush fails
    if isinstance(code, str):
        complain(code)
        code = ExitCode.WRONG_USE
    sys.exit(int(code or 0))
