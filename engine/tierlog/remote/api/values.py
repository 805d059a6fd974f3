"""The KIP's value types, under the KIP's names: no behaviour.

Immutable, equal by value, hashable, small when pickled. The validation rules are those of Kafka 4.3's ``storage-api``:
an impossible value is a ``ValueError`` here, which readers of foreign bytes turn into the error of their format. A
value of a wrong type is a ``TypeError`` that names the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final

from tierlog.arguments import require_flag, require_int, require_text, require_type
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.leader_epochs import EpochEntry
from tierlog.runtime.machine.randomness import Rng

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_BROKER_ID: Final = "broker_id is no 32-bit number"
_EVENT_TIMESTAMP: Final = "event_timestamp_ms is no 64-bit number"


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


def _check_partition(topic: str, partition: int) -> None:
    _require(bool(require_text("topic", topic)), "a topic name is not empty")
    _require(0 <= require_int("partition", partition) <= _INT32_MAX, f"partition {partition} is not 0 … 2^31-1")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by name."""

    topic: str
    partition: int

    def __post_init__(self) -> None:
        _check_partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition by name and topic id; equal on all three."""

    topic_id: Uuid
    topic: str
    partition: int

    def __post_init__(self) -> None:
        require_type("topic_id", self.topic_id, Uuid, "a Uuid")
        _check_partition(self.topic, self.partition)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class RemoteLogSegmentId:
    """One copy attempt of one segment: every attempt has an id of its own."""

    topic_id_partition: TopicIdPartition
    id: Uuid

    def __post_init__(self) -> None:
        require_type("topic_id_partition", self.topic_id_partition, TopicIdPartition, "a TopicIdPartition")
        require_type("id", self.id, Uuid, "a Uuid")

    def __hash__(self) -> int:
        return hash(self.id)  # which is its own; a partition's hash takes five times as long

    @classmethod
    def generate_new(cls, topic_id_partition: TopicIdPartition, *, rng: Rng | None = None) -> RemoteLogSegmentId:
        """Make the id of a new copy attempt; ``rng`` as for ``Uuid.random``."""
        return cls(topic_id_partition, Uuid.random(rng))

    def __str__(self) -> str:
        return f"{self.topic_id_partition}/{self.id}"


class EpochMap(Mapping[int, int]):
    """Leader epoch → its first offset, ascending by epoch; immutable and hashable."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[int, int] | tuple[EpochEntry, ...] = ()) -> None:
        if isinstance(entries, Mapping):
            checked = [EpochEntry(epoch, start) for epoch, start in entries.items()]
        else:
            require_type("entries", entries, tuple, "a mapping of epoch to offset, or a tuple of EpochEntry")
            for entry in entries:
                require_type("each of entries", entry, EpochEntry, "an EpochEntry")
            checked = list(entries)
        checked.sort()
        self._entries: dict[int, int] = dict(checked)

    def entries(self) -> tuple[EpochEntry, ...]:
        """Return the epochs and their first offsets, ascending by epoch."""
        return tuple(EpochEntry(epoch, start) for epoch, start in self._entries.items())

    def __getitem__(self, epoch: int) -> int:
        return self._entries[epoch]

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return hash(tuple(self._entries.items()))

    def __repr__(self) -> str:
        return f"EpochMap({self._entries})"


class IndexType(Enum):
    """The parts of a segment beside its log, under the KIP's names."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader_epoch"


class RemoteLogSegmentState(IntEnum):
    """The life of a segment; the numbers are those of the metadata records."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """The life of a partition's removal; the numbers are those of the metadata records."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


#: Opaque bytes of the storage plugin, which it gets back on fetch and delete.
CustomMetadata = bytes


