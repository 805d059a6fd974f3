"""Events a second from a running Kafka into the segment table, by confluent-kafka.

    python -m bench.metadata_kafka [--partitions 1000] [--segments 150] [--rounds 5]

A broker on loopback has the events of :mod:`bench.metadata_events` in 50 metadata partitions. Each round reads the
topic from its beginning to its end, once to be read alone, once into an empty table. Processor time is that of all
threads of this process, librdkafka's among them; the broker's comes on top: a machine of few cores reads slower.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

from bench.metadata_events import event_values, partition_of
from tests.support.peers import broker
from tierlog.remote.metadata.cluster_topic import read_cluster_topic
from tierlog.remote.metadata.records.record_serde import decode_record
from tierlog.remote.metadata.table.segment_table import SegmentTable
from tierlog.remote.metadata.topic_backed.config import read_topic_based_config
from tierlog.remote.metadata.topic_backed.kafka_log import KafkaMetadataLogs
from tierlog.remote.metadata.topic_backed.metadata_log import METADATA_TOPIC, ValueRun
from tierlog.remote.metadata.topic_backed.partitioner import metadata_partition

IN_FLIGHT = 10_000


def fill(bootstrap: str, partitions: int, segments: int) -> int:
    """Write the events as a manager would. Returns how many."""
    prefix = "remote.log.metadata."
    keys = {
        "log.dir": "/",
        f"{prefix}topic.replication.factor": 1,
        f"{prefix}common.client.bootstrap.servers": bootstrap,
        f"{prefix}producer.linger.ms": 20,
    }
    places: dict[tuple[bytes, int], int] = {}
    pending: collections.deque = collections.deque()
    count = 0
    with KafkaMetadataLogs(read_topic_based_config(keys)).open(timeout_seconds=30) as log:
        for index in range(partitions):
            each = partition_of(index)
            places[each.topic_id.raw, each.partition] = metadata_partition(each, log.partition_count)
        for value in event_values(partitions, segments):
            each = decode_record(value).remote_log_segment_id.topic_id_partition  # type: ignore[union-attr]
            pending.append(log.append(places[each.topic_id.raw, each.partition], value))
            count += 1
            while len(pending) > IN_FLIGHT:
                pending.popleft().result(60)
        for future in pending:
            future.result(60)
    return count


def measured(bootstrap: str, take: Callable[[ValueRun, str], object], count: int) -> tuple[float, float]:
    """Events a second: by the clock, by processor time."""
    began, cpu = time.perf_counter(), time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
    read_cluster_topic(bootstrap, take)
    wall = time.perf_counter() - began
    return count / wall, count / (time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) - cpu)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--segments", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, broker.running(pathlib.Path(folder)) as running:
        count = fill(running.bootstrap, given.partitions, given.segments)
        print(f"{count} events in {METADATA_TOPIC}, {given.partitions} partitions of {given.segments} segments")
        found: dict[str, list[tuple[float, float]]] = {"read": [], "read and applied": []}
        for _ in range(given.rounds):
            found["read"].append(measured(running.bootstrap, lambda run, where: None, count))
            with SegmentTable(learns_partitions=True) as table:

                def apply(run: ValueRun, where: str, table: SegmentTable = table) -> None:
                    done = table.apply(run)
                    assert done.error is None
                    assert not done.refused_count

                found["read and applied"].append(measured(running.bootstrap, apply, count))
                assert table.figures.segments == count // 2
        for name, rates in found.items():
            wall, cpu = [rate for rate, _ in rates], [rate for _, rate in rates]
            print(
                f"{name}: {statistics.median(wall):,.0f} events/s ({min(wall):,.0f} … {max(wall):,.0f}), "
                f"{statistics.median(cpu):,.0f} a second of processor time"
            )


if __name__ == "__main__":
    main()
