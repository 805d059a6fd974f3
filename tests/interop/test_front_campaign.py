"""A live cluster behind a front, by seeds: transactions, groups that begin at the start, and whatever dies meanwhile.

``TIERLOG_FRONT_SEEDS=60`` runs so many.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.broker_pair import BEGINS, STAYS, BrokerPair
from tests.support.checkout import ROOT
from tests.support.front_cluster import LEVELS, Front, Records, digest_of, records_of
from tests.support.fronts import free_ports
from tests.support.metadata_cluster import admin_of, needs_a_broker, tiered_broker
from tests.support.replica_server import free_port, replica
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

SEEDS = range(int(os.environ.get("TIERLOG_FRONT_SEEDS", "3")))
PARTITIONS = 2
STEPS = 5
#: A member of a group that was killed holds its partitions for the time of its session.
MEMBER_SECONDS = 90.0
#: A step has one; a front dies twice as often.
FAULTS = ("front", "broker", "front", "consumer", "leader", "stall", "none")


@dataclass
class Behind:
    """Two brokers, and a front before them that a test kills."""

    pair: BrokerPair
    tier: pathlib.Path
    folder: pathlib.Path
    port: int = field(default_factory=free_port)
    ports: range = field(default_factory=lambda: free_ports(3))
    monitor: int = field(default_factory=free_port)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    front: Front | None = None

    def start(self) -> Front:
        upstream = ",".join(self.pair.bootstrap(node) for node in (STAYS, BEGINS))
        command = ["--upstream", upstream, "--advertise", f"127.0.0.1:{self.ports[0]}-{self.ports[-1]}"]
        command += ["--monitor", f"127.0.0.1:{self.monitor}", "--refresh", "0.5"]
        running = self.stack.enter_context(replica(self.tier, self.folder, *command, port=self.port))
        self.front = Front(running, f"127.0.0.1:{self.monitor}")
        return self.front

    def kill(self) -> None:
        """End the front without a word, and start another in its place."""
        assert self.front is not None
        self.front.running.process.kill()
        self.front.running.process.wait()
        self.stack.close()
        self.start()

    def make(self, topic: str) -> None:
        from confluent_kafka.admin import NewTopic

        config = {"internal.segment.bytes": str(1 << 18), "local.retention.bytes": "1", "remote.storage.enable": "true"}
        orders = [[BEGINS, STAYS], [STAYS, BEGINS]]
        admin = admin_of(self.pair.bootstrap(STAYS))
        new = NewTopic(topic, PARTITIONS, replica_assignment=orders, config=config)
        with contextlib.suppress(Exception):  # whether it is there is seen next
            admin.create_topics([new])[topic].result(60)
        wait_until(lambda: topic in admin.list_topics(timeout=30).topics)

    def elect(self, topic: str) -> None:
        from confluent_kafka import ElectionType, TopicPartition

        admin = admin_of(self.pair.bootstrap(STAYS))
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(60)


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    needs_a_broker()
    folder = tmp_path_factory.mktemp("campaign")
    tier = folder / "tier"
    tier.mkdir()
    pair = BrokerPair(folder, lambda _: tiered_broker(tier))
    made = Behind(pair, tier, folder)
    try:
        pair.start_both()
        made.make("first")
        write(pair.bootstrap(STAYS), "first", 1500)
        wait_until(lambda: any(tier.rglob("*.log")))
        made.start()
        yield made
        made.stack.close()
    finally:
        pair.close()


def write(bootstrap: str, topic: str, count: int) -> None:
    """Fill a topic with plain records."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.size": 100_000})
    for number in range(count):
        producer.produce(topic, b"%d" % number * 1000, b"%d" % number, number % PARTITIONS)
    assert producer.flush(60) == 0


