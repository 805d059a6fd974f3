"""Real clients through a front of a real cluster of two brokers: all they do passes, and they know no other address."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shlex
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.checkout import BIN, ROOT
from tests.support.fronts import free_ports, front_process
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.replica_server import RunningReplica
from tests.support.secure_pair import (
    NODES,
    PATIENCE_SECONDS,
    USERS,
    Pair,
    consume,
    make_certificate,
    make_topic,
    produce,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=["kafka", "kafka-3.9"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    needs_a_broker()
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the brokers' certificate")
    folder = tmp_path_factory.mktemp(request.param)
    make_certificate(folder)
    made = Pair(folder, request.param)
    try:
        made.start_all()
        yield made
    finally:
        made.close()


@pytest.fixture
def tier() -> pathlib.Path:
    """A bucket of another cluster, none of whose topics the brokers have."""
    return ROOT / "tests" / "data" / "main-plain" / "objects"


@pytest.fixture
def front(pair: Pair, tier: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[RunningReplica]:
    with front_process(tier, tmp_path / "front", pair.plain) as running:
        yield running


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with kafka_tools(tmp_path_factory.mktemp("tools")) as running:
        yield running


def peers_of(pid: int) -> set[int]:
    """The ports at the other end of a process's connections."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in inodes and fields[3] == "01":
                found.add(int(fields[2].rpartition(":")[2], 16))
    return found


def test_writers_and_groups_do_what_they_do(pair: Pair, front: RunningReplica) -> None:
    """Idempotent and transactional writes, and groups of both protocols; the cluster has what they wrote."""
    from confluent_kafka import Producer

    topic = make_topic(front.bootstrap)
    produce(front.bootstrap, topic, range(3000))
    producer = Producer({"bootstrap.servers": front.bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE_SECONDS)
    for first, ends_well in ((3000, True), (9000, False), (3100, True)):
        producer.begin_transaction()
        for value in range(first, first + 100):
            producer.produce(topic, str(value).encode())
        (producer.commit_transaction if ends_well else producer.abort_transaction)(PATIENCE_SECONDS)
    expected = list(range(3200))
    assert consume(front.bootstrap, topic, 3200) == expected
    assert consume(pair.plain, topic, 3200) == expected
    if pair.jars == "kafka":  # KIP-848 is of Kafka 4
        assert consume(front.bootstrap, topic, 3200, **{"group.protocol": "consumer"}) == expected


def test_kafkas_own_tools(pair: Pair, front: RunningReplica, tools: KafkaTools, tmp_path: pathlib.Path) -> None:
    """Java clients of the newest release: topics, groups, offsets, log directories, records deleted, the quorum."""
    topic = make_topic(front.bootstrap, 2)
    at = ("--bootstrap-server", front.bootstrap)
    described = tools.run("kafka-topics", *at, "--describe", "--topic", topic)
    assert f"Topic: {topic}" in described.text
    produce(front.bootstrap, topic, range(500))
    read = ("--topic", topic, "--from-beginning", "--max-messages", "500", "--group", topic)
    printed = tools.run("kafka-console-consumer", *at, *read)
    assert sorted(map(int, printed.out.split())) == list(range(500))
    group = tools.run("kafka-consumer-groups", *at, "--describe", "--group", topic).text
    rows = [line.split() for line in group.splitlines() if line.startswith(topic)]
    assert sum(int(row[3]) for row in rows) == 500
    assert all(row[5] == "0" for row in rows)
    offsets = tools.run("kafka-get-offsets", *at, "--topic", topic).text
    ends = {int(line.split(":")[1]): int(line.split(":")[2]) for line in offsets.split()}
    assert sum(ends.values()) == 500
    most = max(ends, key=lambda partition: ends[partition])  # a producer may give one of them nothing
    assert topic in tools.run("kafka-log-dirs", *at, "--describe", "--topic-list", topic).text
    deleted = tmp_path / "deleted.json"
    deleted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": most, "offset": 7}], "version": 1}))
    assert "low_watermark: 7" in tools.run("kafka-delete-records", *at, "--offset-json-file", str(deleted)).text
    quorum = [
        tools.run("kafka-metadata-quorum", "--bootstrap-server", each, "describe", "--status")
        for each in (front.bootstrap, pair.plain)
    ]
    leaders = [[line for line in each.text.splitlines() if line.startswith("LeaderId")] for each in quorum]
    assert leaders[0] == leaders[1] != []


@pytest.mark.parametrize("library", ["librdkafka", "java", "aiokafka", "kafka_python"])
def test_a_client_never_hears_of_another_address(
    library: str, pair: Pair, front: RunningReplica, tmp_path: pathlib.Path
) -> None:
    """After twenty refreshes of metadata and more, with a group and writes: its sockets go to the front alone."""
    from tests.support.peers import install

    topic = make_topic(front.bootstrap)
    if library != "java":
        command = [sys.executable, "-c", _READERS[library], front.bootstrap, topic]
    else:
        java = [install.java(), "-Xmx256m", "-cp", install.class_path("kafka")]
        refresh = ["--consumer-property", "metadata.max.age.ms=100", "--group", topic]
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        command = [*java, tool, "--bootstrap-server", front.bootstrap, "--topic", topic, "--from-beginning", *refresh]
    out = (tmp_path / "client.out").open("wb")
    process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT)
    try:
        produce(front.bootstrap, topic, range(1000))
        seen: set[int] = set()
        until = time.monotonic() + PATIENCE_SECONDS
        while (tmp_path / "client.out").read_bytes().count(b"\n") < 1000 and time.monotonic() < until:
            seen |= peers_of(process.pid)
            time.sleep(0.05)
        for _ in range(60):  # the Java client refreshes each 100 ms
            seen |= peers_of(process.pid)
            time.sleep(0.05)
        assert process.poll() is None, (tmp_path / "client.out").read_text()[-2000:]
    finally:
        process.kill()
        process.wait()
        out.close()
    brokers = {port for ports in pair.ports.values() for port in ports}
    assert not seen & brokers
    assert len(seen - {int(front.bootstrap.rpartition(":")[2])}) == len(NODES), seen
    assert all(_is_of(front, port) for port in seen), seen


