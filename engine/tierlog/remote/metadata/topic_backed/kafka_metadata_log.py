"""The metadata topic in a running Kafka.

Kafka's client is reached through ``runtime.kafka``; here are the consequences of its errors, and the check whether the
topic was made anew since it was opened. Source: Kafka TopicBasedRemoteLogMetadataManager, ProducerManager,
ConsumerTask.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog.errors import ConfigError, StorePermissionError, StoreUnavailableError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_log import (
    METADATA_TOPIC,
    LogBounds,
    MetadataValues,
    OffsetsLostError,
    kip_error,
    kip_errors,
)
from tierlog.remote.metadata.topic_backed.topic_based_config import (
    ADMIN,
    COMMON_CLIENT,
    CONSUMER,
    PRODUCER,
    TopicBasedConfig,
)
from tierlog.runtime.kafka.client_keys import ClientSettings, Role, client_settings
from tierlog.runtime.kafka.kafka_errors import PositionOutOfRangeError
from tierlog.runtime.kafka.opening import require_client
from tierlog.runtime.kafka.record_consumer import RecordConsumer
from tierlog.runtime.kafka.record_producer import RecordProducer
from tierlog.runtime.kafka.topic_admin import TopicAdmin, TopicDescription
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future, PendingFuture

_log = logging.getLogger(__name__)
#: A topic that is not there may be on its way.
_kip_errors: Final = partial(kip_errors, absence_passes=True)

#: How often a log that is read asks whether its topic is still the same.
_IDENTITY_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 10.0
_READER: Final = "tierlog-metadata-reader"


class KafkaMetadataLogs:
    """The opener of a cluster's metadata topic for a manager.

    Args:
        config: Of the manager; ``client_keys`` say how to reach the cluster.
        machine: The machine that it runs on.

    Raises:
        ConfigError: confluent-kafka is not installed, ``bootstrap.servers`` is missing, or a key is wrong.

    Thread safety: any number of threads.
    """

    def __init__(self, config: TopicBasedConfig, *, machine: Machine | None = None) -> None:
        require_client()
        self._machine = machine or Machine()
        self._wishes = TopicWishes.of(config)
        common = _below(COMMON_CLIENT, config.client_keys)
        name = f"{METADATA_TOPIC}_client_{config.broker_id}"

        def settings(role: Role, prefix: str) -> ClientSettings:
            return client_settings(role, common, _below(prefix, config.client_keys), client_id=f"{name}_{role}")

        self._admin = settings("admin", ADMIN)
        self._producer = settings("producer", PRODUCER)
        self._consumer = settings("consumer", CONSUMER)

    def open(self, *, timeout_seconds: float) -> KafkaMetadataLog:
        """Open the topic, made if it is not there, and checked; see ``MetadataLogs.open``.

        Raises:
            ConfigError: the topic, the client's keys or the cluster's policies forbid it. RemoteStorageException: it
                refuses us. RetriableRemoteStorageException: it cannot be reached, or cannot make the topic, yet.
        """
        until = self._machine.clock.monotonic_seconds() + timeout_seconds
        with _kip_errors(ConfigError), ExitStack() as opened:
            admin = opened.enter_context(TopicAdmin(self._admin, machine=self._machine))
            topic = ensure_topic(admin, self._wishes, until=until, machine=self._machine)
            return _open(admin, topic, self._consumer, self._producer, opened, self._machine)


def open_cluster_log(
    bootstrap: str,
    *,
    client_keys: Mapping[str, str] | None = None,
    writable: bool = False,
    timeout_seconds: float = 30.0,
    machine: Machine | None = None,
) -> KafkaMetadataLog:
    """Open the metadata topic of a running Kafka, with as many partitions as it has; for readers that are no brokers of
    it.

    Args:
        bootstrap: ``host:port[,host:port…]``.
        client_keys: Keys of Kafka's client beside it, such as ``security.protocol``.
        writable: Whether ``append`` is needed.
        timeout_seconds: The longest that it may take.
        machine: The machine that it runs on.

    Raises:
        ConfigError: there is no such topic, confluent-kafka is not installed, or a key is wrong.
        RetriableRemoteStorageException: the cluster cannot be reached. RemoteStorageException: it refuses us.
    """
    require_client()
    machine = machine or Machine()
    keys = {**(client_keys or {}), "bootstrap.servers": bootstrap}
    settings = client_settings("admin", keys, client_id=_READER)
    consumer = client_settings("consumer", keys, client_id=_READER)
    producer = client_settings("producer", keys, client_id=_READER) if writable else None
    with _kip_errors(ConfigError), ExitStack() as opened:
        admin = opened.enter_context(TopicAdmin(settings, machine=machine))
        topic = admin.describe_topic(METADATA_TOPIC, timeout_seconds=timeout_seconds)
        if topic is None:
            raise ConfigError(
                f"{bootstrap} has no topic {METADATA_TOPIC}: brokers make it when they start with "
                "remote.log.storage.system.enable=true"
            )
        return _open(admin, topic, consumer, producer, opened, machine)


def _open(
    admin: TopicAdmin,
    topic: TopicDescription,
    consumer: ClientSettings,
    producer: ClientSettings | None,
    opened: ExitStack,
    machine: Machine,
) -> KafkaMetadataLog:
    reader = opened.enter_context(RecordConsumer(consumer, METADATA_TOPIC, machine=machine))
    writer = None
    if producer is not None:
        writer = opened.enter_context(RecordProducer(producer, METADATA_TOPIC, machine=machine))
    opened.pop_all()
    return KafkaMetadataLog(topic, admin, reader, writer, machine=machine)


class KafkaMetadataLog(Closeable):
    """The metadata topic of a running Kafka, as a MetadataLog.

    Once the topic is found to be another one by that name, every call raises OffsetsLostError, for ever. Whether it is
    the same is asked with ``bounds``, every five seconds beside reads, and whenever an offset is out of range.

    Args:
        topic: As it was when the log was opened.
        admin: A client of the cluster, and so on; ``close`` closes them.
        consumer: Reads the topic.
        producer: Writes it; None for a log that is only read.
        machine: The machine that it runs on.

    Thread safety: any number of threads; one read at a time.
    """

    def __init__(
        self,
        topic: TopicDescription,
        admin: TopicAdmin,
        consumer: RecordConsumer,
        producer: RecordProducer | None,
        *,
        machine: Machine,
    ) -> None:
        self._topic = topic
        self._admin = admin
        self._consumer = consumer
        self._producer = producer
        self._machine = machine
        self._lost: OffsetsLostError | None = None
        self._look: Future[TopicDescription | None] | None = None
        self._look_due = machine.clock.monotonic_seconds() + _IDENTITY_SECONDS

    @property
    def identity(self) -> str:
        """The topic's id, as Kafka writes it."""
        return self._topic.topic_id

    @property
    def partition_count(self) -> int:
        """The number of partitions that the topic had when the log was opened."""
        return len(self._topic.replicas)

    def append(self, partition: int, value: bytes) -> Future[int]:
        """Append a record, as MetadataLog says. An append that fails with a retriable error may have been written."""
        told: PendingFuture[int] = self._machine.scheduler.future()
        self._require_same()
        if self._producer is None:
            raise RemoteStorageException(f"{METADATA_TOPIC} was opened for reading")

        def take(done: Future[int]) -> None:
            error = done.exception(0)
            if error is None:
                told.set_result(done.result(0))
            else:
                told.set_exception(kip_error(error, absence_passes=True))

        with _kip_errors():
            self._producer.append(partition, value).add_done_callback(take)
        return told

    def bounds(self, partitions: Sequence[int], *, timeout_seconds: float) -> dict[int, LogBounds]:
        """Return the bounds of some partitions now, of the topic that was opened and no other."""
        self._require_same()
        until = self._machine.clock.monotonic_seconds() + timeout_seconds
        with _kip_errors():
            # The topic is asked for last: this notices that it was made anew before.
            found = self._admin.offsets(METADATA_TOPIC, partitions, timeout_seconds=timeout_seconds)
            left = max(until - self._machine.clock.monotonic_seconds(), 0.0)
            self._check(self._admin.describe_topic(METADATA_TOPIC, timeout_seconds=left))
        return {number: LogBounds(start, end) for number, (start, end) in found.items()}

    def read(self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float) -> list[MetadataValues]:
        """Read records from these offsets on, as MetadataLog says; what lies between two of them is no record."""
        self._look_now_and_then()
        try:
            with _kip_errors(PositionOutOfRangeError):
                found = self._consumer.read(positions, max_bytes=max_bytes, timeout_seconds=timeout_seconds)
        except PositionOutOfRangeError as error:
            raise self._out_of_range(error) from error
        return [
            MetadataValues(run.partition, run.next_offset, run.offsets, run.timestamps_ms, run.keys, run.values)
            for run in found
        ]

    def _out_of_range(self, error: PositionOutOfRangeError) -> RemoteStorageException:
        """Return the error of an offset out of range, by the current bounds."""
        if error.partition < 0 or error.offset < 0:
            return OffsetsLostError(str(error))
        try:
            found = self.bounds([error.partition], timeout_seconds=_ASK_SECONDS)[error.partition]
        except RemoteStorageException as cause:
            return cause
        if found.start_offset <= error.offset <= found.end_offset:  # a leader that is behind, perhaps
            return RetriableRemoteStorageException(f"{error}, though it is in the log now")
        return OffsetsLostError(
            f"{METADATA_TOPIC}-{error.partition} holds offsets {found.start_offset} to {found.end_offset}, and "
            f"{error.offset} was to be read: it was truncated"
        )

    # ---- whether it is the same topic

    def _require_same(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _check(self, found: TopicDescription | None) -> None:
        """Check the topic's identity. Raises OffsetsLostError: it is another topic. RetriableRemoteStorageException:
        there is none.
        """
        self._require_same()
        if found is None:
            raise RetriableRemoteStorageException(f"{METADATA_TOPIC} is not there")
        if found.topic_id != self._topic.topic_id or len(found.replicas) != len(self._topic.replicas):
            self._lost = OffsetsLostError(
                f"{METADATA_TOPIC} with id {found.topic_id} and {len(found.replicas)} partitions is not the one that "
                f"was opened, with id {self._topic.topic_id} and {len(self._topic.replicas)} partitions"
            )
            raise self._lost

    def _look_now_and_then(self) -> None:
        """Ask for the topic every few seconds, without waiting; raises as ``_check`` once the answer has come."""
        self._require_same()
        now = self._machine.clock.monotonic_seconds()
        looking = self._look
        if looking is None:
            if now >= self._look_due:
                self._look_due = now + _IDENTITY_SECONDS
                with _kip_errors():
                    self._look = self._admin.begin_describe_topic(METADATA_TOPIC, timeout_seconds=_ASK_SECONDS)
            return
        if looking.done():
            self._look = None
            failure = looking.exception(0)
            if failure is not None:
                _log.info("whether %s is still the same is not known: %s", METADATA_TOPIC, failure)
                return
            self._check(looking.result(0))

    def wake(self) -> None:
        """End a read that waits in another thread within 50 milliseconds, or the next one."""
        self._consumer.wake()

    def close(self) -> None:
        """Release all resources; calls under way, and appends that are not acknowledged, end with an error."""
        self._consumer.close()
        if self._producer is not None:
            self._producer.close()
        self._admin.close()


def _below(prefix: str, keys: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in keys.items() if name.startswith(prefix)}


_LOOK_SECONDS: Final = 0.1
_REMOTE_STORAGE: Final = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class TopicWishes:
    """The settings with which the topic is made, and against which it is checked."""

    partition_count: int
    replication_factor: int
    retention_ms: int
    min_insync_replicas: int

    @classmethod
    def of(cls, config: TopicBasedConfig) -> TopicWishes:
        """Return the settings of the manager's configuration; never more replicas in sync than replicas: brokers since
        3.7 use the smaller number themselves, older ones would refuse every write.
        """
        replicas = config.topic_replication_factor
        in_sync = min(config.topic_min_isr, replicas)
        return cls(config.topic_num_partitions, replicas, config.topic_retention_ms, in_sync)


def ensure_topic(admin: TopicAdmin, wishes: TopicWishes, *, until: float, machine: Machine) -> TopicDescription:
    """Return the topic, made if it is not there, and checked.

    Args:
        admin: Asks the cluster.
        wishes: Its required settings.
        until: In the clock's monotonic seconds.
        machine: Has the clock.

    Raises:
        ConfigError: it is one in which metadata would be lost, or that Kafka's own managers would refuse.
        StoreUnavailableError: the cluster cannot be asked, or make it, yet. StorePermissionError. StoreError.
    """
    clock = machine.clock
    found = admin.describe_topic(METADATA_TOPIC, timeout_seconds=until - clock.monotonic_seconds())
    if found is None:
        _create(admin, wishes, until=until, machine=machine)
        while found is None:
            left = until - clock.monotonic_seconds()
            if left <= 0:
                raise StoreUnavailableError(f"{METADATA_TOPIC} was made, and is not known to the brokers yet")
            clock.sleep(min(_LOOK_SECONDS, left))
            found = admin.describe_topic(METADATA_TOPIC, timeout_seconds=left)
    check_topic(admin, found, wishes, timeout_seconds=until - clock.monotonic_seconds())
    return found


def _create(admin: TopicAdmin, wishes: TopicWishes, *, until: float, machine: Machine) -> None:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(wishes.retention_ms),
        "min.insync.replicas": str(wishes.min_insync_replicas),
        _REMOTE_STORAGE: "false",
    }
    while True:
        try:
            made = admin.create_topic(
                METADATA_TOPIC,
                partitions=wishes.partition_count,
                replication_factor=wishes.replication_factor,
                config=config,
                timeout_seconds=until - machine.clock.monotonic_seconds(),
            )
        except ConfigError as error:
            if _REMOTE_STORAGE in config and _REMOTE_STORAGE in str(error):  # a broker from before tiered storage
                del config[_REMOTE_STORAGE]
                continue
            raise
        what = "made with" if made else "was made meanwhile by another broker; wanted:"
        _log.info("%s %s %s, %s", METADATA_TOPIC, what, wishes, config)
        return


