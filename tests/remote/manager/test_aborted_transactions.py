"""The aborted transactions that committed reads of the tier list: over later segments, and into the local log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.contract.metadata_events import update
from tests.scenarios.two_brokers import Cluster
from tests.support.living_logs import batch_of, ended
from tests.support.tiered_brokers import CONFIG, partition_of
from tests.support.tiered_log import MIB, TieredBroker, tiered_broker
from tierlog.errors import CorruptIndexError
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.pending_reads import RemoteRead, RemoteReadResult

COMMITTED = FetchIsolation.TXN_COMMITTED


def committed(tier: TieredBroker, partition: TopicIdPartition, offset: int, max_bytes: int = MIB) -> RemoteReadResult:
    (found,) = tier.fetch(RemoteRead(partition, offset, max_bytes, COMMITTED))
    assert found.error is None, found
    return found


def begun(log: UnifiedLog, producer: int, sequence: int = 0) -> int:
    """A batch of a producer's transaction; its offset."""
    data = batch_of(b"t" * 50, producer_id=producer, base_sequence=sequence, transactional=True)
    return log.append_as_leader(data, leader_epoch=0).first_offset


def plain(log: UnifiedLog, batches: int = 1) -> None:
    for _ in range(batches):
        log.append_as_leader(batch_of(b"p" * 50), leader_epoch=0)


@pytest.mark.parametrize("as_kafka", [False, True])
def test_the_marker_is_two_segments_behind(as_kafka: bool) -> None:
    """If this fails, read_committed consumers get records of a transaction that was aborted (the planted fault: the
    list ends with the segment).
    """
    with tiered_broker(kafka_semantics=as_kafka) as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        plain(log, 2)
        first = begun(log, 7)
        log.roll()
        plain(log, 3)
        log.roll()
        plain(log)
        marker = ended(log, 7, commits=False)
        log.roll()
        plain(log)
        tier.lead(partition)
        tier.drop_local(log)
        segments = [tier.metadata.remote_log_segment_metadata(partition, 0, at) for at in (0, 3, 6)]
        assert [segment is not None and segment.txn_idx_empty for segment in segments] == [True, True, False]

        found = committed(tier, partition, 0, 200)
        assert (found.data.last_offset < first, found.data.aborted_transactions) == (True, ())
        for offset in (first, 0):
            found = committed(tier, partition, offset)
            assert found.data.aborted_transactions == ((7, first),)
        assert {each for each in tier.store.indexes if each[1] is IndexType.TRANSACTION} == {(6, IndexType.TRANSACTION)}
        assert committed(tier, partition, marker).data.aborted_transactions == ((7, first),)


def test_what_is_there_in_time_is_answered() -> None:
    """If this fails, a read_committed consumer whose fetches reach over more segments than are read within
    ``remote.fetch.max.wait.ms`` gets nothing, for ever (simulation, seed 10162).
    """
    with tiered_broker() as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        first = begun(log, 7)
        plain(log)
        log.roll()
        ended(log, 7, commits=False)
        log.roll()
        plain(log)
        tier.lead(partition)
        tier.drop_local(log)
        tier.store.hook = lambda: 3600 if len(tier.store.fetched) > 1 else 0
        data = committed(tier, partition, 0).data
        assert (data.last_offset, data.aborted_transactions) == (first + 1, ((7, first),))


