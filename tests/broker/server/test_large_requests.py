"""Requests and answers with very many elements: nobody else waits for them."""

from __future__ import annotations

import asyncio
import datetime
import functools
import gc
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.support.api_calls import make_request
from tests.support.broker_servers import Serving, request_frame, serving
from tests.support.fixed_catalog import FixedCatalog
from tests.support.kafka_entities import kio_bytes
from tierlog.broker.apis.describe_cluster import ServerIdentity
from tierlog.broker.apis.describe_configs import DescribeConfigsHandler
from tierlog.broker.apis.describe_log_dirs import DescribeLogDirsHandler
from tierlog.broker.apis.describe_topic_partitions import DescribeTopicPartitionsHandler
from tierlog.broker.apis.list_offsets import ListOffsetsHandler
from tierlog.broker.apis.metadata import MetadataHandler
from tierlog.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tierlog.broker.apis.refusals import refusals
from tierlog.broker.handling import Handler
from tierlog.broker.partitions import EpochEndOffset, OffsetSnapshot, Partition, Topic
from tierlog.remote.api import ZERO_UUID

#: Lines of Python that the loop's thread goes through in one turn, for each element of a request: handlers look at each
#: element. Encoding an answer there takes 70 to 2,000 more.
LINES_MAX = 50
TOPICS = 2_000
PARTITIONS = 4_000


class EmptyPartition:
    """A partition whose offsets are at hand."""

    offsets = OffsetSnapshot(0, 0, 0, 0)

    async def epoch_of(self, offset: int) -> int:
        return 0

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        return EpochEndOffset(0, 0)

    async def size_bytes(self) -> int:
        return 0


class LargeCatalog(FixedCatalog):
    """Very many topics, of one partition each; and one topic of very many partitions."""

    _partition: Any = EmptyPartition()

    def __init__(self) -> None:
        super().__init__(
            *(Topic(f"topic-{number}", ZERO_UUID, (0,)) for number in range(TOPICS)),
            Topic("large", ZERO_UUID, tuple(range(PARTITIONS))),
        )

    def partition(self, name: str, partition: int) -> Partition | None:
        found: Partition = self._partition
        return found


NAMES = [f"topic-{number}" for number in range(TOPICS)]
NUMBERS = range(PARTITIONS)


def list_offsets(topics: dict[str, range]) -> dict[str, Any]:
    def partition(number: int) -> dict[str, Any]:
        return {"partition_index": number, "current_leader_epoch": -1, "timestamp": -1}

    asked = [{"name": name, "partitions": list(map(partition, numbers))} for name, numbers in topics.items()]
    return {"replica_id": -1, "isolation_level": 0, "topics": asked}


def epochs(topics: dict[str, range]) -> dict[str, Any]:
    def partition(number: int) -> dict[str, Any]:
        return {"partition": number, "current_leader_epoch": -1, "leader_epoch": 0}

    asked = [{"topic": name, "partitions": list(map(partition, numbers))} for name, numbers in topics.items()]
    return {"replica_id": -1, "topics": asked}


