"""Streams over the seam while leaders change, and a leader's last records are truncated that nobody could read."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.broker_pair import BEGINS, STAYS, TOPIC, BrokerPair, eventually
from tests.support.metadata_cluster import needs_a_broker, tiered_broker
from tests.support.seam_cluster import Cluster, check
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

LOST = 40


@pytest.fixture
def pair(tmp_path: pathlib.Path) -> Iterator[BrokerPair]:
    """Two brokers over one tier; the second leads. A follower that stands still stays in sync for long."""
    needs_a_broker()
    (tmp_path / "tier").mkdir()
    keys = tiered_broker(tmp_path / "tier") | {"replica.lag.time.max.ms": "600000", "broker.session.timeout.ms": "6000"}
    pair = BrokerPair(tmp_path, lambda node: keys)
    pair.start_both()
    pair.make_topic(
        remote_storage_enable="true", segment_bytes=str(1 << 20), local_retention_bytes="1", min_insync_replicas="1"
    )
    yield pair
    pair.close()


@pytest.fixture
def cluster(pair: BrokerPair, tmp_path: pathlib.Path) -> Iterator[Cluster]:
    both = ",".join(map(pair.bootstrap, (STAYS, BEGINS)))
    made = Cluster(replace(pair.brokers[BEGINS], bootstrap=both), tmp_path / "tier", tmp_path)
    yield made
    made.end_spark()


def write_to_the_leader_alone(pair: BrokerPair) -> None:
    """Records that no follower gets: the controller's broker, which follows, stands still."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": pair.bootstrap(BEGINS), "acks": "1"})
    for number in range(LOST):
        producer.produce(TOPIC, b"lost %d" % number)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("engine", ["jar", "python"])
def test_a_leader_that_has_to_truncate(pair: BrokerPair, cluster: Cluster, tmp_path: pathlib.Path, engine: str) -> None:
    """If this fails, a query has records that the log has lost, lacks those in their place, or has some twice."""
    more = {"engine": engine, "out": tmp_path / "out", "checkpoint": str(tmp_path / "checkpoint")}
    follower = pair.brokers[STAYS].process

    def query() -> list[tuple[object, ...]]:
        found, answer = cluster.ask("remote-preferred", TOPIC, **more)
        assert answer["error"] is None
        return found

    for turn in range(2):
        cluster.produce(TOPIC, 400)
        cluster.wait_for_tier(TOPIC, 300 * (turn + 1))
        before = query()
        assert len(before) > 300 * (turn + 1)
        follower.send_signal(signal.SIGSTOP)
        time.sleep(1.0)  # the fetch that waits at the leader ends without records
        try:
            write_to_the_leader_alone(pair)
            os.kill(pair.brokers[BEGINS].process.pid, signal.SIGKILL)
        finally:
            follower.send_signal(signal.SIGCONT)
        pair.kill(BEGINS)
        eventually(lambda: pair.state(STAYS)[0], STAYS)
        cluster.produce(TOPIC, 50)
        assert len(query()) > len(before)
        pair.start(BEGINS)
        eventually(lambda: pair.state(STAYS)[1], {STAYS, BEGINS})
        pair.elect_the_preferred()
        cluster.produce(TOPIC, 25)
        query()
    wait_until(lambda: cluster.local_start(TOPIC) > 800)
    wanted, _ = cluster.ask("kafka", TOPIC, out=tmp_path / "wanted")
    assert not any(isinstance(each, bytes) and each.startswith(b"lost") for row in wanted for each in row)
    check(query(), wanted)
    epochs = (pair.partition(BEGINS) / "leader-epoch-checkpoint").read_text().splitlines()
    assert len(epochs) >= 2 + 4, epochs
