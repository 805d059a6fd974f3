"""The RemoteLogManager as a broker calls it: roles, stops, configuration, health, close."""

from __future__ import annotations

import logging
import threading
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.support.forked import told_by_fork
from tests.support.manager_configs import BASE
from tests.support.tiered_log import LOGS, NONE, TIERED, TieredBroker, tiered_broker
from tierlog.errors import ConfigError
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    SegmentFileError,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.partition_stops import StopPartition
from tierlog.remote.manager.pending_reads import RemoteRead
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def copied(broker: TieredBroker, partition: TopicIdPartition) -> list[tuple[int, int]]:
    """Bounds of the segments that are finished."""
    return sorted(
        (each.start_offset, each.end_offset)
        for each in broker.metadata.list_remote_log_segments(partition)
        if each.state is FINISHED
    )


FILES = BASE | {
    "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
    "storage.root": "/store",
}


def led(broker: TieredBroker, *, segments: int = 3) -> TopicIdPartition:
    """A partition that is led, all of whose closed segments are copied."""
    partition = broker.partition()
    broker.produce(partition, segments)
    broker.manager.on_leadership_change(frozenset({partition}), NONE)
    broker.machine.clock.sleep(5)
    return partition


class TestRoles:
    """The tasks of leaders and followers."""

    def test_partitions_take_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two partitions and one thread: if this fails, the backlog of one keeps the other's segments local."""
        with tiered_broker(copier_thread_pool_size=1) as broker:
            partitions = [broker.partition(number) for number in range(2)]
            for each in partitions:
                broker.produce(each, 4)
            copy, order = broker.storage.copy_log_segment_data, list[int]()

            def noted(metadata: RemoteLogSegmentMetadata, files: LogSegmentData) -> object:
                order.append(metadata.topic_id_partition.partition)
                return copy(metadata, files)

            monkeypatch.setattr(broker.storage, "copy_log_segment_data", noted)
            broker.manager.on_leadership_change(frozenset(partitions), NONE)
            broker.machine.clock.sleep(10)
            assert order in ([0, 1] * 4, [1, 0] * 4)

    def test_a_leader_copies_and_a_follower_looks_up(self) -> None:
        """The whole way of a segment: to the tier, and away locally, by leader and follower."""
        with tiered_broker() as broker:
            partition = led(broker)
            assert copied(broker, partition) == [(0, 9), (10, 19), (20, 29)]
            log = broker.logs[partition]
            assert log.highest_offset_in_remote_storage == 29
            assert broker.manager.metrics.value("metadata_count", topic="orders") == 3
            broker.manager.on_leadership_change(NONE, frozenset({partition}))
            assert broker.manager.metrics.value("metadata_count") == 0  # the new leader counts them
            broker.produce(partition, 1)
            broker.machine.clock.sleep(5)
            assert len(copied(broker, partition)) == 3
            health = broker.manager.health()
            assert (health.leaders, health.followers, health.loading) == (0, 1, 0)
            broker.manager.on_leadership_change(frozenset({partition}), NONE)
            broker.machine.clock.sleep(5)
            assert len(copied(broker, partition)) >= 4

    def test_what_is_not_tiered_is_passed_over(self) -> None:
        """Kafka's own topics, compacted ones, and partitions whose log is not there."""
        with tiered_broker() as broker:
            plain = broker.partition(1)
            broker.alter(plain, remote_storage_enable=False)
            broker.manager.on_leadership_change(
                frozenset({plain, TopicIdPartition(Uuid(bytes(15) + b"\7"), "gone", 0)}), NONE
            )
            broker.machine.clock.sleep(2)
            assert broker.manager.health().leaders == 0
            with pytest.raises(RemoteResourceNotFoundException):
                broker.metadata.list_remote_log_segments(plain)

    def test_arguments(self) -> None:
        """An argument that is no partition is the caller's fault, at once."""
        with tiered_broker() as broker:
            for call in (
                lambda: broker.manager.on_leadership_change({"orders-0"}, NONE),  # type: ignore[arg-type]
                lambda: broker.manager.stop_partitions(["orders-0"]),  # type: ignore[list-item]
            ):
                with pytest.raises(TypeError):
                    call()


