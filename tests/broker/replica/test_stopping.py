"""A replica that is told to end while clients wait for it."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from tests.support.api_calls import make_request
from tests.support.broker_servers import Client
from tests.support.golden import tiered_topics
from tests.support.kafka_entities import kio_bytes
from tests.support.replica_server import free_port, replica
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server

FETCH, JOIN_GROUP, LIST_OFFSETS = 1, 11, 2
MINUTE = datetime.timedelta(minutes=1)


def ask(client: Client, api_key: int, version: int, **values: Any) -> None:
    request = make_request(api_key, version, **values)
    client.send_request(api_key, version, kio_bytes(request))


def answered(client: Client, api_key: int, version: int) -> Any:
    response, _ = entity_reader(load_response_schema(api_key, version))(client.read_frame(), 4)
    return response


@contextlib.contextmanager
def clients(bootstrap: str, count: int) -> Iterator[list[Client]]:
    host, _, port = bootstrap.rpartition(":")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Client(host, int(port))) for _ in range(count)]


def test_whoever_waits_is_answered_when_the_server_ends(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A connection that breaks in the midst of a poll is an error in the log of every consumer, at every restart."""
    topic = next(case.topic for case in tiered_topics(data) if case.run.name == "main-plain")
    port = free_port()
    with (
        replica(data / "main-plain" / "objects", tmp_path, "--monitor", f"127.0.0.1:{port}") as server,
        clients(server.bootstrap, 2) as (reader, member),
    ):
        latest = {"partition_index": 0, "timestamp": -1}
        ask(reader, LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": topic, "partitions": [latest]}])
        [end] = answered(reader, LIST_OFFSETS, 1).topics[0].partitions
        wanted = {"partition": 0, "fetch_offset": end.offset, "partition_max_bytes": 1 << 20}
        limits = {"replica_id": -1, "max_wait": MINUTE, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
        ask(reader, FETCH, 4, **limits, topics=[{"topic": topic, "partitions": [wanted]}])
        protocols = [{"name": "range", "metadata": b""}]
        times = {"session_timeout": MINUTE, "rebalance_timeout": MINUTE}
        ask(member, JOIN_GROUP, 2, group_id="g", member_id="", protocol_type="consumer", protocols=protocols, **times)

        def are_waiting() -> bool:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            name = "tierlog_server_requests_at_work"
            return all(f'{name}{{api="{api}"}} 1.0' in text for api in ("Fetch", "JoinGroup"))

        wait_until(are_waiting)
        server.process.send_signal(signal.SIGTERM)
        [told] = answered(reader, FETCH, 4).responses[0].partitions
        assert (told.error_code, told.high_watermark) == (ErrorCode.none, end.offset)
        assert not told.records
        assert answered(member, JOIN_GROUP, 2).error_code is ErrorCode.not_coordinator
        assert reader.is_closed()
        assert member.is_closed()
