"""What running leaders would do with restored segments: asked of a server of Kafka's protocol, before a record goes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.replica_server import replica
from tierlog.errors import ConfigError
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier import open_tier
from tierlog.runtime.kafka.client_keys import client_settings
from tierlog.runtime.kafka.topic_admin import LeaderLog, TopicAdmin
from tierlog.runtime.machine import Machine
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.upkeep.restoring.bucket_metadata import BucketMetadata, RestoredSegment
from tierlog.upkeep.restoring.topic_writer import TopicWriter, find_leader_logs, find_reason_to_delete

pytest.importorskip("confluent_kafka")

MACHINE = Machine()
PARTITIONS = 5


def segments_of(bucket: Bucket) -> list[RestoredSegment]:
    read = read_storage_config(None, machine=MACHINE)
    with open_tier(str(bucket.root)) as tier, BucketMetadata(tier, read) as metadata:
        return [segment for each in metadata.iter_partitions() for segment in each.segments]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster whose leader of orders-0 has offsets 3 and 4, of epochs 2 and 3."""
    folder = tmp_path_factory.mktemp("cluster")
    led = Bucket(folder / "led")
    led.segment("c", [message(3, "c", 2), message(4, "d", 3)], lineage={2: 3, 3: 4})
    with replica(folder / "led", folder) as server:
        yield server.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[TopicAdmin]:
    """A client of a test's own: librdkafka opens its connections when it likes, and closes them with the client."""
    settings = client_settings("admin", {"bootstrap.servers": bootstrap}, client_id="test")
    with TopicAdmin(settings, machine=MACHINE) as made:
        yield made


def test_leaders_are_asked_for_topics_of_the_same_id(admin: TopicAdmin, tmp_path: pathlib.Path) -> None:
    """A topic of another id, or one that nobody has, is led by nobody: its segments are safe."""
    topic_id = Uuid.from_text(Bucket(tmp_path / "bucket").topic_id)
    led = TopicIdPartition(topic_id, "orders", 0)
    others = [
        TopicIdPartition(topic_id, "orders", 1),
        TopicIdPartition(topic_id, "bills", 0),
        TopicIdPartition(Uuid(b"the-other-one-id"), "orders", 0),
    ]
    found = find_leader_logs(admin, [*others, led], timeout_seconds=20)
    assert found == {led: LeaderLog(3, 5, 2, 3)}


def test_what_leaders_would_delete_is_refused_before_a_record_is_written(
    admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    """Half of what the tier held was deleted within a second of the restore."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(at, "a", 0) for at in range(3)], lineage={0: 0})
    bucket.segment("c", [message(3, "c", 2), message(4, "d", 3)], lineage={0: 0, 2: 3, 3: 4})
    segments = segments_of(bucket)
    topic = MemoryMetadataTopic(PARTITIONS)
    with topic.open(timeout_seconds=1) as log:
        writer = TopicWriter(log, MACHINE, topics=admin)
        for segment in segments:
            writer.look(segment.metadata.remote_log_segment_id)
        with pytest.raises(ConfigError, match=r"orders-0 \(its log there begins at offset 3 .*export --last-segment"):
            writer.check(lambda: ((each.metadata, each.started_ms) for each in segments))
        kept = TopicWriter(log, MACHINE, topics=admin)
        kept.look(segments[1].metadata.remote_log_segment_id)
        kept.check(lambda: ((each.metadata, each.started_ms) for each in segments[1:]))


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (LeaderLog(0, 0, 4, 4), "is empty"),
        (LeaderLog(0, 0, None, None), "is empty"),
        (LeaderLog(0, 100, 1, 4), "begins at offset 0 with leader epoch 1"),
        (LeaderLog(4, 100, 0, 4), "begins at offset 4"),
        (LeaderLog(4, 100, None, 4), "begins at offset 4"),
        (LeaderLog(0, 100, 0, 0), None),
        (LeaderLog(3, 100, 0, 7), None),
        (LeaderLog(0, 100, None, None), None),
    ],
)
def test_leaders_delete_what_lies_before_their_logs(tmp_path: pathlib.Path, log: LeaderLog, told: str | None) -> None:
    """Of what Kafka's expiration task deletes none may be missed; of the rest none may be refused."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(at, "a", 0) for at in range(4)], lineage={0: 0})
    (segment,) = segments_of(bucket)
    reason = find_reason_to_delete(log, segment.metadata)
    assert (reason is None) == (told is None)
    assert told is None or told in str(reason)


def test_a_leader_of_an_older_epoch_finds_nothing(tmp_path: pathlib.Path) -> None:
    """Consumers would be told of epochs that their leader does not know, and be sent in circles."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(at, "a", 5) for at in range(4)], lineage={5: 0})
    (segment,) = segments_of(bucket)
    assert "its leader is of epoch 2" in str(find_reason_to_delete(LeaderLog(0, 100, 0, 2), segment.metadata))
    assert find_reason_to_delete(LeaderLog(0, 100, 0, 5), segment.metadata) is None