SMALL = dict.fromkeys(NAMES, range(1))
LARGE = {"large": NUMBERS}
REQUESTS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "metadata of all topics": (3, 8, {"topics": None, "allow_auto_topic_creation": False}),
    "metadata": (3, 8, {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": False}),
    "list-offsets of topics": (2, 4, list_offsets(SMALL)),
    "list-offsets of partitions": (2, 4, list_offsets(LARGE)),
    "epochs of topics": (23, 3, epochs(SMALL)),
    "epochs of partitions": (23, 3, epochs(LARGE)),
    "configs": (32, 3, {"resources": [{"resource_type": 2, "resource_name": name} for name in NAMES]}),
    "log-dirs": (35, 1, {"topics": None}),
    "describe-topics": (75, 0, {"topics": [{"name": name} for name in NAMES], "response_partition_limit": 2000}),
    "delete-topics": (20, 3, {"topic_names": NAMES}),
}


#: Nearly as many elements as one request may have.
ELEMENTS = 240_000


@functools.cache
def topic_names() -> list[str]:
    """Of many topics, in no order."""
    names = [f"topic-{number}" for number in range(ELEMENTS)]
    random.Random(0).shuffle(names)
    return names


LONGEST: dict[str, tuple[int, int, Callable[[int], dict[str, Any]]]] = {
    "metadata": (
        3,
        8,
        lambda count: {"topics": [{"name": n} for n in topic_names()[:count]], "allow_auto_topic_creation": False},
    ),
    "list-offsets": (2, 4, lambda count: list_offsets({"large": range(count)})),
    "list-offsets of topics": (2, 4, lambda count: list_offsets(dict.fromkeys(topic_names()[: count // 2], range(1)))),
    "epochs": (23, 3, lambda count: epochs({"large": range(count)})),
    "configs": (
        32,
        3,
        lambda count: {"resources": [{"resource_type": 2, "resource_name": n} for n in topic_names()[:count]]},
    ),
    "delete-topics": (20, 3, lambda count: {"topic_names": topic_names()[:count]}),
    "describe-topics": (
        75,
        0,
        lambda count: {"topics": [{"name": n} for n in topic_names()[:count]], "response_partition_limit": 2000},
    ),
}


@pytest.fixture
def running() -> Iterator[Serving]:
    catalog, identity = LargeCatalog(), ServerIdentity("a-cluster")
    handlers: list[Handler] = [
        MetadataHandler(catalog, identity),
        ListOffsetsHandler(catalog),
        OffsetForLeaderEpochHandler(catalog),
        DescribeConfigsHandler(catalog, identity),
        DescribeLogDirsHandler(catalog),
        DescribeTopicPartitionsHandler(catalog, identity),
        *refusals(),
    ]
    gc.collect()
    gc.disable()  # ``run_server`` has the process's own way with it
    try:
        with serving(handlers) as found:
            yield found
    finally:
        gc.enable()


def longest_turn(running: Serving, work: Callable[[], None]) -> int:
    """The most lines of Python that the loop went through without looking at anything else."""
    lines = most = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += 1
        return trace

    async def watch() -> None:
        nonlocal most
        sys.settrace(trace)  # of this thread alone
        try:
            while True:
                before = lines
                await asyncio.sleep(0)
                most = max(most, lines - before)
        finally:
            sys.settrace(None)

    async def end() -> None:
        watching.cancel()

    async def begin() -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(watch())

    watching = running.run(begin())
    try:
        work()
    finally:
        running.run(end())
    return most


@pytest.mark.few(4)
@pytest.mark.parametrize("name", REQUESTS)
def test_others_have_the_loop_meanwhile(running: Serving, name: str) -> None:
    """One administrator who lists everything would hold up all readers for half a second."""
    api_key, version, values = REQUESTS[name]
    frame = frame_of(api_key, version, values)
    with running.client() as client:

        def ask() -> None:
            client.send_frame(frame)
            assert len(client.read_frame()) > 20_000

        ask()  # what is loaded at the first request is loaded
        assert longest_turn(running, ask) < LINES_MAX * (PARTITIONS if name.endswith("partitions") else TOPICS)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", LONGEST)
def test_others_have_the_loop_during_long_requests(running: Serving, name: str) -> None:
    """The same of topics that are not there."""
    api_key, version, values = LONGEST[name]
    count = ELEMENTS // 20
    frame = frame_of(api_key, version, values(count))
    with running.client() as client:
        client.send_frame(frame_of(api_key, version, values(2)))
        assert client.read_frame()

        def ask() -> None:
            client.send_frame(frame)
            assert len(client.read_frame()) > 20_000

        assert longest_turn(running, ask) < LINES_MAX * count


#: Beats as the member of a group does, in a process of its own, until its input ends: ApiVersions takes the way of all
#: requests, too. Prints how many were answered.
MEMBER = """
import socket, struct, sys, threading
host, port, frame = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
count = 0
with socket.create_connection((host, port)) as server:
    print("beats", flush=True)
    while not ended.is_set():
        server.sendall(struct.pack(">i", len(frame)) + frame)
        (left,) = struct.unpack(">i", server.recv(4, socket.MSG_WAITALL))
        server.recv(left, socket.MSG_WAITALL)
        count += 1
        ended.wait(0.002)
print(count)
"""
#: Where the loop did the work, one beat or two would be answered.
BEATS_MIN = 10


def beats_beside(running: Serving, work: Callable[[], None]) -> int:
    """How many heartbeats are answered while something is done."""
    command = [sys.executable, "-c", MEMBER, running.host, str(running.port), request_frame(18, 0, 1).hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdin is not None
        assert member.stdout is not None
        assert member.stdout.readline() == "beats\n"
        work()
        member.stdin.close()
        return int(member.stdout.readline())


# An answer of DescribeTopicPartitions is short, and its request soon over.
@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(LONGEST.keys() - {"describe-topics"}))
def test_a_heartbeat_beside_the_longest_requests(running: Serving, name: str) -> None:
    """Members of groups would be taken for dead while an administrator lists everything."""
    api_key, version, values = LONGEST[name]
    frame = frame_of(api_key, version, values(ELEMENTS if name == "metadata" else ELEMENTS // 4))
    with running.client() as client:
        client.send_frame(frame_of(api_key, version, values(2)))
        assert client.read_frame()

        def ask() -> None:
            client.send_frame(frame)
            assert len(client.read_frame()) > 50_000

        beats = beats_beside(running, ask)
        print(name, "heartbeats:", beats)
        assert beats >= BEATS_MIN


def frame_of(api_key: int, version: int, values: dict[str, Any]) -> bytes:
    """A request of these fields, and the defaults of others."""
    defaults: dict[str, Any] = {"include_synonyms": True, "include_documentation": False, "cursor": None}
    defaults["timeout"] = datetime.timedelta(0)
    flags = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    request = make_request(api_key, version, **flags, **defaults | values)
    body = kio_bytes(request)
    return request_frame(api_key, version, 1, body, flexible=bool(type(request).__flexible__))