class TestSearches:
    """ListOffsets over tier and log."""

    def test_by_time_and_special_ones(self) -> None:
        """A consumer that begins at a time begins in the tier, though nothing of it is local any more."""
        with tiered_broker() as broker:
            partition = led(broker)
            log = broker.logs[partition]
            log.delete_old_segments()
            assert log.local_log_start_offset == 30
            found = broker.manager.list_offsets(partition, 0).result(60)
            assert found is not None
            assert found.offset == 0
            assert broker.manager.list_offsets(partition, 2**62).result(60) is None
            earliest_local = broker.manager.list_offsets(partition, -4).result(60)
            assert earliest_local is not None
            assert earliest_local.offset == 30
            with pytest.raises(TypeError):
                broker.manager.list_offsets("orders-0", 0)  # type: ignore[arg-type]


class SlowMetadata(DictMetadataManager):
    """Takes its time to hear of a role; like many a third party's, it loads nothing, so that it is always ready."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        self._machine.clock.sleep(2)
        super().on_partition_leadership_changes(leader_partitions, follower_partitions)

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        return True


def test_reads_right_behind_a_notice() -> None:
    """A broker that is elected gets fetches in the same moment: they wait for the metadata manager to hear of it."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        storage, metadata = MemoryStorageManager(machine=machine), SlowMetadata(machine)
        storage.configure({})
        broker = TieredBroker(
            machine, topic=MemoryMetadataTopic(3, machine=machine), storage=storage, metadata=metadata
        )
        partition = led(broker)
        broker.logs[partition].delete_old_segments()
        broker.manager.stop_partitions([StopPartition(partition, stop_metadata=True)]).result(60)
        broker.manager.on_leadership_change(frozenset({partition}), NONE)
        reading = broker.manager.read([RemoteRead(partition, 0, max_bytes=1 << 20)], max_wait_ms=10_000)
        searching = broker.manager.list_offsets(partition, 0)
        (result,) = reading.result(60)
        assert result.error is None
        assert result.data.first_offset == 0
        found = searching.result(60)
        assert found is not None
        assert found.offset == 0
        broker.close()


class TestStops:
    """Partitions that go."""

    def test_a_deleted_topic_leaves_nothing(self) -> None:
        """Its objects would be paid for for ever."""
        with tiered_broker() as broker:
            partition = led(broker)
            assert isinstance(broker.storage, MemoryStorageManager)
            assert len(broker.storage.segment_ids) == 3
            stop = StopPartition(partition, delete_local_log=True, delete_remote_log=True)
            assert broker.manager.stop_partitions([stop]).result(60) == {}
            assert broker.storage.segment_ids == frozenset()
            assert not broker.metadata.is_ready(partition)

    def test_a_store_that_refuses_is_told(self) -> None:
        """The caller hears what is left."""
        with tiered_broker() as broker:
            partition = led(broker)
            assert isinstance(broker.storage, MemoryStorageManager)
            broker.storage.refuses = RemoteStorageException("no permission")
            stop = StopPartition(partition, delete_local_log=True, delete_remote_log=True)
            errors = broker.manager.stop_partitions([stop]).result(60)
            assert list(errors) == [partition]
            broker.storage.refuses = None


class TestRemovals:
    """KIP-405's remover, behind the manager's two calls."""

    def test_a_deleted_partition(self) -> None:
        """It is marked, stopped, and removed by the leader of its metadata partition: this broker, one that stops."""
        with tiered_broker() as broker:
            partition = led(broker)
            assert isinstance(broker.storage, MemoryStorageManager)
            broker.manager.delete_partition(partition).result(60)
            broker.manager.stop_partitions([StopPartition(partition, delete_local_log=True)]).result(60)
            broker.machine.clock.sleep(2)
            assert len(broker.storage.segment_ids) == 3
            broker.manager.on_leadership_change(NONE, NONE, metadata_partitions={0, 1, 2})
            broker.machine.clock.sleep(10)
            assert broker.storage.segment_ids == frozenset()
            assert not broker.metadata.is_ready(partition)
            assert broker.metadata.pending_removals({0, 1, 2}) == ()


