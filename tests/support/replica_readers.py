"""Kafka clients that were not written here, each reading partitions of a topic from start to end."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.support.checkout import ROOT
from tests.support.golden import Case, answers, tiered_offsets
from tests.support.servers import find_program

CLIENTS = ROOT / "tests" / "interop" / "clients"
DEADLINE_SECONDS = 90.0

#: partition, offset, timestamp ms, key, value (digest above 4096 bytes), headers by name and value
ReadRow = tuple[int, int, int, bytes | None, bytes | str | None, tuple[tuple[bytes, bytes | None], ...]]
#: (bootstrap, topic, isolation, partitions) -> rows, by partition and offset
Reader = Callable[[str, str, str, Sequence[int]], list[ReadRow]]


def row(
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[bytes, bytes | None]],
) -> ReadRow:
    digest = value if value is None or len(value) <= 4096 else f"{len(value)}:{hashlib.sha256(value).hexdigest()}"
    return partition, offset, timestamp_ms, key, digest, tuple(headers)


def confluent(bootstrap: str, topic: str, isolation: str, partitions: Sequence[int]) -> list[ReadRow]:
    """By librdkafka."""
    from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
        }
    )
    rows: list[ReadRow] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(20)
            assert message is not None, f"nothing came for 20 s; partitions {left} have not ended"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
                continue
            kind, at = message.timestamp()
            headers = [(name.encode(), value) for name, value in message.headers() or []]
            timestamp_ms = -1 if kind == TIMESTAMP_NOT_AVAILABLE else at
            rows.append(
                row(message.partition(), message.offset(), timestamp_ms, message.key(), message.value(), headers)
            )
    finally:
        consumer.close()
    return sorted(rows)


def kafka_python(bootstrap: str, topic: str, isolation: str, partitions: Sequence[int]) -> list[ReadRow]:
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    try:
        assigned = [kafka.TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        consumer.seek_to_beginning()
        rows: list[ReadRow] = []
        while any(consumer.position(each) < ends[each] for each in assigned):
            for records in consumer.poll(timeout_ms=500).values():
                for r in records:
                    headers = [(name.encode(), value) for name, value in r.headers]
                    rows.append(row(r.partition, r.offset, r.timestamp, r.key, r.value, headers))
    finally:
        consumer.close()
    return sorted(each for each in rows)


def aiokafka(bootstrap: str, topic: str, isolation: str, partitions: Sequence[int]) -> list[ReadRow]:
    library = pytest.importorskip("aiokafka")

    async def read() -> list[ReadRow]:
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        try:
            assigned = [library.TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            ends = await consumer.end_offsets(assigned)
            await consumer.seek_to_beginning()
            rows: list[ReadRow] = []
            while True:
                positions = [(await consumer.position(each), ends[each]) for each in assigned]
                if all(at >= end for at, end in positions):
                    return rows
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for r in records:
                        headers = [(name.encode(), value) for name, value in r.headers]
                        rows.append(row(r.partition, r.offset, r.timestamp, r.key, r.value, headers))
        finally:
            await consumer.stop()

    async def bounded() -> list[ReadRow]:
        return await asyncio.wait_for(read(), DEADLINE_SECONDS)

    return sorted(asyncio.run(bounded()))


def kcat(bootstrap: str, topic: str, isolation: str, partitions: Sequence[int]) -> list[ReadRow]:
    """kcat; headers are left out, since it shows them as text."""
    program = find_program("kcat", "apt-get install kcat")
    rows: list[ReadRow] = []
    for partition in partitions:
        settings = ["-X", f"isolation.level={isolation}", "-X", "fetch.wait.max.ms=100", "-X", "check.crcs=true"]
        where = ["-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning"]
        command = [program, "-C", "-q", "-e", *where, *settings, "-f", "%p %o %T %K %S\\n%k%s\\n"]
        found = subprocess.run(command, capture_output=True, check=False, timeout=DEADLINE_SECONDS)
        assert found.returncode == 0, found.stderr.decode(errors="replace")[-2000:]
        rows += _kcat_rows(found.stdout)
    return sorted(rows)


def _kcat_rows(data: bytes) -> Iterable[ReadRow]:
    at = 0
    while at < len(data):
        line, _, _ = data[at : at + 200].partition(b"\n")
        partition, offset, timestamp_ms, key_size, value_size = map(int, line.split())
        at += len(line) + 1
        key = None if key_size < 0 else data[at : at + key_size]
        at += max(key_size, 0)
        value = None if value_size < 0 else data[at : at + value_size]
        at += max(value_size, 0) + 1
        yield row(partition, offset, timestamp_ms, key, value, ())


def _lines(command: list[str], *, folder: pathlib.Path) -> list[ReadRow]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS + 60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return rows_of_lines(done.stdout)


def rows_of_lines(text: str) -> list[ReadRow]:
    """Rows, by partition and offset, of what the readers in other languages print: a JSON object a line."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    rows = []
    for line in text.splitlines():
        found = json.loads(line)
        headers = [(raw(name) or b"", raw(value)) for name, value in found["headers"]]
        key, value = raw(found["key"]), raw(found["value"])
        rows.append(row(found["partition"], found["offset"], found["timestamp"], key, value, headers))
    return sorted(rows)


