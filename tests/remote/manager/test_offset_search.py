"""ListOffsets over tier and log: every answer against the records that a consumer is given."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.scenarios.two_brokers import Cluster
from tests.support.index_stores import IndexStore
from tests.support.tier_entries import an_entry
from tests.support.tier_tasks import failing
from tests.support.tiered_brokers import CONFIG, Broker, partition_of
from tierlog.errors import CorruptDataError, PoolClosedError
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.segments.segment_view import TimestampAndOffset
from tierlog.records.builder import RecordBatchBuilder
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
)
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.offset_search import OffsetSearch
from tierlog.remote.manager.tiered_lineage import epochs_with_records, offsets_of_log
from tierlog.replication import ReplicationError
from tierlog.runtime.machine.scheduling import CancelledError

AS_KAFKA = RemoteLogManagerConfig(kafka_semantics=True)


@contextmanager
def search_of(broker: Broker, *, threads: int = 2) -> Iterator[OffsetSearch]:
    with (
        broker.machine.scheduler.pool(threads, name="readers") as pool,
        OffsetSearch(broker.services, pool.submit) as search,
    ):
        yield search


def found(search: OffsetSearch, timestamp: int) -> tuple[int, int, int | None] | None:
    """(timestamp, offset, epoch)."""
    answer = search.list_offsets(partition_of(), timestamp).result()
    return None if answer is None else tuple(answer)  # type: ignore[return-value]


def timed(cluster: Cluster, *timestamps: int, partition: int = 0, **producer: Any) -> int:
    """A batch of records of these times."""
    builder = RecordBatchBuilder(0, **producer)
    for timestamp in timestamps:
        builder.append(None, b"x", timestamp_ms=timestamp)
    return cluster.append(partition, data=bytearray(builder.build()))


def rows(cluster: Cluster, broker: int) -> list[tuple[int, int, int]]:
    """(timestamp, offset, epoch) of all that a consumer is given."""
    data = b"".join(cluster.served(broker))
    start = cluster.replica(broker).log.log_start_offset
    table = decode(data, columns=["timestamp", "offset", "leaderEpoch"], control_records=True, from_offset=start)
    return [
        (timestamp.value, offset.as_py(), epoch.as_py())
        for timestamp, offset, epoch in zip(
            *(table.column(name) for name in ("timestamp", "offset", "leaderEpoch")), strict=True
        )
    ]


def first_from(known: list[tuple[int, int, int]], timestamp: int) -> tuple[int, int, int] | None:
    return next((row for row in known if row[0] >= timestamp), None)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("third_party", [False, True])
def test_by_time_it_is_the_first_record(seed: int, third_party: bool) -> None:
    """Times that go back and forth, elections, both brokers; the log start rises meanwhile."""
    rng = random.Random(seed)
    with Cluster(seed, config=replace(CONFIG, local_retention_bytes=rng.choice((0, 400)))) as cluster:
        for _ in range(4):
            cluster.elect(rng.choice((1, 2)))
            for _ in range(rng.randrange(1, 6)):
                timed(cluster, *(rng.randrange(100) for _ in range(rng.randrange(1, 4))))
                if rng.random() < 0.5:
                    cluster.settle()
                    cluster.roll()
            cluster.settle()
        cluster.roll()
        timed(cluster, 50)
        cluster.settle()
        cluster.tier()
        cluster.retain()
        assert all(cluster.replica(each).log.local_log_start_offset > 0 for each in (1, 2))
        for start in (0, 2, cluster.replica(1).log.local_log_start_offset):
            for each in (1, 2):
                broker = cluster.brokers[each]
                broker.replicas[0].log.maybe_increment_log_start_offset(start, "records were deleted")
                if third_party:
                    broker.services.metadata = copied_metadata(broker)
                known = rows(cluster, each)
                with search_of(broker) as search:
                    for timestamp in range(0, 101, 3):
                        assert found(search, timestamp) == first_from(known, timestamp), (each, start, timestamp)
                broker.services.metadata = broker.metadata


def copied_metadata(broker: Broker) -> DictMetadataManager:
    """A third party's manager with the same segments."""
    manager = DictMetadataManager()
    manager.on_partition_leadership_changes(frozenset((partition_of(),)), frozenset())
    for each in broker.metadata.list_remote_log_segments(partition_of()):
        started = replace_state(each)
        manager.add_remote_log_segment_metadata(started).result()
        manager.update_remote_log_segment_metadata(
            RemoteLogSegmentMetadataUpdate(
                each.remote_log_segment_id,
                event_timestamp_ms=0,
                custom_metadata=None,
                state=each.state,
                broker_id=each.broker_id,
            )
        ).result()
    return manager


