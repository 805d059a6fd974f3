"""Two real brokers for a front: with SASL over TLS beside a listener without, and of one release or another."""

from __future__ import annotations

import pathlib
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.support.metadata_cluster import admin_of
from tests.support.peers import broker
from tests.support.waiting import wait_until

LOGIN = "org.apache.kafka.common.security"
USERS = ("front", "alice", "admin")
NODES = (1, 2)
PATIENCE_SECONDS = 90.0


@dataclass
class Pair:
    """Two brokers, the first of which is the controller too; each has a listener without SASL, one with it over TLS."""

    folder: pathlib.Path
    jars: str
    ports: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {node: (broker.free_port(), broker.free_port()) for node in NODES}
    )
    controller: int = field(default_factory=broker.free_port)
    running: dict[int, ExitStack] = field(default_factory=dict)

    @property
    def plain(self) -> str:
        return ",".join(f"127.0.0.1:{plain}" for plain, _ in self.ports.values())

    @property
    def secure(self) -> str:
        return ",".join(f"localhost:{secure}" for _, secure in self.ports.values())

    @property
    def ca(self) -> pathlib.Path:
        return self.folder / "tls.crt"

    def start(self, node: int) -> None:
        plain, secure = self.ports[node]
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://localhost:{secure}"
        users = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
        keys = {
            "node.id": str(node),
            "process.roles": "broker,controller" if node == 1 else "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "listeners": listeners + (f",CONTROLLER://127.0.0.1:{self.controller}" if node == 1 else ""),
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required {users};",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
            "connections.max.reauth.ms": "3000",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "tls.pem"),
            "offsets.topic.replication.factor": "2",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "2",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "100",
            "broker.rack": f"rack-{node}",
        }
        stack = self.running.setdefault(node, ExitStack())
        where = self.folder / str(node)
        stack.enter_context(broker.running(where, heap="400m", extra=keys, jars=self.jars, port=plain))

    def start_all(self) -> None:
        for node in NODES:
            self.start(node)
        wait_until(lambda: len(admin_of(self.plain).list_topics(timeout=30).brokers) == len(NODES))

    def close(self) -> None:
        for stack in self.running.values():
            stack.close()


def make_certificate(folder: pathlib.Path) -> None:
    """A self-signed certificate for localhost, in a file of its own and in one with its key."""
    key, cert = folder / "tls.key", folder / "tls.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "tls.pem").write_text(key.read_text() + cert.read_text())


def make_topic(bootstrap: str, partitions: int = 4, keys: Mapping[str, str] | None = None) -> str:
    """A new topic of two replicas; its name."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, **(keys or {})})
    admin.create_topics([NewTopic(topic, partitions, len(NODES))])[topic].result(60)
    wait_until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == partitions)
    return topic


def produce(bootstrap: str, topic: str, values: range, **keys: Any) -> None:
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **keys})
    for value in values:
        producer.produce(
            topic, str(value).encode(), on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, count: int, **keys: Any) -> list[int]:
    """The values that a group reads, until there are so many."""
    from confluent_kafka import Consumer

    given = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **given, **keys})
    found: list[int] = []
    until = time.monotonic() + PATIENCE_SECONDS
    try:
        consumer.subscribe([topic])
        while len(found) < count and time.monotonic() < until:
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None, message.error()
                found.append(int(message.value()))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found)
