"""The series of groups, as a scrape shows them."""

from __future__ import annotations

import pathlib
import urllib.request

import pytest

from tests.support.golden import tiered_topics
from tests.support.group_rig import Rig
from tests.support.replica_server import free_port, replica
from tierlog.broker.groups.group_metrics import LAGS_MAX, EndOffsetOf, GroupMetrics
from tierlog.errors import StoreError


def figures(rig: Rig, end_offset_of: EndOffsetOf | None = None) -> dict[str, float]:
    """Series with their labels -> value."""
    from prometheus_client import generate_latest

    text = generate_latest(GroupMetrics(rig.coordinator, end_offset_of).registry).decode()
    return {
        key: float(value) for key, _, value in (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
    }


def test_groups_members_commits_and_rebalances_are_told() -> None:
    """An operator learns from users that a group rebalances all day, or that no commit is stored."""
    rig = Rig()
    assert figures(rig)['tierlog_groups{state="Stable"}'] == 0
    [joined] = rig.stable(1)
    found = figures(rig)
    assert found['tierlog_groups{state="Stable"}'] == 1
    assert found['tierlog_groups{state="Empty"}'] == 0
    assert found["tierlog_groups_members"] == 1
    assert found["tierlog_groups_rebalances_total"] == 1
    assert found["tierlog_groups_memory_bytes"] > 0

    rig.is_prompt = False
    answers = rig.commit(7, joined)
    rig.advance(0.2)
    assert figures(rig)["tierlog_groups_commit_seconds_count"] == 0
    rig.store.flush()
    assert answers
    found = figures(rig)
    assert found["tierlog_groups_commit_seconds_count"] == 1
    assert found['tierlog_groups_commit_seconds_bucket{le="0.1"}'] == 0
    assert found['tierlog_groups_commit_seconds_bucket{le="0.25"}'] == 1

    rig.store.fault = StoreError("the disk is full")
    rig.commit(8, joined)
    rig.store.flush()
    rig.store.fault = None
    assert figures(rig)['tierlog_groups_commits_refused_total{error="COORDINATOR_NOT_AVAILABLE"}'] == 1

    rig.advance(3600)
    found = figures(rig)
    assert found["tierlog_groups_members_lost_total"] == 1
    assert found["tierlog_groups_members"] == 0
    assert found['tierlog_groups{state="Empty"}'] == 1


def lag_of(group: str, topic: str, partition: int) -> str:
    return f'tierlog_groups_lag{{group="{group}",partition="{partition}",topic="{topic}"}}'


def test_lags_are_told_where_they_are_asked_for() -> None:
    """Whoever waits for a replay to catch up cannot see which partition it is behind in."""
    rig = Rig()
    for partition, offset in enumerate((7, 10, 13, 1)):
        rig.commit(offset, place=("orders", partition))
    rig.commit(4, group_id='odd "name"\n', place=("payments", 0))
    rig.commit(4, group_id="g" * 250)
    assert not [name for name in figures(rig) if "lag" in name]
    ends = {("orders", 0): 10, ("orders", 1): 10, ("orders", 2): 10, ("payments", 0): 5}
    found = figures(rig, lambda topic, partition, _: ends.get((topic, partition)))
    assert {name: value for name, value in found.items() if "lag" in name} == {
        lag_of("readers", "orders", 0): 3,
        lag_of("readers", "orders", 1): 0,
        lag_of("readers", "orders", 2): 0,
        lag_of(r"odd \"name\"\n", "payments", 0): 1,
        'tierlog_groups_lag_left_out{reason="bound"}': 1,
        'tierlog_groups_lag_left_out{reason="unknown_end"}': 1,
    }


def test_lags_have_a_bound() -> None:
    """A client that commits for a million groups takes the scraper down, and the server's memory."""
    rig = Rig()
    rig.commit(1, group_id="first")
    for partition in range(LAGS_MAX):
        rig.commit(1, group_id="large", place=("orders", partition))
    rig.commit(1, group_id="last")
    asked = 0

    def end_offset_of(topic: str, partition: int, _: object) -> int:
        nonlocal asked
        asked += 1
        return 2

    found = figures(rig, end_offset_of)
    assert asked == LAGS_MAX == sum(name.startswith("tierlog_groups_lag{") for name in found)
    assert found[lag_of("first", "orders", 0)] == 1
    assert found['tierlog_groups_lag_left_out{reason="bound"}'] == 2


@pytest.mark.server
def test_a_scrape_tells_the_lag_that_a_client_sees(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """An alert on another lag than that of Kafka's tools rings for nothing, or not at all."""
    from confluent_kafka import Consumer, TopicPartition

    topic = next(case.topic for case in tiered_topics(data) if case.run.name == "main-plain")
    port = free_port()
    objects, state = data / "main-plain" / "objects", str(tmp_path / "state")
    arguments = ["--monitor", f"127.0.0.1:{port}", "--state", state]

    def scraped() -> dict[str, float]:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("tierlog_groups_lag")]
        return {name: float(value) for name, _, value in lines}

    with replica(objects, tmp_path, *arguments, config={"rsm.config.metrics.recording.level": "DEBUG"}) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False})
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.commit(offsets=[TopicPartition(topic, 0, end - 3)], asynchronous=False)
        assert scraped()[lag_of("g", topic, 0)] == 3
        consumer.commit(offsets=[TopicPartition(topic, 0, end + 3)], asynchronous=False)
        assert scraped()[lag_of("g", topic, 0)] == 0
        consumer.close()
    with replica(objects, tmp_path, *arguments):
        assert scraped() == {}
