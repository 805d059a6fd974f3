"""A consumer of partitions of a running Kafka from given offsets on: no group, no commits, no jump over deleted
records.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tierlog.errors import StorePermissionError, StoreUnavailableError
from tierlog.runtime.kafka.client_keys import ClientSettings
from tierlog.runtime.kafka.kafka_errors import ClientClosedError, names_a_group, our_error
from tierlog.runtime.kafka.opening import Complaints, open_client, release_client
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable, Origin

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_log = logging.getLogger(__name__)

#: How often a read that waits looks whether it shall end: librdkafka cannot be woken.
_POLL_SECONDS: Final = 0.05
#: Seconds that a pending read has to end at ``close``.
_ENDING_SECONDS: Final = 5.0
_MESSAGES_MAX: Final = 50_000
#: Size that a record is assumed to have before the first one.
_RECORD_SIZE_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records of one partition in the order of their offsets; all sequences are of one length. None of them: the
    partition ends further on, behind control records or deleted ones.

    Attributes:
        next_offset: Where the next read goes on.
        timestamps_ms: -1 for a record without.
        details: What else records have, of a consumer that was asked for it.
    """

    partition: int
    next_offset: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    details: RecordDetails | None = None


@dataclass(frozen=True, slots=True)
class RecordDetails:
    """What records have beside their content, each sequence of their length.

    Attributes:
        timestamp_types: Kafka's numbers: -1 none, 0 CreateTime, 1 LogAppendTime.
        headers: Name and value of each; None for a record without.
        leader_epochs: Of the leaders under which they were written; None in old formats.
    """

    timestamp_types: Sequence[int]
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None]
    leader_epochs: Sequence[int | None]