class Writer:
    """A transactional producer behind the front, and what was acknowledged to it.

    Attributes:
        committed: (partition, hash) of the records of transactions that were committed, as they were given to the
            producer. What it is told of them is not taken: where a request was sent twice, for its answer was lost,
            a broker answers with the first one's time as if the topic took the time of appending, and the report
            has that type of timestamp; or it has no offset.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._bootstrap, self._topic, self._chance = bootstrap, topic, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed: set[tuple[int, str]] = set()
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                number = self._write(number)
        except Exception as error:  # noqa: BLE001 - ``stop`` raises it
            self.error = error

    def _write(self, number: int) -> int:
        """Transactions until one fails for good, or the end."""
        from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaException, Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"writer-{self._topic}",
                "transaction.timeout.ms": 30_000,
                "linger.ms": 2,
                "batch.size": 100_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        try:
            producer.init_transactions(60)
            while not self._stop.is_set():
                sent: set[tuple[int, str]] = set()
                failed: list[Any] = []

                def delivered(error: Any, _message: Any, failed: list[Any] = failed) -> None:
                    if error is not None:
                        failed.append(error)

                producer.begin_transaction()
                for _ in range(20):
                    key, value = b"%d" % number, self._chance.randbytes(self._chance.choice((10, 3000, 12_000)))
                    partition, now_ms = number % PARTITIONS, time.time_ns() // 1_000_000
                    producer.produce(self._topic, value, key, partition, timestamp=now_ms, on_delivery=delivered)
                    sent.add((partition, digest_of(key, value, None, (TIMESTAMP_CREATE_TIME, now_ms))))
                    number += 1
                is_abort = self._chance.random() < 0.3
                if is_abort:
                    producer.flush(60)
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                    assert not failed
                    self.committed |= sent
        except KafkaException:
            time.sleep(0.2)  # by a leader that went: another producer takes its place, and fences it
        return number + 1000


class Member:
    """A member of a group in a process of its own, which is killed and begun again."""

    def __init__(self, bootstrap: str, topic: str, isolation: str, folder: pathlib.Path) -> None:
        self.isolation, self._folder = isolation, folder
        self._arguments = [bootstrap, topic, f"{topic}-{isolation}", isolation]
        self._files: list[pathlib.Path] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = self._folder / f"{self.isolation}-{len(self._files)}"
        path.touch()
        self._files.append(path)
        command = [sys.executable, "-m", "tests.support.front_consumer", *self._arguments, str(path)]
        with (self._folder / "members.err").open("ab") as err:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=err, stderr=err)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def got(self) -> Records:
        """All that it got in all its lives, of which no record came twice in one assignment."""
        found: Records = {}
        for path in self._files:
            seen: dict[int, int] = {}
            for line in path.read_text().splitlines():
                words = line.split()
                if words == ["assigned"]:
                    seen = {}
                elif len(words) == 3 and len(words[2]) == 32:  # else its process was killed in the midst of the line
                    partition, offset = int(words[0]), int(words[1])
                    assert offset > seen.get(partition, -1), f"{partition}-{offset} came twice, or out of order"
                    seen[partition] = offset
                    before = found.setdefault((partition, offset), words[2])
                    assert before == words[2], f"{partition}-{offset} was another record before"
        return found


def differences(found: Records, wanted: Records) -> str:
    """What is not as it is wanted; "" for nothing."""
    lost, made_up = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    changed = sorted(place for place in found.keys() & wanted.keys() if found[place] != wanted[place])
    told = {"lost": lost, "made up": made_up, "changed": changed}
    return ", ".join(f"{len(each)} {name}, {each[0]} to {each[-1]}" for name, each in told.items() if each)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_whatever_dies(behind: Behind, tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, a death, a new leader or the moving border has a record lost, doubled or made up."""
    chance, topic = random.Random(seed), f"seed-{seed}"
    behind.make(topic)
    assert behind.front is not None
    bootstrap = behind.front.bootstrap
    writer = Writer(bootstrap, topic, seed)
    members = [Member(bootstrap, topic, isolation, tmp_path) for isolation in LEVELS]
    told, from_tier = [], 0.0
    writer.start()
    try:
        time.sleep(4)
        for member in members:
            member.start()
        for _ in range(STEPS):
            fault = chance.choice(FAULTS)
            told.append(fault)
            if fault == "front":
                from_tier += behind.front.bytes_from("tier")
                behind.kill()
            elif fault == "consumer":
                member = chance.choice(members)
                member.kill()
                time.sleep(chance.uniform(0, 2))
                member.start()
            elif fault == "broker":
                behind.pair.kill(BEGINS)
                time.sleep(chance.uniform(0, 5))
                behind.pair.start(BEGINS)
            elif fault == "stall":
                with behind.pair.standing_still():
                    time.sleep(chance.uniform(1, 6))
            elif fault == "leader":
                with contextlib.suppress(Exception):  # nothing to elect, or no leader there
                    behind.elect(topic)
            time.sleep(chance.uniform(0.5, 4))
        wait_until(lambda: len(writer.committed) > 150)  # it goes on behind the last fault
        writer.stop()
        direct = behind.pair.bootstrap(STAYS)
        until = time.monotonic() + MEMBER_SECONDS
        while True:  # a transaction is committed before its markers are there, which wait for their leaders
            wanted = {level: records_of(direct, topic, PARTITIONS, isolation=level) for level in LEVELS}
            there = [(partition, shown) for (partition, _), shown in wanted["read_committed"].items()]
            lost = writer.committed - set(there)
            if not lost or time.monotonic() > until:
                break
        written = {(partition, shown) for (partition, _), shown in wanted["read_uncommitted"].items()}
        assert not lost, (told, f"{len(lost)} acknowledged records are lost, {len(lost & written)} of them uncommitted")
        assert len(there) == len(set(there)), (told, "a record was written twice")
        for level in LEVELS:
            assert differences(records_of(bootstrap, topic, PARTITIONS, isolation=level), wanted[level]) == "", told
        for member in members:
            until = time.monotonic() + MEMBER_SECONDS
            while (difference := differences(member.got(), wanted[member.isolation])) and time.monotonic() < until:
                time.sleep(0.5)
            assert difference == "", (told, member.isolation)
        assert from_tier + behind.front.bytes_from("tier") > 0, told
    finally:
        for member in members:
            member.kill()
