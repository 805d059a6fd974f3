"""Two brokers behind two fronts, the producers and consumers behind these, and what is done to all of them."""

from __future__ import annotations

import contextlib
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.support.broker_pair import BEGINS, STAYS, BrokerPair
from tests.support.checkout import ROOT
from tests.support.fault_proxy import FaultProxy
from tests.support.front_cluster import LEVELS, Front, Records, digest_of, records_of
from tests.support.front_consumer import LIBRARIES
from tests.support.fronts import free_ports
from tests.support.metadata_cluster import admin_of
from tests.support.peers import install
from tests.support.replica_readers import CLIENTS
from tests.support.replica_server import free_port, replica
from tests.support.waiting import wait_until

PARTITIONS = 2
#: Of a producer that waits for no transaction: readers have to catch up with it.
_PAUSE_SECONDS = 0.1
#: The clients that are members of groups.
CONSUMERS = (*LIBRARIES, "java")


@dataclass
class FrontProcess:
    """A front that is killed and begun again at the same place."""

    tier: Tier
    upstream: str
    folder: pathlib.Path
    port: int = field(default_factory=free_port)
    ports: range = field(default_factory=lambda: free_ports(3))
    monitor: int = field(default_factory=free_port)
    stack: ExitStack = field(default_factory=ExitStack)
    front: Front | None = None
    fetched: float = 0.0

    def start(self) -> None:
        command = ["--upstream", self.upstream, "--advertise", f"127.0.0.1:{self.ports[0]}-{self.ports[-1]}"]
        command += ["--monitor", f"127.0.0.1:{self.monitor}", "--refresh", "0.5"]
        made = replica(self.tier.path, self.folder, *command, port=self.port, config=self.tier.config)
        self.front = Front(self.stack.enter_context(made), f"127.0.0.1:{self.monitor}")

    def kill(self) -> None:
        """End it without a word."""
        assert self.front is not None
        self.fetched = self.bytes_from_tier()
        self.front.running.process.kill()
        self.front.running.process.wait()
        self.stack.close()
        self.front = None

    def bytes_from_tier(self) -> float:
        """Return the bytes of records that the front gave from the tier since its first start."""
        return self.fetched + (0.0 if self.front is None else self.front.bytes_from("tier"))


@dataclass(frozen=True)
class Tier:
    """Where brokers tier to.

    Args:
        name: Of its kind.
        path: As the fronts have it.
        config: Of the fronts.
        broker_keys: Of each broker.
        proxy: In front of the store, for the fronts alone; None: it cannot stall.
    """

    name: str
    path: str
    config: Mapping[str, str]
    broker_keys: Callable[[int], Mapping[str, str]]
    proxy: FaultProxy | None = None


