"""TLS: which clients are let in, which server they meet, and a certificate that changes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import socket
import ssl
import struct

import pytest

from tests.support.broker_servers import Call, Client, MetadataHandler, Serving, serving
from tests.support.certificates import CertificateFiles, write_certificates
from tests.support.waiting import wait_until
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.server.server_config import SecurityProtocol, ServerConfig
from tierlog.errors import ConfigError
from tierlog.serving import server
from tierlog.serving.response_writer import Reply


def tls_config(files: CertificateFiles, **changes: object) -> ServerConfig:
    config = ServerConfig(
        port=0,
        security_protocol=SecurityProtocol.SSL,
        ssl_certificate_chain_location=str(files.chain),
        ssl_key_location=str(files.key),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def context_for(files: CertificateFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.authority))


def tls_client(running: Serving, context: ssl.SSLContext, name: str = "localhost") -> Client:
    return running.client(wrap=lambda plain: context.wrap_socket(plain, server_hostname=name))


def test_requests_are_answered_behind_a_chain_of_certificates(tmp_path: pathlib.Path) -> None:
    """A client that trusts the authority alone must be given the certificates between, and the whole answer."""
    body = os.urandom(5 << 20)

    async def answer(request: object, context: RequestContext) -> Answer:
        pieces = [memoryview(body)[at : at + 300_000] for at in range(0, len(body), 300_000)]
        return Reply(pieces, len(body), lambda: released.append(True))

    released: list[bool] = []
    files = write_certificates(tmp_path)
    with (
        serving([MetadataHandler(), Call(answer)], tls_config(files)) as running,
        tls_client(running, context_for(files)) as client,
    ):
        assert client.ask_metadata()
        for _ in range(3):
            client.send_request(60, 0, b"\0" * 3, flexible=True)
        for _ in range(3):
            assert client.read_frame()[5:] == body
        wait_until(lambda: len(released) == 3)


def test_a_client_under_tls_that_takes_no_byte_is_cut_off(tmp_path: pathlib.Path) -> None:
    """Encrypting an answer for a client that hangs must not take memory for all of it, nor hold it for ever."""
    released: list[bool] = []

    async def answer(request: object, context: RequestContext) -> Answer:
        return Reply([bytes(64 << 20)], 64 << 20, lambda: released.append(True))

    files = write_certificates(tmp_path)
    config = tls_config(files, response_deadline_ms=300)
    with serving([Call(answer)], config) as running, tls_client(running, context_for(files)) as client:
        client.send_request(60, 0, b"\0" * 3, flexible=True)
        wait_until(lambda: running.metrics.refused("response_deadline") == 1)
        wait_until(lambda: bool(released))


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"\0\0\0\x10\0\x12\0\0", "the client does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP"),
        (b"\x16\x03\x01\xff\xff", "packet length too long"),
    ],
)
def test_a_client_without_tls_is_closed(
    tmp_path: pathlib.Path, sent: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that was set up for PLAINTEXT must see an error soon, and others must not notice."""
    config = tls_config(write_certificates(tmp_path), authentication_deadline_ms=500)
    with serving(config=config) as running:
        with running.client() as client:
            client.send(sent)
            while client.socket.recv(1000):
                pass
        wait_until(lambda: running.metrics.refused("tls") == 1)
        wait_until(lambda: running.metrics.connections() == 0)
    assert told in caplog.text


