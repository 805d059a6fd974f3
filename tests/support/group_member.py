"""A consumer in a group, as a process: reads, commits, and says so in lines of JSON until SIGTERM.

    python -m tests.support.group_member LIBRARY BOOTSTRAP TOPIC GROUP SESSION_MS [INSTANCE]

``{"assigned": [0, 1]}`` when it has other partitions; ``{"committed": {"0": 17}}`` when a commit was answered.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

HEARTBEAT_MS = 500


def say(**entry: object) -> None:
    print(json.dumps(entry), flush=True)


class Stop:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.has_come = False
        signal.signal(signal.SIGTERM, self._come)

    def _come(self, *_: object) -> None:
        self.has_come = True


def told(committed: Mapping[int, int]) -> None:
    say(committed={str(partition): offset for partition, offset in committed.items()})


def confluent(bootstrap: str, topic: str, group: str, session_ms: int, instance: str, stop: Stop) -> None:
    from confluent_kafka import Consumer, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "reconnect.backoff.max.ms": 500,
    }
    if instance:
        config["group.instance.id"] = instance
    consumer = Consumer(config)
    consumer.subscribe([topic], on_assign=lambda _, parts: say(assigned=[each.partition for each in parts]))
    while not stop.has_come:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        try:
            answered = consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            say(error=str(error))
            continue
        told({each.partition: each.offset for each in answered or [] if each.error is None})
    consumer.close()


def kafka_python(bootstrap: str, topic: str, group: str, session_ms: int, instance: str, stop: Stop) -> None:
    import kafka
    from kafka.errors import KafkaError

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(each.partition for each in assigned))

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance or None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=5,
    )
    consumer.subscribe([topic], listener=Listener())
    while not stop.has_come:
        found = consumer.poll(timeout_ms=100)
        if not found:
            continue
        try:
            consumer.commit()
        except KafkaError as error:
            say(error=repr(error))
            continue
        told({each.partition: records[-1].offset + 1 for each, records in found.items()})
    consumer.close()


def aiokafka(bootstrap: str, topic: str, group: str, session_ms: int, instance: str, stop: Stop) -> None:
    import aiokafka as library
    from aiokafka.errors import KafkaError

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(each.partition for each in assigned))

    async def read() -> None:
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=5,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not stop.has_come:
            found = await consumer.getmany(timeout_ms=100)
            if not found:
                continue
            offsets = {each: records[-1].offset + 1 for each, records in found.items()}
            try:
                await consumer.commit(offsets)
            except KafkaError as error:
                say(error=repr(error))
                continue
            told({each.partition: offset for each, offset in offsets.items()})
        await consumer.stop()

    asyncio.run(read())


LIBRARIES: dict[str, Callable[[str, str, str, int, str, Stop], None]] = {
    "confluent": confluent,
    "kafka_python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    library, bootstrap, topic, group, session_ms, *rest = sys.argv[1:]
    LIBRARIES[library](bootstrap, topic, group, int(session_ms), rest[0] if rest else "", Stop())
