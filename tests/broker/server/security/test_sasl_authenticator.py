"""SASL by sockets: Kafka's order of requests, what is refused and how."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode
from scramp import ScramClient

from tests.support.broker_servers import (
    API_VERSIONS,
    METADATA,
    Call,
    Client,
    MetadataHandler,
    Serving,
    error_code,
    serving,
)
from tests.support.error_answers import ask_out_of_order, recorded
from tests.support.waiting import wait_until
from tierlog.broker.handling import Answer
from tierlog.broker.server.server_config import SASL_MECHANISMS, SecurityProtocol, ServerConfig
from tierlog.serving import server

HANDSHAKE = 17
AUTHENTICATE = 36
DELAY_SECONDS = 0.05


@pytest.fixture
def config(tmp_path: pathlib.Path) -> ServerConfig:
    users = tmp_path / "users"
    users.write_text("alice:secret\nbob:hidden\n")
    users.chmod(0o600)
    return ServerConfig(
        port=0,
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_enabled_mechanisms=SASL_MECHANISMS,
        sasl_users_location=str(users),
        connection_failed_authentication_delay_ms=int(DELAY_SECONDS * 1000),
    )


@pytest.fixture
def running(config: ServerConfig) -> Iterator[Serving]:
    with serving(config=config) as found:
        yield found


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def token_of(answer: bytes) -> bytes:
    """The bytes of a SaslAuthenticate answer of version 0, which was no error."""
    assert error_code(answer) is ErrorCode.none, answer
    assert answer[6:8] == b"\xff\xff"
    (size_bytes,) = struct.unpack(">i", answer[8:12])
    assert len(answer) == 12 + size_bytes
    return answer[12:]


def handshake(client: Client, mechanism: str, version: int = 1) -> bytes:
    client.send_request(HANDSHAKE, version, string(mechanism))
    return client.read_frame()


def authenticate(client: Client, token: bytes) -> bytes:
    client.send_request(AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    return client.read_frame()


def plain(name: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{name}\0{password}".encode()


@pytest.mark.parametrize("password", ["secret", "wrong"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(running: Serving, mechanism: str, password: str) -> None:
    """A client with the password gets in, and gets a proof that the server has it too; no other gets in."""
    with running.client() as client:
        answer = handshake(client, mechanism)
        assert error_code(answer) is ErrorCode.none
        assert [each for each in SASL_MECHANISMS if each.encode() in answer] == list(SASL_MECHANISMS)
        peer = ScramClient([mechanism], "alice", password)
        peer.set_server_first(token_of(authenticate(client, peer.get_client_first().encode())).decode())
        answer = authenticate(client, peer.get_client_final().encode())
        if password == "secret":
            peer.set_server_final(token_of(answer).decode())
            assert client.ask_metadata()
        else:
            assert error_code(answer) is ErrorCode.sasl_authentication_failed
            assert b"due to invalid credentials with SASL mechanism " + mechanism.encode() in answer
            assert client.is_closed()
            assert running.metrics.refused("authentication") == 1


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_nonce_that_is_sent_twice_is_named(running: Serving, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A user of Debian's kcat would look for the fault in the password, which is right."""
    with running.client() as client:
        handshake(client, "SCRAM-SHA-256")
        peer = ScramClient(["SCRAM-SHA-256"], name, "secret")
        peer.set_server_first(token_of(authenticate(client, peer.get_client_first().encode())).decode())
        final = peer.get_client_final().replace(",r=", f",r={peer.c_nonce}")
        answer = authenticate(client, final.encode())
        assert error_code(answer) is ErrorCode.sasl_authentication_failed
        assert b"librdkafka does before 2.6.1" in answer
        assert client.is_closed()
    assert "librdkafka does before 2.6.1" in caplog.text


