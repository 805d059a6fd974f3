"""The copy task: which segments, under which ids, and what remains when a step fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.living_logs import batch_of
from tests.support.managed_broker import ManagedBroker, managed_broker
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.remote.api import (
    CustomMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteStorageException,
    RetriableRemoteStorageException,
    SegmentFileError,
    TopicIdPartition,
)
from tierlog.remote.manager.byte_quota import ByteQuota
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.segment_copies import SegmentCopies
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.testing.memory_storage_manager import MemoryStorageManager

STATE = RemoteLogSegmentState
FINISHED, STARTED = STATE.COPY_SEGMENT_FINISHED, STATE.COPY_SEGMENT_STARTED
INTERVAL = 1.0


class Copying:
    """One partition of a broker whose tasks the test runs itself."""

    def __init__(self, broker: ManagedBroker) -> None:
        self.broker = broker
        self.services = broker.manager._services
        self.partition = broker.partition()
        self.log = broker.logs[self.partition]
        broker.metadata.on_partition_leadership_changes(frozenset({self.partition}), frozenset())
        ready = broker.metadata.when_ready(self.partition)
        assert ready is not None
        ready.result(10)
        self.quota = ByteQuota(broker.machine, 2**62, 11, 1)
        self.copies = SegmentCopies(self.services, self.quota)
        self.begin_term()

    def begin_term(self) -> None:
        self.term = TieredPartition(self.partition, Role.LEADER, self.broker.machine.scheduler)

    def run(self, count: int = 1) -> list[float | None]:
        return [self.copies.run(self.term) for _ in range(count)]

    def segments(self, state: RemoteLogSegmentState = FINISHED) -> list[tuple[int, int]]:
        found = self.broker.metadata.list_remote_log_segments(self.partition)
        return sorted((each.start_offset, each.end_offset) for each in found if each.state is state)

    def ids(self) -> set[RemoteLogSegmentId]:
        return {each.remote_log_segment_id for each in self.broker.metadata.list_remote_log_segments(self.partition)}

    @property
    def stored(self) -> frozenset[RemoteLogSegmentId]:
        assert isinstance(self.broker.storage, MemoryStorageManager)
        return self.broker.storage.segment_ids

    def count(self, name: str) -> float:
        return self.services.metrics.value(name)

    def store(self, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
        """Have ``call(copy, metadata, data)`` stand for copies of the storage manager."""
        copy = self.broker.storage.copy_log_segment_data
        monkeypatch.setattr(
            self.broker.storage, "copy_log_segment_data", lambda metadata, data: call(copy, metadata, data)
        )


@pytest.fixture
def copying() -> Iterator[Copying]:
    with managed_broker() as broker:
        yield Copying(broker)


class TestWhich:
    """Candidates: Kafka's testCandidateLogSegments…, testFindHighestRemoteOffset…"""

    def test_one_a_run_and_never_the_active_one(self, copying: Copying) -> None:
        """A partition with a thousand segments must not hold a thread for an hour."""
        copying.broker.produce(copying.partition, 3)
        assert copying.run(4) == [0.0, 0.0, 0.0, INTERVAL]
        assert copying.segments() == [(0, 9), (10, 19), (20, 29)]
        assert copying.log.highest_offset_in_remote_storage == 29
        assert copying.term.copied == (29, 0)
        assert copying.count("copy_requests") == 3
        assert copying.count("copy_bytes") == sum(
            each.segment_size_in_bytes for each in copying.broker.metadata.list_remote_log_segments(copying.partition)
        )

    def test_an_open_transaction_holds_its_segment_back(self, copying: Copying) -> None:
        """A copy of records whose transaction may still abort has an index that lacks it."""
        copying.broker.produce(copying.partition, 1)
        log = copying.log
        log.append_as_leader(
            batch_of(b"open", transactional=True, producer_id=7, base_sequence=0, timestamp_ms=1), leader_epoch=0
        )
        log.roll()
        copying.broker.produce(copying.partition, 1)
        assert copying.run(3) == [0.0, INTERVAL, INTERVAL]
        assert copying.segments() == [(0, 9)]

    def test_epochs_are_those_of_the_segment(self, copying: Copying) -> None:
        """A lookup by epoch finds a segment of another one else, or none."""
        log = copying.log
        log.append_as_leader(batch_of(*[b"a"] * 4), leader_epoch=0)
        log.assign_epoch_start_offset(3, 4)
        log.append_as_leader(batch_of(*[b"b"] * 4), leader_epoch=3)
        log.roll()
        log.append_as_leader(batch_of(*[b"c"] * 4), leader_epoch=3)
        log.roll()
        copying.run(3)
        found = {
            each.start_offset: dict(each.segment_leader_epochs)
            for each in copying.broker.metadata.list_remote_log_segments(copying.partition)
        }
        assert found == {0: {0: 0, 3: 4}, 8: {3: 8}}

    def test_a_cut_is_copied_again(self, copying: Copying) -> None:
        """What was copied of a branch that is gone is not what this log has there."""
        copying.broker.produce(copying.partition, 2)
        copying.run(3)
        copying.term.end()
        copying.log.truncate_to(15)
        copying.log.assign_epoch_start_offset(1, 15)
        for _ in range(2):
            copying.log.append_as_leader(batch_of(*[b"new"] * 5), leader_epoch=1)
            copying.log.roll()
        copying.begin_term()
        assert copying.run(3) == [0.0, 0.0, INTERVAL]
        assert copying.segments() == [(0, 9), (10, 19), (10, 19), (20, 24)]
        found = copying.broker.metadata.remote_log_segment_metadata(copying.partition, 1, 15)
        assert found is not None
        assert dict(found.segment_leader_epochs) == {0: 10, 1: 15}

    def test_a_log_that_moved_is_looked_at_anew(self, copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
        """The log on the other disk has to be told what is copied, or it keeps everything."""
        copying.broker.produce(copying.partition, 1)
        copying.run(2)
        copying.term.parent_dir = "/elsewhere"
        copying.term.finds_log_start = False
        copying.run()
        assert copying.term.parent_dir == copying.log.parent_dir
        assert not copying.term.finds_log_start

    def test_what_is_not_copied(self, copying: Copying) -> None:
        """Tasks go on, and do nothing: disabled copying, a log that is gone."""
        copying.broker.produce(copying.partition, 1)
        copying.broker.alter(copying.partition, remote_log_copy_disable=True)
        assert copying.run() == [INTERVAL]
        copying.broker.alter(copying.partition, remote_log_copy_disable=False)
        del copying.broker.logs[copying.partition]
        assert copying.run() == [INTERVAL]
        copying.term.end()
        assert copying.run() == [None]
        assert copying.segments() == []


class TestFailures:
    """Section 2 of the behaviours: what remains of each failed step."""

    def test_a_store_that_is_away(self, copying: Copying) -> None:
        """No error is counted, a new id each time, and pauses that grow to half a minute."""
        copying.broker.produce(copying.partition, 1)
        storage = copying.broker.storage
        assert isinstance(storage, MemoryStorageManager)
        storage.unavailable = True
        pauses = copying.run(10)
        assert all(pause is not None for pause in pauses)
        assert pauses[0] == pytest.approx(0.5, rel=0.21)
        assert pauses[-1] == pytest.approx(30, rel=0.21)
        assert copying.count("copy_errors") == 0
        assert len(copying.ids()) == 10
        assert isinstance(copying.term.failure, RetriableRemoteStorageException)
        storage.unavailable = False
        assert copying.run(2) == [0.0, INTERVAL]
        assert copying.segments() == [(0, 9)]
        assert len(copying.segments(STARTED)) == 10
        assert copying.term.failure is None

    def test_a_store_that_refuses(self, copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was begun is removed at once, the error counted, and it is tried again."""
        copying.broker.produce(copying.partition, 1)
        broken = [True]

        def store(copy: Callable[..., Any], metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Any:
            custom = copy(metadata, data)
            if broken[0]:
                raise ValueError("of a third party's")
            return custom

        copying.store(monkeypatch, store)
        copying.run(2)
        assert copying.count("copy_errors") == 2
        assert copying.ids() == set()
        assert copying.stored == frozenset()
        broken[0] = False
        copying.run()
        assert copying.segments() == [(0, 9)]

    @pytest.mark.parametrize("retriable", [True, False])
    def test_a_damaged_segment(self, copying: Copying, monkeypatch: pytest.MonkeyPatch, retriable: bool) -> None:
        """It stops the partition's copying, and nothing is deleted locally; too many open files do not."""
        copying.broker.produce(copying.partition, 2)

        def store(_copy: Callable[..., Any], _metadata: RemoteLogSegmentMetadata, _data: LogSegmentData) -> None:
            error = SegmentFileError("the batch at 81920 is damaged")
            error.retriable = retriable  # type: ignore[misc]
            raise error

        copying.store(monkeypatch, store)
        (pause,) = copying.run()
        assert (pause is None) == (not retriable)
        assert copying.term.copying_stopped == (not retriable)
        assert copying.count("copy_errors") == (0 if retriable else 1)
        copying.log.delete_old_segments()
        assert copying.log.local_log_start_offset == 0

    @pytest.mark.parametrize("size", [128, 129])
    def test_custom_metadata(self, copying: Copying, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        """testCustomMetadataSizeExceedsLimit: more than the limit is undone, and the copying stops."""
        copying.broker.produce(copying.partition, 2)
        deleted: list[CustomMetadata | None] = []
        delete = copying.broker.storage.delete_log_segment_data

        def store(copy: Callable[..., Any], metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
            copy(metadata, data)
            return bytes(size)

        copying.store(monkeypatch, store)
        monkeypatch.setattr(
            copying.broker.storage,
            "delete_log_segment_data",
            lambda metadata: (deleted.append(metadata.custom_metadata), delete(metadata)),
        )
        (pause,) = copying.run()
        if size == 128:
            assert pause == 0.0
            assert copying.segments() == [(0, 9)]
            return
        assert pause is None
        assert deleted == [bytes(size)]
        assert copying.ids() == set()
        assert copying.stored == frozenset()
        assert copying.run() == [None]
        assert copying.count("copy_errors") == 1

    @pytest.mark.parametrize("step", ["add_remote_log_segment_metadata", "update_remote_log_segment_metadata"])
    def test_the_metadata_manager_fails(self, copying: Copying, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        """Before the copy no byte is stored; behind it the copy stays unseen, and another one is made."""
        copying.broker.produce(copying.partition, 1)
        call = getattr(copying.broker.metadata, step)

        def fails(_: object) -> None:
            raise RemoteStorageException("the topic is gone")

        monkeypatch.setattr(copying.broker.metadata, step, fails)
        copying.run()
        assert copying.count("copy_errors") == 1
        assert len(copying.stored) == (0 if step.startswith("add") else 1)
        monkeypatch.setattr(copying.broker.metadata, step, call)
        assert copying.run(2) == [0.0, INTERVAL]
        assert copying.segments() == [(0, 9)]

    def test_an_answer_that_was_lost(self, copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
        """The update may have been stored: what it finished is not copied twice."""
        copying.broker.produce(copying.partition, 1)
        call = copying.broker.metadata.update_remote_log_segment_metadata

        def loses(update: Any) -> None:
            call(update).result(60)
            raise RetriableRemoteStorageException("not in time")

        monkeypatch.setattr(copying.broker.metadata, "update_remote_log_segment_metadata", loses)
        copying.run()
        monkeypatch.undo()
        assert copying.run() == [INTERVAL]
        assert copying.segments() == [(0, 9)]
        assert copying.log.highest_offset_in_remote_storage == 9


class TestEnds:
    """Terms that end under a copy."""

    def test_a_zombies_copy_is_never_finished(self, copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
        """The new leader copies the same offsets; this one's would hide its segment."""
        copying.broker.produce(copying.partition, 1)

        def store(copy: Callable[..., Any], metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Any:
            custom = copy(metadata, data)
            copying.term.end()
            return custom

        copying.store(monkeypatch, store)
        assert copying.run() == [INTERVAL] or copying.run() == [None]
        assert copying.segments() == []
        assert copying.stored == frozenset()
        assert copying.log.highest_offset_in_remote_storage == -1

    def test_files_are_leased_for_the_whole_copy(self, copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log that is deleted, or cut, in the middle of a copy takes the files away under it."""
        copying.broker.produce(copying.partition, 2)

        def store(copy: Callable[..., Any], metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Any:
            copying.log.truncate_fully_and_start_at(100)
            copying.broker.machine.clock.sleep(5)
            return copy(metadata, data)

        copying.store(monkeypatch, store)
        assert copying.run() == [0.0]
        assert len(copying.stored) == 1

    def test_a_quota_that_is_waited_for_ends_with_the_term(self, copying: Copying) -> None:
        """A leader that lost its partition must not hold one of ten threads for an hour."""
        copying.broker.produce(copying.partition, 1)
        copying.quota.change(1)
        copying.quota.record(100_000)
        machine = copying.broker.machine
        with machine.scheduler.pool(1, name="copy") as pool:
            future = pool.submit(lambda: copying.copies.run(copying.term))
            machine.clock.sleep(3)
            assert not future.done()
            copying.term.end()
            future.result(3)
        assert copying.segments() == []
        assert copying.count("copy_throttle_seconds") > 0


def test_the_limit_is_kept() -> None:
    """Copies of a broker take no more of its network than they may: 11 segments, one a second or slower."""
    config = RemoteLogManagerConfig(task_interval_ms=1000, copy_max_bytes_per_second=800)
    with managed_broker(config=config) as broker:
        partition: TopicIdPartition = broker.partition()
        broker.produce(partition, 11)
        began = broker.machine.clock.monotonic_seconds()
        broker.manager.on_leadership_change(frozenset({partition}), frozenset())
        while broker.logs[partition].highest_offset_in_remote_storage < 109:
            broker.machine.clock.sleep(0.1)
        seconds = broker.machine.clock.monotonic_seconds() - began
        size = broker.manager.metrics.value("copy_bytes")
        assert 0.7 * 800 < (size - size / 11) / seconds < 1.15 * 800
