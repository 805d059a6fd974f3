"""All keys of the RSM as one value, and what keys demand of each other."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Final

from pydantic import ConfigDict, SecretStr, field_validator
from pydantic.dataclasses import dataclass

from tierlog.arguments import require_text, require_type
from tierlog.config_keys import nearest_name, rows
from tierlog.errors import ConfigError
from tierlog.remote.config.class_loading import BACKENDS, CHUNK_CACHES, CREDENTIALS_PROVIDERS, our_name
from tierlog.remote.config.keys import (
    DEFAULT_PART_BYTES,
    KNOWN_KEYS,
    PAIRS,
    PRIVATE_KEY_FILE,
    PUBLIC_KEY_FILE,
    AzureKeys,
    BrokerKeys,
    ChunkCacheKeys,
    GcsKeys,
    IndexCacheKeys,
    ManifestCacheKeys,
    PrefetchKeys,
    ProxyAndFileKeys,
    S3Keys,
    SegmentKeys,
    StoreKeys,
    UploadKeys,
)
from tierlog.remote.config.property_file import read_property_file
from tierlog.remote.config.validation import read_value, validated
from tierlog.runtime.machine import Machine

_NEEDED_BY_BACKEND: Final = {
    "s3": ("storage_s3_bucket_name", "storage_s3_region"),
    "gcs": ("storage_gcs_bucket_name",),
    "azure": ("storage_azure_container_name",),
    "filesystem": ("storage_root",),
}

#: Names of keys whose values may change while the storage manager runs.
_RELOADABLE: Final = re.compile(
    r"^encryption\.key\.pair|credential|access[._]key|account[._]key|secret|session[._]token|sas[._]token|"
    r"connection\.string|password|username"
)
_GCS_CREDENTIALS: Final = tuple(f"storage.gcs.credentials.{kind}" for kind in ("default", "json", "path"))
_STATIC_KEYS: Final = ("storage.aws.access.key.id", "storage.aws.secret.access.key")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class StorageConfig(
    SegmentKeys,
    UploadKeys,
    ManifestCacheKeys,
    IndexCacheKeys,
    ChunkCacheKeys,
    PrefetchKeys,
    StoreKeys,
    S3Keys,
    GcsKeys,
    AzureKeys,
    ProxyAndFileKeys,
    BrokerKeys,
):
    """The configuration; immutable. A field is a key with "_" for each ".". Made by ``read_storage_config``.

    Keys that are given are always checked. Which keys must be given depends on the use: none to read a tier at a known
    place, those of ``check_for_writing`` to write into one, those of ``check_for_broker`` to be a broker's plugin.

    Attributes:
        private_key_files: Paths of private keys by key id, spelled as in ``encryption.key.pairs``.
        public_key_files: Paths of public keys by key id; only writing needs them.
        store_options: ``store.*`` keys as text, but for the storage manager's own; they hold secrets.
        other_storage_keys: ``storage.*`` keys of a third party's store, as text.
        given: Names of the keys that were given.
    """

    private_key_files: dict[str, str] = field(default_factory=dict)
    public_key_files: dict[str, str] = field(default_factory=dict)
    store_options: dict[str, str] = field(default_factory=dict, repr=False)
    other_storage_keys: dict[str, str] = field(default_factory=dict, repr=False)
    given: frozenset[str] = frozenset()

    _read = field_validator("*", mode="before")(classmethod(read_value))

    def __post_init__(self) -> None:
        """Check what keys demand of each other."""
        for text in self._iter_contradictions():
            raise ConfigError(text)

    @property
    def third_party_backend(self) -> str | None:
        """The dotted path of a third party's store class; None for a store of ours."""
        name = self.storage_backend_class
        return None if name is None or name in BACKENDS.values() else name

    @property
    def part_bytes(self) -> int:
        """Size of a part of an upload: ``upload.part.size``, else the configured store's own key."""
        own = {
            "s3": self.storage_s3_multipart_upload_part_size,
            "gcs": self.storage_gcs_resumable_upload_chunk_size,
            "azure": self.storage_azure_upload_block_size,
        }
        return self.upload_part_size or own.get(self.storage_backend_class or "", DEFAULT_PART_BYTES)

    @property
    def prefetch_max_bytes(self) -> int:
        """Bytes that are fetched ahead of one reader; 0 turns prefetch off."""
        if not self.fetch_prefetch_enabled:
            return 0
        return self.fetch_chunk_cache_prefetch_max_size or self.fetch_prefetch_max_bytes

    def check_for_writing(self) -> None:
        """Check that segments can be written with this configuration, into a place that is given elsewhere.

        Raises:
            ConfigError: the first key that is missing.
        """
        if not self.encryption_enabled:
            return
        if self.encryption_key_pair_id is None:
            raise missing("encryption.key.pair.id")
        if not self.encryption_key_pairs:
            raise missing(PAIRS)
        for key_id in self.encryption_key_pairs:
            for files, kind in ((self.public_key_files, PUBLIC_KEY_FILE), (self.private_key_files, PRIVATE_KEY_FILE)):
                if key_id not in files:
                    raise missing(f"{PAIRS}.{key_id}.{kind}")

    def check_for_broker(self) -> None:
        """Check that the configuration has all that a broker's ``rsm.config.*`` must have.

        Raises:
            ConfigError: the first key that is missing.
        """
        if self.layout == "aiven" and "chunk.size" not in self.given:
            raise missing("chunk.size")
        if self.storage_backend_class is None:
            raise missing("storage.backend.class")
        for needed in _NEEDED_BY_BACKEND.get(self.storage_backend_class, ()):
            if getattr(self, needed) is None:
                raise missing(rows(StorageConfig)[needed].name)
        if self.storage_backend_class == "gcs" and not self._there(*_GCS_CREDENTIALS):
            raise ConfigError(f"One of {', '.join(_GCS_CREDENTIALS)} must be provided")
        azure = (self.storage_azure_account_name, self.storage_azure_sas_token, self.storage_azure_connection_string)
        if self.storage_backend_class == "azure" and not any(azure):
            told = "storage.azure.account.name and/or storage.azure.sas.token"
            raise ConfigError(f"{told} must be set if storage.azure.connection.string is not set")
        self.check_for_writing()

    def check_reloadable(self, other: StorageConfig) -> None:
        """Check that another configuration differs by credentials, their files, and pairs of keys alone.

        Raises:
            ConfigError: the keys that differ besides.
        """
        mine, others = (
            {**self.store_options, **self.other_storage_keys},
            {**other.store_options, **other.other_storage_keys},
        )
        changed = [name for name in {*mine, *others} if mine.get(name) != others.get(name)]
        changed += [
            row.name for name, row in rows(StorageConfig).items() if getattr(self, name) != getattr(other, name)
        ]
        fixed = sorted(name for name in changed if not _RELOADABLE.search(name))
        if fixed:
            raise ConfigError(f"{', '.join(fixed)}: another value needs a new start")

    def _iter_contradictions(self) -> Iterator[str]:
        if self.segment_format == "iceberg":
            yield "segment.format=iceberg is not supported: Tierlog reads and writes Kafka segments (kafka)"
        if self.compression_heuristic_enabled and not self.compression_enabled:
            yield "compression.enabled must be enabled if compression.heuristic.enabled is"
        if self.footer_object_enabled and not self.copy_source_verification_enabled:
            yield "copy.source.verification.enabled must be enabled if footer.object.enabled is"
        active = self.encryption_key_pair_id
        if self.encryption_enabled and active is not None and active not in self.encryption_key_pairs:
            yield f"Encryption key '{active}' must be provided: {PAIRS} must list it"
        for key_id in self.encryption_key_pairs:
            if ":" in key_id:
                yield f"{PAIRS}: {key_id!r}: no ':' may be in an id, which ends with it in a manifest"
        if self.layout == "kafka":
            for name, enabled in (("compression", self.compression_enabled), ("encryption", self.encryption_enabled)):
                if enabled:
                    yield f"{name}.enabled cannot be set with layout=kafka, which stores Kafka's files as they are"
        yield from self._iter_cache_contradictions()
        yield from self._iter_s3_contradictions()
        yield from self._iter_other_contradictions()

    def _iter_cache_contradictions(self) -> Iterator[str]:
        if self.fetch_chunk_cache_class is None:
            return
        if self.fetch_chunk_cache_size is None:
            yield _missing_text("fetch.chunk.cache.size")
        if self.fetch_chunk_cache_class == "disk" and self.fetch_chunk_cache_path is None:
            yield _missing_text("fetch.chunk.cache.path")

    def _there(self, *names: str) -> list[str]:
        """Return those of some keys without a default that have a value."""
        return [name for name in names if getattr(self, KNOWN_KEYS[name]) is not None]

    def _iter_s3_contradictions(self) -> Iterator[str]:
        static = self._there(*_STATIC_KEYS)
        told = " and ".join(_STATIC_KEYS)
        if len(static) == 1:
            yield f"{told} must be defined together"
        ways = [told] if self.storage_aws_access_key_id is not None else []
        ways += self._there("storage.aws.credentials.provider.class", "storage.aws.credentials.file")
        if len(ways) > 1:
            yield f"Either {ways[0]} or {ways[1]} can be defined, not both"
        encryption = "storage.s3.server.side.encryption"
        kms = self._there(f"{encryption}.kms.key.id", f"{encryption}.bucket.key.enabled")
        if kms and not (self.storage_s3_server_side_encryption or "").startswith("aws:kms"):
            yield f"{encryption} must be aws:kms or aws:kms:dsse where a KMS key is set"

    def _iter_other_contradictions(self) -> Iterator[str]:
        given = self._there(*_GCS_CREDENTIALS)
        if len(given) > 1:
            yield f"Only one of {', '.join(given)} can be defined"
        both = self._there(*(f"storage.azure.{name}" for name in ("account.name", "account.key", "sas.token")))
        both += self._there("storage.azure.endpoint.url")
        if self.storage_azure_connection_string is not None and both:
            yield f"storage.azure.connection.string cannot be set together with {', '.join(both)}"
        needed = ("storage.proxy.host", "storage.proxy.port")
        login = ("storage.proxy.username", "storage.proxy.password")
        if proxy := self._there(*needed, *login):
            yield from (_missing_text(name) for name in needed if name not in proxy)
            if len(self._there(*login)) == 1:
                yield f"{' and '.join(login)} must be defined together"


