"""The metadata topic of a real Kafka behind TLS, logins and ACLs: the rights in docs/metadata-topic.md suffice."""

from __future__ import annotations

import logging
import pathlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.contract.metadata_events import PARTITION, finish, found, lead, segment
from tests.support.metadata_cluster import admin_of, delete_topic, manager_keys, needs_a_broker
from tests.support.peers import broker
from tests.support.waiting import wait_until
from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLogs, open_cluster_log
from tierlog.remote.metadata.topic_backed.topic_based_config import read_topic_based_config
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager

pytestmark = pytest.mark.interop

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
#: What docs/metadata-topic.md tells to give, on the topic alone.
MANAGER_RIGHTS = ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE")
READER_RIGHTS = ("DESCRIBE", "READ")


@dataclass(frozen=True)
class Secured:
    """``plain`` is where the test administers; ``secure`` is SASL_SSL."""

    plain: str
    secure: str
    ca: pathlib.Path

    def keys(self, user: str, password: str | None = None, ca: pathlib.Path | None = None) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{LOGIN} username="{user}" password="{password or user}-secret";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca or self.ca),
        }

    def manager_keys(self, folder: pathlib.Path, keys: dict[str, str]) -> dict[str, object]:
        prefix = "remote.log.metadata.common.client."
        return manager_keys(self.secure, folder) | {prefix + name: value for name, value in keys.items()}


def certificate(folder: pathlib.Path, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """A self-signed certificate for localhost: (certificate, key and certificate in one file)."""
    key, cert, both = folder / f"{name}.key", folder / f"{name}.crt", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return cert, both


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    needs_a_broker()
    folder = tmp_path_factory.mktemp("secured")
    ca, server = certificate(folder, "server")
    plain, secure, controller = broker.free_port(), broker.free_port(), broker.free_port()
    users = " ".join(f'user_{name}="{name}-secret"' for name in ("manager", "reader", "nobody"))
    extra = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://localhost:{secure}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{LOGIN} {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with broker.running(folder / "broker", heap="512m", extra=extra, port=plain) as running:
        for user, rights in (("manager", MANAGER_RIGHTS), ("reader", READER_RIGHTS)):
            allow(running.bootstrap, user, rights)
        yield Secured(running.bootstrap, f"localhost:{secure}", ca)


def allow(bootstrap: str, user: str, rights: tuple[str, ...]) -> None:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    admin = admin_of(bootstrap)
    acls = [
        AclBinding(
            *(ResourceType.TOPIC, METADATA_TOPIC, ResourcePatternType.LITERAL, f"User:{user}", "*"),
            *(AclOperation[right], AclPermissionType.ALLOW),
        )
        for right in rights
    ]
    for future in admin.create_acls(acls).values():
        future.result(30)


@pytest.fixture(autouse=True)
def _no_topic(secured: Secured) -> None:
    delete_topic(secured.plain)


def test_the_rights_that_are_documented_suffice(secured: Secured, tmp_path: pathlib.Path) -> None:
    """An operator who gives less is told what is missing; one who gives this is done."""
    with TopicBasedRemoteLogMetadataManager() as manager:
        manager.configure(secured.manager_keys(tmp_path, secured.keys("manager")))
        lead(manager, PARTITION)
        finish(manager, segment(1, 0, 9))
        assert found(manager, 0, 5) == 1
    with open_cluster_log(secured.secure, client_keys=secured.keys("reader")) as log:
        bounds = log.bounds(range(log.partition_count), timeout_seconds=30)
        positions = {number: 0 for number, each in bounds.items() if each.end_offset}
        runs = log.read(positions, max_bytes=1 << 20, timeout_seconds=30)
        assert sum(len(run.values) for run in runs) == 2


def test_a_reader_cannot_write(secured: Secured, tmp_path: pathlib.Path) -> None:
    """And reads so, once, instead of trying for two minutes."""
    KafkaMetadataLogs(read_topic_based_config(secured.manager_keys(tmp_path, secured.keys("manager")))).open(
        timeout_seconds=30
    ).close()
    with open_cluster_log(secured.secure, client_keys=secured.keys("reader"), writable=True) as log:
        error = log.append(0, b"x").exception(30)
    assert isinstance(error, RemoteStorageException)
    assert not error.retriable
    assert "AUTHORIZATION_FAILED" in str(error)


def test_without_the_right_to_see_the_configuration_it_is_not_checked(
    secured: Secured, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster with strict ACLs starts all the same; the log says what was left out."""
    from tests.support.metadata_cluster import make_topic

    make_topic(secured.plain, cleanup_policy="compact")
    logs = KafkaMetadataLogs(read_topic_based_config(secured.manager_keys(tmp_path, secured.keys("reader"))))
    logs.open(timeout_seconds=30).close()
    assert f"the configuration of {METADATA_TOPIC} is not checked" in caplog.text


@pytest.mark.parametrize(
    ("user", "password", "text"),
    [("manager", "wrong", r"(?i)authentication failed"), ("nobody", None, "AUTHORIZATION_FAILED")],
)
def test_who_is_not_let_in_is_told_why(
    secured: Secured, tmp_path: pathlib.Path, user: str, password: str | None, text: str
) -> None:
    """Not "no answer in time": that would be looked for in the network. And no secret is in it."""
    logs = KafkaMetadataLogs(read_topic_based_config(secured.manager_keys(tmp_path, secured.keys(user, password))))
    with pytest.raises(RemoteStorageException, match=text) as raised:
        logs.open(timeout_seconds=5)
    assert not raised.value.retriable
    assert "-secret" not in str(raised.value)


@pytest.mark.parametrize("whose", ["common.client", "admin", "consumer"])
def test_a_wrong_password_is_one_line_of_the_log(
    secured: Secured, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, whose: str
) -> None:
    """Two or three tries a second would fill the log with the same line, and bury what else is wrong."""
    wrong = f'{LOGIN} username="manager" password="wrong-secret";'
    keys = secured.manager_keys(tmp_path, secured.keys("manager"))
    with caplog.at_level(logging.INFO), TopicBasedRemoteLogMetadataManager() as manager:
        manager.configure(keys | {f"remote.log.metadata.{whose}.sasl.jaas.config": wrong})
        manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
        wait_until(lambda: _failed(manager))
    lines = [record for record in caplog.records if "uthentication" in record.getMessage()]
    assert [record.levelname for record in lines] == ["ERROR"]
    assert "failed for good" in lines[0].getMessage()
    assert "wrong-secret" not in caplog.text


def _failed(manager: TopicBasedRemoteLogMetadataManager) -> bool:
    try:
        manager.pending_removals()
    except RemoteStorageException:
        return True
    return False


def test_a_server_that_nobody_vouches_for_is_not_talked_to(secured: Secured, tmp_path: pathlib.Path) -> None:
    """It would be given the password."""
    other, _ = certificate(tmp_path, "other")
    logging.getLogger("tierlog.runtime.kafka").setLevel(logging.CRITICAL)
    with pytest.raises(RetriableRemoteStorageException, match="certificate verify failed"):
        open_cluster_log(secured.secure, client_keys=secured.keys("manager", ca=other), timeout_seconds=5)
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        open_cluster_log(secured.secure, client_keys=secured.keys("manager", ca=tmp_path / "absent.pem"))
