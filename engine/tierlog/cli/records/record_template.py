"""``--template``: lines in the format letters of ``kcat -f``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from tierlog.cli.records.record_lines import interleaved, timestamps_ms
from tierlog.cli.records.record_search import joined_headers
from tierlog.errors import ConfigError

_PIECE: Final = re.compile(r"%(.?)|[^%]+", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{1,2}|[0-9]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


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
