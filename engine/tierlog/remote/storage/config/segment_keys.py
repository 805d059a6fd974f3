"""Keys of what is written: chunks, layout, encryption, custom metadata, uploads (the plugin's and our own)."""

from __future__ import annotations

from typing import Final

from tierlog.remote.storage.config.values import INT32_MAX, KafkaBoolean, KafkaInt, KafkaList, KeyGroup, key

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
        "What is written: the plugin's objects, or Kafka's own files (`kafka`), which Kafka's tools open as they are. "
        "That one neither compresses nor encrypts: use the store's own encryption.",
        default="aiven",
        own=True,
        choices=("aiven", "kafka"),
    )
    key_prefix: str = key("key.prefix", "Verbatim in front of every object key; no `/` is added.", default="")
    key_prefix_mask: KafkaBoolean = key("key.prefix.mask", "Show `<prefix>/` for it in messages.", default=False)
    segment_format: str = key(
        "segment.format",
        "`iceberg` is refused: Tierlog has no such mode.",
        default="kafka",
        choices=("kafka", "iceberg"),
    )
    compression_enabled: KafkaBoolean = key("compression.enabled", "Each chunk a zstd frame.", default=False)
    compression_heuristic_enabled: KafkaBoolean = key(
        "compression.heuristic.enabled",
        "Not where producers compressed most of the segment already; the plugin goes by its first batch.",
        default=False,
    )
    compression_level: KafkaInt = key(
        "compression.level", "Of zstd; 3 is the plugin's.", default=3, own=True, minimum=1, maximum=22
    )
    encryption_enabled: KafkaBoolean = key("encryption.enabled", "AES-256-GCM for chunks and indexes.", default=False)
    encryption_key_pair_id: str | None = key(
        "encryption.key.pair.id", "The pair that wraps new data keys; one of the list. Needed to encrypt."
    )
    encryption_key_pairs: KafkaList = key(
        PAIRS, "Ids of RSA key pairs: a ring, so that segments of before and after a rotation are readable.", default=()
    )
    custom_metadata_fields_include: KafkaList = key(
        "custom.metadata.fields.include",
        "What goes with a segment's metadata, where the broker keeps it.",
        default=(),
        choices=CUSTOM_METADATA_FIELDS,
    )
    custom_metadata_bytes_max: KafkaInt = key(
        "remote.log.metadata.custom.metadata.max.bytes",
        "The broker's limit: custom metadata that passes it is warned of before a copy, which the broker would undo.",
        default=128,
        minimum=0,
        maximum=INT32_MAX,
    )
    manifest_digest_enabled: KafkaBoolean = key(
        "manifest.digest.enabled",
        "The SHA-256 of the manifest goes into the custom metadata (34 bytes more) and is checked on fetch, so that "
        "who can write to the bucket alone cannot pass another segment off as this one. The plugin ignores it.",
        default=False,
        own=True,
    )
    log_index_object_enabled: KafkaBoolean = key(
        "log.index.object.enabled",
        "One more object beside each segment, `.remoteLogIndex`: its entry of the remote log index, for followers to "
        "build theirs from ([remote-log-index.md](remote-log-index.md)). The plugin ignores it, on delete too.",
        default=False,
        own=True,
    )
    broker_id: KafkaInt = key("broker.id", "Given by the broker.", default=-1, minimum=-1, maximum=INT32_MAX)


class UploadKeys(KeyGroup):
    """Keys of how bytes get to the store."""

    upload_rate_limit_bytes_per_second: KafkaInt | None = key(
        "upload.rate.limit.bytes.per.second",
        "Of all uploads of the process, indexes and manifests too. The plugin takes 1,000,000,000 at most.",
        live=True,
        minimum=RATE_MINIMUM,
    )
    download_rate_limit_bytes_per_second: KafkaInt | None = key(
        "download.rate.limit.bytes.per.second",
        "Of all downloads of the process.",
        own=True,
        live=True,
        minimum=RATE_MINIMUM,
    )
    upload_part_size: KafkaInt | None = key(
        "upload.part.size",
        "Bytes of a part, whatever the store; over the store's own key. Objects below it are one request.",
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
        "A copy that is not done by then fails and is undone; a delete takes no longer either.",
        default=3_600_000,
        own=True,
        minimum=1,
    )
    copy_source_verification_enabled: KafkaBoolean = key(
        "copy.source.verification.enabled",
        "Check every batch and the indexes before a segment counts as copied; what is damaged is refused.",
        default=True,
        own=True,
    )


class BrokerKeys(KeyGroup):
    """Keys of the plugin that change little or nothing here: accepted and checked."""

    metrics_num_samples: KafkaInt = key(
        "metrics.num.samples", "Of JMX; not used.", default=2, minimum=1, maximum=INT32_MAX
    )
    metrics_sample_window_ms: KafkaInt = key("metrics.sample.window.ms", "Of JMX; not used.", default=30_000, minimum=1)
    metrics_recording_level: str = key(
        "metrics.recording.level",
        "`DEBUG` and `TRACE` count by topic and partition too, as the plugin does: see metrics.md.",
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