def replace_state(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    return replace(segment.plain(), state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)  # type: ignore[attr-defined]


def grown(cluster: Cluster, *segments: tuple[int, ...], partition: int = 0) -> None:
    """Segments of one batch each in the tier alone, and a last record of time 1000 here."""
    for timestamps in segments:
        timed(cluster, *timestamps, partition=partition)
        cluster.settle(partition)
        cluster.roll(partition)
    timed(cluster, 1000, partition=partition)
    cluster.settle(partition)
    cluster.tier(partition)
    cluster.retain(partition)


class TestBranches:
    """A segment whose tail was cut off everywhere: its front counts, its tail does not (script 3)."""

    def branched(self, cluster: Cluster) -> None:
        cluster.elect(1)
        timed(cluster, 10)
        cluster.settle()
        cluster.elect(1, in_sync=(1,))
        timed(cluster, 20)
        cluster.roll(brokers=(1,))
        timed(cluster, 30)
        assert [(each.start_offset, each.end_offset) for each in cluster.tier()] == [(0, 1)]
        cluster.roll(brokers=(2,))
        cluster.elect(2, in_sync=(2,))
        timed(cluster, 15)
        cluster.roll(brokers=(2,))
        timed(cluster, 40)
        cluster.settle()
        cluster.roll()
        timed(cluster, 50)
        cluster.settle()
        cluster.tier()
        cluster.retain()
        assert cluster.replica(2).log.local_log_start_offset >= 2

    @pytest.mark.parametrize("timestamp", range(0, 60, 5))
    def test_what_a_reader_is_given_is_found(self, timestamp: int) -> None:
        with Cluster() as cluster:
            self.branched(cluster)
            for each in (1, 2):
                known = rows(cluster, each)
                assert [row[0] for row in known] == [10, 15, 40, 50]
                with search_of(cluster.brokers[each]) as search:
                    assert found(search, timestamp) == first_from(known, timestamp)

    def test_kafka_passes_over_the_segment(self) -> None:
        """And answers a later record."""
        with Cluster(manager_config=AS_KAFKA) as cluster:
            self.branched(cluster)
            with search_of(cluster.brokers[2]) as search:
                assert found(search, 5) == (15, 1, 2)

    @pytest.mark.parametrize(
        ("segment", "log", "log_end", "expected"),
        [
            ((0, 1, {0: 0}), {0: 0, 1: 1}, 3, (0, 1)),  # script 3: u1
            ((0, 3, {0: 0}), {0: 0, 2: 5}, 7, (0, 4)),  # script 5: u1, u2, u3
            ((0, 3, {0: 0, 1: 2}), {0: 0, 2: 5}, 7, (0, 2)),
            ((4, 5, {0: 4, 2: 5}), {0: 0, 2: 5}, 7, (4, 6)),
            ((14, 150, {5: 14, 7: 15, 9: 100}), {7: 51, 9: 100}, 200, (51, 151)),  # its front has expired
            ((0, 9, {0: 0}), {0: 0}, 7, (0, 7)),
            ((5, 9, {4: 5}), {0: 0, 1: 3}, 20, (0, 0)),
            ((0, 2, {0: 0, 1: 0}), {1: 0}, 20, (0, 3)),
            ((0, 9, {0: 0, 1: 4}), {0: 0, 1: 10}, 12, (0, 4)),  # another branch that ends where the log's epoch begins
            ((0, 3, {1: 0}), {0: 0, 1: 4}, 6, (0, 0)),
        ],
    )
    def test_the_offsets_of_a_segment_that_are_the_logs(
        self, segment: tuple[int, int, dict[int, int]], log: dict[int, int], log_end: int, expected: tuple[int, int]
    ) -> None:
        epochs = epochs_with_records(log.items())
        assert offsets_of_log(an_entry(*segment), epochs, log_end_offset=log_end) == expected


@pytest.mark.parametrize(("config", "expected"), [(RemoteLogManagerConfig(), 2), (AS_KAFKA, 4)])
def test_a_segment_without_such_a_record(config: RemoteLogManagerConfig, expected: int) -> None:
    """Its newest record was deleted: the search goes on with the next one. Kafka's goes on here, behind the tier."""
    with Cluster(manager_config=config) as cluster:
        cluster.elect(1)
        grown(cluster, (90, 1), (80, 2))
        log = cluster.replica(1).log
        log.maybe_increment_log_start_offset(1, "records were deleted")
        with search_of(cluster.brokers[1]) as search:
            answer = found(search, 70)
            assert answer is not None
            assert answer[1] == expected


def test_a_manager_that_knows_times_is_not_asked_for_all_segments() -> None:
    """Else each search for a time that only the log has lists all of a partition's segments, and reads some."""
    with Cluster() as cluster:
        cluster.elect(1)
        grown(cluster, (80, 2))
        with pytest.MonkeyPatch.context() as patch, search_of(cluster.brokers[1]) as search:
            patch.setattr(cluster.brokers[1].metadata, "list_remote_log_segments", failing(AssertionError("all")))
            assert found(search, 900) == (1000, 2, 0)


def test_special_timestamps() -> None:
    """ListOffsets by -1 to -6, with epochs."""
    with Cluster() as cluster:
        cluster.elect(1)
        with search_of(cluster.brokers[1]) as search:
            assert found(search, -5) == (-1, -1, -1)
            assert found(search, 0) is None
            grown(cluster, (90, 1), (80, 2))
            cluster.elect(1)
            timed(cluster, 70)
            cluster.settle()
            expected = {
                -1: (-1, 6, 1),
                -2: (-1, 0, 0),
                -3: (1000, 4, 0),
                -4: (-1, 4, 0),
                -5: (-1, 3, 0),
                -6: (-1, 4, 0),
                0: (90, 0, 0),
            }
            assert {timestamp: found(search, timestamp) for timestamp in expected} == expected
        with pytest.raises(TypeError):
            search.list_offsets(partition_of(), "now")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="64"):
            search.list_offsets(partition_of(), 1 << 63)