def _missing_text(name: str) -> str:
    return f'Missing required configuration "{name}" which has no default value.'


def missing(name: str) -> ConfigError:
    """Return the message for a missing key, in Kafka's words."""
    return ConfigError(_missing_text(name))


FILE_KEY: Final = "rsm.config.file"
#: What lies below these goes to Java classes of others, or is the broker's own: accepted, not read.
_PASSED_OVER: Final = ("iceberg.catalog.", "structure.provider.serde.", "remote.log.")
#: Keys of our plugin for Kafka alone (docs/kafka-plugin.md), which a broker's file has too.
_PLUGINS: Final = frozenset(
    f"tierlog.{name}" for name in ("socket", "python", "request.timeout.ms", "start.timeout.ms", "connections.max")
)
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
    pair_keys, others = {}, {}
    values: dict[str, object] = {}
    for name, value in keys.items():
        if name.startswith(f"{PAIRS}."):
            pair_keys[name] = value
        elif name in KNOWN_KEYS:
            values[KNOWN_KEYS[name]] = value
        elif third_party and name.startswith("storage."):
            others[name] = value
        elif name not in _PLUGINS and not name.startswith(("store.", *_PASSED_OVER)):
            raise _unknown(name, [*KNOWN_KEYS, FILE_KEY])
    beside: dict[str, object] = {
        "store_options": {name: value for name, value in keys.items() if _is_stores_own(name)},
        "other_storage_keys": others,
        "given": frozenset(keys),
    }
    config = validated(StorageConfig, values | beside)
    private, public = _key_files(config.encryption_key_pairs, pair_keys)
    return replace(config, private_key_files=private, public_key_files=public)


