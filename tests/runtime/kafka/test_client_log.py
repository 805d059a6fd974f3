"""librdkafka's messages in the log: each cause once a minute."""

from __future__ import annotations

import logging
import socket

import pytest

from tests.support.waiting import wait_until
from tierlog.runtime.kafka.client_keys import client_settings
from tierlog.runtime.kafka.opening import ClientLog
from tierlog.runtime.kafka.topic_admin import TopicAdmin
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.clock import ManualClock

REFUSED = "[thrd:{0}/{1}]: {0}/{1}: Connect to ipv4#{0} failed: Connection refused (after {2}ms in state CONNECT)"
LOGGER = logging.getLogger("tierlog.runtime.kafka.topic_admin")


def machine() -> Machine:
    return Machine(clock=ManualClock(), process=Process())


def say(log: ClientLog, message: str, *, level: int = logging.ERROR) -> None:
    log.log(level, "%s [%s] %s", "FAIL", "client#1", message)


def test_a_cause_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A cluster that is away for an hour would fill the disk that the broker needs."""
    own = machine()
    first, second = ClientLog(LOGGER, own), ClientLog(LOGGER, own)
    with caplog.at_level(logging.INFO):
        for tick in range(300):
            say(first, REFUSED.format("10.0.0.1:9092", "bootstrap", tick))
            say(second, REFUSED.format("10.0.0.1:9092", 3, 2 * tick))
            own.clock.sleep(0.5)
    assert len(caplog.records) == 3
    assert "(and" not in caplog.records[0].getMessage()
    assert caplog.records[1].getMessage().endswith("(and 239 more like it before)")
    assert all(record.levelname == "ERROR" for record in caplog.records)


def test_other_causes_are_not_kept_back(caplog: pytest.LogCaptureFixture) -> None:
    """Else the second broker that goes, or another fault of the first, is never seen."""
    log = ClientLog(LOGGER, machine())
    with caplog.at_level(logging.INFO):
        say(log, REFUSED.format("10.0.0.1:9092", 1, 0))
        say(log, REFUSED.format("10.0.0.2:9092", 2, 0))
        say(log, "[thrd:10.0.0.1:9092/1]: 10.0.0.1:9092/1: Disconnected (after 20455ms in state UP)")
    assert len(caplog.records) == 3


def test_memory_has_a_bound() -> None:
    """A message that never repeats must not grow the process."""
    own = machine()
    log = ClientLog(LOGGER, own)
    for number in range(5000):
        say(log, f"host-{number}: no such host", level=logging.DEBUG)
    causes = own.process.shared("causes that librdkafka logged", lambda: None)
    assert len(causes._known) == 256  # type: ignore[attr-defined]


def test_a_client_of_an_absent_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """The same with librdkafka's own lines, which are not ours to choose."""
    pytest.importorskip("confluent_kafka")
    with socket.create_server(("127.0.0.1", 0)) as server:
        absent = f"127.0.0.1:{server.getsockname()[1]}"
    keys = {"bootstrap.servers": absent, "reconnect.backoff.max.ms": "50", "reconnect.backoff.ms": "10"}
    settings = client_settings("admin", keys, client_id="test")
    own = Machine(process=Process())
    with caplog.at_level(logging.INFO), TopicAdmin(settings, machine=own) as admin:
        causes = own.process.shared("causes that librdkafka logged", lambda: None)

        def is_repeated() -> bool:
            admin.poll()
            return sum(count for _, count in causes._known.values()) >= 4  # type: ignore[attr-defined]

        wait_until(is_repeated)
    lines = [record.getMessage() for record in caplog.records if absent in record.getMessage()]
    assert len(lines) in (1, 2), lines  # of the connection, and that no broker is up