def test_a_client_that_goes_in_the_midst_of_the_handshake_has_a_reason(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator reads that something was refused, and an empty reason."""
    with serving(config=tls_config(write_certificates(tmp_path))) as running:
        with running.client() as client:
            client.send(b"\x16\x03\x01")
        wait_until(lambda: running.metrics.refused("tls") == 1)
    assert "closed the connection in the midst of the handshake" in caplog.text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_does_not_trust_the_certificate_has_a_reason(
    tmp_path: pathlib.Path, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    """The most common fault of all is logged in OpenSSL's words, if at all."""
    context = ssl.create_default_context()
    context.maximum_version = version
    with serving(config=tls_config(write_certificates(tmp_path))) as running:
        with pytest.raises(ssl.SSLError):
            tls_client(running, context)
        wait_until(lambda: running.metrics.refused("tls") == 1)
    assert "does not trust who signed the certificate" in caplog.text


def test_a_client_with_tls_on_a_listener_without_has_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """The other way round: a request of 369,296,128 bytes tells nobody what to change."""
    with serving() as running:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            running.client(wrap=lambda plain: ssl.create_default_context().wrap_socket(plain, server_hostname="x"))
        wait_until(lambda: running.metrics.refused("frame_size") == 1)
    assert "the client speaks TLS" in caplog.text


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(tmp_path: pathlib.Path) -> None:
    """TLS 1.0 and 1.1 can be read by others."""
    files = write_certificates(tmp_path)
    context = context_for(files)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with serving(config=tls_config(files)) as running, pytest.raises((ssl.SSLError, ConnectionResetError)):
        tls_client(running, context)


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: pathlib.Path) -> None:
    """Certificates are renewed while clients read; one that is half written must change nothing."""
    files = write_certificates(tmp_path / "old")
    renewed = write_certificates(tmp_path / "new")
    with serving(config=tls_config(files)) as running, tls_client(running, context_for(files)) as old:
        files.chain.write_bytes(renewed.chain.read_bytes())
        running.run(running.server.reload_files())
        with tls_client(running, context_for(files)) as client:
            assert client.ask_metadata()
        files.key.write_bytes(renewed.key.read_bytes())
        running.run(running.server.reload_files())
        with tls_client(running, context_for(renewed)) as client:
            assert client.ask_metadata()
        assert old.ask_metadata()


def test_a_renewed_certificate_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that renews certificates sends no signal."""
    monkeypatch.setattr(server, "_FILES_PERIOD_SECONDS", 0.05)
    files = write_certificates(tmp_path / "old")
    renewed = write_certificates(tmp_path / "new")
    with serving(config=tls_config(files)) as running:
        files.chain.write_bytes(renewed.chain.read_bytes())
        files.key.write_bytes(renewed.key.read_bytes())

        def is_served() -> bool:
            try:
                with tls_client(running, context_for(renewed)) as client:
                    return bool(client.ask_metadata())
            except ssl.SSLError:
                return False

        wait_until(is_served)


def test_a_stop_does_not_wait_for_half_a_handshake(tmp_path: pathlib.Path) -> None:
    """Port scanners would keep a server from ending, and from starting again."""
    config = tls_config(write_certificates(tmp_path))
    with serving(config=config) as running, running.client() as client:
        client.send(b"\x16\x03\x01")
        wait_until(lambda: running.metrics.connections() == 1)
        running.stop()
        assert client.is_closed()
        assert running.metrics.connections() == 0


@pytest.mark.parametrize("spoil", ["chain", "key", "absent", "password"])
def test_a_certificate_that_cannot_be_used_is_a_clear_error(tmp_path: pathlib.Path, spoil: str) -> None:
    """A server that listened without its certificate would refuse every client."""
    files = write_certificates(tmp_path, password="secret" if spoil == "password" else "")
    if spoil == "chain":
        files.chain.write_bytes(b"nothing")
    elif spoil == "key":
        files.key.write_bytes(write_certificates(tmp_path / "other").key.read_bytes())
    elif spoil == "absent":
        files.key.unlink()
    with pytest.raises(ConfigError, match="certificate"), serving(config=tls_config(files)):
        pass


def test_an_encrypted_key_is_opened(tmp_path: pathlib.Path) -> None:
    """Keys are often kept encrypted; without the password the server must not ask a terminal for it."""
    files = write_certificates(tmp_path, password="secret")
    config = tls_config(files, ssl_key_password="secret")
    with serving(config=config) as running, tls_client(running, context_for(files)) as client:
        assert client.ask_metadata()


def test_a_client_may_go_at_any_point_of_the_handshake(tmp_path: pathlib.Path) -> None:
    """Port scanners do; each must cost nothing that lasts."""
    files = write_certificates(tmp_path)
    context = context_for(files)
    hello = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    sent = hello.read()
    with serving(config=tls_config(files)) as running:
        for cut in range(0, len(sent) + 1, 40):
            plain = socket.create_connection((running.host, running.port))
            plain.sendall(sent[:cut])
            if cut % 80:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            plain.close()
        wait_until(lambda: running.metrics.connections() == 0)
