"""Records as lines of text: JSON, a readable form with tabs, raw values, the letters of ``kcat -f``; as bytes, a
record batch at a time.

The command's throughput is decided here (about 2 µs a small record): whole columns become Python lists at once, base64
is ``binascii``'s, and one join builds all lines. Measured against encoding whole columns with numpy and joining with
pyarrow.compute: the same speed for small records, slower for large values, and five times the code.
"""

from __future__ import annotations

import itertools
import json
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from tierlog.cli.times import utc_text
from tierlog.errors import ConfigError

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_PIECE: Final = re.compile(r"%(.?)|[^%]+", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{1,2}|[0-9]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_TYPE_TEXTS = {code: f'"{name}"' for code, name in TIMESTAMP_TYPES.items()}

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def base64_text(value: bytes | None) -> str:
    return "null" if value is None else f'"{b2a_base64(value, newline=False).decode("ascii")}"'


def utf8_text(value: bytes | None) -> str:
    """Return a JSON string; bytes that are not UTF-8 become ``{"base64": …}``, so that nothing is lost or mistaken."""
    if value is None:
        return "null"
    try:
        return _quoted(value.decode("utf-8"))
    except UnicodeDecodeError:
        return f'{{"base64":{base64_text(value)}}}'


def json_text(value: bytes | None) -> str:
    """Return the JSON document itself; bytes that are no JSON become ``{"base64": …}``."""
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


def joined_headers(column: pa.ListArray, *, null: bytes = b"") -> list[list[bytes]]:
    """Return the headers of each row as ``name=value``; ``null`` in place of a null value."""
    if column.null_count == len(column):
        return [[]] * len(column)
    entries = column.values  # all rows' pairs in one; the offsets say whose is which
    pairs = [
        b"%s=%s" % (name.encode("utf-8"), null if value is None else value)
        for name, value in zip(entries.field(0).to_pylist(), entries.field(1).to_pylist(), strict=True)
    ]
    return [pairs[start:end] for start, end in itertools.pairwise(column.offsets.to_pylist())]


_RENDERERS: dict[str, Callable[[bytes | None], str]] = {"base64": base64_text, "utf8": utf8_text, "json": json_text}


def renderer(encoding: str, option: str) -> Callable[[bytes | None], str]:
    """Return the function that renders a column. Raises ConfigError: the encoding is unknown."""
    if encoding not in _RENDERERS:
        raise ConfigError(f"{option} is one of {', '.join(_RENDERERS)}, not {encoding!r}")
    return _RENDERERS[encoding]


def timestamps_ms(rows: pa.RecordBatch) -> list[int]:
    """Return a timestamp column in milliseconds; -1 for none."""
    column = rows.column("timestamp")
    unit = column.type.unit
    values = column.cast(pa.int64()).to_pylist()
    return values if unit == "ms" else [value // 1000 for value in values]


T = TypeVar("T", str, bytes)


def interleaved(pieces: Sequence[T | Sequence[T]], rows: int) -> Iterator[T]:
    """Return the pieces of all lines in order: for each row its part of every piece, which is one constant
    or a list.
    """
    constant = (str, bytes)
    columns = [itertools.repeat(piece, rows) if isinstance(piece, constant) else piece for piece in pieces]
    return itertools.chain.from_iterable(zip(*columns, strict=True))


class JsonLines:
    """One JSON object for each record; its members are the columns, in their order."""

    def __init__(self, columns: Sequence[str], *, key_as: str = "base64", value_as: str = "base64") -> None:
        self._columns = columns
        self._cells: dict[str, Callable[[pa.RecordBatch], Sequence[str]]] = {
            "topic": lambda rows: _constant(rows, "topic"),
            "partition": lambda rows: _constant(rows, "partition"),
            "segment": lambda rows: _constant(rows, "segment"),
            "offset": lambda rows: list(map(str, rows.column("offset").to_pylist())),
            "timestamp": lambda rows: list(map(str, timestamps_ms(rows))),
            "timestampType": lambda rows: [_TYPE_TEXTS[kind] for kind in rows.column("timestampType").to_pylist()],
            "leaderEpoch": lambda rows: list(map(str, rows.column("leaderEpoch").to_pylist())),
            "key": lambda rows: list(map(renderer(key_as, "--key-as"), rows.column("key").to_pylist())),
            "value": lambda rows: list(map(renderer(value_as, "--value-as"), rows.column("value").to_pylist())),
            "headers": _header_texts,
        }

    def render(self, rows: pa.RecordBatch, /) -> bytes:
        pieces: list[str | Sequence[str]] = []
        text = "{"
        for name in self._columns:
            text += f'"{name}":'
            cells = self._cells[name](rows)
            if isinstance(cells, str):
                text += cells
            else:
                pieces += [text, cells]
                text = ""
            text += ","
        pieces.append(text.removesuffix(",") + "}\n")
        return "".join(interleaved(pieces, rows.num_rows)).encode("utf-8")


def _constant(rows: pa.RecordBatch, name: str) -> str:
    """Return the value of a column that has the same value in all rows of a batch."""
    value = rows.column(name)[0].as_py()
    return _quoted(value) if isinstance(value, str) else str(value)


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


#: What text has by itself: TOPIC-PARTITION, and the headers behind the rest where a record has any.
TEXT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class TextLines:
    """Lines for people, fields parted by tabs, unprintable characters escaped, times in UTC.

    Args:
        columns: The columns in order; None for partition, offset, time, key, value, and headers if there are any.
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = columns

    def render(self, rows: pa.RecordBatch, /) -> bytes:
        count = rows.num_rows
        if self._columns is None:
            place = f"{readable(rows.column('topic')[0].as_py().encode())}-{rows.column('partition')[0].as_py()}"
            cells = [[place] * count, *(_TEXT_CELLS[name](rows) for name in TEXT_COLUMNS[2:6])]
            behind = [f"\t{text}\n" if text else "\n" for text in _TEXT_CELLS["headers"](rows)]
        else:
            cells = [_TEXT_CELLS[name](rows) for name in self._columns]
            behind = ["\n"] * count
        pieces: list[str | Sequence[str]] = [cells[0]]
        for each in cells[1:]:
            pieces += ["\t", each]
        return "".join(interleaved([*pieces, behind], count)).encode("utf-8")


_TEXT_CELLS: dict[str, Callable[[pa.RecordBatch], list[str]]] = {
    "topic": lambda rows: list(map(readable, map(str.encode, rows.column("topic").to_pylist()))),
    "partition": lambda rows: list(map(str, rows.column("partition").to_pylist())),
    "segment": lambda rows: list(map(readable, map(str.encode, rows.column("segment").to_pylist()))),
    "offset": lambda rows: list(map(str, rows.column("offset").to_pylist())),
    "timestamp": lambda rows: list(map(utc_text, timestamps_ms(rows))),
    "timestampType": lambda rows: [TIMESTAMP_TYPES[kind] for kind in rows.column("timestampType").to_pylist()],
    "leaderEpoch": lambda rows: list(map(str, rows.column("leaderEpoch").to_pylist())),
    "key": lambda rows: list(map(readable, rows.column("key").to_pylist())),
    "value": lambda rows: list(map(readable, rows.column("value").to_pylist())),
    "headers": lambda rows: [
        ",".join(map(readable, headers)) for headers in joined_headers(rows.column("headers"), null=b"null")
    ],
}


class DelimitedLines:
    """CSV or TSV, quoted as RFC 4180 has it, a line feed behind each record.

    Null is an empty field, an empty text is ``""``. Keys and values are UTF-8; other bytes, and texts that begin with
    ``{"base64":``, are written as ``{"base64":"…"}``, so that no two values look the same. Times are ISO 8601 in UTC;
    headers are the JSON of ``--format json``.

    Args:
        columns: The columns in order.
        delimiter: One character.
        key_as, value_as: "utf8" or "base64".

    Attributes:
        head: The line of the columns' names.

    Raises:
        ConfigError: an encoding is another one.
    """

    def __init__(self, columns: Sequence[str], delimiter: str, *, key_as: str = "utf8", value_as: str = "utf8") -> None:
        self._delimiter = delimiter
        self._special = re.compile(f'[{delimiter}"\r\n]')
        encodings = {"key": key_as, "value": value_as}
        for name, encoding in encodings.items():
            if encoding not in ("utf8", "base64"):
                raise ConfigError(f"--{name}-as {encoding} does not go together with --format csv and tsv")
        self._cells = [(name, self._cells_of(name, encodings.get(name))) for name in columns]
        self.head = (delimiter.join(columns) + "\n").encode("ascii")

    def render(self, rows: pa.RecordBatch, /) -> bytes:
        pieces: list[str | Sequence[str]] = []
        for _, cells in self._cells:
            pieces += [cells(rows), self._delimiter]
        pieces[-1] = "\n"
        return "".join(interleaved(pieces, rows.num_rows)).encode("utf-8")

    def _cells_of(self, name: str, encoding: str | None) -> Callable[[pa.RecordBatch], list[str]]:
        if encoding is not None:
            shown = _lossless_text if encoding == "utf8" else _bare_base64
            return lambda rows: [self._field(shown(value)) for value in rows.column(name).to_pylist()]
        if name == "timestamp":
            return lambda rows: ["" if ms == -1 else utc_text(ms) for ms in timestamps_ms(rows)]
        if name == "headers":
            return lambda rows: ["" if text == "[]" else self._field(text) for text in _header_texts(rows)]
        if name in ("topic", "segment"):
            return lambda rows: list(map(self._field, rows.column(name).to_pylist()))
        return _TEXT_CELLS[name]

    def _field(self, text: str | None) -> str:
        if text is None:
            return ""
        if text and self._special.search(text) is None:
            return text
        return f'"{text.replace(chr(34), chr(34) * 2)}"'


def _lossless_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    if not value.startswith(b'{"base64":'):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            pass  # as base64
    return f'{{"base64":{base64_text(value)}}}'


def _bare_base64(value: bytes | None) -> str | None:
    return None if value is None else b2a_base64(value, newline=False).decode("ascii")


class RawLines:
    """The values alone, each with a line feed behind it; a null value is an empty line."""

    def render(self, rows: pa.RecordBatch, /) -> bytes:
        return b"".join([(value or b"") + b"\n" for value in rows.column("value").to_pylist()])


def readable(value: bytes | None) -> str:
    """Return text on one line, without characters that control a terminal."""
    if value is None:
        return "null"
    text = value.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _texts(values: Sequence[int]) -> list[bytes]:
    return [b"%d" % value for value in values]


def _lengths(column: pa.Array) -> list[int]:
    return [-1 if value is None else len(value) for value in column.to_pylist()]


def _bytes(column: pa.Array) -> list[bytes]:
    return [value or b"" for value in column.to_pylist()]


#: Letter -> (column, how its values are written).
_LETTERS: Final[dict[str, tuple[str, Callable[[pa.RecordBatch], list[bytes]]]]] = {
    "s": ("value", lambda rows: _bytes(rows.column("value"))),
    "S": ("value", lambda rows: _texts(_lengths(rows.column("value")))),
    "R": ("value", lambda rows: [size.to_bytes(4, "big", signed=True) for size in _lengths(rows.column("value"))]),
    "k": ("key", lambda rows: _bytes(rows.column("key"))),
    "K": ("key", lambda rows: _texts(_lengths(rows.column("key")))),
    "o": ("offset", lambda rows: _texts(rows.column("offset").to_pylist())),
    "T": ("timestamp", lambda rows: _texts(timestamps_ms(rows))),
    "h": ("headers", lambda rows: [b",".join(each) for each in joined_headers(rows.column("headers"), null=b"NULL")]),
    "t": ("topic", lambda rows: [name.encode("utf-8") for name in rows.column("topic").to_pylist()]),
    "p": ("partition", lambda rows: _texts(rows.column("partition").to_pylist())),
}


class TemplateLines:
    """Records in a format string of kcat's: %t %p %o %T %k %K %s %S %R %h %%, and \\n \\t \\r \\0 \\xHH between them.

    As in kcat, a null key or value is empty and has the length -1, and no line feed is added.

    Raises:
        ConfigError: an unknown letter.
    """

    def __init__(self, template: str) -> None:
        self._pieces: list[bytes | str] = []
        for found in _PIECE.finditer(template):
            letter = found[1]
            if letter is None:
                self._pieces.append(_unescaped(found[0].encode("utf-8", "surrogateescape")))
            elif letter == "%":
                self._pieces.append(b"%")
            elif letter in _LETTERS:
                self._pieces.append(letter)
            else:
                known = " ".join(f"%{each}" for each in _LETTERS)
                raise ConfigError(f"--template: %{letter} is none of {known} %%")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that have to be read."""
        return tuple(dict.fromkeys(_LETTERS[piece][0] for piece in self._pieces if isinstance(piece, str)))

    def render(self, rows: pa.RecordBatch, /) -> bytes:
        pieces = [piece if isinstance(piece, bytes) else _LETTERS[piece][1](rows) for piece in self._pieces]
        return b"".join(interleaved(pieces, rows.num_rows))


def _unescaped(text: bytes) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if escape[:1] == b"x" and len(escape) > 1:
            return bytes([int(escape[1:], 16)])
        if escape.isdigit():  # as strtoul reads it: octal behind a zero
            octal = escape.startswith(b"0") and not set(escape) & set(b"89")
            return bytes([int(escape, 8 if octal else 10) & 0xFF])
        return _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(replace, text)
