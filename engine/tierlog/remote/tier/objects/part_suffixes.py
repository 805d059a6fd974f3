"""What the parts of a segment are called, by the suffix of their files: Kafka's own names, in every layout but Aiven's.

A broker's disk and our layout keep the leader epochs under their file's whole name, Kafka's test storage under a suffix
like the others.
"""

from __future__ import annotations

from typing import Final

from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT, SegmentFileKind
from tierlog.remote.api import IndexType

LOG: Final = SegmentFileKind.LOG.suffix
SNAPSHOT: Final = SegmentFileKind.PRODUCER_SNAPSHOT.suffix
OFFSET_INDEX: Final = SegmentFileKind.OFFSET_INDEX.suffix
TIME_INDEX: Final = SegmentFileKind.TIME_INDEX.suffix
TRANSACTION_INDEX: Final = SegmentFileKind.TRANSACTION_INDEX.suffix
#: Of an object beside a segment, with its entry of the remote log index.
REMOTE_LOG_INDEX: Final = "remoteLogIndex"
#: The leader epochs in Kafka's test storage.
LOCAL_TIERED_CHECKPOINT: Final = "leader_epoch_checkpoint"

#: All parts beside the log, in the order in which our layout writes and describes them.
PART_SUFFIXES: Final = {
    IndexType.OFFSET: OFFSET_INDEX,
    IndexType.TIMESTAMP: TIME_INDEX,
    IndexType.PRODUCER_SNAPSHOT: SNAPSHOT,
    IndexType.LEADER_EPOCH: LEADER_EPOCH_CHECKPOINT,
    IndexType.TRANSACTION: TRANSACTION_INDEX,
}
LOCAL_TIERED_SUFFIXES: Final = PART_SUFFIXES | {IndexType.LEADER_EPOCH: LOCAL_TIERED_CHECKPOINT}
#: What every segment has: a transaction index is there only where transactions were aborted.
NEEDED_SUFFIXES: Final = frozenset((LOG, *PART_SUFFIXES.values())) - {TRANSACTION_INDEX}
LOCAL_TIERED_NEEDED_SUFFIXES: Final = frozenset((LOG, *LOCAL_TIERED_SUFFIXES.values())) - {TRANSACTION_INDEX}
