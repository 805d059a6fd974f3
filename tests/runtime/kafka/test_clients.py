"""Clients without a cluster: nothing waits beyond its time, and nothing is left behind."""

from __future__ import annotations

import logging
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.forked import told_by_fork
from tests.support.waiting import ENDLESS_SECONDS, LIMIT_SECONDS, ends, wait_until
from tierlog.errors import ConfigError, StoreError, StoreUnavailableError
from tierlog.runtime.kafka.client_keys import ClientSettings, client_settings
from tierlog.runtime.kafka.kafka_errors import ClientClosedError, PositionOutOfRangeError, our_error
from tierlog.runtime.kafka.record_consumer import RecordConsumer
from tierlog.runtime.kafka.record_producer import RecordProducer
from tierlog.runtime.kafka.topic_admin import TopicAdmin
from tierlog.runtime.machine import Machine

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def settings(role: str, bootstrap: str, **more: str) -> ClientSettings:
    keys = {"bootstrap.servers": bootstrap} | {name.replace("_", "."): value for name, value in more.items()}
    return client_settings(role, keys, client_id="test")  # type: ignore[arg-type]


def thread_count() -> int:
    """Native threads too."""
    return len(list(pathlib.Path("/proc/self/task").iterdir()))


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = thread_count()
    yield
    wait_until(lambda: thread_count() <= before)


def test_questions_end_in_time(silent: str) -> None:
    """A broker that hangs would hang every manager's start."""
    with TopicAdmin(settings("admin", silent), machine=Machine()) as admin:
        ask: list[Callable[[], object]] = [
            lambda: admin.describe_topic("t", timeout_seconds=0.2),
            lambda: admin.topic_config("t", timeout_seconds=0.2),
            lambda: admin.offsets("t", [0], timeout_seconds=0.2),
            lambda: admin.create_topic(
                "t", partitions=1, replication_factor=1, config={}, timeout_seconds=0.2
            ),
        ]  # fmt: skip
        for each in ask:
            with ends(), pytest.raises(StoreUnavailableError, match="no answer in time"):
                each()
        assert admin.offsets("t", [], timeout_seconds=0.2) == {}


def test_close_ends_a_question_under_way(silent: str) -> None:
    """Or for ever: librdkafka forgets whoever waits when it is destroyed."""
    admin = TopicAdmin(settings("admin", silent), machine=Machine())
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            admin.describe_topic("t", timeout_seconds=ENDLESS_SECONDS)
        except StoreError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.1)
    with ends():
        admin.close()
        thread.join()
    admin.close()
    assert isinstance(errors[0], ClientClosedError)
    with pytest.raises(ClientClosedError):
        admin.describe_topic("t", timeout_seconds=1)


class Watched:
    """A client that notes the threads that it is used in."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.threads: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        self.threads.add(threading.get_ident())
        return getattr(self._client, name)


def test_answers_that_come_late_touch_no_client(silent: str) -> None:
    """They come in a thread of librdkafka's: a client whose last reference ends there, beside a close, ends the
    process.
    """
    with TopicAdmin(settings("admin", silent), machine=Machine()) as admin:
        watched = admin._client = Watched(admin._client)
        future = admin.begin_describe_topic("t", timeout_seconds=0.05)
        assert isinstance(future.exception(LIMIT_SECONDS), StoreError)
        assert watched.threads == {threading.get_ident()}


def test_a_read_ends_in_time_when_woken_and_when_closed(silent: str) -> None:
    """The manager's one thread would not see an assignment, or its own end."""
    consumer = RecordConsumer(settings("consumer", silent), "t", machine=Machine())
    with ends():
        assert consumer.read({0: 0}, max_bytes=1000, timeout_seconds=0.1) == []
        assert consumer.read({}, max_bytes=1000, timeout_seconds=0.1) == []
    for positions in ({0: 5}, {}):
        timer = threading.Timer(0.1, consumer.wake)
        timer.start()
        with ends():
            assert consumer.read(positions, max_bytes=1000, timeout_seconds=ENDLESS_SECONDS) == []
        timer.join()
        consumer.wake()
        with ends():  # the next one
            assert consumer.read(positions, max_bytes=1000, timeout_seconds=ENDLESS_SECONDS) == []
        timer = threading.Timer(0.1, consumer.wake)
        timer.start()
    timer.join()
    timer = threading.Timer(0.1, consumer.close)
    timer.start()
    with ends():
        consumer_read_until_closed(consumer)
    timer.join()
    consumer.close()


def consumer_read_until_closed(consumer: RecordConsumer) -> None:
    consumer.read({0: 5}, max_bytes=1000, timeout_seconds=ENDLESS_SECONDS)  # ended by the wake before
    with pytest.raises(ClientClosedError):
        consumer.read({0: 5}, max_bytes=1000, timeout_seconds=ENDLESS_SECONDS)


def test_two_reads_take_turns(silent: str) -> None:
    """A consumer of librdkafka has one place; the second reader's time counts while it waits."""
    with RecordConsumer(settings("consumer", silent), "t", machine=Machine()) as consumer:
        thread = threading.Thread(target=lambda: consumer.read({0: 0}, max_bytes=9, timeout_seconds=ENDLESS_SECONDS))
        thread.start()
        wait_until(lambda: consumer._reading)
        with ends():
            assert consumer.read({0: 0}, max_bytes=9, timeout_seconds=0.2) == []
        assert thread.is_alive()
        consumer.wake()
        thread.join()


