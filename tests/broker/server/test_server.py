"""A server by sockets alone: what clients of all kinds, and those that are none, get from it."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
import sys
import threading
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.broker_servers import (
    API_VERSIONS,
    METADATA,
    Call,
    Client,
    MetadataHandler,
    error_code,
    request_frame,
    serving,
)
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.server import server
from tierlog.broker.server.server import Server
from tierlog.broker.server.server_config import ServerConfig
from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.serving.response_writer import Reply

CONFIG = ServerConfig(port=0)


def test_a_request_is_answered_in_any_pieces() -> None:
    """A network cuts a request where it likes: a client behind a slow one would never get an answer."""
    frame = request_frame(METADATA, 0, 7, struct.pack(">i", 0))
    whole = struct.pack(">i", len(frame)) + frame
    with serving() as running, running.client() as client:
        expected = client.ask_metadata()
        for cut in range(1, len(whole)):
            client.send(whole[:cut])
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.send(whole[cut:])
            assert client.read_frame()[4:] == expected
        for byte in whole:
            client.send(bytes((byte,)))
        assert client.read_frame()[4:] == expected


def test_requests_in_one_piece_are_answered_in_order() -> None:
    """Clients send the next request before they have read the last answer: answers must not overtake each other."""
    with serving() as running, running.client() as client:
        sent = b""
        for number in range(500):
            frame = request_frame(METADATA, 0, number, struct.pack(">i", 0))
            sent += struct.pack(">i", len(frame)) + frame
        client.send(sent)
        assert [struct.unpack(">i", client.read_frame()[:4])[0] for _ in range(500)] == list(range(500))


@pytest.mark.parametrize("size_bytes", [-1, -(2**31), 2**31 - 1, CONFIG.socket_request_max_bytes + 1])
def test_a_length_that_nobody_means_closes_the_connection(size_bytes: int) -> None:
    """Otherwise a client that speaks another protocol makes the server wait, or ask for gigabytes."""
    with serving() as running:
        with running.client() as client:
            client.send(struct.pack(">i", size_bytes))
            assert client.is_closed()
        assert running.metrics.refused("frame_size") == 1


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"GET / HT", request_frame(METADATA, 0, 1, b"\x7f\xff\xff\xff"), request_frame(METADATA, 9, 1)],
    ids=["empty", "short", "http", "count", "cut"],
)
def test_what_is_no_request_closes_the_connection(frame: bytes) -> None:
    """Nothing behind it can be trusted, and the other clients must not notice."""
    with serving() as running, running.client() as other:
        with running.client() as client:
            client.send_frame(frame)
            assert client.is_closed()
        assert other.ask_metadata()


def test_an_unknown_api_or_version_closes_the_connection() -> None:
    """Kafka does so: a client that goes on would take the next answer for that of this request."""
    with serving() as running:
        for api_key, version in ((METADATA, 13), (METADATA, -1), (0, 3), (1000, 0), (-1, 0)):
            with running.client() as client:
                client.send_request(api_key, version, b"\0" * 100)
                assert client.is_closed()
        assert running.metrics.refused("unsupported") == 5


def test_api_versions_lists_what_is_served() -> None:
    """Clients take the highest version of the list: one that is not served costs them the connection."""
    with serving() as running, running.client() as client:
        client.send_request(API_VERSIONS, 0)
        answer = client.read_frame()
        assert error_code(answer) is ErrorCode.none
        (count,) = struct.unpack(">i", answer[6:10])
        listed = [struct.unpack(">hhh", answer[10 + 6 * i : 16 + 6 * i]) for i in range(count)]
        assert listed == [(METADATA, 0, 12), (17, 0, 1), (API_VERSIONS, 0, 4), (36, 0, 2)]
        for version, body in ((3, b"\5test\0021\0"), (4, b"\5test\0021\0")):
            client.send_request(API_VERSIONS, version, body, flexible=True)
            assert error_code(client.read_frame()) is ErrorCode.none
        client.send_request(API_VERSIONS, 3, b"\5-no-\0021\0", flexible=True)
        assert error_code(client.read_frame()) is ErrorCode.invalid_request


def test_a_newer_client_is_told_which_api_versions_there_are() -> None:
    """A client of a later Kafka asks with a version that nobody here knows: it must learn what to ask with."""
    with serving() as running, running.client() as client:
        for version in (5, 100, -3):
            client.send_request(API_VERSIONS, version, b"\xff" * 10, flexible=version > 0)
            answer = client.read_frame()
            assert error_code(answer) is ErrorCode.unsupported_version
            assert struct.unpack(">ihhh", answer[6:16]) == (1, API_VERSIONS, 0, 4)


def test_what_a_handler_raises_closes_its_connection_alone() -> None:
    """A fault in one API must not end the server, nor leave the client waiting for ever."""

    async def fail(request: Any, context: RequestContext) -> Answer:
        if context.api_version == 0:
            raise ApiError(ErrorCode.invalid_request)
        raise ZeroDivisionError

    with serving([MetadataHandler(), Call(fail, 60, range(2))]) as running, running.client() as other:
        for version in (0, 1):
            with running.client() as client:
                client.send_request(60, version, b"\0" * 3, flexible=True)
                assert client.is_closed()
        assert other.ask_metadata()
        assert (running.metrics.refused("api_error"), running.metrics.refused("fault")) == (1, 1)


def test_a_handler_ends_when_its_client_goes() -> None:
    """A long poll of a client that is gone would hold its memory until it times out."""
    began, ended = threading.Event(), threading.Event()

    async def wait(request: Any, context: RequestContext) -> Answer:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return None

    with serving([Call(wait)]) as running:
        with running.client() as client:
            client.send_request(60, 0, b"\0" * 3, flexible=True)
            assert began.wait(LIMIT_SECONDS)
        assert ended.wait(LIMIT_SECONDS)


def test_no_answer_is_sent_where_none_is_expected() -> None:
    """Produce with acks=0 has no answer: one would be taken for that of the next request."""

    async def say_nothing(request: Any, context: RequestContext) -> Answer:
        return None

    with serving([MetadataHandler(), Call(say_nothing)]) as running, running.client() as client:
        for _ in range(3):
            client.send_request(60, 0, b"\0" * 3, flexible=True)
        assert client.ask_metadata()


class Bodies:
    """Answers with buffers, and counts which were released."""

    def __init__(self, *sizes_bytes: int) -> None:
        self.buffers = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes_bytes)]
        self.made = 0
        self.released = 0

    async def answer(self, request: Any, context: RequestContext) -> Answer:
        self.made += 1
        return Reply([memoryview(each) for each in self.buffers], sum(map(len, self.buffers)), self._release)

    def _release(self) -> None:
        self.released += 1


def ask_for_bodies(client: Client) -> None:
    client.send_request(60, 0, b"\0" * 3, flexible=True)


def test_buffers_are_written_whole_and_released_once() -> None:
    """Records that are lost in an answer are lost to the consumer; a buffer that is not released is lost to all."""
    bodies = Bodies(0, 1, 3 << 20, 7, 0, 5 << 20, 100_000)
    with serving([Call(bodies.answer)]) as running, running.client() as client:
        for _ in range(3):
            ask_for_bodies(client)
        for _ in range(3):
            answer = client.read_frame()
            assert answer[5:] == b"".join(bodies.buffers)
        wait_until(lambda: bodies.released == 3)


def test_buffers_of_a_client_that_never_reads_are_released_when_it_goes() -> None:
    """A reader that hangs must pin one answer at most, and none once it is gone."""
    bodies = Bodies(32 << 20)
    with serving([Call(bodies.answer)]) as running:
        with running.client() as client:
            for _ in range(5):
                ask_for_bodies(client)
            wait_until(lambda: bodies.made == 1)
            assert client.read(4)
        wait_until(lambda: bodies.released == 1)
        assert bodies.made == 1


def test_a_client_that_takes_no_byte_is_cut_off() -> None:
    """Otherwise a few hanging readers hold all memory for answers, for as long as their machines are up."""
    bodies = Bodies(32 << 20)
    config = dataclasses.replace(CONFIG, response_deadline_ms=300)
    with serving([Call(bodies.answer)], config) as running, running.client() as client:
        ask_for_bodies(client)
        wait_until(lambda: running.metrics.refused("response_deadline") == 1)
        wait_until(lambda: bodies.released == 1)


def test_a_client_that_reads_slowly_is_served() -> None:
    """The deadline is for a client that takes nothing: one that takes little has a slow line, not a fault."""
    bodies = Bodies(24 << 20)
    config = dataclasses.replace(CONFIG, response_deadline_ms=1500)
    with serving([Call(bodies.answer)], config) as running, running.client() as client:
        ask_for_bodies(client)
        pause = threading.Event()
        got = 0
        while got < (24 << 20) + 9:
            pause.wait(0.08)
            got += len(client.read(min(1 << 20, (24 << 20) + 9 - got)))
        assert running.metrics.refused("response_deadline") == 0


def test_half_a_request_is_cut_off_in_time() -> None:
    """Slow-loris: a thousand half requests would hold memory and descriptors for ever."""
    config = dataclasses.replace(CONFIG, request_deadline_ms=200)
    with serving(config=config) as running:
        for sent in (b"\0", b"\0\0\1\0", struct.pack(">i", 50 << 20) + b"x" * 100_000):
            with running.client() as client:
                client.send(sent)
                assert client.is_closed()
        assert running.metrics.refused("request_deadline") == 3


def test_a_client_that_says_nothing_is_closed_when_it_was_idle_for_long() -> None:
    """Clients that vanish without a word leave descriptors behind."""
    config = dataclasses.replace(CONFIG, connections_max_idle_ms=2000)
    with serving(config=config) as running, running.client() as client:
        assert client.ask_metadata()
        assert client.is_closed()
        assert running.metrics.refused("idle") == 1


def test_memory_of_requests_is_bounded() -> None:
    """Many long requests at once must wait for each other, not fill the machine, and none may be forgotten."""
    config = dataclasses.replace(CONFIG, queued_max_request_bytes=1 << 20)
    frame = request_frame(METADATA, 0, 7, struct.pack(">i", 0) + bytes(900_000))
    with serving(config=config) as running:
        clients = [running.client() for _ in range(8)]
        for client in clients:
            client.send(struct.pack(">i", len(frame)) + frame[:50_000])
        for client in clients:
            threading.Thread(target=client.send, args=(frame[50_000:],)).start()
        for client in clients:
            assert client.read_frame()
            client.socket.close()


def test_half_a_long_request_does_not_hold_up_small_ones() -> None:
    """Otherwise anybody who can connect stops all consumers, with a few bytes every half minute."""
    config = dataclasses.replace(CONFIG, queued_max_request_bytes=1 << 20)
    with serving(config=config) as running, running.client() as greedy, running.client() as client:
        greedy.send(struct.pack(">i", 50 << 20) + b"x" * 100_000)
        shared = running.server.framed.shared  # type: ignore[union-attr]
        wait_until(lambda: shared.memory.used_bytes > 1 << 20)
        client.socket.settimeout(60)
        assert client.ask_metadata()


def test_one_address_has_a_bounded_number_of_connections() -> None:
    """One host that leaks connections must not take those of all others."""
    config = dataclasses.replace(CONFIG, max_connections_per_ip=2)
    with serving(config=config) as running:
        with running.client() as first, running.client() as second:
            assert first.ask_metadata()
            assert second.ask_metadata()
            with running.client() as third:
                assert third.is_closed()
        wait_until(lambda: running.metrics.connections() == 0)
        with running.client() as again:
            assert again.ask_metadata()


def test_above_the_most_connections_the_next_one_waits() -> None:
    """As with Kafka, a client that comes when all places are taken is served once one is free."""
    config = dataclasses.replace(CONFIG, max_connections=2)
    with serving(config=config) as running, running.client() as first, running.client() as second:
        assert first.ask_metadata()
        assert second.ask_metadata()
        with running.client() as third:
            third.send_request(METADATA, 0, struct.pack(">i", 0))
            third.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                third.read_frame()
            second.socket.close()
            third.socket.settimeout(10)
            assert third.read_frame()


def test_a_stop_answers_what_is_under_way() -> None:
    """A restart must not cost clients the answers that were being made, nor take longer than its grace."""
    began = threading.Event()

    async def slow(request: Any, context: RequestContext) -> Answer:
        began.set()
        await asyncio.sleep(0.3)
        return await MetadataHandler().handle(request, context)

    handler = Call(slow, METADATA, range(13))
    with serving([handler]) as running, running.client() as client, running.client() as idle:
        client.send_request(METADATA, 0, struct.pack(">i", 0))
        assert began.wait(LIMIT_SECONDS)
        running.stop()
        assert client.read_frame()
        assert client.is_closed()
        assert idle.is_closed()
        running.stop()


def test_a_stop_ends_what_takes_too_long() -> None:
    """A long poll of five minutes must not keep a server from ending."""
    began = threading.Event()

    async def wait(request: Any, context: RequestContext) -> Answer:
        began.set()
        await asyncio.sleep(60)
        return None

    config = dataclasses.replace(CONFIG, stop_grace_ms=100)
    with serving([Call(wait)], config) as running, running.client() as client:
        client.send_request(60, 0, b"\0" * 3, flexible=True)
        assert began.wait(LIMIT_SECONDS)
        running.stop()
        assert client.is_closed()


def test_a_stopped_server_starts_again() -> None:
    """Whoever embeds a server restarts it, for example after a change of its certificate's place."""
    with serving() as running:
        running.stop()
        host, port = running.run(running.server.start())
        with Client(host, port) as client:
            assert client.ask_metadata()