def test_a_log_that_is_not_tiered_is_searched_here() -> None:
    with Cluster(config=replace(CONFIG, remote_storage_enable=False)) as cluster:
        cluster.elect(1)
        timed(cluster, 5, 7)
        cluster.topic.unavailable = True
        with search_of(cluster.brokers[1]) as search:
            assert found(search, 6) == (7, 1, 0)
            assert found(search, -5) == (-1, -1, -1)
        cluster.topic.unavailable = False


def test_segments_that_go_to_the_tier_alone_meanwhile_are_searched_there() -> None:
    """If this fails, a consumer begins behind records that it has asked for."""
    with Cluster(config=replace(CONFIG, local_retention_bytes=1 << 30)) as cluster:
        cluster.elect(1)
        grown(cluster, (10, 1), (80, 2), (85, 3))
        log = cluster.replica(1).log
        assert log.local_log_start_offset == 0
        search_here = log.fetch_offset_by_timestamp

        def later(timestamp: int) -> TimestampAndOffset | None:
            if log.local_log_start_offset == 0:
                log.update_config(replace(log.config, local_retention_bytes=0))
                log.delete_old_segments()
            return search_here(timestamp)

        log.fetch_offset_by_timestamp = later  # type: ignore[method-assign]
        with search_of(cluster.brokers[1]) as search:
            assert found(search, 70) == (80, 2, 0)
        assert log.local_log_start_offset == 6


