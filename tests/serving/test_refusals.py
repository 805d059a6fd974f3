"""The log of refused clients."""

from __future__ import annotations

import logging

import pytest

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.serving.refusals import Refusals


def test_each_kind_and_client_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A client that tries a thousand times a second must not fill the disk with lines, nor hide another client's."""
    clock = ManualClock()
    refusals = Refusals(Machine(clock=clock))
    for second in range(90):
        for kind, host in (("malformed", "10.0.0.1"), ("malformed", "10.0.0.2"), ("tls", "10.0.0.1")):
            for _ in range(5):
                refusals.tell(kind, host, "why " * 1000)
        clock.advance(1.0)
        assert len(caplog.records) == (3 if second < 60 else 6)
    assert caplog.records[-1].getMessage().startswith("event=refused kind=tls client=10.0.0.1 untold=299 reason='why ")
    assert max(len(record.getMessage()) for record in caplog.records) < 500


def test_what_a_client_sent_makes_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A name with a line break in it could forge an entry of the log."""
    Refusals(Machine()).tell("malformed", "10.0.0.1", "the name 'a\nevent=authenticated\x1b[2J'")
    assert "\n" not in caplog.records[0].getMessage()
    assert "\x1b" not in caplog.records[0].getMessage()


def test_many_clients_take_bounded_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals of millions of addresses must not be remembered for ever."""
    refusals = Refusals(Machine(clock=ManualClock()))
    with caplog.at_level(logging.CRITICAL):
        for number in range(5000):
            refusals.tell("malformed", f"10.0.{number // 256}.{number % 256}", "why")
    assert len(refusals._told) <= 1024
