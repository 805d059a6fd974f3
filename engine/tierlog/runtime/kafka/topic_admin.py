"""Topics of a running Kafka: which there are, making one, its configuration, its offsets; answers have a deadline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tierlog.errors import ObjectNotFoundError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.kafka.client_keys import ClientSettings
from tierlog.runtime.kafka.kafka_errors import ClientClosedError, TopicExistsError, our_error
from tierlog.runtime.kafka.opening import Complaints, open_client, release_client
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable, Origin
from tierlog.runtime.machine.scheduling import Future, PendingFuture


class Answers:
    """Waiting for the futures of one client. librdkafka drops the pending ones when it is destroyed, so that ``close``
    has to end the waiting.

    It holds no reference to the client: futures are completed in a thread of librdkafka's, and a client whose last
    reference ends there ends the process.

    Args:
        machine: Has the clock.
        name: Of the client, for messages.
        complaints: The client's last error beside its answers.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, name: str, complaints: Complaints) -> None:
        self._clock = machine.clock
        self._changed = machine.scheduler.condition()
        self._name = name
        self._complaints = complaints
        self._closed = False

    def close(self) -> None:
        """End all waiting, now and later, by a ClientClosedError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def require_open(self) -> None:
        """Raises ClientClosedError."""
        if self._closed:
            raise ClientClosedError(f"{self._name} is closed")

    def wait(self, what: str, future: Future[Any], *, until: float, poll: Callable[[], None]) -> None:
        """Wait until a future is done.

        Args:
            what: Its action, for the message.
            future: Of a call of confluent-kafka.
            until: In the clock's monotonic seconds.
            poll: Makes the client report its errors.

        Raises:
            StoreUnavailableError: the time is up. StorePermissionError: it is, since the cluster rejects our
                credentials. ClientClosedError: the client was closed.
        """
        future.add_done_callback(self._wake)
        with self._changed:
            while not future.done():
                self.require_open()
                left = until - self._clock.monotonic_seconds()
                if left <= 0:
                    break
                self._changed.wait(left)
        if not future.done():
            poll()
            raise self._late(what)

    def result(self, what: str, future: Future[Any], *, until: float, poll: Callable[[], None]) -> Any:
        """Wait for the future's result, once it is done; raises as ``wait`` and ``outcome``."""
        self.wait(what, future, until=until, poll=poll)
        poll()
        return self.outcome(what, future)

    def outcome(self, what: str, future: Future[Any]) -> Any:
        """Return the result of a future that is done. Raises our error for the call's."""
        from confluent_kafka import KafkaException

        try:
            found = future.result(0)
        except KafkaException as cause:
            if cause.args[0].name() == "_TIMED_OUT":
                raise self._late(what) from cause
            raise our_error(what, cause.args[0]) from cause
        self._complaints.forget()
        return found

    def _late(self, what: str) -> Exception:
        text = f"{what}: no answer in time{self._complaints.told_lately()}"
        return StorePermissionError(text) if self._complaints.is_refusal else StoreUnavailableError(text)

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()


_log = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.1
#: What is asked of metadata between two tries: no close waits for longer.
_REFRESH_SECONDS_MAX: Final = 1.0
#: A request of less makes librdkafka refuse it.
_REQUEST_SECONDS_MIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic that is there.

    Attributes:
        topic_id: Kafka's text of it, 22 characters; of 22 ``A`` for a broker before 2.8, which has none.
        replicas: How many each partition has, by its number.
    """

    topic: str
    topic_id: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The log of a partition, as its leader describes it.

    Attributes:
        start_offset: First offset that is there, in the tier or on the leader's disk.
        end_offset: Offset behind the last record that every replica in sync has.
        first_epoch: Leader epoch of the start offset; None if the leader knows none.
        last_epoch: The epoch of the leader itself; None from a broker that does not send it.
    """

    start_offset: int
    end_offset: int
    first_epoch: int | None
    last_epoch: int | None


