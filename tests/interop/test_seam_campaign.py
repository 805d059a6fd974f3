"""Queries over the seam, by seeds: the border moves, modes and engines change, drivers and executors are killed, others
go on from a checkpoint, brokers stand still or are killed, and topics get partitions.

``TIERLOG_SEAM_SEEDS=30`` runs so many.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.interop.test_spark_seam import READS
from tests.support.seam_cluster import EXECUTORS, THREADS, Cluster, check, rows_of, seam_cluster

pytestmark = pytest.mark.interop

SEEDS = range(int(os.environ.get("TIERLOG_SEAM_SEEDS", "2")))
STEPS = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with seam_cluster(tmp_path_factory.mktemp("seam")) as made:
        made.make("first")  # a tier that is empty says nothing of its layout
        made.produce("first", 300)
        made.wait_for_tier("first", 1)
        yield made


def begun(after_seconds: float, function: Callable[..., object], *arguments: object) -> threading.Timer:
    timer = threading.Timer(after_seconds, function, arguments)
    timer.start()
    return timer


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_once(cluster: Cluster, tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, some border, kill or change of the engine has a record read twice, or never."""
    chance, topic, out = random.Random(seed), f"seed-{seed}", tmp_path / "out"
    cluster.make(topic, local_retention_bytes=str(chance.choice((1, 1 << 20, 3 << 20))))
    isolation = chance.choice(("read_committed", "read_uncommitted"))
    checkpoint, partitions = str(tmp_path / "checkpoint"), 2
    told: list[object] = []
    for step in range(STEPS + 1):
        is_last = step == STEPS
        cluster.produce(topic, 25 * chance.randrange(2, 14), partition=chance.randrange(partitions))
        time.sleep(chance.choice((0.0, 0.5, 2.0)))
        mode, engine = chance.choice(READS)
        options: dict[str, str | None] = {"kafka.isolation.level": isolation}
        if chance.random() < 0.5:
            options["maxOffsetsPerTrigger"] = str(chance.randrange(40, 400))
        if chance.random() < 0.3:
            options["minPartitions"] = str(chance.randrange(3, 9))
        fault = "" if is_last else chance.choice(("", "kill", "stop", "down", "executor", "partition"))
        told.append((mode, engine, fault, options))
        master = EXECUTORS if fault == "executor" or chance.random() < 0.2 else THREADS
        if master != cluster.master:
            cluster.end_spark()
            cluster.master = master
        more = {"out": out, "checkpoint": checkpoint, "options": options, "engine": engine}
        if fault == "kill":
            timer = begun(chance.uniform(0.5, 9.0), cluster.kill_spark)
            with suppress(AssertionError, ValueError):  # no answer: it was killed
                cluster.ask(mode, topic, **more)
            timer.join()
            continue
        if fault == "stop":
            os.kill(cluster.running.process.pid, signal.SIGSTOP)
            begun(chance.uniform(0.5, 3.0), os.kill, cluster.running.process.pid, signal.SIGCONT)
        if fault == "down":
            timer = begun(chance.uniform(0.0, 6.0), cluster.restart, chance.uniform(0.0, 3.0))
            _, answer = cluster.ask(mode, topic, **more)
            timer.join()
            assert "DataLossError" not in str(answer["error"]), (told, answer)
            told.append(answer["error"])  # Kafka's source gives a broker up within a minute: the checkpoint has to hold
            continue
        if fault == "executor":
            begun(chance.uniform(2.0, 12.0), cluster.kill_executor)
        if fault == "partition":
            partitions += 1
            cluster.add_partition(topic, partitions)
            cluster.produce(topic, 50, partition=partitions - 1)
        _, answer = cluster.ask(mode, topic, **more)
        if answer["error"] is not None:
            pytest.fail(f"{told}\n{answer['error']}", pytrace=False)
    wanted, _ = cluster.ask("kafka", topic, options={"kafka.isolation.level": isolation}, out=tmp_path / "wanted")
    check(rows_of(out), wanted)
    assert len(wanted) > 100


def test_the_checker_finds_what_it_looks_for(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """If this fails, the campaign passes whatever is read."""
    cluster.make("checked")
    cluster.produce("checked", 50)
    wanted, _ = cluster.ask("kafka", "checked", out=tmp_path / "wanted")
    check(rows_of(tmp_path / "wanted"), wanted)
    for spoilt in (wanted[:7] + wanted[8:], [*wanted[:7], wanted[6], *wanted[7:]], [*wanted[:-1], wanted[-2]]):
        with pytest.raises(AssertionError):
            check(spoilt, wanted)
