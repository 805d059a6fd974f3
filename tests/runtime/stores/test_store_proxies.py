"""Writing through a proxy: what a closed network demands."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator

import pytest

from tests.support.servers import StoreServer
from tierlog.errors import StoreUnavailableError
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server


def relay(one: socket.socket, other: socket.socket) -> None:
    """Bytes one way until either side ends."""
    with contextlib.suppress(OSError):
        while piece := one.recv(1 << 16):
            other.sendall(piece)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def exactly(connection: socket.socket, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        piece = connection.recv(size - len(taken))
        if not piece:
            raise OSError("ended")
        taken += piece
    return taken


class SocksServer:
    """SOCKS5 with a user name and a password (RFC 1928, 1929); names are resolved here."""

    def __init__(self, port_of: dict[str, int]) -> None:
        self.port_of = port_of
        self.asked: list[str] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.open: list[socket.socket] = []
        self.threads: list[threading.Thread] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.open.append(client)
                thread = threading.Thread(target=self.serve, args=(client,))
                self.threads.append(thread)
                thread.start()

    def serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            _, methods = exactly(client, 2)
            exactly(client, methods)
            client.sendall(b"\x05\x02")
            _, size = exactly(client, 2)
            user = exactly(client, size)
            password = exactly(client, exactly(client, 1)[0])
            self.logins.append((user, password))
            client.sendall(b"\x01\x00")
            _, _, _, kind = exactly(client, 4)
            assert kind == 3, "the client resolved the name itself"
            name = exactly(client, exactly(client, 1)[0]).decode()
            exactly(client, 2)
            self.asked.append(name)
            store = socket.create_connection(("127.0.0.1", self.port_of[name]))
            self.open.append(store)
            client.sendall(b"\x05\x00\x00\x01" + bytes(6))
            back = threading.Thread(target=relay, args=(store, client))
            back.start()
            relay(client, store)
            back.join()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        for each in (self.listener, *self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def socks(s3: StoreServer) -> Iterator[SocksServer]:
    made = SocksServer({"tierlog.invalid": int(s3.options["store.endpoint"].rpartition(":")[2])})
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.close()
    thread.join()


def test_writing_through_socks(s3: StoreServer, socks: SocksServer) -> None:
    """If this fails, a broker in a closed network can read its bucket and not write to it."""
    port = s3.options["store.endpoint"].rpartition(":")[2]
    options = {
        **s3.options,
        "store.endpoint": f"http://tierlog.invalid:{port}",
        "store.proxy_url": f"socks5h://who:s3cret@127.0.0.1:{socks.port}",
        "store.max_retries": "1",
    }
    url = f"{s3.url}/socks/{uuid.uuid4()}"
    store, sound = open_store(url, options), open_store(url, s3.options)
    store.put("k", b"through the proxy")
    assert bytes(sound.fetch("k")) == b"through the proxy"
    assert set(socks.asked) == {"tierlog.invalid"}
    assert set(socks.logins) == {(b"who", b"s3cret")}
    store.close()
    sound.close()


def test_reading_through_socks_is_not_there(s3: StoreServer, socks: SocksServer) -> None:
    """If this fails, obstore has a client for it: ``storage.proxy.*`` need not be refused any more."""
    port = s3.options["store.endpoint"].rpartition(":")[2]
    options = {
        **s3.options,
        "store.endpoint": f"http://tierlog.invalid:{port}",
        "store.proxy_url": f"socks5h://who:s3cret@127.0.0.1:{socks.port}",
        "store.max_retries": "0",
    }
    store = open_store(f"{s3.url}/socks", options)
    with pytest.raises(StoreUnavailableError):
        store.fetch("k")
    assert not socks.logins
    store.close()
