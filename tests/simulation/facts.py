"""What a simulated cluster tells its judge: plain values, as they happen.

The judge's models decide by these and by nothing of the engine. A method raises ``Violation`` when an invariant is
broken; the run ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tests.simulation.messages import AbortedTransaction, ListedOffset, ListOffset, Partition

#: The number of a run that does not end: liveness.
ENDLESS: Final = 10
#: The number of an error that a task of the engine did not take: it would have ended a thread of a broker.
ENGINE_ERROR: Final = 15
#: Why a read does not go on where its answers are empty.
NOTHING: Final = "nothing"


class Violation(AssertionError):
    """An invariant is broken.

    Attributes:
        invariant: Its number, 1 to 14, or ENGINE_ERROR.
        anomaly: Its name, Jepsen's where there is one.
    """

    def __init__(self, invariant: int, anomaly: str, text: str) -> None:
        super().__init__(f"invariant {invariant}, {anomaly}: {text}")
        self.invariant = invariant
        self.anomaly = anomaly


class JudgeError(Exception):
    """The judge itself has failed: its cause says how."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now.

    Attributes:
        replicas: By partition: the brokers that have it.
        retention_ms, retention_bytes, local_retention_ms, local_retention_bytes: -1 = no limit; local ones -2 = as the
            whole log's.
        is_tiered: Whether ``remote.storage.enable`` is on.
        is_copy_disabled: ``remote.log.copy.disable``.
        topic_id: Its 16 bytes; a topic that is made again has another one.
    """

    partitions: int
    replicas: tuple[tuple[int, ...], ...]
    min_insync_replicas: int
    is_compacted: bool
    is_tiered: bool
    is_copy_disabled: bool
    segment_bytes: int
    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    flush_messages: int
    delete_retention_ms: int
    topic_id: bytes = b""


class ReplicaView(NamedTuple):
    """One replica's state, as its broker has it at this moment.

    Attributes:
        role: "leader", "follower" or "offline".
        leader_epoch: Of its role; -1 = none.
        lineage: Epoch and start offset, ascending.
        in_sync: As a leader knows it; empty elsewhere.
        copied_offset: The highest offset that its log knows to be in the tier; -1 = none.
        segments: Base offset and size in bytes of each local segment, ascending.
        clock_ms: What the broker's own clock says.
    """

    broker: int
    partition: Partition
    role: str
    leader_epoch: int
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    lineage: tuple[tuple[int, int], ...]
    in_sync: frozenset[int]
    copied_offset: int
    segments: tuple[tuple[int, int], ...]
    clock_ms: int = 0


class ReadPart(NamedTuple):
    """An answer of a read of a whole partition: the offset that was asked for, batches, and aborted transactions."""

    offset: int
    data: bytes
    aborted: tuple[AbortedTransaction, ...]


@dataclass(frozen=True, slots=True)
class ProducerView:
    """What a replica knows of a producer.

    Attributes:
        last_sequence: Of its last batch in this epoch; -1 = it knows none.
        last_offset: Of that batch; -1 = it knows none.
    """

    epoch: int
    last_sequence: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """How the judge looks at the cluster. Each call reads what is there now.

    Attributes:
        replicas: All replicas of the brokers that run.
        replica: That of a broker; None: it does not run, or has none.
        values: An object that stays the same for as long as that replica does; None as there, and amid a change.
        clock_ms: What a running broker's own clock says.
        log_start: The log start that a broker's replica has published, in the middle of a change too; 0: there is none.
        log_bytes: The local log of a broker's replica: whole batches of all segments, in order.
        stored: The store's objects: key to size in bytes, as they are and not as a stale listing has them.
        metadata: All record values of the metadata topic, by its partition, in order.
        open_resources: By node: tasks, locks, open files, held bytes, requests that wait: all 0 after close.
        files: By broker: the paths of all files on its disk, "/logs/…" and "/cache/…".
        producers: What a broker's replica knows of producers, by their ids; None: it was cut below its first segment,
            and neither leads nor is read until it has begun anew from the tier.
        producer_expiration_ms: How long a broker remembers a producer that is silent, at least.
    """

    replicas: Callable[[], list[ReplicaView]]
    replica: Callable[[int, Partition], ReplicaView | None]
    values: Callable[[int, Partition], object | None]
    clock_ms: Callable[[int], int]
    log_start: Callable[[int, Partition], int]
    log_bytes: Callable[[int, Partition], bytes]
    stored: Callable[[], Mapping[str, int]]
    metadata: Callable[[], list[list[bytes]]]
    open_resources: Callable[[], Mapping[str, int]]
    files: Callable[[], Mapping[int, list[str]]]
    producers: Callable[[int, Partition], Mapping[int, ProducerView] | None]
    producer_expiration_ms: int = 86_400_000


class Judge(Protocol):
    """What judges a run. ``now_ms`` is the true time; a broker's own clock differs by its skew."""

    # ---- the cluster

    def begin(self, view: ClusterView, now_ms: int) -> None:
        """The cluster stands."""

    def topic_changed(self, topic: str, generation: int, facts: TopicFacts | None, now_ms: int) -> None:
        """A topic was made or its configuration changed; None: it was deleted."""

    def elected(
        self,
        partition: Partition,
        epoch: int,
        leader: int | None,
        in_sync: frozenset[int],
        is_unclean: bool,
        now_ms: int,
    ) -> None:
        """The controller decided on a partition: a leader, or another in-sync set in the same epoch."""

    def broker_started(self, broker: int, life: int, now_ms: int) -> None:
        """A broker begins a life."""

    def broker_stopped(self, broker: int, life: int, is_clean: bool, now_ms: int) -> None:
        """A broker's life ended: by a clean stop, or by a crash that lost what was not synced."""

    def disk_wiped(self, broker: int, now_ms: int) -> None:
        """All of a broker's disk was lost."""

    def fault_began(self, name: str, text: str, now_ms: int) -> None:
        """A fault is on: of the network, store, metadata topic, disk or clock."""

    def fault_ended(self, name: str, text: str, now_ms: int) -> None:
        """A fault is over."""

    # ---- clients

    def sent(
        self,
        producer: str,
        number: int,
        partition: Partition,
        records: tuple[tuple[bytes | None, bytes | None], ...],
        *,
        acks: int,
        is_idempotent: bool,
        transaction: str | None,
        now_ms: int,
    ) -> None:
        """A producer sends a batch for the first time; ``number`` counts its batches. Values are unique in a run, but
        for tombstones.
        """

    def acknowledged(
        self, producer: str, number: int, base_offset: int, is_duplicate: bool, now_ms: int, leader_epoch: int = -1
    ) -> None:
        """The batch was acknowledged; ``base_offset`` is -1 for acks=0, and for a duplicate of unknown offset.

        ``leader_epoch``: of the leader that answered (``Produced.leader_epoch``): after an unclean election it tells
        the answers of the old leader from those of the new one.
        """

    def refused(self, producer: str, number: int, error: str, is_final: bool, now_ms: int) -> None:
        """The producer gave the batch up: ``is_final`` = it was surely never appended, else nobody knows."""

    def transaction_ended(self, transaction: str, outcome: str, now_ms: int) -> None:
        """A transaction of this name ended as "committed", "aborted", or "unknown" to its producer."""

    def transaction_decided(self, transaction: str, is_commit: bool, now_ms: int) -> None:
        """The coordinator decided, durably."""

    def polled(
        self,
        consumer: str,
        partition: Partition,
        *,
        broker: int,
        offset: int,
        is_committed: bool,
        data: bytes,
        aborted: tuple[AbortedTransaction, ...],
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        is_remote: bool,
        now_ms: int,
    ) -> None:
        """A consumer got an answer without error for its position."""

    def served(self, broker: int, partition: Partition, offset: int, data: bytes, is_remote: bool, now_ms: int) -> None:
        """A broker made its answer to a consumer's fetch, at this moment; ``polled`` follows when it arrives."""

    def remote_read_failed(self, broker: int, partition: Partition, offset: int, error: str) -> None:
        """A broker answers a fetch of what is in the tier with an error."""

    def records_deletion_asked(self, partition: Partition, offset: int, now_ms: int) -> None:
        """An admin is about to ask for DeleteRecords up to an offset (-1 = the high watermark)."""

    def position_reset(
        self, consumer: str, partition: Partition, before: int, offset: int, why: str, now_ms: int
    ) -> None:
        """A consumer moved by itself: to the log start after OFFSET_OUT_OF_RANGE, or to a random offset ("random")."""

    def looked_up(self, client: str, request: ListOffset, answer: ListedOffset, *, broker: int, now_ms: int) -> None:
        """A leader answered, without error, for the offset of a time or a special one."""

    def read_whole(
        self,
        broker: int,
        partition: Partition,
        *,
        is_committed: bool,
        start: int,
        end: int,
        parts: tuple[ReadPart, ...],
        now_ms: int,
    ) -> None:
        """At the end of the run, a broker's replica was read from the log start to the end that its leader told."""

    def unreadable(
        self, broker: int, partition: Partition, offset: int, error: str, *, is_committed: bool, now_ms: int
    ) -> int | None:
        """Such a read gets errors alone at an offset. Return the offset where it goes on; None: it ends there."""

    # ---- the tier

    def metadata_appended(self, broker: int, partition: int, value: bytes, now_ms: int) -> None:
        """A record of the metadata topic is durable there, whether its writer learns it or not."""

    def object_put(
        self, key: str, size_bytes: int, broker: int, life: int, now_ms: int, *, is_awaited: bool = True
    ) -> None:
        """The store has an object, whether its writer learns it or not; ``is_awaited``: whether it waits still."""

    def object_deleted(self, key: str, by: str, now_ms: int) -> None:
        """The store has it no more, if it had it; ``by`` is a node's name, or "lifecycle"."""

    def has_late_objects(self) -> bool:
        """Whether objects landed behind the deletion of their segment, by brokers that run still: these remove them a
        second time, a minute after they gave the request up.
        """

    def due_segments(self) -> set[str]:
        """The segments, here and in the tier, that leaders have still to delete, by their names."""

    # ---- time

    def step(self, touched: frozenset[int], now_ms: int) -> None:
        """An event is over; the brokers that ran in it."""

    def checkpoint(self, now_ms: int) -> None:
        """Time for what is dear: whole logs."""

    def settled(self, now_ms: int) -> None:
        """Faults stopped three task intervals ago, and no client sends. Some brokers may be down or paused still."""

    def store_settled(self, now_ms: int) -> None:
        """All brokers run, and had the time to remove what they had stored too late."""

    def closed(self, now_ms: int) -> None:
        """All brokers stopped cleanly."""