class TestConfigChanges:
    """Section 9 of the behaviours."""

    def test_copying_is_disabled_and_goes_on(self) -> None:
        """Disabled: nothing more is copied, the lag is none; enabled: it goes on where it was."""
        with tiered_broker() as broker:
            partition = led(broker, segments=1)
            broker.alter(partition, remote_log_copy_disable=True)
            assert broker.manager.on_config_change(frozenset({partition})).result(60) == {}
            broker.produce(partition, 2)
            broker.machine.clock.sleep(5)
            assert len(copied(broker, partition)) == 1
            assert broker.manager.metrics.value("copy_lag_segments") == 0
            broker.alter(partition, remote_log_copy_disable=False)
            assert broker.manager.metrics.value("copy_lag_segments") > 0
            broker.manager.on_config_change(frozenset({partition}))
            broker.machine.clock.sleep(5)
            log = broker.logs[partition]
            assert log.highest_offset_in_remote_storage == log.active_segment.base_offset - 1
            assert broker.manager.metrics.value("copy_lag_segments") == 0

    def test_of_partitions_that_are_not_here(self) -> None:
        """A broker hears of all topics: of a log that it neither leads nor follows, of one that it does not have."""
        with tiered_broker() as broker:
            partition = broker.partition()
            broker.alter(partition, remote_storage_enable=False)
            others = TopicIdPartition(Uuid(bytes(15) + b"\7"), "others", 0)
            assert broker.manager.on_config_change(frozenset({partition, others})).result(60) == {}

    @pytest.mark.parametrize("is_leader", [True, False])
    def test_a_topic_leaves_the_tier(self, is_leader: bool) -> None:
        """The leader deletes what is there, and its log begins where it is local; a follower deletes nothing, and its
        log begins there too: it may lead next.
        """
        with tiered_broker() as broker:
            partition = led(broker)
            if not is_leader:
                broker.manager.on_leadership_change(NONE, frozenset({partition}))
                broker.machine.clock.sleep(3)
            log = broker.logs[partition]
            log.delete_old_segments()
            assert log.local_log_start_offset == 30
            assert log.log_start_offset == 0
            broker.alter(partition, remote_storage_enable=False, remote_log_delete_on_disable=True)
            assert broker.manager.on_config_change(frozenset({partition})).result(60) == {}
            assert isinstance(broker.storage, MemoryStorageManager)
            assert len(broker.storage.segment_ids) == (0 if is_leader else 3)
            assert log.log_start_offset == 30
            assert not broker.metadata.is_ready(partition)
            assert broker.manager.health().leaders == 0

    def test_keys_are_changed_at_run_time(self) -> None:
        """Numbers of threads, by at most the double; a key that is none changes nothing."""
        with tiered_broker() as broker:
            broker.manager.update_config(
                {
                    "remote.log.manager.copier.thread.pool.size": "20",
                    "remote.log.manager.fetch.max.bytes.per.second": "1",
                    "remote.fetch.max.wait.ms": "123",
                }
            )
            assert broker.manager.config.fetch_max_wait_ms == 123
            assert broker.manager.fetch_throttle_time_ms() == 0
            assert broker.manager.config.copier_thread_pool_size == 20
            for wrong in (
                {"remote.log.manager.copier.thread.pool.size": "50"},
                {"remote.log.manager.task.interval.ms": "1"},
            ):
                with pytest.raises(ConfigError):
                    broker.manager.update_config(wrong)
            assert broker.manager.config.copier_thread_pool_size == 20

    def test_the_index_cache_shrinks_and_grows(self) -> None:
        """RemoteIndexCacheTest, testClearCacheAndIndexFilesWhenResizeCache, #testCorrectnessForCacheAndIndexFiles…: the
        size counts at once, and no index is wrong by it.
        """
        name = "remote.log.index.file.cache.total.size.bytes"
        machine, scheduler = ManualScheduler.machine(1)
        with scheduler:
            storage = TieredStorageManager(machine=machine)
            machine.files.make_directories("/store")
            storage.configure(FILES | {"fetch.indexes.cache.size": 1 << 20})
            broker = TieredBroker(machine, topic=MemoryMetadataTopic(3, machine=machine), storage=storage)
            partition = led(broker, segments=4)

            def fetched() -> list[int]:
                """The sizes of all indexes, by way of the cache."""
                segments = broker.metadata.list_remote_log_segments(partition)
                kinds = (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.LEADER_EPOCH)
                return [len(storage.fetch_index(each, kind).read()) for each in segments for kind in kinds]

            def cached() -> float:
                return storage.metrics.value("cache_bytes", cache="indexes")

            sizes = fetched()
            whole = cached()
            assert whole >= sum(sizes) > 0
            broker.manager.update_config({name: str(int(whole / 2))})
            assert 0 < cached() <= whole / 2
            assert fetched() == sizes
            assert cached() <= whole / 2
            broker.manager.update_config({name: str(1 << 20)})
            assert fetched() == sizes
            assert cached() == whole
            for wrong in ("0", "-1", "many"):
                with pytest.raises(ConfigError):
                    broker.manager.update_config({name: wrong})
            assert cached() == whole
            broker.close()

    def test_an_index_cache_that_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A third party's manager has none, or raises: the other keys count all the same."""
        name, threads = "remote.log.index.file.cache.total.size.bytes", "remote.log.manager.copier.thread.pool.size"
        with tiered_broker() as broker:
            broker.manager.update_config({name: "7", threads: "11"})
            assert broker.manager.config.copier_thread_pool_size == 11

            def fail(_: int) -> bool:
                raise RemoteStorageException("broken")

            monkeypatch.setattr(broker.storage, "resize_index_cache", fail)
            broker.manager.update_config({name: "8", threads: "12"})
            assert broker.manager._copying.workers == 12


