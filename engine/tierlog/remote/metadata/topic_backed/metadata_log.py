"""The log that a topic-backed metadata manager keeps its events in: what it asks of ``__remote_log_metadata``, whoever
holds the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from tierlog.remote.api import RemoteStorageException
from tierlog.remote.metadata.records.event_runs import BatchRun as BatchRun  # noqa: PLC0414 - what a log's read gives
from tierlog.remote.metadata.records.event_runs import ValueRun as ValueRun  # noqa: PLC0414
from tierlog.runtime.machine.scheduling import Future

METADATA_TOPIC: Final = "__remote_log_metadata"


class OffsetsLostError(RemoteStorageException):
    """An offset lies outside of what its partition holds: the topic was truncated, or is another one by that name."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What one metadata partition holds: offsets from ``start_offset`` on, below ``end_offset``."""

    start_offset: int
    end_offset: int


class MetadataLog(Protocol):
    """A topic of a fixed number of partitions, to which records are appended and from which they are read in order.

    Raises (all methods): RetriableRemoteStorageException: the same call may work later; RemoteStorageException: it will
    not. No call waits longer than its deadline, or, without one, than the log's own.

    Thread safety: any number of threads.
    """

    @property
    def identity(self) -> str:
        """What tells this topic from one of the same name that was made anew: its topic id, for example."""

    @property
    def partition_count(self) -> int: ...

    def append(self, partition: int, value: bytes) -> Future[int]:
        """Append a record. The future gives its offset when all replicas that must have it do."""

    def bounds(self, partitions: Sequence[int], *, timeout_seconds: float) -> Mapping[int, LogBounds]:
        """The bounds of some partitions now."""

    def read(
        self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float
    ) -> Sequence[BatchRun | ValueRun]:
        """Records from these offsets on (partition → offset), some of each partition that has any; none if none came
        within the time.

        Raises:
            OffsetsLostError: an offset lies outside of what its partition holds: the topic was truncated or made anew.
        """

    def wake(self) -> None:
        """End a read that waits in another thread at once, or the next one."""

    def close(self) -> None:
        """Release what is held; calls under way end with an error. Idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MetadataLogs(Protocol):
    """Opens the metadata log of a cluster: connects, makes the topic where there is none, and checks it."""

    def open(self, *, timeout_seconds: float) -> MetadataLog:
        """The log, ready for use.

        Raises:
            ConfigError: the topic has another number of partitions or a clean-up policy under which metadata would be
                lost. RetriableRemoteStorageException: the cluster cannot be reached yet.
        """
