"""What the nodes of a simulated cluster send each other: requests and answers, as plain values.

A broker's answers have Kafka's errors by name; None = no error. A partition is its topic's name, its number and the
generation of the topic: a topic that is deleted and made again has the next one, and another topic id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Partition(NamedTuple):
    """A partition of a topic, of the topic that was made so often."""

    topic: str
    number: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.topic}.{self.generation}-{self.number}"


@dataclass(frozen=True, slots=True)
class Produce:
    """A client's batch for a leader.

    Attributes:
        batch: One record batch, format 2, with producer id, epoch and sequence where the producer is idempotent.
        acks: -1, 0 or 1.
        timeout_ms: How long the leader waits for its followers.
        transactional_id: Of a transactional batch: the leader verifies it with the coordinator.
    """

    partition: Partition
    batch: bytes
    acks: int = -1
    timeout_ms: int = 30_000
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class Produced:
    """The answer of a Produce.

    Attributes:
        base_offset: -1 with an error.
        log_start_offset: Of the leader; -1 with an error.
        leader_epoch: Of the leader, when the batch was committed.
    """

    error: str | None
    base_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Fetch:
    """A consumer's fetch.

    Attributes:
        leader_epoch: The epoch that the client knows of; -1 = none.
        is_committed: Whether isolation is read committed.
    """

    partition: Partition
    offset: int
    max_bytes: int = 1 << 20
    max_wait_ms: int = 500
    leader_epoch: int = -1
    is_committed: bool = False


class AbortedTransaction(NamedTuple):
    """A transaction that a consumer skips: from this offset to its abort marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer of a Fetch.

    Attributes:
        data: Whole batches.
        leader_epoch: The epoch of the replica that answered.
        is_remote: Whether the data came from the tier.
    """

    error: str | None
    data: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()
    leader_epoch: int = -1
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class ListOffset:
    """Asks a leader for the offset of a time, or of Kafka's special ones -1 to -6."""

    partition: Partition
    timestamp: int
    is_committed: bool = False


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The answer of a ListOffset."""

    error: str | None
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Asks a leader to move the log start to an offset; -1 = the high watermark."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The answer of a DeleteRecords, once all live replicas have moved."""

    error: str | None
    low_watermark: int = -1


@dataclass(frozen=True, slots=True)
class AskLeaders:
    """A client asks the controller who leads what."""


@dataclass(frozen=True, slots=True)
class Leaders:
    """The answer of AskLeaders.

    Attributes:
        leaders: By partition: leader (None = none) and its epoch.
        replicas: By partition: the brokers that have it.
        deleted: By topic: the last generation that was deleted.
    """

    leaders: dict[Partition, tuple[int | None, int]]
    replicas: dict[Partition, tuple[int, ...]]
    deleted: dict[str, int]


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A producer begins; with a transactional id its open transaction is ended, and its earlier lives are fenced."""

    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdGiven:
    """The answer of InitProducerId."""

    error: str | None
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A transactional producer is about to write to partitions.

    Attributes:
        transaction: The judge's name of the transaction. Kafka has none.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]
    transaction: str


@dataclass(frozen=True, slots=True)
class VerifyTransaction:
    """A leader asks the coordinator whether a producer's open transaction has a partition (KIP-890), before it appends
    the first batch of the transaction there.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A transactional producer commits or aborts."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    """The answer of AddPartitions, VerifyTransaction and EndTransaction.

    Attributes:
        producer_id, producer_epoch: Of EndTransaction, with transactions of version 2: the producer goes on with them.
    """

    error: str | None
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """The coordinator asks a leader to end a producer's transaction in a partition.

    Attributes:
        transaction_version: 1, or 2: the marker's epoch is above that of the transaction's batches.
    """

    partition: Partition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class MarkerWritten:
    """The answer of WriteMarker, once the marker is committed."""

    error: str | None


@dataclass(frozen=True, slots=True)
class ElectLeader:
    """An administrator asks the controller for another leader: a member of the in-sync set, or any replica."""

    partition: Partition
    broker: int
    is_unclean: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """An administrator asks the controller to delete a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """An administrator asks the controller to make a deleted topic again, as the seed has it; it is the next
    generation.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """An administrator asks the controller to change a topic's configuration.

    Attributes:
        changes: Kafka's names and values as text; None: back to the default.
    """

    topic: str
    changes: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class AdminAnswer:
    """The controller's answer to an administrator."""

    error: str | None
