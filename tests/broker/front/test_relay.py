"""Frames between a client and its broker: passed as they are, in order, and never past a hostile answer."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from tests.support.broker_servers import Client, MetadataHandler, serving
from tests.support.certificates import write_certificates
from tests.support.fronts import API_VERSIONS, METADATA, ScriptedBroker, fronting, send_answer
from tests.support.kafka_entities import kio_bytes
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tierlog.broker.protocol.entities import entities_of, request_entities_of
from tierlog.broker.protocol.peer_answers import decode_answer, encode_request_body
from tierlog.broker.protocol.requests import RequestHeader
from tierlog.errors import ConfigError

PRODUCE = 0
#: An API whose answer is not looked into: Heartbeat.
HEARTBEAT = 12
MIB = 1 << 20


def echo(header: RequestHeader, frame: memoryview, _to: socket.socket) -> bytes:
    """Answer with the body of the request."""
    return bytes(frame[header.body_position :])


def test_requests_pass_as_they_are() -> None:
    """Whatever the API is, both ways: the front reads a header, and no more."""
    with ScriptedBroker(echo) as broker, fronting(broker.address) as (front, ports):
        for port in (front.port, ports[1]):
            with Client("127.0.0.1", port) as client:
                for size in (0, 1, 100, 16 << 10, 300_000, 3 * MIB):
                    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
                    correlation_id = client.send_request(HEARTBEAT, 0, body)
                    answer = client.read_frame()
                    assert answer == struct.pack(">i", correlation_id) + body
        wait_until(lambda: front.server.memory.held_bytes == 0)


def test_requests_pass_by_tls(tmp_path: pathlib.Path) -> None:
    """The certificate is checked; large frames go piece by piece."""
    files = write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.chain, files.key)
    keys = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.authority)}
    with (
        ScriptedBroker(echo, context) as broker,
        fronting(broker.address, upstream_config=keys) as (front, _),
        front.client() as client,
    ):
        for size in (0, 100, 16 << 10, 300_000, 5 * MIB):
            body = random.Random(size).randbytes(size)
            correlation_id = client.send_request(HEARTBEAT, 0, body)
            assert client.read_frame() == struct.pack(">i", correlation_id) + body
        wait_until(lambda: front.server.memory.held_bytes == 0)


def test_a_pipeline_keeps_its_order() -> None:
    """Clients send five requests and more before the first answer."""
    with ScriptedBroker(echo) as broker, fronting(broker.address) as (front, _), front.client() as client:
        sent = [client.send_request(HEARTBEAT, 0, bytes([number]) * 9000) for number in range(40)]
        for number, correlation_id in enumerate(sent):
            assert client.read_frame() == struct.pack(">i", correlation_id) + bytes([number]) * 9000


def test_a_request_without_acks_has_no_answer() -> None:
    """Else the next request would wait for it for ever, and get another's answer."""
    with ScriptedBroker(lambda *given: None if given[0].api_key == PRODUCE else echo(*given)) as broker:
        with fronting(broker.address) as (front, _), front.client() as client:
            client.send_request(PRODUCE, 3, struct.pack(">hh", -1, 0) + b"the rest")
            client.send_request(PRODUCE, 3, struct.pack(">h2sh", 2, b"tx", 0) + b"the rest")
            client.send_request(PRODUCE, 9, b"\0" + struct.pack(">h", 0) + b"\0", flexible=True)
            correlation_id = client.send_request(HEARTBEAT, 0, b"x")
            assert client.read_frame() == struct.pack(">i", correlation_id) + b"x"
        assert broker.asked == [(PRODUCE, 3), (PRODUCE, 3), (PRODUCE, 9), (HEARTBEAT, 0)]


def test_what_is_sent_without_acks_arrives_though_its_client_goes() -> None:
    """Brokers read what a closed connection has sent: a producer without acks does not wait for anything."""
    with ScriptedBroker(lambda *given: None) as broker, fronting(broker.address) as (front, _):
        for count in (1, 2, 5, 12):
            for _ in range(10):
                with front.client() as client:
                    for number in range(count):
                        client.send_request(PRODUCE, 3, struct.pack(">hh", -1, 0) + bytes([number]) * 1000)
        wait_until(lambda: len(broker.asked) == 200)


def test_what_is_sent_without_acks_arrives_however_large_and_slow_it_is() -> None:
    """The last batch of each such producer would be lost, and more where the broker holds it back for its quota."""
    is_held, arrived = threading.Event(), list[int]()

    def held(header: RequestHeader, frame: memoryview, _to: socket.socket) -> None:
        assert is_held.wait(LIMIT_SECONDS)
        arrived.append(frame[-1])

    with ScriptedBroker(held) as broker, fronting(broker.address) as (front, _):
        broker.keep_little()
        for seconds in (0.0, 2.5):  # longer than the time after which a client that is gone is looked for
            is_held.clear()
            with front.client() as client:
                for number in range(6):
                    client.send_request(PRODUCE, 3, struct.pack(">hh", -1, 0) + bytes([number]) * MIB)
            time.sleep(seconds)
            is_held.set()
            wait_until(lambda: len(arrived) == 6)
            assert arrived == list(range(6))
            arrived.clear()


