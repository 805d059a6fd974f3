"""The history of a partition that has a log and no record: of a broker's disk, which has such partitions."""

from __future__ import annotations

from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.metadata.lineage import Lineage
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.layouts.file_parts import described, fetch_epochs, id_of, whole_object
from tierlog.remote.tier.layouts.listing import Candidate
from tierlog.remote.tier.objects.object_keys import LOG
from tierlog.remote.tier.tier import Tier
from tierlog.scan.history import PartitionHistory


def empty_history(tier: Tier, candidate: Candidate) -> PartitionHistory:
    """A history without a span, which begins and ends where the segment begins.

    Args:
        tier: Of the segment.
        candidate: The partition's last segment, in which there is nothing to read.

    Raises:
        CorruptIndexError: the leader-epoch checkpoint is malformed. StoreError and its kinds.
    """
    log, start = candidate.objects[LOG], candidate.start_offset
    epochs = fetch_epochs(tier.store, candidate.objects.get(LEADER_EPOCH_CHECKPOINT)).entries
    metadata = described(
        RemoteLogSegmentId(candidate.topic_id_partition, id_of(log.key)),
        start_offset=start,
        end_offset=start,
        max_timestamp_ms=-1,
        size_bytes=0,
        epochs={0: start},
        modified_ms=log.last_modified_ms,
        txn_idx_empty=True,
    )
    segment = StoredSegment(
        metadata=metadata, layout=tier.layout, name=log.key, log=whole_object(log), parts=(), closed=False
    )
    return PartitionHistory(candidate.topic_id_partition, Lineage(tuple(epochs), (), (), (), segment, empty_at=start))
