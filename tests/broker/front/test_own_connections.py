"""The front's own questions: to any broker that answers, whatever the others do."""

from __future__ import annotations

import socket
import time

import pytest

from tests.support.broker_servers import Client
from tests.support.fronts import ScriptedBroker, fronting
from tests.support.loops import run_on
from tests.support.waiting import wait_until
from tierlog.broker.protocol.requests import RequestHeader
from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.serving.answer_memory import AnswerMemory
from tierlog.serving.outgoing import OutgoingError, OutgoingSettings, open_outgoing


def echo(header: RequestHeader, frame: memoryview, _to: socket.socket) -> bytes:
    return bytes(frame[header.body_position :])


@pytest.mark.slow
def test_a_bootstrap_that_stalls_or_is_gone_is_passed_over() -> None:
    """The listing comes from whoever answers: one that accepts and says nothing costs one try, not each one."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as gone:
        stalled, away = (f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, gone))
        gone.close()
        with ScriptedBroker(echo) as broker:
            began = time.monotonic()
            with fronting(f"{away},{stalled},{broker.address}") as (front, ports):
                assert time.monotonic() - began < 25
                with Client("127.0.0.1", ports[1]) as client:
                    client.send_request(12, 0, b"x")
                    assert client.read_frame()[4:] == b"x"
                assert front.server.front is not None


def test_a_broker_that_moves_is_found_again() -> None:
    """Its address changes with a restart: the listing of another broker names the new one, and its port leads there."""
    with ScriptedBroker(echo) as old, ScriptedBroker(echo) as new, ScriptedBroker(echo) as other:
        nodes = {1: old.port, 2: other.port}
        other.nodes = old.nodes = new.nodes = lambda: nodes
        with fronting(other.address) as (_, ports):
            assert _asks(ports[1], old)
            nodes[1] = new.port
            old.close()
            wait_until(lambda: _asks(ports[1], new))


def test_brokers_on_other_machines_are_not_reached_in_the_clear() -> None:
    """The bootstrap is here, and names them: passwords and records would go there."""
    refused = pytest.raises(ConfigError, match=r"broker 1 is at kafka\.test, on another machine")
    with ScriptedBroker(echo) as broker:
        broker.host = "kafka.test"
        with refused, fronting(broker.address):
            pytest.fail("it has started")


def test_a_broker_that_is_named_later_is_not_reached_in_the_clear() -> None:
    """Nor by a client that has its port."""
    with ScriptedBroker(echo) as broker, fronting(broker.address) as (front, ports):
        broker.host = "kafka.test"
        assert front.server.front is not None
        with Client("127.0.0.1", ports[1]) as client:
            client.send_request(12, 0, b"x")
            assert client.read_frame()[4:] == b"x"
        front.run(front.server.front.upstream.own.list_brokers())
        with Client("127.0.0.1", ports[1]) as client:
            client.send_request(12, 0, b"x")
            assert client.is_closed()


def test_a_broker_whose_name_none_can_have_is_an_error_of_its_connection() -> None:
    """The look-up of such a name is an error of Python's, which would end the listing of all brokers."""

    async def connect() -> None:
        machine = Machine()
        settings = OutgoingSettings(AnswerMemory(1, machine.timers, machine), machine.timers)
        with pytest.raises(OutgoingError, match=r"kafka\.\.test:9092 is not reached"):
            await open_outgoing(settings, "kafka..test", 9092)

    run_on("uvloop", connect)


def _asks(port: int, broker: ScriptedBroker) -> bool:
    """Whether a request by a port of the front reaches a broker."""
    before = len(broker.asked)
    try:
        with Client("127.0.0.1", port) as client:
            client.send_request(12, 0, b"x")
            client.read_frame()
    except (EOFError, OSError):
        return False
    return len(broker.asked) > before
