"""Two real brokers over one tier: the first is the controller too, the second is the topic's preferred leader."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.support.metadata_cluster import TIERED_JARS, admin_of
from tests.support.peers import broker

TOPIC = "orders"
WAIT_SECONDS = 120.0
STAYS, BEGINS = 1, 2


@dataclass
class BrokerPair:
    """The brokers, in folders of their own.

    Args:
        folder: Of both.
        tier_keys: Of each broker: which plugin it tiers by, and where to.
    """

    folder: pathlib.Path
    tier_keys: Callable[[int], Mapping[str, str]]
    controller: int = field(default_factory=broker.free_port)
    ports: dict[int, int] = field(default_factory=lambda: {node: broker.free_port() for node in (STAYS, BEGINS)})
    running: dict[int, ExitStack] = field(default_factory=dict)
    brokers: dict[int, broker.Broker] = field(default_factory=dict)

    def start(self, node: int) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self.ports[node]}"
        if node == STAYS:
            listeners += f",CONTROLLER://127.0.0.1:{self.controller}"
        keys = {
            "node.id": str(node),
            "process.roles": "broker,controller" if node == STAYS else "broker",
            "controller.quorum.voters": f"{STAYS}@127.0.0.1:{self.controller}",
            "listeners": listeners,
            "replica.fetch.wait.max.ms": "100",
            # Kafka 4.3.1's second broker is busy for ever once its controller stood still for longer than this.
            "controller.quorum.fetch.timeout.ms": "60000",
            **self.tier_keys(node),
            "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
        }
        stack = self.running.setdefault(node, ExitStack())
        where = self.folder / str(node)
        running = broker.running(where, heap="512m", extra=keys, jars=TIERED_JARS, port=self.ports[node])
        self.brokers[node] = stack.enter_context(running)

    def start_both(self) -> None:
        for node in (STAYS, BEGINS):
            self.start(node)
        eventually(lambda: len(admin_of(self.bootstrap(STAYS)).list_topics(timeout=30).brokers), 2)

    def stop(self, node: int) -> None:
        self.running[node].close()

    def kill(self, node: int) -> None:
        """End a broker without a word."""
        self.brokers[node].process.kill()
        self.running[node].close()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Both brokers answer nothing within the block, as behind a network that is cut."""
        for each in self.brokers.values():
            each.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for each in self.brokers.values():
                each.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for stack in self.running.values():
            stack.close()

    def bootstrap(self, node: int) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    def log_dir(self, node: int) -> pathlib.Path:
        return self.folder / str(node) / "logs"

    def partition(self, node: int) -> pathlib.Path:
        return self.log_dir(node) / f"{TOPIC}-0"

    def state(self, node: int) -> tuple[int, set[int]]:
        """(leader, in-sync replicas) of the topic, as one broker knows it."""
        admin = admin_of(self.bootstrap(node))
        known = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return (known[0].leader, set(known[0].isrs)) if 0 in known else (-1, set())

    def make_topic(self, **config: str) -> None:
        """Make the topic of one partition; ``_`` in names stands for a dot."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        named = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(TOPIC, 1, replica_assignment=[[BEGINS, STAYS]], config=named)
        admin = admin_of(self.bootstrap(STAYS))
        created = admin.create_topics([new])[TOPIC]
        with contextlib.suppress(KafkaException):  # librdkafka gave up its connection: whether it is there is seen next
            created.result(60)
        eventually(lambda: self.state(STAYS), (BEGINS, {STAYS, BEGINS}))

    def produce(self, *, leaves_open: bool = True) -> None:
        """Transactions of three producers side by side, committed and aborted; and one that stays open at the end."""
        from confluent_kafka import Producer

        bootstrap = ",".join(map(self.bootstrap, self.brokers))
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 2, "transaction.timeout.ms": 600_000}
        producers = [Producer({**settings, "transactional.id": name}) for name in ("one", "two", "three", "open")]
        for producer in producers:
            producer.init_transactions(60)
        for turn in range(12):
            for producer in producers[:3]:
                producer.begin_transaction()
            for record in range(60):
                producers[record % 3].produce(TOPIC, f"{turn} {record} ".encode() * 12, f"{record}".encode())
                if record % 20 == 19:
                    for producer in producers[:3]:
                        assert producer.flush(60) == 0
            for number, producer in enumerate(producers[:3]):
                if (turn + number) % 3 == 1:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
        if leaves_open:
            producers[3].begin_transaction()
            producers[3].produce(TOPIC, b"undecided")
            assert producers[3].flush(60) == 0

    def consumed(self, node: int, isolation: str) -> list[tuple[int, bytes, int]]:
        """(offset, value, leader epoch) of all that a consumer gets from the topic's beginning on."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        settings = {
            "bootstrap.servers": self.bootstrap(node),
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        rows = []
        consumer, until = Consumer(settings), time.monotonic() + WAIT_SECONDS
        try:
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
            while time.monotonic() < until:
                for message in consumer.consume(500, 1.0):
                    error = message.error()
                    if error is None:
                        rows.append((message.offset(), message.value(), message.leader_epoch()))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return rows
        finally:
            consumer.close()
        raise AssertionError(f"no end after {len(rows)} rows")

    def elect_the_preferred(self) -> None:
        """Have the second broker lead."""
        from confluent_kafka import ElectionType, TopicPartition

        admin = admin_of(self.bootstrap(STAYS))
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(60)
        eventually(lambda: self.state(BEGINS)[0], BEGINS)


def eventually(answer: Callable[[], object], expected: object) -> None:
    """Wait until an answer is the expected one."""
    until = time.monotonic() + WAIT_SECONDS
    while (last := answer()) != expected:
        assert time.monotonic() < until, f"{last!r} instead of {expected!r}"
        time.sleep(0.1)


def segments(folder: pathlib.Path) -> list[int]:
    """Base offsets of a log's segments."""
    return sorted(int(path.stem) for path in folder.glob("*.log"))
