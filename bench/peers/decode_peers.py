"""Python's Kafka clients over one log, each the way its own consumer reads a fetched batch.

Run by the peers' interpreter; for each line of stdin one round, and a JSON line with its records, seconds and
``check``: the sum of offsets, key and value sizes, equal over all peers, or the times do not count.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable

Answer = tuple[int, int]


def aiokafka(path: str) -> Callable[[], Answer]:
    from aiokafka.record.memory_records import MemoryRecords

    return _in_memory(pathlib.Path(path).read_bytes(), MemoryRecords)


def kafka_python(path: str) -> Callable[[], Answer]:
    from kafka.record.memory_records import MemoryRecords

    return _in_memory(pathlib.Path(path).read_bytes(), MemoryRecords)


def _in_memory(data: bytes, memory_records: Callable[..., object]) -> Callable[[], Answer]:
    """Both clients have the same interface, which one of them took over from the other."""

    def run() -> Answer:
        records = check = 0
        batches = memory_records(data)
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("CRC")
            for record in batch:
                records += 1
                check += record.offset + len(record.key or b"") + len(record.value or b"")
        return records, check

    return run


def confluent(bootstrap: str, topic: str) -> Callable[[], Answer]:
    """The whole of partition 0 through the real consumer: it has no decoder that takes bytes."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer(settings)  # connected once: rounds are of reading alone
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0))

    def run() -> Answer:
        consumer.assign([TopicPartition(topic, 0, low)])
        records = check = 0
        while records < high - low:
            # Never more than there are: consume() waits for as many as it was asked for.
            for message in consumer.consume(min(10_000, high - low - records), 1.0):
                if message.error():
                    raise RuntimeError(str(message.error()))
                records += 1
                check += message.offset() + len(message.key() or b"") + len(message.value() or b"")
        consumer.unassign()
        return records, check

    return run


PEERS = {"aiokafka": aiokafka, "kafka-python": kafka_python, "confluent-kafka": confluent}


def main() -> None:
    run = PEERS[sys.argv[1]](*sys.argv[2:])
    for _ in sys.stdin:
        start = time.perf_counter()
        records, check = run()
        seconds = time.perf_counter() - start
        print(json.dumps({"records": records, "seconds": seconds, "check": check}), flush=True)


if __name__ == "__main__":
    main()