class Behind:
    """The cluster and its fronts."""

    def __init__(self, folder: pathlib.Path, tier: Tier) -> None:
        self.tier = tier
        self.pair = BrokerPair(folder, tier.broker_keys)
        upstream = ",".join(self.pair.bootstrap(node) for node in (STAYS, BEGINS))
        self.fronts = []
        for name in ("front-a", "front-b"):
            (folder / name).mkdir()
            self.fronts.append(FrontProcess(tier, upstream, folder / name))

    def start(self) -> None:
        """Start it all, and wait until the tier has something."""
        self.pair.start_both()
        self.make("first")
        write(self.direct, "first", 3000)
        wait_until(lambda: self.local_start("first") > 0)
        for each in self.fronts:
            each.start()

    def close(self) -> None:
        try:
            for each in self.fronts:
                each.stack.close()
        finally:
            self.pair.close()

    @property
    def direct(self) -> str:
        return self.pair.bootstrap(STAYS)

    @property
    def bootstrap(self) -> str:
        """Both fronts."""
        return ",".join(f"127.0.0.1:{each.port}" for each in self.fronts)

    def bytes_from_tier(self) -> float:
        return sum(each.bytes_from_tier() for each in self.fronts)

    def local_start(self, topic: str, partition: int = 0) -> int:
        """Return the first offset on the first broker's disk, by its oldest segment."""
        folder = self.pair.log_dir(STAYS) / f"{topic}-{partition}"
        return min((int(path.stem) for path in folder.glob("*.log")), default=0)

    def make(self, topic: str) -> None:
        from confluent_kafka.admin import NewTopic

        config = {"segment.bytes": str(1 << 20), "local.retention.ms": "2000", "remote.storage.enable": "true"}
        orders = [[BEGINS, STAYS], [STAYS, BEGINS]]
        admin = admin_of(self.direct)
        new = NewTopic(topic, PARTITIONS, replica_assignment=orders, config=config)
        with contextlib.suppress(Exception):  # whether it is there is seen next
            admin.create_topics([new])[topic].result(60)
        wait_until(lambda: topic in admin.list_topics(timeout=30).topics)

    def elect(self, topic: str) -> None:
        """Have the preferred replicas lead."""
        from confluent_kafka import ElectionType, TopicPartition

        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        with contextlib.suppress(Exception):  # nothing to elect, or no leader there
            admin_of(self.direct).elect_leaders(ElectionType.PREFERRED, partitions).result(60)

    def retain(self, topic: str, chance: random.Random) -> dict[str, Records]:
        """Delete the oldest records, past whoever reads them, through a front or beside it; what went, by level.

        Nothing is deleted where a broker is away.
        """
        from confluent_kafka import KafkaException, TopicPartition

        there = {level: records_of(self.direct, topic, PARTITIONS, isolation=level) for level in LEVELS}
        starts = {}
        for partition in range(PARTITIONS):
            offsets = sorted(offset for number, offset in there["read_committed"] if number == partition)
            if offsets:
                starts[partition] = chance.choice(offsets[: len(offsets) * 3 // 4 + 1])
        admin = admin_of(chance.choice((self.direct, self.bootstrap)))
        asked = admin.delete_records([TopicPartition(topic, number, at) for number, at in starts.items()])
        for each, answer in asked.items():
            try:
                answer.result(60)
            except KafkaException:
                # Nobody knows whether it was done: what is there says so in the end.
                print(f"{each.topic}-{each.partition}: may not have been deleted", file=sys.stderr)
        return {
            level: {place: shown for place, shown in records.items() if place[1] < starts.get(place[0], 0)}
            for level, records in there.items()
        }

    @contextlib.contextmanager
    def store_stands(self) -> Iterator[None]:
        """The store answers the fronts nothing within the block."""
        assert self.tier.proxy is not None
        rule = self.tier.proxy.add("hold", verb="GET", times=None)
        try:
            yield
        finally:
            self.tier.proxy.clear()
            rule.release()


def write(bootstrap: str, topic: str, count: int, text: bytes = b"") -> None:
    """Fill a topic with plain records."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.size": 100_000})
    for number in range(count):
        producer.produce(topic, text + b"%d" % number * 1000, b"%d" % number, number % PARTITIONS)
    assert producer.flush(60) == 0


class Writer:
    """A producer behind the fronts, and what was acknowledged to it: transactional, or idempotent alone.

    Attributes:
        committed: (partition, hash) of the records that were acknowledged, of transactions that were committed, as they
            were given to the producer. What it is told of them is not taken: where a request was sent twice, for its
            answer was lost, a broker answers with the first one's time as if the topic took the time of appending, and
            the report has that type of timestamp; or it has no offset.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int, *, is_transactional: bool) -> None:
        self._bootstrap, self._topic, self._chance = bootstrap, topic, random.Random(seed)
        self._is_transactional = is_transactional
        self._name = "transactional" if is_transactional else "idempotent"
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

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        own = {"transactional.id": f"writer-{self._topic}", "transaction.timeout.ms": 30_000}
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": 100_000,
                "reconnect.backoff.max.ms": 500,
                **(own if self._is_transactional else {}),
            }
        )

    def _write(self, number: int) -> int:
        """Records until a producer fails for good, or the end; the number of the next one."""
        from confluent_kafka import KafkaException

        producer = self._producer()
        try:
            if self._is_transactional:
                producer.init_transactions(60)
            while not self._stop.is_set():
                if self._is_transactional:
                    producer.begin_transaction()
                sent, failed = self._send(producer, number)
                number += 20
                if not self._is_transactional:
                    left = producer.flush(60)
                    if failed or left:
                        break  # another one takes its place
                    self._stop.wait(_PAUSE_SECONDS)
                elif self._chance.random() < 0.3:
                    producer.flush(60)
                    producer.abort_transaction(60)
                    continue
                else:
                    producer.commit_transaction(60)
                    assert not failed
                self.committed |= sent
        except KafkaException:
            time.sleep(0.2)  # by a leader that went: another producer takes its place, and fences it
        return number + 1000

    def _send(self, producer: Any, number: int) -> tuple[set[tuple[int, str]], list[Any]]:
        """Send 20 records; what they are, and where the errors of their reports come."""
        from confluent_kafka import TIMESTAMP_CREATE_TIME

        sent: set[tuple[int, str]] = set()
        failed: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        for at in range(number, number + 20):
            key, value = f"{self._name} {at}".encode(), self._chance.randbytes(self._chance.choice((10, 3000, 12_000)))
            partition, now_ms = at % PARTITIONS, time.time_ns() // 1_000_000
            producer.produce(self._topic, value, key, partition, timestamp=now_ms, on_delivery=delivered)
            sent.add((partition, digest_of(key, value, None, (TIMESTAMP_CREATE_TIME, now_ms))))
        return sent, failed


class Member:
    """The member of a group, by one of several clients, in a process of its own, which is killed and begun again."""

    def __init__(self, client: str, bootstrap: str, topic: str, isolation: str, folder: pathlib.Path) -> None:
        self.client, self.isolation, self._folder = client, isolation, folder
        self.group = f"{topic}-{client}"
        self._arguments = [bootstrap, topic, self.group, isolation]
        self._files: list[pathlib.Path] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = self._folder / f"{self.client}-{len(self._files)}"
        path.touch()
        self._files.append(path)
        command = [sys.executable, "-m", "tests.support.front_consumer", self.client]
        if self.client == "java":
            command = [
                install.java(),
                "-Xmx128m",
                "-cp",
                install.class_path("kafka"),
                str(CLIENTS / "GroupMember.java"),
            ]
        with (self._folder / f"{self.client}.err").open("ab") as err:
            self._process = subprocess.Popen([*command, *self._arguments, str(path)], cwd=ROOT, stdout=err, stderr=err)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """End it, which must still run."""
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / f"{self.client}.err").read_text()[-2000:]
        self._process.send_signal(signal.SIGKILL)
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


def differences(found: Records, wanted: Records, gone: Mapping[tuple[int, int], str] = {}) -> str:
    """What is not as it is wanted; "" for nothing. What was deleted meanwhile may have been seen."""
    known = {**(gone or {}), **wanted}
    lost, made_up = sorted(wanted.keys() - found.keys()), sorted(found.keys() - known.keys())
    changed = sorted(place for place in found.keys() & known.keys() if found[place] != known[place])
    told = {"lost": lost, "made up": made_up, "changed": changed}
    return ", ".join(f"{len(each)} {name}, {each[0]} to {each[-1]}" for name, each in told.items() if each)
