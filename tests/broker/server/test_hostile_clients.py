"""Clients that send anything, stop anywhere and go at any time: the server stays as it was."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import pathlib
import random
import resource
import socket
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.broker_servers import (
    API_VERSIONS,
    METADATA,
    Call,
    Client,
    MetadataHandler,
    Serving,
    request_frame,
    serving,
)
from tests.support.waiting import wait_until
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.server.server_config import SASL_MECHANISMS, SecurityProtocol, ServerConfig
from tierlog.serving.response_writer import Reply

CONFIG = ServerConfig(port=0)


def is_at_rest(running: Serving) -> bool:
    """Whether the server holds nothing of any client."""
    shared = running.server.framed.shared  # type: ignore[union-attr]
    deadlines = (shared.idle, shared.unauthenticated, shared.receiving, shared.sending, shared.unread)
    held = (shared.memory.used_bytes, shared.memory.waiting, shared.turns.at_work, shared.turns.waiting)
    return not any((*held, *map(len, deadlines), running.metrics.connections()))


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


REQUESTS = st.builds(
    request_frame,
    st.sampled_from((API_VERSIONS, METADATA, 17, 36, 60)) | st.integers(-(2**15), 2**15 - 1),
    st.integers(-1, 14) | st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=40),
    flexible=st.booleans(),
)
SENT = st.lists(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(framed), REQUESTS.map(framed)), max_size=6)


def send_and_go(running: Serving, sent: list[bytes]) -> None:
    with running.client() as client, contextlib.suppress(OSError):
        for part in sent:
            client.send(part)
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(65536):
            pass


HANDSHAKES = st.sampled_from(SASL_MECHANISMS).map(
    lambda mechanism: request_frame(17, 1, 1, struct.pack(">h", len(mechanism)) + mechanism.encode())
)
TOKENS = st.binary(max_size=60).map(lambda token: request_frame(36, 0, 2, struct.pack(">i", len(token)) + token))


def test_no_bytes_harm_the_server() -> None:
    """Whoever can connect could end the server for all, or fill it bit by bit."""
    with serving() as running:

        @settings(max_examples=150)
        @given(sent=SENT)
        def check(sent: list[bytes]) -> None:
            send_and_go(running, sent)
            wait_until(lambda: is_at_rest(running))
            assert running.metrics.refused("fault") == 0
            assert not running.unheard

        check()


def test_no_bytes_get_past_sasl(tmp_path: pathlib.Path) -> None:
    """Whoever can connect could read everything."""
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    users.chmod(0o600)
    config = dataclasses.replace(
        CONFIG,
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_enabled_mechanisms=SASL_MECHANISMS,
        sasl_users_location=os.fspath(users),
        connection_failed_authentication_delay_ms=0,
    )
    handler = MetadataHandler()
    with serving([handler], config) as running:

        @settings(max_examples=150)
        @given(sent=st.lists(st.one_of(SENT.map(b"".join), HANDSHAKES.map(framed), TOKENS.map(framed)), max_size=5))
        def check(sent: list[bytes]) -> None:
            send_and_go(running, sent)
            wait_until(lambda: is_at_rest(running))
            assert running.metrics.refused("fault") == 0
            assert not running.unheard

        check()
    assert not handler.contexts, "somebody was served without proof"


async def answer_somehow(request: Any, context: RequestContext) -> Answer:
    """Answer soon, late or never, with little or much."""
    chance = context.connection_id % 7
    if chance == 0:
        await asyncio.sleep(60)
    if chance == 1:
        await asyncio.sleep(0.02)
    size = 3 << 20 if chance in (1, 2) else 100
    body = bytes(size)
    LIVE.add(context.connection_id)
    return Reply([body[: size // 2], memoryview(body)[size // 2 :]], size, lambda: LIVE.discard(context.connection_id))


LIVE: set[int] = set()


@pytest.mark.parametrize("seed", range(2))
def test_clients_that_come_and_go_at_random_leave_nothing(seed: int) -> None:
    """A day of clients that are killed, hang and come back must not use up the server."""
    rng = random.Random(seed)
    config = dataclasses.replace(CONFIG, queued_max_request_bytes=100_000, requests_at_work_max=8)
    with serving([MetadataHandler(), Call(answer_somehow)], config) as running:
        clients: list[Client] = []
        for _ in range(600):
            what = rng.random()
            if what < 0.25 or not clients:
                clients.append(running.client())
                continue
            client = rng.choice(clients)
            with contextlib.suppress(OSError):
                if what < 0.6:
                    client.socket.settimeout(0.01)
                    client.send(
                        framed(request_frame(60, 0, 1, b"\0\0\0\0" + bytes(rng.choice((0, 20_000))), flexible=True))
                    )
                elif what < 0.75:
                    client.socket.settimeout(0.01)
                    client.send(framed(request_frame(METADATA, 0, 1, struct.pack(">i", 0)))[: rng.randrange(30)])
                elif what < 0.85:
                    client.socket.settimeout(0.01)
                    client.socket.recv(rng.choice((1, 1000, 1 << 20)))
                else:
                    clients.remove(client)
                    if rng.random() < 0.5:
                        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.socket.close()
        for client in clients:
            client.socket.close()
        wait_until(lambda: is_at_rest(running))
        wait_until(lambda: not LIVE)
        with running.client() as client:
            assert client.ask_metadata()
        assert running.metrics.refused("fault") == 0


def list_offsets_frame(partitions: int) -> bytes:
    """ListOffsets 4 for the partitions of one topic."""
    asked = b"".join(struct.pack(">iiq", number, 1_000 + number, 10**12 + number) for number in range(partitions))
    return request_frame(2, 4, 1, struct.pack(">ibih", -1, 0, 1, 1) + b"t" + struct.pack(">i", partitions) + asked)


def test_decoded_requests_are_bounded_together() -> None:
    """A request of 1 MB is decoded to 10 MB: with many connections a client would fill the machine, though the bytes of
    all requests are far below ``queued.max.request.bytes``.
    """
    ended = asyncio.Event()
    at_work: list[int] = []

    async def wait(request: Any, context: RequestContext) -> Answer:
        at_work.append(len(request.topics[0].partitions))
        await ended.wait()
        return Reply((b"done",), 4, lambda: None)

    async def end() -> None:
        ended.set()

    frame = list_offsets_frame(8_000)
    config = dataclasses.replace(CONFIG, queued_max_request_bytes=8 << 20)
    with serving([MetadataHandler(), Call(wait, 2, range(1, 12))], config) as running:
        clients = [running.client() for _ in range(40)]
        clients[0].send_request(METADATA, 0, struct.pack(">i", 0))
        assert clients[0].read_frame()
        gc.collect()
        tracemalloc.start()
        try:
            for client in clients:
                client.send_frame(frame)
            memory = running.server.framed.shared.memory  # type: ignore[union-attr]
            wait_until(lambda: len(at_work) + memory.waiting == len(clients))
            held_bytes, _ = tracemalloc.get_traced_memory()
            used_bytes = memory.used_bytes
            with running.client() as other:
                assert other.ask_metadata()
        finally:
            tracemalloc.stop()
            running.run(end())
        for client in clients:
            assert client.read_frame()[4:] == b"done"
            client.socket.close()
        wait_until(lambda: is_at_rest(running))
    assert at_work == [8_000] * len(clients)
    assert used_bytes > 8 << 20
    # The bound, the request that passes it, and the bytes of others that wait: 38 MB if their bytes alone count.
    assert held_bytes < 16 << 20


def test_a_request_that_is_decoded_to_more_than_there_is_is_answered() -> None:
    """An administrator's tool would wait for ever for a server with little memory."""

    async def answer(request: Any, context: RequestContext) -> Answer:
        return Reply((b"done",), 4, lambda: None)

    config = dataclasses.replace(CONFIG, queued_max_request_bytes=10_000)
    with serving([Call(answer, 2, range(1, 12))], config) as running:
        for partitions in (8_000, 20_000):
            with running.client() as client:
                client.send_frame(list_offsets_frame(partitions))
                assert client.read_frame()[4:] == b"done"
        wait_until(lambda: is_at_rest(running))


