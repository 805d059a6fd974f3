"""The state machine of partitions' removals: MARKED, then STARTED, then FINISHED, as the metadata topic has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.remote.api import RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition
from tierlog.runtime.machine import Machine

MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
STARTED: Final = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_NEXT: Final = {None: (MARKED,), MARKED: (MARKED, STARTED), STARTED: (STARTED, FINISHED), FINISHED: (FINISHED,)}


@dataclass(frozen=True, slots=True)
class PendingRemoval:
    """The removal of a partition, and where in the metadata topic its newest state stands.

    Attributes:
        metadata: Its newest state.
        metadata_partition: The partition of the metadata topic.
        offset: The offset of the event in it.
    """

    metadata: RemotePartitionDeleteMetadata
    metadata_partition: int
    offset: int


def is_valid_transition(source: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState) -> bool:
    """Whether a removal in one state (None: there is none) may go to another; to the same one it may."""
    return target in _NEXT[source]


class Removals:
    """The newest state of each partition's removal.

    Args:
        machine: Has the threads.
        any_order: Take states in any order, as Kafka does.

    Thread safety: any number of threads; one applies.
    """

    def __init__(self, machine: Machine, *, any_order: bool) -> None:
        self._any_order = any_order
        self._lock = machine.scheduler.lock()
        self._newest: dict[TopicIdPartition, PendingRemoval] = {}

    def find(self, partition: TopicIdPartition) -> PendingRemoval | None:
        """The newest state of a partition's removal, FINISHED too; None if there is none."""
        return self._newest.get(partition)

    def allows(self, partition: TopicIdPartition, state: RemotePartitionDeleteState) -> bool:
        """Whether the partition's removal may go to a state."""
        if self._any_order:
            return True
        found = self.find(partition)
        return is_valid_transition(None if found is None else found.metadata.state, state)

    def put(self, removal: PendingRemoval) -> bool:
        """Take an event; False if it is refused."""
        partition = removal.metadata.topic_id_partition
        with self._lock:
            if not self.allows(partition, removal.metadata.state):
                return False
            self._newest[partition] = removal
            return True

    def restore(self, removals: Iterable[PendingRemoval]) -> None:
        """Take the newest states as a snapshot has them."""
        with self._lock:
            self._newest |= {removal.metadata.topic_id_partition: removal for removal in removals}

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget a partition's removal."""
        with self._lock:
            self._newest.pop(partition, None)

    def all(self) -> tuple[PendingRemoval, ...]:
        """All removals, FINISHED ones too, by partition."""
        with self._lock:
            return tuple(self._newest[partition] for partition in sorted(self._newest))
