"""A store that throttles for seconds, as S3 does while it splits a prefix: whoever asks it waits that out."""

from __future__ import annotations

import pathlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

import tierlog as package
from tests.support.closed_segments import ClosedSegment
from tests.support.command import Run
from tests.support.fault_proxy import FaultProxy, Rule
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.replica_readers import confluent
from tests.support.replica_server import free_port, replica
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import StoreUnavailableError
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

TOPIC: Final = "fx-txn"
#: S3 throttles for so long; the first is what four counted tries did not outlive.
HELD: Final = [1.0, pytest.param(8.0, marks=pytest.mark.slow), pytest.param(30.0, marks=pytest.mark.slow)]


@dataclass
class Throttling:
    """A bucket behind a proxy, which throttles from the first request on that it is told to."""

    proxy: FaultProxy
    url: str
    options: dict[str, str]
    config: pathlib.Path

    def throttle(self, seconds: float, *, verb: str | None = None) -> Rule:
        return self.proxy.add("status", status=503, times=None, seconds=seconds, verb=verb)


def waited_out(rule: Rule, seconds: float, work: Callable[[], object]) -> None:
    """The work succeeds, soon after the store has stopped to throttle."""
    began = time.monotonic()
    work()
    took = time.monotonic() - began
    assert rule.struck > 1
    assert seconds < took < seconds + LIMIT_SECONDS, f"{took:.1f} s"


@pytest.fixture(scope="module")
def filled(s3: StoreServer, data: pathlib.Path) -> str:
    return s3.upload(data / "main-plain" / "objects", f"throttling/{uuid.uuid4()}")


@pytest.fixture
def throttling(s3: StoreServer, filled: str, tmp_path: pathlib.Path) -> Iterator[Throttling]:
    with FaultProxy.before(s3) as proxy:
        options = dict(s3.options) | {"store.endpoint": proxy.endpoint}
        config = tmp_path / "reader.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        yield Throttling(proxy, filled, options, config)


@pytest.mark.parametrize("seconds", HELD)
def test_a_reader(throttling: Throttling, seconds: float) -> None:
    """If this fails, one second of 503 ends a notebook's query, or a Spark job's driver."""
    rule = throttling.throttle(seconds)
    read = lambda: package.read(throttling.url, TOPIC, config=throttling.options).read_all()  # noqa: E731
    waited_out(rule, seconds, read)


@pytest.mark.parametrize("seconds", HELD)
@pytest.mark.parametrize("command", ["ls", "cat", "verify"])
def test_a_command(throttling: Throttling, tierlog: Run, command: str, seconds: float) -> None:
    """If this fails, a nightly check of a bucket is red because a prefix was split."""
    topic = [TOPIC] if command == "cat" else []
    rule = throttling.throttle(seconds)

    def run() -> None:
        outcome = tierlog(command, throttling.url, *topic, "--config", throttling.config)
        assert outcome.code == 0, outcome.err

    waited_out(rule, seconds, run)


@pytest.mark.parametrize("seconds", HELD)
def test_a_storage_manager(
    throttling: Throttling, segment: ClosedSegment, tmp_path: pathlib.Path, seconds: float
) -> None:
    """If this fails, a broker's copy and a consumer's fetch fail for as long as a prefix is split."""
    store = open_store(throttling.url, throttling.options)
    # A broker's fetch gives up sooner by its own keys, while the download goes on for the next one.
    patient = {f"fetch.{what}.cache.get.timeout.ms": "120000" for what in ("manifest", "chunk")}
    with TieredStorageManager(wrap_store=lambda _: store) as manager:
        manager.configure(local_keys(tmp_path / "unused") | SHAPES["aiven-plain"] | patient)
        copies = throttling.throttle(seconds, verb="PUT")
        custom: list[object] = []
        waited_out(
            copies, seconds, lambda: custom.append(manager.copy_log_segment_data(segment.metadata, segment.data))
        )
        fetches = throttling.throttle(seconds, verb="GET")
        finished = segment.finished(custom[0])  # type: ignore[arg-type]
        waited_out(fetches, seconds, lambda: manager.fetch_log_segment(finished, 0).read())


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    return make_segment(sound_log(2, base_offset=100)).closed_in(tmp_path_factory.mktemp("segment"))


@pytest.mark.interop
@pytest.mark.parametrize("seconds", [1.0, 8.0, 30.0])
def test_a_replica(throttling: Throttling, tmp_path: pathlib.Path, seconds: float) -> None:
    """If this fails, a replica does not start, or its clients see errors for good, while a prefix is split."""
    rule = throttling.throttle(min(seconds, 8.0))  # it must listen within half a minute
    with replica(throttling.url, tmp_path, config=throttling.options) as server:
        assert rule.struck > 1, "it listed the bucket meanwhile"
        throttling.proxy.clear()
        rule = throttling.throttle(seconds)
        rows: list[object] = []

        def read() -> None:
            until = time.monotonic() + seconds + LIMIT_SECONDS
            while not rows:
                try:
                    rows.extend(confluent(server.bootstrap, TOPIC, "read_committed", [0]))
                except AssertionError:  # that reader waits 20 s for a first record
                    if time.monotonic() > until:
                        raise

        waited_out(rule, seconds, read)


def test_a_server_that_starts_a_second_later(s3: StoreServer, filled: str) -> None:
    """If this fails, a store that is restarted ends every job that reads from it."""
    port = free_port()
    proxy: list[FaultProxy] = []

    def start() -> None:
        proxy.append(FaultProxy.before(s3, at_port=port))
        proxy[0].__enter__()

    timer = threading.Timer(1.0, start)
    timer.start()
    try:
        store = open_store(filled, dict(s3.options) | {"store.endpoint": f"http://127.0.0.1:{port}"})
        assert len(list(store.iter_objects())) > 10
    finally:
        timer.join()
        proxy[0].__exit__()


def test_what_was_waited_is_told(throttling: Throttling) -> None:
    """If this fails, nobody knows which key to change for a store that throttles longer."""
    throttling.throttle(60)
    short = open_store(throttling.url, throttling.options | {"store.retry_timeout": "500ms"})
    more = r"store\.retry_timeout allows more time"
    told = rf"{{}}: status 503 SlowDown: injected \(tried [2-9] times in 0\.[2-9] s; {more}\)"
    with pytest.raises(StoreUnavailableError, match=told.format("LIST")):
        list(short.iter_objects())
    with pytest.raises(StoreUnavailableError, match=told.format("PUT")):
        short.put("k", b"x")
    short.close()
    counted = open_store(throttling.url, throttling.options | {"store.max_retries": "1"})
    told = r"{}: .* \(tried 2 times in \d\.\d s; store\.max_retries allows more tries\)"
    with pytest.raises(StoreUnavailableError, match=told.format("GET")):
        counted.fetch("k")
    with pytest.raises(StoreUnavailableError, match=told.format("PUT")):
        counted.put("k", b"x")
    counted.close()


def test_a_definite_answer_is_not_waited_for(throttling: Throttling) -> None:
    """If this fails, a missing right or a wrong key takes a minute and a half to be told."""
    rule = throttling.proxy.add("status", status=403, times=None)
    store = open_store(throttling.url, throttling.options)
    for requests in (2, 3):  # beside the first read the endpoint is asked, once, whether it redirects
        with pytest.raises(PermissionError, match=r"status 403 AccessDenied: injected$"):
            store.fetch("k")
        assert rule.struck == requests
