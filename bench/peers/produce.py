"""Fills topics of a running broker with the records of :mod:`bench.data`. Run by the peers' interpreter."""

from __future__ import annotations

import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench import data

YEAR_MS = 365 * 24 * 3600 * 1000


def fill(
    bootstrap: str,
    topic: str,
    codec: str,
    total_bytes: int,
    mean_size: int,
    partitions: int,
    batch: int,
    settings: dict[str, str],
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"segment.bytes": str(256 << 20), "retention.ms": "-1", "max.message.bytes": str(8 << 20), **settings}
    if topic not in admin.list_topics(timeout=30).topics:
        for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            future.result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.size": batch,
            "batch.num.messages": 1_000_000,
            "linger.ms": 500,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "message.max.bytes": 8 << 20,
            "enable.idempotence": True,
        }
    )
    for number, (key, value, timestamp) in enumerate(data.records(total_bytes, mean_size)):
        while True:
            try:
                producer.produce(topic, value, key, partition=number % partitions, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("the broker did not take all records")


def roll(bootstrap: str, topic: str, partitions: int) -> None:
    """Close every partition's segment by one record of a year later, which is alone in the next."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(partitions):
        producer.produce(topic, b"", b"", partition=number, timestamp=data.FIRST_TIMESTAMP_MS + YEAR_MS)
    if producer.flush(60):
        raise RuntimeError("the broker did not take the records that roll")


if __name__ == "__main__":
    if sys.argv[1] == "roll":
        roll(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        sys.exit()
    bootstrap, topic, codec, total_bytes, mean_size, partitions, batch, *settings = sys.argv[1:]
    pairs = dict(setting.split("=", 1) for setting in settings)
    fill(bootstrap, topic, codec, int(total_bytes), int(mean_size), int(partitions), int(batch), pairs)
