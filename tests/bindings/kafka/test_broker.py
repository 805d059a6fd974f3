"""A stock Kafka that tiers through the plugin, which starts its sidecar: a topic's life, from record to deletion."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.metadata_cluster import (
    admin_of,
    delete_topic,
    make_topic,
    needs_a_broker,
    tiered_broker,
)
from tests.support.peers import broker
from tests.support.peers.plugin_peer import OURS, live_children, our_jar
from tests.support.sidecars import storage_keys
from tests.support.waiting import LIMIT_SECONDS, wait_until

TOPIC = "orders"
VALUE_BYTES = 8000


@contextmanager
def tiering_kafka(folder: pathlib.Path, bucket: pathlib.Path, jars: str) -> Iterator[broker.Broker]:
    """A broker whose storage manager is the plugin, over a folder."""
    keys = storage_keys(bucket, compression_enabled="true") | {"tierlog.python": sys.executable}
    extra = {name: value for name, value in tiered_broker(bucket).items() if not name.startswith("rsm.")}
    extra |= {f"rsm.config.{name}": value for name, value in keys.items()}
    extra["remote.log.storage.manager.class.name"] = OURS
    extra["remote.log.storage.manager.class.path"] = str(our_jar())
    with broker.running(folder, heap="512m", extra=extra, jars=jars) as running:
        yield running


def produce(bootstrap: str, count: int) -> tuple[list[bytes], list[bytes]]:
    """Write transactions, every third of which is aborted; the values of all, and those of the committed ones."""
    from confluent_kafka import Producer

    chance = random.Random(count)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "compression.type": "none"})
    producer.init_transactions(LIMIT_SECONDS)
    written, committed = [], []
    for number in range(0, count, 25):
        values = [b"%010d" % (number + at) + chance.randbytes(VALUE_BYTES - 10) for at in range(25)]
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value)
        assert producer.flush(LIMIT_SECONDS) == 0
        if number // 25 % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            committed += values
        written += values
    return written, committed


def consume(bootstrap: str, isolation: str, count: int) -> list[bytes]:
    """The values from the topic's start."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": isolation, "isolation.level": isolation}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "enable.auto.commit": False})
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            for message in consumer.consume(500, 1.0):
                assert message.error() is None, message.error()
                found.append(message.value())
    finally:
        consumer.close()
    return found


def first_local_offset(running: broker.Broker) -> int:
    return min(int(path.stem) for path in (running.log_dir / f"{TOPIC}-0").glob("*.log"))


@pytest.mark.parametrize(
    "jars", ["kafka", *(pytest.param(other, marks=pytest.mark.interop) for other in ("kafka-3.9", "kafka-4.4"))]
)
def test_a_topic_is_tiered_read_and_deleted(tmp_path: pathlib.Path, jars: str) -> None:
    """If this fails, nobody's Kafka tiers through us: records are lost, doubled or never deleted."""
    needs_a_broker()
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    with tiering_kafka(tmp_path / "broker", bucket, jars) as running:
        make_topic(
            running.bootstrap,
            TOPIC,
            1,
            remote_storage_enable="true",
            segment_bytes=str(1 << 20),
            local_retention_bytes="1",
            retention_bytes="-1",
        )
        written, committed = produce(running.bootstrap, 1200)
        wait_until(lambda: first_local_offset(running) > 900)
        assert len(list(bucket.rglob("*.rsm-manifest"))) >= 7
        assert consume(running.bootstrap, "read_uncommitted", len(written)) == written
        (sidecar,) = live_children(running.process.pid)
        os.kill(sidecar, signal.SIGKILL)
        assert consume(running.bootstrap, "read_committed", len(committed)) == committed
        delete_topic(running.bootstrap, TOPIC)
        wait_until(lambda: not any(files for _, _, files in os.walk(bucket)))  # whose folders go while it is looked at
        assert TOPIC not in admin_of(running.bootstrap).list_topics(timeout=10).topics
