"""A log directory between ours and a real broker: each opens what the other left, after clean stops and after kills."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support.log_writer import (
    ABORTED,
    COMMITTED,
    IDEMPOTENT,
    MORE_SETTINGS,
    SETTINGS,
    TOPICS,
    Writer,
    Written,
    config_of,
    write_logs,
    written_of,
)
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.peers import broker
from tests.support.produce_requests import Produced, produce
from tierlog.log.formats.identity_files import Uuid, parse_partition_metadata
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.recovery.tier_start import TierStart, TierStartFile, TierStartState
from tierlog.records.builder import RecordBatchBuilder
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.posix_files import PosixFiles

pytestmark = pytest.mark.interop

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOUR_MS = 3_600_000
WAIT_SECONDS = 60.0
OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH = 45, 47
LEVELS = ("read_uncommitted", "read_committed")
#: What a broker says when it changes files that it found.
MENDED = re.compile(r" WARN | ERROR |LogLoader - .*(?:[Tt]runcat|[Dd]elet|[Rr]ebuil)")
RECOVERED = re.compile(r"Recovering (?:unflushed )?segment|recovering logs")

Row = tuple[int, str | None, str | None, int, int, tuple[tuple[str, str | None], ...]]


@contextmanager
def running(folder: pathlib.Path, port: int) -> Iterator[broker.Broker]:
    with broker.running(folder, heap="512m", port=port, jars="kafka-log") as started:
        eventually_leads(started.bootstrap)
        yield started


def eventually_leads(bootstrap: str) -> None:
    """Wait until the broker leads all partitions of the topics."""
    admin, until = admin_of(bootstrap), time.monotonic() + WAIT_SECONDS
    while True:
        known = admin.list_topics(timeout=30).topics.values()
        if all(partition.leader == 1 for topic in known for partition in topic.partitions.values()):
            return
        assert time.monotonic() < until, "the broker does not lead its partitions"
        time.sleep(0.1)


def make_topics(bootstrap: str, topics: Iterable[str]) -> None:
    from confluent_kafka.admin import NewTopic

    new = [NewTopic(topic, 1, 1, config={**SETTINGS, **MORE_SETTINGS.get(topic, {})}) for topic in topics]
    admin = admin_of(bootstrap)
    for future in admin.create_topics(new).values():
        future.result(30)


def consumed(bootstrap: str, topic: str, isolation: str) -> list[Row]:
    """All rows of partition 0, to its end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    rows: list[Row] = []
    consumer, until = Consumer(settings), time.monotonic() + WAIT_SECONDS
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while time.monotonic() < until:
            for message in consumer.consume(500, 1.0):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return rows
                headers = tuple((name, _text(content)) for name, content in message.headers() or ())
                key, value = _text(message.key()), _text(message.value())
                at = (message.offset(), key, value, message.timestamp()[1], message.leader_epoch(), headers)
                rows.append(at)
    finally:
        consumer.close()
    raise AssertionError(f"{topic}: no end after {len(rows)} rows")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def expected(written: Written, isolation: str) -> list[Row]:
    kept = [record for record in written.records if isolation == "read_uncommitted" or record.state == COMMITTED]
    if isolation == "read_committed":
        kept = [record for record in kept if record.offset < written.stable]
    return [
        (
            record.offset,
            record.key,
            record.value,
            record.timestamp_ms,
            record.leader_epoch,
            tuple((str(name), content) for name, content in record.headers),
        )
        for record in kept
    ]


