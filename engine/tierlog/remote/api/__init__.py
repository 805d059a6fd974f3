"""The KIP's interfaces, value types and errors, under the KIP's names in Python's spelling.

What belongs here: the interfaces and values on which a broker, a third party's plugin and this package agree. Why: each
can then be written without the others. What does not: behaviour.
"""

from tierlog.log.formats.identity_files import ZERO_UUID, Uuid
from tierlog.log.formats.leader_epochs import EpochEntry
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.remote.api.errors import (
    InvalidRangeError,
    InvalidTransitionError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
    SegmentFileError,
)
from tierlog.remote.api.log_metadata_manager import RemoteLogMetadataManager
from tierlog.remote.api.storage_manager import NextSegment, RemoteStorageManager, SegmentStream
from tierlog.remote.api.values import (
    CustomMetadata,
    EpochMap,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    TopicPartition,
)

__all__ = [
    "ZERO_UUID",
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
    "TopicIdPartition",
    "TopicPartition",
    "Uuid",
]
