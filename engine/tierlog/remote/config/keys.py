"""Keys of copies: chunks, layout, encryption, custom metadata, uploads (the plugin's and our own)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierlog.arguments import INT32_MAX
from tierlog.config_keys import Int32, key, rows
from tierlog.remote.config.validation import Password

PAIRS: Final = "encryption.key.pairs"
PRIVATE_KEY_FILE: Final = "private.key.file"
PUBLIC_KEY_FILE: Final = "public.key.file"
CUSTOM_METADATA_FIELDS: Final = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")
RATE_MINIMUM: Final = 1 << 20


@dataclass(frozen=True)
class SegmentKeys:
    """Keys of how segments become objects."""

    storage_backend_class: str | None = key(
        "The store: one of the plugin's four classes, `s3`, `gcs`, `azure`, `filesystem`, or the dotted path of a "
        "Python class of a third party's.",
        not_empty=True,
    )
    chunk_size: int = key(
        "Original bytes of a chunk. A broker's configuration must give it, as for the plugin.",
        default=4 << 20,
        minimum=1,
        maximum=INT32_MAX // 2,
    )
    layout: str = key(
        "The layout that is written: the plugin's objects, or Kafka's own files (`kafka`), which Kafka's tools open "
        "unchanged. The latter is neither compressed nor encrypted: use the store's own encryption.",
        default="aiven",
        own=True,
        choices=("aiven", "kafka"),
    )
    key_prefix: str = key("Prefix of every object key, taken verbatim: no `/` is added.", default="")
    key_prefix_mask: bool = key("Show `<prefix>/` in place of the prefix in messages.", default=False)
    segment_format: str = key(
        "`iceberg` is refused: Tierlog has no such mode.", default="kafka", choices=("kafka", "iceberg")
    )
    compression_enabled: bool = key("Compress each chunk, as a zstd frame.", default=False)
    compression_heuristic_enabled: bool = key(
        "Do not compress a segment whose producers compressed most of it already; the plugin goes by its first batch.",
        default=False,
    )
    compression_level: int = key("Level of zstd; the plugin uses 3.", default=3, own=True, minimum=1, maximum=22)
    encryption_enabled: bool = key("Encrypt chunks and indexes by AES-256-GCM.", default=False)
    encryption_key_pair_id: str | None = key("The pair that wraps new data keys; one of the list. Needed to encrypt.")
    encryption_key_pairs: tuple[str, ...] = key(
        "Ids of RSA key pairs: a ring, so that segments of before and after a rotation are readable.",
        default=(),
        name=PAIRS,
    )
    custom_metadata_fields_include: tuple[str, ...] = key(
        "Fields that the broker keeps with a segment's metadata.", default=(), choices=CUSTOM_METADATA_FIELDS
    )
    custom_metadata_bytes_max: Int32 = key(
        "The broker's limit: a warning is logged before a copy whose custom metadata exceeds it, since the broker "
        "would undo that copy.",
        default=128,
        name="remote.log.metadata.custom.metadata.max.bytes",
        minimum=0,
    )
    manifest_digest_enabled: bool = key(
        "The SHA-256 of the manifest goes into the custom metadata (34 bytes more) and is checked on fetch, so that "
        "a writer of the bucket alone cannot pass off another segment as this one. The plugin ignores it.",
        default=False,
        own=True,
    )
    log_index_object_enabled: bool = key(
        "Store one more object beside each segment, `.remoteLogIndex`: its entry of the remote log index, from which "
        "followers build theirs ([remote-log-index.md](remote-log-index.md)). The plugin ignores it, on delete too.",
        default=False,
        own=True,
    )
    footer_object_enabled: bool = key(
        "Store one more object beside each segment, `.footer`: how many records it has, between which offsets and "
        "times, and where its batches lie ([formats/footer.md](formats/footer.md)), so that readers count without "
        "reading. Records that producers compressed are decompressed for it while they are copied. Needs "
        "`copy.source.verification.enabled`. The plugin ignores the object, on delete too.",
        default=False,
        own=True,
    )
    footer_path: str | None = key(
        "Where readers look for footers that are not beside their segments: the place that `tierlog index --to` wrote "
        "them to, a URL or a local folder, reached by the same keys of the store.",
        own=True,
        not_empty=True,
    )
    broker_id: Int32 = key("The broker's id, which the broker gives.", default=-1, minimum=-1)


@dataclass(frozen=True)
class UploadKeys:
    """Keys of how bytes get to the store."""

    upload_rate_limit_bytes_per_second: int | None = key(
        "Limit of all uploads of the process, indexes and manifests included. The plugin allows 1,000,000,000 at most.",
        live=True,
        minimum=RATE_MINIMUM,
    )
    download_rate_limit_bytes_per_second: int | None = key(
        "Limit of all downloads of the process.", own=True, live=True, minimum=RATE_MINIMUM
    )
    upload_part_size: Int32 | None = key(
        "Bytes of a part in any store; wins over the store's own key. Smaller objects are one request.",
        own=True,
        minimum=5 << 20,
    )
    upload_parallel_parts: int = key(
        "Parts of one segment under way at once.", default=4, own=True, minimum=1, maximum=64
    )
    upload_buffer_bytes: int = key(
        "Memory for parts under way, of all copies of the process together; they wait for each other.",
        default=128 << 20,
        own=True,
        minimum=5 << 20,
    )
    copy_deadline_ms: int | None = key(
        "A copy that takes longer fails and is undone; a delete that takes longer fails.",
        default=3_600_000,
        own=True,
        minimum=1,
    )
    copy_source_verification_enabled: bool = key(
        "Check every batch and the indexes before a segment counts as copied; damaged segments are refused.",
        default=True,
        own=True,
    )


@dataclass(frozen=True)
class BrokerKeys:
    """Keys of the plugin that change little or nothing here: accepted and checked."""

    metrics_num_samples: Int32 = key("Of the MBeans of a Kafka broker alone.", default=2, minimum=1)
    metrics_sample_window_ms: int = key("Of the MBeans of a Kafka broker alone.", default=30_000, minimum=1)
    metrics_recording_level: str = key(
        "`DEBUG` and `TRACE` count by topic and partition too, as the plugin does: see metrics.md. `tierlog replica` "
        "then tells the lag of groups: see server.md.",
        default="INFO",
        choices=("INFO", "DEBUG", "TRACE"),
    )
    structure_provider_class: str | None = key("Of Iceberg mode; not used.")
    iceberg_namespace: str | None = key("Of Iceberg mode; not used.")
    iceberg_catalog_class: str | None = key("Of Iceberg mode; not used.")
    iceberg_catalog_cache_enabled: bool = key("Of Iceberg mode; not used.", default=True)
    iceberg_catalog_cache_expiration_ms: int = key("Of Iceberg mode; not used.", default=600_000, minimum=1)


_UNBOUNDED = "-1 is no bound."
_POOL_MEANING = "A key of the plugin; not used, since requests hold no threads."


@dataclass(frozen=True)
class ManifestCacheKeys:
    """Keys of the cache of parsed manifests."""

    fetch_manifest_cache_size: int = key(f"Manifests cached. {_UNBOUNDED}", default=1000, minimum=-1)
    fetch_manifest_cache_max_bytes: int = key(
        f"Memory of cached manifests: that of a large segment takes much more than that of a small one. {_UNBOUNDED}",
        default=64 << 20,
        own=True,
        minimum=-1,
    )
    fetch_manifest_cache_retention_ms: int = key(
        "Time after its last use at which an entry is evicted. -1 is for ever.", default=3_600_000, minimum=-1
    )
    fetch_manifest_cache_get_timeout_ms: int = key(
        "How long a caller waits for a load, which goes on after that.", default=10_000, minimum=1
    )
    fetch_manifest_cache_thread_pool_size: int = key(_POOL_MEANING, default=0, minimum=0, maximum=1024)


@dataclass(frozen=True)
class IndexCacheKeys:
    """Keys of the cache of plain index bytes."""

    fetch_indexes_cache_size: int = key(f"Bytes cached. {_UNBOUNDED}", default=10 << 20, minimum=-1)
    fetch_indexes_cache_retention_ms: int = key(
        "Time after its last use at which an entry is evicted. -1 is for ever.", default=600_000, minimum=-1
    )
    fetch_indexes_cache_get_timeout_ms: int = key(
        "How long a caller waits for a load, which goes on after that.", default=10_000, minimum=1
    )
    fetch_indexes_cache_thread_pool_size: int = key(_POOL_MEANING, default=0, minimum=0, maximum=1024)


@dataclass(frozen=True)
class ChunkCacheKeys:
    """Keys of the cache of plain chunks, in memory or on a disk."""

    fetch_chunk_cache_class: str | None = key(
        "`memory`, `disk`, or the plugin's class of either; without it there is no chunk cache.", not_empty=True
    )
    fetch_chunk_cache_size: int | None = key(f"Bytes cached; needed with a class. {_UNBOUNDED}", minimum=-1)
    fetch_chunk_cache_path: str | None = key(
        "Directory of the disk cache; needed with it, must exist. Its content survives a restart.", not_empty=True
    )
    fetch_chunk_cache_prefetch_max_size: Int32 = key(
        "The plugin's bound of prefetch. Above 0 it takes the place of `fetch.prefetch.max.bytes`.",
        default=0,
        minimum=0,
    )
    fetch_chunk_cache_retention_ms: int = key(
        "Time after its last use at which an entry is evicted. -1 is for ever.", default=600_000, minimum=-1
    )
    fetch_chunk_cache_get_timeout_ms: int = key(
        "How long a caller waits for a load, which goes on after that.", default=10_000, minimum=1
    )
    fetch_chunk_cache_thread_pool_size: int = key(
        "Threads for a store of your own that only blocks, of all readers together; 0 is our choice. Other stores "
        "need none.",
        default=0,
        minimum=0,
        maximum=1024,
    )
    fetch_chunk_cache_memory_size: int = key(
        "Bytes of chunks, decompressed and decrypted, that a cache on a disk has in memory besides: a reader of a "
        "mebibyte at a time asks for each chunk several times. 0 for none.",
        default=64 << 20,
        own=True,
        minimum=0,
    )
    fetch_chunk_cache_encryption_enabled: bool = key(
        "Chunks of encrypted segments lie encrypted on the cache's disk too. The plugin's lie there in the clear.",
        default=True,
        own=True,
    )


@dataclass(frozen=True)
class PrefetchKeys:
    """Keys of prefetch: chunks that are fetched before they are asked for."""

    fetch_request_max_bytes: Int32 = key(
        "Neighbouring chunks that are wanted and missing come in one request of this size at most.",
        default=16 << 20,
        own=True,
        minimum=1 << 16,
    )
    fetch_memory_max_bytes: int = key(
        "Memory of all readers together beyond the caches: requests under way, chunks being opened, and bytes that a "
        "stream's caller has not taken yet. Streams without memory wait for their turn; idle streams give theirs back "
        "and fetch again.",
        default=256 << 20,
        own=True,
        minimum=8 << 20,
    )
    fetch_check_batches_enabled: bool = key(
        "Check the bytes that a reader gets: batch checksums, rising offsets, all within the segment. This finds "
        "swapped chunks, which are authentic. A replica compares the checksum of every batch that it serves.",
        default=True,
        own=True,
    )
    fetch_prefetch_enabled: bool = key("Fetch ahead of readers that read on.", default=True, own=True)
    fetch_prefetch_max_bytes: int = key(
        "How far ahead of one reader to fetch at most; the distance grows while the reader reads on, and falls to "
        "nothing when it jumps.",
        default=32 << 20,
        own=True,
        minimum=0,
    )
    fetch_prefetch_next_segment_enabled: bool = key(
        "Fetch ahead into the next segment too, if it is known.", default=True, own=True
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


@dataclass(frozen=True)
class StoreKeys:
    """Keys that every kind of store has."""

    store_probe_enabled: bool = key(
        "When a storage manager starts, write and remove a few small objects, `<key.prefix>.tierlog-probe-…`, to find "
        "out the store's features and our rights; the result is logged once and shown as "
        "`tierlog_remote_store_info`. Missing rights, a missing bucket and unknown credentials make the start fail; a "
        "store "
        "that does not answer only gets a warning, and is asked again after the first copy. `false` for credentials "
        "that may only read.",
        default=True,
        own=True,
    )


@dataclass(frozen=True)
class S3Keys:
    """Keys of S3 and of stores that speak its protocol."""

    storage_s3_bucket_name: str | None = key("Needed for `s3`.", not_empty=True)
    storage_s3_region: str | None = key("Needed for `s3`, also with an endpoint of its own.")
    storage_s3_endpoint_url: str | None = key("URL of another server.", url=True)
    storage_s3_path_style_access_enabled: bool | None = key("Put the bucket into the path, not into the host name.")
    storage_s3_multipart_upload_part_size: int = key(
        "Bytes of a part.", default=DEFAULT_PART_BYTES, minimum=5 << 20, maximum=INT32_MAX - 8
    )
    storage_s3_storage_class: str = key(
        "Storage class of the objects that are written.", default="STANDARD", choices=_S3_STORAGE_CLASSES
    )
    storage_s3_api_call_timeout: int | None = key("Time limit of a call with its retries, ms.", minimum=1)
    storage_s3_api_call_attempt_timeout: int | None = key("Time limit of one attempt, ms.", minimum=1)
    storage_s3_legacy_md5_plugin_enabled: bool = key(
        "Content-MD5 on deletes of many objects, for old servers.", default=False
    )
    storage_s3_server_side_encryption: str | None = key(
        "SSE-S3 (`AES256`) or SSE-KMS for the objects that are written; else the bucket's default.",
        own=True,
        choices=("AES256", "aws:kms", "aws:kms:dsse"),
    )
    storage_s3_server_side_encryption_kms_key_id: str | None = key("The key of SSE-KMS; else the account's.", own=True)
    storage_s3_server_side_encryption_bucket_key_enabled: bool | None = key("One KMS request a bucket key.", own=True)
    storage_aws_access_key_id: Password | None = key("With the secret key, or neither.", not_empty=True)
    storage_aws_secret_access_key: Password | None = key("With the key id.", not_empty=True)
    storage_aws_session_token: Password | None = key("Session token of temporary credentials.", not_empty=True)
    storage_aws_credentials_file: str | None = key("Properties with the three keys above; excludes them.")
    storage_aws_credentials_provider_class: str | None = key(
        "Where credentials come from and nowhere else: `default`, `environment`, `profile`, `web-identity`, "
        "`container`, `instance`, `anonymous`, or the AWS SDK's class of one of these. Excludes static keys.",
        not_empty=True,
    )
    storage_aws_certificate_check_enabled: bool = key("`false` trusts any certificate.", default=True)
    storage_aws_checksum_check_enabled: bool = key(
        "Compare each whole object that is read (manifests and the like) with the checksum that the store keeps of it, "
        "by one more request. A range, by which logs and indexes are read, has none in S3: GCM's tags and the batches' "
        "own checksums cover those. Writes are confirmed independently of this key: `store.checksums`.",
        default=False,
    )


@dataclass(frozen=True)
class GcsKeys:
    """Keys of Google Cloud Storage."""

    storage_gcs_bucket_name: str | None = key("Needed for `gcs`.", not_empty=True)
    storage_gcs_endpoint_url: str | None = key("URL of another server.", url=True)
    storage_gcs_resumable_upload_chunk_size: Int32 = key(
        "Bytes of a part.", default=DEFAULT_PART_BYTES, minimum=1 << 18, multiple_of=1 << 18
    )
    storage_gcs_credentials_default: bool | None = key(
        "The environment's chain; `false` is none. One of the three is needed."
    )
    storage_gcs_credentials_json: Password | None = key("A service account, or an object with `access_token`.")
    storage_gcs_credentials_path: str | None = key("The same in a file.")
    storage_gcs_encryption_kms_key_name: str | None = key(
        "Cloud KMS key for the objects that are written; else the bucket's.", own=True
    )


@dataclass(frozen=True)
class AzureKeys:
    """Keys of Azure Blob Storage."""

    storage_azure_container_name: str | None = key("Needed for `azure`.", not_empty=True)
    storage_azure_account_name: str | None = key("This or a SAS token, without a connection string.", not_empty=True)
    storage_azure_account_key: Password | None = key("Shared key.")
    storage_azure_sas_token: Password | None = key("This or an account name, without a connection string.")
    storage_azure_connection_string: Password | None = key("Excludes name, key, token and endpoint.")
    storage_azure_endpoint_url: str | None = key("Else `https://<account>.blob.core.windows.net`.", url=True)
    storage_azure_upload_block_size: Int32 = key("Bytes of a block.", default=DEFAULT_PART_BYTES, minimum=100 << 10)
    storage_azure_encryption_scope: str | None = key(
        "Encryption scope of the objects that are written; else the container's.", own=True
    )


@dataclass(frozen=True)
class ProxyAndFileKeys:
    """Keys of a SOCKS5 proxy, which is refused for Google and Azure, and of the file store."""

    storage_proxy_host: str | None = key(
        "Host of a SOCKS5 proxy; needs the port. For Google and Azure an error, unless "
        "`store.proxy_url` names an HTTP proxy, which takes its place."
    )
    storage_proxy_port: int | None = key("Port of the proxy.", minimum=0, maximum=65_535)
    storage_proxy_username: Password | None = key("With the password, or neither.")
    storage_proxy_password: Password | None = key("With the username.")
    storage_root: str | None = key(
        "Directory of `filesystem`; needed for it, must exist and be writable.", not_empty=True
    )
    storage_overwrite_enabled: bool = key("Not used, as in the plugin: writes replace.", default=False)


#: Groups of keys as the reference page shows them.
KEY_GROUPS: Final[dict[str, type[object]]] = {
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
KNOWN_KEYS: Final = {row.name: field for group in KEY_GROUPS.values() for field, row in rows(group).items()}
