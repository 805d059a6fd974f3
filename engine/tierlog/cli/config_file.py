"""``--config FILE``: the RSM's keys as a broker has them (``.properties``), or the same keys in JSON or TOML.

Only keys that concern the tier are taken from a broker's file: ``rsm.config.*`` (or whatever
``remote.log.storage.manager.impl.prefix`` names instead), ``store.*``. The rest of ``server.properties`` is none of
our business. Values are text, as Kafka's are: booleans become ``true``/``false``, lists are joined by commas.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tierlog.errors import ConfigError

PREFIX_KEY = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX = "rsm.config."
SIZE_BYTES_MAX = 16 << 20
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_config(path: Path | None) -> dict[str, str]:
    """The keys of a configuration file that concern the tier; {} for None.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key is given twice.
    """
    if path is None:
        return {}
    try:
        if path.stat().st_size > SIZE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {SIZE_BYTES_MAX} bytes; this is no configuration file")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    try:
        pairs = _pairs(path.suffix.lower(), text)
        return _of_the_tier(path, list(pairs))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: {error}") from error


def _pairs(suffix: str, text: str) -> Iterator[tuple[str, str]]:
    if suffix == ".json":
        return _flatten("", json.loads(text))
    if suffix == ".toml":
        return _flatten("", tomllib.loads(text))
    return parse_properties(text)


def _of_the_tier(path: Path, pairs: list[tuple[str, str]]) -> dict[str, str]:
    prefix = dict(pairs).get(PREFIX_KEY, DEFAULT_PREFIX)
    kept: dict[str, str] = {}
    for key, value in pairs:
        if key.startswith(prefix):
            key = DEFAULT_PREFIX + key[len(prefix) :]
        elif not key.startswith("store."):
            continue
        if kept.get(key, value) != value:
            raise ConfigError(f"{path}: {key} is given twice with different values")
        kept[key] = value
    return kept


def _flatten(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys: TOML makes tables of them by itself."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flatten(f"{prefix}.{key}" if prefix else str(key), below)
    elif not prefix:
        raise ValueError("the top level must be a table of keys")
    elif isinstance(value, list):
        if any(isinstance(item, (dict, list)) for item in value):
            raise ValueError(f"{prefix}: a list may only hold plain values")
        yield prefix, ",".join(_text(item) for item in value)
    elif value is not None:
        yield prefix, _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Key and value pairs of a Java ``.properties`` text, in order, as ``java.util.Properties`` reads them."""
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        assert match is not None  # every part may be empty
        yield _unescape(match[1]), _unescape(match[2])


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a line that ends in an odd number of backslashes goes on."""
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
