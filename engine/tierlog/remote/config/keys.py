"""Keys of what is written: chunks, layout, encryption, custom metadata, uploads (the plugin's and our own)."""

from __future__ import annotations

from typing import Final

from tierlog.remote.config.key_facts import (
    INT32_MAX,
    KafkaBoolean,
    KafkaInt,
    KafkaList,
    KeyGroup,
    Password,
    key,
)

PAIRS: Final = "encryption.key.pairs"
PRIVATE_KEY_FILE: Final = "private.key.file"
PUBLIC_KEY_FILE: Final = "public.key.file"
CUSTOM_METADATA_FIELDS: Final = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")
RATE_MINIMUM: Final = 1 << 20


class SegmentKeys(KeyGroup):
    """Keys of how segments become objects."""

    storage_backend_class: str | None = key(
        "storage.backend.class",
        "The store: one of the plugin's four classes, `s3`, `gcs`, `azure`, `filesystem`, or the dotted path of a "
        "Python class of a third party's.",
        not_empty=True,
    )
    chunk_size: KafkaInt = key(
        "chunk.size",
        "Original bytes of a chunk. A broker's configuration must give it, as for the plugin.",
        default=4 << 20,
        minimum=1,
        maximum=INT32_MAX // 2,
    )
    layout: str = key(
        "layout",
        "The layout that is written: the plugin's objects, or Kafka's own files (`kafka`), which Kafka's tools open "
        "unchanged. The latter is neither compressed nor encrypted: use the store's own encryption.",
        default="aiven",
        own=True,
        choices=("aiven", "kafka"),
    )
    key_prefix: str = key("key.prefix", "Prefix of every object key, taken verbatim: no `/` is added.", default="")
    key_prefix_mask: KafkaBoolean = key(
        "key.prefix.mask", "Show `<prefix>/` in place of the prefix in messages.", default=False
    )
    segment_format: str = key(
        "segment.format",
        "`iceberg` is refused: Tierlog has no such mode.",
        default="kafka",
        choices=("kafka", "iceberg"),
    )
    compression_enabled: KafkaBoolean = key(
        "compression.enabled", "Compress each chunk, as a zstd frame.", default=False
    )
    compression_heuristic_enabled: KafkaBoolean = key(
        "compression.heuristic.enabled",
        "Do not compress a segment whose producers compressed most of it already; the plugin goes by its first batch.",
        default=False,
    )
    compression_level: KafkaInt = key(
        "compression.level", "Level of zstd; the plugin uses 3.", default=3, own=True, minimum=1, maximum=22
    )
    encryption_enabled: KafkaBoolean = key(
        "encryption.enabled", "Encrypt chunks and indexes by AES-256-GCM.", default=False
    )
    encryption_key_pair_id: str | None = key(
        "encryption.key.pair.id", "The pair that wraps new data keys; one of the list. Needed to encrypt."
    )
    encryption_key_pairs: KafkaList = key(
        PAIRS, "Ids of RSA key pairs: a ring, so that segments of before and after a rotation are readable.", default=()
    )
    custom_metadata_fields_include: KafkaList = key(
        "custom.metadata.fields.include",
        "Fields that the broker keeps with a segment's metadata.",
        default=(),
        choices=CUSTOM_METADATA_FIELDS,
    )
    custom_metadata_bytes_max: KafkaInt = key(
        "remote.log.metadata.custom.metadata.max.bytes",
        "The broker's limit: a warning is logged before a copy whose custom metadata exceeds it, since the broker "
        "would undo that copy.",
        default=128,
        minimum=0,
        maximum=INT32_MAX,
    )
    manifest_digest_enabled: KafkaBoolean = key(
        "manifest.digest.enabled",
        "The SHA-256 of the manifest goes into the custom metadata (34 bytes more) and is checked on fetch, so that "
        "nobody who can only write to the bucket can pass off another segment as this one. The plugin ignores it.",
        default=False,
        own=True,
    )
    log_index_object_enabled: KafkaBoolean = key(
        "log.index.object.enabled",
        "Store one more object beside each segment, `.remoteLogIndex`: its entry of the remote log index, from which "
        "followers build theirs ([remote-log-index.md](remote-log-index.md)). The plugin ignores it, on delete too.",
        default=False,
        own=True,
    )
    broker_id: KafkaInt = key(
        "broker.id", "The broker's id, which the broker gives.", default=-1, minimum=-1, maximum=INT32_MAX
    )