def test_clients_are_told_the_address_that_they_reached_or_the_advertised_one() -> None:
    """Clients connect to what Metadata names: a wrong address there, and nobody reads anything."""
    with serving([found := MetadataHandler()]) as running, running.client() as client:
        assert client.ask_metadata()
        context = found.contexts[0]
        assert (context.advertised_host, context.advertised_port) == ("127.0.0.1", running.port)
        assert (context.client_host, context.client_id, context.principal) == ("127.0.0.1", "test", "User:ANONYMOUS")
    config = dataclasses.replace(CONFIG, advertised_host="kafka.example", advertised_port=19092)
    with serving([found := MetadataHandler()], config) as running, running.client() as client:
        assert client.ask_metadata()
        assert (found.contexts[0].advertised_host, found.contexts[0].advertised_port) == ("kafka.example", 19092)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_listener_that_is_open_to_all_is_warned_of(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """A user who meant "this machine" and wrote 0.0.0.0 hands all history to the network, without a warning."""
    with serving(config=ServerConfig(host=host, port=0)):
        pass
    assert ("event=no_authentication host=0.0.0.0" in caplog.text) is (host == "0.0.0.0")


def test_a_thousand_connections_are_served() -> None:
    """Consumers of a large application each hold several connections."""
    with serving() as running:
        clients = [running.client() for _ in range(1000)]
        for client in clients:
            client.send_request(METADATA, 0, struct.pack(">i", 0))
        for client in clients:
            assert client.read_frame()
        for client in clients:
            client.socket.close()
        wait_until(lambda: running.metrics.connections() == 0)


def test_two_handlers_of_one_api_are_refused() -> None:
    """Otherwise which one answers depends on an order that nobody chose."""
    with pytest.raises(ConfigError, match="Metadata has two handlers"):
        Server([MetadataHandler(), MetadataHandler()], CONFIG, Machine())


def test_versions_are_loaded_before_clients_ask_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first client of each version, and all others with it, would wait for modules to be read and compiled."""
    loaded: list[tuple[int, int]] = []
    load = server._load_version

    def record(api_key: int, version: int) -> None:
        load(api_key, version)
        loaded.append((api_key, version))

    monkeypatch.setattr(server, "_load_version", record)
    with serving():
        wait_until(lambda: len(loaded) == 13 + 2 + 3 + 5)
    assert len(set(loaded)) == len(loaded)
    assert {(METADATA, 12), (17, 1), (36, 2), (API_VERSIONS, 4)} == set(loaded[:4])
    modules = [f"kio.schema.metadata.v{version}.{part}" for version in range(13) for part in ("request", "response")]
    assert set(modules) <= sys.modules.keys()
