"""Fetches of consumers from the tier: read by threads of their own, answered by their deadline, whatever the tier does.

The caller never waits: each partition of a fetch is a read in the queue of the reader threads. A read that fails, and
may work later, is tried again until the deadline; then the fetch is answered with what there is, without an error. A
fetch ends at once when this broker is no longer a replica of one of its partitions, and when its client goes.

Source: Kafka RemoteLogReader, DelayedRemoteFetch, ReplicaManager#processRemoteFetches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tierlog.arguments import INT64_MAX
from tierlog.errors import CorruptDataError, TierlogError
from tierlog.log.local.log_errors import KafkaError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.remote.api import RemoteResourceNotFoundException, TopicIdPartition
from tierlog.remote.manager.batch_reads import FoundBatches
from tierlog.remote.manager.pending_reads import PendingRead, RemoteRead, RemoteReadResult, empty_data
from tierlog.remote.manager.reader_pool import ReaderPool
from tierlog.remote.manager.task_schedule import ScheduledTask, TaskSchedule
from tierlog.remote.manager.tier_reads import TierReads
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import TieredPartition
from tierlog.replication.messages import ReplicationError
from tierlog.runtime.machine.cancelling import cancelled_by
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import CancelledError, Future
from tierlog.runtime.waiting.byte_quota import ByteQuota

_log = logging.getLogger(__name__)

#: The first pause of a read that is tried again; it doubles.
_RETRY_SECONDS: Final = 0.05
_CLOSE_SECONDS: Final = 10.0


class _PartitionRead:
    """The read of one partition of a fetch: a call of a reader thread. One thread at a time has it.

    Attributes:
        goes_on_until_seconds: Until when a further segment is begun, by the monotonic clock: for half of the fetch's
            wait, so that what the first ones gave is answered, and not given up at the deadline.
        is_queued: Whether it may wait for a thread.
        attempts: Those that have failed.
        token: Of its place in the scope of the partition's term.
        again: The task that submits it anew; None: it has not failed.
    """

    __slots__ = (
        "_reads",
        "again",
        "attempts",
        "empty",
        "goes_on_until_seconds",
        "is_first_whole",
        "is_queued",
        "max_bytes",
        "number",
        "partition",
        "pending",
        "request",
        "token",
    )

    def __init__(
        self,
        reads: RemoteReads,
        number: int,
        request: RemoteRead,
        partition: TieredPartition,
        empty: RemoteReadResult,
        *,
        max_bytes: int,
        is_first_whole: bool,
    ) -> None:
        self._reads = reads
        self.number = number
        self.request = request
        self.partition = partition
        self.empty = empty
        self.max_bytes = max_bytes
        self.is_first_whole = is_first_whole
        self.goes_on_until_seconds = 0.0
        self.is_queued = False
        self.attempts = self.token = 0
        self.again: ScheduledTask | None = None
        self.pending: PendingRead

    def __call__(self) -> None:
        self._reads.run(self)

    def result(
        self, data: FoundBatches | None = None, error: KafkaError | None = None, cause: BaseException | None = None
    ) -> RemoteReadResult:
        """Return what is answered of it."""
        partition, empty, _, _, *offsets = self.empty
        return RemoteReadResult(partition, empty if data is None else data, error, cause, *offsets)

    @property
    def end_offset(self) -> int:
        """The end of what may be read, by what is answered of it; of readers up to the log's end there is none."""
        if self.request.isolation is FetchIsolation.LOG_END:
            return INT64_MAX
        is_committed = self.request.isolation is FetchIsolation.TXN_COMMITTED
        return self.empty.last_stable_offset if is_committed else self.empty.high_watermark

    def note(self, part: FoundBatches) -> None:
        """Note what is answered if its time is up before all is read."""
        self.pending.note(self.number, self.result(part))

    def lose(self) -> None:
        """End the fetch: this broker is no longer a replica of the partition."""
        self.pending.refuse(self.number, self.result(error=KafkaError.NOT_LEADER_OR_FOLLOWER))

    def submit_again(self) -> None:
        """Submit it once more, from a schedule."""
        self._reads.submit(self)


