"""The command's output on stderr: log lines, words for people (as text or as one JSON object a line), progress."""

from __future__ import annotations

import enum
import logging
import sys
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_TEXT = "tierlog: %(levelname)s: %(message)s"


class LogLevel(enum.StrEnum):
    """The least level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    """The form of each line on stderr."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One object a record: ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``message``, ``trace`` of a fault."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line in ASCII: no name can end a line or steer a terminal."""
        import json

        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def set_up_logs(level: LogLevel, form: LogFormat) -> None:
    """Log to stderr. DEBUG is for Tierlog's own loggers alone: those of libraries print headers of requests then."""
    is_json = form is LogFormat.JSON
    number = logging.getLevelNamesMapping()[level.name]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler])
    logging.getLogger("tierlog").setLevel(number)
    logging.captureWarnings(is_json)


def line_of(text: str, level: int) -> str:
    """Return the line for words that are meant for people, in the form of the log lines beside them."""
    formatter = next((handler.formatter for handler in logging.root.handlers), None)
    if not isinstance(formatter, JsonFormatter):
        return f"tierlog: {text}"
    return formatter.format(logging.LogRecord("tierlog.cli", level, "", 0, text, None, None))


class ByteProgress:
    """A bar of bytes done out of a total. A context manager; silent without a terminal.

    Args:
        what: Text in front of the bar.
        total_bytes: The total; None if it is not yet known.
    """

    def __init__(self, what: str, total_bytes: int | None = None) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=self._total_bytes)
            self._bar.start()
        return self

    def step(self, size_bytes: int, total_bytes: int) -> None:
        """Advance the bar of a job, which knows its total from its first step on."""
        if total_bytes != self._total_bytes and self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=total_bytes)
        self._total_bytes = total_bytes
        self.advance(size_bytes)

    def advance(self, size_bytes: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, size_bytes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
