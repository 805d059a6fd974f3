"""The configuration of a front: the keys that it takes, and those that it refuses."""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import Mapping

import pytest

from tests.support.certificates import write_certificates
from tierlog.broker.front.front_config import FrontConfig, read_front_config, tls_context
from tierlog.errors import ConfigError

LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "front", "sasl.password": "secret"}
SASL_SSL = {"security.protocol": "SASL_SSL", **LOGIN}


def config(
    upstream: str = "localhost:9092",
    keys: Mapping[str, str] | None = None,
    advertise: str | None = None,
    listen_port: int = 9092,
) -> FrontConfig:
    return read_front_config(upstream, keys or {}, advertise=advertise, listen_port=listen_port)


def test_what_is_given_is_taken() -> None:
    """Names, numbers, and an IPv6 address in brackets."""
    made = config("kafka-1:9093, [::1]:9094", SASL_SSL, "front.example.com:9100-9115")
    assert made.bootstrap == [("kafka-1", 9093), ("::1", 9094)]
    assert (made.advertised_host, made.ports) == ("front.example.com", range(9100, 9116))
    assert made.has_tls
    assert made.has_sasl
    assert "secret" not in repr(made)


def test_ports_follow_the_bootstrap_by_default() -> None:
    """Sixteen of them, under the host that a client reached."""
    made = config(listen_port=19092)
    assert (made.advertised_host, made.ports) == ("", range(19093, 19109))
    assert not made.has_tls
    assert not made.has_sasl


@pytest.mark.parametrize(
    ("upstream", "keys", "advertise", "text"),
    [
        ("kafka:9092", {}, None, "by TLS alone"),
        ("10.0.0.1:9092", {"security.protocol": "SASL_PLAINTEXT", **LOGIN}, None, "by TLS alone"),
        ("127.0.0.1:9092,kafka:9092", {}, None, "by TLS alone"),
        ("localhost", {}, None, "HOST:PORT"),
        (":9092", {}, None, "HOST:PORT"),
        ("localhost:1,kafka..test:9092", {}, None, "'kafka..test' is no name of a host"),
        ("localhost:0", {}, None, "HOST:PORT"),
        ("localhost:1", {"fetch.min.bytes": "1"}, None, "fetch.min.bytes is no key of security"),
        ("localhost:1", {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, None, "GSSAPI"),
        (
            "localhost:1",
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": "front.pem"},
            None,
            "a certificate of its own",
        ),
        ("localhost:1", {}, "front:9100", "FIRST-LAST"),
        ("localhost:1", {}, "front:9100-x", "FIRST-LAST"),
        ("localhost:1", {}, "front:9100-9099", "no range of ports"),
        ("localhost:1", {}, "front:9000-9100", "is that of --listen"),
    ],
)
def test_what_cannot_be_is_refused(upstream: str, keys: Mapping[str, str], advertise: str | None, text: str) -> None:
    """At the start, in words that name the option and the remedy."""
    with pytest.raises(ConfigError, match=text):
        config(upstream, keys, advertise)


def test_the_trusted_certificates_are_checked(tmp_path: pathlib.Path) -> None:
    """A broker behind another certificate gets no password."""
    certificate = write_certificates(tmp_path).authority
    keys = {**SASL_SSL, "ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificate)}
    context = tls_context(config(keys=keys))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    unchecked = tls_context(config(keys={**keys, "ssl.endpoint.identification.algorithm": ""}))
    assert unchecked is not None
    assert not unchecked.check_hostname
    assert tls_context(config()) is None
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="cannot be used"):
        tls_context(config(keys={**keys, "ssl.truststore.location": str(tmp_path / "none.pem")}))