def _is_stores_own(name: str) -> bool:
    return name.startswith("store.") and name not in KNOWN_KEYS


def _normalised(given: Mapping[str, object]) -> dict[str, str]:
    """Return the keys without prefix, in lower case. Raises ConfigError if two keys with different values
    become one.
    """
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


def _unknown(name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"unknown key {name}; the nearest known one is {nearest_name(name, known)}")


def _key_files(ids: tuple[str, ...], keys: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Paths of the private and of the public half of each key pair, by id.

    Each id needs its private key, which reads its segments.
    """
    by_folded: dict[str, str] = {}
    for key_id in ids:
        if by_folded.setdefault(key_id.lower(), key_id) != key_id:
            raise ConfigError(f"{PAIRS}: {by_folded[key_id.lower()]} and {key_id} differ in case alone")
    allowed = {f"{PAIRS}.{folded}.{kind}" for folded in by_folded for kind in (PRIVATE_KEY_FILE, PUBLIC_KEY_FILE)}
    for name in keys.keys() - allowed:
        if not allowed:
            raise ConfigError(f"unknown key {name}; {PAIRS} lists no key id")
        raise _unknown(name, allowed)
    private, public = {}, {}
    for folded, key_id in by_folded.items():
        if not keys.get(f"{PAIRS}.{folded}.{PRIVATE_KEY_FILE}"):
            raise missing(f"{PAIRS}.{key_id}.{PRIVATE_KEY_FILE}")
        private[key_id] = keys[f"{PAIRS}.{folded}.{PRIVATE_KEY_FILE}"]
        if keys.get(f"{PAIRS}.{folded}.{PUBLIC_KEY_FILE}"):
            public[key_id] = keys[f"{PAIRS}.{folded}.{PUBLIC_KEY_FILE}"]
    return private, public


_log = logging.getLogger(__name__)

#: Released spelling (2023-11 to 2024-04) → today's.
OLDER_PREFIXES: Final = {
    "segment.manifest.cache.": "fetch.manifest.cache.",
    "chunk.cache.": "fetch.chunk.cache.",
}
#: In the plugin's README and in tutorials, but no release ever read it: objects lie without a prefix.
NEVER_READ: Final = "storage.key.prefix"


def with_todays_names(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the keys under today's names. Keys that no release ever read are left out.

    Raises:
        ConfigError: both spellings of one key, with different values.
    """
    found = {key: value for key, value in keys.items() if not key.startswith(tuple(OLDER_PREFIXES))}
    if found.pop(NEVER_READ, None) is not None:
        _log.warning(
            "%s is ignored, as the plugin ignores it: its objects lie without that prefix; today's name is key.prefix",
            NEVER_READ,
        )
    for key, value in keys.items():
        prefix = next((prefix for prefix in OLDER_PREFIXES if key.startswith(prefix)), None)
        if prefix is None:
            continue
        name = OLDER_PREFIXES[prefix] + key.removeprefix(prefix)
        _log.warning("%s is an older spelling: it is called %s today", key, name)
        if found.setdefault(name, value) != value:
            raise ConfigError(f"{key} and {name} are one key, and their values differ")
    return found