class UploadKeys(KeyGroup):
    """Keys of how bytes get to the store."""

    upload_rate_limit_bytes_per_second: KafkaInt | None = key(
        "upload.rate.limit.bytes.per.second",
        "Limit of all uploads of the process, indexes and manifests included. The plugin allows 1,000,000,000 at most.",
        live=True,
        minimum=RATE_MINIMUM,
    )
    download_rate_limit_bytes_per_second: KafkaInt | None = key(
        "download.rate.limit.bytes.per.second",
        "Limit of all downloads of the process.",
        own=True,
        live=True,
        minimum=RATE_MINIMUM,
    )
    upload_part_size: KafkaInt | None = key(
        "upload.part.size",
        "Bytes of a part in any store; wins over the store's own key. Smaller objects are one request.",
        own=True,
        minimum=5 << 20,
        maximum=INT32_MAX,
    )
    upload_parallel_parts: KafkaInt = key(
        "upload.parallel.parts", "Parts of one segment under way at once.", default=4, own=True, minimum=1, maximum=64
    )
    upload_buffer_bytes: KafkaInt = key(
        "upload.buffer.bytes",
        "Memory for parts under way, of all copies of the process together; they wait for each other.",
        default=128 << 20,
        own=True,
        minimum=5 << 20,
    )
    copy_deadline_ms: KafkaInt | None = key(
        "copy.deadline.ms",
        "A copy that takes longer fails and is undone; a delete that takes longer fails.",
        default=3_600_000,
        own=True,
        minimum=1,
    )
    copy_source_verification_enabled: KafkaBoolean = key(
        "copy.source.verification.enabled",
        "Check every batch and the indexes before a segment counts as copied; damaged segments are refused.",
        default=True,
        own=True,
    )


class BrokerKeys(KeyGroup):
    """Keys of the plugin that change little or nothing here: accepted and checked."""

    metrics_num_samples: KafkaInt = key(
        "metrics.num.samples", "A key for JMX; not used.", default=2, minimum=1, maximum=INT32_MAX
    )
    metrics_sample_window_ms: KafkaInt = key(
        "metrics.sample.window.ms", "A key for JMX; not used.", default=30_000, minimum=1
    )
    metrics_recording_level: str = key(
        "metrics.recording.level",
        "`DEBUG` and `TRACE` count by topic and partition too, as the plugin does: see metrics.md. `tierlog replica` "
        "then tells the lag of groups: see server.md.",
        default="INFO",
        choices=("INFO", "DEBUG", "TRACE"),
    )
    structure_provider_class: str | None = key("structure.provider.class", "Of Iceberg mode; not used.")
    iceberg_namespace: str | None = key("iceberg.namespace", "Of Iceberg mode; not used.")
    iceberg_catalog_class: str | None = key("iceberg.catalog.class", "Of Iceberg mode; not used.")
    iceberg_catalog_cache_enabled: KafkaBoolean = key(
        "iceberg.catalog.cache.enabled", "Of Iceberg mode; not used.", default=True
    )
    iceberg_catalog_cache_expiration_ms: KafkaInt = key(
        "iceberg.catalog.cache.expiration.ms", "Of Iceberg mode; not used.", default=600_000, minimum=1
    )


_UNBOUNDED = "-1 is no bound."
_POOL_MEANING = "A key of the plugin; not used, since requests hold no threads."


class ManifestCacheKeys(KeyGroup):
    """Keys of the cache of parsed manifests."""

    fetch_manifest_cache_size: KafkaInt = key(
        "fetch.manifest.cache.size", f"Manifests kept. {_UNBOUNDED}", default=1000, minimum=-1
    )
    fetch_manifest_cache_max_bytes: KafkaInt = key(
        "fetch.manifest.cache.max.bytes",
        f"Memory of the manifests kept: that of a large segment takes much more than that of a small one. {_UNBOUNDED}",
        default=64 << 20,
        own=True,
        minimum=-1,
    )
    fetch_manifest_cache_retention_ms: KafkaInt = key(
        "fetch.manifest.cache.retention.ms",
        "How long after its last use an entry is kept. -1 is for ever.",
        default=3_600_000,
        minimum=-1,
    )
    fetch_manifest_cache_get_timeout_ms: KafkaInt = key(
        "fetch.manifest.cache.get.timeout.ms",
        "How long a caller waits for a load, which goes on after that.",
        default=10_000,
        minimum=1,
    )
    fetch_manifest_cache_thread_pool_size: KafkaInt = key(
        "fetch.manifest.cache.thread.pool.size", _POOL_MEANING, default=0, minimum=0, maximum=1024
    )