def _is_of(front: RunningReplica, port: int) -> bool:
    """Whether the front listens on a port."""
    lines = pathlib.Path(f"/proc/{front.process.pid}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines)


_WRITER_AND_READER = """
import sys, threading
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
bootstrap, topic = sys.argv[1:]
keys = {"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 100}
admin, producer = AdminClient(keys), Producer(keys)
consumer = Consumer({**keys, "group.id": topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
for _ in range(20):
    admin.list_topics(timeout=30)
    consumer.list_topics(timeout=30)
    producer.list_topics(timeout=30)
producer.produce(topic, b"0")
producer.flush(30)
while True:
    for message in consumer.consume(100, 0.1):
        print(message.value(), flush=True)
"""


_AIOKAFKA = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
bootstrap, topic = sys.argv[1:]

async def main():
    keys = {"group_id": topic, "auto_offset_reset": "earliest", "metadata_max_age_ms": 100}
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **keys)
    await consumer.start()
    async for message in consumer:
        print(message.value, flush=True)

asyncio.run(main())
"""
_KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer
bootstrap, topic = sys.argv[1:]
keys = {"group_id": topic, "auto_offset_reset": "earliest", "metadata_max_age_ms": 100}
for message in KafkaConsumer(topic, bootstrap_servers=bootstrap, **keys):
    print(message.value, flush=True)
"""
_READERS = {"librdkafka": _WRITER_AND_READER, "aiokafka": _AIOKAFKA, "kafka_python": _KAFKA_PYTHON}