class RecordConsumer(Closeable):
    """Reads partitions of one topic. librdkafka fetches ahead, up to 16 MiB a partition.

    Args:
        settings: Of the client.
        topic: Whose partitions are read.
        with_details: Whether records come with their RecordDetails.
        machine: The machine that it runs on.

    Thread safety: any number of threads; one read at a time, others wait for it within their time.
    """

    def __init__(self, settings: ClientSettings, topic: str, *, with_details: bool = False, machine: Machine) -> None:
        from confluent_kafka import Consumer, Message

        self._message = Message  # its methods, called for many at once
        self._topic = topic
        self._with_details = with_details
        self._clock = machine.clock
        self._origin = Origin()
        self._changed = machine.scheduler.condition()
        self._reading = self._woken = self._closed = False
        self._positions: dict[int, int] | None = {}
        self._record_bytes = float(_RECORD_SIZE_BYTES)
        self._complaints = Complaints(machine)
        self._client: Any = open_client(self, "consumer", Consumer, settings, _log, self._complaints, machine=machine)

    def read(self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float) -> list[PartitionRecords]:
        """Read records from these offsets on (partition → offset): all that are there already, as soon as there is one;
        none if none came within the time, or ``wake`` was called.

        Args:
            positions: A partition that does not go on where the last read of it ended may take half a second more.
            max_bytes: About how many bytes of values are wanted; one record is returned whatever its size.
            timeout_seconds: How long to wait for the first record.

        Raises:
            PositionOutOfRangeError: an offset is outside of what its partition holds. ObjectNotFoundError: the topic is
                gone. StorePermissionError. StoreUnavailableError: it may work later. ClientClosedError: before or
                while waiting. StoreError. ForkedProcessError.
            After any of them the same read can be called again: nothing is skipped.
        """
        from confluent_kafka import KafkaException

        self._origin.require("the Kafka consumer")
        until = self._clock.monotonic_seconds() + timeout_seconds
        if not self._enter(until):
            return []
        try:
            return self._read(positions, max_bytes, until)
        except KafkaException as cause:
            self._positions = None
            raise our_error(f"reading {self._topic}", cause.args[0]) from cause
        except BaseException:
            self._positions = None  # librdkafka's place may be another one than the caller's: ask it anew
            raise
        finally:
            self._leave()

    def _enter(self, until: float) -> bool:
        with self._changed:
            while self._reading and not self._closed:
                left = until - self._clock.monotonic_seconds()
                if left <= 0:
                    return False
                self._changed.wait(left)
            self._require_open()
            self._reading = True
            return True

    def _leave(self) -> None:
        with self._changed:
            self._reading = False
            self._changed.notify_all()

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosedError(f"reading {self._topic}: the consumer is closed")

    def _read(self, positions: Mapping[int, int], max_bytes: int, until: float) -> list[PartitionRecords]:
        if self._positions != dict(positions):
            self._assign(positions)
        if not positions:
            self._wait_without(until)
            return []
        while True:
            first = self._wait_for_first(until)
            if first is None:
                return []
            messages = [first]
            wanted = int(max_bytes / self._record_bytes)
            if wanted > 1:
                messages += self._client.consume(min(wanted, _MESSAGES_MAX), timeout=0)
            found = self._by_partition(messages)
            if found:
                return found

    def _assign(self, positions: Mapping[int, int]) -> None:
        """Read from other places; the prefetched records of partitions that go on where they were stay."""
        from confluent_kafka import TopicPartition

        held, self._positions = self._positions, None
        new = [
            TopicPartition(self._topic, number, offset)
            for number, offset in positions.items()
            if held is None or held.get(number) != offset
        ]
        if held is None:
            self._client.assign(new)
        else:
            gone = [number for number, offset in held.items() if positions.get(number) != offset]
            if gone:
                self._client.incremental_unassign([TopicPartition(self._topic, number) for number in gone])
            if new:
                self._client.incremental_assign(new)
        self._positions = dict(positions)

    def _wait_for_first(self, until: float) -> Message | None:
        """Wait for the next message, which may be an error; None once the time is up or ``wake`` was called."""
        while True:
            left = until - self._clock.monotonic_seconds()
            message: Message | None = self._client.poll(0 if self._woken else min(max(left, 0.0), _POLL_SECONDS))
            self._require_open()
            if message is not None:
                return message
            if left <= 0 or self._woken:
                break
        self._woken = False
        if self._complaints.is_refusal:
            raise StorePermissionError(f"reading {self._topic}{self._complaints.told_lately()}")
        return None

    def _wait_without(self, until: float) -> None:
        """Wait while there is nothing to read."""
        with self._changed:
            while not self._woken and not self._closed:
                left = until - self._clock.monotonic_seconds()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._require_open()
            self._woken = False
        self._client.poll(0)

    def _by_partition(self, messages: Sequence[Message]) -> list[PartitionRecords]:
        """Return the messages' content: records, or that a partition ends further on than its last record."""
        kind, ends = self._message, []
        errors = list(map(kind.error, messages))
        if any(error is not None for error in errors):
            for message, error in zip(messages, errors, strict=True):
                if error is None or names_a_group(error):
                    continue
                if error.name() != "_PARTITION_EOF":
                    raise self._failure(message, error)
                ends.append((message.partition() or 0, message.offset() or 0))
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        by_number: collections.defaultdict[int, list[Message]] = collections.defaultdict(list)
        for number, message in zip(map(kind.partition, messages), messages, strict=True):
            by_number[number or 0].append(message)
        found = [self._records(number, each) for number, each in by_number.items()]
        if found:
            self._complaints.forget()
            self._record_bytes = max(sum(map(len, messages)) / len(messages), 1.0)
        for number, end in ends:
            if self._positions is not None and self._positions.get(number, end) < end:
                self._positions[number] = end
                found.append(PartitionRecords(number, end, (), (), (), ()))
        return found

    def _records(self, number: int, messages: Sequence[Message]) -> PartitionRecords:
        kind, positions = self._message, self._positions
        offsets = [offset or 0 for offset in map(kind.offset, messages)]
        if positions is None or number not in positions or offsets[0] < positions[number]:
            raise StoreUnavailableError(f"reading {self._topic}-{number}: a fetch from before came late")
        positions[number] = offsets[-1] + 1
        types, times = zip(*map(kind.timestamp, messages), strict=True)
        keys, values = list(map(kind.key, messages)), list(map(kind.value, messages))
        details = None
        if self._with_details:
            headers: Any = list(map(kind.headers, messages))
            epochs = list(map(kind.leader_epoch, messages))
            details = RecordDetails([each - 1 for each in types], headers, epochs)
        return PartitionRecords(number, offsets[-1] + 1, offsets, times, keys, values, details)

    def _failure(self, message: Message, error: KafkaError) -> Exception:
        partition, offset = message.partition(), message.offset()
        number = -1 if partition is None else partition
        at = -1 if offset is None else offset
        what = f"reading {self._topic}" + (f"-{number}" if number >= 0 else "")
        what += f" from offset {at} on" if at >= 0 else ""
        return our_error(what, error, partition=number, offset=at)

    def wake(self) -> None:
        """End a read that waits in another thread within 50 milliseconds, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """End a pending read, and release all resources; idempotent."""
        until = self._clock.monotonic_seconds() + _ENDING_SECONDS
        with self._changed:
            closed, self._closed = self._closed, True
            self._changed.notify_all()
            while self._reading and self._clock.monotonic_seconds() < until:
                self._changed.wait(_POLL_SECONDS)
            if self._reading:
                _log.warning("a read of %s does not end: its client is left to it", self._topic)
                return
        if not closed and self._origin.is_here:
            client, self._client = self._client, None
            release_client(self)
            client.close()