class IndexCacheKeys(KeyGroup):
    """Keys of the cache of plain index bytes."""

    fetch_indexes_cache_size: KafkaInt = key(
        "fetch.indexes.cache.size", f"Bytes kept. {_UNBOUNDED}", default=10 << 20, minimum=-1
    )
    fetch_indexes_cache_retention_ms: KafkaInt = key(
        "fetch.indexes.cache.retention.ms",
        "How long after its last use an entry is kept. -1 is for ever.",
        default=600_000,
        minimum=-1,
    )
    fetch_indexes_cache_get_timeout_ms: KafkaInt = key(
        "fetch.indexes.cache.get.timeout.ms",
        "How long a caller waits for a load, which goes on after that.",
        default=10_000,
        minimum=1,
    )
    fetch_indexes_cache_thread_pool_size: KafkaInt = key(
        "fetch.indexes.cache.thread.pool.size", _POOL_MEANING, default=0, minimum=0, maximum=1024
    )


class ChunkCacheKeys(KeyGroup):
    """Keys of the cache of plain chunks, in memory or on a disk."""

    fetch_chunk_cache_class: str | None = key(
        "fetch.chunk.cache.class",
        "`memory`, `disk`, or the plugin's class of either; without it there is no chunk cache.",
        not_empty=True,
    )
    fetch_chunk_cache_size: KafkaInt | None = key(
        "fetch.chunk.cache.size", f"Bytes kept; needed with a class. {_UNBOUNDED}", minimum=-1
    )
    fetch_chunk_cache_path: str | None = key(
        "fetch.chunk.cache.path",
        "Directory of the disk cache; needed with it, must exist. Its content survives a restart.",
        not_empty=True,
    )
    fetch_chunk_cache_prefetch_max_size: KafkaInt = key(
        "fetch.chunk.cache.prefetch.max.size",
        "The plugin's bound of prefetch. Above 0 it takes the place of `fetch.prefetch.max.bytes`.",
        default=0,
        minimum=0,
        maximum=INT32_MAX,
    )
    fetch_chunk_cache_retention_ms: KafkaInt = key(
        "fetch.chunk.cache.retention.ms",
        "How long after its last use an entry is kept. -1 is for ever.",
        default=600_000,
        minimum=-1,
    )
    fetch_chunk_cache_get_timeout_ms: KafkaInt = key(
        "fetch.chunk.cache.get.timeout.ms",
        "How long a caller waits for a load, which goes on after that.",
        default=10_000,
        minimum=1,
    )
    fetch_chunk_cache_thread_pool_size: KafkaInt = key(
        "fetch.chunk.cache.thread.pool.size",
        "Threads for a store of your own that only blocks, of all readers together; 0 is our choice. Other stores "
        "need none.",
        default=0,
        minimum=0,
        maximum=1024,
    )
    fetch_chunk_cache_encryption_enabled: KafkaBoolean = key(
        "fetch.chunk.cache.encryption.enabled",
        "Chunks of encrypted segments lie encrypted on the cache's disk too. The plugin's lie there in the clear.",
        default=True,
        own=True,
    )


class PrefetchKeys(KeyGroup):
    """Keys of prefetch: what is fetched before it is asked for."""

    fetch_request_max_bytes: KafkaInt = key(
        "fetch.request.max.bytes",
        "Neighbouring chunks that are wanted and missing come in one request of this size at most.",
        default=16 << 20,
        own=True,
        minimum=1 << 16,
        maximum=INT32_MAX,
    )
    fetch_memory_max_bytes: KafkaInt = key(
        "fetch.memory.max.bytes",
        "Memory of all readers together beyond the caches: requests under way, chunks being opened, and bytes that a "
        "stream's caller has not taken yet. Streams without memory wait for their turn; idle streams give theirs back "
        "and fetch again.",
        default=256 << 20,
        own=True,
        minimum=8 << 20,
    )
    fetch_check_batches_enabled: KafkaBoolean = key(
        "fetch.check.batches.enabled",
        "Check the bytes that a reader gets: batch checksums, rising offsets, all within the segment. This finds "
        "swapped chunks, which are authentic. A replica compares the checksum of every batch that it serves.",
        default=True,
        own=True,
    )
    fetch_prefetch_enabled: KafkaBoolean = key(
        "fetch.prefetch.enabled", "Fetch ahead of readers that read on.", default=True, own=True
    )
    fetch_prefetch_max_bytes: KafkaInt = key(
        "fetch.prefetch.max.bytes",
        "How far ahead of one reader to fetch at most; the distance grows while the reader reads on, and falls to "
        "nothing when it jumps.",
        default=32 << 20,
        own=True,
        minimum=0,
    )
    fetch_prefetch_next_segment_enabled: KafkaBoolean = key(
        "fetch.prefetch.next.segment.enabled",
        "Fetch ahead into the next segment too, if it is known.",
        default=True,
        own=True,
    )


