"""A partition of the tier that this broker leads or follows, and what its tasks know of it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.log_index.partition_index import RemoteLogIndex
from tierlog.remote.manager.expiry_plan import Expired, TierSummary
from tierlog.remote.manager.task_faults import TaskFaults
from tierlog.remote.manager.tier_offsets import TierOffsets
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.machine.scheduling import Scheduler


class Role(enum.Enum):
    """The role of this broker for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"


class ExpiryProgress:
    """The state of a term's expiration task, which is its own.

    Attributes:
        going: Segments that are to be deleted, the next one first; the log's start lies behind them already.
        going_bytes: Their size.
        summary: By which the next run sees that nothing goes; None: it lists the segments.
        faults: Of the task.
    """

    __slots__ = ("faults", "going", "going_bytes", "summary")

    def __init__(self) -> None:
        self.going: list[Expired] = []
        self.going_bytes = 0
        self.summary: TierSummary | None = None
        self.faults = TaskFaults()


class IndexProgress:
    """The progress of a term's remote log index.

    Attributes:
        index: The open index.
        folder: Of the log that it lies beside.
        ids: Segments whose entries it has, or of which the tier has none, ascending by offset.
        seen: Of what it was made the last time: it is up to date while that stays. None: it has to be looked at.
        highest: The last offset of all copied segments then.
    """

    __slots__ = ("folder", "highest", "ids", "index", "seen")

    def __init__(self, index: RemoteLogIndex, folder: str) -> None:
        self.index = index
        self.folder = folder
        self.ids: list[RemoteLogSegmentId] = []
        self.seen: object = None
        self.highest = -1


class TieredPartition:
    """One term of a partition here: from the notice that this broker leads or follows it to the next one that changes
    that. A new term is a new object, so that whatever a task of an earlier one still writes, counts nowhere.

    Attributes:
        topic_id_partition: Which.
        role: Of this broker.
        being_copied: Segments that this broker copies now: they do not expire.
        scope: Cancelled when the term ends: what its tasks read of the storage manager ends with CancelledReadError.
        offsets: The copied offset and the log's start, by the tier.
        copy_faults: Of the copy task.
        unfinished: The last copy that failed, whose objects and metadata have yet to be removed; None: there is none.
        expiry: The state of the expiration task.
        following: The failed runs of a follower's task.
        copying_stopped: Whether the term copies no more: the storage manager broke its contract, or a local segment is
            damaged.
        log_index: The remote log index beside the log; None: there is none, or it is not open.

    Thread safety: one task of each kind at a time, and ``copying`` by the copy task; ``end`` any number of threads.
    """

    __slots__ = (
        "being_copied",
        "copy_faults",
        "copying_stopped",
        "expiry",
        "following",
        "log_index",
        "offsets",
        "role",
        "scope",
        "topic_id_partition",
        "unfinished",
    )

    def __init__(self, topic_id_partition: TopicIdPartition, role: Role, scheduler: Scheduler) -> None:
        self.topic_id_partition = topic_id_partition
        self.role = role
        self.scope = CancelScope(scheduler)
        self.offsets = TierOffsets(topic_id_partition, self.scope, scheduler)
        self.copying_stopped = False
        self.copy_faults = TaskFaults()
        self.unfinished: RemoteLogSegmentMetadata | None = None
        self.expiry = ExpiryProgress()
        self.log_index: IndexProgress | None = None
        self.following = TaskFaults()
        self.being_copied: AbstractSet[RemoteLogSegmentId] = frozenset()

    @property
    def failure(self) -> Exception | None:
        """The error of the copy task's last run; None: it had none."""
        return self.copy_faults.last

    @property
    def has_ended(self) -> bool:
        return self.scope.cancelled

    @contextmanager
    def copying(self, segment_id: RemoteLogSegmentId) -> Iterator[None]:
        """Name a segment as one that is being copied, for a block."""
        self.being_copied |= {segment_id}
        try:
            yield
        finally:
            self.being_copied -= {segment_id}

    def end(self) -> None:
        """End the term: its reads are cancelled. Idempotent."""
        self.scope.cancel()
