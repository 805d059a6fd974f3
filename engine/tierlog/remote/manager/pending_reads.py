"""Fetches that wait for remote reads: what was asked for, and an answer that is there by a deadline, however little.

Source: Kafka DelayedRemoteFetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.batch_reads import FoundBatches
from tierlog.runtime.machine.scheduling import Scheduler
from tierlog.runtime.waiting.cancellable_future import CancellableFuture


class RemoteRead(NamedTuple):
    """One partition of a fetch, whose offset is in the tier alone.

    Args:
        topic_id_partition: The partition.
        fetch_offset: Batches from the one that holds it on.
        max_bytes: At most so many bytes of it.
        isolation: Up to where.
    """

    topic_id_partition: TopicIdPartition
    fetch_offset: int
    max_bytes: int
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK


class RemoteReadResult(NamedTuple):
    """The answer of one partition.

    Attributes:
        topic_id_partition: The partition.
        data: The batches; its parts are views, often of cached chunks, which stay as they are while they are
            referenced. Empty with an error, and where nothing was found in time.
        error: Kafka's error; None: there is none.
        cause: What led to it; or the last failure of a read that was tried again until its time was up.
        high_watermark, last_stable_offset, log_start_offset: Of the log when the fetch came; -1 = there is no log.
    """

    topic_id_partition: TopicIdPartition
    data: FoundBatches
    error: KafkaError | None = None
    cause: BaseException | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1


def empty_data(request: RemoteRead) -> FoundBatches:
    """Return the data of an answer without records."""
    committed = request.isolation is FetchIsolation.TXN_COMMITTED
    return FetchDataInfo(request.fetch_offset, aborted_transactions=() if committed else None)


class PendingRead(CancellableFuture[Sequence[RemoteReadResult]]):
    """A fetch that waits for remote reads; its answer has a result for each partition, in the order of the request.

    Args:
        scheduler: Has the locks.
        results: What is answered of each partition if nothing more is known of it.
        awaited: The number of partitions that are read.

    Thread safety: any number of threads.
    """

    __slots__ = ("_awaited", "_results")

    def __init__(self, scheduler: Scheduler, results: list[RemoteReadResult], awaited: int) -> None:
        super().__init__(scheduler)
        self._results = results
        self._awaited = awaited

    def note(self, number: int, result: RemoteReadResult) -> None:
        """Set what is answered of a partition if its read does not end in time."""
        with self._lock:
            if not self.has_ended:
                self._results[number] = result

    def put(self, number: int, result: RemoteReadResult) -> None:
        """Set the result of a partition, once; the last one ends the fetch."""
        with self._lock:
            if self.has_ended:
                return
            self._results[number] = result
            self._awaited -= 1
            if self._awaited:
                return
        self._finish(is_early=False)

    def refuse(self, number: int, result: RemoteReadResult) -> None:
        """Set the result of a partition, and end the fetch with what there is: its reads cannot succeed any more."""
        self.note(number, result)
        self._finish(is_early=True)

    def expire(self, *, leaves_reads: bool = False) -> bool:
        """End the fetch with what there is; whether this ended it. ``leaves_reads``: reads that have begun go on."""
        return self._finish(is_early=not leaves_reads)

    def _finish(self, *, is_early: bool) -> bool:
        has_ended = self._end(is_early=is_early)
        if has_ended:
            self._answer(tuple(self._results))
        return has_ended
