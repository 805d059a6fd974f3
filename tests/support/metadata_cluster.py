"""A real Kafka for tests of the metadata topic: the topic made and unmade, its records as Kafka's tool shows them."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import time
from typing import Any

import pytest

from tests.support.peers import install
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig, read_topic_based_config

PARTITIONS = 5
TIERED_JARS = "kafka-storage-tests"
_TIERED = "org.apache.kafka.server.log.remote"


def needs_a_broker() -> None:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    pytest.importorskip("confluent_kafka")


def manager_keys(bootstrap: str, folder: pathlib.Path, **more: object) -> dict[str, object]:
    """As a broker hands them to its manager; ``_`` in the names of ``more`` stands for a dot."""
    topic = "remote.log.metadata.topic"
    return {
        "broker.id": 1,
        "log.dir": str(folder),
        "cluster.id": "c",
        f"{topic}.num.partitions": PARTITIONS,
        f"{topic}.replication.factor": 1,
        "remote.log.metadata.common.client.bootstrap.servers": bootstrap,
        **{f"remote.log.metadata.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def manager_config(bootstrap: str, folder: pathlib.Path, **more: object) -> TopicBasedConfig:
    return read_topic_based_config(manager_keys(bootstrap, folder, **more))


def tiered_broker(folder: pathlib.Path) -> dict[str, str]:
    """Keys of a broker that tiers into a folder by Kafka's LocalTieredStorage, quickly."""
    rlmm = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{_TIERED}.storage.LocalTieredStorage",
        "remote.log.metadata.manager.class.name": f"{_TIERED}.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        f"{rlmm}.replication.factor": "1",
        f"{rlmm}.min.isr": "1",
        f"{rlmm}.num.partitions": str(PARTITIONS),
        "rsm.config.dir": str(folder),
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "100",
    }


def admin_of(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def delete_topic(bootstrap: str, topic: str = METADATA_TOPIC) -> None:
    """Delete a topic, if it is there, and wait until the broker says so."""
    admin = admin_of(bootstrap)
    if topic in admin.list_topics(timeout=30).topics:
        admin.delete_topics([topic])[topic].result(30)
    until = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < until
        time.sleep(0.05)


def make_topic(bootstrap: str, topic: str = METADATA_TOPIC, partitions: int = PARTITIONS, **config: str) -> None:
    from confluent_kafka.admin import NewTopic

    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = admin_of(bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)
    time.sleep(0.2)


def dumped_values(log_dir: pathlib.Path, jars: str = TIERED_JARS) -> list[str]:
    """The values of all records of the metadata topic below a log directory, as Kafka's own decoder shows them."""
    java = [install.java(), "-Xmx256m", "-cp", install.class_path(jars), "org.apache.kafka.tools.DumpLogSegments"]
    files = ",".join(str(path) for path in sorted(log_dir.glob(f"{METADATA_TOPIC}-*/*.log")))
    done = subprocess.run(
        [*java, "--remote-log-metadata-decoder", "--files", files], capture_output=True, text=True, check=True
    )
    return [line.partition("payload: ")[2] for line in done.stdout.splitlines() if "payload: " in line]