def test_memory_is_flat_over_many_connections() -> None:
    """A few bytes kept of each connection are a full machine after some weeks."""

    def crowd(running: Serving) -> None:
        for _ in range(300):
            with running.client() as client:
                client.ask_metadata()
            send_and_go(running, [b"\0\0\0\x14", b"half a request"])
        wait_until(lambda: is_at_rest(running))
        gc.collect()

    with serving() as running:
        tracemalloc.start()
        try:
            crowd(running)
            before, _ = tracemalloc.get_traced_memory()
            crowd(running)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 100_000


#: Ten thousand clients, in a process of their own: a process may not have twice as many descriptors everywhere.
_CROWD = """
import resource, socket, struct, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
request = bytes.fromhex(sys.argv[2])
clients = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) for _ in range(10_000)]
for _ in range(2):
    for client in clients:
        client.sendall(request)
    for client in clients:
        (left,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        assert len(client.recv(left, socket.MSG_WAITALL)) == left
print("served", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_ten_thousand_connections_are_served() -> None:
    """The largest applications hold as many; each may cost some kilobytes, no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip(f"{hard} descriptors are not enough")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    request = framed(request_frame(METADATA, 0, 1, struct.pack(">i", 0))).hex()
    try:
        with serving() as running:
            with running.client() as client:
                client.ask_metadata()
            began = _resident_bytes()
            command = [sys.executable, "-c", _CROWD, str(running.port), request]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
                assert crowd.stdout is not None
                assert crowd.stdout.readline() == "served\n"
                assert running.metrics.connections() == 10_000
                taken = _resident_bytes() - began
                crowd.communicate(timeout=60)
            wait_until(lambda: is_at_rest(running))
            assert taken < 60 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
