"""Reads partitions of a running Kafka from given offsets on: no group, no commits, no jump over what is gone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tierlog.errors import StorePermissionError, StoreUnavailableError
from tierlog.runtime.kafka.client_keys import ClientSettings
from tierlog.runtime.kafka.kafka_errors import ClientClosedError, names_a_group, our_error
from tierlog.runtime.kafka.opening import Complaints, open_client
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.forking import Origin

if TYPE_CHECKING:
    from confluent_kafka import Message

_log = logging.getLogger(__name__)

#: How often a read that waits looks whether it shall end: librdkafka cannot be woken.
_POLL_SECONDS: Final = 0.05
_MESSAGES_MAX: Final = 50_000
#: What a record is taken to be before any was seen.
_RECORD_SIZE_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records of one partition in the order of their offsets; all sequences are of one length, at least 1.

    Attributes:
        timestamps_ms: -1 for a record without.
    """

    partition: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


class RecordConsumer:
    """Reads partitions of one topic. librdkafka fetches ahead, up to 16 MiB a partition.

    Thread safety: any number of threads; one read at a time, others wait for it within their time.
    """

    def __init__(self, settings: ClientSettings, topic: str, *, machine: Machine) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._clock = machine.clock
        self._origin = Origin()
        self._changed = machine.scheduler.condition()
        self._reading = self._woken = self._closed = False
        self._positions: dict[int, int] | None = {}
        self._record_bytes = float(_RECORD_SIZE_BYTES)
        self._complaints = Complaints(machine)
        self._client: Any = open_client("consumer", Consumer, settings, _log, self._complaints)

    def read(self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float) -> list[PartitionRecords]:
        """Records from these offsets on (partition → offset): of each partition what is there already, as soon as
        anything is; nothing if none came within the time, or ``wake`` was called.

        Args:
            positions: It costs nothing to go on where the last read ended; else what was fetched ahead is dropped.
            max_bytes: About how many bytes of values are wanted; one record is returned whatever its size.
            timeout_seconds: How long to wait for the first record.

        Raises:
            OffsetOutOfRangeError: an offset is outside of what its partition holds. ObjectNotFoundError: the topic is
                gone. StorePermissionError. StoreUnavailableError: it may work later. ClientClosedError: before or
                while waiting. StoreError. ForkedProcessError.
            After any of them the same read can be called again: nothing is skipped.
        """
        self._origin.require("the Kafka consumer")
        until = self._clock.monotonic_seconds() + timeout_seconds
        if not self._enter(until):
            return []
        try:
            return self._read(positions, max_bytes, until)
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
            self._reading = self._woken = False
            self._changed.notify_all()

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosedError(f"reading {self._topic}: the consumer is closed")

    def _read(self, positions: Mapping[int, int], max_bytes: int, until: float) -> list[PartitionRecords]:
        if self._positions != dict(positions):
            self._assign(positions)
        first = self._wait_for_first(until) if positions else self._wait_without(until)
        if first is None:
            return []
        wanted = int(max_bytes / self._record_bytes)
        messages = [first]
        if wanted > 1:
            messages += self._client.consume(min(wanted, _MESSAGES_MAX), timeout=0)
        good = [message for message in messages if message.error() is None]
        if len(good) != len(messages):
            self._raise_first([message for message in messages if message.error() is not None])
        if not good:
            return []
        self._complaints.forget()
        self._record_bytes = max(sum(map(len, good)) / len(good), 1.0)
        return self._by_partition(good)

    def _assign(self, positions: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        self._client.assign([TopicPartition(self._topic, number, offset) for number, offset in positions.items()])
        self._positions = dict(positions)

    def _wait_for_first(self, until: float) -> Message | None:
        """The next message, an error perhaps. Raises StorePermissionError, StoreUnavailableError: there will be none."""
        while True:
            left = until - self._clock.monotonic_seconds()
            message: Message | None = self._client.poll(min(max(left, 0.0), _POLL_SECONDS))
            self._require_open()
            if message is not None:
                return message
            if left <= 0 or self._woken:
                break
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
        self._client.poll(0)

    def _raise_first(self, failed: Sequence[Message]) -> None:
        for message in failed:
            error = message.error()
            if error is None or names_a_group(error):
                continue
            partition, offset = message.partition(), message.offset()
            place = self._topic if partition is None or partition < 0 else f"{self._topic}-{partition}"
            raise our_error(
                f"reading {place} from offset {offset} on"
                if offset is not None and offset >= 0
                else f"reading {place}",
                error,
                partition=-1 if partition is None else partition,
                offset=-1 if offset is None else offset,
            )

    def _by_partition(self, messages: Sequence[Message]) -> list[PartitionRecords]:
        by_number: dict[int, list[Message]] = {}
        for message in messages:
            by_number.setdefault(message.partition() or 0, []).append(message)
        positions, found = self._positions, []
        assert positions is not None
        for number, each in by_number.items():
            offsets = [message.offset() or 0 for message in each]
            if number not in positions or offsets[0] < positions[number]:
                raise StoreUnavailableError(f"reading {self._topic}-{number}: a fetch from before came late")
            positions[number] = offsets[-1] + 1
            times = [message.timestamp()[1] for message in each]
            keys, values = [message.key() for message in each], [message.value() for message in each]
            found.append(PartitionRecords(number, offsets, times, keys, values))
        return found

    def wake(self) -> None:
        """End a read that waits in another thread within 50 milliseconds, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """End a read under way, and release what is held; idempotent."""
        with self._changed:
            closed, self._closed = self._closed, True
            self._changed.notify_all()
            while self._reading:  # it looks every 50 ms
                self._changed.wait(_POLL_SECONDS)
        if not closed and self._origin.is_here:
            client, self._client = self._client, None
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
