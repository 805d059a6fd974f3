"""Ports that stand for brokers: the same everywhere, and never two brokers' at once."""

from __future__ import annotations

import logging

import pytest

from tierlog.broker.front.virtual_brokers import Broker, VirtualBrokers
from tierlog.errors import ConfigError

PORTS = range(9100, 9104)


def told(brokers: VirtualBrokers, node_id: int, host: str = "kafka") -> tuple[str, int]:
    return brokers.endpoint_of(node_id, host, 9092, advertised_host="front")


def test_a_port_follows_from_the_id() -> None:
    """A front that was started again, and every other front, has the port that clients remember."""
    for first in (VirtualBrokers(PORTS), VirtualBrokers(PORTS)):
        assert [told(first, node) for node in (1001, 2, 1003)] == [("front", 9101), ("front", 9102), ("front", 9103)]
        assert first.at(9103) == Broker(1003, "kafka", 9092)
        assert first.at(9100) is None
        assert first.find(2) == Broker(2, "kafka", 9092)
        assert first.find(6) is None, "it has the port of another"


def test_a_broker_that_moves_is_followed() -> None:
    """Its clients come by the same port, and go to where it is now: any answer says so."""
    brokers = VirtualBrokers(PORTS)
    brokers.replace([Broker(1, "old", 9092), Broker(2, "kafka", 9092)])
    assert told(brokers, 1, "new") == ("front", 9101)
    assert brokers.at(9101) == Broker(1, "new", 9092)


def test_a_port_goes_to_another_broker_only_when_its_own_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Else records for one broker would be sent to another; whoever has none is told once in the log."""
    brokers = VirtualBrokers(PORTS)
    brokers.replace([Broker(1, "a", 9092)])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            host, port = told(brokers, 5)
            assert (host, port) == ("broker-5.has-no-port-here.invalid", 9101)
    assert len(caplog.records) == 1
    assert brokers.at(9101) == Broker(1, "a", 9092)
    brokers.replace([Broker(2, "b", 9092)])
    assert brokers.at(9101) == Broker(1, "a", 9092), "a broker that is away for a moment keeps its port"
    assert told(brokers, 5) == ("front", 9101)
    assert brokers.at(9101) == Broker(5, "kafka", 9092)


def test_two_on_one_port_are_named() -> None:
    """At the start it is an error with the remedy."""
    brokers = VirtualBrokers(PORTS)
    brokers.check([Broker(node, "kafka", 9092) for node in (7, 8, 9, 10)])
    with pytest.raises(ConfigError, match="brokers 3 and 7 would have one port with 4 ports"):
        brokers.check([Broker(3, "kafka", 9092), Broker(7, "kafka", 9092)])