def listed(bootstrap: str, topic: str, question: object, *, committed: bool = False) -> tuple[int, int]:
    """(timestamp, offset) of the broker's answer to ListOffsets."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    admin, until = admin_of(bootstrap), time.monotonic() + WAIT_SECONDS
    while True:
        futures = admin.list_offsets({TopicPartition(topic, 0): question}, isolation_level=level)
        try:
            found = next(iter(futures.values())).result(30)
        except KafkaException:  # a broker that has just started learns of its leaderships one by one
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return found.timestamp, found.offset


@dataclass
class Bounds:
    """What a broker says of a partition: log start, last stable offset, high watermark."""

    start: int
    stable: int
    end: int

    @classmethod
    def of(cls, bootstrap: str, topic: str) -> Bounds:
        from confluent_kafka.admin import OffsetSpec

        latest = OffsetSpec.latest()
        return cls(
            listed(bootstrap, topic, OffsetSpec.earliest())[1],
            listed(bootstrap, topic, latest, committed=True)[1],
            listed(bootstrap, topic, latest)[1],
        )


def check_served(bootstrap: str, topic: str, written: Written) -> None:
    """The broker tells and serves what we wrote."""
    from confluent_kafka.admin import OffsetSpec

    assert Bounds.of(bootstrap, topic) == Bounds(written.log_start, written.stable, written.end), topic
    for isolation in LEVELS:
        assert consumed(bootstrap, topic, isolation) == expected(written, isolation), (topic, isolation)
    for timestamp, answer in written.by_time.items():
        told = listed(bootstrap, topic, OffsetSpec.for_timestamp(timestamp))
        assert told == (answer or (-1, -1)), (topic, timestamp)


def check_producers(bootstrap: str, written: Written) -> None:
    """The broker takes up the idempotent producer where our log left it."""
    sequence, offset = written.last_batch

    def batch(first_sequence: int, count: int = 3, epoch: int = 0) -> bytes:
        builder = RecordBatchBuilder(0, producer_id=IDEMPOTENT, producer_epoch=epoch, base_sequence=first_sequence)
        for _ in range(count):
            builder.append(b"k", b"late", timestamp_ms=int(time.time() * 1000))
        return builder.build()

    assert produce(bootstrap, "idempotent", 0, batch(sequence)) == Produced(0, offset), "the last batch, again"
    assert produce(bootstrap, "idempotent", 0, batch(sequence + 9)).error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(bootstrap, "idempotent", 0, batch(sequence + 3)) == Produced(0, written.end)


def said(folder: pathlib.Path, topics: Iterable[str]) -> list[str]:
    """What the broker said of the topics' logs."""
    names = re.compile("|".join(f"{topic}-0" for topic in topics))
    return [line for line in (folder / "broker.out").read_text().splitlines() if names.search(line)]


@dataclass
class Ground:
    """A broker's folder, with empty topics."""

    folder: pathlib.Path
    port: int

    @property
    def log_dir(self) -> pathlib.Path:
        return self.folder / "logs"

    def topic_ids(self, topics: Iterable[str]) -> dict[str, Uuid]:
        return {
            topic: parse_partition_metadata((self.log_dir / f"{topic}-0/partition.metadata").read_bytes()).topic_id
            for topic in topics
        }


@pytest.fixture
def ground(tmp_path: pathlib.Path) -> Ground:
    needs_a_broker()
    return Ground(tmp_path / "broker", broker.free_port())


def write_ours(ground: Ground, *, killed: bool) -> dict[str, Written]:
    """Write the topics' logs in the broker's directory, and stop: cleanly, or by SIGKILL."""
    first_timestamp_ms, ids = int(time.time() * 1000) - HOUR_MS, ground.topic_ids(TOPICS)
    if not killed:
        with LogDirectory.open(str(ground.log_dir)) as directory:
            return write_logs(directory, ids, first_timestamp_ms)
    told = json.dumps({topic: str(topic_id) for topic, topic_id in ids.items()})
    command = [sys.executable, "-m", "tests.support.log_writer", str(ground.log_dir), told, str(first_timestamp_ms)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -9
    return written_of(done.stdout)


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_broker_goes_on_with_what_we_wrote(ground: Ground, *, killed: bool) -> None:
    """Else whoever embeds the log cannot go back to Kafka: records are lost, offsets move, producers are refused."""
    with running(ground.folder, ground.port) as started:
        make_topics(started.bootstrap, TOPICS)
        eventually_leads(started.bootstrap)
    assert (ground.log_dir / ".kafka_cleanshutdown").exists()
    written = write_ours(ground, killed=killed)
    assert (ground.log_dir / ".kafka_cleanshutdown").exists() != killed
    with running(ground.folder, ground.port) as started:
        for topic, told in written.items():
            check_served(started.bootstrap, topic, told)
        check_producers(started.bootstrap, written["idempotent"])
    lines = said(ground.folder, TOPICS)
    assert len(lines) > len(TOPICS)
    refused = "Error processing append operation"  # the batch that is out of order
    assert not [line for line in lines if MENDED.search(line) and refused not in line]
    assert any(RECOVERED.search(line) for line in lines) == killed
    assert any(record.state == ABORTED for record in written["transactions"].records)


# ---- the other way


def produce_theirs(bootstrap: str) -> None:
    """Records of real producers: plain, of all codecs, transactions of which one stays open."""
    from confluent_kafka import Producer

    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for record in range(60):
            headers = [("h", b"x"), ("n", None)] if record % 7 == 0 else None
            producer.produce("plain", b"v" * (record * 13 % 300), f"{number}-{record}".encode(), headers=headers)
            if record % 10 == 9:
                producer.flush(30)
        assert producer.flush(30) == 0
    for name in ("one", "two"):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 2})
        producer.init_transactions(30)
        for transaction in range(6):
            producer.begin_transaction()
            for record in range(20):
                producer.produce("transactions", f"{name} {transaction} {record}".encode() * 4)
                if record % 5 == 4:
                    producer.flush(30)
            if transaction % 3 == 1:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    open_one = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce("transactions", b"undecided")
    assert open_one.flush(30) == 0


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_we_go_on_with_what_a_broker_wrote(ground: Ground, *, killed: bool) -> None:
    """Else whoever opens a broker's disk loses records, or breaks it for the broker that comes back."""
    topics = ("plain", "transactions")
    with running(ground.folder, ground.port) as started:
        make_topics(started.bootstrap, topics)
        eventually_leads(started.bootstrap)
        produce_theirs(started.bootstrap)
        before = {topic: {level: consumed(started.bootstrap, topic, level) for level in LEVELS} for topic in topics}
        bounds = {topic: Bounds.of(started.bootstrap, topic) for topic in topics}
        if killed:
            started.process.kill()
            started.process.wait()
    assert (ground.log_dir / ".kafka_cleanshutdown").exists() != killed
    assert bounds["transactions"].stable < bounds["transactions"].end
    epoch, added = {}, {}
    with LogDirectory.open(str(ground.log_dir)) as directory:
        for topic in topics:
            log = directory.log(topic, 0, config=config_of(topic))
            assert not [action for action in log.recovery_report.actions if action.bytes_cut]
            assert Bounds(log.log_start_offset, log.last_stable_offset, log.log_end_offset) == bounds[topic]
            assert log.high_watermark == bounds[topic].end
            assert len(log.log_segments()) > 3
            for level in LEVELS:
                assert rows_of(log, level) == before[topic][level], (topic, level)
            writer = Writer(log, int(time.time() * 1000))
            writer.epoch = epoch[topic] = log.leader_epoch_cache.latest_epoch or 0
            for number in range(20):
                writer.batch(1 + number % 5)
            added[topic] = writer.finish()
    # The internal topics' logs were not opened: after a kill nobody may say that they are whole.
    assert (ground.log_dir / ".kafka_cleanshutdown").exists() != killed
    with running(ground.folder, ground.port) as started:
        for topic in topics:
            new = expected(added[topic], "read_uncommitted")
            assert consumed(started.bootstrap, topic, "read_uncommitted") == before[topic]["read_uncommitted"] + new
            stable = [*before[topic]["read_committed"], *(new if topic == "plain" else [])]
            assert consumed(started.bootstrap, topic, "read_committed") == stable
    assert not [line for line in said(ground.folder, topics) if MENDED.search(line)]


