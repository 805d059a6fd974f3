"""Records as lines of text: JSON, a readable table form, raw values. Bytes go out, a record batch at a time.

The command's throughput is decided here (about 2 µs a small record): whole columns become Python lists at once, base64
is ``binascii``'s, and one f-string builds a line. Measured against encoding whole columns with numpy and joining with
pyarrow.compute: the same speed for small records, slower for large values, and five times the code.
"""

from __future__ import annotations

import itertools
import json
from binascii import b2a_base64
from collections.abc import Callable

import pyarrow as pa

from tierlog.cli.times import utc_text
from tierlog.errors import ConfigError

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
#: The columns that every line form needs of a scan, beside topic and partition.
LINE_COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch")

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def base64_text(value: bytes | None) -> str:
    return "null" if value is None else f'"{b2a_base64(value, newline=False).decode("ascii")}"'


def utf8_text(value: bytes | None) -> str:
    """A JSON string; what is not UTF-8 becomes ``{"base64": …}``, so that nothing is lost or mistaken."""
    if value is None:
        return "null"
    try:
        return _quoted(value.decode("utf-8"))
    except UnicodeDecodeError:
        return f'{{"base64":{base64_text(value)}}}'


def json_text(value: bytes | None) -> str:
    """The JSON document in place; what is none becomes ``{"base64": …}``."""
    if value is None:
        return "null"
    try:
        text = value.decode("utf-8")
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return f'{{"base64":{base64_text(value)}}}'
    # Line breaks between tokens would end the line; inside strings JSON has them escaped.
    return text.replace("\r", " ").replace("\n", " ").strip()


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_RENDERERS: dict[str, Callable[[bytes | None], str]] = {"base64": base64_text, "utf8": utf8_text, "json": json_text}


def renderer(encoding: str, option: str) -> Callable[[bytes | None], str]:
    """Raises ConfigError for an unknown encoding."""
    if encoding not in _RENDERERS:
        raise ConfigError(f"{option} is one of {', '.join(_RENDERERS)}, not {encoding!r}")
    return _RENDERERS[encoding]


def timestamps_ms(rows: pa.RecordBatch) -> list[int]:
    """Milliseconds; -1 for none."""
    column = rows.column("timestamp")
    unit = column.type.unit
    values = column.cast(pa.int64()).to_pylist()
    return values if unit == "ms" else [value // 1000 for value in values]


class JsonLines:
    """One JSON object a record, as the project's documents promise it."""

    def __init__(self, *, key_as: str = "base64", value_as: str = "base64") -> None:
        self._key = renderer(key_as, "--key-as")
        self._value = renderer(value_as, "--value-as")

    def render(self, topic: str, partition: int, rows: pa.RecordBatch, /) -> bytes:
        head = f'{{"topic":{_quoted(topic)},"partition":{partition},"offset":'
        types = {code: f',"timestampType":"{name}","leaderEpoch":' for code, name in TIMESTAMP_TYPES.items()}
        lines = [
            f'{head}{offset},"timestamp":{timestamp}{types[kind]}{epoch},"key":{key},"value":{value},'
            f'"headers":{headers}}}\n'
            for offset, timestamp, kind, epoch, key, value, headers in zip(
                rows.column("offset").to_pylist(),
                timestamps_ms(rows),
                rows.column("timestampType").to_pylist(),
                rows.column("leaderEpoch").to_pylist(),
                map(self._key, rows.column("key").to_pylist()),
                map(self._value, rows.column("value").to_pylist()),
                _header_texts(rows),
                strict=True,
            )
        ]
        return "".join(lines).encode("utf-8")


def _header_texts(rows: pa.RecordBatch) -> list[str]:
    column = rows.column("headers")
    if column.null_count == len(column):
        return ["[]"] * len(column)
    entries = column.values  # all rows' pairs in one; the offsets say whose is which
    pairs = [
        f"[{_quoted(key)},{base64_text(value)}]"
        for key, value in zip(entries.field(0).to_pylist(), entries.field(1).to_pylist(), strict=True)
    ]
    ends = column.offsets.to_pylist()
    return [f"[{','.join(pairs[start:end])}]" for start, end in itertools.pairwise(ends)]


class TextLines:
    """For people: partition, offset, UTC time, key and value, separated by tabs; what does not print is escaped."""

    def render(self, topic: str, partition: int, rows: pa.RecordBatch, /) -> bytes:
        lines = [
            f"{topic}-{partition}\t{offset}\t{utc_text(timestamp)}\t{readable(key)}\t{readable(value)}\n"
            for offset, timestamp, key, value in zip(
                rows.column("offset").to_pylist(),
                timestamps_ms(rows),
                rows.column("key").to_pylist(),
                rows.column("value").to_pylist(),
                strict=True,
            )
        ]
        return "".join(lines).encode("utf-8")


class RawLines:
    """The values alone, each with a line feed behind it; a null value is an empty line."""

    def render(self, _topic: str, _partition: int, rows: pa.RecordBatch, /) -> bytes:
        return b"".join([(value or b"") + b"\n" for value in rows.column("value").to_pylist()])


def readable(value: bytes | None) -> str:
    """Text on one line that a terminal does not obey."""
    if value is None:
        return "null"
    text = value.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
