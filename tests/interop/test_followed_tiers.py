"""A log that begins in the tier, between ours and two real brokers: built by one side, gone on with by the other."""

from __future__ import annotations

import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.support.command import run_process
from tests.support.metadata_cluster import TIERED_JARS, admin_of, needs_a_broker, tiered_broker
from tests.support.peers import broker
from tierlog.log.formats.identity_files import Uuid, parse_partition_metadata
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog

pytestmark = pytest.mark.interop

TOPIC = "orders"
WAIT_SECONDS = 120.0
SETTINGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "256",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
CONFIG = LogConfig(segment_bytes=16384, index_interval_bytes=256, remote_storage_enable=True, local_retention_bytes=1)
STAYS, BEGINS = 1, 2
LEVELS = ("read_uncommitted", "read_committed")


@dataclass
class Cluster:
    """Two brokers over one tier. The first is the controller too; the second is the topic's preferred leader."""

    folder: pathlib.Path
    controller: int = field(default_factory=broker.free_port)
    ports: dict[int, int] = field(default_factory=lambda: {node: broker.free_port() for node in (STAYS, BEGINS)})
    running: dict[int, ExitStack] = field(default_factory=dict)

    def start(self, node: int) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self.ports[node]}"
        if node == STAYS:
            listeners += f",CONTROLLER://127.0.0.1:{self.controller}"
        keys = {
            "node.id": str(node),
            "process.roles": "broker,controller" if node == STAYS else "broker",
            "controller.quorum.voters": f"{STAYS}@127.0.0.1:{self.controller}",
            "listeners": listeners,
            "replica.fetch.wait.max.ms": "100",
            **tiered_broker(self.folder / "tier"),
            "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
        }
        stack = self.running.setdefault(node, ExitStack())
        where = self.folder / str(node)
        stack.enter_context(broker.running(where, heap="512m", extra=keys, jars=TIERED_JARS, port=self.ports[node]))

    def stop(self, node: int) -> None:
        self.running[node].close()

    def bootstrap(self, node: int) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    def log_dir(self, node: int) -> pathlib.Path:
        return self.folder / str(node) / "logs"

    def partition(self, node: int) -> pathlib.Path:
        return self.log_dir(node) / f"{TOPIC}-0"

    def state(self, node: int) -> tuple[int, set[int]]:
        """(leader, in-sync replicas) of the topic, as one broker knows it."""
        known = admin_of(self.bootstrap(node)).list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return (known[0].leader, set(known[0].isrs)) if 0 in known else (-1, set())


def eventually(answer: Callable[[], object], expected: object) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while (last := answer()) != expected:
        assert time.monotonic() < until, f"{last!r} instead of {expected!r}"
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """Two brokers whose topic lies in the tier, but for its end."""
    needs_a_broker()
    made = Cluster(tmp_path)
    try:
        made.start(STAYS)
        made.start(BEGINS)
        eventually(lambda: len(admin_of(made.bootstrap(STAYS)).list_topics(timeout=30).brokers), 2)
        make_topic(made)
        produce(made)
        eventually(lambda: len(segments(made.partition(STAYS))) < 3, expected=True)
        yield made
    finally:
        for stack in made.running.values():
            stack.close()


def make_topic(cluster: Cluster) -> None:
    from confluent_kafka.admin import NewTopic

    new = NewTopic(TOPIC, 1, replica_assignment=[[BEGINS, STAYS]], config=SETTINGS)
    admin = admin_of(cluster.bootstrap(STAYS))
    admin.create_topics([new])[TOPIC].result(60)
    eventually(lambda: cluster.state(STAYS), (BEGINS, {STAYS, BEGINS}))


