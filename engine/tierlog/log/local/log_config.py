"""What a log goes by: the topic configuration under Kafka's names, with its defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's configuration; the fields are Kafka's names with "_" for "." (Kafka 4.3 LogConfig).

    Sizes are bytes, times ms. A changed configuration is another value: ``UnifiedLog.update_config`` takes it.
    """

    cleanup_policy: frozenset[str] = frozenset(("delete",))
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    index_interval_bytes: int = 4096
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = INT64_MAX
    max_decompressed_message_bytes: int = 256 << 20
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_type: str = "CreateTime"
    min_compaction_lag_ms: int = 0
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy
