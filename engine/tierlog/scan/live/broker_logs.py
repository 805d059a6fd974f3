"""The logs of a cluster's topics at their leaders: how far they go, and their records as Arrow.

Source: Kafka's consumer, whose keys and isolation levels these are; the columns are those of ``scan.reading``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pyarrow as pa

from tierlog.arguments import INT64_MAX
from tierlog.errors import ObjectNotFoundError, StoreUnavailableError, UnknownTopicError
from tierlog.runtime.kafka.client_keys import client_settings
from tierlog.runtime.kafka.kafka_errors import PositionOutOfRangeError
from tierlog.runtime.kafka.opening import require_client
from tierlog.runtime.kafka.record_consumer import PartitionRecords, RecordConsumer
from tierlog.runtime.kafka.topic_admin import TopicAdmin
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import BrokerFacts
from tierlog.scan.reading.read import DEFAULT_COLUMNS, records_schema

_CLIENT: Final = "tierlog-reader"
#: Bytes of values that one read of a consumer wants.
_READ_BYTES: Final = 8 << 20
#: How long a leader may give nothing of what it has.
_PATIENCE_SECONDS: Final = 60.0
#: The topic id of brokers that have none.
_NO_ID: Final = "A" * 22


class BrokerLogs(Closeable):
    """The partitions of a cluster, at their leaders.

    Args:
        keys: Of Kafka's Java client, with ``bootstrap.servers``; ``isolation.level`` says which records are read.
        machine: By default this machine.

    Raises (all methods): StoreUnavailableError, which is retriable: the cluster is not reached, or does not answer
    within ``default.api.timeout.ms``. UnknownTopicError: a topic or partition is not there. StorePermissionError.
    ConfigError: confluent-kafka is missing, or a key is wrong.

    Thread safety: one thread at a time.
    """

    def __init__(self, keys: Mapping[str, str], *, machine: Machine | None = None) -> None:
        require_client()
        self._machine = machine or Machine()
        self._is_committed = keys.get("isolation.level", "").strip().lower() == "read_committed"
        self._records = client_settings("consumer", keys, client_id=_CLIENT)
        self._all_records = client_settings(
            "consumer", {**keys, "isolation.level": "read_uncommitted"}, client_id=_CLIENT
        )
        self._questions = client_settings("admin", keys, client_id=_CLIENT)
        self._seconds = self._questions.call_seconds
        self._opened = ExitStack()
        self._admin: TopicAdmin | None = None
        self._consumers: dict[str, RecordConsumer] = {}

    def close(self) -> None:
        """Close the clients; idempotent."""
        self._consumers.clear()
        self._opened.close()

    @property
    def _asked(self) -> TopicAdmin:
        """The client for questions, opened with the first: who only reads has none."""
        if self._admin is None:
            self._admin = self._opened.enter_context(TopicAdmin(self._questions, machine=self._machine))
        return self._admin

    def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        return self._asked.topic_names(timeout_seconds=self._seconds)

    def partitions(self, topic: str) -> tuple[str | None, range]:
        """Return a topic's id, None from brokers that have none, and its partitions."""
        found = self._asked.describe_topic(topic, timeout_seconds=self._seconds)
        if found is None:
            raise UnknownTopicError(f"the brokers have no topic {topic}")
        return (None if found.topic_id == _NO_ID else found.topic_id), range(len(found.replicas))

    def offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return partition → (first offset, where a consumer of this isolation level ends)."""
        with _named(topic):
            found = self._asked.offsets(topic, partitions, timeout_seconds=self._seconds)
            if not self._is_committed or not found:
                return found
            ends = self._asked.stable_ends(topic, sorted(found), timeout_seconds=self._seconds)
            return {number: (start, ends[number]) for number, (start, _) in found.items()}

    def offsets_by_time(self, topic: str, timestamps_ms: Mapping[int, int]) -> dict[int, int | None]:
        """Return partition → offset of its first record of a time or later; None if there is none."""
        with _named(topic):
            return self._asked.offsets_by_time(topic, timestamps_ms, timeout_seconds=self._seconds)

    def facts(self, topic: str, seams: Mapping[int, int | None]) -> dict[int, BrokerFacts]:
        """Return what has to be known of partitions before the tier's records in front of their seams are believed.

        Args:
            topic: Whose they are.
            seams: Partition to the offset at which the brokers' part begins; None: the topic's id is enough.
        """
        topic_id, _ = self.partitions(topic)
        asked = {number: max(0, seam - 1) for number, seam in seams.items() if seam is not None}
        found = dict.fromkeys(seams, BrokerFacts(topic_id))
        if not asked:
            return found
        with _named(topic):
            logs = self._asked.offsets(topic, sorted(asked), timeout_seconds=self._seconds)
        with RecordConsumer(self._all_records, topic, with_details=True, machine=self._machine) as consumer:
            for number, offset in asked.items():
                start, end = logs[number]
                first = _first(consumer, topic, number, max(start, offset), end)
                found[number] = BrokerFacts(topic_id, end, *first)
        return found

    def committed(self, group: str, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
        """Return the offsets that a group has committed, by topic and partition; None where it has none."""
        return self._asked.committed_offsets(group, places, timeout_seconds=self._seconds)

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group, by topic and partition. Raises ConfigError: the group has members."""
        self._asked.commit_offsets(group, offsets, timeout_seconds=self._seconds)

    def read(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        seconds: float,
    ) -> list[tuple[int, int, pa.RecordBatch | None]]:
        """Read what comes next of partitions, as soon as there is something.

        Args:
            topic: Whose.
            positions: Partition to the offset of its next record.
            columns: As of ``iter_records``.
            seconds: The longest that it waits.

        Returns:
            (partition, offset behind it, its records): None for records where a partition goes on further behind,
            beyond control records or aborted ones. Empty: nothing came.

        Raises:
            PositionOutOfRangeError: records have gone.
        """
        schema = records_schema(columns)
        with _named(topic):
            found = self._consumer(topic).read(positions, max_bytes=_READ_BYTES, timeout_seconds=seconds)
        return [
            (each.partition, each.next_offset, _rows(topic, each, INT64_MAX, schema) if each.offsets else None)
            for each in found
        ]

    def _consumer(self, topic: str) -> RecordConsumer:
        consumer = self._consumers.get(topic)
        if consumer is None:
            consumer = RecordConsumer(self._records, topic, with_details=True, machine=self._machine)
            self._consumers[topic] = self._opened.enter_context(consumer)
        return consumer

    def iter_records(
        self,
        topic: str,
        partition: int,
        first: int,
        end: int,
        *,
        losses: LossReport,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        timestamp_unit: str = "ms",
    ) -> Iterator[pa.RecordBatch]:
        """Read the records of [first, end) of a partition that this isolation level shows, by offset.

        Args:
            topic: Whose.
            partition: Its number.
            first: Offset.
            end: Offset, exclusive, not above where a consumer of this isolation level ends.
            losses: Is told of offsets that have gone: the log begins behind them, or ends in front of them.
            columns: As of ``records_schema``; the brokers have no ``segment``.
            timestamp_unit: "ms" or "us".

        Raises:
            DataLossError: offsets have gone, and losses fail. PositionOutOfRangeError: a leader did not have them, and
                has them now. StoreUnavailableError: also, no record came for a minute.
        """
        schema = records_schema(columns, timestamp_unit=timestamp_unit)
        consumer, position = self._consumer(topic), first
        while position < end:
            try:
                read = _read(consumer, topic, partition, position)
            except PositionOutOfRangeError:
                start, log_end = self.offsets(topic, [partition])[partition]
                if start <= position <= log_end:
                    raise  # it is there by now
                behind = min(start, end) if start > position else end
                losses.lose_range(topic, partition, position, behind)
                position = behind
                continue
            for found in read:
                position = found.next_offset
                if found.offsets and found.offsets[0] < end:
                    yield _rows(topic, found, end, schema)


