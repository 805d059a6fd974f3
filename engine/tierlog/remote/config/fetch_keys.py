"""Keys of fetching: caches and prefetch (the plugin's and our own)."""

from __future__ import annotations

from tierlog.remote.config.values import INT32_MAX, KafkaBoolean, KafkaInt, KeyGroup, key

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
