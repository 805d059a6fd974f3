"""What is followed when a store answers that an object lies elsewhere: nothing on another host."""

from __future__ import annotations

import concurrent.futures
import http.server
import pathlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from tests.support.waiting import ENDLESS_SECONDS, ends, wait_until
from tierlog.errors import StoreError, StorePermissionError, TierlogError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.optional_reads import Answer, find_started_reads
from tierlog.runtime.stores.reading.redirects import own_hosts_only
from tierlog.runtime.stores.store_urls import open_store

#: Which name the endpoint.
KEYS: Final = {"s3": "store.region", "gs": "storage.gcs.endpoint.url", "az": "storage.azure.endpoint.url"}
LOOSE: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Redirecting(http.server.ThreadingHTTPServer):
    """Sends what is asked below ``/b`` to the place, and answers all else with bytes of its own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.place = ""
        self.seen: list[dict[str, str]] = []
        self.asked = 0
        self.status = 200


class Handler(http.server.BaseHTTPRequestHandler):
    server: Redirecting

    def do_GET(self) -> None:
        sent_on = self.path.startswith("/b")
        if sent_on:
            self.server.asked += 1
        else:
            self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(307 if sent_on else self.server.status)
        if sent_on:
            self.send_header("Location", self.server.place)
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 18:22:47 GMT")
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0" if sent_on else "5")
        self.end_headers()
        if not sent_on and self.command == "GET":
            self.wfile.write(b"other")

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Redirecting]:
    for name in LOOSE:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with Redirecting() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def options_of(scheme: str, port: int) -> dict[str, str]:
    place = f"http://127.0.0.1:{port}"
    return {"store.max_retries": "1", "store.retry_timeout": "5s"} | {
        "s3": {
            "store.endpoint": place,
            "store.region": "r",
            "store.access_key_id": "a",
            "store.secret_access_key": "s",
            "store.session_token": "a-token",
        },
        "gs": {"store.base_url": place, "store.skip_signature": "true"},
        "az": {"store.endpoint": f"{place}/b", "store.account_name": "a", "store.skip_signature": "true"},
    }[scheme]


def opened(scheme: str, server: Redirecting) -> ObjectStore:
    return open_store(f"{scheme}://b", options_of(scheme, server.server_port))


READS: Final[dict[str, Callable[[ObjectStore], object]]] = {
    "fetch": lambda store: store.fetch("k"),
    "fetch_range": lambda store: store.fetch_range("k", start_position=0, end_position_exclusive=5),
    "find": lambda store: store.find("k"),
    "list": lambda store: list(store.iter_objects()),
    "list_folder": lambda store: store.list_folder(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_another_host_is_not_asked(server: Redirecting, scheme: str, read: str) -> None:
    """If this fails, a host that can answer for the store gets AWS's session token sent, and gives bytes for the
    object's.
    """
    server.place = f"http://user:s3cret@localhost:{server.server_port}/elsewhere?sig=5ec2e7"
    match = f"redirects to localhost:{server.server_port}, which is not followed: name the endpoint that answers"
    with pytest.raises(StoreError, match=match) as told:
        READS[read](opened(scheme, server))
    assert type(told.value) is StoreError, "trying again does not help"
    assert KEYS[scheme] in str(told.value)
    assert not any(secret in str(told.value) for secret in ("s3cret", "5ec2e7", "a-token"))
    assert server.asked, "the store was asked"
    assert server.seen == []


def _run(call: Callable[[], object], *, in_thread: bool) -> object:
    if not in_thread:
        return call()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.mark.few(5)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("in_thread", [False, True])
def test_another_host_is_told_at_once(server: Redirecting, read: str, in_thread: bool) -> None:
    """If this fails, a wrong region or endpoint takes each command and each broker a minute and a half to be told."""
    server.place = f"http://localhost:{server.server_port}/elsewhere"
    patient = {"store.max_retries": "100", "store.retry_timeout": f"{ENDLESS_SECONDS}s"}
    store = open_store("s3://b", options_of("s3", server.server_port) | patient)
    for _ in range(2):
        with ends(), pytest.raises(StoreError, match="which is not followed") as told:
            _run(partial(READS[read], store), in_thread=in_thread)
        assert type(told.value) is StoreError
    assert server.seen == []


def test_a_signature_that_is_not_sent_on_is_no_missing_right(server: Redirecting) -> None:
    """If this fails, a bucket behind a redirect to TLS on the same host is a bare 403, which sends one after rights."""
    with Redirecting() as other:
        other.status = 403
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        server.place = f"http://127.0.0.1:{other.server_port}/elsewhere"
        store = opened("s3", server)
        for read in READS.values():
            with pytest.raises(StoreError, match=f"redirects to 127.0.0.1:{other.server_port}, which is") as told:
                read(store)
            assert type(told.value) is StoreError
            assert "403" in str(told.value)
        asked = len(other.seen)
        other.shutdown()
        thread.join()
    assert asked == len(READS), "what was asked beside them followed nothing"


def test_a_store_that_answers_is_asked_once(server: Redirecting) -> None:
    """If this fails, each refused read of a key without rights costs two requests."""
    server.status = 403
    store = open_store("s3://c", options_of("s3", server.server_port))
    for _ in range(3):
        with pytest.raises(StorePermissionError):
            store.fetch("k")
    assert len(server.seen) == 4


def test_the_same_host_is_followed_on_another_port_too(server: Redirecting) -> None:
    """If this fails, SECURITY.md says wrongly what is followed, and what goes along."""
    with Redirecting() as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        server.place = f"http://127.0.0.1:{other.server_port}/elsewhere"
        assert bytes(opened("s3", server).fetch("k")) == b"other"
        other.shutdown()
        thread.join()
    assert other.seen[0]["x-amz-security-token"] == "a-token"
    assert "authorization" not in other.seen[0]


def test_a_redirect_without_a_place_is_an_error(server: Redirecting) -> None:
    """If this fails, a bucket of another region, which S3 names so, is read as nothing."""
    server.place = ""
    with pytest.raises(TierlogError):
        opened("s3", server).fetch("k")


@pytest.mark.parametrize("given", ["store.proxy_url", "HTTP_PROXY"])
def test_a_proxy_is_asked_for_the_other_host(server: Redirecting, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a proxy that is named is not used, or SECURITY.md says wrongly that redirects pass it."""
    proxy = f"http://127.0.0.1:{server.server_port}"
    options = options_of("s3", server.server_port) | {"store.endpoint": "http://store.invalid"}
    if given == "HTTP_PROXY":
        monkeypatch.setenv(given, proxy)
    else:
        options[given] = proxy
    server.place = "http://other.invalid/elsewhere"
    # As a proxy the server gets whole URLs, which do not begin with /b.
    assert bytes(open_store("s3://b", options).fetch("k")) == b"other"
    assert server.seen[0]["host"] == "store.invalid"


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize(
    "environment",
    [{"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1,localhost"}, {"HTTPS_PROXY": "http://127.0.0.1:1"}],
    ids=["NO_PROXY names the store", "a proxy of https alone"],
)
def test_a_proxy_of_other_hosts_changes_nothing(
    server: Redirecting, scheme: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a store that is reached directly, by a machine that has a proxy for others, can send reads on to
    another host, with AWS's session token.
    """
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server.place = f"http://localhost:{server.server_port}/elsewhere"
    with pytest.raises(StoreError, match=r"redirects to localhost:\d+, which is not followed"):
        opened(scheme, server).fetch("k")
    assert server.asked
    assert server.seen == []


@pytest.mark.parametrize(
    ("scheme", "config"),
    [("s3", {}), ("gs", {}), ("az", {"account_name": "a"}), ("gs", {"base_url": "http://direct.example"})],
)
def test_who_gives_tokens_may_be_behind_a_proxy(
    scheme: str, config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a machine whose way out is a proxy cannot ask the cloud, or whoever gives tokens for it."""
    for name in LOOSE:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    assert own_hosts_only(scheme, "b", config, {}, Machine().files) == {}


def hosts(scheme: str, bucket: str, config: dict[str, str]) -> set[str]:
    return set(own_hosts_only(scheme, bucket, config, {}, Machine().files)["proxy_excludes"].split(","))


@pytest.mark.parametrize(
    ("scheme", "bucket", "config", "expected"),
    [
        ("s3", "b", {"region": "eu-west-1"}, "s3.eu-west-1.amazonaws.com"),
        ("s3", "b", {"aws_region": "eu-west-1"}, "s3.eu-west-1.amazonaws.com"),
        ("s3", "b", {}, "s3.us-east-1.amazonaws.com"),
        ("s3", "b--use1-az4--x-s3", {"region": "us-east-1"}, "s3express-use1-az4.us-east-1.amazonaws.com"),
        ("s3", "b", {"endpoint": "https://[::1]:9000/x"}, "::1"),
        ("s3", "b", {"endpoint_url": "https://s3.example:9000"}, "s3.example"),
        ("gs", "b", {"service_account_key": '{"gcs_base_url":"http://fake:4443"}'}, "fake"),
        ("gs", "b", {}, "googleapis.com"),
        ("az", "b", {"account_name": "a"}, "blob.core.windows.net"),
        ("az", "b", {"authority_host": "https://login.chinacloudapi.cn"}, "login.chinacloudapi.cn"),
    ],
)
def test_hosts_of_a_store(
    scheme: str, bucket: str, config: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a store that a user has named, or one that needs no name, is out of reach."""
    for name in (*LOOSE, "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    assert expected in hosts(scheme, bucket, config)


def test_hosts_that_the_environment_and_a_key_file_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, an emulator that only a key file or a variable names is called a redirect."""
    for name in LOOSE:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    file = tmp_path / "key.json"
    file.write_text('{"gcs_base_url": "http://fake.example:4443"}')
    key = str(file)
    assert "fake.example" in hosts("gs", "b", {"service_account": key})
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", key)
    monkeypatch.setenv("GCE_METADATA_HOST", "meta.example:80")
    assert {"fake.example", "meta.example"} <= hosts("gs", "b", {})
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3.example")
    assert "s3.example" in hosts("s3", "b", {})


def test_asynchronous_reads_are_told_at_once(server: Redirecting) -> None:
    """A broker's first fetches are such: each would hold its consumer for a minute and a half."""
    server.place = f"http://localhost:{server.server_port}/elsewhere"
    patient = {"store.max_retries": "100", "store.retry_timeout": f"{ENDLESS_SECONDS}s"}
    started = find_started_reads(open_store("s3://b", options_of("s3", server.server_port) | patient))
    assert started is not None
    answers: list[Answer] = []
    for key in ("a", "b"):
        started.start_fetch_range(key, start_position=0, end_position_exclusive=5, on_answer=answers.append)
    wait_until(lambda: len(answers) == 2)
    for answer in answers:
        assert type(answer) is StoreError
        assert "redirects to another host, which is not followed" in str(answer)
    assert server.seen == []
