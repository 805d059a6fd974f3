"""Fetches that wait for remote reads: what was asked for, and an answer that is there by a deadline, however little.

Source: Kafka DelayedRemoteFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.batch_reads import FoundBatches
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.machine.scheduling import CancelledError, Future, PendingFuture, Scheduler


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


class PendingRead(Future[Sequence[RemoteReadResult]]):
    """A fetch that waits for remote reads; its answer has a result for each partition, in the order of the request.

    Args:
        scheduler: Has the locks.
        results: What is answered of each partition if nothing more is known of it.
        awaited: Indexes of the partitions that are read.

    Attributes:
        scope: Of its reads.

    Thread safety: any number of threads.
    """

    def __init__(self, scheduler: Scheduler, results: Iterable[RemoteReadResult], awaited: Iterable[int]) -> None:
        self.scope = CancelScope(scheduler)
        self._lock = scheduler.lock()
        self._answer: PendingFuture[Sequence[RemoteReadResult]] = scheduler.future()
        self._results = list(results)
        self._awaited = set(awaited)
        self._ends: list[Callable[[], object]] = []
        self._is_cancelled = False
        self.has_ended = False

    # ---- the caller

    def result(self, timeout: float | None = None) -> Sequence[RemoteReadResult]:
        """Wait for the results, as ``Future`` says."""
        return self._answer.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error, as ``Future`` says: there is none but CancelledError, which is raised."""
        error = self._answer.exception(timeout)
        if self._is_cancelled:
            raise CancelledError
        return error

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._answer.done()

    def cancelled(self) -> bool:
        """Whether the fetch was cancelled."""
        return self._is_cancelled and self.done()

    def cancel(self) -> bool:
        """Give the fetch up, as its client has gone: its reads are cancelled. Whether it is cancelled."""
        return self._end(is_cancelled=True) or self._is_cancelled

    def add_done_callback(self, function: Callable[[Future[Sequence[RemoteReadResult]]], object], /) -> None:
        """Call a function when the answer is there, as ``Future`` says."""
        self._answer.add_done_callback(lambda _: function(self))

    # ---- those that read

    def on_end(self, call: Callable[[], object]) -> None:
        """Call a function once before the answer is there; at once if it is."""
        with self._lock:
            if not self.has_ended:
                self._ends.append(call)
                return
        call()

    def note(self, number: int, result: RemoteReadResult) -> None:
        """Set what is answered of a partition if its read does not end in time."""
        with self._lock:
            if not self.has_ended:
                self._results[number] = result

    def put(self, number: int, result: RemoteReadResult) -> None:
        """Set the result of a partition; the last one ends the fetch."""
        with self._lock:
            if self.has_ended:
                return
            self._results[number] = result
            self._awaited.discard(number)
            if self._awaited:
                return
        self._end()

    def refuse(self, number: int, result: RemoteReadResult) -> None:
        """Set the result of a partition, and end the fetch with what there is: its reads cannot succeed any more."""
        self.note(number, result)
        self._end()

    def expire(self, *, leaves_reads: bool = False) -> bool:
        """End the fetch with what there is; whether this ended it. ``leaves_reads``: reads that have begun go on."""
        return self._end(leaves_reads=leaves_reads)

    def _end(self, *, is_cancelled: bool = False, leaves_reads: bool = False) -> bool:
        with self._lock:
            if self.has_ended:
                return False
            self.has_ended = True
            self._is_cancelled = is_cancelled
            ends, self._ends = self._ends, []
        if not leaves_reads and self._awaited:
            self.scope.cancel()
        for call in ends:
            call()
        if is_cancelled:
            self._answer.set_exception(CancelledError())
        else:
            self._answer.set_result(tuple(self._results))
        return True
