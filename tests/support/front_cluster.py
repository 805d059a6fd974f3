"""A broker that tiers, with logins and rights, and ``tierlog replica --upstream`` in front of it."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import random
import struct
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.fronts import free_ports
from tests.support.metadata_cluster import TIERED_JARS, admin_of, delete_topic, needs_a_broker, tiered_broker
from tests.support.peers import broker
from tests.support.replica_server import RunningReplica, free_port, replica, write_properties
from tests.support.waiting import LIMIT_SECONDS, wait_until

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("front", "reader", "writer")
LEVELS = ("read_uncommitted", "read_committed")
#: (partition, offset) -> hash of key, value, headers and timestamp.
Records = dict[tuple[int, int], str]


@dataclass
class Front:
    """A front that takes connections."""

    running: RunningReplica
    monitor: str

    @property
    def bootstrap(self) -> str:
        return self.running.bootstrap

    def metric(self, name: str, **labels: str) -> float:
        """The value of a series, without the common prefix."""
        with urllib.request.urlopen(f"http://{self.monitor}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wanted = f"tierlog_replica_front_{name}" + (f"{{{shown}}}" if shown else "")
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == wanted]
        assert values, f"{wanted} is not there"
        return float(values[0])

    def bytes_from(self, source: str) -> float:
        """Bytes of records that clients fetched of a source."""
        return self.metric("fetched_bytes_total", source=source)


@dataclass
class FrontCluster:
    """The broker. ``plain`` knows no users, ``secured`` does."""

    running: broker.Broker
    secured: str
    tier: pathlib.Path
    folder: pathlib.Path
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    fronts: int = 0

    @property
    def plain(self) -> str:
        return self.running.bootstrap

    @contextlib.contextmanager
    def front(
        self, *arguments: str, tier: pathlib.Path | None = None, user: str | None = None, port: int | None = None
    ) -> Iterator[Front]:
        """Run a front until the block ends; with a user in front of the secured address."""
        self.fronts += 1
        folder = self.folder / f"front-{self.fronts}"
        folder.mkdir()
        ports = free_ports(3)
        monitor = f"127.0.0.1:{free_port()}"
        command = ["--upstream", self.secured if user else self.plain, "--monitor", monitor, "--refresh", "0.5"]
        command += ["--advertise", f"127.0.0.1:{ports[0]}-{ports[-1]}"]
        if user:
            keys = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{LOGIN} username="{user}" password="{user}-secret";',
            }
            command += ["--upstream-config", str(write_properties(folder / "upstream.properties", keys))]
        with replica(tier or self.tier, folder, *command, *arguments, port=port) as running:
            yield Front(running, monitor)

    def make(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic that tiers at once, and keeps next to nothing on the broker's disk."""
        from confluent_kafka.admin import NewTopic

        settings = {"segment_bytes": str(1 << 20), "local_retention_bytes": "1", "remote_storage_enable": "true"}
        named = {name.replace("_", "."): value for name, value in (settings | config).items()}
        admin = admin_of(self.plain)
        admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the broker says so."""
        delete_topic(self.plain, topic)

    def produce(
        self, topic: str, count: int, *, bootstrap: str | None = None, partitions: int = 1, size_bytes: int = 8000
    ) -> None:
        """Write transactions of 25 records; every third is aborted."""
        from confluent_kafka import Producer

        keys = {"bootstrap.servers": bootstrap or self.plain, "transactional.id": f"of-{topic}"}
        producer = Producer(keys)
        producer.init_transactions(LIMIT_SECONDS)
        for number in range(0, count, 25):
            producer.begin_transaction()
            for at in range(25):
                value = None if at == 7 else self.chance.randbytes(size_bytes)
                producer.produce(topic, value, b"%d" % (number + at), (number + at) % partitions, headers=[("n", b"1")])
            assert producer.flush(LIMIT_SECONDS) == 0
            if number // 25 % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    def local_start(self, topic: str, partition: int = 0) -> int:
        """Return the first offset on the broker's disk, by its oldest segment."""
        return min(int(path.stem) for path in (self.running.log_dir / f"{topic}-{partition}").glob("*.log"))

    def wait_for_tier(self, topic: str, offset: int, partition: int = 0) -> None:
        """Wait until all below an offset lies in the tier alone."""
        wait_until(lambda: self.local_start(topic, partition) >= offset)


def login(user: str) -> dict[str, str]:
    """A user's keys, for librdkafka."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def records_of(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    *,
    isolation: str = "read_uncommitted",
    start: Mapping[int, int] | None = None,
    seconds: float = 120.0,
    keys: Mapping[str, Any] | None = None,
) -> Records:
    """All records up to the present end or some behind it, as a consumer of librdkafka gets them; each once.

    A consumer comes to no end while producers go on: what it gets from where the end was is the last.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        **(keys or {}),
    }
    found: Records = {}
    consumer, until = Consumer(settings), time.monotonic() + seconds
    left = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, n, (start or {}).get(n, OFFSET_BEGINNING)) for n in left])
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=seconds)[1] for n in left}
        while left:
            assert time.monotonic() < until, f"no end of {left} after {len(found)} records"
            for message in consumer.consume(500, 1.0):
                error = message.error()
                if error is None:
                    place = (message.partition(), message.offset())
                    assert place not in found, f"{place} came twice"
                    found[place] = digest(message)
                    if place[1] >= ends[place[0]]:
                        left.discard(place[0])
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def digest(message: Any) -> str:
    """A hash of all that a producer gave a record, of a record that was read."""
    return digest_of(message.key(), message.value(), message.headers(), message.timestamp())


def digest_of(key: bytes | None, value: bytes | None, headers: Any, timestamp: tuple[int, int]) -> str:
    """The hash of ``digest``, as GroupMember.java makes it too; the timestamp is its type, as librdkafka counts them,
    and the milliseconds.
    """
    hashed = hashlib.sha256()
    for each in (key, value, *(part for name, shown in headers or () for part in (name.encode(), shown))):
        hashed.update(struct.pack(">i", -1 if each is None else len(each)) + (each or b""))
    hashed.update(struct.pack(">bq", timestamp[0] - 1, timestamp[1]))
    return hashed.hexdigest()[:32]


@contextlib.contextmanager
def front_cluster(folder: pathlib.Path, extra: Mapping[str, str] | None = None) -> Iterator[FrontCluster]:
    """Run the broker until the block ends."""
    needs_a_broker()
    tier = folder / "tier"
    tier.mkdir()
    plain, secured, controller = broker.free_port(), broker.free_port(), broker.free_port()
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    keys = {
        **tiered_broker(tier),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{secured}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f"{LOGIN} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        **(extra or {}),
    }
    with broker.running(folder / "broker", heap="512m", extra=keys, jars=TIERED_JARS, port=plain) as running:
        yield FrontCluster(running, f"127.0.0.1:{secured}", tier, folder)


def grant(
    bootstrap: str, user: str, name: str, operations: Sequence[str], *, group: bool = False, remove: bool = False
) -> None:
    """Give a user rights on a topic or a group, or take them away."""
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    admin = admin_of(bootstrap)
    kind = AclBindingFilter if remove else AclBinding
    made = [
        kind(
            ResourceType.GROUP if group else ResourceType.TOPIC,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    answers = admin.delete_acls(made) if remove else admin.create_acls(made)
    for answer in answers.values():
        answer.result(30)
