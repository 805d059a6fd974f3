"""Consumer groups of clients that were not written here: rebalances with members killed, a coordinator killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.checkout import ROOT
from tests.support.golden import config_of, tiered_offsets, tiered_topics
from tests.support.kafka_tools import kafka_tools
from tests.support.replica_server import RunningReplica, free_port, replica

pytestmark = pytest.mark.interop

PATIENCE_SECONDS = 60.0
GROUP = "readers"
LIBRARIES = ("confluent", "kafka_python", "aiokafka")
#: Members are told of each other's death soon.
CONFIG = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000"}


class MemberProcess:
    """A consumer as a process, which says what it is assigned and what it has committed."""

    def __init__(
        self, library: str, bootstrap: str, topic: str, folder: pathlib.Path, instance: str, session_ms: int
    ) -> None:
        self.out = folder / f"member-{time.monotonic_ns()}.jsonl"
        command = [sys.executable, "-m", "tests.support.group_member", library, bootstrap, topic, GROUP]
        command += [str(session_ms), instance]
        with self.out.open("wb") as out, self.out.with_suffix(".err").open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)

    def said(self) -> list[dict[str, object]]:
        whole = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def assigned(self) -> frozenset[int] | None:
        """What it was assigned last; None before that."""
        found = [entry["assigned"] for entry in self.said() if "assigned" in entry]
        return frozenset(found[-1]) if found else None  # type: ignore[arg-type]

    @property
    def assignments(self) -> int:
        return sum("assigned" in entry for entry in self.said())

    @property
    def committed(self) -> dict[int, int]:
        """The last offset of each partition that it was told is committed."""
        found: dict[int, int] = {}
        for entry in self.said():
            if "committed" in entry:
                found |= {int(partition): offset for partition, offset in entry["committed"].items()}  # type: ignore[attr-defined]
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.out.with_suffix(".err").read_text()[-2000:]


@contextlib.contextmanager
def members(folder: pathlib.Path) -> Iterator[Callable[..., MemberProcess]]:
    """Makes members; none outlives the block."""
    made: list[MemberProcess] = []

    def make(
        library: str, server: RunningReplica, topic: str, instance: str = "", *, session_ms: int = 3000
    ) -> MemberProcess:
        made.append(MemberProcess(library, server.bootstrap, topic, folder, instance, session_ms))
        return made[-1]

    try:
        yield make
    finally:
        for member in made:
            if member.process.poll() is None:
                member.kill()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def shared(all_of_it: frozenset[int], *parties: MemberProcess) -> bool:
    """Whether members have all partitions between them, each once."""
    shares = [member.assigned for member in parties]
    given = [share for share in shares if share is not None]
    return len(given) == len(parties) and sum(map(len, given)) == len(all_of_it) == len(frozenset().union(*given))


@pytest.fixture
def bucket(fixtures: pathlib.Path) -> tuple[pathlib.Path, dict[str, str], str, frozenset[int]]:
    """A golden bucket, its configuration, a topic of several partitions, and these."""
    case = max(tiered_topics(fixtures), key=lambda each: len(tiered_offsets(each)))
    partitions = frozenset(tiered_offsets(case))
    assert len(partitions) >= 2
    return case.run / "objects", config_of(case.run), case.topic, partitions


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_that_come_and_die_share_the_partitions(
    library: str, bucket: tuple[pathlib.Path, dict[str, str], str, frozenset[int]], tmp_path: pathlib.Path
) -> None:
    """Otherwise partitions are read twice, or by nobody, when a consumer starts or dies."""
    path, config, topic, partitions = bucket
    state = ("--state", str(tmp_path / "state"))
    with replica(path, tmp_path, *state, config=config | CONFIG) as server, members(tmp_path) as make:
        first = make(library, server, topic)
        until(lambda: first.assigned == partitions, "one member has all partitions")
        second = make(library, server, topic)
        until(lambda: shared(partitions, first, second), "two members share")
        second.kill()
        until(lambda: first.assigned == partitions, "the partitions of the member that died are read again")
        third = make(library, server, topic)
        until(lambda: shared(partitions, first, third), "who comes gets its share")
        first.stop()
        until(lambda: third.assigned == partitions, "who leaves gives its partitions away")
        third.stop()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_coordinator_that_is_killed_forgets_nothing(
    library: str, bucket: tuple[pathlib.Path, dict[str, str], str, frozenset[int]], tmp_path: pathlib.Path
) -> None:
    """Otherwise a crash of the server has its consumers read again what they had committed, or rebalance."""
    path, config, topic, partitions = bucket
    port, state = free_port(), ("--state", str(tmp_path / "state"))
    with members(tmp_path) as make:
        with replica(path, tmp_path, *state, config=config | CONFIG, port=port) as server:
            # Longer than a restart takes: clients leave a coordinator that they have not heard of for a session.
            pair = [make(library, server, topic, session_ms=45_000) for _ in range(2)]
            until(lambda: shared(partitions, *pair), "two members share")
            until(lambda: all(member.committed for member in pair), "both have committed")
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait()
        before = {partition: offset for member in pair for partition, offset in member.committed.items()}
        counts = [member.assignments for member in pair]
        with replica(path, tmp_path, *state, config=config | CONFIG, port=port) as server:
            assert_not_behind(server, topic, before)
            until(lambda: all(member.committed != {} for member in pair), "they go on")
            time.sleep(5)
            assert [member.process.poll() for member in pair] == [None, None]
            assert [member.assignments for member in pair] == counts, "a restart is no rebalance"
            for member in pair:
                member.stop()
            after = {partition: offset for member in pair for partition, offset in member.committed.items()}
            assert_not_behind(server, topic, after)


def assert_not_behind(server: RunningReplica, topic: str, told: dict[int, int]) -> None:
    """No partition's offset is below one that a client was told is committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in told], 20)
        assert {each.partition: each.offset for each in found if each.offset < told[each.partition]} == {}
    finally:
        consumer.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_that_restarts_keeps_its_partitions(
    library: str, bucket: tuple[pathlib.Path, dict[str, str], str, frozenset[int]], tmp_path: pathlib.Path
) -> None:
    """Otherwise group.instance.id does nothing, and each deployment stops all consumers."""
    path, config, topic, partitions = bucket
    with replica(path, tmp_path, config=config | CONFIG) as server, members(tmp_path) as make:
        first, second = (make(library, server, topic, name) for name in "ab")
        until(lambda: shared(partitions, first, second), "two members share")
        had, count = second.assigned, first.assignments
        second.kill()
        back = make(library, server, topic, "b")
        until(lambda: back.assigned == had, "it has what it had")
        assert first.assignments == count, "nobody else noticed"