@pytest.mark.server
def test_kcat_of_debian_is_told_why_scram_fails(config: ServerConfig) -> None:
    """The same from the client that sends it."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    version = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    if "librdkafka 2.0" not in version:
        pytest.skip(f"another kcat than Debian's: {version}")
    with serving(config=config) as running:
        keys = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", "sasl.username=alice")
        options = [part for key in (*keys, "sasl.password=secret") for part in ("-X", key)]
        command = ["kcat", "-L", "-m", "5", "-b", running.address, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert "librdkafka does before 2.6.1" in done.stderr


def test_scram_answers_for_a_name_that_nobody_has(running: Serving) -> None:
    """Otherwise anybody learns the names of users: a salt for those alone."""
    with running.client() as client:
        handshake(client, "SCRAM-SHA-256")
        peer = ScramClient(["SCRAM-SHA-256"], "nobody", "secret")
        peer.set_server_first(token_of(authenticate(client, peer.get_client_first().encode())).decode())
        answer = authenticate(client, peer.get_client_final().encode())
        assert error_code(answer) is ErrorCode.sasl_authentication_failed
        assert client.is_closed()


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=" + b"a" * 100_000 + b",r=abc,,,",
        b"n,,n=alice,r=abc,tokenauth=true",
    ],
)
def test_a_malformed_scram_message_is_refused(running: Serving, token: bytes) -> None:
    """Whoever sends one has proved nothing, and must not learn from a fault of the server's."""
    with running.client() as client:
        handshake(client, "SCRAM-SHA-256")
        answer = authenticate(client, token)
        assert error_code(answer) is ErrorCode.sasl_authentication_failed
        assert client.is_closed()
    assert running.metrics.refused("fault") == 0


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (plain("alice", "wrong"), b"Invalid username or password"),
        (plain("nobody", "secret"), b"Invalid username or password"),
        (plain("alice", "hidden"), b"Invalid username or password"),
        (plain("", "secret"), b"username not specified"),
        (plain("alice", ""), b"password not specified"),
        (b"alice\0secret", b"expected 3 tokens"),
        (b"\0alice\0secret\0", b"expected 3 tokens"),
        (b"\0\xff\0secret", b"not UTF-8"),
        (plain("alice", "secret", "bob"), b"authorization id"),
        (plain("alice", "s" * 400_000), b"Invalid username or password"),
    ],
)
def test_plain_refuses_in_kafkas_words(running: Serving, token: bytes, text: bytes) -> None:
    """Clients show the text to their users."""
    with running.client() as client:
        handshake(client, "PLAIN")
        began = time.monotonic()
        answer = authenticate(client, token)
        assert time.monotonic() - began >= DELAY_SECONDS * 0.9
        assert error_code(answer) is ErrorCode.sasl_authentication_failed
        assert text in answer
        assert client.is_closed()


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_plain(config: ServerConfig, authorization_id: str) -> None:
    """Handlers know which user asks."""
    handler = MetadataHandler()
    with serving([handler], config) as running, running.client() as client:
        handshake(client, "PLAIN")
        assert token_of(authenticate(client, plain("alice", "secret", authorization_id))) == b""
        assert client.ask_metadata()
    assert handler.contexts[0].principal == "User:alice"


def test_a_handshake_of_version_0_is_followed_by_bare_tokens(running: Serving) -> None:
    """Older clients send the mechanism's messages without a request around them."""
    with running.client() as client:
        assert error_code(handshake(client, "PLAIN", 0)) is ErrorCode.none
        client.send_frame(plain("alice", "secret"))
        assert client.read_frame() == b""
        assert client.ask_metadata()
    with running.client() as client:
        handshake(client, "SCRAM-SHA-256", 0)
        peer = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
        client.send_frame(peer.get_client_first().encode())
        peer.set_server_first(client.read_frame().decode())
        client.send_frame(peer.get_client_final().encode())
        peer.set_server_final(client.read_frame().decode())
        assert client.ask_metadata()
    with running.client() as client:
        handshake(client, "PLAIN", 0)
        client.send_frame(plain("alice", "wrong"))
        assert client.is_closed()


def test_an_unknown_mechanism_is_told_the_known_ones(running: Serving) -> None:
    """The client's user must see what to set instead."""
    with running.client() as client:
        answer = handshake(client, "GSSAPI")
        assert error_code(answer) is ErrorCode.unsupported_sasl_mechanism
        assert all(mechanism.encode() in answer for mechanism in SASL_MECHANISMS)
        assert client.is_closed()


def test_nothing_else_is_answered_before_authentication(running: Serving) -> None:
    """Otherwise whoever connects reads the data."""
    with running.client() as client:
        client.send_request(METADATA, 0, struct.pack(">i", 0))
        assert client.is_closed()
    with running.client() as client:
        client.send_request(AUTHENTICATE, 0, struct.pack(">i", 0))
        assert client.is_closed()
    with running.client() as client:
        handshake(client, "PLAIN")
        client.send_request(METADATA, 0, struct.pack(">i", 0))
        assert client.read_frame()[4:] == bytes(8), "no broker, no topic"
        assert client.is_closed()
    with running.client() as client:
        handshake(client, "PLAIN")
        assert error_code(handshake(client, "PLAIN")) is ErrorCode.illegal_sasl_state
        assert client.is_closed()
    with running.client() as client:
        handshake(client, "PLAIN")
        client.send_request(API_VERSIONS, 0)
        assert error_code(client.read_frame()) is ErrorCode.illegal_sasl_state
        assert client.is_closed()
    assert running.metrics.api(METADATA).requests == 0


