"""The interface of the APIs of a server to the topics and partitions that it serves.

The replica serves a bucket behind these protocols; a broker with local logs is to serve its own. Everything runs on the
server's event loop: what blocks goes to threads behind an ``await``.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from tierlog.broker.partition_watches import PartitionKey, PartitionWatch
from tierlog.errors import TierlogError
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.runtime.waiting.file_part import FilePart

#: Of a leader epoch or an offset that is not known, as on the wire.
UNKNOWN: Final = -1
#: Partitions of which the last error is remembered.
_PARTITIONS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """The offsets of a partition at one moment (Kafka's LogOffsetSnapshot).

    Attributes:
        log_start_offset: First offset that can be read.
        high_watermark: Behind the last offset that can be read; of a replica the end of the tier.
        last_stable_offset: Behind the last offset that read_committed may read; at most the high watermark. UNKNOWN
            where the transactions of a damaged log cannot be read: a read for read_committed raises why.
        leader_epoch: Of the newest records; UNKNOWN where the log knows none.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int

    def end_offset(self, *, read_committed: bool) -> int:
        """Return the end of the readable offsets, exclusive; where the last stable one is not known that of all."""
        is_stable = read_committed and self.last_stable_offset != UNKNOWN
        return self.last_stable_offset if is_stable else self.high_watermark


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An answer of ListOffsets: -1 for a value that was not found or does not apply."""

    offset: int
    timestamp_ms: int = UNKNOWN
    leader_epoch: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """The end of an epoch (Kafka's EpochEndOffset): the largest epoch at or below the one asked for, and the offset
    behind its last record; UNKNOWN twice where there is none.
    """

    leader_epoch: int
    end_offset: int


class ReadablePartition(Protocol):
    """One partition, as Fetch reads it. Used on the event loop alone.

    Raises (all that is awaited):
        ApiError: the client's error. StoreError, CorruptDataError and their kinds, EncryptionKeyError: errors below;
        ``protocol.api_errors.error_code_of`` maps each to the client's error.
    """

    @property
    def offsets(self) -> OffsetSnapshot | None:
        """The cached offsets; None until ``load`` has found them. Does not wait."""

    async def load(self) -> OffsetSnapshot:
        """Return the offsets, looked up now if they are not cached. Concurrent callers wait for one search."""

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> tuple[OffsetSnapshot, FetchDataInfo[memoryview | FilePart]]:
        """Read batches from an offset on. Returns the offsets of the partition when it was read, and the result.

        Args:
            fetch_offset: The first wanted offset, at most the end of the readable log.
            max_bytes: The most that is given; 0 gives the offsets alone.
            is_first_whole: A first batch that is larger than ``max_bytes`` is given whole; else nothing is.
            read_committed: Up to the last stable offset, with the aborted transactions; else up to the high watermark.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE for an offset below the log start or behind the end.
        """

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end of an epoch, as OffsetForLeaderEpoch answers."""


class Partition(ReadablePartition, Protocol):
    """One partition that is served. Used on the event loop alone. Raises as ReadablePartition."""

    @property
    def topic_id_partition(self) -> TopicIdPartition: ...

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset | None:
        """Find the first record of a time or later, in ms >= 0, below the end that the isolation gives; None if there
        is none (Kafka's ``fetchOffsetByTimestamp``).
        """

    async def find_max_timestamp(self) -> FoundOffset | None:
        """Find the first record with the largest timestamp; None of a partition without records."""

    async def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of an offset; UNKNOWN where the log knows none."""

    async def size_bytes(self) -> int:
        """Return the bytes of the readable log, for DescribeLogDirs."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is served.

    Args:
        name: The name that clients use.
        topic_id: ZERO_UUID where unknown.
        partitions: Numbers of its partitions, ascending. There may be holes: a bucket holds no segment of a partition
            that was never copied.
    """

    name: str
    topic_id: Uuid
    partitions: tuple[int, ...]


class PartitionFinder(Protocol):
    """The partitions that one fetch reads. Used on the event loop alone; does not wait."""

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        """Return a topic by its id; None for ZERO_UUID."""

    def partition(self, name: str, partition: int) -> ReadablePartition | None:
        """Return a partition of a topic."""


class Catalog(Protocol):
    """The served topics, and watches of their changes. Used on the event loop alone; does not wait."""

    @property
    def version(self) -> int:
        """A number that rises whenever offsets or topics have changed: an answer of one version holds while
        it stays.
        """

    def topics(self) -> Collection[Topic]:
        """Return all topics, by name."""

    def find(self, name: str) -> Topic | None:
        """Return a topic by its name."""

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        """Return a topic by its id; None for ZERO_UUID."""

    def partition(self, name: str, partition: int) -> Partition | None:
        """Return a partition of a topic."""

    def watch(self, partitions: Iterable[PartitionKey]) -> PartitionWatch:
        """Watch partitions for changes of their offsets, or of their being there; the caller closes it."""


class ToldErrors:
    """A log of partitions' errors without repetitions of the last one of the same partition: clients ask for a damaged
    partition again and again, some without a pause. Used on one thread.

    Args:
        logger: The logger of the errors.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: OrderedDict[tuple[str, int], str] = OrderedDict()

    def tell(self, topic: str, partition: int, error: Exception) -> None:
        """Log an error of a partition: a warning, or with its place if the fault is ours."""
        text = f"{type(error).__name__}: {error}"
        if self._told.get((topic, partition)) == text:
            return
        self._told[topic, partition] = text
        self._told.move_to_end((topic, partition))
        if len(self._told) > _PARTITIONS_MAX:
            self._told.popitem(last=False)
        is_ours = not isinstance(error, TierlogError)
        level = logging.ERROR if is_ours else logging.WARNING
        self._logger.log(level, "%s-%d: %s", topic, partition, text, exc_info=error if is_ours else None)
