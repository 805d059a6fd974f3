"""The metadata topic in a real Kafka: made, checked, written, read, lost."""

from __future__ import annotations

import logging
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.metadata_cluster import (
    PARTITIONS,
    admin_of,
    delete_topic,
    make_topic,
    manager_config,
    needs_a_broker,
)
from tests.support.peers import broker
from tests.support.waiting import ends
from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, LogBounds, MetadataValues, OffsetsLostError
from tierlog.remote.metadata.metadata_source import read_cluster_topic
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import (
    KafkaMetadataLog,
    KafkaMetadataLogs,
    open_cluster_log,
)

pytestmark = pytest.mark.interop

MIB = 1 << 20


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    needs_a_broker()
    with broker.running(tmp_path_factory.mktemp("broker"), heap="512m") as running:
        yield running.bootstrap


@pytest.fixture(autouse=True)
def _no_topic(bootstrap: str) -> None:
    delete_topic(bootstrap)


@pytest.fixture
def logs(bootstrap: str, tmp_path: pathlib.Path) -> KafkaMetadataLogs:
    return KafkaMetadataLogs(manager_config(bootstrap, tmp_path))


@pytest.fixture
def log(logs: KafkaMetadataLogs) -> Iterator[KafkaMetadataLog]:
    with logs.open(timeout_seconds=30) as opened:
        yield opened


def append(log: KafkaMetadataLog, partition: int, *values: bytes) -> list[int]:
    return [future.result(30) for future in [log.append(partition, value) for value in values]]


def read_until(log: KafkaMetadataLog, positions: dict[int, int], count: int) -> dict[int, list[bytes | None]]:
    """Read so many records; ``positions`` goes on."""
    found: dict[int, list[bytes | None]] = {number: [] for number in positions}
    until = time.monotonic() + 30
    while sum(map(len, found.values())) < count:
        assert time.monotonic() < until
        for run in log.read(positions, max_bytes=MIB, timeout_seconds=5):
            assert run.offsets[0] >= positions[run.partition]
            found[run.partition] += run.values
            positions[run.partition] = run.next_offset
    return found


def test_the_topic_is_made_as_kafkas_own_manager_makes_it(log: KafkaMetadataLog, bootstrap: str) -> None:
    """A broker that starts later would refuse it, or metadata would be deleted after a week."""
    from confluent_kafka.admin import ConfigResource

    assert log.partition_count == PARTITIONS
    assert len(log.identity) == 22
    resource = ConfigResource(ConfigResource.Type.TOPIC, METADATA_TOPIC)
    admin = admin_of(bootstrap)
    config = admin.describe_configs([resource])[resource].result(30)
    expected = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "remote.storage.enable": "false",
        "min.insync.replicas": "1",
    }
    assert {name: config[name].value for name in expected} == expected


def test_a_second_manager_finds_the_same_topic(log: KafkaMetadataLog, logs: KafkaMetadataLogs) -> None:
    """All brokers start at once; only one of them makes it."""
    found: list[str] = []

    def open_it() -> None:
        with logs.open(timeout_seconds=30) as other:
            found.append(other.identity)

    threads = [threading.Thread(target=open_it) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [log.identity] * 3


def test_managers_that_race_for_making_the_topic_share_it(logs: KafkaMetadataLogs) -> None:
    """The loser of the race must not fail the start of its broker."""
    found: list[str] = []

    def open_it() -> None:
        with logs.open(timeout_seconds=30) as other:
            found.append(other.identity)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("partitions", "config", "text"),
    [
        (PARTITIONS + 1, {}, "has 6 partitions, and .*num.partitions is 5"),
        (PARTITIONS, {"cleanup_policy": "compact"}, "cleanup.policy=compact"),
        (PARTITIONS, {"cleanup_policy": "compact,delete"}, "cleanup.policy=compact,delete"),
    ],
)
def test_a_topic_in_which_metadata_would_be_lost_is_refused(
    bootstrap: str, logs: KafkaMetadataLogs, partitions: int, config: dict[str, str], text: str
) -> None:
    """Kafka checks the number of partitions alone, and loses the rest without a word."""
    make_topic(bootstrap, partitions=partitions, **config)
    with pytest.raises(ConfigError, match=text):
        logs.open(timeout_seconds=30)


