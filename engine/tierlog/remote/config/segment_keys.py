"""Keys of what is written: chunks, layout, encryption, custom metadata, uploads (the plugin's and our own)."""

from __future__ import annotations

from typing import Final

from tierlog.remote.config.values import INT32_MAX, KafkaBoolean, KafkaInt, KafkaList, KeyGroup, key

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
