"""The questions of a follower's broker to the broker that leads a partition which is in the tier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tierlog.remote.api import TopicIdPartition
from tierlog.replication.messages import AskEpochEnd, EpochEnd, OffsetAndEpoch


class LeaderEndpoint(Protocol):
    """The leader of partitions, asked over the broker's own connection to it. Calls block until the answer.

    Raises (all methods): ReplicationError: Kafka's error in the answer, such as FENCED_LEADER_EPOCH. Anything else: no
    answer came.

    Thread safety: any number of threads.
    Source: Kafka LeaderEndPoint.
    """

    def fetch_earliest_offset(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        """Ask for the leader's log start (ListOffsets by -2)."""

    def fetch_latest_offset(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        """Ask for the leader's log end (-1)."""

    def fetch_earliest_local_offset(self, topic_id_partition: TopicIdPartition, leader_epoch: int) -> OffsetAndEpoch:
        """Ask for the leader's local log start, and the epoch of the offset (-4)."""

    def fetch_earliest_pending_upload_offset(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int
    ) -> OffsetAndEpoch:
        """Ask for the first offset that is not in the tier (-6); -1: the leader does not know yet."""

    def fetch_epoch_end_offsets(
        self, asked: Mapping[TopicIdPartition, AskEpochEnd]
    ) -> Mapping[TopicIdPartition, EpochEnd]:
        """Ask where epochs end in the leader's log (OffsetsForLeaderEpoch)."""
