"""A compacted topic between ours and a real broker: each compacts on what the other compacted."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable

import pytest

from tests.interop.test_local_log_broker import MENDED, WAIT_SECONDS, consumed, eventually_leads, said
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.peers import broker
from tierlog.log.formats.checkpoints import parse_offset_checkpoint
from tierlog.log.local.log_config import CleanerConfig, LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.upkeep import verify

pytestmark = pytest.mark.interop

TOPIC = "compacted"
KEYS = 40
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",
}
BROKER = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "2"}
CLEANER = CleanerConfig(log_cleaner_backoff_ms=50, log_cleaner_threads=2)


def eventually(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def checkpoint(log_dir: pathlib.Path) -> int:
    path = log_dir / "cleaner-offset-checkpoint"
    return parse_offset_checkpoint(path.read_bytes()).get((TOPIC, 0), 0) if path.exists() else 0


class Told:
    """What was committed: the last value of each key, None for a tombstone."""

    def __init__(self) -> None:
        self.latest: dict[str, str | None] = {}
        self.count = 0

    def next(self) -> tuple[str, str | None]:
        self.count += 1
        value = None if self.count % 23 == 0 else f"{self.count}-" + "v" * (self.count * 37 % 200)
        return f"key-{self.count * 7919 % KEYS}", value

    def check(self, bootstrap: str) -> list[int]:
        """The latest of each key, as a consumer of committed records sees them; the offsets that it saw."""
        rows = consumed(bootstrap, TOPIC, "read_committed")
        seen = {str(row[1]): row[2] for row in rows}
        assert seen == self.latest
        return [row[0] for row in rows]


def produce(bootstrap: str, told: Told, rounds: int) -> None:
    """Records of three transactional producers, and of one without; one transaction in three is aborted."""
    from confluent_kafka import Producer

    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "compression.type": "lz4"})
    producers = []
    for number in range(3):
        producers.append(Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{number}"}))
        producers[-1].init_transactions(30)
    for turn in range(rounds):
        for producer in producers:
            producer.begin_transaction()
        pending: list[dict[str, str | None]] = []
        for number, producer in enumerate(producers):
            records = [told.next() for _ in range(5)]
            for key, value in records:
                producer.produce(TOPIC, value, key)
            producer.flush(30)
            is_aborted = (turn + number) % 3 == 0
            pending.append({} if is_aborted else dict(records))
            producer.abort_transaction(30) if is_aborted else producer.commit_transaction(30)
        for records_of in pending:
            told.latest |= records_of
        key, value = told.next()
        plain.produce(TOPIC, value, key)
        assert plain.flush(30) == 0
        told.latest[key] = value


def append(log: UnifiedLog, told: Told, batches: int) -> None:
    latest = log.leader_epoch_cache.latest_entry
    assert latest is not None
    epoch = latest.epoch
    for number in range(batches):
        builder = RecordBatchBuilder(0, codec="zstd" if number % 2 else "none")
        for _ in range(4):
            key, value = told.next()
            told.latest[key] = value
            content = None if value is None else value.encode()
            builder.append(key.encode(), content, timestamp_ms=int(time.time() * 1000))
        log.append_as_leader(bytearray(builder.build()), leader_epoch=epoch)


def test_each_compacts_on(tmp_path: pathlib.Path) -> None:
    """If this fails, a broker resets what we compacted, reads it wrong, or we do so with what it compacted."""
    from confluent_kafka.admin import NewTopic

    needs_a_broker()
    folder, told, port = tmp_path / "broker", Told(), broker.free_port()
    with broker.running(folder, heap="512m", port=port, jars="kafka-log", extra=BROKER) as started:
        admin = admin_of(started.bootstrap)
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)])[TOPIC].result(30)
        eventually_leads(started.bootstrap)
        produce(started.bootstrap, told, 60)
        eventually(lambda: checkpoint(started.log_dir) > 500, "the broker's cleaner has not cleaned")
        told.check(started.bootstrap)
    theirs = checkpoint(folder / "logs")
    config = LogConfig.from_kafka(SETTINGS)
    with LogDirectory.open(str(folder / "logs"), config=config, cleaner_config=CLEANER) as directory:
        log = directory.log(TOPIC, 0)
        manager = directory.cleaner_manager
        assert manager.cleaner_offset((TOPIC, 0)) == theirs
        append(log, told, 150)
        base = log.active_segment.base_offset
        eventually(lambda: (manager.cleaner_offset((TOPIC, 0)) or 0) >= base, "ours has not cleaned")
        assert not manager.uncleanable
    ours = checkpoint(folder / "logs")
    assert ours > theirs
    with broker.running(folder, heap="512m", port=port, jars="kafka-log", extra=BROKER) as started:
        eventually_leads(started.bootstrap)
        offsets = told.check(started.bootstrap)
        assert len(offsets) < told.count / 3
        produce(started.bootstrap, told, 40)
        eventually(lambda: checkpoint(started.log_dir) > ours, "the broker's cleaner does not go on")
        told.check(started.bootstrap)
    lines = said(folder, [TOPIC])
    assert not [line for line in lines if MENDED.search(line) and not re.search(r"Deleting segment|Deleted", line)]
    assert not [line for line in lines if "Resetting first dirty offset" in line or "uncleanable" in line]
    with LogDirectory.open(str(folder / "logs"), config=config, runs_tasks=False) as directory:
        assert directory.cleaner_manager.cleaner_offset((TOPIC, 0)) == checkpoint(folder / "logs")
    result = verify(str(folder / "logs"), TOPIC)
    assert (result.faults, result.errors) == (0, 0), result.findings
