"""Certificates that a bucket is not to be read over: refused, and what is wrong with each is said."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import pathlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from tierlog.errors import StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.stores.store_urls import open_store

x509 = pytest.importorskip("cryptography.x509")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self._signed(self._key, "authority", (-1, 1), None).public_bytes(serialization.Encoding.PEM).decode()

    def _signed(
        self, key: ec.EllipticCurvePrivateKey, name: str, days: tuple[int, int], address: str | None
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)

        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

        made = x509.CertificateBuilder(
            issuer_name=named("authority"),
            subject_name=named(name),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now + days[0] * DAY,
            not_valid_after=now + days[1] * DAY,
        ).add_extension(x509.BasicConstraints(address is None, None), critical=True)
        if address is not None:
            host = x509.IPAddress(ipaddress.ip_address(address))
            made = made.add_extension(x509.SubjectAlternativeName([host]), critical=False)
        return made.sign(self._key, hashes.SHA256())

    def own_context(self, folder: pathlib.Path) -> ssl.SSLContext:
        """Of a server that shows the authority's own certificate, as ``openssl req -x509`` makes it."""
        return self._context(folder, self._key, self.pem.encode())

    def context(self, folder: pathlib.Path, days: tuple[int, int], address: str) -> ssl.SSLContext:
        """Of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        shown = self._signed(key, "server", days, address).public_bytes(serialization.Encoding.PEM)
        return self._context(folder, key, shown)

    def _context(self, folder: pathlib.Path, key: ec.EllipticCurvePrivateKey, shown: bytes) -> ssl.SSLContext:
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        both = folder / "server.pem"
        both.write_bytes(pem + shown)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(both)
        return made


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Quiet."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    context: ssl.SSLContext | None = None

    def get_request(self) -> tuple[socket.socket, object]:
        found, address = super().get_request()
        return (found if self.context is None else self.context.wrap_socket(found, server_side=True)), address

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses is what the test is about."""


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None) -> Iterator[int]:
    server = Server(("127.0.0.1", 0), Handler)
    server.context = context
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def refused(endpoint: str, root: str | None) -> StoreError:
    options = {
        "store.endpoint": endpoint,
        "store.region": "us-east-1",
        "store.access_key_id": "id-of-mine",
        "store.secret_access_key": "s3cret",
        "store.max_retries": "0",
        "store.pool_max_idle_per_host": "0",
    }
    store = open_store("s3://bucket", options if root is None else options | {"store.root_certificate": root})
    with pytest.raises(StoreError) as caught:
        store.fetch("key")
    store.close()
    assert "s3cret" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("days", "address", "trusted", "told"),
    [
        ((-9, -2), "127.0.0.1", True, "the server's certificate has expired"),
        ((2, 9), "127.0.0.1", True, "the server's certificate is not valid yet"),
        ((-1, 1), "127.0.0.1", False, "the server's certificate comes from an issuer that is not trusted"),
        ((-1, 1), "127.0.0.9", True, "the server's certificate is for other names than the endpoint's: 127.0.0.9"),
    ],
)
def test_each_fault_of_a_certificate_is_named(
    tmp_path: pathlib.Path, days: tuple[int, int], address: str, trusted: bool, told: str
) -> None:
    """An "error sending request" would be looked for in firewalls, by somebody whose certificate ended last night."""
    authority = Authority()
    with serving(authority.context(tmp_path, days, address)) as port:
        error = refused(f"https://127.0.0.1:{port}", authority.pem if trusted else None)
    assert isinstance(error, StorePermissionError)
    assert told in str(error)


def test_a_certificate_that_signed_itself(tmp_path: pathlib.Path) -> None:
    """The most usual one of a test set-up would be "Other"."""
    authority = Authority()
    with serving(authority.own_context(tmp_path)) as port:
        error = refused(f"https://127.0.0.1:{port}", authority.pem)
    assert isinstance(error, StorePermissionError)
    assert "is an authority's, signed by itself" in str(error)


def test_what_else_keeps_a_connection_from_coming_about() -> None:
    """A wrong scheme, port or host name would all read the same."""
    with serving(None) as port:
        error = refused(f"https://127.0.0.1:{port}", None)
    assert isinstance(error, StoreUnavailableError)
    assert "the server does not speak TLS there" in str(error)
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    error = refused(f"http://127.0.0.1:{port}", None)
    assert isinstance(error, StoreUnavailableError)
    assert "connection refused" in str(error)
    error = refused("http://tierlog.invalid:9", None)
    assert isinstance(error, StoreUnavailableError)
    assert "the host's name is not known" in str(error)
