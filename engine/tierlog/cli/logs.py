"""What the command writes to stderr: log lines and words for people, as text or as one JSON object a line."""

from __future__ import annotations

import enum
import logging
from datetime import UTC, datetime

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
        """The line, in ASCII: what a name contains can end no line, and steer no terminal."""
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
    """The line for words that are meant for people, in the form of the log lines beside them."""
    formatter = next((handler.formatter for handler in logging.root.handlers), None)
    if not isinstance(formatter, JsonFormatter):
        return f"tierlog: {text}"
    return formatter.format(logging.LogRecord("tierlog.cli", level, "", 0, text, None, None))