def test_records_without_a_broker_end_with_an_error(silent: str) -> None:
    """The future of a segment's event would stay open for ever, and its copy with it."""
    producer = RecordProducer(settings("producer", silent), "t", machine=Machine())
    future = producer.append(0, b"x")
    with ends():
        producer.close(flush_seconds=0.2)
    with pytest.raises(ClientClosedError):
        future.result(0)
    with pytest.raises(ClientClosedError):
        producer.append(0, b"x")
    producer.close()


def test_a_record_that_nobody_takes_may_be_tried_again(silent: str) -> None:
    """A waiting caller gets the error within ``delivery.timeout.ms``."""
    late = settings("producer", silent, delivery_timeout_ms="300", linger_ms="0")
    with RecordProducer(late, "t", machine=Machine()) as producer:
        error = producer.append(0, b"x").exception(LIMIT_SECONDS)
        assert isinstance(error, StoreUnavailableError)


def test_records_that_wait_are_bounded(silent: str) -> None:
    """A cluster that is away for an hour must not take the broker's memory with it."""
    small = settings("producer", silent, buffer_memory="65536")
    with (
        RecordProducer(small, "t", machine=Machine()) as producer,
        pytest.raises(StoreUnavailableError, match="fill their memory"),
    ):
        append_for_ever(producer)


def append_for_ever(producer: RecordProducer) -> None:
    for _ in range(1000):
        producer.append(0, bytes(1000))


def test_what_librdkafka_says_goes_to_the_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A library that writes to stderr by itself disturbs every command."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # nobody listens there afterwards
    with (
        caplog.at_level(logging.INFO, logger="tierlog.runtime.kafka"),
        TopicAdmin(settings("admin", f"127.0.0.1:{port}"), machine=Machine()) as admin,
        pytest.raises(StoreUnavailableError, match=r"no answer in time \(.*Connect"),
    ):
        admin.describe_topic("t", timeout_seconds=0.5)
    assert "Connection refused" in caplog.text
    assert capfd.readouterr().err == ""


def test_a_fork_is_told_and_ends_as_it_would(silent: str) -> None:
    """The clients' threads stay in the parent: destroying one in the child waits for them, or crashes."""
    machine = Machine()
    with ExitStack() as opened:
        admin = opened.enter_context(TopicAdmin(settings("admin", silent), machine=machine))
        producer = opened.enter_context(RecordProducer(settings("producer", silent), "t", machine=machine))
        consumer = opened.enter_context(RecordConsumer(settings("consumer", silent), "t", machine=machine))

        def destroy() -> str:
            for each in (admin, producer, consumer):
                each.close()
                each._client = None  # what its garbage collector does
            return "done"

        told = told_by_fork(
            lambda: admin.describe_topic("t", timeout_seconds=1),
            lambda: producer.append(0, b"x"),
            lambda: consumer.read({0: 0}, max_bytes=1, timeout_seconds=1),
            destroy,
        )
        assert [text.partition(":")[0] for text in told] == ["ForkedProcessError"] * 3 + ["'done'"]


def test_settings_that_librdkafka_refuses_are_a_config_error() -> None:
    """In its words: it knows more of a certificate than we."""
    keys = {"security_protocol": "SSL", "ssl_truststore_type": "PEM", "ssl_truststore_location": "/nowhere/ca.pem"}
    with pytest.raises(ConfigError, match=r"the Kafka admin cannot be made: .*ssl\.ca\.location"):
        TopicAdmin(settings("admin", "127.0.0.1:1", **keys), machine=Machine())


@pytest.mark.parametrize(
    ("name", "kind", "retriable"),
    [
        ("_TIMED_OUT", "StoreUnavailableError", True),
        ("NOT_ENOUGH_REPLICAS", "StoreUnavailableError", True),
        ("INVALID_REPLICATION_FACTOR", "StoreUnavailableError", True),
        ("TOPIC_AUTHORIZATION_FAILED", "StorePermissionError", False),
        ("_AUTHENTICATION", "StorePermissionError", False),
        ("UNKNOWN_TOPIC_OR_PART", "ObjectNotFoundError", False),
        ("POLICY_VIOLATION", "ConfigError", False),
        ("MSG_SIZE_TOO_LARGE", "StoreError", False),
        ("_AUTO_OFFSET_RESET", "PositionOutOfRangeError", False),
        ("_PURGE_INFLIGHT", "ClientClosedError", False),
        ("_FATAL", "ClientFatalError", False),
        ("TOPIC_ALREADY_EXISTS", "TopicExistsError", False),
    ],
)
def test_errors_say_what_to_do(name: str, kind: str, retriable: bool) -> None:
    """An error that passes, taken for one that does not, ends a manager for good; the other way it tries for ever."""
    found = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name))
    error = our_error("doing it", found, partition=3, offset=7)
    assert type(error).__name__ == kind
    assert error.retriable is retriable  # type: ignore[attr-defined]
    if isinstance(error, PositionOutOfRangeError):
        assert (error.partition, error.offset) == (3, 7)
    if name != "_PURGE_INFLIGHT":
        assert name in str(error)


def test_every_error_that_is_named_exists() -> None:
    """A name that librdkafka does not have would never match."""
    from tierlog.runtime.kafka import kafka_errors

    sets = [value for value in vars(kafka_errors).values() if isinstance(value, frozenset)]
    assert len(sets) == 6
    for name in frozenset().union(*sets):
        assert hasattr(confluent_kafka.KafkaError, name), name
