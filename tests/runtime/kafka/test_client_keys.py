"""Java's keys of Kafka's clients as librdkafka's."""

from __future__ import annotations

import logging

import pytest

from tierlog.errors import ConfigError
from tierlog.runtime.kafka.client_keys import KNOWN_KEYS, Role, client_settings

SERVERS = {"bootstrap.servers": "a:1, b:2,"}
#: Java's defaults, or values near them, of every key that has a name of librdkafka's.
JAVA_VALUES = {
    "batch.size": "16384",
    "buffer.memory": "33554432",
    "check.crcs": "true",
    "client.dns.lookup": "use_all_dns_ips",
    "client.id": "mine",
    "client.rack": "r1",
    "compression.type": "zstd",
    "connections.max.idle.ms": "540000",
    "default.api.timeout.ms": "60000",
    "delivery.timeout.ms": "120000",
    "enable.metrics.push": "true",
    "fetch.max.bytes": "52428800",
    "fetch.max.wait.ms": "500",
    "fetch.min.bytes": "1",
    "group.id": "g",
    "isolation.level": "read_uncommitted",
    "linger.ms": "5",
    "max.in.flight.requests.per.connection": "5",
    "max.partition.fetch.bytes": "1048576",
    "max.request.size": "1048576",
    "metadata.max.age.ms": "300000",
    "metadata.recovery.rebootstrap.trigger.ms": "300000",
    "metadata.recovery.strategy": "rebootstrap",
    "receive.buffer.bytes": "-1",
    "reconnect.backoff.max.ms": "1000",
    "reconnect.backoff.ms": "50",
    "request.timeout.ms": "30000",
    "retries": "2147483647",
    "retry.backoff.max.ms": "1000",
    "retry.backoff.ms": "100",
    "send.buffer.bytes": "131072",
    "socket.connection.setup.timeout.ms": "10000",
}


def settings(role: Role, **given: str) -> dict[str, str | int | bool]:
    keys = {name.replace("_", "."): value for name, value in given.items()}
    return dict(client_settings(role, SERVERS | keys, client_id="c").values)


@pytest.mark.parametrize("role", ["admin", "producer", "consumer"])
def test_librdkafka_takes_every_key_of_java(role: Role) -> None:
    """A broker's file with a client's usual keys would not start."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient

    assert JAVA_VALUES.keys() | SERVERS.keys() == KNOWN_KEYS.keys()
    make = {"admin": AdminClient, "producer": confluent_kafka.Producer, "consumer": confluent_kafka.Consumer}[role]
    log = logging.getLogger("test")
    client = make(dict(client_settings(role, SERVERS | JAVA_VALUES, client_id="c").values), logger=log)
    if role == "consumer":
        client.close()


def test_names_and_units_are_translated() -> None:
    """A timeout or a bound of memory under Java's name would be refused or, worse, be another thing."""
    found = settings("producer", request_timeout_ms="7000", buffer_memory="1048576", receive_buffer_bytes="-1")
    assert found["bootstrap.servers"] == "a:1,b:2"
    assert found["socket.timeout.ms"] == "7000"
    assert found["queue.buffering.max.kbytes"] == "1024"
    assert found["socket.receive.buffer.bytes"] == "0"
    assert settings("consumer", fetch_max_wait_ms="9")["fetch.wait.max.ms"] == "9"
    assert client_settings("admin", SERVERS | {"default.api.timeout.ms": "1500"}, client_id="c").call_seconds == 1.5


def test_a_keys_own_client_wins_over_the_common_keys() -> None:
    """An operator gives one client other credentials or limits."""
    found = client_settings("producer", SERVERS | {"linger.ms": "1"}, {"linger.ms": "2"}, client_id="c")
    assert found.values["linger.ms"] == "2"


def test_keys_of_another_client_are_passed_over_among_the_common_ones_alone() -> None:
    """Kafka takes one set of common keys for three clients; a key below the wrong client's prefix is a mistake."""
    assert "linger.ms" not in settings("consumer", linger_ms="5")
    with pytest.raises(ConfigError, match=r"^linger\.ms is no key of a Kafka consumer$"):
        client_settings("consumer", SERVERS, {"linger.ms": "5"}, client_id="c")


def test_what_makes_the_log_safe_is_not_configurable(caplog: pytest.LogCaptureFixture) -> None:
    """With acks=1 a finished segment could be forgotten; with a reset of offsets, metadata skipped without a word."""
    found = settings("producer", acks="1", enable_idempotence="false")
    assert (found["acks"], found["enable.idempotence"]) == ("all", True)
    assert "acks=1 of the Kafka producer is passed over: it is always all" in caplog.text
    found = settings(
        "consumer", auto_offset_reset="latest", enable_auto_commit="true", isolation_level="read_committed"
    )
    assert (found["auto.offset.reset"], found["enable.auto.commit"]) == ("error", False)
    assert found["isolation.level"] == "read_committed"
    assert "auto.offset.reset=latest of the Kafka consumer is passed over" in caplog.text
    caplog.clear()
    settings("producer", acks="-1", key_serializer="org.apache.kafka.common.serialization.ByteArraySerializer")
    assert not caplog.text


def test_what_has_no_meaning_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that an operator set is dropped without a word."""
    settings("consumer", max_poll_records="5", metric_reporters="x")
    assert "max.poll.records has no meaning for the Kafka consumer" in caplog.text
    assert "metric.reporters has no meaning" in caplog.text


@pytest.mark.parametrize("role", ["admin", "producer", "consumer"])
def test_an_unknown_key_is_an_error_that_names_the_nearest(role: Role) -> None:
    """A mistyped timeout would be the default one."""
    with pytest.raises(ConfigError, match=r"unknown key request\.timeout of a Kafka client; .* request\.timeout\.ms$"):
        settings(role, request_timeout="5")


def test_broken_values_are_errors() -> None:
    """They would be found by the first call, in librdkafka's words."""
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers of the Kafka admin is missing$"):
        client_settings("admin", {}, client_id="c")
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers: ' , ' is not a value of it"):
        client_settings("admin", {"bootstrap.servers": " , "}, client_id="c")
    with pytest.raises(ConfigError, match=r"^buffer\.memory: 'much'"):
        settings("producer", buffer_memory="much")
    for text in ("0", "-1", "x", "99999999999"):
        with pytest.raises(ConfigError, match=r"^default\.api\.timeout\.ms"):
            settings("admin", default_api_timeout_ms=text)


def test_no_secret_is_shown() -> None:
    """Settings end up in tracebacks and logs."""
    found = client_settings(
        "admin",
        SERVERS | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"},
        {"sasl.password": "hush"},
        client_id="c",
    )
    assert found.values["sasl.password"] == "hush"
    assert "hush" not in repr(found)
