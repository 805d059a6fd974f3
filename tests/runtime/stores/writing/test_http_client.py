"""The client of writes: what it takes of the environment, and what it leaves behind when a request is over."""

from __future__ import annotations

import gc
import http.server
import pathlib
import stat
import threading
import uuid
from collections.abc import Iterator

import pytest

from tests.support.servers import StoreServer
from tierlog.errors import StoreError
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.writing.http_client import HttpClient, HttpRequest, HttpSettings

pytestmark = pytest.mark.server


@pytest.fixture
def no_collector() -> Iterator[None]:
    """As between two runs of the collector, which in a process that lies idle may be hours apart."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_body_is_let_go_with_its_request(s3: StoreServer, no_collector: None) -> None:
    """Buffers of uploads would stay mapped behind the back of their budget, one for each request."""
    body = bytearray(100_000)
    store = open_store(f"{s3.url}/http/{uuid.uuid4()}", s3.options)
    store.put("k", memoryview(body))
    body.append(0)  # a BufferError if anybody has a view of it
    store.close()


def test_a_login_of_netrc_is_not_sent(s3: StoreServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a line for the store's host in ~/.netrc ends every write with an error about authorization."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(stat.S_IRUSR)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    store = open_store(f"{s3.url}/http/{uuid.uuid4()}", s3.options)
    store.put("k", b"signed by us")
    assert bytes(store.fetch("k")) == b"signed by us"
    store.close()


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Answers itself, with what it was asked for."""

    def do_GET(self) -> None:
        body = f"{self.path} {self.headers['Proxy-Authorization']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def proxy() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpClient]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    made = HttpClient(HttpSettings(), ThreadScheduler(), name="test")
    yield made
    made.close()


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("form", ["http://who:s3cret@127.0.0.1:{}", "who:s3cret@127.0.0.1:{}"])
def test_the_proxy_of_the_environment(
    client: HttpClient, proxy: int, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """If this fails, a broker in a closed network reads by the environment's proxy and cannot write."""
    monkeypatch.setenv(name, form.format(proxy))
    answer = client.send(HttpRequest("GET", "http://store.invalid/k"))
    assert answer.body == b"http://store.invalid/k Basic d2hvOnMzY3JldA=="


def test_hosts_without_the_proxy(client: HttpClient, proxy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, NO_PROXY is not heard, and a store inside goes through a proxy that does not know it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1,inside.example")
    assert client.send(HttpRequest("GET", f"http://127.0.0.1:{proxy}/k")).body == b"/k None"


def test_a_socks_proxy_of_the_environment_is_refused(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, writes go past the proxy that reads go through."""
    monkeypatch.setenv("ALL_PROXY", "socks5h://who:s3cret@127.0.0.1:9")
    with pytest.raises(StoreError, match=r"ALL_PROXY .*store\.proxy_url") as raised:
        client.send(HttpRequest("GET", "http://store.invalid/k"))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("text", ["http://who:s3cret@[127.0.0.1", "http://who:s3cret@127.0.0.1:x", "http://"])
def test_a_proxy_that_is_no_url(client: HttpClient, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """If this fails, a slip in HTTP_PROXY is a traceback, or shows the proxy's password."""
    monkeypatch.setenv("HTTP_PROXY", text)
    with pytest.raises(StoreError, match="HTTP_PROXY of the environment is no URL") as raised:
        client.send(HttpRequest("GET", "http://store.invalid/k"))
    assert "s3cret" not in str(raised.value)