def produce(cluster: Cluster) -> None:
    """Transactions of three producers side by side, committed and aborted, and one that stays open at the end."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": cluster.bootstrap(STAYS), "linger.ms": 2, "transaction.timeout.ms": 600_000}
    producers = [Producer({**settings, "transactional.id": name}) for name in ("one", "two", "three", "open")]
    for producer in producers:
        producer.init_transactions(60)
    for turn in range(12):
        for producer in producers[:3]:
            producer.begin_transaction()
        for record in range(60):
            producers[record % 3].produce(TOPIC, f"{turn} {record} ".encode() * 12, f"{record}".encode())
            if record % 20 == 19:
                for producer in producers[:3]:
                    assert producer.flush(60) == 0
        for number, producer in enumerate(producers[:3]):
            if (turn + number) % 3 == 1:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    producers[3].begin_transaction()
    producers[3].produce(TOPIC, b"undecided")
    assert producers[3].flush(60) == 0


def segments(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def consumed(cluster: Cluster, node: int, isolation: str) -> list[tuple[int, bytes, int]]:
    """(offset, value, leader epoch) of all that a consumer gets from the topic's beginning on."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    settings = {
        "bootstrap.servers": cluster.bootstrap(node),
        "group.id": "none",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    rows = []
    consumer, until = Consumer(settings), time.monotonic() + WAIT_SECONDS
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        while time.monotonic() < until:
            for message in consumer.consume(500, 1.0):
                error = message.error()
                if error is None:
                    rows.append((message.offset(), message.value(), message.leader_epoch()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return rows
    finally:
        consumer.close()
    raise AssertionError(f"no end after {len(rows)} rows")


def opened(cluster: Cluster, node: int) -> tuple[LogDirectory, UnifiedLog]:
    directory = LogDirectory.open(
        str(cluster.log_dir(node)), remote_log_enabled=True, is_sole_replica=False, runs_tasks=False
    )
    return directory, directory.log(TOPIC, 0, config=CONFIG)


def local_bytes(log: UnifiedLog) -> bytes:
    return b"".join(pathlib.Path(log.folder, f"{each.base_offset:020}.log").read_bytes() for each in log.log_segments())


def newest_copied(cluster: Cluster, end_offset: int) -> pathlib.Path:
    """The tier's log file whose segment ends in front of an offset; its other files lie beside it."""
    logs = (cluster.folder / "tier").rglob(f"{TOPIC}-0-*/*.log")
    return max((path for path in logs if int(path.name[:20]) < end_offset), key=lambda path: int(path.name[:20]))


def test_a_log_that_a_broker_built_from_its_tier_is_ours(cluster: Cluster) -> None:
    """Else a disk that a real follower began in the tier cannot be taken over."""
    stop_the_leader(cluster)
    shutil.rmtree(cluster.partition(BEGINS))
    cluster.start(BEGINS)
    eventually(lambda: cluster.state(STAYS), (STAYS, {STAYS, BEGINS}))
    cluster.stop(BEGINS)
    cluster.stop(STAYS)
    found = []
    for node in (STAYS, BEGINS):
        directory, log = opened(cluster, node)
        with directory:
            assert not log.must_be_rebuilt
            assert [each for each in log.recovery_report.actions if each.kind == "lineage"] == []
            assert log.log_start_offset == 0 < log.local_log_start_offset
            epochs = log.leader_epoch_cache.epoch_with_offsets()
            waiting = [(each.producer_id, each.transaction_first_offset) for each in log.open_transactions()]
            found.append((log.log_end_offset, epochs, waiting))
        assert run_process("verify", cluster.log_dir(node), TOPIC).code == 0
    assert found[0] == found[1]
    assert len(found[0][2]) == 1


def test_brokers_follow_and_serve_what_we_built_from_their_tier(cluster: Cluster) -> None:
    """Else a broker that embeds the log cannot go back to Kafka after it had to begin in the tier."""
    rows = {level: consumed(cluster, STAYS, level) for level in LEVELS}
    stop_the_leader(cluster)
    cluster.stop(STAYS)
    topic_id = parse_partition_metadata((cluster.partition(STAYS) / "partition.metadata").read_bytes()).topic_id
    build(cluster, topic_id)
    assert run_process("verify", cluster.log_dir(BEGINS), TOPIC).code == 0
    cluster.start(STAYS)
    cluster.start(BEGINS)
    eventually(lambda: cluster.state(STAYS), (STAYS, {STAYS, BEGINS}))
    said = (cluster.folder / str(BEGINS) / "broker.out").read_text()
    assert "build the remote log auxiliary state" not in said.lower()  # ours was a whole beginning
    elect_the_preferred(cluster)
    for level in LEVELS:
        assert consumed(cluster, BEGINS, level) == rows[level]


def build(cluster: Cluster, topic_id: Uuid) -> None:
    """Remove the follower's log; begin another behind what the tier has, and append the leader's local records."""
    source, leader = opened(cluster, STAYS)
    with source:
        start, sent = leader.local_log_start_offset, local_bytes(leader)
        high_watermark, epoch = leader.high_watermark, leader.leader_epoch_cache.latest_entry
    assert start > 0
    assert epoch is not None
    shutil.rmtree(cluster.partition(BEGINS))
    copied = newest_copied(cluster, start)
    with LogDirectory.open(
        str(cluster.log_dir(BEGINS)), remote_log_enabled=True, is_sole_replica=False, runs_tasks=False
    ) as directory:
        log = directory.log(TOPIC, 0, config=CONFIG, topic_id=topic_id)
        lineage = parse_leader_epochs(copied.with_suffix(".leader_epoch_checkpoint").read_bytes())
        log.start_from_tier(
            start,
            log_start_offset=0,
            epochs=[(each.epoch, each.start_offset) for each in lineage],
            producer_snapshot=copied.with_suffix(".snapshot").read_bytes(),
        )
        log.append_as_follower(bytearray(sent), leader_epoch=epoch.epoch)
        log.update_high_watermark(high_watermark)


def stop_the_leader(cluster: Cluster) -> None:
    """Stop the preferred leader, so that the other broker leads."""
    cluster.stop(BEGINS)
    eventually(lambda: cluster.state(STAYS)[0], STAYS)


def elect_the_preferred(cluster: Cluster) -> None:
    from confluent_kafka import ElectionType, TopicPartition

    admin = admin_of(cluster.bootstrap(STAYS))
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(60)
    eventually(lambda: cluster.state(BEGINS)[0], BEGINS)