def test_brokers_are_behind_ports_and_named_by_them() -> None:
    """Over a real server: every endpoint that a client gets is the front's."""
    with serving([MetadataHandler()]) as upstream, fronting(upstream.address) as (front, ports):
        for port in (front.port, ports[0]):
            with Client("127.0.0.1", port) as client:
                answer = decode_answer(METADATA, 0, memoryview(client.ask_metadata()))
                assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
                    (0, "front.test", ports[0])
                ]
        with Client("127.0.0.1", ports[1]) as client:  # no broker is behind it
            client.send_request(METADATA, 0, struct.pack(">i", 0))
            assert client.is_closed()
        assert front.metrics.refused("upstream") == 1


def test_versions_are_those_of_the_broker_and_of_the_front() -> None:
    """An API or a version that nobody here knows could name an address that is no front's."""
    with ScriptedBroker(echo) as broker, fronting(broker.address) as (front, _), front.client() as client:
        client.send_request(API_VERSIONS, 0)
        answer = decode_answer(API_VERSIONS, 0, memoryview(client.read_frame()), 4)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert ranges == {0: (3, 13), 1: (4, 18), 3: (0, 13), 18: (0, 4)}
        client.send_request(API_VERSIONS, 77, flexible=True)
        answer = decode_answer(API_VERSIONS, 0, memoryview(client.read_frame()), 4)
        assert answer.error_code is ErrorCode.unsupported_version
        client.send_request(METADATA, 14, flexible=True)
        assert client.is_closed()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda h, to: to.close(), id="closed"),
        pytest.param(lambda h, to: to.sendall(struct.pack(">i", 2**31 - 1)), id="two gigabytes"),
        pytest.param(lambda h, to: to.sendall(struct.pack(">i", -1)), id="below zero"),
        pytest.param(lambda h, to: to.sendall(struct.pack(">i", 2)), id="no header"),
        pytest.param(lambda h, to: to.sendall(struct.pack(">ii", 4, h.correlation_id + 1)), id="another's"),
        pytest.param(lambda h, to: (send_answer(to, h, b"ab"), send_answer(to, h, b"ab")), id="two"),
        pytest.param(lambda h, to: send_answer(to, h, b"\0\0\0\1" + b"\0\0\0\1"), id="truncated"),
        pytest.param(lambda h, to: send_answer(to, h, struct.pack(">i", 2**31 - 1)), id="endless"),
    ],
)
def test_hostile_answers_end_the_connection(answer: Callable[[RequestHeader, socket.socket], object]) -> None:
    """A typed refusal, counted, and nothing held afterwards; other clients go on."""

    def hostile(header: RequestHeader, frame: memoryview, to: socket.socket) -> bytes | None:
        if header.api_key == HEARTBEAT:
            return echo(header, frame, to)
        answer(header, to)
        if bytes(frame[-4:]) == b"last":  # of the short one, whose rest is then not coming
            to.close()
        return None

    with ScriptedBroker(hostile) as broker, fronting(broker.address) as (front, _):
        with front.client() as client, front.client() as other:
            other.send_request(HEARTBEAT, 0, b"x")
            assert other.read_frame()[4:] == b"x"
            client.send_request(METADATA, 0, b"last")
            try:
                client.read_frame()  # the first of two is an answer
            except (EOFError, ConnectionResetError):
                pass
            else:
                client.send_request(HEARTBEAT, 0, b"y")
                with pytest.raises((EOFError, ConnectionResetError)):
                    client.read_frame()
            other.send_request(HEARTBEAT, 0, b"x")
            assert other.read_frame()[4:] == b"x"
        wait_until(lambda: front.server.memory.held_bytes == 0)
        assert front.metrics.refused("fault") == 0


def test_a_length_alone_costs_no_memory() -> None:
    """Brokers that promise 60 MB each and send little: what is granted is bounded, and the others wait."""

    def promising(header: RequestHeader, frame: memoryview, to: socket.socket) -> bytes | None:
        to.sendall(struct.pack(">ii", 60 * MIB, header.correlation_id) + bytes(20_000))
        return None

    with ScriptedBroker(promising) as broker, fronting(broker.address, answers_bytes=64 * MIB) as (front, _):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clients = [front.client() for _ in range(20)]
        for client in clients:
            client.send_request(HEARTBEAT, 0, b"")
        wait_until(lambda: front.server.memory.held_bytes > 0)
        time.sleep(0.3)
        assert front.server.memory.held_bytes == 60 * MIB + 4
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
        for client in clients:
            client.socket.close()
        wait_until(lambda: front.server.memory.held_bytes == 0)


