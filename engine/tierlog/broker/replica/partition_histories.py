"""What the readers of a partition ask of the catalog: its history as it counts now."""

from __future__ import annotations

from typing import Protocol

from tierlog.remote.api import TopicIdPartition
from tierlog.scan.history import PartitionHistory


class PartitionHistories(Protocol):
    """The history of one partition, which changes as its bucket is listed again. Used on the event loop alone."""

    @property
    def topic_id_partition(self) -> TopicIdPartition: ...

    @property
    def current(self) -> PartitionHistory | None:
        """The newest history that is at hand: another object whenever it has changed; None until ``resolve`` has made
        one. Waits for nothing.
        """

    async def resolve(self) -> PartitionHistory:
        """The history, made now if there is none. All who ask at once wait for one resolution.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION: the partition is gone. StoreError, CorruptDataError and their kinds,
            EncryptionKeyError: nothing can be said of this partition for now; the next call tries again.
        """

    def report_missing(self, error: Exception) -> None:
        """Say that an object of the history was not there: the partition is listed again soon. Waits for nothing."""
