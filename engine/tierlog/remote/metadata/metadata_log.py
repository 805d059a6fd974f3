"""The metadata topic ``__remote_log_metadata``: its interface for a manager, whichever log implements it, and the
results of its reads.

The mapping of user partitions to its partitions leaves out the topic's name, so that a partition has its place after
its topic is made anew only if the id is the same. Source: Kafka RemoteLogMetadataTopicPartitioner, Utils#murmur2;
TopicIdPartition#hashCode of its storage module.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, Self

from typing_extensions import Buffer

from tierlog.errors import ObjectNotFoundError, TierlogError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException, TopicIdPartition
from tierlog.runtime.machine.scheduling import Future

METADATA_TOPIC: Final = "__remote_log_metadata"


def kip_error(error: BaseException, *, absence_passes: bool = False) -> RemoteStorageException:
    """Make the KIP's error for one of a log's or of Kafka's client; retriable if that is, or its cause: a log that
    could not be loaded for want of file descriptors can be loaded later. ``absence_passes``: Whether a missing object
    may appear later.
    """
    if isinstance(error, RemoteStorageException):
        return error
    passes = any(getattr(each, "retriable", False) for each in (error, error.__cause__))
    passes = passes or (absence_passes and isinstance(error, ObjectNotFoundError))
    made = (RetriableRemoteStorageException if passes else RemoteStorageException)(str(error))
    made.__cause__ = error
    return made


@contextmanager
def kip_errors(*leaving: type[TierlogError], absence_passes: bool = False) -> Iterator[None]:
    """The block raises ``kip_error`` of each error of ours but those of the kinds ``leaving``."""
    try:
        yield
    except TierlogError as error:
        if isinstance(error, (RemoteStorageException, *leaving)):
            raise
        raise kip_error(error, absence_passes=absence_passes) from error


class OffsetsLostError(RemoteStorageException):
    """An offset lies outside of what its partition holds: the topic was truncated, or is another one by that name."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The offsets of one metadata partition: from ``start_offset`` on, below ``end_offset``."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class MetadataBatches:
    """Whole record batches of one metadata partition, as a log file has them.

    Attributes:
        next_offset: Where the next read goes on.
    """

    partition: int
    next_offset: int
    batches: Buffer


@dataclass(frozen=True, slots=True)
class MetadataValues:
    """Records of one metadata partition, one by one, as a consumer has them. All sequences are of one length.

    Attributes:
        next_offset: Where the next read goes on; offsets of control records lie between.
        keys: None for a record without key, as all of Kafka's are.
        values: None for a tombstone.
    """

    partition: int
    next_offset: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class RecordIdentity:
    """What tells a record from another one at its offset. Where a metadata partition has another one than was read
    there, or none, it has lost its end since, whether or not it has grown again.

    Attributes:
        value_crc: CRC-32C of its value; 0 for a tombstone.
    """

    offset: int
    value_crc: int


class MetadataLog(Protocol):
    """A topic of a fixed number of partitions, to which records are appended and from which they are read in order.

    Raises (all methods): RetriableRemoteStorageException: the same call may work later; RemoteStorageException: it will
    not. No call waits longer than its deadline, or, without one, than the log's own.

    Thread safety: any number of threads.
    """

    @property
    def identity(self) -> str:
        """An identity that differs for a topic of the same name that was made anew: the topic id, for example."""

    @property
    def partition_count(self) -> int: ...

    def append(self, partition: int, value: bytes) -> Future[int]:
        """Append a record. The future gives its offset when all replicas that must have it do."""

    def bounds(self, partitions: Sequence[int], *, timeout_seconds: float) -> Mapping[int, LogBounds]:
        """Return the bounds of some partitions now."""

    def read(
        self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float
    ) -> Sequence[MetadataBatches | MetadataValues]:
        """Read records from these offsets on (partition → offset), some of each partition that has any; none if none
        came within the time.

        Raises:
            OffsetsLostError: an offset lies outside of what its partition holds: the topic was truncated or made anew.
        """

    def wake(self) -> None:
        """End a read that waits in another thread at once, or the next one."""

    def close(self) -> None:
        """Release all resources; calls under way end with an error. Idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class MetadataLogs(Protocol):
    """The opener of a cluster's metadata log: it connects, makes the topic where there is none, and checks it."""

    def open(self, *, timeout_seconds: float) -> MetadataLog:
        """Open the log, ready for use.

        Raises:
            ConfigError: the topic has another number of partitions or a clean-up policy under which metadata would be
                lost. RetriableRemoteStorageException: the cluster cannot be reached yet.
        """


_MASK: Final = 0xFFFFFFFF
_MIX: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def metadata_partition(partition: TopicIdPartition, partition_count: int) -> int:
    """Return the metadata partition of a user partition, in 0 … ``partition_count`` - 1.

    Raises:
        ValueError: the count is below 1.
    """
    if partition_count < 1:
        raise ValueError(f"{partition_count} metadata partitions: at least 1 expected")
    most, least = struct.unpack(">QQ", partition.topic_id)
    folded = 1
    for number in (_folded(least), _folded(most), partition.partition):
        folded = (31 * folded + number) & _MASK
    return (_murmur2(folded) & 0x7FFFFFFF) % partition_count


def _folded(number: int) -> int:
    """Java's Long.hashCode of 64 bits."""
    return (number ^ number >> 32) & _MASK


def _murmur2(word: int) -> int:
    """Kafka's murmur2 of four big-endian bytes."""
    word = struct.unpack("<I", struct.pack(">I", word))[0]
    word = word * _MIX & _MASK
    word = (word ^ word >> 24) * _MIX & _MASK
    hashed = ((_SEED ^ 4) * _MIX & _MASK) ^ word
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15