def _read(consumer: RecordConsumer, topic: str, partition: int, position: int) -> Iterable[PartitionRecords]:
    with _named(topic):
        found = consumer.read({partition: position}, max_bytes=_READ_BYTES, timeout_seconds=_PATIENCE_SECONDS)
    if not found:
        raise StoreUnavailableError(
            f"{topic}-{partition}: the brokers gave no records from offset {position} on for {_PATIENCE_SECONDS:.0f} s"
        )
    return found


def _first(
    consumer: RecordConsumer, topic: str, partition: int, offset: int, end: int
) -> tuple[int | None, int | None]:
    """Find the offset and the leader epoch of the first record from an offset on."""
    position = offset
    while position < end:
        for found in _read(consumer, topic, partition, position):
            position = found.next_offset
            if found.offsets and found.details is not None:
                return found.offsets[0], found.details.leader_epochs[0]
    return None, None


def _rows(topic: str, found: PartitionRecords, end: int, schema: pa.Schema) -> pa.RecordBatch:
    count = sum(offset < end for offset in found.offsets)
    details = found.details
    assert details is not None
    values: dict[str, Any] = {
        "key": found.keys,
        "value": found.values,
        "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(found.partition, pa.int32()), count),
        "offset": found.offsets,
        "timestamp": found.timestamps_ms,
        "timestampType": details.timestamp_types,
        "headers": details.headers,
        "leaderEpoch": details.leader_epochs,
    }
    arrays = []
    for field in schema:
        column = values[field.name][:count]
        if field.name == "timestamp":
            column = pa.array(column, pa.timestamp("ms", tz="UTC")).cast(field.type)
        elif field.name == "headers":
            column = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in column]
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def _named(topic: str) -> Iterator[None]:
    """Name a topic that is not there."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise UnknownTopicError(f"topic {topic}: {error}") from error