def described(text: str) -> dict[int, str]:
    """The current offset of each partition, as ``--describe`` prints it."""
    rows = [line.split() for line in text.splitlines() if line.startswith(GROUP)]
    return {int(row[2]): row[3] for row in rows}


def test_kafkas_own_tool_sees_and_changes_groups(
    bucket: tuple[pathlib.Path, dict[str, str], str, frozenset[int]], tmp_path: pathlib.Path
) -> None:
    """Otherwise whoever runs the replica cannot see lag, set offsets back, or delete a group."""
    path, config, topic, partitions = bucket
    named = ("--group", GROUP)
    with (
        replica(path, tmp_path, config=config | CONFIG) as server,
        members(tmp_path) as make,
        kafka_tools(tmp_path) as tools,
    ):

        def consumer_groups(*arguments: str) -> str:
            return tools.run("kafka-consumer-groups", "--bootstrap-server", server.bootstrap, *arguments).text

        member = make("confluent", server, topic)
        until(lambda: bool(member.committed), "it has committed")
        assert consumer_groups("--list").split() == [GROUP]
        assert consumer_groups("--list", "--state").split() == ["GROUP", "STATE", GROUP, "Stable"]
        assert described(consumer_groups("--describe", *named)).keys() == partitions
        assert f"{topic}:0,1,2" in consumer_groups("--describe", *named, "--members", "--verbose")
        assert "The group is not empty" in consumer_groups("--delete", *named)
        member.stop()
        reset = ("--reset-offsets", *named, "--topic", topic, "--execute")
        consumer_groups(*reset, "--to-offset", "5")
        assert described(consumer_groups("--describe", *named)) == dict.fromkeys(partitions, "5")
        assert "Successful" in consumer_groups("--delete-offsets", *named, "--topic", f"{topic}:0")
        assert described(consumer_groups("--describe", *named)).keys() == partitions - {0}
        assert "was successful" in consumer_groups("--delete", *named)
        assert f"Group {GROUP} not found" in consumer_groups("--describe", *named)
        assert consumer_groups("--list").split() == []
