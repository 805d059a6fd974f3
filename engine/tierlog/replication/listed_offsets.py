"""The versions of ListOffsets: which of Kafka's special timestamps, fields and errors each of them has.

Source: Kafka ReplicaManager#fetchOffset, ListOffsetsRequest (KIP-79, KIP-734, KIP-405, KIP-1005, KIP-1023, KIP-1075).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from tierlog.replication.messages import ReplicationError

LEAST_VERSION: Final = 1
LATEST_VERSION: Final = 11
#: From this version on a request has its own time limit, else the broker's counts.
TIMEOUT_VERSION: Final = 10
#: From this version on an answer has the leader epoch of the offset.
LEADER_EPOCH_VERSION: Final = 4
_OFFSET_NOT_AVAILABLE_VERSION: Final = 5

#: Special timestamp → the first version that may ask by it.
LEAST_VERSIONS: Final[Mapping[int, int]] = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def check_version(timestamp_ms: int, version: int) -> None:
    """Refuse a special timestamp that a version does not have, or that is none.

    Raises ReplicationError: UNSUPPORTED_VERSION.
    """
    if timestamp_ms < 0 and version < LEAST_VERSIONS.get(timestamp_ms, LATEST_VERSION + 1):
        text = f"ListOffsets of version {version} does not ask by {timestamp_ms}"
        raise ReplicationError(text, KafkaError.UNSUPPORTED_VERSION)


def error_for(error: KafkaError, version: int) -> KafkaError:
    """Return an error as an answer of a version has it: old clients try again after LEADER_NOT_AVAILABLE."""
    if error is KafkaError.OFFSET_NOT_AVAILABLE and version < _OFFSET_NOT_AVAILABLE_VERSION:
        return KafkaError.LEADER_NOT_AVAILABLE
    return error
