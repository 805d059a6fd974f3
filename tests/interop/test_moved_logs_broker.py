"""Several directories between ours and a real broker: what one has moved, or has half moved, the other goes on with."""

from __future__ import annotations

import json
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.interop.test_local_log_broker import (
    LEVELS,
    MENDED,
    WAIT_SECONDS,
    check_producers,
    check_served,
    consumed,
    eventually_leads,
    make_topics,
    produce_theirs,
    rows_of,
    said,
)
from tests.support.kafka_tools import kafka_tools
from tests.support.log_writer import TOPICS, config_of, write_logs
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import broker
from tierlog.log.formats.identity_files import Uuid, parse_partition_metadata
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import LogMove

pytestmark = pytest.mark.interop


class Ground:
    """A broker's folder with two log directories."""

    def __init__(self, folder: pathlib.Path) -> None:
        needs_a_broker()
        self.folder = folder
        self.paths = [str(folder / "logs"), str(folder / "more")]
        self.port = broker.free_port()

    @contextmanager
    def running(self) -> Iterator[broker.Broker]:
        extra = {"log.dirs": ",".join(self.paths)}
        with broker.running(self.folder, heap="512m", port=self.port, jars="kafka-log", extra=extra) as started:
            eventually_leads(started.bootstrap)
            yield started

    def folders(self, topic: str) -> list[pathlib.Path]:
        """Where the topic's logs lie, future ones too."""
        return [each for path in self.paths for each in pathlib.Path(path).glob(f"{topic}-0*")]

    def topic_id(self, topic: str) -> Uuid:
        (folder,) = self.folders(topic)
        return parse_partition_metadata((folder / "partition.metadata").read_bytes()).topic_id

    def other(self, log: UnifiedLog) -> str:
        return next(path for path in self.paths if path != log.parent_dir)


@pytest.fixture
def ground(tmp_path: pathlib.Path) -> Ground:
    return Ground(tmp_path / "broker")


def eventually(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.2)


def test_a_broker_goes_on_with_our_moves(ground: Ground) -> None:
    """Else whoever moved a log with us, or was stopped in the middle of it, cannot go back to Kafka: a broker does not
    start, serves the old copy, or copies all again.
    """
    unfinished, finished = "transactions", [topic for topic in TOPICS if topic != "transactions"]
    with ground.running() as started:
        make_topics(started.bootstrap, TOPICS)
        eventually_leads(started.bootstrap)
    ids = {topic: ground.topic_id(topic) for topic in TOPICS}
    with LogDirectories.open(ground.paths) as directories:
        written = write_logs(directories, ids, int(time.time() * 1000) - 3_600_000)  # type: ignore[arg-type]
        targets = {}
        for topic in TOPICS:
            log = directories.log(topic, 0)
            targets[topic] = ground.other(log)
            future = directories.begin_move(topic, 0, targets[topic])
            assert future is not None
            move = LogMove(log, future)
            for number in range(1000 if topic in finished else 4):
                if move.is_caught_up:
                    break
                move.step(number * 2000, max_bytes=2000)
            assert (directories.finish_move(topic, 0) is future) == (topic in finished)
        assert 0 < directories.future_logs[unfinished, 0].log_end_offset < written[unfinished].end
    assert len(ground.folders(unfinished)) == 2
    with ground.running() as started:
        for topic, told in written.items():
            check_served(started.bootstrap, topic, told)
        check_producers(started.bootstrap, written["idempotent"])
        eventually(
            lambda: (
                [str(each.parent) for each in ground.folders(unfinished) if each.name == f"{unfinished}-0"]
                == [targets[unfinished]]
            ),
            "the broker does not end our move",
        )
        check_served(started.bootstrap, unfinished, written[unfinished])
    for topic in finished:
        assert [each.parent for each in ground.folders(topic) if "delete" not in each.name] == [
            pathlib.Path(targets[topic])
        ]
    refused = "Error processing append operation"  # the batch that is out of order
    lines = [line for line in said(ground.folder, finished) if MENDED.search(line) and refused not in line]
    assert not [line for line in lines if not re.search(r"-delete|Completed load", line)]


def test_we_go_on_with_a_brokers_moves(ground: Ground, tmp_path: pathlib.Path) -> None:
    """Else whoever opens the disks of a broker loses what it has moved, or finds nothing where the log lies now."""
    topics = ("plain", "transactions")
    with ground.running() as started, kafka_tools(tmp_path) as tools:
        make_topics(started.bootstrap, topics)
        eventually_leads(started.bootstrap)
        produce_theirs(started.bootstrap)
        before = {topic: {level: consumed(started.bootstrap, topic, level) for level in LEVELS} for topic in topics}
        targets = {}
        for topic in topics:
            (folder,) = ground.folders(topic)
            targets[topic] = next(path for path in ground.paths if path != str(folder.parent))
        plan = [{"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [targets[topic]]} for topic in topics]
        (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": plan}))
        file = ("--reassignment-json-file", str(tmp_path / "plan.json"))
        ran = tools.run("kafka-reassign-partitions", "--bootstrap-server", started.bootstrap, *file, "--execute")
        assert ran.code == 0, ran.text
        for topic in topics:
            eventually(
                lambda topic=topic: (pathlib.Path(targets[topic]) / f"{topic}-0").exists(),  # type: ignore[misc]
                "the broker does not move its log",
            )
    with LogDirectories.open(ground.paths) as directories:
        directories.load_logs(configs={topic: config_of(topic) for topic in topics})
        for topic in topics:
            log = directories.logs[topic, 0]
            assert log.parent_dir == targets[topic]
            for level in LEVELS:
                assert rows_of(log, level) == before[topic][level], (topic, level)
            future = directories.begin_move(topic, 0, ground.other(log))
            assert future is not None
            move = LogMove(log, future)
            for number in range(1000):
                if move.is_caught_up:
                    break
                move.step(number * 2000)
            assert directories.finish_move(topic, 0) is future
    with ground.running() as started:
        for topic in topics:
            for level in LEVELS:
                assert consumed(started.bootstrap, topic, level) == before[topic][level], (topic, level)
