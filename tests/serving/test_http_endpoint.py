"""The listener for scrapes and health checks, by bare requests and by those that are none."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_servers import serving
from tests.support.waiting import ENDLESS_SECONDS, LIMIT_SECONDS, wait_until
from tierlog.runtime.machine import Machine
from tierlog.serving.http_endpoint import HttpEndpoint


@dataclass
class Listening:
    endpoint: HttpEndpoint
    loop: asyncio.AbstractEventLoop
    port: int

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def send(self, data: bytes) -> bytes:
        """What a bare request is answered; b"" if the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_SECONDS) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            found = b""
            with contextlib.suppress(ConnectionResetError):
                while part := client.recv(65536):
                    found += part
            return found


@contextlib.contextmanager
def listening(
    *registries: CollectorRegistry,
    reasons: list[str] | None = None,
    deadline_seconds: float = 10.0,
    host: str = "127.0.0.1",
) -> Iterator[Listening]:
    endpoint = HttpEndpoint(
        host,
        0,
        registries=registries,
        health=lambda: reasons[0] if reasons else "",
        machine=Machine(),
        deadline_seconds=deadline_seconds,
    )
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        _, port = asyncio.run_coroutine_threadsafe(endpoint.start(), loop).result(LIMIT_SECONDS)
        yield Listening(endpoint, loop, port)
    finally:
        for _ in range(2):
            asyncio.run_coroutine_threadsafe(endpoint.stop(), loop).result(LIMIT_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_series_of_all_registries_are_shown() -> None:
    """A server's series and those of the store below it are asked for at one place."""
    other = CollectorRegistry()
    Counter("other_things", "Of another room.", registry=other).inc(3)
    with serving() as running, running.client() as client:
        assert client.ask_metadata()
        with listening(running.metrics.registry, other) as found:
            status, text = found.get("/metrics?name=x")
            assert status == 200
            samples = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            status, open_metrics = found.get("/metrics", Accept="application/openmetrics-text")
    assert (status, open_metrics.count("# EOF")) == (200, 1)
    assert samples["other_things_total",] == 3
    assert samples["tierlog_server_connections",] == 1
    assert samples["tierlog_server_requests_total", "Metadata"] == 1
    assert samples["tierlog_server_handler_seconds_count", "Metadata"] == 1
    assert samples["tierlog_server_client_requests_total", "test"] == 1
    assert samples["tierlog_server_refused_total", "malformed"] == 0


def test_health_is_what_the_server_says() -> None:
    """A balancer sends clients to a server whose bucket cannot be listed, or away from one that is well."""
    reasons = [""]
    with listening(reasons=reasons) as found:
        assert found.get("/healthz") == (200, "ok\n")
        reasons[0] = "the bucket has not been listed for 90 s"
        assert found.get("/healthz") == (503, "the bucket has not been listed for 90 s\n")
        assert found.get("/readyz") == (503, "the bucket has not been listed for 90 s\n")
        assert found.get("/livez") == (200, "ok\n")  # to start it anew would bring no bucket back


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_monitor_that_is_open_to_all_is_warned_of(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has no authentication, whatever the server has: what clients are called is everybody's then."""
    with listening(host=host):
        pass
    assert ("event=open_monitor host=0.0.0.0" in caplog.text) is (host == "0.0.0.0")


def test_a_loop_that_stands_still_answers_no_health_check() -> None:
    """A process that hangs must be taken for what it is."""
    with listening() as found, socket.create_connection(("127.0.0.1", found.port), timeout=0.3) as client:
        stuck = threading.Event()
        found.loop.call_soon_threadsafe(stuck.wait, 5)
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        with pytest.raises(TimeoutError):
            client.recv(1)
        stuck.set()
        client.settimeout(10)
        assert client.recv(12) == b"HTTP/1.1 200"


def test_what_is_asked_otherwise_is_refused() -> None:
    """Scanners and wrong settings must get an answer that says so, and cost nothing."""
    with listening() as found:
        assert found.get("/")[0] == 404
        assert found.send(b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
        assert found.send(b"\0\1\2\xff\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert found.send(b"GET / HTTP/2.0 x\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert found.send(b"GET /" + b"x" * 16_400).startswith(b"HTTP/1.1 431 ")
        assert found.send(b"GET /healthz HTTP/1.1\r\n") == b""
        head = found.send(b"HEAD /healthz HTTP/1.0\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert head.endswith(b"\r\n\r\n")


def test_a_collector_that_fails_is_told() -> None:
    """Otherwise a scrape hangs, and the whole target counts as down for one series."""

    class Broken:
        def collect(self) -> Iterator[object]:
            raise ZeroDivisionError

        def describe(self) -> list[object]:
            return []

    registry = CollectorRegistry()
    registry.register(Broken())  # type: ignore[arg-type]
    with listening(registry) as found:
        assert found.get("/metrics") == (500, "ZeroDivisionError\n")
        assert found.get("/healthz")[0] == 200


def test_more_connections_than_it_has_places_are_served_one_after_another() -> None:
    """Whoever opens connections here must not take descriptors from the clients of the server."""
    with listening() as found:
        held = [socket.create_connection(("127.0.0.1", found.port), timeout=LIMIT_SECONDS) for _ in range(80)]
        for each in held:
            each.close()
        assert found.get("/healthz")[0] == 200


def test_a_probe_is_answered_beside_connections_that_say_nothing() -> None:
    """Two hundred half requests hold a probe up for seconds, and the server is taken for dead."""
    with listening(deadline_seconds=ENDLESS_SECONDS) as found, contextlib.ExitStack() as held:
        for _ in range(200):
            idle = held.enter_context(socket.create_connection(("127.0.0.1", found.port), timeout=LIMIT_SECONDS))
            idle.sendall(b"GET /metr")
        assert found.get("/livez") == (200, "ok\n")


def test_a_host_has_a_share_of_the_places() -> None:
    """One host whose readers take no answers would hold all places, against the probes of others."""
    registry = CollectorRegistry()
    Counter("large", "x" * 20_000_000, registry=registry)
    with listening(registry, deadline_seconds=300) as found, contextlib.ExitStack() as held:

        def ask() -> None:
            stuck = held.enter_context(socket.create_connection(("127.0.0.1", found.port), timeout=LIMIT_SECONDS))
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")

        for _ in range(16):
            ask()
        wait_until(lambda: found.endpoint.busy_count == 16)
        go_on = threading.Event()
        found.loop.call_soon_threadsafe(go_on.wait, 60)
        for _ in range(40):  # the loop finds them all at once
            ask()
        go_on.set()
        with socket.create_connection(
            ("127.0.0.1", found.port), timeout=60, source_address=("127.0.0.2", 0)
        ) as elsewhere:
            elsewhere.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
            assert elsewhere.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: found.endpoint.busy_count == 16)


def test_a_connection_that_hangs_is_closed_in_time() -> None:
    """A scraper that dies in the midst of its request would keep one of the few places for ever."""
    registry = CollectorRegistry()
    Counter("large", "x" * 20_000_000, registry=registry)
    with listening(registry, deadline_seconds=1.0) as found:
        for sent in (b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", found.port), timeout=LIMIT_SECONDS) as client:
                client.sendall(sent)
                wait_until(lambda: len(found.endpoint._clients) == 1)
                wait_until(lambda: not found.endpoint._clients)
        assert found.get("/healthz")[0] == 200