def test_figures_by_partition() -> None:
    """An operator watches how full a topic's retention is, local and in all, before records are lost."""
    config = RemoteLogManagerConfig(task_interval_ms=1000, metrics_recording_level="DEBUG")
    with tiered_broker(config=config) as broker:
        partition = led(broker)
        log = broker.logs[partition]
        log.delete_old_segments()
        broker.alter(partition, retention_bytes=10_000, local_retention_bytes=1000)
        broker.machine.clock.sleep(3)
        value = partial(broker.manager.metrics.value, topic="orders", partition="0")
        tiered = broker.manager.metrics.value("log_size_bytes")
        assert tiered > 0
        # What is left on the disk is copied, and counts once.
        assert (log.size() > 0, log.only_local_log_segments_size()) == (True, 0)
        assert value("retention_size_ratio") == pytest.approx(tiered / 10_000)
        assert value("local_retention_size_ratio") == log.size() / 1000
        assert (value("log_start_offset"), value("log_end_offset")) == (0, 31)
        assert (value("log_segments"), value("local_size_bytes")) == (len(log.log_segments()), log.size())


class TestFailures:
    """Stores that fail, and what is seen of it."""

    def test_the_oldest_that_is_not_copied(self) -> None:
        """An operator sees which partition lags, for how long, and why; and the lag goes when the store is back."""
        with tiered_broker() as broker:
            partition = broker.partition()
            assert isinstance(broker.storage, MemoryStorageManager)
            broker.storage.refuses = RemoteStorageException("the bucket is gone")
            broker.produce(partition, 3)
            broker.manager.on_leadership_change(frozenset({partition}), NONE)
            broker.machine.clock.sleep(300)
            health = broker.manager.health()
            assert health.uncopied is not None
            assert health.uncopied.topic_id_partition == partition
            assert health.uncopied.segments == 3
            assert health.uncopied.age_seconds == pytest.approx(300, abs=2)
            assert "the bucket is gone" in health.uncopied.reason
            assert broker.manager.metrics.value("copy_lag_segments") == 3
            assert broker.manager.metrics.value("copy_lag_bytes", topic="orders") == health.uncopied.bytes
            assert broker.manager.metrics.value("uncopied_age_seconds") == pytest.approx(300, abs=2)
            assert broker.manager.metrics.value("copy_errors") > 0
            broker.storage.refuses = None
            broker.machine.clock.sleep(60)
            assert broker.manager.health().uncopied is None
            assert broker.manager.metrics.value("copy_lag_bytes") == 0
            assert broker.manager.metrics.value("copy_bytes", topic="orders") > 0

    def test_a_partition_that_copies_no_more(self) -> None:
        """An operator is told that he has to act, until he has."""
        with tiered_broker() as broker:
            partition, value = led(broker), broker.manager.metrics.value
            assert isinstance(broker.storage, MemoryStorageManager)
            assert (value("leader_partitions"), value("follower_partitions")) == (1, 0)
            assert value("copy_quota_bytes_per_second") > 0
            assert value("fetch_quota_bytes_per_second") == value("copying_stopped_partitions") == 0
            broker.storage.refuses = SegmentFileError("a local file is damaged")
            broker.produce(partition, 1)
            broker.machine.clock.sleep(60)
            assert value("copying_stopped_partitions") == 1
            assert list(broker.manager.health().copying_stopped) == [partition]
            broker.storage.refuses = None
            broker.manager.on_leadership_change(frozenset({partition}), NONE)
            broker.machine.clock.sleep(60)
            assert value("copying_stopped_partitions") == 0
            broker.manager.on_leadership_change(NONE, frozenset({partition}))
            assert (value("leader_partitions"), value("follower_partitions")) == (0, 1)

    def test_a_topic_that_delays_its_copies(self) -> None:
        """A lag that is wanted is no fault, and an operator must not look for one."""
        with tiered_broker() as broker:
            partition = broker.partition(config=replace(TIERED, remote_copy_lag_ms=3_600_000, local_retention_bytes=-2))
            broker.produce(partition, 1)
            broker.manager.on_leadership_change(frozenset({partition}), NONE)
            broker.machine.clock.sleep(10)
            uncopied = broker.manager.health().uncopied
            assert uncopied is not None
            assert uncopied.failure is None
            assert "delays copies" in uncopied.reason

    def test_a_clock_that_jumps_is_seen(self) -> None:
        """Nothing expires by time until an operator has looked."""
        with tiered_broker() as broker:
            led(broker)
            assert not broker.manager.health().clock_is_off
            broker.machine.clock._start_ms += 10**9  # type: ignore[attr-defined]
            broker.machine.clock.sleep(2)
            assert broker.manager.health().clock_is_off


