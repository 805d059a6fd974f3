"""A configuration file: the RSM's keys as a broker has them (``.properties``), or the same keys in JSON or TOML.

Of a broker's file only the keys that concern the tier are read: ``rsm.config.*`` (or the prefix that
``remote.log.storage.manager.impl.prefix`` names instead) and ``store.*``. If no key of a file carries that prefix, all
its keys must be ours, without prefix. Values are text, as Kafka's are: booleans become ``true``/``false``, lists are
joined by commas.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Collection, Iterator
from typing import Final

from tierlog.config_keys import names_of
from tierlog.errors import ConfigError, StoreError
from tierlog.remote.config.keys import KNOWN_KEYS, BrokerKeys
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.properties import parse_properties

PREFIX_KEY: Final = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX: Final = "rsm.config."
SIZE_BYTES_MAX: Final = 16 << 20
#: Keys that a broker has too: they do not make bare keys of its file.
_OF_BROKERS: Final = names_of(BrokerKeys) | {"broker.id", "remote.log.metadata.custom.metadata.max.bytes"}
#: What stands before keys that no list holds: ids of key pairs, a third party's store, what goes to other classes.
_OPEN_ENDED: Final = ("encryption.key.pairs.", "storage.", "iceberg.", "structure.", "segment.", "chunk.", "fetch.")


def read_property_file(path: str, files: Files, *, others: Collection[str] = ()) -> dict[str, str]:
    """Read the keys of a file, or of a pipe, that concern the tier, and those that its reader names besides.

    The file's name says its format: ``.json``, ``.toml``, else ``.properties``. Content that begins with a brace is
    JSON under any name, since a pipe has none.

    Args:
        path: Of the file.
        files: Where it is.
        others: Keys of a broker, without prefix, that are read too, such as ``max.connections``.

    Raises:
        ConfigError: the file cannot be read or parsed, a key is given twice, or none of its keys concerns the tier. The
            message quotes only our own keys, and keys that look like them.
    """
    try:
        text = files.read_stream(path, limit_bytes=SIZE_BYTES_MAX).decode("utf-8")
    except StoreError as cause:
        raise ConfigError(f"cannot read the configuration file {cause}") from cause
    except UnicodeDecodeError:
        raise ConfigError(f"the configuration file {path} is not UTF-8") from None
    try:
        pairs = list(_pairs(path.lower(), text))
    except (ValueError, RecursionError) as cause:
        raise ConfigError(f"{path}: {cause}") from None
    return _of_the_tier(path, pairs, frozenset(others))


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    if name.endswith(".toml"):
        return _flatten("", tomllib.loads(text))
    if name.endswith(".json") or text.lstrip().startswith("{"):
        return _flatten("", json.loads(text))
    return parse_properties(text)


def _of_the_tier(path: str, pairs: list[tuple[str, str]], others: frozenset[str]) -> dict[str, str]:
    prefix = dict(pairs).get(PREFIX_KEY, DEFAULT_PREFIX)
    bare = not any(_carries(prefix, key) for key, _ in pairs) and any(_is_ours_alone(key) for key, _ in pairs)
    kept: dict[str, str] = {}
    for number, (given, value) in enumerate(pairs, 1):
        if given.strip() in others:
            given = given.strip()
        elif bare:
            _check_shown(path, number, given)
        elif not _carries(prefix, given) and not given.lower().startswith("store."):
            continue
        key = DEFAULT_PREFIX + given[len(prefix) :] if given.startswith(prefix) else given
        if kept.get(key, value) != value:
            raise ConfigError(f"{path}: {key} is given twice with different values")
        kept[key] = value
    if pairs and not kept:
        raise ConfigError(f"{path}: none of its keys is one of {prefix}* or store.*, or one of these without a prefix")
    return kept


def _carries(prefix: str, key: str) -> bool:
    return key.startswith((prefix, "rsm."))


def _is_ours_alone(key: str) -> bool:
    name = key.strip().lower()
    return name in KNOWN_KEYS and name not in _OF_BROKERS and not name.startswith("store.")


def _check_shown(path: str, number: int, given: str) -> None:
    """Refuse a key that looks like none of ours without quoting it: it may be a piece of a secret."""
    name = given.strip().lower()
    known = name.startswith(("store.", *_OPEN_ENDED)) or difflib.get_close_matches(name, KNOWN_KEYS, n=1)
    if not known:
        raise ConfigError(f"{path}: key {number} is no key of the storage manager, nor similar to one (it is hidden)")


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
