"""The clients that people use, over each security protocol and mechanism."""

from __future__ import annotations

import asyncio
import os
import pathlib
import ssl
from typing import Any

import pytest

from tests.support.broker_servers import MetadataHandler, Serving, serving
from tests.support.certificates import write_certificates
from tierlog.broker.server.server_config import SASL_MECHANISMS, SecurityProtocol, ServerConfig

SECURITY = [("PLAINTEXT", ""), ("SSL", "")]
SECURITY += [(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in SASL_MECHANISMS]


def config_for(folder: pathlib.Path, protocol: str) -> ServerConfig:
    files = write_certificates(folder)
    users = folder / "users"
    users.write_text("alice:secret\n")
    users.chmod(0o600)
    return ServerConfig(
        port=0,
        security_protocol=SecurityProtocol(protocol),
        ssl_certificate_chain_location=str(files.chain),
        ssl_key_location=str(files.key),
        sasl_enabled_mechanisms=SASL_MECHANISMS,
        sasl_users_location=str(users),
    )


def confluent(running: Serving, protocol: str, mechanism: str, authority: str) -> str:
    from confluent_kafka.admin import AdminClient

    options = {"bootstrap.servers": running.address, "security.protocol": protocol, "ssl.ca.location": authority}
    if mechanism:
        options |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "secret"}
    return str(AdminClient(options).list_topics(timeout=10).cluster_id)


def python_options(running: Serving, protocol: str, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": running.address, "security_protocol": protocol}
    if mechanism:
        options |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": "secret"}
    return options


def kafka_python(running: Serving, protocol: str, mechanism: str, authority: str) -> str:
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(**python_options(running, protocol, mechanism), ssl_cafile=authority)
    try:
        return str(client.describe_cluster()["cluster_id"])
    finally:
        client.close()


def aiokafka(running: Serving, protocol: str, mechanism: str, authority: str) -> str:
    from aiokafka.admin import AIOKafkaAdminClient

    async def ask() -> str:
        context = ssl.create_default_context(cafile=authority) if protocol.endswith("SSL") else None
        client = AIOKafkaAdminClient(**python_options(running, protocol, mechanism), ssl_context=context)
        await client.start()
        try:
            return str((await client.describe_cluster())["cluster_id"])
        finally:
            await client.close()

    return asyncio.run(ask())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python's, as it is imported
@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka])
@pytest.mark.parametrize(("protocol", "mechanism"), SECURITY)
def test_clients_connect(tmp_path: pathlib.Path, client: Any, protocol: str, mechanism: str) -> None:
    """A client that does not get through sees a timeout, and nobody can say why."""
    handler = MetadataHandler()
    config = config_for(tmp_path, protocol)
    with serving([handler], config) as running:
        found = client(running, protocol, mechanism, os.fspath(tmp_path / "root.pem"))
    assert found == "a-cluster"
    assert handler.contexts[0].principal == ("User:alice" if mechanism else "User:ANONYMOUS")
