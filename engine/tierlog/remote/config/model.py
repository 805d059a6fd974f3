"""All keys of the RSM as one value, and what keys demand of each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from tierlog.errors import ConfigError
from tierlog.remote.config.backend_keys import (
    DEFAULT_PART_BYTES,
    AzureKeys,
    GcsKeys,
    ProxyAndFileKeys,
    S3Keys,
    StoreKeys,
)
from tierlog.remote.config.class_names import BACKENDS
from tierlog.remote.config.fetch_keys import ChunkCacheKeys, IndexCacheKeys, ManifestCacheKeys, PrefetchKeys
from tierlog.remote.config.segment_keys import (
    PAIRS,
    PRIVATE_KEY_FILE,
    PUBLIC_KEY_FILE,
    BrokerKeys,
    SegmentKeys,
    UploadKeys,
)
from tierlog.remote.config.values import KeyGroup

#: Groups of keys as the reference page shows them.
KEY_GROUPS: Final[dict[str, type[KeyGroup]]] = {
    "Segments": SegmentKeys,
    "Uploads, copies and limits": UploadKeys,
    "Manifest cache": ManifestCacheKeys,
    "Index cache": IndexCacheKeys,
    "Chunk cache": ChunkCacheKeys,
    "Requests and prefetch": PrefetchKeys,
    "Any store": StoreKeys,
    "S3": S3Keys,
    "Google Cloud Storage": GcsKeys,
    "Azure Blob Storage": AzureKeys,
    "Proxy and file store": ProxyAndFileKeys,
    "Accepted, without effect": BrokerKeys,
}
_NEEDED_BY_BACKEND: Final = {
    "s3": ("storage_s3_bucket_name", "storage_s3_region"),
    "gcs": ("storage_gcs_bucket_name",),
    "azure": ("storage_azure_container_name",),
    "filesystem": ("storage_root",),
}


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
        storage_keys: Keys of storage_keys.STORAGE_KEYS as text; they hold secrets.
        other_storage_keys: ``storage.*`` keys of a third party's store, as text.
    """

    private_key_files: dict[str, str] = Field(default_factory=dict)
    public_key_files: dict[str, str] = Field(default_factory=dict)
    store_options: dict[str, str] = Field(default_factory=dict, repr=False)
    storage_keys: dict[str, str] = Field(default_factory=dict, repr=False)
    other_storage_keys: dict[str, str] = Field(default_factory=dict, repr=False)

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
        """How far ahead of one reader chunks are fetched, in bytes; 0 turns prefetch off."""
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
        if self.layout == "aiven" and "chunk_size" not in self.model_fields_set:
            raise missing("chunk.size")
        if self.storage_backend_class is None:
            raise missing("storage.backend.class")
        for field in _NEEDED_BY_BACKEND.get(self.storage_backend_class, ()):
            if getattr(self, field) is None:
                raise missing(self.key_of(field))
        if self.storage_backend_class == "gcs" and not any(given for _, given in self._gcs_credentials()):
            names = ", ".join(name for name, _ in self._gcs_credentials())
            raise ConfigError(f"One of {names} must be provided")
        azure = (self.storage_azure_account_name, self.storage_azure_sas_token, self.storage_azure_connection_string)
        if self.storage_backend_class == "azure" and not any(azure):
            told = "storage.azure.account.name and/or storage.azure.sas.token"
            raise ConfigError(f"{told} must be set if storage.azure.connection.string is not set")
        self.check_for_writing()

    @classmethod
    def key_of(cls, field: str) -> str:
        """The key of a field."""
        return cls.model_fields[field].alias or field

    @model_validator(mode="after")
    def _contradictions(self) -> Self:
        for text in self._iter_contradictions():
            raise PydanticCustomError("kafka", "{text}", {"text": text})
        return self

    def _iter_contradictions(self) -> Iterator[str]:
        if self.segment_format == "iceberg":
            yield "segment.format=iceberg is not supported: Tierlog reads and writes Kafka segments (kafka)"
        if self.compression_heuristic_enabled and not self.compression_enabled:
            yield "compression.enabled must be enabled if compression.heuristic.enabled is"
        active = self.encryption_key_pair_id
        if self.encryption_enabled and active is not None and active not in self.encryption_key_pairs:
            yield f"Encryption key '{active}' must be provided: {PAIRS} must list it"
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

    def _iter_s3_contradictions(self) -> Iterator[str]:
        key_id, secret = "storage.aws.access.key.id", "storage.aws.secret.access.key"
        provider, file = "storage.aws.credentials.provider.class", "storage.aws.credentials.file"
        static = self.storage_aws_access_key_id is not None
        if static != (self.storage_aws_secret_access_key is not None):
            yield f"{key_id} and {secret} must be defined together"
        has_provider = self.storage_aws_credentials_provider_class is not None
        has_file = self.storage_aws_credentials_file is not None
        if static and has_provider:
            yield f"Either {key_id} and {secret} or {provider} can be defined, not both"
        if static and has_file:
            yield f"Either {key_id} and {secret} or {file} can be defined, not both"
        if has_provider and has_file:
            yield f"Either {provider} or {file} can be defined, not both"
        kms = (
            self.storage_s3_server_side_encryption_kms_key_id,
            self.storage_s3_server_side_encryption_bucket_key_enabled,
        )
        if any(each is not None for each in kms) and not (self.storage_s3_server_side_encryption or "").startswith(
            "aws:kms"
        ):
            yield "storage.s3.server.side.encryption must be aws:kms or aws:kms:dsse where a KMS key is set"

    def _gcs_credentials(self) -> tuple[tuple[str, bool], ...]:
        return (
            ("storage.gcs.credentials.default", self.storage_gcs_credentials_default is not None),
            ("storage.gcs.credentials.json", self.storage_gcs_credentials_json is not None),
            ("storage.gcs.credentials.path", self.storage_gcs_credentials_path is not None),
        )

    def _iter_other_contradictions(self) -> Iterator[str]:
        given = [name for name, there in self._gcs_credentials() if there]
        if len(given) > 1:
            yield f"Only one of {', '.join(given)} can be defined"
        parts = {
            "account.name": self.storage_azure_account_name,
            "account.key": self.storage_azure_account_key,
            "sas.token": self.storage_azure_sas_token,
            "endpoint.url": self.storage_azure_endpoint_url,
        }
        both = [f"storage.azure.{name}" for name, value in parts.items() if value is not None]
        if self.storage_azure_connection_string is not None and both:
            yield f"storage.azure.connection.string cannot be set together with {', '.join(both)}"
        proxy = {
            "host": self.storage_proxy_host,
            "port": self.storage_proxy_port,
            "username": self.storage_proxy_username,
            "password": self.storage_proxy_password,
        }
        if any(value is not None for value in proxy.values()):
            for name in ("host", "port"):
                if proxy[name] is None:
                    yield _missing_text(f"storage.proxy.{name}")
            if (proxy["username"] is None) != (proxy["password"] is None):
                yield "storage.proxy.username and storage.proxy.password must be defined together"


#: Field by key.
KNOWN_KEYS: Final = {field.alias: name for name, field in StorageConfig.model_fields.items() if field.alias}


def _missing_text(name: str) -> str:
    return f'Missing required configuration "{name}" which has no default value.'


def missing(name: str) -> ConfigError:
    """The message for a missing key, in Kafka's words."""
    return ConfigError(_missing_text(name))