def check_topic(admin: TopicAdmin, found: TopicDescription, wishes: TopicWishes, *, timeout_seconds: float) -> None:
    """Check a topic that is there, as ``ensure_topic`` says. A setting that loses metadata only in cases that its owner
    may have intended is logged.
    """
    count = len(found.replicas)
    if count != wishes.partition_count:
        raise ConfigError(
            f"{METADATA_TOPIC} has {count} partitions, and remote.log.metadata.topic.num.partitions is "
            f"{wishes.partition_count}: every record would be looked for in another partition"
        )
    try:
        config = admin.topic_config(METADATA_TOPIC, timeout_seconds=timeout_seconds)
    except StorePermissionError as error:
        _log.warning("the configuration of %s is not checked: %s", METADATA_TOPIC, error)
        return
    if "compact" in config.get("cleanup.policy", "delete"):
        raise ConfigError(
            f"{METADATA_TOPIC} has cleanup.policy={config['cleanup.policy']}: its records have no keys, and metadata "
            "would be lost; it has to be delete"
        )
    in_sync, replicas = int(config.get("min.insync.replicas", "1")), min(found.replicas, default=1)
    if in_sync > replicas:
        _log.warning(
            "%s has min.insync.replicas=%d and %d replicas: brokers take the smaller number, those before 3.7 refuse "
            "every write",
            *(METADATA_TOPIC, in_sync, replicas),
        )
    if min(in_sync, replicas) < wishes.min_insync_replicas:
        _log.warning(
            "%s has min.insync.replicas=%d, not %d",
            *(METADATA_TOPIC, min(in_sync, replicas), wishes.min_insync_replicas),
        )
    retention_ms = int(config.get("retention.ms", "-1"))
    if retention_ms != -1 and (wishes.retention_ms == -1 or retention_ms < wishes.retention_ms):
        _log.warning(
            "%s has retention.ms=%d, not %d: metadata of segments that live longer is lost, and their data with it",
            *(METADATA_TOPIC, retention_ms, wishes.retention_ms),
        )
    if config.get("retention.bytes", "-1") != "-1":
        _log.warning(
            "%s has retention.bytes=%s: metadata is lost once it is larger, and the segments' data with it",
            *(METADATA_TOPIC, config["retention.bytes"]),
        )
