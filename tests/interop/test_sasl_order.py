"""Kafka's answers to requests out of order, as tests without a broker have them."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.broker_servers import Client
from tests.support.error_answers import ask_out_of_order, recorded
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import broker

pytestmark = pytest.mark.interop

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_a_broker_answers_as_it_was_recorded(tmp_path: pathlib.Path) -> None:
    """Otherwise this server is held to what no Kafka does."""
    needs_a_broker()
    plain, secure, controller = broker.free_port(), broker.free_port(), broker.free_port()
    extra = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{LOGIN} user_alice="secret";',
    }
    with broker.running(tmp_path / "broker", heap="512m", extra=extra, port=plain):
        for (api_key, version), expected in recorded().items():
            with Client("127.0.0.1", secure) as client:
                assert ask_out_of_order(client, api_key, version) == expected, (api_key, version)
