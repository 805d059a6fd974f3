"""Java's security keys as librdkafka's."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.runtime.kafka.security_keys import SECURITY_KEYS, security_settings

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al ice" password="p\\"a;s=s";'
TLS = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "https"}


def sasl(mechanism: str, jaas: str, **more: str) -> dict[str, str | int | bool]:
    keys = {name.replace("_", "."): value for name, value in more.items()}
    return security_settings(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas} | keys
    )


def test_plaintext_is_the_default() -> None:
    """As Kafka's clients have it."""
    assert security_settings({}) == {"security.protocol": "plaintext"}


def test_a_login_is_read_from_its_jaas_text() -> None:
    """It is where every broker's file has it; a quote or a semicolon in a password must not end it."""
    found = sasl("SCRAM-SHA-512", SCRAM)
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (found["sasl.username"], found["sasl.password"]) == ("al ice", 'p"a;s=s')
    plain = "a.b.PlainLoginModule REQUIRED\n  username=bob\n password='x y' ;"
    found = sasl("PLAIN", plain)
    assert (found["sasl.username"], found["sasl.password"]) == ("bob", "x y")


def test_logins_by_ticket_and_by_token() -> None:
    """Kerberos and OIDC clusters."""
    ticket = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="k@R";'
    found = sasl("GSSAPI", ticket, sasl_kerberos_service_name="kafka")
    assert found["sasl.kerberos.keytab"] == "/k"
    assert found["sasl.kerberos.principal"] == "k@R"
    assert found["sasl.kerberos.service.name"] == "kafka"
    token = 'x.OAuthBearerLoginModule required clientId="i" clientSecret="s" scope="all";'
    found = sasl("OAUTHBEARER", token, sasl_oauthbearer_token_endpoint_url="https://idp/token")
    assert found["sasl.oauthbearer.method"] == "oidc"
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://idp/token"
    names = ("client.id", "client.secret", "scope")
    assert [found[f"sasl.oauthbearer.{name}"] for name in names] == ["i", "s", "all"]


@pytest.mark.parametrize(
    ("mechanism", "jaas", "text"),
    [
        ("PLAIN", "PlainLoginModule required username=u", "malformed"),
        ("PLAIN", 'PlainLoginModule required username="hush;', "malformed"),
        ("PLAIN", "PlainLoginModule required username=hush;", "no password"),
        ("PLAIN", "PlainLoginModule required hush;", "not of the form"),
        ("PLAIN", "x.ScramLoginModule required username=hush password=hush;", "goes with PlainLoginModule"),
        ("DIGEST", "x.PlainLoginModule required;", "is none of GSSAPI, OAUTHBEARER, PLAIN, SCRAM"),
        ("OAUTHBEARER", "x.OAuthBearerLoginModule required clientId=hush clientSecret=hush;", "needs sasl.oauth"),
    ],
)
def test_broken_logins_are_errors_without_secrets(mechanism: str, jaas: str, text: str) -> None:
    """The message ends up in a log that others read."""
    with pytest.raises(ConfigError, match=text) as raised:
        sasl(mechanism, jaas)
    assert "hush" not in str(raised.value)


def test_key_and_trust_stores_are_pem() -> None:
    """KIP-651: a file or the text itself; PKCS#12 for the key."""
    keys = {
        "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem", "ssl.key.password": "pw",
    }  # fmt: skip
    found = security_settings(TLS | keys)
    assert found == {
        "security.protocol": "ssl", "ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem", "ssl.key.password": "pw", "ssl.endpoint.identification.algorithm": "https",
    }  # fmt: skip
    keys = {
        "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "CA", "ssl.keystore.type": "pem",
        "ssl.keystore.certificate.chain": "CHAIN", "ssl.keystore.key": "KEY",
    }  # fmt: skip
    found = security_settings(TLS | keys)
    assert (found["ssl.ca.pem"], found["ssl.certificate.pem"], found["ssl.key.pem"]) == ("CA", "CHAIN", "KEY")
    keys = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "pw"}
    found = security_settings(TLS | keys)
    assert (found["ssl.keystore.location"], found["ssl.keystore.password"]) == ("/k.p12", "pw")


@pytest.mark.parametrize("store", ["truststore", "keystore"])
@pytest.mark.parametrize("kind", [None, "JKS", "jks"])
def test_a_jvms_own_store_is_refused_with_what_to_do(store: str, kind: str | None) -> None:
    """It is Kafka's default type, and a file that nothing but a JVM reads."""
    keys = {f"ssl.{store}.location": "/x.jks"} | ({} if kind is None else {f"ssl.{store}.type": kind})
    with pytest.raises(ConfigError, match=rf"ssl\.{store}\.type is JKS, which only a JVM can read: export it as PEM"):
        security_settings(TLS | keys)
    assert security_settings(keys) == {"security.protocol": "plaintext"}


def test_contradictions_are_errors() -> None:
    """Half a key pair, or the trust given twice."""
    pem = TLS | {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    for keys in (
        {"ssl.truststore.certificates": "CA", "ssl.truststore.location": "/ca"},
        {"ssl.keystore.key": "KEY"},
        {"ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "C", "ssl.keystore.location": "/x"},
        {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
        {"ssl.endpoint.identification.algorithm": "ldap"},
        {"security.protocol": "TLS"},
    ):
        with pytest.raises(ConfigError):
            security_settings(pem | keys)


def test_names_are_checked_unless_that_is_turned_off() -> None:
    """Java's word for "do not check the server's name" is an empty value: neither is to be taken for the other."""
    assert security_settings({"security.protocol": "SSL"})["ssl.endpoint.identification.algorithm"] == "https"
    off = {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": " "}
    assert security_settings(off)["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize("name", ["ssl.cipher.suites", "ssl.engine.factory.class", "security.providers"])
def test_what_only_a_jvm_obeys_is_refused(name: str) -> None:
    """A cluster's rule that is silently not kept is worse than none."""
    assert name in SECURITY_KEYS
    with pytest.raises(ConfigError, match=f"^{name} can be obeyed by a JVM alone"):
        security_settings(TLS | {name: "x"})