class TopicAdmin(Closeable):
    """A client that asks a cluster about topics.

    Raises (all methods): StoreUnavailableError, which is retriable: the cluster is not reached, is not ready, or did
    not answer in time; ConfigError: it refuses the request; StorePermissionError; ClientClosedError; StoreError.
    ForkedProcessError: this is a fork of the process that made it.

    Thread safety: any number of threads.
    """

    def __init__(self, settings: ClientSettings, *, machine: Machine) -> None:
        from confluent_kafka.admin import AdminClient

        self._machine = machine
        self._origin = Origin()
        self._complaints = Complaints(machine)
        self._client: Any = open_client(self, "admin", AdminClient, settings, _log, self._complaints, machine=machine)
        self._answers = Answers(machine, "the Kafka admin client", self._complaints)

    def describe_topic(self, topic: str, *, timeout_seconds: float) -> TopicDescription | None:
        """Describe a topic; None if there is none."""
        until = self._machine.clock.monotonic_seconds() + timeout_seconds
        answer = self._ask_for_topic(topic, timeout_seconds)
        self._answers.wait(f"describing topic {topic}", answer, until=until, poll=self.poll)
        self.poll()
        return _description(topic, self._answers, answer)

    def begin_describe_topic(self, topic: str, *, timeout_seconds: float) -> Future[TopicDescription | None]:
        """Begin ``describe_topic`` without waiting. Once the client is closed the future is never done."""
        told: PendingFuture[TopicDescription | None] = self._machine.scheduler.future()
        answers = self._answers  # and nothing that leads to the client: this runs in a thread of librdkafka's

        def take(answer: Future[Any]) -> None:
            try:
                told.set_result(_description(topic, answers, answer))
            except Exception as error:  # noqa: BLE001 - it is raised in the caller
                told.set_exception(error)

        self._ask_for_topic(topic, timeout_seconds).add_done_callback(take)
        return told

    def _ask_for_topic(self, topic: str, timeout_seconds: float) -> Future[Any]:
        from confluent_kafka import TopicCollection

        seconds = _request_seconds(timeout_seconds)
        answer: Future[Any] = self._begin().describe_topics(TopicCollection([topic]), request_timeout=seconds)[topic]
        return answer

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        timeout_seconds: float,
    ) -> bool:
        """Make a topic; False if there is one by that name already. It may take a moment until all brokers know it."""
        from confluent_kafka.admin import NewTopic

        made = NewTopic(topic, partitions, replication_factor, config=dict(config))
        until, seconds = self._machine.clock.monotonic_seconds() + timeout_seconds, _request_seconds(timeout_seconds)
        asked = self._begin().create_topics([made], request_timeout=seconds, operation_timeout=seconds)
        try:
            self._answers.result(f"making topic {topic}", asked[topic], until=until, poll=self.poll)
        except TopicExistsError:
            return False
        return True

    def topic_config(self, topic: str, *, timeout_seconds: float) -> dict[str, str]:
        """Return the configuration that counts for a topic, defaults included; without values that the cluster hides.

        Raises:
            ObjectNotFoundError: there is no such topic.
        """
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        until, seconds = self._machine.clock.monotonic_seconds() + timeout_seconds, _request_seconds(timeout_seconds)
        asked = self._begin().describe_configs([resource], request_timeout=seconds)[resource]
        found = self._answers.result(f"reading the configuration of topic {topic}", asked, until=until, poll=self.poll)
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def topic_names(self, *, timeout_seconds: float) -> list[str]:
        """Return the names of all topics that these credentials may see, internal ones too."""
        from confluent_kafka import KafkaException

        try:
            return sorted(self._begin().list_topics(timeout=_request_seconds(timeout_seconds)).topics)
        except KafkaException as cause:
            raise our_error("listing topics", cause.args[0]) from cause

    def offsets_by_time(
        self, topic: str, timestamps_ms: Mapping[int, int], *, timeout_seconds: float
    ) -> dict[int, int | None]:
        """Return partition → offset of its first record of a time (by partition, ms since 1970) or later; None if there
        is none.

        Raises:
            ObjectNotFoundError: there is no such topic or partition.
        """
        from confluent_kafka.admin import OffsetSpec

        asked = {number: OffsetSpec.for_timestamp(time_ms) for number, time_ms in timestamps_ms.items()}
        found = self._list_offsets(topic, asked, timeout_seconds)
        return {number: None if offset < 0 else offset for number, offset in found.items()}

    def stable_ends(self, topic: str, partitions: Sequence[int], *, timeout_seconds: float) -> dict[int, int]:
        """Return partition → its last stable offset: where a consumer with read_committed ends.

        Raises:
            ObjectNotFoundError: there is no such topic or partition.
        """
        from confluent_kafka.admin import OffsetSpec

        asked = dict.fromkeys(partitions, OffsetSpec.latest())
        return self._list_offsets(topic, asked, timeout_seconds, is_committed=True)

    def _list_offsets(
        self, topic: str, asked: Mapping[int, Any], timeout_seconds: float, *, is_committed: bool = False
    ) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        until = self._machine.clock.monotonic_seconds() + timeout_seconds
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        what = f"asking for offsets of topic {topic}"
        request = {TopicPartition(topic, number): spec for number, spec in asked.items()}

        def ask() -> dict[int, int]:
            seconds = _request_seconds(until - self._machine.clock.monotonic_seconds())
            answer = self._begin().list_offsets(request, isolation_level=level, request_timeout=seconds)
            return {
                each.partition: self._answers.result(what, future, until=until, poll=self.poll).offset
                for each, future in answer.items()
            }

        return self._with_leaders(topic, until, ask)

    def offsets(self, topic: str, partitions: Sequence[int], *, timeout_seconds: float) -> dict[int, tuple[int, int]]:
        """Return partition → (first offset that is there, offset of the next record), as they are between call and
        return.

        Raises:
            ObjectNotFoundError: there is no such topic or partition.
        """
        found = self.leader_logs(topic, partitions, timeout_seconds=timeout_seconds)
        return {number: (log.start_offset, log.end_offset) for number, log in found.items()}

    def leader_logs(self, topic: str, partitions: Sequence[int], *, timeout_seconds: float) -> dict[int, LeaderLog]:
        """Return partition → its leader's log, as it is between call and return.

        Raises:
            ObjectNotFoundError: there is no such topic or partition.
        """
        if not partitions:
            return {}
        until = self._machine.clock.monotonic_seconds() + timeout_seconds
        return self._with_leaders(topic, until, lambda: self._leader_logs(topic, sorted(set(partitions)), until))

    def _with_leaders(self, topic: str, until: float, ask: Callable[[], T]) -> T:
        """Ask the leaders of a topic, and again while they are away or have moved, until the time is up."""
        from confluent_kafka import KafkaException

        clock = self._machine.clock
        while True:
            try:
                return ask()
            except StoreUnavailableError:
                left = until - clock.monotonic_seconds()
                if left <= _PAUSE_SECONDS:
                    raise
            clock.sleep(_PAUSE_SECONDS)
            # By itself librdkafka keeps a leader's epoch for minutes, by which brokers refuse it.
            with contextlib.suppress(KafkaException):  # the question itself says what is wrong
                self._begin().list_topics(topic, timeout=min(left, _REFRESH_SECONDS_MAX))

    def _leader_logs(self, topic: str, partitions: Sequence[int], until: float) -> dict[int, LeaderLog]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        what, level = f"asking for offsets of topic {topic}", IsolationLevel.READ_UNCOMMITTED
        seconds = _request_seconds(until - self._machine.clock.monotonic_seconds())
        asked = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            request = {TopicPartition(topic, number): spec for number in partitions}
            asked.append(self._begin().list_offsets(request, isolation_level=level, request_timeout=seconds))
        starts, ends = (
            {
                each.partition: self._answers.result(what, future, until=until, poll=self.poll)
                for each, future in answer.items()
            }
            for answer in asked
        )
        return {
            number: LeaderLog(start.offset, ends[number].offset, start.leader_epoch, ends[number].leader_epoch)
            for number, start in starts.items()
        }

    def committed_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]], *, timeout_seconds: float
    ) -> dict[tuple[str, int], int | None]:
        """Return topic and partition → the offset that a group has committed; None: it has none."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        until, seconds = self._machine.clock.monotonic_seconds() + timeout_seconds, _request_seconds(timeout_seconds)
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*each) for each in partitions])
        answer = self._begin().list_consumer_group_offsets([asked], request_timeout=seconds)[group]
        what = f"asking for offsets of group {group}"
        found = self._answers.result(what, answer, until=until, poll=self.poll).topic_partitions
        for each in found:
            if each.error is not None:
                raise our_error(what, each.error)
        return {(each.topic, each.partition): None if each.offset < 0 else each.offset for each in found}

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int], *, timeout_seconds: float) -> None:
        """Commit offsets of a group that has no members.

        Raises:
            ConfigError: it has members, or the group's id is wrong.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        until, seconds = self._machine.clock.monotonic_seconds() + timeout_seconds, _request_seconds(timeout_seconds)
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*each, at) for each, at in offsets.items()])
        answer = self._begin().alter_consumer_group_offsets([asked], request_timeout=seconds)[group]
        what = f"committing offsets of group {group}"
        for each in self._answers.result(what, answer, until=until, poll=self.poll).topic_partitions:
            if each.error is not None:
                raise our_error(what, each.error)

    def poll(self) -> None:
        """Write librdkafka's messages to the log. An otherwise idle caller calls this now and then."""
        from confluent_kafka import KafkaException

        client = self._client
        try:
            if client is not None:
                client.poll(0)
        except KafkaException as error:
            self._complaints.take(error.args[0])

    def close(self) -> None:
        """End pending calls; idempotent."""
        self._answers.close()
        if self._origin.is_here:
            release_client(self)
            self._client = None  # the last reference: librdkafka ends its threads

    def _begin(self) -> Any:
        self._origin.require("the Kafka admin client")
        client = self._client
        self._answers.require_open()
        self.poll()
        return client


def _description(topic: str, answers: Answers, answer: Future[Any]) -> TopicDescription | None:
    try:
        found = answers.outcome(f"describing topic {topic}", answer)
    except ObjectNotFoundError:
        return None
    # librdkafka writes ids with padding and in the letters of the other base64
    topic_id = str(found.topic_id).rstrip("=").replace("+", "-").replace("/", "_")
    partitions = sorted((each.id, len(each.replicas)) for each in found.partitions)
    if [number for number, _ in partitions] != list(range(len(partitions))):
        raise StoreUnavailableError(f"topic {topic}: the cluster does not name all of its partitions yet")
    return TopicDescription(topic, topic_id, tuple(count for _, count in partitions))


def _request_seconds(timeout_seconds: float) -> float:
    return max(timeout_seconds, _REQUEST_SECONDS_MIN)