def test_requests_behind_a_failed_authentication_are_not_answered(running: Serving) -> None:
    """A client that sends on at once must not slip through while its refusal is held back."""
    with running.client() as client:
        handshake(client, "PLAIN")
        token = plain("alice", "wrong")
        client.send_request(AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        client.send_request(METADATA, 0, struct.pack(">i", 0))
        assert error_code(client.read_frame()) is ErrorCode.sasl_authentication_failed
        assert client.is_closed()
    assert running.metrics.api(METADATA).requests == 0


def test_api_versions_come_first_if_the_client_likes(running: Serving) -> None:
    """All newer clients ask for them before the handshake, and again when the version was unknown; then not again."""
    with running.client() as client:
        client.send_request(API_VERSIONS, 100, b"\0", flexible=True)
        assert error_code(client.read_frame()) is ErrorCode.unsupported_version
        client.send_request(API_VERSIONS, 0)
        assert error_code(client.read_frame()) is ErrorCode.none
        client.send_request(API_VERSIONS, 0)
        assert client.is_closed()


def test_sasl_is_over_once_it_is_over(running: Serving) -> None:
    """A client that is through gets Kafka's error for more of it, and keeps its connection."""
    with running.client() as client:
        handshake(client, "PLAIN")
        token_of(authenticate(client, plain("alice", "secret")))
        assert error_code(handshake(client, "PLAIN")) is ErrorCode.illegal_sasl_state
        answer = authenticate(client, plain("bob", "hidden"))
        assert error_code(answer) is ErrorCode.illegal_sasl_state
        assert client.ask_metadata()


def test_a_client_without_proof_may_send_little(running: Serving) -> None:
    """Otherwise anybody who can connect takes the memory for requests."""
    with running.client() as client:
        client.send(struct.pack(">i", 524289))
        assert client.is_closed()
    assert running.metrics.refused("frame_size") == 1


def test_a_client_that_proves_nothing_is_closed_in_time(config: ServerConfig) -> None:
    """Otherwise anybody who can connect takes all places, request by request."""
    config = dataclasses.replace(config, authentication_deadline_ms=1000)
    with serving(config=config) as running:
        with running.client() as client:
            client.send_request(API_VERSIONS, 0)
            client.read_frame()
            assert client.is_closed()
        assert running.metrics.refused("authentication_deadline") == 1
        with running.client() as client:
            handshake(client, "PLAIN")
            token_of(authenticate(client, plain("alice", "secret")))
            time.sleep(1.3)
            assert client.ask_metadata()


def test_no_password_is_logged(config: ServerConfig, caplog: pytest.LogCaptureFixture) -> None:
    """Logs are read by more people than the file of users."""
    with caplog.at_level(logging.DEBUG), serving(config=config) as running:
        for password in ("secret", "a-wrong-one"):
            with running.client() as client:
                handshake(client, "PLAIN")
                authenticate(client, plain("alice", password))
    assert "event=authenticated" in caplog.text
    assert "event=refused kind=authentication" in caplog.text
    assert "secret" not in caplog.text
    assert "a-wrong-one" not in caplog.text


def test_changed_users_count_for_new_connections_and_break_no_old_one(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who is added, or a password that leaked, must not wait for a restart; a restart breaks every reader."""
    monkeypatch.setattr(server, "_FILES_PERIOD_SECONDS", 0.05)
    path = pathlib.Path(config.sasl_users_location)
    with serving(config=config) as running, running.client() as old, running.client() as half:
        handshake(old, "PLAIN")
        assert error_code(authenticate(old, plain("alice", "secret"))) is ErrorCode.none
        path.write_text("carol:pass\n")

        def may_log_in(name: str, password: str) -> bool:
            with running.client() as client:
                handshake(client, "PLAIN")
                return error_code(authenticate(client, plain(name, password))) is ErrorCode.none

        wait_until(lambda: may_log_in("carol", "pass"))
        assert not may_log_in("alice", "secret")
        assert old.ask_metadata()
        handshake(half, "PLAIN")
        assert error_code(authenticate(half, plain("carol", "pass"))) is ErrorCode.none


@pytest.mark.parametrize("api_key", sorted({key for key, _ in recorded()}))
def test_any_request_in_the_midst_is_answered_as_kafka_does(config: ServerConfig, api_key: int) -> None:
    """A client that mixes up its order would see a closed connection, and its user would look for a network fault."""
    answers = recorded()
    versions = [version for key, version in answers if key == api_key]

    async def answer(request: object, context: object) -> Answer:
        raise AssertionError("a client that has proved nothing is served")

    handlers = (
        [] if api_key in (API_VERSIONS, HANDSHAKE) else [Call(answer, api_key, range(min(versions), max(versions) + 1))]
    )
    quick = dataclasses.replace(config, connection_failed_authentication_delay_ms=0)
    with serving(handlers, quick) as running:
        for version in versions:
            with running.client() as client:
                assert ask_out_of_order(client, api_key, version) == answers[api_key, version], version


def test_an_api_that_nobody_knows_in_the_midst_is_closed(running: Serving) -> None:
    """Of a request that cannot be read no answer can be made, of Kafka's neither."""
    for api_key, version in ((1234, 0), (METADATA, 99)):
        with running.client() as client:
            handshake(client, "PLAIN")
            client.send_request(api_key, version, b"")
            assert client.is_closed()