def go_reader(name: str) -> Reader:
    """A client of Go's, by the folder of its program."""

    def read(bootstrap: str, topic: str, isolation: str, partitions: Sequence[int]) -> list[ReadRow]:
        go = find_program("go", "Go 1.26 or newer")
        program = ROOT / ".venv" / "interop" / "bin" / f"replica-reader-{name}"
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "build", "-o", str(program), f"./{name}"], cwd=CLIENTS, check=True)
        return _lines([str(program), bootstrap, topic, isolation, json.dumps(list(partitions))], folder=CLIENTS)

    return read


READERS: dict[str, Reader] = {
    "librdkafka": confluent,
    "kcat": kcat,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "franz-go": go_reader("franz"),
    "sarama": go_reader("sarama"),
    "kafka-go": go_reader("segmentio"),
}


def expected_rows(case: Case, isolation: str, *, with_headers: bool = True) -> list[ReadRow] | None:
    """What a real consumer read of a topic, as far as its bucket can answer; None if there is no answer."""
    rows = answers(case, isolation)
    if rows is None:
        return None
    return sorted(
        (
            partition,
            offset,
            timestamp_ms,
            key,
            value,
            tuple((name.encode(), content) for name, content in headers) if with_headers else (),
        )
        for partition, offset, timestamp_ms, _, _, key, value, headers in rows
    )


def within(case: Case, rows: list[ReadRow], expected: list[ReadRow]) -> list[ReadRow]:
    """Of the rows read those of offsets that the golden answers cover: see ``answers``."""
    ends: dict[int, int] = {}
    for partition, (_, last) in tiered_offsets(case).items():
        known = [row[1] for row in expected if row[0] == partition]
        ends[partition] = max(known, default=-1) if known else last
    return [row for row in rows if row[1] <= ends.get(row[0], -1)]


def plain_text(decoded: str) -> str:
    """Text that was decoded from any bytes, as all decoders tell of it: Java marks bad ones less often than Python."""
    return re.sub("\ufffd+", "\ufffd", decoded)


def by_kafka_go(rows: list[ReadRow], case: Case, isolation: str) -> list[ReadRow]:
    """Rows as far as kafka-go 0.4 tells of them: see the table of docs/replica.md.

    Transaction markers are records to kafka-go, and so are aborted ones; empty bytes are null; the time of a batch that
    the broker stamped is passed over for that of the producer.
    """
    kinds = {(partition, offset): kind for partition, offset, _, kind, *_ in answers(case, isolation) or ()}
    return [
        (
            partition,
            offset,
            0 if kinds[partition, offset] == "LogAppendTime" else timestamp_ms,
            key or None,
            value or None,
            tuple((name, content or None) for name, content in headers),
        )
        for partition, offset, timestamp_ms, key, value, headers in rows
        if (partition, offset) in kinds
    ]