def test_a_segment_that_expires_meanwhile_is_passed_over() -> None:
    """Its log start was published before: what is found lies behind it."""
    with Cluster() as cluster:
        cluster.elect(1)
        grown(cluster, (80, 2), (85, 3))
        log, store = cluster.replica(1).log, IndexStore(cluster.brokers[1])

        def expire(segment: RemoteLogSegmentMetadata) -> None:
            if segment.start_offset == 0:
                log.maybe_increment_log_start_offset(2, "retention")
                store.delete_log_segment_data(segment)

        store.before = expire
        with search_of(cluster.brokers[1]) as search:
            assert found(search, 70) == (85, 2, 0)


def test_a_segment_that_is_gone_and_has_not_expired_is_an_error() -> None:
    with Cluster() as cluster:
        cluster.elect(1)
        grown(cluster, (80, 2))
        store = IndexStore(cluster.brokers[1])
        store.before = store.delete_log_segment_data
        with search_of(cluster.brokers[1]) as search:
            error = search.list_offsets(partition_of(), 70).exception()
            assert isinstance(error, RemoteResourceNotFoundException)


@pytest.mark.parametrize(
    "damage",
    [lambda whole: b"", lambda whole: whole[:-1] + b"x", lambda whole: b"\xff" * len(whole), lambda whole: whole[:5]],
)
def test_damaged_indexes_make_a_search_slower_and_not_wrong(damage: Callable[[bytes], bytes]) -> None:
    with Cluster() as cluster:
        cluster.elect(1)
        for timestamp in (10, 20, 30, 40):
            timed(cluster, timestamp)
        grown(cluster, (80, 2))
        IndexStore(cluster.brokers[1]).damage = lambda _, whole: damage(whole)
        with search_of(cluster.brokers[1]) as search:
            assert found(search, 35) == (40, 3, 0)
            assert found(search, 70) == (80, 4, 0)


def test_a_segment_without_indexes_is_walked_over() -> None:
    """If this fails, a large segment whose indexes are damaged counts as damaged itself."""
    with Cluster() as cluster:
        cluster.elect(1)
        for number in range(90):
            timed(cluster, *[number] * 100)
        grown(cluster, (95, 2))
        assert max(len(parts[None]) for parts in cluster.store.segments.values()) > 1 << 16  # more than one window
        IndexStore(cluster.brokers[1]).damage = lambda _, whole: b""
        with search_of(cluster.brokers[1]) as search:
            assert found(search, 2) == (2, 200, 0)
            assert found(search, 89) == (89, 8900, 0)
            assert found(search, 90) == (95, 9000, 0)


def test_a_damaged_segment_is_an_error() -> None:
    with Cluster() as cluster:
        cluster.elect(1)
        grown(cluster, (80, 2))
        for parts in cluster.store.segments.values():
            whole = parts[None]
            parts[None] = whole[:-1] + bytes([whole[-1] ^ 1])
        with search_of(cluster.brokers[1]) as search:
            assert isinstance(search.list_offsets(partition_of(), 70).exception(), CorruptDataError)


@pytest.mark.parametrize("error", [RemoteStorageException("broken"), OSError("any")])
def test_what_a_manager_raises_is_the_answer(error: Exception) -> None:
    with Cluster() as cluster:
        cluster.elect(1)
        grown(cluster, (80, 2))
        cluster.brokers[1].storage.refuses = error  # type: ignore[assignment]
        with search_of(cluster.brokers[1]) as search:
            assert search.list_offsets(partition_of(), 70).exception() is error
            assert found(search, 900) == (1000, 2, 0), "others go on"


