"""What the readers of a partition ask of the catalog: its history as it counts now."""

from __future__ import annotations

from collections.abc import Callable
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
        one, or once others have needed its memory. Waits for nothing.
        """

    @property
    def version(self) -> int:
        """Another number whenever the history is another one, or the partition is gone. What was found out of a history
        holds while this stays, also where the history itself is not at hand.
        """

    def use(self) -> PartitionHistory | None:
        """As ``current``, for a reader: what is used stays at hand longer than what is not."""

    def when_left(self, call: Callable[[], None]) -> None:
        """Have something called whenever the history leaves memory for others: who holds it lets go of it then."""

    async def resolve(self) -> PartitionHistory:
        """The history, made now if there is none. All who ask at once wait for one resolution.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION: the partition is gone. StoreError, CorruptDataError and their kinds,
            EncryptionKeyError: nothing can be said of this partition for now; the next call tries again.
        """

    def report_missing(self, error: Exception) -> None:
        """Say that an object of the history was not there: the partition is listed again soon. Waits for nothing."""
