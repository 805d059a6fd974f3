"""Peers on the socket that are none of the plugin's, or that fail: others are served, and memory stays."""

from __future__ import annotations

import pathlib
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.closed_segments import ClosedSegment
from tests.support.segments import make_segment, sound_log
from tests.support.sidecars import (
    FETCH_RANGE,
    HEALTH,
    RunningSidecar,
    SidecarClient,
    segment_bytes,
    sidecar,
    storage_keys,
)
from tierlog.sidecar.protocol import MalformedFrameError, RefusedRequestError, parse_request

ANSWERS = 8
CONNECTIONS = 1000
MIB = 1 << 20


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    folder = tmp_path_factory.mktemp("hostile")
    return make_segment(sound_log(batches=1500, batch_bytes=6000)).closed_in(folder / "logs" / "orders-0")


@pytest.fixture(scope="module")
def server(segment: ClosedSegment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSidecar]:
    folder = tmp_path_factory.mktemp("hostile-server")
    (folder / "bucket").mkdir()
    logs = pathlib.Path(segment.data.log_segment).parent.parent
    own = {"request.deadline.ms": "1000", "response.deadline.ms": "1500", "queued.max.request.bytes": str(16 * MIB)}
    keys = storage_keys(folder / "bucket", fetch_chunk_cache_class="memory", fetch_chunk_cache_size=str(32 * MIB))
    with sidecar(folder, keys, "--allow-logs", logs, own=own) as running:
        yield running


@pytest.fixture(scope="module")
def stored(server: RunningSidecar, segment: ClosedSegment) -> bytes:
    """The request for the first mebibyte of a stored segment."""
    with server.client() as client:
        metadata = segment.finished(client.copy(segment))
        assert client.fetch(metadata) == segment.log
    return segment_bytes(metadata) + struct.pack(">iii", 0, -1, MIB)


def rss_bytes(process_id: int) -> int:
    pages = int(pathlib.Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def is_served(server: RunningSidecar, stored: bytes, segment: ClosedSegment) -> bool:
    with server.client() as client:
        return client.call(FETCH_RANGE, stored)[1:] == segment.log[:MIB]


def is_ended(peer: socket.socket) -> bool:
    """Whether the server has closed it; waits for that."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">ib", 1, 99),
        struct.pack(">ib", 1, -1),
        struct.pack(">i", 0),
        struct.pack(">ibB", 2, HEALTH, 0),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ],
)
def test_what_is_no_frame_ends_its_connection(
    server: RunningSidecar, stored: bytes, segment: ClosedSegment, data: bytes
) -> None:
    """If this fails, a length alone costs the server its memory, or an error ends it."""
    before = rss_bytes(server.process.pid)
    with server.client() as client:
        client.socket.sendall(data)
        assert is_ended(client.socket)
    assert rss_bytes(server.process.pid) - before < 8 * MIB
    assert is_served(server, stored, segment)


def test_a_frame_that_does_not_end_is_waited_for_no_longer(
    server: RunningSidecar, stored: bytes, segment: ClosedSegment
) -> None:
    """If this fails, half a frame holds its memory for as long as its sender likes."""
    with server.client() as client:
        client.socket.sendall(struct.pack(">ib", 5000, FETCH_RANGE) + bytes(100))
        assert is_served(server, stored, segment)
        began = time.monotonic()
        assert is_ended(client.socket)
        assert time.monotonic() - began < 5


def test_a_thousand_connections(server: RunningSidecar, stored: bytes, segment: ClosedSegment) -> None:
    """If this fails, a broker with many readers shuts out the others."""
    before = rss_bytes(server.process.pid)
    peers = [SidecarClient(server.path) for _ in range(CONNECTIONS)]
    try:
        assert is_served(server, stored, segment)
        for peer in peers[::10]:
            peer.send(HEALTH)
        assert is_served(server, stored, segment)
        assert all(peer.receive() for peer in peers[::10])
        assert rss_bytes(server.process.pid) - before < CONNECTIONS * 40_000
    finally:
        for peer in peers:
            peer.close()


def has_hung_up(peer: SidecarClient) -> bool:
    """Whether the server has closed a connection, of which nobody has read what it sent before."""
    polled = select.poll()
    polled.register(peer.socket, select.POLLRDHUP)
    return bool(polled.poll(0))


def test_readers_that_stop_reading(server: RunningSidecar, stored: bytes, segment: ClosedSegment) -> None:
    """If this fails, readers that stand hold the others, or the server's memory."""
    before = rss_bytes(server.process.pid)
    peers = [SidecarClient(server.path) for _ in range(50)]
    try:
        for peer in peers:
            for _ in range(ANSWERS):  # the first ones end in the socket's memory
                peer.send(FETCH_RANGE, stored)
        assert is_served(server, stored, segment)
        assert rss_bytes(server.process.pid) - before < 24 * MIB
        until = time.monotonic() + 30
        while not all(map(has_hung_up, peers)):  # sixteen at a time have memory for an answer
            assert time.monotonic() < until
            assert is_served(server, stored, segment)
    finally:
        for peer in peers:
            peer.close()


@given(st.integers(0, 6), st.binary(max_size=400))
def test_any_bytes_are_a_request_or_refused(kind: int, data: bytes) -> None:
    """If this fails, a frame ends its connection without a word in the log that says why."""
    try:
        parse_request(memoryview(bytes([kind]) + data))
    except (MalformedFrameError, RefusedRequestError):
        return


@given(st.data())
def test_a_changed_request_is_a_request_or_refused(data: st.DataObject) -> None:
    """If this fails, one wrong byte of a client is an error of the server's."""
    made = make_segment(sound_log(batches=2)).metadata
    frame = bytearray(bytes([FETCH_RANGE]) + segment_bytes(made) + struct.pack(">iii", 0, -1, 5))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_request(memoryview(frame[: data.draw(st.integers(0, len(frame)))]))
    except (MalformedFrameError, RefusedRequestError):
        return