DEFAULT_PART_BYTES: Final = 25 << 20
_S3_STORAGE_CLASSES: Final = (
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
    "FSX_OPENZFS",
)


class StoreKeys(KeyGroup):
    """Keys that every kind of store has."""

    store_probe_enabled: KafkaBoolean = key(
        "store.probe.enabled",
        "When a storage manager starts, write and remove a few small objects, `<key.prefix>.tierlog-probe-…`, to find "
        "out what the store can do and what it permits; the result is logged once and shown as "
        "`tierlog_remote_store_info`. Missing rights, a missing bucket and unknown credentials make the start fail; a "
        "store "
        "that does not answer only gets a warning, and is asked again after the first copy. `false` for credentials "
        "that may only read.",
        default=True,
        own=True,
    )


class S3Keys(KeyGroup):
    """Keys of S3 and of stores that speak its protocol."""

    storage_s3_bucket_name: str | None = key("storage.s3.bucket.name", "Needed for `s3`.", not_empty=True)
    storage_s3_region: str | None = key("storage.s3.region", "Needed for `s3`, also with an endpoint of its own.")
    storage_s3_endpoint_url: str | None = key("storage.s3.endpoint.url", "URL of another server.", url=True)
    storage_s3_path_style_access_enabled: KafkaBoolean | None = key(
        "storage.s3.path.style.access.enabled", "Put the bucket into the path, not into the host name."
    )
    storage_s3_multipart_upload_part_size: KafkaInt = key(
        "storage.s3.multipart.upload.part.size",
        "Bytes of a part.",
        default=DEFAULT_PART_BYTES,
        minimum=5 << 20,
        maximum=INT32_MAX - 8,
    )
    storage_s3_storage_class: str = key(
        "storage.s3.storage.class",
        "Storage class of the objects that are written.",
        default="STANDARD",
        choices=_S3_STORAGE_CLASSES,
    )
    storage_s3_api_call_timeout: KafkaInt | None = key(
        "storage.s3.api.call.timeout", "Time limit of a call with its retries, ms.", minimum=1
    )
    storage_s3_api_call_attempt_timeout: KafkaInt | None = key(
        "storage.s3.api.call.attempt.timeout", "Time limit of one attempt, ms.", minimum=1
    )
    storage_s3_legacy_md5_plugin_enabled: KafkaBoolean = key(
        "storage.s3.legacy.md5.plugin.enabled",
        "Content-MD5 on deletes of many objects, for old servers.",
        default=False,
    )
    storage_s3_server_side_encryption: str | None = key(
        "storage.s3.server.side.encryption",
        "SSE-S3 (`AES256`) or SSE-KMS for the objects that are written; else the bucket's default.",
        own=True,
        choices=("AES256", "aws:kms", "aws:kms:dsse"),
    )
    storage_s3_server_side_encryption_kms_key_id: str | None = key(
        "storage.s3.server.side.encryption.kms.key.id", "The key of SSE-KMS; else the account's.", own=True
    )
    storage_s3_server_side_encryption_bucket_key_enabled: KafkaBoolean | None = key(
        "storage.s3.server.side.encryption.bucket.key.enabled", "One KMS request a bucket key.", own=True
    )
    storage_aws_access_key_id: Password | None = key(
        "storage.aws.access.key.id", "With the secret key, or neither.", not_empty=True
    )
    storage_aws_secret_access_key: Password | None = key(
        "storage.aws.secret.access.key", "With the key id.", not_empty=True
    )
    storage_aws_session_token: Password | None = key(
        "storage.aws.session.token", "Session token of temporary credentials.", not_empty=True
    )
    storage_aws_credentials_file: str | None = key(
        "storage.aws.credentials.file", "Properties with the three keys above; excludes them."
    )
    storage_aws_credentials_provider_class: str | None = key(
        "storage.aws.credentials.provider.class",
        "Where credentials come from and nowhere else: `default`, `environment`, `profile`, `web-identity`, "
        "`container`, `instance`, `anonymous`, or the AWS SDK's class of one of these. Excludes static keys.",
        not_empty=True,
    )
    storage_aws_certificate_check_enabled: KafkaBoolean = key(
        "storage.aws.certificate.check.enabled", "`false` trusts any certificate.", default=True
    )
    storage_aws_checksum_check_enabled: KafkaBoolean = key(
        "storage.aws.checksum.check.enabled",
        "Compare each whole object that is read (manifests and the like) with the checksum that the store keeps of it, "
        "by one more request. A range, by which logs and indexes are read, has none in S3: GCM's tags and the batches' "
        "own checksums cover those. Writes are confirmed independently of this key: `store.checksums`.",
        default=False,
    )


