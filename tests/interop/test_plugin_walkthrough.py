"""The way of a blog's reader: a stock Kafka, a plugin's jars in `libs`, some lines in `server.properties`, one topic.

With the Aiven plugin, for which such pages are written, and with ours in its place: the lines are the same but for the
class.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import time
from collections.abc import Iterator

import pytest

from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import plugin, plugin_peer
from tests.support.peers.broker import free_port
from tests.support.peers.kafka_home import KRAFT, KafkaHome
from tests.support.servers import BUCKET, seaweed

pytestmark = pytest.mark.interop

ZOOKEEPER = (
    "dataDir={folder}/zookeeper\nclientPort={zookeeper}\nclientPortAddress=localhost\nadmin.enableServer=false\n"
)
#: What Kafka's own files have that counts here.
BROKERS = {
    "kafka-3.9": "broker.id=0\nzookeeper.connect=localhost:{zookeeper}\nlisteners=PLAINTEXT://localhost:{port}\n",
    "kafka": KRAFT,
}
#: Local segments go after seconds, not minutes: what is consumed comes from the tier.
COMMON = """log.dirs={folder}/logs
offsets.topic.replication.factor=1
log.initial.task.delay.ms=100
log.retention.check.interval.ms=1000
"""
TIERED = """
remote.log.storage.system.enable=true
remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions=1
remote.log.storage.manager.class.name={manager}
rsm.config.chunk.size=4194304
{store}
rsm.config.fetch.chunk.cache.class=io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache
rsm.config.fetch.chunk.cache.path={folder}/s3_cache
rsm.config.fetch.chunk.cache.size=17179869184
rsm.config.fetch.chunk.cache.prefetch.max.size=16777216
"""
S3 = """rsm.config.storage.backend.class=io.aiven.kafka.tieredstorage.storage.s3.S3Storage
rsm.config.storage.s3.bucket.name={bucket}
rsm.config.storage.s3.region=local-ru
rsm.config.storage.s3.endpoint.url={endpoint}
rsm.config.storage.s3.path.style.access.enabled=true
rsm.config.storage.aws.access.key.id={key_id}
rsm.config.storage.aws.secret.access.key={key}
"""
FILES = """rsm.config.storage.backend.class=io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage
rsm.config.storage.root={folder}/bucket
"""
TOPIC = """bin/kafka-topics.sh --bootstrap-server localhost:{port} --create --topic topic1 \\
    --config remote.storage.enable=true --config segment.bytes={segment} \\
    --config local.retention.bytes=1 --config retention.bytes=10000000000000
bin/kafka-producer-perf-test.sh --topic topic1 --num-records=10000 --throughput -1 --record-size 1000 \\
    --producer-props acks=1 batch.size=16384 bootstrap.servers=localhost:{port}
"""
CONSUMED = (
    "bin/kafka-console-consumer.sh --bootstrap-server localhost:{port} --topic topic1 --from-beginning "
    "--max-messages 10000 --timeout-ms 60000"
)
FORMATTED = (
    "bin/kafka-storage.sh format --standalone -t $(bin/kafka-storage.sh random-uuid) -c config/server.properties"
)
STORAGE_CLASSES = {
    "files": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
    "S3": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
}
#: Kafka 4 takes no smaller segments.
SEGMENT_BYTES = {"kafka-3.9": 512_000, "kafka": 1_048_576}
TIERED_SECONDS = 180.0


@contextlib.contextmanager
def started(kafka: str, manager: str, store: str, folder: pathlib.Path) -> Iterator[tuple[KafkaHome, int]]:
    """A broker by its scripts, and its port."""
    libs = plugin.jars() if manager == plugin.MANAGER else [plugin_peer.our_jar()]
    home = KafkaHome(folder, jars=kafka, libs=libs)
    ports = {name: free_port() for name in ("port", "controller", "zookeeper")}
    for each in ("s3_cache", "bucket"):
        (folder / each).mkdir()
    text = (BROKERS[kafka] + COMMON + TIERED.replace("{store}", store)).format(folder=folder, manager=manager, **ports)
    (home.config / "server.properties").write_text(text)
    try:
        if kafka == "kafka-3.9":
            (home.config / "zookeeper.properties").write_text(ZOOKEEPER.format(folder=folder, **ports))
            home.run("./bin/zookeeper-server-start.sh -daemon ./config/zookeeper.properties")
            home.await_port(ports["zookeeper"])
        else:
            home.run(FORMATTED)
        home.run("./bin/kafka-server-start.sh -daemon ./config/server.properties")
        home.await_port(ports["port"])
        yield home, ports["port"]
    finally:
        home.stop()


def consumed_from_the_tier(kafka: str, manager: str, store: str, folder: pathlib.Path) -> str:
    """Tier the page's topic, and return the hash of what its console consumer prints."""
    with started(kafka, manager, store, folder) as (home, port):
        home.run(TOPIC.format(port=port, segment=SEGMENT_BYTES[kafka]))
        until = time.monotonic() + TIERED_SECONDS
        while len(list((folder / "logs" / "topic1-0").glob("*.log"))) > 1:
            assert time.monotonic() < until, home.server_log[-3000:]
            time.sleep(0.2)
        printed = home.run(CONSUMED.format(port=port))
    home.remove()
    assert len(printed.splitlines()) == 10_000
    return hashlib.sha256(printed.encode()).hexdigest()


@pytest.mark.parametrize("kafka", SEGMENT_BYTES)
@pytest.mark.parametrize("where", STORAGE_CLASSES)
def test_both_plugins_give_the_same(kafka: str, where: str, tmp_path: pathlib.Path) -> None:
    """If this fails, who follows such a page with our class in the other's place does not get there."""
    needs_a_broker()
    with contextlib.ExitStack() as running:
        store = FILES
        if where == "S3":
            (tmp_path / "s3").mkdir()
            options = running.enter_context(seaweed(tmp_path / "s3")).options
            store = S3.format(
                bucket=BUCKET,
                endpoint=options["store.endpoint"],
                key_id=options["store.access_key_id"],
                key=options["store.secret_access_key"],
            )
        ours = consumed_from_the_tier(kafka, plugin_peer.OURS, store, tmp_path / "ours")
        if not plugin.has_class(STORAGE_CLASSES[where]):
            pytest.skip(f"{plugin.HOW}, or without {STORAGE_CLASSES[where]}")
        assert consumed_from_the_tier(kafka, plugin.MANAGER, store, tmp_path / "theirs") == ours
