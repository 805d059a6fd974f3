"""A real broker that tiers, with Kafka's own metadata manager: ours reads its topic live, it obeys what ours writes.

The broker's storage manager is Kafka's LocalTieredStorage, a folder, which is what both are held against.
"""

from __future__ import annotations

import pathlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as At

from tests.support.metadata_cluster import (
    TIERED_JARS,
    admin_of,
    dumped_values,
    make_topic,
    manager_keys,
    needs_a_broker,
    tiered_broker,
)
from tests.support.peers import broker
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, MetadataValues
from tierlog.remote.metadata.metadata_source import read_cluster_topic
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, decode_record, encode_record
from tierlog.remote.metadata.record_text import record_text
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.kafka.client_keys import client_settings
from tierlog.runtime.kafka.topic_admin import TopicAdmin
from tierlog.runtime.machine import Machine

pytestmark = pytest.mark.interop

TOPIC = "orders"
STATE = RemoteLogSegmentState
WAIT_SECONDS = 60.0
VALUE = b"x" * 8000


@dataclass
class Cluster:
    """A broker that tiers, and can be stopped and started again."""

    folder: pathlib.Path
    port: int
    running: ExitStack

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dir(self) -> pathlib.Path:
        return self.folder / "broker" / "logs"

    @property
    def tier(self) -> pathlib.Path:
        return self.folder / "tier"

    def start(self) -> None:
        extra = tiered_broker(self.tier)
        self.running.enter_context(
            broker.running(self.folder / "broker", heap="512m", extra=extra, jars=TIERED_JARS, port=self.port)
        )
        eventually(lambda: METADATA_TOPIC in admin_of(self.bootstrap).list_topics(timeout=10).topics, expected=True)

    def stop(self) -> None:
        self.running.close()

    def objects(self, partition: TopicIdPartition) -> dict[Uuid, pathlib.Path]:
        """Segment id → its log, as the storage manager has them."""
        found = self.tier.rglob(f"{partition.topic}-{partition.partition}-{partition.topic_id}/*.log")
        return {Uuid.from_text(path.stem[21:]): path for path in found}


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    needs_a_broker()
    with ExitStack() as running:
        made = Cluster(tmp_path, broker.free_port(), running)
        made.start()
        yield made


