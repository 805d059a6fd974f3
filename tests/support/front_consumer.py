"""A member of a group that writes down what it gets, until it is killed: ``python -m tests.support.front_consumer``.

Lines of its file: ``assigned`` for each assignment, and ``PARTITION OFFSET HASH`` for each record, before its commit.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from confluent_kafka import Consumer

from tests.support.front_cluster import digest


def main(bootstrap: str, topic: str, group: str, isolation: str, path: str) -> None:
    """Consume for ever."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "max.partition.fetch.bytes": 200_000,
        }
    )
    with pathlib.Path(path).open("a") as out:

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


if __name__ == "__main__":
    main(*sys.argv[1:])
