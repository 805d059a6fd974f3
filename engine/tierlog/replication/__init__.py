"""Replication of a partition as machines without I/O: who leads, who follows, what is committed.

What it is: Kafka's rules for leaders and followers, over a :class:`~tierlog.log.partition_log.PartitionLog`. Why: a
broker needs them, a simulation has to run them from a seed, and a log's tier is only right if its lineage is.

Belongs here: what follows from messages, times and offsets. Does not belong here: a clock, a socket, a thread, a file
(the log's own are the log's), Kafka's wire format, the tier: where a replica needs it, its machine asks for
``BuildAuxState``, which the RemoteLogManager executes.

- ``follower``: cuts its log to where it agrees with the leader's, and fetches. ``HighWatermarkFollower`` is the rule
  from before leader epochs, to be compared with.
- ``leader``: appends, answers followers, keeps requests waiting for offsets (``offset_waits``).
- ``in_sync_replicas``: the in-sync set, proposals to the controller, the high watermark.
- ``log_move``: a log that moves to another directory of its broker follows the one that it will replace.
- ``messages``: the values that they exchange.

Each machine is driven by one thread at a time, which gives it the time with each message: that of a clock that only
rises. docs/replication.md draws them, and has thirty lines that run.

Source: Kafka Partition, Replica, AbstractFetcherThread, TierStateMachine; KIP-101, KIP-279, KIP-320, KIP-392, KIP-405,
KIP-497, KIP-903, KIP-966.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.replication.follower import Follower, FollowerSettings, FollowerState, HighWatermarkFollower
    from tierlog.replication.in_sync_replicas import Brokers, BrokerState, InSyncReplicas
    from tierlog.replication.leader import Completed, Leader, LeaderAction, LeaderSettings, tick_all
    from tierlog.replication.log_move import LogMove
    from tierlog.replication.messages import (
        AlterPartition,
        AskEpochEnd,
        AskOffset,
        AuxStateBuilt,
        BuildAuxState,
        EpochEnd,
        FetchedRecords,
        FetchRecords,
        FollowerAnswer,
        FollowerRequest,
        LeaderAndIsr,
        OffsetAndEpoch,
        ReplicationError,
    )
    from tierlog.runtime.waiting.byte_quota import ByteQuota
else:
    _NAMES = {
        "tierlog.replication.follower": ("Follower", "FollowerSettings", "FollowerState", "HighWatermarkFollower"),
        "tierlog.replication.in_sync_replicas": ("Brokers", "BrokerState", "InSyncReplicas"),
        "tierlog.replication.leader": ("Completed", "Leader", "LeaderAction", "LeaderSettings", "tick_all"),
        "tierlog.replication.log_move": ("LogMove",),
        "tierlog.replication.messages": (
            "AlterPartition",
            "AskEpochEnd",
            "AskOffset",
            "AuxStateBuilt",
            "BuildAuxState",
            "EpochEnd",
            "FetchedRecords",
            "FetchRecords",
            "FollowerAnswer",
            "FollowerRequest",
            "LeaderAndIsr",
            "OffsetAndEpoch",
            "ReplicationError",
        ),
        "tierlog.runtime.waiting.byte_quota": ("ByteQuota",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = [
    "AlterPartition",
    "AskEpochEnd",
    "AskOffset",
    "AuxStateBuilt",
    "BrokerState",
    "Brokers",
    "BuildAuxState",
    "ByteQuota",
    "Completed",
    "EpochEnd",
    "FetchRecords",
    "FetchedRecords",
    "Follower",
    "FollowerAnswer",
    "FollowerRequest",
    "FollowerSettings",
    "FollowerState",
    "HighWatermarkFollower",
    "InSyncReplicas",
    "Leader",
    "LeaderAction",
    "LeaderAndIsr",
    "LeaderSettings",
    "LogMove",
    "OffsetAndEpoch",
    "ReplicationError",
    "tick_all",
]
