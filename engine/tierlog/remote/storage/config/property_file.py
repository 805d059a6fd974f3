"""A configuration file: the RSM's keys as a broker has them (``.properties``), or the same keys in JSON or TOML.

Only keys that concern the tier are taken from a broker's file: ``rsm.config.*`` (or what
``remote.log.storage.manager.impl.prefix`` names instead) and ``store.*``. Values are text, as Kafka's are: booleans
become ``true``/``false``, lists are joined by commas.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Final

from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.files import Files
from tierlog.runtime.properties import parse_properties

PREFIX_KEY: Final = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX: Final = "rsm.config."
SIZE_BYTES_MAX: Final = 16 << 20


def read_property_file(path: str, files: Files) -> dict[str, str]:
    """The keys of a file that concern the tier, with the prefix ``rsm.config.`` or ``store.``.

    Raises:
        ConfigError: the file cannot be read or parsed, a key is given twice, or none of its keys concerns the tier.
    """
    try:
        text = files.read_whole(path, limit_bytes=SIZE_BYTES_MAX).decode("utf-8")
    except StoreError as cause:
        raise ConfigError(f"cannot read the configuration file {cause}") from cause
    except UnicodeDecodeError as cause:
        raise ConfigError(f"the configuration file {path} is not UTF-8") from cause
    try:
        pairs = list(_pairs(path.lower(), text))
    except (ValueError, RecursionError) as cause:
        raise ConfigError(f"{path}: {cause}") from cause
    kept = _of_the_tier(path, pairs)
    if pairs and not kept:
        raise ConfigError(f"{path}: none of its keys is one of {DEFAULT_PREFIX}* or store.*")
    return kept


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    if name.endswith(".json"):
        return _flatten("", json.loads(text))
    if name.endswith(".toml"):
        return _flatten("", tomllib.loads(text))
    return parse_properties(text)


def _of_the_tier(path: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    prefix = dict(pairs).get(PREFIX_KEY, DEFAULT_PREFIX)
    kept: dict[str, str] = {}
    for given, value in pairs:
        key = DEFAULT_PREFIX + given[len(prefix) :] if given.startswith(prefix) else given
        if not key.startswith((DEFAULT_PREFIX, "store.")):
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
        if any(isinstance(item, dict | list) for item in value):
            raise ValueError(f"{prefix}: a list may only hold plain values")
        yield prefix, ",".join(_text(item) for item in value)
    elif value is not None:
        yield prefix, _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