def test_more_replicas_in_sync_than_there_are_stop_nobody(
    bootstrap: str, logs: KafkaMetadataLogs, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's own manager makes the topic so on one broker, by default, and writes to it."""
    make_topic(bootstrap, min_insync_replicas="2")
    with logs.open(timeout_seconds=30) as log:
        assert log.append(0, b"record").result(30) == 0
    assert "min.insync.replicas=2 and 1 replicas" in caplog.text


def test_retention_that_may_be_meant_is_told(
    bootstrap: str, logs: KafkaMetadataLogs, caplog: pytest.LogCaptureFixture
) -> None:
    """The day on which segments are forgotten is long after the one on which it was set."""
    make_topic(bootstrap, retention_ms="3600000", retention_bytes="1000000")
    logs.open(timeout_seconds=30).close()
    assert "retention.ms=3600000, not -1" in caplog.text
    assert "retention.bytes=1000000" in caplog.text


def test_what_is_appended_is_read_in_its_order(log: KafkaMetadataLog) -> None:
    """The manager's whole state is this."""
    written = {number: [b"%d-%d" % (number, each) for each in range(500)] for number in range(PARTITIONS)}
    futures = {number: [log.append(number, value) for value in values] for number, values in written.items()}
    for number in written:
        assert [future.result(30) for future in futures[number]] == list(range(500))
    positions = dict.fromkeys(written, 0)
    assert read_until(log, positions, 2500) == written
    assert log.bounds(range(PARTITIONS), timeout_seconds=10) == dict.fromkeys(written, LogBounds(0, 500))
    assert log.read(positions, max_bytes=MIB, timeout_seconds=0.3) == []
    appended = append(log, 3, b"last")
    assert appended == [500]
    assert read_until(log, positions, 1)[3] == [b"last"]


def test_any_place_can_be_read_again(log: KafkaMetadataLog) -> None:
    """A partition that is assigned late has its metadata partition read again, beside others that go on."""
    for number in range(3):
        append(log, number, *(b"%d" % each for each in range(300)))
    positions = {0: 0, 1: 0}
    read_until(log, positions, 600)
    positions |= {2: 0}
    append(log, 0, b"new")
    assert read_until(log, positions, 301) == {0: [b"new"], 1: [], 2: [b"%d" % each for each in range(300)]}
    positions[1] = 100
    assert read_until(log, positions, 200)[1][0] == b"100"
    del positions[0]
    append(log, 0, b"unread")
    append(log, 1, b"newest")
    assert read_until(log, positions, 1)[1] == [b"newest"]
    positions[0] = 299
    assert read_until(log, positions, 3)[0] == [b"299", b"new", b"unread"]


def test_an_offset_that_is_not_there_is_told(log: KafkaMetadataLog, bootstrap: str) -> None:
    """A consumer that jumps to what is left has lost segments without anybody knowing."""
    from confluent_kafka import TopicPartition

    append(log, 1, *(b"%d" % each for each in range(50)))
    with pytest.raises(OffsetsLostError, match=f"{METADATA_TOPIC}-1 holds offsets 0 to 50, and 51 was to be read"):
        log.read({0: 0, 1: 51}, max_bytes=MIB, timeout_seconds=10)
    assert log.read({1: 50}, max_bytes=MIB, timeout_seconds=0.3) == []
    admin, which = admin_of(bootstrap), TopicPartition(METADATA_TOPIC, 1, 20)
    admin.delete_records([which])[which].result(30)
    assert log.bounds([1], timeout_seconds=10)[1].start_offset == 20
    with pytest.raises(OffsetsLostError, match="holds offsets 20 to 50, and 5 was to be read"):
        log.read({1: 5}, max_bytes=MIB, timeout_seconds=10)
    assert read_until(log, {1: 20}, 30)[1][0] == b"20"
    with pytest.raises(ConfigError, match=rf"the oldest metadata is gone \({METADATA_TOPIC}-1 begins at 20\)"):
        read_cluster_topic(bootstrap, lambda run, where: None)


def test_a_topic_that_was_made_anew_is_another_one(
    log: KafkaMetadataLog, logs: KafkaMetadataLogs, bootstrap: str
) -> None:
    """Its records at the same offsets are of other segments: calls have to end that find their offsets, too."""
    append(log, 0, *(b"old %d" % each for each in range(10)))
    positions = {0: 0}
    read_until(log, positions, 10)
    delete_topic(bootstrap)
    with pytest.raises(RetriableRemoteStorageException):
        log.bounds([0], timeout_seconds=10)
    with logs.open(timeout_seconds=30) as other:
        append(other, 0, *(b"new %d" % each for each in range(20)))
        with pytest.raises(OffsetsLostError, match=f"with id {other.identity} .* is not the one that was opened"):
            read_until(log, {0: 0}, 1000)
        for call in (lambda: log.bounds([0], timeout_seconds=1), lambda: log.append(0, b"x")):
            with pytest.raises(OffsetsLostError, match="is not the one that was opened"):
                call()
        assert other.bounds([0], timeout_seconds=10) == {0: LogBounds(0, 20)}


def test_a_record_that_is_too_large_is_refused(log: KafkaMetadataLog) -> None:
    """Trying it again for two minutes would hold a copy up."""
    with pytest.raises(RemoteStorageException, match="MSG_SIZE_TOO_LARGE") as raised:
        log.append(0, bytes(2 * MIB)).result(30)
    assert not raised.value.retriable
    assert append(log, 0, b"small") == [0]


def test_control_records_at_the_end_are_passed(log: KafkaMetadataLog, bootstrap: str) -> None:
    """Whoever waits for the end as the broker names it would wait for ever."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(METADATA_TOPIC, b"in a transaction", partition=0)
    producer.commit_transaction(30)
    until = time.monotonic() + 30
    while log.bounds([0], timeout_seconds=10)[0].end_offset < 2:  # the coordinator writes its mark afterwards
        assert time.monotonic() < until
    positions = {0: 0}
    values: list[bytes | None] = []
    while positions[0] < 2:
        runs = log.read(positions, max_bytes=MIB, timeout_seconds=10)
        assert runs
        values += [value for run in runs for value in run.values]
        positions |= {run.partition: run.next_offset for run in runs}
    assert values == [b"in a transaction"]


def test_readers_without_a_broker_read_to_the_end(log: KafkaMetadataLog, bootstrap: str) -> None:
    """`--metadata host:port`: every record once, and no waiting for what comes later."""
    runs: list[MetadataValues] = []
    with pytest.raises(RemoteStorageException), open_cluster_log(bootstrap) as reader:
        reader.append(0, b"x")
    read_cluster_topic(bootstrap, lambda run, where: runs.append(run))
    assert runs == []
    for number in range(PARTITIONS):
        append(log, number, *(b"%d" % each for each in range(100 * number)))
    with ends():
        read_cluster_topic(bootstrap, lambda run, where: runs.append(run))
    for number in range(PARTITIONS):
        values = [value for run in runs if run.partition == number for value in run.values]
        assert values == [b"%d" % each for each in range(100 * number)]
    with open_cluster_log(bootstrap, writable=True) as writer:
        assert append(writer, 0, b"restored") == [0]
        assert writer.identity == log.identity


def test_a_cluster_without_the_topic_says_so(bootstrap: str) -> None:
    """And is not given one: its number of partitions is the brokers' to say."""
    with pytest.raises(ConfigError, match=f"{bootstrap} has no topic {METADATA_TOPIC}"):
        open_cluster_log(bootstrap)
    assert METADATA_TOPIC not in admin_of(bootstrap).list_topics(timeout=10).topics


def append_at_last(log: KafkaMetadataLog, value: bytes) -> int:
    """Append until it is acknowledged: a record that was tried before may be there too."""
    until = time.monotonic() + 60
    while True:
        try:
            return log.append(0, value).result(30)
        except RetriableRemoteStorageException:
            assert time.monotonic() < until


def test_a_broker_that_is_stopped_and_started_is_gone_on_with(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rolling restart must not end the metadata of a cluster."""
    needs_a_broker()
    port = broker.free_port()
    config = manager_config(
        f"127.0.0.1:{port}", tmp_path, producer_delivery_timeout_ms=1000, producer_request_timeout_ms=500
    )
    logs = KafkaMetadataLogs(config)
    with pytest.raises(RetriableRemoteStorageException, match=r"no answer in time \(.*Connect"):
        logs.open(timeout_seconds=1)
    caplog.set_level(logging.CRITICAL, logger="tierlog.runtime.kafka")
    with broker.running(tmp_path / "broker", heap="512m", port=port):
        log = logs.open(timeout_seconds=30)
        positions = {0: 0}
        read_until(log, positions, append_at_last(log, b"before") + 1)
    with ends():
        assert log.read(positions, max_bytes=MIB, timeout_seconds=0.5) == []
        with pytest.raises(RetriableRemoteStorageException):
            log.bounds([0], timeout_seconds=0.5)
        with pytest.raises(RetriableRemoteStorageException):
            log.append(0, b"while it is away").result()
    with broker.running(tmp_path / "broker", heap="512m", port=port):
        offset = append_at_last(log, b"after")
        assert set(read_until(log, positions, offset + 1 - positions[0])[0]) == {b"after"}
        # librdkafka connects anew after up to ten seconds (reconnect.backoff.max.ms)
        assert log.bounds([0], timeout_seconds=30) == {0: LogBounds(0, offset + 1)}
    with ends():
        log.close()
