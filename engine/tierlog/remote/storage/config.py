"""The RSM's configuration as far as reading needs it: the keys an operator already has, checked.

Keys come as a broker has them (``rsm.config.key.prefix``), with ``rsm.`` alone, or bare. Spark lower-cases option keys,
so all are matched without case; key ids are those of the value of ``encryption.key.pairs``.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tierlog.errors import ConfigError
from tierlog.remote.storage.config_file import read_config_file
from tierlog.runtime.files import Files
from tierlog.runtime.store_options import STORAGE_KEYS

_log = logging.getLogger(__name__)

FILE_KEY: Final = "rsm.config.file"
_PAIRS: Final = "encryption.key.pairs"
_PRIVATE: Final = "private.key.file"
_PUBLIC: Final = "public.key.file"

#: Keys of the plugin that only its broker side needs (section 15 of the object format): accepted, not read.
_BROKER_KEYS: Final = frozenset(
    [
        "chunk.size",
        "storage.backend.class",
        "compression.enabled",
        "compression.heuristic.enabled",
        "encryption.enabled",
        "encryption.key.pair.id",
        "custom.metadata.fields.include",
        "upload.rate.limit.bytes.per.second",
        "metrics.num.samples",
        "metrics.sample.window.ms",
        "metrics.recording.level",
        "segment.format",
        "structure.provider.class",
        "iceberg.namespace",
        "iceberg.catalog.class",
        "iceberg.catalog.cache.enabled",
        "iceberg.catalog.cache.expiration.ms",
        "storage.s3.bucket.name",
        "storage.s3.multipart.upload.part.size",
        "storage.s3.storage.class",
        "storage.s3.legacy.md5.plugin.enabled",
        "storage.aws.checksum.check.enabled",
        "storage.gcs.bucket.name",
        "storage.gcs.resumable.upload.chunk.size",
        "storage.azure.container.name",
        "storage.azure.upload.block.size",
        "storage.root",
        "storage.overwrite.enabled",
        "storage.key.prefix",
    ]
)
#: Below these anything goes; the old spellings of the caches among them (section 15.2).
_BROKER_PREFIXES: Final = (
    "fetch.",
    "segment.manifest.cache.",
    "chunk.cache.",
    "iceberg.catalog.",
    "structure.provider.serde.",
    "remote.log.",
)
_OWN_KEYS: Final = frozenset(("key.prefix", "key.prefix.mask", _PAIRS))


def _kafka_boolean(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _kafka_list(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(item for item in (part.strip() for part in value.split(",")) if item)


class TierConfig(BaseModel):
    """What reading a tier needs to know; immutable.

    Args:
        key_prefix: Verbatim in front of every key, below PATH.
        key_prefix_mask: Show ``<prefix>/`` instead in messages.
        key_pairs: Key ids, with the case of the manifests.
        private_key_files: Path of each id's private key.
        store_options: ``store.*`` and ``storage.*``, for the object store.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_prefix: str = Field(default="", alias="key.prefix")
    key_prefix_mask: Annotated[bool, BeforeValidator(_kafka_boolean)] = Field(default=False, alias="key.prefix.mask")
    key_pairs: Annotated[tuple[str, ...], BeforeValidator(_kafka_list)] = Field(default=(), alias=_PAIRS)
    private_key_files: dict[str, str] = Field(default_factory=dict)
    store_options: dict[str, str] = Field(default_factory=dict, repr=False)


def read_tier_config(given: Mapping[str, str] | None, *, files: Files | None = None) -> TierConfig:
    """Check a configuration.

    Args:
        given: Keys and values; ``rsm.config.file`` names a file with more, over which the given ones win.
        files: Where that file is.

    Raises:
        ConfigError: an unknown key (the nearest known one is named), two keys that differ in case alone, a malformed
            value, or a key pair without its file. Values that may be secret are not quoted.
    """
    keys = _normalised(given or {})
    file = keys.pop(FILE_KEY, None)
    if file is not None:
        keys = _normalised(read_config_file(file, files=files)) | keys
    store_options = {k: v for k, v in keys.items() if k.startswith("store.") or k in STORAGE_KEYS}
    pair_keys = {k: v for k, v in keys.items() if k.startswith(f"{_PAIRS}.")}
    own = {k: v for k, v in keys.items() if k in _OWN_KEYS}
    for key in keys.keys() - store_options.keys() - pair_keys.keys() - own.keys():
        _check_known(key)
    if "storage.key.prefix" in keys:
        _log.warning("storage.key.prefix is ignored: the plugin reads key.prefix and never that")
    try:
        config = TierConfig.model_validate(own | {"store_options": store_options})
    except ValidationError as cause:
        first = cause.errors()[0]
        raise ConfigError(f"{first['loc'][0]}: {first['msg']}") from None
    return config.model_copy(update={"private_key_files": _private_key_files(config.key_pairs, pair_keys)})


def _normalised(given: Mapping[str, str]) -> dict[str, str]:
    """Bare keys in lower case. Raises ConfigError where two of different values become one."""
    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for given_key, value in given.items():
        key = given_key.strip().lower()
        if key != FILE_KEY:
            key = key.removeprefix("rsm.").removeprefix("config.") if key.startswith("rsm.") else key
        text = str(value).strip()
        if found.get(key, text) != text:
            raise ConfigError(f"{origin[key]} and {given_key} are one key, and their values differ")
        found[key], origin[key] = text, given_key
    return found


def _check_known(key: str) -> None:
    if key in _BROKER_KEYS or key.startswith(_BROKER_PREFIXES):
        return
    known = sorted(_BROKER_KEYS | _OWN_KEYS | STORAGE_KEYS | {FILE_KEY})
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
    raise ConfigError(f"unknown key {key}; the nearest known one is {nearest}")


def _private_key_files(ids: tuple[str, ...], keys: Mapping[str, str]) -> dict[str, str]:
    """Path by id. Every id needs its private key; public ones are for writers."""
    by_folded: dict[str, str] = {}
    for key_id in ids:
        if by_folded.setdefault(key_id.lower(), key_id) != key_id:
            raise ConfigError(f"{_PAIRS}: {by_folded[key_id.lower()]} and {key_id} differ in case alone")
    allowed = {f"{_PAIRS}.{folded}.{kind}" for folded in by_folded for kind in (_PRIVATE, _PUBLIC)}
    for key in keys.keys() - allowed:
        near = difflib.get_close_matches(key, sorted(allowed), n=1, cutoff=0.0)
        hint = f"; the nearest known one is {near[0]}" if near else f"; {_PAIRS} lists no key id"
        raise ConfigError(f"unknown key {key}{hint}")
    found = {}
    for folded, key_id in by_folded.items():
        path = keys.get(f"{_PAIRS}.{folded}.{_PRIVATE}")
        if not path:
            raise ConfigError(f"missing {_PAIRS}.{key_id}.{_PRIVATE}: segments under that key cannot be read")
        found[key_id] = path
    return found