class GcsKeys(KeyGroup):
    """Keys of Google Cloud Storage."""

    storage_gcs_bucket_name: str | None = key("storage.gcs.bucket.name", "Needed for `gcs`.", not_empty=True)
    storage_gcs_endpoint_url: str | None = key("storage.gcs.endpoint.url", "URL of another server.", url=True)
    storage_gcs_resumable_upload_chunk_size: KafkaInt = key(
        "storage.gcs.resumable.upload.chunk.size",
        "Bytes of a part.",
        default=DEFAULT_PART_BYTES,
        minimum=1 << 18,
        maximum=INT32_MAX,
        multiple_of=1 << 18,
    )
    storage_gcs_credentials_default: KafkaBoolean | None = key(
        "storage.gcs.credentials.default", "The environment's chain; `false` is none. One of the three is needed."
    )
    storage_gcs_credentials_json: Password | None = key(
        "storage.gcs.credentials.json", "A service account, or an object with `access_token`."
    )
    storage_gcs_credentials_path: str | None = key("storage.gcs.credentials.path", "The same in a file.")
    storage_gcs_encryption_kms_key_name: str | None = key(
        "storage.gcs.encryption.kms.key.name",
        "Cloud KMS key for the objects that are written; else the bucket's.",
        own=True,
    )


class AzureKeys(KeyGroup):
    """Keys of Azure Blob Storage."""

    storage_azure_container_name: str | None = key(
        "storage.azure.container.name", "Needed for `azure`.", not_empty=True
    )
    storage_azure_account_name: str | None = key(
        "storage.azure.account.name", "This or a SAS token, without a connection string.", not_empty=True
    )
    storage_azure_account_key: Password | None = key("storage.azure.account.key", "Shared key.")
    storage_azure_sas_token: Password | None = key(
        "storage.azure.sas.token", "This or an account name, without a connection string."
    )
    storage_azure_connection_string: Password | None = key(
        "storage.azure.connection.string", "Excludes name, key, token and endpoint."
    )
    storage_azure_endpoint_url: str | None = key(
        "storage.azure.endpoint.url", "Else `https://<account>.blob.core.windows.net`.", url=True
    )
    storage_azure_upload_block_size: KafkaInt = key(
        "storage.azure.upload.block.size",
        "Bytes of a block.",
        default=DEFAULT_PART_BYTES,
        minimum=100 << 10,
        maximum=INT32_MAX,
    )
    storage_azure_encryption_scope: str | None = key(
        "storage.azure.encryption.scope",
        "Encryption scope of the objects that are written; else the container's.",
        own=True,
    )


class ProxyAndFileKeys(KeyGroup):
    """Keys of a SOCKS5 proxy for Google and Azure, and of the file store."""

    storage_proxy_host: str | None = key("storage.proxy.host", "Host of a SOCKS5 proxy; needs the port.")
    storage_proxy_port: KafkaInt | None = key("storage.proxy.port", "Port of the proxy.", minimum=0, maximum=65_535)
    storage_proxy_username: Password | None = key("storage.proxy.username", "With the password, or neither.")
    storage_proxy_password: Password | None = key("storage.proxy.password", "With the username.")
    storage_root: str | None = key(
        "storage.root", "Directory of `filesystem`; needed for it, must exist and be writable.", not_empty=True
    )
    storage_overwrite_enabled: KafkaBoolean = key(
        "storage.overwrite.enabled", "Not used, as in the plugin: writes replace.", default=False
    )


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
#: Field by key.
KNOWN_KEYS: Final = {
    field.alias: name for group in KEY_GROUPS.values() for name, field in group.model_fields.items() if field.alias
}
