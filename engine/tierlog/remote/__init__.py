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
    "LogSegmentData",
    "NextSegment",
    "RemoteLogMetadataManager",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadata",
    "RemoteLogSegmentMetadataUpdate",
    "RemoteLogSegmentState",
    "RemotePartitionDeleteMetadata",
    "RemotePartitionDeleteState",
    "RemoteResourceNotFoundException",
    "RemoteStorageException",
    "RemoteStorageManager",
    "RemoteStorageNotReadyException",
    "RetriableRemoteStorageException",
    "SegmentFileError",
    "SegmentStream",
    "StorageMetrics",
    "TieredStorageManager",
    "TierlogError",
    "TopicBasedRemoteLogMetadataManager",
    "TopicIdPartition",
    "TopicPartition",
    "Uuid",
    "closed_segment",
    "closed_segments",
    "load_metadata_manager",
    "load_storage_manager",
]

if not TYPE_CHECKING:
    _NAMES = {
        "tierlog.remote.api": tuple(__all__),  # but for those of the modules below
        "tierlog.errors": ("ConfigError", "TierlogError"),
        "tierlog.remote.config.class_loading": ("load_metadata_manager", "load_storage_manager"),
        "tierlog.remote.metadata.topic_backed.topic_based_manager": ("TopicBasedRemoteLogMetadataManager",),
        "tierlog.remote.storage.storage_metrics": ("StorageMetrics",),
        "tierlog.remote.storage.tiered_storage_manager": ("TieredStorageManager",),
        "tierlog.remote.tier.closed_segments": ("ClosedSegment", "closed_segment", "closed_segments"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
