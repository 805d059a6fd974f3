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

from tierlog.errors import CorruptDataError, TierlogError
from tierlog.log.local.log_errors import KafkaError, OffsetOutOfRangeError
from tierlog.remote.api import RemoteResourceNotFoundException, TopicIdPartition
from tierlog.remote.manager.pending_reads import PendingRead, RemoteRead, RemoteReadResult, empty_data
from tierlog.remote.manager.reader_pool import ReaderPool
from tierlog.remote.manager.task_schedule import TaskSchedule
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
    """The read of one partition of a fetch. One thread at a time has it."""

    __slots__ = ("attempts", "empty", "is_first_whole", "max_bytes", "number", "partition", "pending", "request")

    def __init__(
        self,
        number: int,
        request: RemoteRead,
        partition: TieredPartition,
        empty: RemoteReadResult,
        *,
        max_bytes: int,
        is_first_whole: bool,
    ) -> None:
        self.number = number
        self.request = request
        self.partition = partition
        self.empty = empty
        self.max_bytes = max_bytes
        self.is_first_whole = is_first_whole
        self.attempts = 0
        self.pending: PendingRead

    def refused(self, error: KafkaError, cause: BaseException) -> RemoteReadResult:
        return self.empty._replace(error=error, cause=cause)


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
        self._reads = TierReads(services)
        services.storage.set_next_segment(self._reads.find_next)
        config, self._clock = services.config, services.machine.clock
        self.pool = ReaderPool(
            services.machine, threads=config.reader_threads, pending_max=config.reader_max_pending_tasks
        )
        self._schedule = TaskSchedule(services.machine, name="tierlog-rlm-read-deadlines", workers=1)
        self._lock = services.machine.scheduler.lock()
        self._under_way: set[PendingRead] = set()
        #: Reads of partitions whose metadata is still loaded.
        self._awaiting: dict[TopicIdPartition, set[_PartitionRead]] = {}
        self._closed = False
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
                _PartitionRead(number, request, partition, result, max_bytes=budget, is_first_whole=min_one_message)
            )
            min_one_message = False
            if max_bytes is not None:
                max_bytes -= budget
        pending = PendingRead(services.machine.scheduler, results, (read.number for read in reads))
        if reads:
            self._begin(pending, reads, wait_ms)
        else:
            pending.expire()
        return pending

    def _plan(self, request: RemoteRead) -> tuple[TieredPartition | None, RemoteReadResult]:
        """Find the term of a partition that can be read, else None; and what is answered of it so far."""
        partition = self._find_partition(request.topic_id_partition)
        log = self._services.find_log(request.topic_id_partition)
        result = RemoteReadResult(request.topic_id_partition, empty_data(request))
        if partition is None or partition.has_ended or log is None:
            return None, result._replace(error=KafkaError.NOT_LEADER_OR_FOLLOWER)
        try:
            result = result._replace(
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
            )
            in_range = result.log_start_offset <= request.fetch_offset < log.log_end_offset
            if not in_range or not log.remote_log_enabled():
                return None, result._replace(error=KafkaError.OFFSET_OUT_OF_RANGE)
        except Exception as error:  # noqa: BLE001 - of this partition alone
            return None, result._replace(error=_answer(error), cause=error)
        return partition, result

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
                self._under_way.add(pending)
        if closed:
            pending.cancel()
            return
        pending.on_end(partial(self._forget, pending))
        deadline = self._schedule.add(partial(self._expire, pending), delay_seconds=wait_ms / 1000)
        pending.on_end(deadline.end)
        for read in reads:
            read.pending = pending
            scope = read.partition.scope
            token = scope.enter(partial(self._lose, read))
            pending.on_end(partial(scope.leave, token))
        for read in reads:
            self._submit(read)

    def _forget(self, pending: PendingRead) -> None:
        with self._lock:
            self._under_way.discard(pending)

    def _expire(self, pending: PendingRead) -> None:
        if pending.expire(leaves_reads=self._services.config.kafka_semantics):
            self._services.metrics.add_lone("fetch_expired")

    def _lose(self, read: _PartitionRead) -> None:
        """End a fetch: this broker is no longer a replica of one of its partitions."""
        refused = read.empty._replace(error=KafkaError.NOT_LEADER_OR_FOLLOWER)
        read.pending.refuse(read.number, refused)

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
            is_first = topic_id_partition not in self._awaiting
            self._awaiting.setdefault(topic_id_partition, set()).add(read)
        read.pending.on_end(partial(self._await_no_more, read))
        if is_first:
            ready.add_done_callback(partial(self._go_on, topic_id_partition))

    def _await_no_more(self, read: _PartitionRead) -> None:
        with self._lock:
            self._awaiting.get(read.request.topic_id_partition, set()).discard(read)

    def _go_on(self, topic_id_partition: TopicIdPartition, ready: Future[None]) -> None:
        with self._lock:
            waiting = list(self._awaiting.pop(topic_id_partition, ()))
        error: BaseException | None = CancelledError() if ready.cancelled() else ready.exception()
        for read in waiting:
            if error is None:
                self._submit(read)
            elif isinstance(error, RemoteResourceNotFoundException):
                self._lose(read)
            else:
                self._failed(read, error)

    def _submit(self, read: _PartitionRead) -> None:
        if read.pending.has_ended:
            return
        try:
            submitted = self.pool.submit(partial(self._run, read))
        except Exception as error:  # noqa: BLE001 - full, closed, no thread: of this partition alone
            self._count_error(read, error)
            read.pending.put(read.number, read.refused(KafkaError.UNKNOWN_SERVER_ERROR, error))
        else:
            read.pending.on_end(submitted.cancel)

    def _run(self, read: _PartitionRead) -> None:
        """Read a partition, in a reader thread."""
        pending, topic = read.pending, read.request.topic_id_partition.topic
        if pending.has_ended:
            return
        began = self._clock.monotonic_seconds()
        try:
            with cancelled_by(pending.scope):
                if self._awaits_metadata(read):
                    return
                self._services.metrics.add("fetch_requests", topic)
                data = self._reads.read(
                    read.request,
                    max_bytes=read.max_bytes,
                    is_first_whole=read.is_first_whole,
                    on_part=lambda part: pending.note(read.number, read.empty._replace(data=part)),
                )
        except Exception as error:  # noqa: BLE001 - whatever a manager raises, the fetch is answered
            self._quota.record(0)
            self._failed(read, error)
        else:
            self._quota.record(data.size_bytes)
            self._services.metrics.add("fetch_bytes", topic, data.size_bytes)
            pending.put(read.number, read.empty._replace(data=data))
        finally:
            self._services.metrics.observe("reader_fetch_seconds", self._clock.monotonic_seconds() - began)

    def _failed(self, read: _PartitionRead, error: BaseException) -> None:
        """Answer a read that failed, or try it again."""
        pending = read.pending
        if pending.has_ended:
            return
        self._count_error(read, error)
        refused = read.refused(_answer(error), error)
        if self._services.config.kafka_semantics or not isinstance(error, TierlogError) or not error.retriable:
            pending.put(read.number, refused)
            return
        pending.note(read.number, read.empty._replace(cause=error))
        pause = min(_RETRY_SECONDS * 2**read.attempts, self._services.config.task_retry_backoff_ms / 1000)
        read.attempts += 1

        def again() -> None:
            self._submit(read)

        pending.on_end(self._schedule.add(again, delay_seconds=pause).end)

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
        self.pool.close(cancel=True, wait_seconds=_CLOSE_SECONDS)


def _answer(error: BaseException) -> KafkaError:
    """Return Kafka's error for what went wrong."""
    known = getattr(error, "error", None)
    if isinstance(known, KafkaError):
        return known
    return KafkaError.CORRUPT_MESSAGE if isinstance(error, CorruptDataError) else KafkaError.UNKNOWN_SERVER_ERROR
