"""The remote half of a log (KIP-405): the KIP's interfaces, values and errors; rooms that store, order and read it.

The public path for programs that embed it: every name that a broker needs is here, loaded when it is first used.

What belongs here: ``api`` (the KIP's nouns, no behaviour), ``storage`` (one tier: segments and their bytes),
``metadata`` (which segments make up a partition) and ``manager`` (which are copied, expire and are read, in a broker).
What does not: Kafka's files (``tierlog.log``), record batches (``tierlog.records``), files and sockets
(``tierlog.runtime``).
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.errors import ConfigError, TierlogError
    from tierlog.remote.api import (
        ZERO_UUID,
        CustomMetadata,
        EpochEntry,
        EpochMap,
        IndexType,
        InvalidRangeError,
        InvalidTransitionError,
        LogSegmentData,
        NextSegment,
        RemoteLogMetadataManager,
        RemoteLogSegmentId,
        RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataUpdate,
        RemoteLogSegmentState,
        RemotePartitionDeleteMetadata,
        RemotePartitionDeleteState,
        RemoteResourceNotFoundException,
        RemoteStorageException,
        RemoteStorageManager,
        RemoteStorageNotReadyException,
        RetriableRemoteStorageException,
        SegmentFileError,
        SegmentStream,
        TopicIdPartition,
        TopicPartition,
        Uuid,
    )
    from tierlog.remote.config.class_loading import load_metadata_manager, load_storage_manager
    from tierlog.remote.manager.leader_endpoint import LeaderEndpoint
    from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
    from tierlog.remote.manager.manager_health import ManagerHealth
    from tierlog.remote.manager.partition_stops import StopPartition
    from tierlog.remote.manager.pending_reads import PendingRead, RemoteRead, RemoteReadResult
    from tierlog.remote.manager.remote_log_manager import RemoteLogManager
    from tierlog.remote.manager.topic_changes import TierChange, judge_topic
    from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
    from tierlog.remote.storage.storage_metrics import StorageMetrics
    from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
    from tierlog.remote.tier.closed_segments import ClosedSegment, closed_segment, closed_segments

__all__ = [
    "ZERO_UUID",
    "ClosedSegment",
    "ConfigError",
    "CustomMetadata",
    "EpochEntry",
    "EpochMap",
    "IndexType",
    "InvalidRangeError",
    "InvalidTransitionError",
    "LeaderEndpoint",
    "LogSegmentData",
    "ManagerHealth",
    "NextSegment",
    "PendingRead",
    "RemoteLogManager",
    "RemoteLogManagerConfig",
    "RemoteLogMetadataManager",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadata",
    "RemoteLogSegmentMetadataUpdate",
    "RemoteLogSegmentState",
    "RemotePartitionDeleteMetadata",
    "RemotePartitionDeleteState",
    "RemoteRead",
    "RemoteReadResult",
    "RemoteResourceNotFoundException",
    "RemoteStorageException",
    "RemoteStorageManager",
    "RemoteStorageNotReadyException",
    "RetriableRemoteStorageException",
    "SegmentFileError",
    "SegmentStream",
    "StopPartition",
    "StorageMetrics",
    "TierChange",
    "TieredStorageManager",
    "TierlogError",
    "TopicBasedRemoteLogMetadataManager",
    "TopicIdPartition",
    "TopicPartition",
    "Uuid",
    "closed_segment",
    "closed_segments",
    "judge_topic",
    "load_metadata_manager",
    "load_storage_manager",
]

if not TYPE_CHECKING:
    _NAMES = {
        "tierlog.remote.api": tuple(__all__),  # but for those of the modules below
        "tierlog.errors": ("ConfigError", "TierlogError"),
        "tierlog.remote.config.class_loading": ("load_metadata_manager", "load_storage_manager"),
        "tierlog.remote.manager.leader_endpoint": ("LeaderEndpoint",),
        "tierlog.remote.manager.manager_config": ("RemoteLogManagerConfig",),
        "tierlog.remote.manager.manager_health": ("ManagerHealth",),
        "tierlog.remote.manager.partition_stops": ("StopPartition",),
        "tierlog.remote.manager.pending_reads": ("PendingRead", "RemoteRead", "RemoteReadResult"),
        "tierlog.remote.manager.remote_log_manager": ("RemoteLogManager",),
        "tierlog.remote.manager.topic_changes": ("TierChange", "judge_topic"),
        "tierlog.remote.metadata.topic_backed.topic_based_manager": ("TopicBasedRemoteLogMetadataManager",),
        "tierlog.remote.storage.storage_metrics": ("StorageMetrics",),
        "tierlog.remote.storage.tiered_storage_manager": ("TieredStorageManager",),
        "tierlog.remote.tier.closed_segments": ("ClosedSegment", "closed_segment", "closed_segments"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