class RemoteReads(Closeable):
    """The remote reads of a broker. A context manager.

    Args:
        services: What the manager works with; the storage manager is told how segments follow each other.
        quota: Of the bytes that are read.
        find_partition: Finds the present term of a partition here.

    Attributes:
        pool: The reader threads; searches of offsets share them.

    Raises:
        RemoteStorageException: the storage manager is not configured.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        services: TierServices,
        quota: ByteQuota,
        find_partition: Callable[[TopicIdPartition], TieredPartition | None],
    ) -> None:
        self._services = services
        self._quota = quota
        self._find_partition = find_partition
        config, self._clock = services.config, services.machine.clock
        self._schedule = TaskSchedule(services.machine, name="tierlog-rlm-read-deadlines", workers=1)
        self.pool = ReaderPool(
            services.machine, threads=config.reader_threads, pending_max=config.reader_max_pending_tasks
        )
        self._reads = TierReads(services)
        self._lock = services.machine.scheduler.lock()
        self._under_way: dict[PendingRead, None] = {}
        #: Reads of partitions whose metadata is still loaded, in the order in which they came.
        self._awaiting: dict[TopicIdPartition, dict[_PartitionRead, None]] = {}
        self._closed = False
        services.storage.set_next_segment(self._reads.find_next)
        metrics, pool = services.metrics, self.pool
        metrics.ask("reader_idle_ratio", lambda: pool.idle_ratio)
        metrics.ask("reader_queue_tasks", lambda: pool.waiting)
        metrics.ask("waiting_requests", lambda: len(self), operation="RemoteFetch")

    def __len__(self) -> int:
        """The number of fetches that wait."""
        return len(self._under_way)

    def apply_config(self) -> None:
        """Take the number of threads of the present configuration."""
        self.pool.resize(self._services.config.reader_threads)

    # ---- the caller

    def read(
        self,
        requests: Sequence[RemoteRead],
        *,
        max_bytes: int | None = None,
        min_one_message: bool = True,
        max_wait_ms: int | None = None,
    ) -> PendingRead:
        """Read partitions of one fetch, whose offsets are in the tier alone. Returns at once.

        Args:
            requests: The partitions, in the order of the fetch.
            max_bytes: What is left of the answer's bytes; None: no limit. Each read is taken to use all that it may.
            min_one_message: Whether the first read gives a batch even if that is larger; later ones never do.
            max_wait_ms: None: ``remote.fetch.max.wait.ms``.

        Returns:
            The future of a result for each partition. ``cancel`` it when the client has gone.
        """
        services = self._services
        wait_ms = services.config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        results: list[RemoteReadResult] = []
        reads: list[_PartitionRead] = []
        for number, request in enumerate(requests):
            partition, result = self._plan(request)
            results.append(result)
            budget = request.max_bytes if max_bytes is None else min(request.max_bytes, max_bytes)
            if partition is None or budget <= 0 or self._is_throttled():
                continue
            reads.append(
                _PartitionRead(
                    self, number, request, partition, result, max_bytes=budget, is_first_whole=min_one_message
                )
            )
            min_one_message = False
            if max_bytes is not None:
                max_bytes -= budget
        pending = PendingRead(services.machine.scheduler, results, len(reads))
        if reads:
            self._begin(pending, reads, wait_ms)
        else:
            pending.expire()
        return pending

    def _plan(self, request: RemoteRead) -> tuple[TieredPartition | None, RemoteReadResult]:
        """Find the term of a partition that can be read, else None; and what is answered of it so far."""
        topic_id_partition, offset = request.topic_id_partition, request.fetch_offset
        partition, log = self._find_partition(topic_id_partition), self._services.find_log(topic_id_partition)
        empty = empty_data(request)
        if partition is None or partition.has_ended or log is None:
            return None, RemoteReadResult(topic_id_partition, empty, KafkaError.NOT_LEADER_OR_FOLLOWER)
        try:
            ends = log.high_watermark, log.last_stable_offset, log.log_start_offset
            if not ends[-1] <= offset < log.log_end_offset or not log.remote_log_enabled():
                return None, RemoteReadResult(topic_id_partition, empty, KafkaError.OFFSET_OUT_OF_RANGE, None, *ends)
        except Exception as error:  # noqa: BLE001 - of this partition alone
            return None, RemoteReadResult(topic_id_partition, empty, _answer(error), error)
        return partition, RemoteReadResult(topic_id_partition, empty, None, None, *ends)

    def _is_throttled(self) -> bool:
        """Whether the quota is used up; it is measured then."""
        throttle_ms = self._quota.throttle_ms()
        if not throttle_ms:
            return False
        self._services.metrics.observe("fetch_throttle_seconds", throttle_ms / 1000)
        return True

    def _begin(self, pending: PendingRead, reads: Sequence[_PartitionRead], wait_ms: int) -> None:
        with self._lock:
            closed = self._closed
            if not closed:
                self._under_way[pending] = None
        if closed:
            pending.cancel()
            return
        half_seconds = self._clock.monotonic_seconds() + wait_ms / 2000
        for read in reads:
            read.pending, read.goes_on_until_seconds = pending, half_seconds
        deadline = self._schedule.add(partial(self._expire, pending), delay_seconds=wait_ms / 1000)
        pending.on_end(partial(self._release, pending, reads, deadline))
        for read in reads:
            read.token = read.partition.scope.enter(read.lose)
        if pending.has_ended:  # perhaps before the last token was noted
            self._release(pending, reads, deadline)
        for read in reads:
            self.submit(read)

    def _release(self, pending: PendingRead, reads: Sequence[_PartitionRead], deadline: ScheduledTask) -> None:
        """Give back all that a fetch has, but for the threads that read for it."""
        with self._lock:
            self._under_way.pop(pending, None)
            for read in reads if self._awaiting else ():
                self._awaiting.get(read.request.topic_id_partition, {}).pop(read, None)
        deadline.drop()
        for read in reads:
            read.partition.scope.leave(read.token)
            self._take_back(read)

    def _take_back(self, read: _PartitionRead) -> None:
        """Take back a read of a fetch that has ended, if no thread has it; likewise in the thread that just gave it up,
        when the fetch may have ended meanwhile.
        """
        if read.pending.has_ended:
            if read.is_queued:
                self.pool.withdraw(read)
            if read.again is not None:
                read.again.drop()

    def _expire(self, pending: PendingRead) -> None:
        if pending.expire(leaves_reads=self._services.config.kafka_semantics):
            self._services.metrics.add_lone("fetch_expired")

    # ---- a read

    def _awaits_metadata(self, read: _PartitionRead) -> bool:
        """Whether the partition's metadata is not there yet: the read is submitted again when it is. Kafka answers an
        error.
        """
        services, topic_id_partition = self._services, read.request.topic_id_partition
        if services.config.kafka_semantics or services.is_ready(topic_id_partition):
            return False
        ready = services.when_ready(topic_id_partition)
        if ready is None or ready.done():
            return False
        self._await(read, ready)
        return True

    def _await(self, read: _PartitionRead, ready: Future[None]) -> None:
        """Submit a read when its partition is ready. There is one callback a partition, however many reads wait."""
        topic_id_partition = read.request.topic_id_partition
        with self._lock:
            if read.pending.has_ended:
                return
            is_first = topic_id_partition not in self._awaiting
            self._awaiting.setdefault(topic_id_partition, {})[read] = None
        if is_first:
            ready.add_done_callback(partial(self._go_on, topic_id_partition))

    def _go_on(self, topic_id_partition: TopicIdPartition, ready: Future[None]) -> None:
        with self._lock:
            waiting = list(self._awaiting.pop(topic_id_partition, ()))
        error: BaseException | None = CancelledError() if ready.cancelled() else ready.exception()
        for read in waiting:
            if error is None:
                self.submit(read)
            elif isinstance(error, RemoteResourceNotFoundException):
                read.lose()
            else:
                self._failed(read, error)

    def submit(self, read: _PartitionRead) -> None:
        """Have a reader thread read a partition, when one is free."""
        if read.pending.has_ended:
            return
        read.is_queued = True
        try:
            self.pool.submit(read)
        except Exception as error:  # noqa: BLE001 - full, closed, no thread: of this partition alone
            self._count_error(read, error)
            read.pending.put(read.number, read.result(error=KafkaError.UNKNOWN_SERVER_ERROR, cause=error))
        self._take_back(read)

    def run(self, read: _PartitionRead) -> None:
        """Read a partition, in a reader thread."""
        pending, metrics, topic = read.pending, self._services.metrics, read.request.topic_id_partition.topic
        read.is_queued = False
        if pending.has_ended:
            return
        began = self._clock.monotonic_seconds()
        try:
            with cancelled_by(pending.scope):
                if self._awaits_metadata(read):
                    return
                metrics.add("fetch_requests", topic)
                data = self._reads.read(
                    read.request,
                    end_offset=read.end_offset,
                    max_bytes=read.max_bytes,
                    is_first_whole=read.is_first_whole,
                    goes_on=lambda: self._clock.monotonic_seconds() < read.goes_on_until_seconds,
                    on_part=read.note,
                )
        except Exception as error:  # noqa: BLE001 - whatever a manager raises, the fetch is answered
            self._note_read(began, 0)
            self._failed(read, error)
        else:
            self._note_read(began, data.size_bytes)
            metrics.add("fetch_bytes", topic, data.size_bytes)
            pending.put(read.number, read.result(data))  # last: its waiter needs the interpreter

    def _note_read(self, began_seconds: float, size_bytes: int) -> None:
        self._quota.record(size_bytes)
        self._services.metrics.observe("reader_fetch_seconds", self._clock.monotonic_seconds() - began_seconds)

    def _failed(self, read: _PartitionRead, error: BaseException) -> None:
        """Answer a read that failed, or try it again."""
        pending = read.pending
        if pending.has_ended:
            return
        self._count_error(read, error)
        if self._services.config.kafka_semantics or not isinstance(error, TierlogError) or not error.retriable:
            pending.put(read.number, read.result(error=_answer(error), cause=error))
            return
        pending.note(read.number, read.result(cause=error))
        pause = min(_RETRY_SECONDS * 2**read.attempts, self._services.config.task_retry_backoff_ms / 1000)
        read.attempts += 1
        read.again = self._schedule.add(read.submit_again, delay_seconds=pause)
        self._take_back(read)

    def _count_error(self, read: _PartitionRead, error: BaseException) -> None:
        if isinstance(error, OffsetOutOfRangeError | ReplicationError):
            return
        topic_id_partition = read.request.topic_id_partition
        self._services.metrics.add("fetch_errors", topic_id_partition.topic)
        _log.log(
            logging.DEBUG if isinstance(error, TierlogError) and error.retriable else logging.WARNING,
            "%s: offset %d was not read from the tier: %s",
            topic_id_partition,
            read.request.fetch_offset,
            error,
        )

    def close(self) -> None:
        """Cancel the fetches that wait, and begin none any more; idempotent. Reads that hang in the storage manager end
        when that is closed.
        """
        with self._lock:
            self._closed = True
            under_way = list(self._under_way)
        for pending in under_way:
            pending.cancel()
        self._schedule.close()
        self.pool.close(wait_seconds=_CLOSE_SECONDS)


def _answer(error: BaseException) -> KafkaError:
    """Return Kafka's error for what went wrong."""
    known = getattr(error, "error", None)
    if isinstance(known, KafkaError):
        return known
    return KafkaError.CORRUPT_MESSAGE if isinstance(error, CorruptDataError) else KafkaError.UNKNOWN_SERVER_ERROR
