"""Python's Kafka clients over one segment in memory, each the way its own consumer reads a fetched batch.

Run by the peers' interpreter; prints a JSON line a run. ``check`` is the sum of offsets, key and value sizes: equal over
all peers, or the times do not count.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable


def aiokafka(data: bytes) -> tuple[int, int]:
    from aiokafka.record.memory_records import MemoryRecords

    records = check = 0
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("CRC")
        for record in batch:
            records += 1
            check += record.offset + len(record.key or b"") + len(record.value or b"")
    return records, check


def kafka_python(data: bytes) -> tuple[int, int]:
    from kafka.record.memory_records import MemoryRecords

    records = check = 0
    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("CRC")
        for record in batch:
            records += 1
            check += record.offset + len(record.key or b"") + len(record.value or b"")
    return records, check


PEERS: dict[str, Callable[[bytes], tuple[int, int]]] = {"aiokafka": aiokafka, "kafka-python": kafka_python}


def confluent(bootstrap: str, topic: str, runs: int) -> None:
    """The whole of partition 0 through the real consumer: it has no decoder that takes bytes."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    for _ in range(runs):
        consumer = Consumer(settings)
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0))
        consumer.assign([TopicPartition(topic, 0, low)])
        start = time.perf_counter()
        records = check = size = 0
        while records < high - low:
            for message in consumer.consume(10_000, 1.0):
                records += 1
                key, value = message.key() or b"", message.value() or b""
                check += message.offset() + len(key) + len(value)
                size += len(key) + len(value)
        seconds = time.perf_counter() - start
        consumer.close()
        print(json.dumps({"peer": "confluent-kafka", "records": records, "seconds": seconds, "check": check, "bytes": size}))


def main() -> None:
    if sys.argv[1] == "confluent":
        return confluent(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    data, runs = pathlib.Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    for name, decode in PEERS.items():
        for _ in range(runs):
            start = time.perf_counter()
            records, check = decode(data)
            seconds = time.perf_counter() - start
            print(json.dumps({"peer": name, "records": records, "seconds": seconds, "check": check}), flush=True)


if __name__ == "__main__":
    main()