def test_one_partitions_error_is_its_own() -> None:
    """DelayedRemoteListOffsetsTest: a request has the answers of its other partitions, whichever ends how."""
    with Cluster(partitions=4) as cluster:
        for partition in range(4):
            cluster.elect(1, partition)
            grown(cluster, (80, 2), partition=partition)
        broker = cluster.brokers[1]
        store, clock = IndexStore(broker), cluster.machine.clock

        def change(segment: RemoteLogSegmentMetadata) -> None:
            if segment.topic_id_partition.partition == 1:
                raise RemoteStorageException("broken")
            if segment.topic_id_partition.partition == 2:
                clock.sleep(100)

        store.before = change
        term = cluster.replica(1, 2).term
        assert term is not None
        with search_of(broker, threads=4) as search:
            whole, broken, ended, there = (
                search.list_offsets(partition_of(each), 70, term=term.scope if each == 2 else None) for each in range(4)
            )
            none = search.list_offsets(partition_of(9), 70)
            clock.sleep(1)
            term.end()
            assert [None if each is None else each.offset for each in (whole.result(), there.result())] == [0, 0]
            assert isinstance(broken.exception(), RemoteStorageException)
            assert isinstance(none.exception(), ReplicationError)
            assert ended.cancelled()


class TestEnds:
    """A search whose time is up, that is cancelled, or that finds no thread."""

    def test_its_time_is_up(self) -> None:
        with Cluster() as cluster:
            cluster.elect(1)
            grown(cluster, (80, 2))
            store, clock = IndexStore(cluster.brokers[1]), cluster.machine.clock
            store.before = lambda _: clock.sleep(100)
            with search_of(cluster.brokers[1]) as search:
                for timeout, seconds in ((7000, 7), (None, 30)):
                    began = clock.monotonic_seconds()
                    error = search.list_offsets(partition_of(), 70, timeout_ms=timeout).exception()
                    assert isinstance(error, ReplicationError)
                    assert error.error is KafkaError.REQUEST_TIMED_OUT
                    assert clock.monotonic_seconds() - began == pytest.approx(seconds, abs=0.1)
                clock.sleep(1)
                assert len(search) == 0
            assert cluster.brokers[1].services.metrics.count("list_offsets_expired", "orders") == 2

    def test_it_waits_for_the_metadata_in_no_thread(self) -> None:
        with Cluster(partitions=2) as cluster:
            cluster.elect(1)
            grown(cluster, (80, 2))
            cluster.topic.unavailable = True
            cluster.elect(1, 1)
            with search_of(cluster.brokers[1], threads=1) as search:
                waiting = search.list_offsets(partition_of(1), 70)
                assert found(search, 70) == (80, 0, 0)
                assert not waiting.done()
                cluster.topic.unavailable = False
                assert waiting.result() is None

    def test_it_ends_with_the_term(self) -> None:
        with Cluster() as cluster:
            cluster.elect(1)
            grown(cluster, (80, 2))
            store, clock = IndexStore(cluster.brokers[1]), cluster.machine.clock
            store.before = lambda _: clock.sleep(100)
            replica = cluster.replica(1)
            assert replica.term is not None
            with search_of(cluster.brokers[1]) as search:
                waiting = search.list_offsets(partition_of(), 70, term=replica.term.scope)
                clock.sleep(1)
                replica.term.end()
                with pytest.raises(CancelledError):
                    waiting.result()
                later = search.list_offsets(partition_of(), 70)
            assert later.cancelled(), "so does it with a close"
            assert search.list_offsets(partition_of(), 70).cancelled()

    def test_a_full_queue_is_the_answer(self) -> None:
        with Cluster() as cluster:
            cluster.elect(1)
            pool = cluster.machine.scheduler.pool(1, name="closed")
            pool.close()
            with OffsetSearch(cluster.brokers[1].services, pool.submit) as search:
                assert isinstance(search.list_offsets(partition_of(), -1).exception(), PoolClosedError)

    def test_there_is_no_log(self) -> None:
        with Cluster() as cluster, search_of(cluster.brokers[1]) as search:
            error = search.list_offsets(partition_of(7), 70).exception()
            assert isinstance(error, ReplicationError)
            assert error.error is KafkaError.NOT_LEADER_OR_FOLLOWER