def rows_of(log: object, isolation: str) -> list[Row]:
    from tests.support.log_consumer import consume
    from tierlog.log.local.unified_log import UnifiedLog

    assert isinstance(log, UnifiedLog)
    found = []
    for row in consume(log, isolation=isolation, start=log.log_start_offset):
        _, offset, timestamp, _, epoch, key, value, headers = row
        assert not isinstance(value, str)
        told = tuple((name, _text(content)) for name, content in headers)
        found.append((offset, _text(key), _text(value), timestamp, epoch, told))
    return found


# ---- a beginning from the tier, and a lease


@pytest.mark.parametrize("state", TierStartState)
def test_a_broker_passes_over_a_beginning_from_the_tier(ground: Ground, state: TierStartState) -> None:
    """Else no Kafka starts on a disk with an unfinished beginning. To it the old log stands, as the page says, and an
    open lease is nothing that it meets.
    """
    with running(ground.folder, ground.port) as started:
        make_topics(started.bootstrap, ["plain"])
        eventually_leads(started.bootstrap)
    with LogDirectory.open(str(ground.log_dir)) as directory:
        log = directory.log("plain", 0, config=config_of("plain"))
        writer = Writer(log, int(time.time() * 1000))
        for number in range(20):
            writer.batch(1 + number % 5)
        log.roll()
        written = writer.finish()
        lease = log.lease(log.closed_segments()[0][0])
    epochs = log.leader_epoch_cache.epochs if state is TierStartState.STARTING else LeaderEpochs()
    latest = log.leader_epoch_cache.latest_entry
    assert latest is not None
    TierStartFile(PosixFiles(), LogFolder(Machine(), log.folder)).write(
        TierStart(
            state,
            40,
            log_start_offset=0,
            superseded_offset=0,
            superseded_epoch=latest.epoch,
            epochs=epochs,
            producer_snapshot=encode_producer_snapshot(()) if len(epochs) else b"",
        )
    )
    with running(ground.folder, ground.port) as started:
        assert consumed(started.bootstrap, "plain", "read_uncommitted") == expected(written, "read_uncommitted")
    assert pathlib.Path(lease.data.log_segment).read_bytes()
    lease.close()
    lines = said(ground.folder, ["plain"])
    assert lines
    assert not [line for line in lines if MENDED.search(line)]