def test_a_killed_front_loses_and_doubles_nothing(pair: Pair, tier: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An idempotent producer with two fronts in its bootstrap goes on by the other one, in the same sequence."""
    from confluent_kafka import Producer

    topic = make_topic(pair.plain, 2)
    with ExitStack() as running:
        fronts = [running.enter_context(front_process(tier, tmp_path / str(n), pair.plain)) for n in range(2)]
        bootstrap = ",".join(each.bootstrap for each in fronts)
        keys = {"reconnect.backoff.max.ms": 500, "metadata.recovery.rebootstrap.trigger.ms": 1000, "linger.ms": 1}
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **keys})
        failed: list[Any] = []
        acknowledged = 0

        def told(error: Any, _message: Any) -> None:
            nonlocal acknowledged
            acknowledged += error is None
            if error is not None:
                failed.append(error)

        killed = False
        for value in range(20_000):
            producer.produce(topic, str(value).encode(), on_delivery=told)
            producer.poll(0.01 if value % 100 == 0 else 0)
            if value >= 8_000 and not killed and acknowledged > 1000:
                used = next(each for each in fronts if _has_clients(each))
                used.process.kill()
                used.process.wait()
                killed = True
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert killed
        assert failed == []
        assert consume(pair.plain, topic, 20_000) == list(range(20_000))


def _has_clients(front: RunningReplica) -> bool:
    return bool(peers_of(front.process.pid) - {0}) and len(peers_of(front.process.pid)) > 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_clients_log_in_at_their_brokers(
    mechanism: str, pair: Pair, tier: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Over TLS to the brokers; sessions last three seconds, so that clients and the front log in again and again."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    admin = admin_of(pair.plain)
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, info, f"{user}-secret".encode()) for user in USERS]
    ).values():
        future.result(60)
    upstream = by_password(pair, "front-secret") | {"sasl.mechanism": mechanism}
    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "alice"}
    right, wrong = keys | {"sasl.password": "alice-secret"}, keys | {"sasl.password": "wrong"}
    with front_process(tier, tmp_path / "front", pair.secure, upstream_config=upstream) as front:
        topic = make_topic(front.bootstrap, keys=right)
        produce(front.bootstrap, topic, range(500), **right)
        assert consume(front.bootstrap, topic, 500, **right) == list(range(500))
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": front.bootstrap, **right})
        failed: list[Any] = []
        for number in range(8):  # beyond the end of two sessions
            producer.produce(
                topic, str(500 + number).encode(), on_delivery=lambda e, _: failed.append(e) if e else None
            )
            assert producer.flush(PATIENCE_SECONDS) == 0
            time.sleep(1)
        assert failed == []
        assert consume(front.bootstrap, topic, 508, **right) == list(range(508))
        from confluent_kafka.admin import AdminClient

        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": front.bootstrap, "log_level": 0, **wrong}).list_topics(timeout=5)
        assert front.process.poll() is None


def by_password(pair: Pair, password: str) -> dict[str, str]:
    """The front's own keys."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "front",
        "sasl.password": password,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pair.ca),
    }


def test_tokens_pass(pair: Pair, tier: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """OAUTHBEARER: a token is the brokers' to judge, and is sent again when the session ends, after three seconds."""
    from confluent_kafka import Producer

    keys: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=alice lifeSeconds=60",
    }
    upstream = by_password(pair, "front-secret")
    with front_process(tier, tmp_path / "front", pair.secure, upstream_config=upstream) as front:
        topic = make_topic(front.bootstrap, keys=keys)
        producer = Producer({"bootstrap.servers": front.bootstrap, **keys})
        for number in range(8):
            producer.produce(topic, str(number).encode())
            assert producer.flush(PATIENCE_SECONDS) == 0
            time.sleep(1)
        assert consume(front.bootstrap, topic, 8, **keys) == list(range(8))


