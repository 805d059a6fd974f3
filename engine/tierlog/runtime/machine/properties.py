"""Java's ``.properties`` text, which brokers' configuration and the plugin's credential files are written in."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield key and value pairs in order, as ``java.util.Properties`` reads them; white space at the end of values is
    removed.

    Raises:
        ValueError: a malformed ``\\uxxxx`` escape.
    """
    for line in _logical_lines(text):
        match = _KEY_AND_VALUE.match(line)
        assert match is not None  # every part may be empty
        yield _unescape(match[1]), _unescape(match[2]).rstrip()  # Kafka trims names and values


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank ones; a line that ends in an odd number of backslashes goes on."""
    waiting = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not waiting and (not line or line[0] in "#!"):
            continue
        line = waiting + line
        waiting = ""
        if (len(line) - len(line.rstrip("\\"))) % 2:
            waiting = line[:-1]
            continue
        yield line
    if waiting:
        yield waiting


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u" and len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise ValueError("malformed \\uxxxx escape")
        return _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replace, text, flags=re.DOTALL)
