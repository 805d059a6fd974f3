"""Appends records to partitions of a running Kafka: acknowledged by all replicas in sync, once each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.kafka.client_keys import ClientSettings
from tierlog.runtime.kafka.kafka_errors import ClientClosedError, ClientFatalError, our_error
from tierlog.runtime.kafka.opening import Complaints, open_client, release_client
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable, Origin
from tierlog.runtime.machine.scheduling import Future, PendingFuture

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_log = logging.getLogger(__name__)

#: How often the thread looks whether it shall end, while nothing happens.
_POLL_SECONDS: Final = 0.2
#: How often close looks whether all is done.
_LOOK_SECONDS: Final = 0.005
#: What calls of librdkafka that need no broker get, before close goes on without them.
_ENDING_SECONDS: Final = 5.0


class RecordProducer(Closeable):
    """An idempotent producer of one topic. Records of one partition are written in the order of their append.

    A thread calls back for librdkafka until ``close``.

    Thread safety: any number of threads.
    """

    def __init__(self, settings: ClientSettings, topic: str, *, machine: Machine) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._machine = machine
        self._origin = Origin()
        self._lock = machine.scheduler.lock()
        self._fatal: ClientFatalError | None = None
        self._closed = False
        self._ending = False
        self._pending: set[PendingFuture[int]] = set()
        self._complaints = Complaints(machine)
        self._client: Any = open_client(self, "producer", Producer, settings, _log, self._complaints, machine=machine)
        self._thread = machine.scheduler.start(self._call_back, name="tierlog-kafka-producer")

    def append(self, partition: int, value: bytes, *, timestamp_ms: int | None = None) -> Future[int]:
        """Append a record without key. The future gives its offset once all replicas in sync have it.

        Args:
            partition: Of the topic.
            value: At most as large as the topic accepts one record.
            timestamp_ms: The record's time; None: now.

        Raises:
            StoreUnavailableError: as many records wait as there is memory for. ClientClosedError. ForkedProcessError.
            ClientFatalError: this producer cannot go on; all later calls raise it too.
            The future raises: StoreUnavailableError, when the record was not acknowledged in its time (it may have been
                written), and the kinds of ``our_error``.
        """
        from confluent_kafka import KafkaException

        self._origin.require("the Kafka producer")
        told: PendingFuture[int] = self._machine.scheduler.future()
        what = f"appending to {self._topic}-{partition}"

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(what, told, error, message)

        with self._lock:  # or close could purge before this record is there to be purged
            if self._fatal is not None:
                raise self._fatal
            if self._closed:
                raise ClientClosedError(f"{what}: the producer is closed")
            try:
                self._client.produce(
                    self._topic, value=value, partition=partition, timestamp=timestamp_ms or 0, on_delivery=delivered
                )
            except BufferError as cause:
                raise StoreUnavailableError(f"{what}: the records that wait fill their memory") from cause
            except KafkaException as cause:
                raise self._noted(our_error(what, cause.args[0], partition=partition)) from cause
            self._pending.add(told)
        return told

    def _delivered(self, what: str, told: PendingFuture[int], error: KafkaError | None, message: Message) -> None:
        with self._lock:
            if told not in self._pending:
                return
            self._pending.discard(told)
        if error is None:
            told.set_result(int(message.offset() or 0))
        else:
            told.set_exception(self._noted(our_error(what + self._complaints.told_lately(), error)))

    def _noted(self, failure: Exception) -> Exception:
        if isinstance(failure, ClientFatalError) and self._fatal is None:
            self._fatal = failure
        return failure

    def _call_back(self) -> None:
        while not self._ending:
            self._poll(self._client, _POLL_SECONDS)

    def _poll(self, client: Any, seconds: float) -> None:
        """Let librdkafka call back; raise its fatal errors."""
        from confluent_kafka import KafkaException

        try:
            client.poll(seconds)
        except KafkaException as cause:
            failure = self._noted(our_error(f"appending to {self._topic}", cause.args[0]))
            if self._fatal is None:
                _log.warning("%s", failure)
            else:
                self._end_pending(failure)

    def _end_pending(self, failure: Exception) -> None:
        with self._lock:
            left, self._pending = self._pending, set()
        for told in left:
            told.set_exception(failure)

    def close(self, *, flush_seconds: float = 0.0) -> None:
        """Wait for records under way, then end those that are not acknowledged with a ClientClosedError; idempotent.

        Returns after ``flush_seconds`` and some hundred milliseconds.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if not self._origin.is_here:
            return
        self._wait_for_all(flush_seconds)
        self._client.purge()
        self._wait_for_all(_ENDING_SECONDS)  # librdkafka calls back for purged records; no broker is asked
        self._ending = True
        try:
            self._thread.result(_ENDING_SECONDS)
        except TimeoutError:
            _log.warning("the thread of the Kafka producer does not end")
        release_client(self)
        self._client = None  # the last reference: librdkafka ends its threads
        self._end_pending(ClientClosedError(f"appending to {self._topic}: the producer was closed"))

    def _wait_for_all(self, seconds: float) -> None:
        """Wait until no record is under way, for so long; the thread calls back."""
        clock = self._machine.clock
        until = clock.monotonic_seconds() + seconds
        while self._pending and (left := until - clock.monotonic_seconds()) > 0:
            clock.sleep(min(left, _LOOK_SECONDS))
