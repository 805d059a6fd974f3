"""From keys and values as callers give them to a checked configuration.

Keys may stand as in a broker's file (``rsm.config.key.prefix``), with ``rsm.`` alone, or bare. Spark lower-cases option
keys, so all are matched without case; key ids are spelled as in the value of ``encryption.key.pairs``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from tierlog.arguments import require_text, require_type
from tierlog.errors import ConfigError
from tierlog.remote.config.class_names import BACKENDS, CHUNK_CACHES, CREDENTIALS_PROVIDERS, our_name
from tierlog.remote.config.model import KNOWN_KEYS, StorageConfig, missing
from tierlog.remote.config.older_names import with_todays_names
from tierlog.remote.config.property_file import read_property_file
from tierlog.remote.config.segment_keys import PAIRS, PRIVATE_KEY_FILE, PUBLIC_KEY_FILE
from tierlog.remote.config.shown_values import quoted
from tierlog.remote.config.storage_keys import STORAGE_KEYS
from tierlog.runtime.machine import Machine

FILE_KEY: Final = "rsm.config.file"
#: What lies below these goes to Java classes of others, or is the broker's own: accepted, not read.
_PASSED_OVER: Final = ("iceberg.catalog.", "structure.provider.serde.", "remote.log.")
_CLASSES: Final[dict[str, tuple[dict[str, str], bool]]] = {
    "storage.backend.class": (BACKENDS, True),
    "fetch.chunk.cache.class": (CHUNK_CACHES, False),
    "storage.aws.credentials.provider.class": (CREDENTIALS_PROVIDERS, False),
}


def read_storage_config(given: Mapping[str, object] | None, *, machine: Machine | None = None) -> StorageConfig:
    """Check a configuration.

    Args:
        given: Keys and values; ``rsm.config.file`` names a file with more, over which the given ones win. A value of
            None counts as not given; lists and booleans are accepted.
        machine: Has that file.

    Raises:
        ConfigError: an unknown key (the nearest known one is named), two keys that differ in case alone, a malformed
            value, values that contradict each other, a class that has no counterpart, or a key pair without its
            private key. Values that may be secret are not quoted. TypeError: no mapping, or a key that is no str.
    """
    keys = _normalised({} if given is None else require_type("config", given, Mapping, "a mapping"))
    file = keys.pop(FILE_KEY, None)
    if file is not None:
        keys = _normalised(read_property_file(file, (machine or Machine()).files)) | keys
    keys = with_todays_names(keys)
    for name, (known, dotted) in _CLASSES.items():
        if keys.get(name):
            keys[name] = our_name(name, keys[name], known, dotted=dotted)
    third_party = keys.get("storage.backend.class", "s3") not in BACKENDS.values()
    pair_keys, others, values = {}, {}, {}
    for name, value in keys.items():
        if name.startswith(f"{PAIRS}."):
            pair_keys[name] = value
        elif name in KNOWN_KEYS:
            values[name] = value
        elif third_party and name.startswith("storage."):
            others[name] = value
        elif not name.startswith(("store.", *_PASSED_OVER)):
            raise _unknown(name, [*KNOWN_KEYS, FILE_KEY])
    for_the_store = {
        "store_options": {name: value for name, value in keys.items() if _is_stores_own(name)},
        "storage_keys": {name: value for name, value in keys.items() if name in STORAGE_KEYS},
    }
    config = _validated(values | {"other_storage_keys": others} | for_the_store)
    return config.model_copy(update=_key_files(config.encryption_key_pairs, pair_keys))


def _is_stores_own(name: str) -> bool:
    return name.startswith("store.") and name not in KNOWN_KEYS


def _normalised(given: Mapping[str, object]) -> dict[str, str]:
    """The keys without prefix, in lower case. Raises ConfigError if two keys with different values become one."""
    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for given_key, value in given.items():
        if value is None:
            continue
        name = require_text("each key of config", given_key).strip().lower()
        if name != FILE_KEY:
            name = name.removeprefix("rsm.").removeprefix("config.") if name.startswith("rsm.") else name
        text = _text(value)
        if found.get(name, text) != text:
            raise ConfigError(f"{origin[name]} and {given_key} are one key, and their values differ")
        found[name], origin[name] = text, given_key
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, SecretStr):
        return value.get_secret_value().strip()
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    return str(value).strip()


def _unknown(name: str, known: list[str]) -> ConfigError:
    nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
    return ConfigError(f"unknown key {name}; the nearest known one is {nearest}")


def _validated(values: Mapping[str, Any]) -> StorageConfig:
    try:
        return StorageConfig.model_validate(values)
    except ValidationError as cause:
        # Without its cause, which would quote every value.
        first = cause.errors(include_url=False)[0]
    if not first["loc"]:
        raise ConfigError(first["msg"])
    name = str(first["loc"][0])
    shown = "" if is_secret(name) else quoted(str(values.get(name)), first["msg"])
    raise ConfigError(f"Invalid value{shown} for configuration {name}: {first['msg']}")


def is_secret(name: str) -> bool:
    """Whether the value of a key must never be shown."""
    field = KNOWN_KEYS.get(name)
    return field is None or "SecretStr" in str(StorageConfig.model_fields[field].annotation)


def _key_files(ids: tuple[str, ...], keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Paths of both halves of each key pair by id. Each id needs its private key, which reads its segments."""
    by_folded: dict[str, str] = {}
    for key_id in ids:
        if by_folded.setdefault(key_id.lower(), key_id) != key_id:
            raise ConfigError(f"{PAIRS}: {by_folded[key_id.lower()]} and {key_id} differ in case alone")
    allowed = {f"{PAIRS}.{folded}.{kind}" for folded in by_folded for kind in (PRIVATE_KEY_FILE, PUBLIC_KEY_FILE)}
    for name in keys.keys() - allowed:
        if not allowed:
            raise ConfigError(f"unknown key {name}; {PAIRS} lists no key id")
        raise _unknown(name, sorted(allowed))
    private, public = {}, {}
    for folded, key_id in by_folded.items():
        if not keys.get(f"{PAIRS}.{folded}.{PRIVATE_KEY_FILE}"):
            raise missing(f"{PAIRS}.{key_id}.{PRIVATE_KEY_FILE}")
        private[key_id] = keys[f"{PAIRS}.{folded}.{PRIVATE_KEY_FILE}"]
        if keys.get(f"{PAIRS}.{folded}.{PUBLIC_KEY_FILE}"):
            public[key_id] = keys[f"{PAIRS}.{folded}.{PUBLIC_KEY_FILE}"]
    return {"private_key_files": private, "public_key_files": public}