def test_connections_end_together() -> None:
    """A client that goes leaves no connection to the broker, and a broker that goes none to its clients."""
    open_now: list[socket.socket] = []

    def kept(header: RequestHeader, frame: memoryview, to: socket.socket) -> bytes:
        open_now.append(to)
        return echo(header, frame, to)

    with ScriptedBroker(kept) as broker, fronting(broker.address) as (front, _):
        with front.client() as client:
            client.send_request(HEARTBEAT, 0, b"x")
            client.read_frame()
            open_now[0].shutdown(socket.SHUT_RDWR)
            assert client.is_closed()
        with front.client() as client:
            client.send_request(HEARTBEAT, 0, b"x")
            client.read_frame()
        wait_until(lambda: _is_closed(open_now[1]))


def _is_closed(found: socket.socket) -> bool:
    try:
        found.getpeername()
    except OSError:
        return True
    return False


def test_gssapi_and_bare_tokens_are_refused() -> None:
    """Neither can be relayed: a ticket names the broker's host, and bare tokens are no requests."""
    with ScriptedBroker(echo) as broker, fronting(broker.address) as (front, _):
        with front.client() as client:
            client.send_request(17, 1, encode_request_body(request_entities_of(17, 1).request(mechanism="GSSAPI")))
            answer = client.read_frame()
            assert struct.unpack(">h", answer[4:6]) == (ErrorCode.unsupported_sasl_mechanism.value,)
            assert client.is_closed()
        with front.client() as client:
            client.send_request(17, 0, encode_request_body(request_entities_of(17, 0).request(mechanism="PLAIN")))
            assert client.is_closed()
        assert broker.asked == []


def test_a_token_that_the_broker_refuses_is_no_login() -> None:
    """A client whose token is false would get to handlers, and could send requests of any size."""

    def with_tokens(header: RequestHeader, frame: memoryview, to: socket.socket) -> bytes | None:
        if header.api_key not in (17, 36):
            to.close()  # as brokers do before a login
            return None
        challenge = b'{"status":"invalid_token"}' if b"false" in bytes(frame) else b""
        values = {"error_message": None, "auth_bytes": challenge, "mechanisms": ("OAUTHBEARER", "PLAIN")}
        return kio_bytes(entities_of(header.api_key, 1).response(error_code=ErrorCode.none, **values))

    def request(api_key: int, **values: object) -> bytes:
        return encode_request_body(request_entities_of(api_key, 1).request(**values))

    keys = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    keys |= {"sasl.username": "front", "sasl.password": "secret"}
    with (
        ScriptedBroker(with_tokens) as broker,
        fronting(broker.address, [MetadataHandler()], upstream_config=keys) as (front, _),
    ):
        for token in (b"false", b"good"):
            with front.client() as client:
                client.send_request(17, 1, request(17, mechanism="OAUTHBEARER"))
                client.read_frame()
                client.send_request(36, 1, request(36, auth_bytes=token))
                client.read_frame()
                client.send_request(METADATA, 0, struct.pack(">i", 0))
                if token == b"false":  # that is the broker's to refuse
                    assert client.is_closed()
                else:
                    assert len(decode_answer(METADATA, 0, memoryview(client.read_frame()), 4).brokers) == 1


def test_two_brokers_on_one_port_are_an_error_of_the_start() -> None:
    """Else the clients of one of them would be the other's."""

    class Two(MetadataHandler):
        async def handle(self, request: object, context: object) -> object:  # type: ignore[override]
            answer = await super().handle(request, context)  # type: ignore[arg-type]
            first = answer.brokers[0]  # type: ignore[union-attr]
            second = dataclasses.replace(first, node_id=4)
            return dataclasses.replace(answer, brokers=(first, second))  # type: ignore[type-var]

    refused = pytest.raises(ConfigError, match="brokers 0 and 4 would have one port")
    with serving([Two()]) as upstream, refused, fronting(upstream.address):
        pytest.fail("it has started")


def test_a_broker_that_does_not_answer_holds_up_its_own_clients_alone() -> None:
    """And a client that waits for it can still go."""

    def silent(header: RequestHeader, frame: memoryview, to: socket.socket) -> bytes | None:
        return None if header.api_key == METADATA else echo(header, frame, to)

    with (
        ScriptedBroker(silent) as broker,
        fronting(broker.address) as (front, _),
        front.client() as stuck,
        front.client() as other,
    ):
        stuck.send_request(METADATA, 0, struct.pack(">i", 0))
        other.send_request(HEARTBEAT, 0, b"x")
        assert other.read_frame()[4:] == b"x"
        wait_until(lambda: front.metrics.api(METADATA).at_work == 1)
        stuck.socket.close()
        wait_until(lambda: front.metrics.api(METADATA).at_work == 0)