def test_a_wrong_password_of_its_own_is_told(pair: Pair, tier: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise an operator looks for a network that is cut."""
    monitor, ports = f"127.0.0.1:{free_ports(1).start}", free_ports(3)
    config = tmp_path / "upstream.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in by_password(pair, "wrong").items()))
    command = [sys.executable, "-m", "tierlog", "replica", str(tier), "--listen", f"127.0.0.1:{ports[0]}"]
    command += ["--upstream", pair.secure, "--upstream-config", str(config), "--monitor", monitor]
    command += ["--advertise", f"127.0.0.1:{ports[1]}-{ports[2]}"]
    log = tmp_path / "front.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_until(lambda: process.poll() is not None or "uthentication" in _ready(monitor) + log.read_text())
        told = _ready(monitor) + log.read_text()
        assert "uthentication" in told
        assert "wrong" not in told.replace(str(tmp_path), "")
    finally:
        process.kill()
        process.wait()


def test_it_waits_for_its_cluster_and_says_so(tier: pathlib.Path, pair: Pair, tmp_path: pathlib.Path) -> None:
    """Started first, it takes no connection and is not ready; later it is; brokers that go and come are followed."""
    monitor = f"127.0.0.1:{free_ports(1).start}"
    away = f"127.0.0.1:{free_ports(1).start}"
    log = (tmp_path / "away.log").open("wb")
    ports = free_ports(3)
    command = [sys.executable, "-m", "tierlog", "replica", str(tier), "--listen", f"127.0.0.1:{ports[0]}"]
    command += ["--upstream", away, "--advertise", f"127.0.0.1:{ports[1]}-{ports[2]}", "--monitor", monitor]
    for comes in (False, True):
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: "the upstream cluster is away" in _ready(monitor))
            assert process.poll() is None
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", ports[0])) != 0
            if comes:
                with _forwarded(away, pair.plain):
                    wait_until(lambda: _ready(monitor).startswith("ok"))
                    topic = make_topic(f"127.0.0.1:{ports[0]}")
                    produce(f"127.0.0.1:{ports[0]}", topic, range(10))
            process.terminate()
            assert process.wait(20) == 0, "it ends while it waits"
        finally:
            process.kill()
            process.wait()
    log.close()
    with front_process(tier, tmp_path / "front", pair.plain, "--monitor", monitor) as front:
        wait_until(lambda: _ready(monitor).startswith("ok"))
        topic = make_topic(front.bootstrap)
        pair.running[2].close()
        produce(front.bootstrap, topic, range(100))
        pair.start(2)
        wait_until(lambda: len(admin_of(front.bootstrap).list_topics(timeout=30).brokers) == len(NODES))
        produce(front.bootstrap, topic, range(100, 200))
        assert consume(front.bootstrap, topic, 200) == list(range(200))


@contextlib.contextmanager
def _forwarded(listen: str, to: str) -> Iterator[None]:
    """Serve an address by another one until the block ends: a cluster that comes later."""
    host, _, port = to.split(",", maxsplit=1)[0].rpartition(":")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as other:
                back = threading.Thread(target=self._pump, args=(other, self.request))
                back.start()
                self._pump(self.request, other)
                back.join()

        @staticmethod
        def _pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    sink.sendall(data)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    here, _, number = listen.rpartition(":")
    with socketserver.ThreadingTCPServer((here, int(number)), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield
        finally:
            server.shutdown()
            serving.join()


def _ready(monitor: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{monitor}/readyz", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def test_the_lines_of_the_readme(pair: Pair, tier: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, the commands of the README do not serve a cluster; bucket and ports are those of this test."""
    if pair.jars != "kafka":
        pytest.skip("once is enough")
    page = (ROOT / "README.md").read_text().partition("## In front of a live cluster")[2]
    command, *clients = page.split("```")[1].strip().splitlines()
    ports = free_ports(5)
    topic = make_topic(pair.plain, 1)
    here = {
        "s3://bucket/prefix --config broker.properties": str(tier),
        "127.0.0.1:19092": pair.plain,
        "9093-9096": f"{ports[1]}-{ports[-1]}",
        "127.0.0.1:9092": f"127.0.0.1:{ports[0]}",
        "'orders'": f"'{topic}'",
    }
    for said, meant in here.items():
        command = command.replace(said, meant)
        clients = [line.replace(said, meant) for line in clients]
    words = shlex.split(command)
    assert words[0] == "tierlog"
    with (tmp_path / "front.log").open("wb") as log:
        process = subprocess.Popen([str(BIN / "tierlog"), *words[1:]], stdout=log, stderr=log)
    try:
        wait_until(lambda: b"is served on" in (tmp_path / "front.log").read_bytes())
        printed = []
        for line in clients:
            python, *rest = shlex.split(line)
            assert python == "python"
            done = subprocess.run([sys.executable, *rest], capture_output=True, check=True, timeout=PATIENCE_SECONDS)
            printed.append(done.stdout.decode().strip())
        assert printed == ["0", "b'new'"]
    finally:
        process.kill()
        process.wait()


def test_share_consumers_pass(pair: Pair, front: RunningReplica, tmp_path: pathlib.Path) -> None:
    """A share group of Kafka 4 reads by way of its own Fetch API, whose answers name leaders too."""
    from tests.support.peers import install

    if pair.jars != "kafka":
        pytest.skip("share groups are of Kafka 4")
    topic = make_topic(front.bootstrap, 2)
    java = [install.java(), "-Xmx256m", "-cp", install.class_path("kafka")]
    at = ["--bootstrap-server", front.bootstrap]
    config = [*java, "kafka.admin.ConfigCommand", *at, "--alter", "--entity-type", "groups", "--entity-name", topic]
    subprocess.run([*config, "--add-config", "share.auto.offset.reset=earliest"], check=True, capture_output=True)
    produce(front.bootstrap, topic, range(400))
    tool = [*java, "org.apache.kafka.tools.consumer.ConsoleShareConsumer", *at, "--topic", topic, "--group", topic]
    done = subprocess.run(
        [*tool, "--max-messages", "400", "--timeout-ms", "60000"], capture_output=True, check=True, timeout=120
    )
    assert sorted(set(map(int, done.stdout.split()))) == list(range(400))
