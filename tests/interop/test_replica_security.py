"""Kafka's own client reads a bucket through ``tierlog replica`` over TLS and with each mechanism of SASL."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.certificates import CertificateFiles, write_certificates
from tests.support.golden import answers, config_of, tiered_topics
from tests.support.kafka_tools import KafkaTools, Ran, kafka_tools
from tests.support.replica_server import RunningReplica, replica, write_properties

pytestmark = pytest.mark.interop

RUN = "zstd-aes"
PASSWORD = "it's: a=secret"
MODULES = {"PLAIN": "plain.PlainLoginModule"} | dict.fromkeys(
    ("SCRAM-SHA-256", "SCRAM-SHA-512"), "scram.ScramLoginModule"
)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with kafka_tools(tmp_path_factory.mktemp("tools")) as started:
        yield started


def client_settings(folder: pathlib.Path, files: CertificateFiles | None, mechanism: str, password: str) -> str:
    """The path of what a Java client needs."""
    keys = {"security.protocol": f"{'SASL_' if mechanism else ''}{'SSL' if files else 'PLAINTEXT'}"}
    if files:
        keys |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.authority)}
    if mechanism:
        module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
        keys["sasl.mechanism"] = mechanism
        keys["sasl.jaas.config"] = f'{module} required username="alice" password="{password}";'
    return str(write_properties(folder / "client.properties", keys))


def consume(tools: KafkaTools, server: RunningReplica, topic: str, count: int, settings: str) -> Ran:
    return tools.run(
        "kafka-console-consumer",
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(count), "--timeout-ms", "30000", "--command-config", settings),
        *("--formatter-property", "line.separator=<|record|>"),
    )


@pytest.mark.parametrize("mechanism", ["", *MODULES])
@pytest.mark.parametrize("with_tls", [True, False])
def test_kafkas_consumer_gets_through(
    tools: KafkaTools, with_tls: bool, mechanism: str, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A client that does not get through, or one that does with a wrong password: both cost their owner the history."""
    case = next(case for case in tiered_topics(data) if case.run.name == RUN)
    wanted = [value for partition, *_, value, _ in answers(case, "read_uncommitted") or () if partition == 0]
    files = write_certificates(tmp_path / "certificates") if with_tls else None
    arguments = ["--tls-cert", str(files.chain), "--tls-key", str(files.key)] if files else []
    if mechanism:
        users = tmp_path / "users"
        users.write_text(f"alice:{PASSWORD}\n")
        users.chmod(0o600)
        arguments += ["--users", str(users)]
    with replica(case.run / "objects", tmp_path, *arguments, config=config_of(case.run)) as server:
        ran = consume(tools, server, case.topic, len(wanted), client_settings(tmp_path, files, mechanism, PASSWORD))
        found = ran.out.split(b"<|record|>")[:-1]
        assert found == [b"null" if value is None else value for value in wanted], ran.err
        if mechanism:
            wrong = client_settings(tmp_path, files, mechanism, "wrong")
            ran = tools.run("kafka-get-offsets", "--bootstrap-server", server.bootstrap, "--command-config", wrong)
            assert (ran.code, ran.out) == (1, b"")
            assert "uthentication failed" in ran.err, ran.err