def test_the_segment_of_the_marker_goes_meanwhile() -> None:
    """If this fails, a read_committed consumer of a follower whose log expires gets records of a transaction that was
    aborted (simulation, seed 4000).
    """
    with tiered_broker() as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        first = begun(log, 7)
        log.roll()
        ended(log, 7, commits=False)
        log.roll()
        plain(log)
        tier.lead(partition)
        tier.drop_local(log)
        metadata, search = tier.metadata, tier.metadata.next_segment_with_txn_index

        def expiring(*args: Any) -> RemoteLogSegmentMetadata | None:
            for each in list(metadata.list_remote_log_segments(partition)):
                update(metadata, each, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
            return search(*args)

        metadata.next_segment_with_txn_index = expiring  # type: ignore[method-assign]
        (found,) = tier.fetch(RemoteRead(partition, first, MIB, COMMITTED))
        assert (found.error, found.data.size_bytes) == (KafkaError.OFFSET_OUT_OF_RANGE, 0)


def test_a_log_that_starts_within_a_batch() -> None:
    """If this fails, a read_committed consumer never gets the first records behind a DeleteRecords."""
    with tiered_broker() as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        log.append_as_leader(batch_of(b"a", b"b", b"c"), leader_epoch=0)
        plain(log)
        log.roll()
        plain(log)
        tier.lead(partition)
        tier.drop_local(log)
        log.maybe_increment_log_start_offset(2, "records were deleted")
        data = committed(tier, partition, 2).data
        assert (data.first_offset, data.last_offset, data.aborted_transactions) == (0, 3, ())


def test_the_marker_is_in_the_local_log() -> None:
    """If this fails, read_committed consumers get records of a transaction that was aborted shortly ago."""
    with tiered_broker() as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        first = begun(log, 7)
        log.roll()
        begun(log, 8)
        ended(log, 8, commits=False)
        plain(log)
        log.roll()
        ended(log, 7, commits=False)
        tier.lead(partition)
        tier.drop_local(log)
        assert log.local_log_start_offset == 4
        search, asked = tier.metadata.next_segment_with_txn_index, []

        def noted(of: TopicIdPartition, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
            asked.append(offset)
            return search(of, epoch, offset)

        tier.metadata.next_segment_with_txn_index = noted  # type: ignore[method-assign]
        assert committed(tier, partition, 0).data.aborted_transactions == ((7, first), (8, 1))
        assert max(asked) < 4, "the metadata manager is not asked for what is here"


def test_uncommitted_reads_list_nothing() -> None:
    """If this fails, every read pays for transactions that its consumer does not ask for."""
    with tiered_broker() as tier:
        found = tier.one(tier.consumed(), 0)
        assert found.data.aborted_transactions is None
        assert all(kind is not IndexType.TRANSACTION for _, kind in tier.store.indexes)


def test_a_damaged_index_is_an_error_and_a_missing_one_is_none() -> None:
    """If this fails, aborted records are returned without a word; or a topic of an older broker cannot be read."""
    with tiered_broker() as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        begun(log, 7)
        ended(log, 7, commits=False)
        log.roll()
        plain(log)
        tier.lead(partition)
        tier.drop_local(log)
        (parts,) = tier.store.segments.values()
        parts[IndexType.TRANSACTION] = b"\xff" * 34
        (found,) = tier.fetch(RemoteRead(partition, 0, MIB, COMMITTED))
        assert found.error is KafkaError.CORRUPT_MESSAGE
        assert isinstance(found.cause, CorruptIndexError)
        del parts[IndexType.TRANSACTION]
        assert committed(tier, partition, 0).data.aborted_transactions == ()


@pytest.mark.parametrize("seed", range(6))
def test_every_read_lists_what_touches_it(seed: int) -> None:
    """If this fails, some interleaving of transactions and segments shows aborted records, or hides none but lists
    twice.
    """
    chance = random.Random(seed)
    with tiered_broker(seed) as tier:
        partition = tier.partition()
        log = tier.logs[partition]
        open_since: dict[int, int] = {}
        sequences: dict[int, int] = {}
        aborted: list[tuple[int, int, int]] = []
        for _ in range(120):
            producer = chance.randrange(5)
            step = chance.random()
            if step < 0.5:
                at = begun(log, producer, sequences.get(producer, 0))
                sequences[producer] = sequences.get(producer, 0) + 1
                open_since.setdefault(producer, at)
            elif step < 0.8 and producer in open_since:
                commits = chance.random() < 0.4
                marker, first = ended(log, producer, commits=commits), open_since.pop(producer)
                if not commits:
                    aborted.append((producer, first, marker))
            elif step < 0.9:
                plain(log)
            elif log.active_segment.size_bytes:
                log.roll()
        for producer, first in open_since.items():
            aborted.append((producer, first, ended(log, producer, commits=False)))
        plain(log)
        copied_only = chance.random() < 0.5
        log.roll()
        plain(log)
        tier.lead(partition)
        if copied_only:
            tier.drop_local(log)
        else:  # half of it is here too
            kept = sum(each.size_bytes for each in log.log_segments(log.log_end_offset // 2))
            tier.alter(partition, local_retention_bytes=kept)
            log.delete_old_segments()
        for offset in range(log.local_log_start_offset):
            for max_bytes in (1, 700, MIB):
                data = committed(tier, partition, offset, max_bytes).data
                touching = {
                    (producer, first)
                    for producer, first, marker in aborted
                    if marker >= data.first_offset and first <= data.last_offset
                }
                listed = data.aborted_transactions
                assert listed == tuple(sorted(touching, key=lambda each: (each[1], each[0]))), (offset, max_bytes)


@pytest.mark.parametrize("as_kafka", [False, True])
def test_a_marker_of_an_abandoned_branch(as_kafka: bool) -> None:
    """If this fails, consumers drop committed records: the branch in which they were aborted was given up. Kafka lists
    them, and so drops the records.
    """
    config = RemoteLogManagerConfig(kafka_semantics=as_kafka)
    with Cluster(config=CONFIG, manager_config=config) as cluster:
        cluster.elect(1, in_sync=(1,))
        cluster.append(0, b"m0")
        first = cluster.append_transactional(0, 0)
        cluster.settle()

        def end(kind: ControlRecordType) -> int:
            data = build_end_transaction_marker(
                0, kind, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=cluster.now_ms
            )
            return cluster.append(0, data=bytearray(data), origin=AppendOrigin.COORDINATOR, transaction_version=1)

        assert end(ControlRecordType.ABORT) == first + 1
        cluster.roll(brokers=[1])
        cluster.append(0, b"dead")
        assert len(cluster.tier()) == 1
        cluster.brokers[1].stop()
        cluster.written[0].lose(first + 1)

        cluster.roll(brokers=[2])
        cluster.elect(2, in_sync=(2,))
        assert end(ControlRecordType.COMMIT) == first + 1
        cluster.roll(brokers=[2])
        cluster.append(0, b"last")
        cluster.brokers[2].wait_ready(0)
        assert [each.start_offset for each in cluster.tier()] == [first + 1]
        log = cluster.replica(2).log
        log.delete_old_segments()
        assert log.local_log_start_offset == first + 2
        asked = RemoteRead(partition_of(0), 0, MIB, COMMITTED)
        (found,) = cluster.brokers[2].reads.read([asked]).result()
        assert found.error is None
        assert found.data.aborted_transactions == (((7, first),) if as_kafka else ())
