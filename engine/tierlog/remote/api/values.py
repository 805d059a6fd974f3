"""The KIP's value types, under the KIP's names: no behaviour.

Immutable, equal by value, hashable, small pickles. The validation rules are those of Kafka 4.3's ``storage-api``; a
value that cannot be is a ``ValueError`` here, which readers of foreign bytes turn into the error of their format.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final

from tierlog.runtime.chance import Rng

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_UUID_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Uuid:
    """Kafka's Uuid: 16 bytes, written as 22 characters of URL-safe base64 without padding."""

    raw: bytes

    def __post_init__(self) -> None:
        _require(len(self.raw) == 16, f"a Uuid has 16 bytes, not {len(self.raw)}")

    @classmethod
    def from_text(cls, text: str) -> Uuid:
        """Parse the 22 characters. Raises ValueError."""
        _require(_UUID_TEXT.fullmatch(text) is not None, f"not a Kafka Uuid: {text!r}")
        return cls(base64.urlsafe_b64decode(text + "=="))

    @classmethod
    def random(cls, rng: Rng) -> Uuid:
        """A new id, as Kafka makes them: never one of the two reserved ones, never with "-" as its first character."""
        while True:
            raw = bytearray(rng.secret_bytes(16))
            raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
            made = cls(bytes(raw))
            if not str(made).startswith("-"):
                return made

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.raw)[:22].decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({self})"


#: Kafka's Uuid.ZERO_UUID: here "this layout does not know the topic's id".
ZERO_UUID: Final = Uuid(bytes(16))


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by name."""

    topic: str
    partition: int

    def __post_init__(self) -> None:
        _require(bool(self.topic), "a topic name is not empty")
        _require(0 <= self.partition <= _INT32_MAX, f"partition {self.partition} is not 0 … 2^31-1")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition by name and topic id; equal on all three."""

    topic_id: Uuid
    topic: str
    partition: int

    def __post_init__(self) -> None:
        _require(bool(self.topic), "a topic name is not empty")
        _require(0 <= self.partition <= _INT32_MAX, f"partition {self.partition} is not 0 … 2^31-1")

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

    @classmethod
    def generate_new(cls, topic_id_partition: TopicIdPartition, rng: Rng) -> RemoteLogSegmentId:
        """The id of a new copy attempt."""
        return cls(topic_id_partition, Uuid.random(rng))

    def __str__(self) -> str:
        return f"{self.topic_id_partition}/{self.id}"


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int

    def __post_init__(self) -> None:
        _require(0 <= self.epoch <= _INT32_MAX, f"leader epoch {self.epoch} is not 0 … 2^31-1")
        _require(0 <= self.start_offset <= _INT64_MAX, f"epoch start offset {self.start_offset} is negative")


class EpochMap(Mapping[int, int]):
    """Leader epoch → its first offset, ascending by epoch; immutable and hashable."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[int, int] | tuple[EpochEntry, ...] = ()) -> None:
        if isinstance(entries, Mapping):
            entries = tuple(EpochEntry(epoch, start) for epoch, start in entries.items())
        self._entries: dict[int, int] = {entry.epoch: entry.start_offset for entry in sorted(entries)}

    def entries(self) -> tuple[EpochEntry, ...]:
        """The same as entries, ascending by epoch."""
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


#: What a segment's storage wants back on fetch and delete: opaque bytes of the storage plugin.
CustomMetadata = bytes


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A change of state of one segment."""

    remote_log_segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    custom_metadata: CustomMetadata | None
    state: RemoteLogSegmentState
    broker_id: int


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """A change of state of a partition's removal."""

    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """What is known of one segment in the tier.

    Args:
        start_offset: First offset; >= 0.
        end_offset: Last offset, **inclusive**; >= start_offset. After compaction no record may have it.
        max_timestamp_ms: Largest record timestamp, -1 if there is none.
        segment_size_in_bytes: Of the untransformed log.
        segment_leader_epochs: Epoch → first offset of that epoch in this segment; not empty.
        custom_metadata: The storage plugin's bytes, None if it left none.
        txn_idx_empty: The transaction index is known to be absent or empty (Kafka 4.0 and later say so).

    Raises:
        ValueError: one of the rules is broken.
    """

    remote_log_segment_id: RemoteLogSegmentId
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
        _require(0 <= self.start_offset <= _INT64_MAX, f"start offset {self.start_offset} is negative")
        _require(
            self.start_offset <= self.end_offset <= _INT64_MAX,
            f"end offset {self.end_offset} is below start offset {self.start_offset}",
        )
        _require(_INT64_MIN <= self.max_timestamp_ms <= _INT64_MAX, "max timestamp is no 64-bit number")
        _require(self.segment_size_in_bytes >= 0, f"segment size {self.segment_size_in_bytes} is negative")
        _require(len(self.segment_leader_epochs) > 0, "a segment has at least one leader epoch")
        if not isinstance(self.segment_leader_epochs, EpochMap):
            object.__setattr__(self, "segment_leader_epochs", EpochMap(self.segment_leader_epochs))

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.remote_log_segment_id.topic_id_partition

    def create_with_updates(self, update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadata:
        """The metadata after an update of the same segment. Raises ValueError for another segment's update."""
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
