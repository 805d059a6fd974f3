"""What brokers, the controller, the store and the metadata topic of a simulated cluster send each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.simulation.messages import Partition
from tierlog.log.local.log_config import LogConfig
from tierlog.remote.api import TopicIdPartition
from tierlog.replication import BrokerState, FollowerRequest, LeaderAndIsr

# ---- broker to controller


@dataclass(frozen=True, slots=True)
class Register:
    """A broker's life begins.

    Attributes:
        clean_epoch: The broker epoch in which its directory was closed cleanly; -1: it was not.
    """

    broker: int
    incarnation: int
    clean_epoch: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer of a Register."""

    error: str | None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker lives, and knows the metadata of a version.

    Attributes:
        offline: The partitions whose log lies in a directory that has failed.
    """

    broker: int
    epoch: int
    version: int
    wants_to_stop: bool = False
    offline: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True)
class HeartbeatTaken:
    """The answer of a Heartbeat."""

    error: str | None
    is_fenced: bool = False
    may_stop: bool = False


@dataclass(frozen=True, slots=True)
class AskMetadata:
    """A broker asks for what changed since a version; it waits for a change."""

    broker: int
    version: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the controller has it.

    Attributes:
        is_deleted: Whether it is deleted: then its logs go.
    """

    name: str
    generation: int
    topic_id: bytes
    config: LogConfig
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the controller has it; ``leader`` None = none.

    Attributes:
        eligible: Replicas out of the in-sync set that may be elected all the same (KIP-966).
    """

    partition: Partition
    leader: int | None
    state: LeaderAndIsr
    eligible: frozenset[int]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The answer of AskMetadata.

    Attributes:
        version: The version that it leads to.
        metadata_leaders: Of each partition of the metadata topic.
    """

    version: int
    topics: tuple[TopicState, ...]
    partitions: tuple[PartitionState, ...]
    brokers: tuple[tuple[int, BrokerState], ...]
    metadata_leaders: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class AskAlter:
    """A leader asks for another in-sync set.

    Attributes:
        version: Of the metadata that it knows.
        in_sync: (broker, broker epoch).
    """

    broker: int
    broker_epoch: int
    version: int
    partition: Partition
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Altered:
    """The answer of an AskAlter."""

    error: str | None
    state: LeaderAndIsr | None = None


# ---- controller to broker


@dataclass(frozen=True, slots=True)
class RemovePartition:
    """The controller asks a broker to mark a deleted partition for removal from the tier."""

    partition: TopicIdPartition


@dataclass(frozen=True, slots=True)
class PartitionRemoved:
    """The answer of a RemovePartition: the removal is marked."""

    error: str | None


# ---- broker to broker


@dataclass(frozen=True, slots=True)
class AskReplicas:
    """A follower's broker asks a leader's: a request of the follower's machine for each partition."""

    broker: int
    broker_epoch: int
    requests: tuple[tuple[Partition, FollowerRequest], ...]
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class ReplicasAnswered:
    """The answer of AskReplicas: for each partition the machine's answer, or Kafka's error."""

    answers: tuple[tuple[Partition, Any], ...]


# ---- broker to store and metadata topic


@dataclass(slots=True, eq=False)
class StoreCall:
    """A call of the store, by a broker's life.

    Attributes:
        verb: The name of an ObjectStore's method.
        is_awaited: Whether its caller waits for the answer still.
    """

    broker: int
    life: int
    verb: str
    key: str
    arguments: tuple[Any, ...] = ()
    is_awaited: bool = True


@dataclass(frozen=True, slots=True)
class MetadataCall:
    """A call of the metadata topic, by a broker."""

    broker: int
    verb: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a call of the store or of the metadata topic: what it gives, or its error."""

    value: Any = None
    raised: Exception | None = None