@pytest.fixture
def manager(cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[TopicBasedRemoteLogMetadataManager]:
    with TopicBasedRemoteLogMetadataManager() as made:
        made.configure(manager_keys(cluster.bootstrap, tmp_path) | {"broker.id": 7})
        yield made


def eventually(answer: Callable[[], object], expected: object) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while (last := answer()) != expected:
        assert time.monotonic() < until, f"{last!r} instead of {expected!r}"
        time.sleep(0.05)


def tiered_topic(cluster: Cluster, partitions: int) -> list[TopicIdPartition]:
    make_topic(
        cluster.bootstrap,
        TOPIC,
        partitions,
        remote_storage_enable="true",
        segment_bytes=str(1 << 20),
        local_retention_bytes="1",
        retention_bytes="-1",
    )
    settings = client_settings("admin", {"bootstrap.servers": cluster.bootstrap}, client_id="test")
    deadline = time.monotonic() + 60
    with TopicAdmin(settings, machine=Machine()) as admin:
        while (found := admin.describe_topic(TOPIC, timeout_seconds=30)) is None:  # the broker learns of it in a moment
            assert time.monotonic() < deadline
            time.sleep(0.05)
    return [TopicIdPartition(Uuid.from_text(found.topic_id), TOPIC, number) for number in range(partitions)]


def produce(cluster: Cluster, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for _ in range(count):
        producer.produce(TOPIC, VALUE, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def set_retention(cluster: Cluster, size_bytes: int) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("retention.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    which = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin = admin_of(cluster.bootstrap)
    admin.incremental_alter_configs([which])[which].result(30)


def states(
    manager: TopicBasedRemoteLogMetadataManager, partition: TopicIdPartition
) -> dict[Uuid, RemoteLogSegmentState]:
    return {each.remote_log_segment_id.id: each.state for each in manager.list_remote_log_segments(partition)}


def finished(cluster: Cluster, partition: TopicIdPartition) -> dict[Uuid, RemoteLogSegmentState]:
    return dict.fromkeys(cluster.objects(partition), STATE.COPY_SEGMENT_FINISHED)


def lead(manager: TopicBasedRemoteLogMetadataManager, partitions: list[TopicIdPartition]) -> None:
    manager.on_partition_leadership_changes(frozenset(), frozenset(partitions))
    eventually(lambda: all(manager.is_ready(partition) for partition in partitions), expected=True)


def test_ours_follows_a_broker_live(cluster: Cluster, manager: TopicBasedRemoteLogMetadataManager) -> None:
    """Copied, then deleted by retention: ours knows the same segments as the bucket."""
    partitions = tiered_topic(cluster, 2)
    lead(manager, partitions)
    for each in partitions:
        produce(cluster, each.partition, 800)
    for each in partitions:
        eventually(lambda each=each: len(states(manager, each)) >= 5, expected=True)
        eventually(lambda each=each: states(manager, each) == finished(cluster, each), expected=True)
        objects = cluster.objects(each)
        ends = []
        for segment in manager.list_remote_log_segments(each, 0):
            path = objects[segment.remote_log_segment_id.id]
            assert (segment.start_offset, segment.segment_size_in_bytes) == (int(path.name[:20]), path.stat().st_size)
            for offset in (segment.start_offset, segment.end_offset):
                assert manager.remote_log_segment_metadata(each, 0, offset) == segment
            ends.append(segment.end_offset)
        assert manager.highest_offset_for_epoch(each, 0) == max(ends)

    before = {each: states(manager, each) for each in partitions}
    set_retention(cluster, 3 << 20)
    for each in partitions:
        eventually(lambda each=each: len(states(manager, each)) < len(before[each]) - 1, expected=True)
        eventually(lambda each=each: states(manager, each) == finished(cluster, each), expected=True)
        assert len(before[each].keys() - states(manager, each).keys()) >= 2
    _require_what_kafkas_tool_shows(cluster, manager, partitions)


def read_records(cluster: Cluster) -> list[RemoteLogMetadataRecord]:
    """All records of the metadata topic, which ours would have written byte for byte."""
    found: list[RemoteLogMetadataRecord] = []

    def take(run: MetadataValues, where: str) -> None:
        values = [value or b"" for value in run.values]
        records = [decode_record(value) for value in values]
        assert [encode_record(record) for record in records] == values
        found.extend(records)

    read_cluster_topic(cluster.bootstrap, take)
    return found


def _require_what_kafkas_tool_shows(
    cluster: Cluster, manager: TopicBasedRemoteLogMetadataManager, partitions: list[TopicIdPartition]
) -> None:
    """Every record in the words of Kafka's decoder; and the states that they come to."""
    records: list[RemoteLogMetadataRecord] = []

    def shown_alike() -> bool:
        records[:] = read_records(cluster)
        return Counter(map(record_text, records)) == Counter(dumped_values(cluster.log_dir))

    eventually(shown_alike, expected=True)  # the broker goes on meanwhile
    last: dict[RemoteLogSegmentId, RemoteLogSegmentState] = {}
    for record in records:
        assert isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
        last[record.remote_log_segment_id] = record.state
    assert STATE.DELETE_SEGMENT_FINISHED in last.values()
    for each in partitions:
        assert states(manager, each) == {
            segment_id.id: state
            for segment_id, state in last.items()
            if segment_id.topic_id_partition == each and state is not STATE.DELETE_SEGMENT_FINISHED
        }


def test_a_broker_serves_and_deletes_what_ours_wrote(
    cluster: Cluster, manager: TopicBasedRemoteLogMetadataManager
) -> None:
    """A segment whose metadata only ours has written: read by a consumer after a restart, then deleted by retention."""
    (partition,) = tiered_topic(cluster, 1)
    lead(manager, [partition])
    produce(cluster, 0, 500)
    eventually(lambda: len(states(manager, partition)) >= 3, expected=True)
    eventually(lambda: states(manager, partition) == finished(cluster, partition), expected=True)

    first = next(iter(manager.list_remote_log_segments(partition, 0)))
    ours = RemoteLogSegmentId(partition, Uuid.random(Machine().rng))
    log = cluster.objects(partition)[first.remote_log_segment_id.id]
    for path in log.parent.glob(f"{log.stem}.*"):
        shutil.copy(path, path.with_name(path.name.replace(str(first.remote_log_segment_id.id), str(ours.id))))
    log.write_bytes(bytes(log.stat().st_size))  # whoever reads the broker's own copy has nothing
    copied = RemoteLogSegmentMetadata(
        remote_log_segment_id=ours,
        start_offset=first.start_offset,
        end_offset=first.end_offset,
        max_timestamp_ms=first.max_timestamp_ms,
        broker_id=7,
        event_timestamp_ms=first.event_timestamp_ms,
        segment_size_in_bytes=first.segment_size_in_bytes,
        segment_leader_epochs=first.segment_leader_epochs,
    )
    manager.add_remote_log_segment_metadata(copied).result(30)
    update = RemoteLogSegmentMetadataUpdate(
        ours,
        event_timestamp_ms=first.event_timestamp_ms,
        custom_metadata=None,
        state=STATE.COPY_SEGMENT_FINISHED,
        broker_id=7,
    )
    manager.update_remote_log_segment_metadata(update).result(30)

    cluster.stop()
    cluster.start()
    assert consume(cluster, first.end_offset + 1) == [VALUE] * (first.end_offset + 1)

    set_retention(cluster, 1)
    eventually(lambda: ours.id in cluster.objects(partition), expected=False)
    eventually(lambda: ours.id in states(manager, partition), expected=False)
    records = [record for record in read_records(cluster) if getattr(record, "remote_log_segment_id", None) == ours]
    seen = [(record.state, record.broker_id) for record in records]  # type: ignore[union-attr]
    assert seen[:2] == [(STATE.COPY_SEGMENT_STARTED, 7), (STATE.COPY_SEGMENT_FINISHED, 7)]
    assert seen[2:] == [(STATE.DELETE_SEGMENT_STARTED, 1), (STATE.DELETE_SEGMENT_FINISHED, 1)]


def consume(cluster: Cluster, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    consumer.assign([At(TOPIC, 0, 0)])
    found: list[bytes | None] = []
    until = time.monotonic() + WAIT_SECONDS
    try:
        while len(found) < count:
            assert time.monotonic() < until
            for message in consumer.consume(count - len(found), timeout=1):
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError.UNKNOWN, error  # a failed read of its tier, which clients repeat
                    continue
                found.append(message.value())
    finally:
        consumer.close()
    return found