class OrderedStorage(MemoryStorageManager):
    """Notes its end, and hangs in it."""

    ends: list[str]
    hangs: threading.Event | None = None

    def close(self) -> None:
        self.ends.append("storage")
        if self.hangs is not None:
            self.hangs.wait(60)
        super().close()


class OrderedMetadata(DictMetadataManager):
    """Notes its end, and fails in it."""

    ends: list[str]

    def close(self) -> None:
        self.ends.append("metadata")
        super().close()
        raise ValueError("of a third party's")


def made(**given: object) -> tuple[RemoteLogManager, OrderedStorage, OrderedMetadata]:
    storage, metadata = OrderedStorage(), OrderedMetadata()
    storage.ends = metadata.ends = []
    storage.configure({})
    manager = RemoteLogManager(
        RemoteLogManagerConfig(),
        broker_id=1,
        storage=storage,
        metadata=metadata,
        find_log=lambda _: None,
        **given,  # type: ignore[arg-type]
    )
    return manager, storage, metadata


class TestClose:
    """The end of a manager."""

    def test_the_order(self, caplog: pytest.LogCaptureFixture) -> None:
        """A storage manager that is closed under a metadata manager that still stores loses that it stored."""
        manager, storage, _ = made()
        with caplog.at_level(logging.WARNING):
            manager.close()
            manager.close()
        assert storage.ends == ["metadata", "storage"]
        assert "of a third party's" in caplog.text
        for call in (
            lambda: manager.on_leadership_change(NONE, NONE),
            lambda: manager.stop_partitions([]),
            lambda: manager.on_config_change(NONE),
            lambda: manager.update_config({}),
        ):
            with pytest.raises(RemoteStorageException, match="closed"):
                call()
        assert manager.health().leaders == 0

    def test_a_manager_that_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The broker's end waits for no store."""
        monkeypatch.setattr("tierlog.remote.manager.remote_log_manager._CLOSE_SECONDS", 0.1)
        manager, storage, _ = made(machine=Machine())
        storage.hangs = threading.Event()
        manager.close()
        assert storage.ends == ["metadata", "storage"]
        storage.hangs.set()

    def test_a_copy_under_way_ends_before_the_managers(self) -> None:
        """A write of it is refused or complete, never half of both."""
        with tiered_broker(3) as broker:
            led(broker, segments=2)
            broker.produce(next(iter(broker.logs)), 2)
            broker.machine.clock.sleep(0.7)
            broker.manager.close()
            assert broker.manager.health().long_runs == ()

    def test_a_fork(self) -> None:
        """Its threads stayed in the parent: a child that used it would wait for ever, or close the parent's."""
        manager, storage, _ = made()

        told = told_by_fork(manager.close, lambda: manager.on_leadership_change(NONE, NONE), lambda: storage.ends)
        assert told[0] == "None"
        assert told[1].startswith("RemoteStorageException: the remote log manager was opened before")
        assert told[2] == "[]"
        manager.close()
        assert storage.ends == ["metadata", "storage"]


def test_open_closes_what_it_opened() -> None:
    """``open`` is for a broker's file; what is in no file is an error before anything begins."""
    with pytest.raises(ConfigError, match="no tiered storage"):
        RemoteLogManager.open({"log.dirs": LOGS}, broker_id=1, cluster_id="c", find_log=lambda _: None)
    with pytest.raises(ConfigError, match="unknown key"):
        RemoteLogManager.open(
            {"remote.log.manager.tasks.interval.ms": "1"}, broker_id=1, cluster_id="c", find_log=lambda _: None
        )
    assert TIERED.remote_storage_enable
