"""A member of a group that writes down what it gets, until it is killed:
``python -m tests.support.front_consumer LIBRARY BOOTSTRAP TOPIC GROUP ISOLATION FILE``.

Lines of its file: ``assigned`` for each assignment, and ``PARTITION OFFSET HASH`` for each record, before its commit.
A library whose consumer gives up, as applications' do when their broker goes, gets another one.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
import time
from typing import IO, Any

from tests.support.front_cluster import digest, digest_of

FETCH_BYTES = 200_000
SESSION_MS = 6000


def librdkafka(bootstrap: str, topic: str, group: str, isolation: str, out: IO[str]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
    )

    def assigned(_consumer: Any, _partitions: Any) -> None:
        out.write("assigned\n")

    consumer.subscribe([topic], on_assign=assigned)
    while True:
        count = 0
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                out.write(f"{message.partition()} {message.offset()} {digest(message)}\n")
                count += 1
        out.flush()
        if count:
            consumer.commit(asynchronous=True)


def kafka_python(bootstrap: str, topic: str, group: str, isolation: str, out: IO[str]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            """Keep no offset: the consumer commits behind each poll."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            out.write("assigned\n")

    while True:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=2000,
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        out.write("assigned\n")
        try:
            consumer.subscribe([topic], listener=Listener())
            while True:
                found = consumer.poll(timeout_ms=500)
                for records in found.values():
                    _write(records, out)
                out.flush()
                if found:
                    consumer.commit_async()
        except KafkaError as error:
            print(repr(error), file=sys.stderr)
            time.sleep(0.5)
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)


def aiokafka(bootstrap: str, topic: str, group: str, isolation: str, out: IO[str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            """Keep no offset: the consumer commits behind each poll."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            out.write("assigned\n")

    async def consume(consumer: Any) -> None:
        consumer.subscribe([topic], listener=Listener())
        while True:
            found = await consumer.getmany(timeout_ms=500)
            for records in found.values():
                _write(records, out)
            out.flush()
            if found:
                await consumer.commit()

    async def run() -> None:
        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                isolation_level=isolation,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=2000,
                max_partition_fetch_bytes=FETCH_BYTES,
            )
            out.write("assigned\n")
            try:
                await consumer.start()
                await consume(consumer)
            except KafkaError as error:
                print(repr(error), file=sys.stderr)
                await asyncio.sleep(0.5)
            finally:
                await consumer.stop()

    asyncio.run(run())


def _write(records: Any, out: IO[str]) -> None:
    for each in records:
        shown = digest_of(each.key, each.value, each.headers, (each.timestamp_type + 1, each.timestamp))
        out.write(f"{each.partition} {each.offset} {shown}\n")


LIBRARIES = {each.__name__: each for each in (librdkafka, kafka_python, aiokafka)}

if __name__ == "__main__":
    library, *arguments, path = sys.argv[1:]
    with pathlib.Path(path).open("a") as file:
        bootstrap, topic, group, isolation = arguments
        LIBRARIES[library](bootstrap, topic, group, isolation, file)
