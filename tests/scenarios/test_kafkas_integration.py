"""Kafka's integration tests of tiered storage (``org.apache.kafka.tiered.storage.integration``), by their stories.

A segment has one batch or two, as there; a broker's store says which segments a consumer had fetched from the tier.
``tests/remote/manager/kafka_classes.md`` has the classes that are taken elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.scenarios.two_brokers import Cluster, batch_of
from tests.support.tiered_brokers import CONFIG, partition_of
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.manager.offset_search import OffsetSearch
from tierlog.replication import BuildAuxState

#: Of segments of one batch of one short value, and of two.
ONE_BATCH, TWO_BATCHES = (replace(CONFIG, segment_bytes=size) for size in (100, 150))


def produce(cluster: Cluster, partition: int, *values: bytes, first_ms: int | None = None) -> None:
    """Produce a batch for each value, and let the followers have them."""
    for at, value in enumerate(values):
        now_ms = cluster.now_ms if first_ms is None else first_ms + at
        cluster.append(partition, data=batch_of([value], now_ms=now_ms))
    cluster.settle(partition)


def offload(cluster: Cluster, partition: int = 0) -> list[int]:
    """Copy what may be copied, and let local retention run; where the new segments start."""
    copied = [each.start_offset for each in cluster.tier(partition)]
    cluster.retain(partition)
    return copied


def local_start(cluster: Cluster, broker: int, partition: int = 0) -> int:
    return cluster.replica(broker, partition).log.local_log_start_offset


@contextmanager
def fetched(cluster: Cluster, broker: int) -> Iterator[set[int]]:
    """Note where the segments start that a broker fetches from the tier during a block."""
    storage: Any = cluster.brokers[broker].storage
    fetch, starts = storage.fetch_log_segment, set[int]()

    def noting(metadata: RemoteLogSegmentMetadata, *positions: int | None) -> object:
        starts.add(metadata.start_offset)
        return fetch(metadata, *positions)

    storage.fetch_log_segment = noting
    yield starts
    del storage.fetch_log_segment


def consume(cluster: Cluster, broker: int, partition: int = 0, *, start: int = 0) -> tuple[list[bytes], list[int]]:
    """The values that a consumer is given from an offset on, and the segments that were fetched for it."""
    with fetched(cluster, broker) as starts:
        values = cluster.values(broker, partition, start=start)
    return values, sorted(starts)


def numbered(first: int, end: int) -> list[bytes]:
    return [b"v%d" % at for at in range(first, end)]


@pytest.mark.parametrize(("config", "records", "segments"), [(ONE_BATCH, 3, [0, 1]), (TWO_BATCHES, 5, [0, 2])])
def test_offload_and_consume_from_leader(config: Any, records: int, segments: list[int]) -> None:
    """OffloadAndConsumeFromLeaderTest: also after the broker was started anew."""
    with Cluster(brokers=(1,), config=config) as cluster:
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, records))
        assert offload(cluster) == segments
        assert local_start(cluster, 1) == records - 1
        assert consume(cluster, 1) == (numbered(0, records), segments)
        cluster.brokers[1].stop()
        cluster.brokers[1].start()
        cluster.elect(1)
        cluster.brokers[1].wait_ready(0)
        assert consume(cluster, 1, start=1) == (numbered(1, records), segments[1:] if config is ONE_BATCH else segments)


def test_roll_and_offload_active_segment() -> None:
    """RollAndOffloadActiveSegmentTest: retention by time closes the active segment, which goes to the tier as well."""
    with Cluster(brokers=(1,), config=replace(ONE_BATCH, local_retention_ms=1)) as cluster:
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, 4))
        cluster.machine.clock.sleep(1)
        assert offload(cluster) == [0, 1, 2]
        assert offload(cluster) == [3]
        assert local_start(cluster, 1) == 4
        assert consume(cluster, 1) == (numbered(0, 4), [0, 1, 2, 3])


@pytest.mark.parametrize("moves", [False, True])
def test_reassign_replica(moves: bool) -> None:
    """ReassignReplicaExpandTest, ReassignReplicaMoveTest: the new replica begins from the tier, and leads."""
    with Cluster(config=ONE_BATCH) as cluster:
        cluster.brokers[2].stop()
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, 3))
        assert offload(cluster) == [0, 1]
        cluster.brokers[2].start()
        cluster.brokers[2].wipe(0)
        cluster.elect(1, in_sync=(1,))
        assert any(isinstance(each, BuildAuxState) for each in cluster.settle())
        cluster.elect(2, in_sync=(1, 2))
        cluster.settle()
        if moves:
            cluster.brokers[1].stop()
            cluster.elect(2, in_sync=(2,))
        produce(cluster, 0, b"v3")
        assert offload(cluster) == [2]
        assert local_start(cluster, 2) == 3
        assert consume(cluster, 2) == (numbered(0, 4), [0, 1, 2])


def test_reassign_replica_shrink() -> None:
    """ReassignReplicaShrinkTest: the leaders are those that were followers, and nobody follows."""
    with Cluster(config=ONE_BATCH, partitions=2) as cluster:
        for partition, leader in ((0, 1), (1, 2)):
            cluster.elect(leader, partition)
            produce(cluster, partition, *numbered(0, 3))
            assert offload(cluster, partition) == [0, 1]
        for partition, leader, left in ((0, 2, 1), (1, 1, 2)):
            cluster.elect(leader, partition, in_sync=(leader,))
            cluster.brokers[left].wipe(partition)
            cluster.append(partition, data=batch_of([b"v3"], now_ms=cluster.now_ms))
            assert offload(cluster, partition) == [2]
            assert local_start(cluster, leader, partition) == 3
            assert consume(cluster, leader, partition) == (numbered(0, 4), [0, 1, 2])


def test_partitions_expand() -> None:
    """PartitionsExpandTest: new partitions of a topic whose first one is in the tier."""
    with Cluster(config=ONE_BATCH, partitions=3) as cluster:
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, 3))
        assert offload(cluster) == [0, 1]
        for partition, leader in ((1, 1), (2, 2)):
            cluster.elect(leader, partition)
            produce(cluster, partition, *numbered(0, 3))
            assert offload(cluster, partition) == [0, 1]
            assert local_start(cluster, leader, partition) == 2
        produce(cluster, 0, *numbered(3, 6))
        assert offload(cluster) == [2, 3, 4]
        assert consume(cluster, 1) == (numbered(0, 6), [0, 1, 2, 3, 4])
        assert consume(cluster, 1, 1) == (numbered(0, 3), [0, 1])
        assert consume(cluster, 2, 2, start=1) == (numbered(1, 3), [1])


def test_enable_remote_log_on_topic() -> None:
    """EnableRemoteLogOnTopicTest: what was there before goes to the tier, too."""
    with Cluster(config=replace(ONE_BATCH, remote_storage_enable=False), partitions=2) as cluster:
        for partition, leader in ((0, 1), (1, 2)):
            cluster.elect(leader, partition)
            produce(cluster, partition, *numbered(0, 3))
            cluster.retain(partition)
            assert local_start(cluster, leader, partition) == 0
            for broker in cluster.brokers.values():
                log = broker.replicas[partition].log
                log.update_config(replace(log.config, remote_storage_enable=True))
            produce(cluster, partition, *numbered(3, 5))
            assert offload(cluster, partition) == [0, 1, 2, 3]
            assert local_start(cluster, leader, partition) == 4
            assert consume(cluster, leader, partition) == (numbered(0, 5), [0, 1, 2, 3])


def test_disable_remote_log_copy_on_topic() -> None:
    """DisableRemoteLogOnTopicTest, as far as copying is disabled: the tier is read, and loses what is deleted."""
    with Cluster(config=ONE_BATCH) as cluster:
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, 3))
        assert offload(cluster) == [0, 1]

        def disable(value: bool) -> None:
            for broker in cluster.brokers.values():
                log = broker.replicas[0].log
                log.update_config(replace(log.config, remote_log_copy_disable=value))

        disable(True)
        assert consume(cluster, 1) == (numbered(0, 3), [0, 1])
        produce(cluster, 0, b"v3")
        assert offload(cluster) == []
        disable(False)
        assert offload(cluster) == [2]
        assert local_start(cluster, 1) == 3
        disable(True)
        assert consume(cluster, 1) == (numbered(0, 4), [0, 1, 2])


def test_fetch_from_leader_with_corrupted_checkpoint() -> None:
    """FetchFromLeaderWithCorruptedCheckpointTest: a leader without its checkpoints of offsets and of its clean stop."""
    with Cluster(config=ONE_BATCH) as cluster:
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, 3))
        assert offload(cluster) == [0, 1]
        assert consume(cluster, 1) == (numbered(0, 3), [0, 1])
        for each in (2, 1):
            cluster.brokers[each].stop()
        first = cluster.brokers[1]
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
            first.files.remove(f"{first.path}/{name}")
        for each in (1, 2):
            cluster.brokers[each].start()
        cluster.elect(1)
        produce(cluster, 0, *numbered(3, 5))
        assert offload(cluster) == [2, 3]
        assert local_start(cluster, 1) == 4
        assert consume(cluster, 1) == (numbered(0, 5), [0, 1, 2, 3])


def test_list_offsets() -> None:
    """ListOffsetsTest: special timestamps and times over the tier and the log, from the new leader."""
    with Cluster(config=replace(TWO_BATCHES, local_retention_bytes=75)) as cluster:
        cluster.elect(1)
        produce(cluster, 0, *numbered(0, 3), first_ms=1000)
        assert offload(cluster) == [0]
        cluster.elect(2)
        produce(cluster, 0, *numbered(3, 6), first_ms=1003)
        assert offload(cluster) == [2]
        node = cluster.brokers[2]
        log = node.replicas[0].log
        with node.machine.scheduler.pool(1, name="offsets") as pool, OffsetSearch(node.services, pool.submit) as search:

            def listed(timestamp: int) -> tuple[int | None, int]:
                found = search.list_offsets(partition_of(), timestamp).result()
                return (None, -1) if found is None else (found.leader_epoch, found.offset)

            assert {each: listed(each) for each in (-2, -4, -5, -1)} == {
                -2: (0, 0),
                -4: (1, 4),
                -5: (1, 3),
                -1: (1, 6),
            }
            times = {
                1006: (None, -1),
                1005: (1, 5),
                1004: (1, 4),
                999: (0, 0),
                1000: (0, 0),
                1001: (0, 1),
                1003: (1, 3),
            }
            assert {each: listed(each) for each in times} == times
            log.maybe_increment_log_start_offset(3, "DeleteRecords")
            assert (listed(-2), listed(-4), listed(1000)) == ((1, 3), (1, 4), (1, 3))


def test_transactions_with_tiered_store() -> None:
    """TransactionsWithTieredStoreTest: a reader of committed records is told of what was aborted in the tier, and sees
    nothing that is undecided.
    """
    with Cluster(config=ONE_BATCH) as cluster:
        cluster.elect(1)
        produce(cluster, 0, b"v0")
        for sequence in range(2):
            cluster.append_transactional(0, sequence)
        cluster.append_transactional(0, 0, producer=8)
        cluster.settle()
        log = cluster.replica(1).log
        assert (log.last_stable_offset, log.high_watermark) == (1, 4)
        assert cluster.brokers[1].fetch(0, 1, FetchIsolation.TXN_COMMITTED) == ([], ())
        assert offload(cluster) == [0], "nothing behind the last stable offset"
        cluster.abort(0)
        cluster.settle()
        assert offload(cluster) == [1, 2], "the other transaction is open"
        cluster.abort(0, producer=8)
        produce(cluster, 0, *numbered(6, 8))
        assert offload(cluster) == [3, 4, 5, 6]
        for broker in (1, 2):
            assert local_start(cluster, broker) == 7
            assert cluster.brokers[broker].fetch(0, 0, FetchIsolation.TXN_COMMITTED)[1] == ((7, 1), (8, 3))
            assert cluster.check_aborted(broker) == 2
