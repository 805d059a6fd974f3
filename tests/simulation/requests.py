"""How a broker answers requests: of clients, of the coordinator, of followers and of the controller.

Kafka's behaviour: what waits does so for its offsets or for its time, errors have Kafka's names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster_messages import AskReplicas, PartitionRemoved, RemovePartition, ReplicasAnswered
from tests.simulation.facts import Violation
from tests.simulation.messages import (
    AbortedTransaction,
    DeletedRecords,
    DeleteRecords,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
    MarkerWritten,
    Partition,
    Produce,
    Produced,
    TransactionAnswer,
    VerifyTransaction,
    WriteMarker,
)
from tests.simulation.network import Answer
from tests.simulation.replica import Replica
from tierlog.errors import CorruptDataError, TierlogError
from tierlog.log.local.log_errors import (
    AppendRefusedError,
    KafkaError,
    LogClosedError,
    LogOfflineError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.remote.api.errors import RemoteStorageException
from tierlog.remote.manager.pending_reads import RemoteRead, RemoteReadResult
from tierlog.replication import AskEpochEnd, AskOffset, FetchedRecords, FetchRecords, ReplicationError
from tierlog.runtime.machine.scheduling import CancelledError, Future

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

_REPLICA_BYTES_MAX: Final = 1 << 16
_MARKER_TIMEOUT_MS: Final = 5_000
_DELETE_TIMEOUT_MS: Final = 5_000
_VERIFY_TIMEOUT_MS: Final = 1_000
_REMOVE_TIMEOUT_MS: Final = 2_500
#: A fetch that a leader wakes so often, and that finds no records, never will. A follower wakes it whenever the high
#: watermark rises.
_WAKES_MAX: Final = 40
#: Of a batch's header: producer id, epoch, base sequence.
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43


class Requests:
    """The handlers of one broker's life. Each runs in a request task."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._verifying: dict[tuple[Partition, int], list[Callable[[], None]]] = {}
        self._handlers: dict[type, Callable[[Any, Answer], None]] = {
            Produce: self._produce,
            Fetch: self._fetch,
            ListOffset: self._list_offset,
            DeleteRecords: self._delete_records,
            WriteMarker: self._write_marker,
            AskReplicas: self._answer_replicas,
            RemovePartition: self._remove_partition,
        }

    def handle(self, _source: str, request: Any, answer: Answer) -> None:
        """Answer a request, now or later."""
        self._handlers[type(request)](request, answer)

    def _find(self, partition: Partition) -> Replica:
        replica = self._broker.replicas.get(partition)
        if replica is None:
            raise ReplicationError(f"{partition} is not here", KafkaError.UNKNOWN_TOPIC_OR_PARTITION)
        if replica.log.is_offline:
            raise ReplicationError(f"{partition}: its directory has failed", KafkaError.KAFKA_STORAGE_ERROR)
        return replica

    def _name_of(self, error: Exception) -> str:
        """Kafka's name of an error; what has rotted somewhere may be met as such."""
        if isinstance(error, CorruptDataError) and self._broker.world.has_rotted:
            return KafkaError.CORRUPT_MESSAGE.name
        return error_name(error)

    # ---- producers

    def _produce(self, request: Produce, answer: Answer) -> None:
        if request.transactional_id is None:
            self._append(request, answer, None)
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(request.batch, _PRODUCER_POSITION)
        key = request.partition, producer_id
        if key in self._verifying:  # in the order of their coming
            self._verifying[key].append(lambda: self._produce(request, answer))
            return
        waiting = self._verifying[key] = []  # before anything gives way to another task

        def then(error: str | None, guard: Any = None) -> None:
            del self._verifying[key]
            if error is None:
                self._append(request, answer, guard)
            else:
                answer(Produced(error))
            for call in waiting:
                call()

        try:
            replica = self._find(request.partition)
            with replica.acting():
                replica.leader.check_leader_epoch(-1)
            guard = replica.log.begin_transaction_verification(
                producer_id,
                sequence=sequence,
                producer_epoch=epoch,
                supports_epoch_bump=self._broker.settings.transaction_version == 2,
            )
        except Exception as error:  # noqa: BLE001 - named, or raised again
            then(self._name_of(error))
            return
        if guard is None:
            then(None)
            return

        def verified(answered: TransactionAnswer | None) -> None:
            then("NOT_ENOUGH_REPLICAS" if answered is None else answered.error, guard)

        question = VerifyTransaction(request.transactional_id, producer_id, epoch, request.partition)
        self._broker.call("coordinator", question, verified, timeout_ms=_VERIFY_TIMEOUT_MS)

    def _append(self, request: Produce, answer: Answer, guard: Any) -> None:
        more = {} if guard is None else {"verification_guard": guard}
        self._append_data(
            request.partition,
            bytearray(request.batch),
            request.acks,
            request.timeout_ms,
            lambda error, offset, start, epoch: answer(Produced(error, offset, start, epoch)),
            **more,
        )

    def _append_data(
        self,
        partition: Partition,
        data: bytearray,
        acks: int,
        timeout_ms: int,
        then: Callable[[str | None, int, int, int], None],
        **more: Any,
    ) -> None:
        """Append; call ``then`` with error, base offset, log start and epoch, once the acknowledgement is due."""
        broker = self._broker
        try:
            replica = self._find(partition)
            with replica.acting():
                info = replica.leader.append(data, required_acks=acks, now_ms=broker.now_ms, **more)
                start, epoch = info.log_start_offset, replica.leader.leader_epoch
                if acks != -1:
                    then(None, info.first_offset if acks else -1, start, epoch)
                    return
                token = broker.token()

                def complete(error: KafkaError | None) -> None:
                    then(_name(error), info.first_offset if error is None else -1, start, epoch)

                replica.leader.wait_for_replication(info.last_offset + 1, token)
                replica.wait(token, complete)
        except Exception as error:  # noqa: BLE001 - named, or raised again
            then(self._name_of(error), -1, -1, -1)
            return
        broker.later(timeout_ms, lambda: self._expire(replica, token, lambda: then("REQUEST_TIMED_OUT", -1, -1, -1)))

    def _expire(self, replica: Replica, token: int, late: Callable[[], None]) -> None:
        with replica.acting():
            waited = replica.cancel(token)
        if waited:
            late()

    def _write_marker(self, request: WriteMarker, answer: Answer) -> None:
        self._broker.world.coordinator.note_marker(request)
        marker = build_end_transaction_marker(
            0,
            ControlRecordType.COMMIT if request.is_commit else ControlRecordType.ABORT,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            coordinator_epoch=request.coordinator_epoch,
            timestamp_ms=self._broker.clock.time_ms(),
        )
        self._append_data(
            request.partition,
            bytearray(marker),
            -1,
            _MARKER_TIMEOUT_MS,
            lambda error, _offset, _start, _epoch: answer(MarkerWritten(error)),
            origin=AppendOrigin.COORDINATOR,
            transaction_version=request.transaction_version,
        )

    # ---- consumers

    def _fetch(self, request: Fetch, answer: Answer) -> None:
        self._fetch_until(request, answer, self._broker.now_ms + request.max_wait_ms)

    def _fetch_until(self, request: Fetch, answer: Answer, deadline_ms: int, wakes: int = 0) -> None:
        """Read, and wait for records until a time; ``wakes``: how often there seemed to be some."""
        broker = self._broker
        isolation = FetchIsolation.TXN_COMMITTED if request.is_committed else FetchIsolation.HIGH_WATERMARK
        try:
            replica = self._find(request.partition)
            with replica.acting():
                epoch = self._check_reader(replica, request.leader_epoch)
            log = replica.log
            try:
                found = log.read(request.offset, max_bytes=request.max_bytes, isolation=isolation)
                data = whole_batches(b"".join(bytes(part.read()) for part in found.records))
            except OffsetOutOfRangeError as error:
                if not (error.is_in_tier and log.remote_log_enabled()):
                    raise
                self._fetch_remote(replica, request, answer, isolation, epoch)
                return
            aborted = tuple(AbortedTransaction(*each) for each in found.aborted_transactions or ())
            left_ms = deadline_ms - broker.now_ms
            if not data and left_ms > 0:
                if wakes >= _WAKES_MAX and replica.role == "leader":
                    text = f"{broker.name} finds nothing of {request.partition} at {request.offset}, {log.offsets}"
                    raise Violation(10, "stuck read", text)
                self._wait_for_records(replica, request, answer, isolation, deadline_ms, wakes)
                return
        except Exception as error:  # noqa: BLE001 - named, or raised again
            answer(Fetched(self._name_of(error)))
            return
        offsets = log.offsets
        self._served(replica, request, data, is_remote=False)
        answer(
            Fetched(
                None,
                data,
                offsets.high_watermark,
                offsets.last_stable_offset,
                offsets.log_start_offset,
                aborted,
                epoch,
            )
        )

    def _check_reader(self, replica: Replica, asked_epoch: int) -> int:
        """Refuse a fetch of another epoch, or of a log that cannot be read; the epoch of the replica's role."""
        if replica.role == "leader":
            replica.leader.check_leader_epoch(asked_epoch)
            return replica.leader.leader_epoch
        known = replica.leader_epoch
        if asked_epoch not in (-1, known):
            error = KafkaError.FENCED_LEADER_EPOCH if asked_epoch < known else KafkaError.UNKNOWN_LEADER_EPOCH
            raise ReplicationError(f"epoch {asked_epoch}, {known} is known", error)
        if replica.role != "follower" or replica.log.must_be_rebuilt:
            raise ReplicationError("it cannot be read now", KafkaError.NOT_LEADER_OR_FOLLOWER)
        return known

    def _wait_for_records(
        self, replica: Replica, request: Fetch, answer: Answer, isolation: FetchIsolation, deadline_ms: int, wakes: int
    ) -> None:
        broker = self._broker
        token = broker.token()

        def again(_: KafkaError | None = None) -> None:
            self._fetch_until(request, answer, deadline_ms, wakes + 1)

        def last() -> None:
            self._fetch_until(request, answer, 0)

        with replica.acting():
            # Until its followers have told a new leader, a high watermark of before counts: what lies below may be
            # compacted away, up to a batch that lies behind.
            latest = replica.log.leader_epoch_cache.latest_entry
            if replica.role == "leader" and latest is not None and replica.log.high_watermark >= latest.start_offset:
                replica.leader.wait_for_records(request.offset, isolation, token)
                replica.wait(token, again)
            else:
                replica.wait_for_watermark(token, replica.log.high_watermark, again)
        broker.later(max(1, deadline_ms - broker.now_ms), lambda: self._expire_fetch(replica, token, last))

    def _expire_fetch(self, replica: Replica, token: int, last: Callable[[], None]) -> None:
        with replica.acting():
            waits = replica.is_waiting(token)
            replica.cancel(token)
        if waits:
            last()

    def _served(self, replica: Replica, request: Fetch, data: bytes, *, is_remote: bool) -> None:
        world = self._broker.world
        world.judge.served(
            self._broker.broker_id, request.partition, request.offset, data, is_remote, world.network.now_ms
        )

    def _fetch_remote(
        self, replica: Replica, request: Fetch, answer: Answer, isolation: FetchIsolation, epoch: int
    ) -> None:
        manager = self._broker.manager
        asked = RemoteRead(replica.tip, request.offset, request.max_bytes, isolation)
        reading = manager.read([asked], max_wait_ms=request.max_wait_ms)

        def then(done: Future[Any]) -> None:
            if done.cancelled():
                answer(Fetched("NOT_LEADER_OR_FOLLOWER"))
                return
            result: RemoteReadResult = done.result()[0]
            if result.error is not None:
                self._broker.trace.note("remote read", str(request.partition), request.offset, result.error.name)
                self._broker.world.judge.remote_read_failed(
                    self._broker.broker_id, request.partition, request.offset, result.error.name
                )
                answer(Fetched(result.error.name))
                return
            data = whole_batches(b"".join(bytes(memoryview(part)) for part in result.data.records))
            if data:
                self._broker.trace.count("remote reads")
            self._served(replica, request, data, is_remote=True)
            aborted = tuple(AbortedTransaction(*each) for each in result.data.aborted_transactions or ())
            answer(
                Fetched(
                    None,
                    data,
                    result.high_watermark,
                    result.last_stable_offset,
                    result.log_start_offset,
                    aborted,
                    epoch,
                    is_remote=True,
                )
            )

        reading.add_done_callback(lambda done: self._broker.soon(lambda: then(done)))

    def _list_offset(self, request: ListOffset, answer: Answer) -> None:
        isolation = FetchIsolation.TXN_COMMITTED if request.is_committed else FetchIsolation.HIGH_WATERMARK
        timestamp = request.timestamp
        try:
            replica = self._find(request.partition)
            with replica.acting():
                replica.leader.check_leader_epoch(-1)
                if timestamp == -1 or not replica.log.remote_log_enabled():
                    local = None if timestamp == -1 else replica.log.fetch_offset_by_timestamp(timestamp)
                    found = replica.leader.limit_listed(local, timestamp, isolation=isolation)
                    time_ms = -1 if local is None or found.offset < 0 else local.timestamp_ms
                    answer(ListedOffset(None, found.offset, time_ms, found.epoch))
                    return
            searching = self._broker.manager.list_offsets(replica.tip, timestamp)
        except Exception as error:  # noqa: BLE001 - named, or raised again
            answer(ListedOffset(self._name_of(error)))
            return

        def then(done: Future[Any]) -> None:
            try:
                searched = done.result()
                with replica.acting():
                    listed = replica.leader.limit_listed(searched, timestamp, isolation=isolation)
            except Exception as error:  # noqa: BLE001 - named, or raised again
                answer(ListedOffset(self._name_of(error)))
                return
            is_known = listed.offset >= 0 and searched is not None
            answer(ListedOffset(None, listed.offset, searched.timestamp_ms if is_known else -1, listed.epoch))

        searching.add_done_callback(lambda done: self._broker.soon(lambda: then(done)))

    def _delete_records(self, request: DeleteRecords, answer: Answer) -> None:
        broker = self._broker
        token = broker.token()
        try:
            replica = self._find(request.partition)

            def complete(error: KafkaError | None) -> None:
                answer(DeletedRecords(_name(error), replica.leader.low_watermark if error is None else -1))

            with replica.acting():
                replica.leader.delete_records(request.offset, token)
                replica.wait(token, complete)
        except Exception as error:  # noqa: BLE001 - named, or raised again
            answer(DeletedRecords(self._name_of(error)))
            return
        late = DeletedRecords("REQUEST_TIMED_OUT")
        broker.later(_DELETE_TIMEOUT_MS, lambda: self._expire(replica, token, lambda: answer(late)))

    # ---- followers

    def _answer_replicas(self, request: AskReplicas, answer: Answer) -> None:
        self._answer_replicas_until(request, answer, self._broker.now_ms + request.max_wait_ms)

    def _answer_replicas_until(self, request: AskReplicas, answer: Answer, deadline_ms: int) -> None:
        """Answer at once what has something to say, else when the first has, or its time is over."""
        answers: list[tuple[Partition, Any]] = []
        waits = self._broker.now_ms < deadline_ms
        for partition, asked in request.requests:
            found = self._answer_one(request, partition, asked)
            answers.append((partition, found))
            if not (isinstance(found, FetchedRecords) and not found.records and found.diverging is None):
                waits = False
        if not waits:
            answer(ReplicasAnswered(tuple(answers)))
            return
        token = self._broker.token()
        is_over: list[bool] = []

        def again(_: KafkaError | None = None) -> None:
            if not is_over:
                is_over.append(True)
                cancel()
                self._answer_replicas_until(request, answer, 0)

        def cancel() -> None:
            for partition, _asked in request.requests:
                replica = self._broker.replicas.get(partition)
                if replica is not None:
                    with replica.acting():
                        replica.cancel(token)

        for (partition, asked), (_, found) in zip(request.requests, answers, strict=True):
            replica = self._broker.replicas.get(partition)
            if replica is None or not isinstance(asked, FetchRecords):
                continue
            try:
                with replica.acting():
                    replica.wait(token, again)
                    replica.wait_for_watermark(token, found.high_watermark, again)
                    replica.leader.wait_for_records(asked.offset, FetchIsolation.LOG_END, token)
            except TierlogError:
                again()
                break
        if is_over:  # one was complete while others had yet to be registered
            cancel()
        else:
            self._broker.later(max(1, deadline_ms - self._broker.now_ms), again)

    def _answer_one(self, request: AskReplicas, partition: Partition, asked: Any) -> Any:
        """A follower's machine's answer, or Kafka's error; None: no answer."""
        try:
            replica = self._find(partition)
            with replica.acting():
                leader = replica.leader
                match asked:
                    case FetchRecords():
                        fetched = leader.fetch(
                            request.broker,
                            asked,
                            max_bytes=_REPLICA_BYTES_MAX,
                            now_ms=self._broker.now_ms,
                            broker_epoch=request.broker_epoch,
                        )
                        records = tuple(bytes(part.read()) for part in fetched.records)
                        return FetchedRecords(
                            fetched.high_watermark, fetched.log_start_offset, records, fetched.diverging
                        )
                    case AskEpochEnd():
                        return leader.end_offset_for_epoch(asked.epoch, leader_epoch=asked.leader_epoch)
                    case AskOffset():
                        return leader.list_offset(
                            asked.timestamp, isolation=FetchIsolation.LOG_END, leader_epoch=asked.leader_epoch
                        )
        except ReplicationError as error:
            return error.error
        except Exception as error:  # noqa: BLE001 - named, or raised again
            name = self._name_of(error)
            return KafkaError.__members__.get(name)
        return None

    # ---- the controller

    def _remove_partition(self, request: RemovePartition, answer: Answer) -> None:
        try:
            removing = self._broker.manager.delete_partition(request.partition)
        except RemoteStorageException as error:
            answer(PartitionRemoved(type(error).__name__))
            return

        def then(done: Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            answer(PartitionRemoved(None if error is None and not done.cancelled() else "FAILED"))

        removing.add_done_callback(lambda done: self._broker.soon(lambda: then(done)))


def error_name(error: Exception) -> str:
    """Kafka's name of an error; one that has none is raised again: it is a fault of the engine, or of this code."""
    if isinstance(error, (ReplicationError, AppendRefusedError, OffsetOutOfRangeError, LogOfflineError)):
        return error.error.name
    if isinstance(error, (LogClosedError, CancelledError)):  # the replica goes, or has another role
        return "NOT_LEADER_OR_FOLLOWER"
    if isinstance(error, (LogTruncatedError, RemoteStorageException)):
        return "UNKNOWN_SERVER_ERROR"
    raise error


def _name(error: KafkaError | None) -> str | None:
    return None if error is None else error.name


def whole_batches(data: bytes) -> bytes:
    """The whole batches at the beginning."""
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data):
            break
        position = end
    return data[:position]
