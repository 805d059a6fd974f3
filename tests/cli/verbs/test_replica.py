"""``tierlog replica``: real clients over golden buckets, and what is said where it cannot start."""

from __future__ import annotations

import itertools
import pathlib
import signal
import socket
import subprocess

import pytest

from tests.support.checkout import BIN
from tests.support.command import run_process
from tests.support.golden import ISOLATIONS, answers, config_of, tiered_offsets, tiered_topics
from tests.support.replica_readers import READERS, expected_rows, within
from tests.support.replica_server import free_port, replica
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server

#: What a start and a plain read have no use for.
HEAVY = (
    "pyarrow.lib",
    "pandas.core",
    "hypothesis.core",
    "obstore",
    "botocore",
    "aiohttp",
    "cryptography",
    "Crypto",
    "scramp",
    "rich",
)
#: Of our own.
UNUSED = ("tierlog.aio.storage_manager", "tierlog._native.decoding", "tierlog.cli.verbs.cat", "tierlog.scan.reading")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("client", "run"),
    [
        *itertools.product(("librdkafka", "aiokafka"), ("main-plain", "zstd-aes", "local-tiered")),
        *itertools.product(("kafka-python", "kcat"), ("zstd-aes",)),
    ],
)
def test_a_consumer_reads_a_golden_bucket(client: str, run: str, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise history that is read through Kafka's protocol is not what the brokers had."""
    compared = 0
    cases = [case for case in tiered_topics(data) if case.run.name == run]
    with replica(data / run / "objects", tmp_path, config=config_of(data / run)) as server:
        for case in cases:
            for isolation in ISOLATIONS:
                expected = expected_rows(case, isolation, with_headers=client != "kcat")
                if expected is None:
                    continue
                found = READERS[client](server.bootstrap, case.topic, isolation, sorted(tiered_offsets(case)))
                assert within(case, found, expected) == expected
                compared += bool(answers(case, isolation))
    assert compared


def test_offsets_of_a_group_outlive_a_killed_server(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A replay of years that begins again at its start because the server was restarted is no replay."""
    from confluent_kafka import Consumer, TopicPartition

    objects, state = data / "main-plain" / "objects", str(tmp_path / "state")
    topic = next(case.topic for case in tiered_topics(data) if case.run.name == "main-plain")
    with replica(objects, tmp_path, "--state", state) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        consumer.close()
    with replica(objects, tmp_path, "--state", state) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
        assert [each.offset for each in consumer.committed([TopicPartition(topic, 0)], timeout=20)] == [7]
        consumer.close()


def test_only_the_wanted_topics_are_served(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise a user with the right to one topic reads them all."""
    from confluent_kafka.admin import AdminClient

    topics = sorted({case.topic for case in tiered_topics(data) if case.run.name == "main-plain"})
    with replica(data / "main-plain" / "objects", tmp_path, topics[0]) as server:
        told = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=20)
    assert sorted(told.topics) == topics[:1]


def test_a_user_sees_the_topics_that_are_hers(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Any client that connects would read every topic; and a right that is withdrawn would last until a restart."""
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

    names = sorted({case.topic for case in tiered_topics(data) if case.run.name == "main-plain"})
    users, rights = tmp_path / "users", tmp_path / "topics"
    users.write_text("alice:secret\n")
    users.chmod(0o600)
    rights.write_text(f"alice:{names[0]}\n")
    files = ["--users", str(users), "--user-topics", str(rights)]
    with replica(data / "main-plain" / "objects", tmp_path, *files) as server:
        client = {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        admin = AdminClient(client)
        assert sorted(admin.list_topics(timeout=20).topics) == names[:1]
        consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(names[1:2])
        told = consumer.poll(20)
        consumer.close()
        assert told is not None
        assert told.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        rights.write_text("alice:*\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: sorted(admin.list_topics(timeout=20).topics) == names)


def test_a_writer_is_told_that_it_may_not(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A producer that tries for minutes, or believes that it wrote, costs somebody data."""
    from confluent_kafka import KafkaError, Producer

    topic = next(case.topic for case in tiered_topics(data) if case.run.name == "main-plain")
    told: list[KafkaError] = []
    with replica(data / "main-plain" / "objects", tmp_path) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "message.timeout.ms": 20_000})
        producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: told.append(error))
        producer.flush(30)
    assert [error.code() for error in told] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_a_consumer_of_the_new_protocol_is_told(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It would wait for ever, without a word, and its reader believes that the topics are empty."""
    from confluent_kafka import Consumer, KafkaError

    with replica(data / "main-plain" / "objects", tmp_path) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "group.protocol": "consumer"})
        consumer.subscribe(["any"])
        told = consumer.poll(20)
        consumer.close()
    assert told is not None
    assert told.error().code() == KafkaError._FATAL


def test_a_start_and_a_read_load_nothing_that_they_do_not_need(
    data: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each heavy module is a tenth of a second of every start, and tens of mebibytes of every server."""
    case = next(case for case in tiered_topics(data) if case.run.name == "main-plain")
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with replica(data / "main-plain" / "objects", tmp_path, "--state", str(tmp_path / "state")) as server:
        assert READERS["librdkafka"](server.bootstrap, case.topic, "read_uncommitted", sorted(tiered_offsets(case)))
        lines = [line.rpartition("|") for line in server.log.read_text().splitlines()]
    loaded = {name.strip() for timing, _, name in lines if timing.startswith("import time:")}
    assert {"tierlog.broker.replica.serving", "numpy"} <= loaded
    assert any(name.startswith("kio.schema.fetch.v") for name in loaded)
    assert not [name for name in (*HEAVY, *UNUSED) if name in loaded]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--listen", "nowhere"], 2, "HOST:PORT is expected"),
        (["--listen", "::1:9092"], 2, "brackets"),
        (["--listen", "kafka..test:9092"], 2, "no name of a host"),
        (["--tls-cert", "x"], 2, "go together"),
        (["--users", "/no/such/file"], 3, "/no/such/file"),
        (["--user-topics", "x"], 2, "goes with --users"),
        (["--upstream-config", "x"], 2, "--upstream-config goes with --upstream"),
        (["--upstream", "localhost:1", "--users", "x"], 2, "--users goes without --upstream"),
        (["--upstream", "localhost:1", "--cluster-id", "x"], 2, "--cluster-id goes without --upstream"),
        (["--upstream", "kafka:1"], 2, "by TLS alone"),
        (["--upstream", "localhost:1", "--advertise", "front:1"], 2, "FIRST-LAST"),
        (["no-such-topic"], 0, ""),
    ],
)
def test_what_is_said_at_a_start_that_fails(
    arguments: list[str], code: int, told: str, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A traceback, or a server that serves nothing in silence, helps nobody at night."""
    path = str(data / "main-plain" / "objects")
    if not code:
        with replica(path, tmp_path, *arguments) as server:
            assert server.process.poll() is None
        return
    where = ["--listen", f"127.0.0.1:{free_port()}"] if "--listen" not in arguments else []
    done = run_process("replica", path, *where, *arguments)
    assert done.code == code, done.err
    assert told in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_named(data: pathlib.Path) -> None:
    """Otherwise a client talks to whatever else listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [str(BIN / "tierlog"), "replica", str(data / "main-plain" / "objects"), "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert str(taken and address.rpartition(":")[2]) in done.stderr