def _require_types(value: object, state: type[IntEnum]) -> None:
    """Check the types of the fields that several of the KIP's metadata types share."""
    for name in value.__slots__:  # type: ignore[attr-defined]
        given = getattr(value, name)
        if name == "remote_log_segment_id":
            require_type(name, given, RemoteLogSegmentId, "a RemoteLogSegmentId")
        elif name == "topic_id_partition":
            require_type(name, given, TopicIdPartition, "a TopicIdPartition")
        elif name == "state":
            require_type(name, given, state, f"a {state.__name__}")
        elif name == "custom_metadata":
            require_type(name, given, (bytes, type(None)), "bytes or None")
        elif name == "segment_leader_epochs":
            require_type(name, given, Mapping, "a mapping of epoch to offset")
        elif name == "txn_idx_empty":
            require_flag(name, given)
        else:
            require_int(name, given)
    if isinstance(value, RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata):
        _require(-_INT32_MAX - 1 <= value.broker_id <= _INT32_MAX, _BROKER_ID)
        _require(_INT64_MIN <= value.event_timestamp_ms <= _INT64_MAX, _EVENT_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A change of state of one segment."""

    remote_log_segment_id: RemoteLogSegmentId
    _: KW_ONLY
    event_timestamp_ms: int
    custom_metadata: CustomMetadata | None
    state: RemoteLogSegmentState
    broker_id: int

    def __post_init__(self) -> None:
        _require_types(self, RemoteLogSegmentState)


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """A change of state of a partition's removal."""

    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    _: KW_ONLY
    event_timestamp_ms: int
    broker_id: int

    def __post_init__(self) -> None:
        _require_types(self, RemotePartitionDeleteState)


_USUAL_TYPES: Final[frozenset[tuple[type, ...]]] = frozenset(
    (RemoteLogSegmentId, RemoteLogSegmentState, *(int,) * 6, EpochMap, bool, custom) for custom in (bytes, type(None))
)


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """The metadata of one segment in the tier.

    Args:
        start_offset: First offset; >= 0.
        end_offset: Last offset, **inclusive**; >= start_offset. After compaction no record may have it.
        max_timestamp_ms: Largest record timestamp, -1 if there is none.
        segment_size_in_bytes: Of the untransformed log.
        segment_leader_epochs: Epoch → first offset of that epoch in this segment; not empty.
        custom_metadata: The storage plugin's bytes, None if it left none.
        txn_idx_empty: The transaction index is known to be absent or empty (Kafka 4.0 and later say so).

    Raises:
        ValueError: one of the rules is broken. TypeError: a value is of another type; it is named.
    """

    remote_log_segment_id: RemoteLogSegmentId
    _: KW_ONLY
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_in_bytes: int
    segment_leader_epochs: Mapping[int, int] = field(default_factory=EpochMap)
    custom_metadata: CustomMetadata | None = None
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    txn_idx_empty: bool = False

    def __post_init__(self) -> None:
        found: tuple[type, ...] = (
            type(self.remote_log_segment_id),
            type(self.state),
            type(self.start_offset),
            type(self.end_offset),
            type(self.max_timestamp_ms),
            type(self.broker_id),
            type(self.event_timestamp_ms),
            type(self.segment_size_in_bytes),
            type(self.segment_leader_epochs),
            type(self.txn_idx_empty),
            type(self.custom_metadata),
        )
        if found not in _USUAL_TYPES:  # there are millions of these
            _require_types(self, RemoteLogSegmentState)
        if not 0 <= self.start_offset <= self.end_offset <= _INT64_MAX:
            _require(0 <= self.start_offset <= _INT64_MAX, f"start offset {self.start_offset} is not 0 … 2^63-1")
            _require(
                self.start_offset <= self.end_offset,
                f"end offset {self.end_offset} is below start offset {self.start_offset}",
            )
            _require(self.end_offset <= _INT64_MAX, f"end offset {self.end_offset} is not 0 … 2^63-1")
        _require(_INT64_MIN <= self.max_timestamp_ms <= _INT64_MAX, "max timestamp is no 64-bit number")
        _require(-_INT32_MAX - 1 <= self.broker_id <= _INT32_MAX, _BROKER_ID)
        _require(_INT64_MIN <= self.event_timestamp_ms <= _INT64_MAX, _EVENT_TIMESTAMP)
        _require(self.segment_size_in_bytes >= 0, f"segment size {self.segment_size_in_bytes} is negative")
        _require(len(self.segment_leader_epochs) > 0, "a segment has at least one leader epoch")
        if not isinstance(self.segment_leader_epochs, EpochMap):
            object.__setattr__(self, "segment_leader_epochs", EpochMap(self.segment_leader_epochs))

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.remote_log_segment_id.topic_id_partition

    def create_with_updates(self, update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadata:
        """Return the metadata after an update of the same segment. Raises ValueError for another segment's update."""
        _require(
            update.remote_log_segment_id == self.remote_log_segment_id,
            f"update of {update.remote_log_segment_id} given to {self.remote_log_segment_id}",
        )
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )
