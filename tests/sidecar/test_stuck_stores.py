"""A store that stands: what other requests and the end of the sidecar make of it. A real S3 server, behind a proxy."""

from __future__ import annotations

import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.fault_proxy import FaultProxy
from tests.support.segments import make_segment, sound_log
from tests.support.servers import BUCKET, StoreServer
from tests.support.sidecars import (
    COPY,
    DELETE,
    FETCH_RANGE,
    RunningSidecar,
    SidecarError,
    segment_bytes,
    sidecar,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server


@pytest.fixture
def proxy(s3: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(s3) as made:
        yield made


@pytest.fixture
def keys(s3: StoreServer, proxy: FaultProxy, tmp_path: pathlib.Path) -> dict[str, str]:
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": BUCKET,
        "storage.s3.region": "us-east-1",
        "key.prefix": f"{tmp_path.name}/",
        "chunk.size": "65536",
        "fetch.chunk.cache.class": "memory",
        "fetch.chunk.cache.size": str(4 << 20),
        **s3.options,
        "store.endpoint": proxy.endpoint,
    }


@pytest.fixture
def segments(tmp_path: pathlib.Path) -> list[ClosedSegment]:
    return [
        make_segment(sound_log(batches=100), topic=f"topic{number}").closed_in(tmp_path / "logs" / f"topic{number}-0")
        for number in range(3)
    ]


def at_work(server: RunningSidecar, operation: str) -> float:
    with server.client() as client:
        return client.mbeans()[f"io.tierlog:type=sidecar,operation={operation}"]["tierlog_sidecar_requests_at_work"]


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_closed_connection_ends_what_it_asked_for(
    is_cached: bool, keys: dict[str, str], proxy: FaultProxy, segments: list[ClosedSegment], tmp_path: pathlib.Path
) -> None:
    """If this fails, reads that a broker has given up hold the memory of those that it waits for; and the store, if no
    cache takes the chunk.
    """
    if not is_cached:
        keys = {name: value for name, value in keys.items() if "cache" not in name}
    with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs") as server:
        with server.client() as client:
            metadata = segments[0].finished(client.copy(segments[0]))
        rule = proxy.add("stall", verb="GET", ending=".log", times=None)
        reader = server.client()
        reader.send(FETCH_RANGE, segment_bytes(metadata) + b"\0\0\0\0\xff\xff\xff\xff\0\1\0\0")
        wait_until(lambda: rule.struck == 1)
        assert at_work(server, "fetch_range") == 1
        began = time.monotonic()
        reader.close()
        time.sleep(0.1)
        assert at_work(server, "fetch_range") == 0
        if not is_cached:
            rule.wait_left(1, seconds=5)
            assert time.monotonic() - began < 1


def test_others_are_served_while_it_stands(
    keys: dict[str, str], proxy: FaultProxy, segments: list[ClosedSegment], tmp_path: pathlib.Path
) -> None:
    """If this fails, one partition whose objects do not come stops all others."""
    with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs") as server, server.client() as client:
        known = [each.finished(client.copy(each)) for each in segments]
        assert client.fetch(known[0]) == segments[0].log
        proxy.add("stall", path="topic1", times=None)
        waiting = [server.client() for _ in range(80)]
        for number, peer in enumerate(waiting):
            if number < 40:
                peer.send(FETCH_RANGE, segment_bytes(known[1]) + b"\0\0\0\0\xff\xff\xff\xff\0\1\0\0")
            else:
                peer.send(DELETE, segment_bytes(known[1]))
        time.sleep(0.5)
        began = time.monotonic()
        assert client.fetch(known[0]) == segments[0].log, "of the cache"
        assert client.fetch(known[2]) == segments[2].log, "of the store"
        assert client.health() == ""
        assert time.monotonic() - began < 2
        for peer in waiting:
            peer.close()


def test_deletions_that_stand_leave_threads_for_the_cache_on_a_disk(
    keys: dict[str, str], proxy: FaultProxy, segments: list[ClosedSegment], tmp_path: pathlib.Path
) -> None:
    """If this fails, reads out of the cache stop while the store stands, as soon as a few segments have expired."""
    (tmp_path / "cache").mkdir()
    keys |= {"fetch.chunk.cache.class": "disk", "fetch.chunk.cache.path": str(tmp_path / "cache")}
    keys |= {"fetch.chunk.cache.memory.size": "0"}
    with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs") as server, server.client() as client:
        known = [each.finished(client.copy(each)) for each in segments]
        assert client.fetch(known[0]) == segments[0].log
        proxy.add("stall", path="topic1", times=None)
        waiting = [server.client() for _ in range(40)]
        for peer in waiting:
            peer.send(DELETE, segment_bytes(known[1]))
        wait_until(lambda: at_work(server, "delete") == 40)
        began = time.monotonic()
        assert client.fetch(known[0]) == segments[0].log
        assert time.monotonic() - began < 2
        for peer in waiting:
            peer.close()


def test_a_copy_whose_broker_goes_is_undone(
    keys: dict[str, str], proxy: FaultProxy, segments: list[ClosedSegment], s3: StoreServer, tmp_path: pathlib.Path
) -> None:
    """If this fails, each broker that is restarted leaves objects that nobody knows."""
    with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs") as server:
        rule = proxy.add("stall_after", verb="PUT", ending=".log")
        peer = server.client()
        peer.send(COPY, peer.copy_body(segments[0]))
        wait_until(lambda: rule.struck == 1)
        peer.close()
        wait_until(lambda: rule.left == 1 and at_work(server, "copy") == 0)
        with server.client() as client:
            again = segments[0].finished(client.copy(segments[0]))
            assert client.fetch(again) == segments[0].log


def test_a_stop_undoes_the_copies_that_take_longer_than_its_grace(
    keys: dict[str, str], proxy: FaultProxy, segments: list[ClosedSegment], tmp_path: pathlib.Path
) -> None:
    """If this fails, a restart of the service takes for ever, or leaves objects."""
    own = {"stop.grace.ms": "500"}
    with sidecar(tmp_path, keys, "--allow-logs", tmp_path / "logs", own=own) as server:
        rule = proxy.add("stall", verb="PUT", ending=".log")
        peer, idle = server.client(), server.client()
        peer.send(COPY, peer.copy_body(segments[0]))
        wait_until(lambda: rule.struck == 1)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert idle.socket.recv(1) == b"", "a connection that asks for nothing ends at once"
        assert time.monotonic() - began < 0.4
        with pytest.raises((EOFError, SidecarError)):
            peer.receive()
        assert server.process.wait(20) == 0
        assert time.monotonic() - began < 10
        peer.close()
        idle.close()
