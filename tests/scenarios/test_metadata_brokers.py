"""Brokers with one metadata topic, run from seeds in one thread: faults, reassignments, restarts, two that both lead.

Each seed is a run of its own; the number in the test's name repeats it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from tests.contract.metadata_events import DELETED, DELETING, FINISHED, REMOVAL, STARTED, removal, segment, to, update
from tests.support.metadata_rig import metric, rig
from tests.support.segment_table_model import SegmentTableModel
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import MetadataBatches, MetadataValues
from tierlog.remote.metadata.record_serde import decode_record
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataLog, MemoryMetadataTopic

BROKERS = 3
METADATA_PARTITIONS = 2
PARTITIONS = [TopicIdPartition(Uuid(bytes(15) + b"\5"), "orders", number) for number in range(3)]
COPIES = 4
#: More than any run may take; the clock is the simulation's.
LIMIT_SECONDS = 3600.0


class Broker:
    """One broker: its manager, through restarts, and what it did."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.log_dir = f"/broker-{number}"
        cluster.machine.files.make_directories(self.log_dir)
        self.manager = self.started()

    def started(self) -> TopicBasedRemoteLogMetadataManager:
        topic = self.cluster.topic
        manager = TopicBasedRemoteLogMetadataManager(
            machine=self.cluster.machine, open_logs=lambda config, *, machine: topic
        )
        manager.configure(
            {
                "log.dir": self.log_dir,
                "broker.id": self.number,
                "remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
                "remote.log.metadata.consume.wait.ms": 5000,
                "remote.log.metadata.snapshot.interval.ms": 700,
            }
        )
        manager.on_partition_leadership_changes(frozenset(PARTITIONS), frozenset())
        return manager

    def restart(self) -> None:
        self.manager.close()
        self.manager = self.started()

    def until_done(self, call: Callable[[], Future[None]]) -> bool:
        """Store an event however often it takes; False if it is refused."""
        clock = self.cluster.machine.clock
        until = clock.monotonic_seconds() + LIMIT_SECONDS
        while True:
            assert clock.monotonic_seconds() < until
            try:
                call().result(LIMIT_SECONDS)
            except (InvalidTransitionError, RemoteResourceNotFoundException) as error:
                if "not assigned" not in str(error):
                    return False
                clock.sleep(0.1)
            except RemoteStorageException:  # not available, restarted, no acknowledgement
                clock.sleep(0.1)
            else:
                return True

    def find(self, of: RemoteLogSegmentMetadata) -> RemoteLogSegmentState | None:
        """The state of a segment, as this broker sees it."""
        clock = self.cluster.machine.clock
        while True:
            try:
                listed = list(self.manager.list_remote_log_segments(of.topic_id_partition))
            except RemoteStorageException:
                clock.sleep(0.1)
            else:
                return next(
                    (each.state for each in listed if each.remote_log_segment_id == of.remote_log_segment_id), None
                )

    def copy(self, number: int) -> None:
        """Copy one segment, whose id is this broker's alone, and delete every second one again."""
        of = segment(
            1 + number * BROKERS + self.number,
            10 * number,
            10 * number + 9,
            partition=PARTITIONS[number % len(PARTITIONS)],
        )
        is_deleted = number % 2 == 1
        for state in (STARTED, FINISHED, *((DELETING, DELETED) if is_deleted else ())):
            if state is STARTED:
                stored = self.until_done(lambda: self.manager.add_remote_log_segment_metadata(of))
            else:
                stored = self.until_done(partial(self.update, to(of, state)))
            # Refused at the second try: the first, whose acknowledgement was lost, was stored.
            seen = self.find(of)
            if of.remote_log_segment_id not in self.cluster.meddled:
                assert stored or seen == (None if state is DELETED else state)
                assert seen == (None if state is DELETED else state), (of.remote_log_segment_id, state, seen)

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        return self.manager.update_remote_log_segment_metadata(update)

    def meddle(self) -> None:
        """Act as a leader that is none any more: finish, and delete, what others copied."""
        for partition in PARTITIONS:
            try:
                listed = list(self.manager.list_remote_log_segments(partition))
            except RemoteStorageException:
                continue
            for each in listed[: 1 + self.cluster.rng.integer_below(3)]:
                if each.state is STARTED:
                    continue  # its broker may add it again, after a lost acknowledgement
                self.cluster.meddled.add(each.remote_log_segment_id)
                for state in (DELETING, DELETED, FINISHED):
                    try:
                        self.manager.update_remote_log_segment_metadata(to(each, state)).result(LIMIT_SECONDS)
                    except RemoteStorageException:
                        continue


class Cluster:
    """The brokers, their topic, and the faults."""

    def __init__(self, seed: int, machine: Machine) -> None:
        self.machine = machine
        self.rng = SeededRng(seed)
        self.topic = MemoryMetadataTopic(METADATA_PARTITIONS, machine=machine, as_batches=seed % 2 == 1)
        self.topic.acknowledge_after = lambda: self.rng.uniform(0, 0.3)
        self.meddled: set[object] = set()
        self.brokers = [Broker(self, number) for number in range(BROKERS)]

    def disturb(self) -> None:
        """A dozen faults."""
        faults = [self._outage, self._lost_acknowledgements, self._reassign, self._restart, self._zombie]
        for _ in range(6):
            self.machine.clock.sleep(self.rng.uniform(0, 0.5))
            faults[self.rng.integer_below(len(faults))](self.brokers[self.rng.integer_below(BROKERS)])

    def _outage(self, _: Broker) -> None:
        self.topic.unavailable = True
        self.machine.clock.sleep(self.rng.uniform(0, 2))
        self.topic.unavailable = False

    def _lost_acknowledgements(self, _: Broker) -> None:
        self.topic.lose_acknowledgements += self.rng.integer_below(3)
        self.topic.drop_appends += self.rng.integer_below(3)

    def _reassign(self, broker: Broker) -> None:
        moved = PARTITIONS[self.rng.integer_below(len(PARTITIONS))]
        broker.manager.on_stop_partitions(frozenset({moved}))
        self.machine.clock.sleep(self.rng.uniform(0, 1))
        broker.manager.on_partition_leadership_changes(frozenset(), frozenset({moved}))

    def _restart(self, broker: Broker) -> None:
        broker.restart()

    def _zombie(self, broker: Broker) -> None:
        broker.meddle()

    def events(self) -> Iterator[object]:
        for number in range(METADATA_PARTITIONS):
            for _, value in self.topic.values(number):
                assert value is not None
                yield decode_record(value)


def run(seed: int) -> None:
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        cluster = Cluster(seed, machine)
        start = machine.scheduler.start
        tasks = [start(cluster.disturb, name="faults")]
        tasks += [
            start(partial(broker.copy, number), name=f"copy-{number}")
            for broker in cluster.brokers
            for number in range(COPIES)
        ]
        for task in tasks:
            task.result(LIMIT_SECONDS)
        for number, partition in enumerate(PARTITIONS):
            last = segment(1000 + number, 5000, 5009, partition=partition)
            for broker in cluster.brokers:  # each, once it is done, has seen all that came before
                assert broker.until_done(partial(broker.manager.add_remote_log_segment_metadata, last))
            for broker in cluster.brokers:
                assert broker.until_done(partial(broker.manager.update_remote_log_segment_metadata, to(last, FINISHED)))
        # The first has not seen what the last stored: one event more, and its own.
        for partition in PARTITIONS:
            for broker in cluster.brokers:
                event = removal(REMOVAL.DELETE_PARTITION_MARKED, partition)
                assert broker.until_done(partial(broker.manager.put_remote_partition_delete_metadata, event))
        compare(cluster)
        for broker in cluster.brokers:
            broker.manager.close()
        assert [name for name in scheduler.unfinished if name != "tierlog-memory-topic"] == []


def compare(cluster: Cluster) -> None:
    """All brokers have what the topic says, and nothing that was deleted is back."""
    model = SegmentTableModel()
    deleted: collections.Counter[RemoteLogSegmentId] = collections.Counter()
    for partition in PARTITIONS:
        model.assign(partition)
    for event in cluster.events():
        if isinstance(event, RemotePartitionDeleteMetadata):
            continue
        assert isinstance(event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
        if model.apply_record(event) and event.state is DELETED:
            deleted[event.remote_log_segment_id] += 1
    assert deleted
    assert set(deleted.values()) == {1}
    for partition in PARTITIONS:
        expected = {each.remote_log_segment_id: each for each in model.listed(partition)}
        assert not expected.keys() & deleted.keys()
        for broker in cluster.brokers:
            listed = {each.remote_log_segment_id: each for each in broker.manager.list_remote_log_segments(partition)}
            assert listed == expected, broker.number
            assert broker.manager.highest_offset_for_epoch(partition, 0) == model.highest.get((partition, 0))


class LaggingLog(MemoryMetadataLog):
    """A log whose reader gets nothing while ``lags`` is set, though it can append."""

    lags = False

    def read(
        self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float
    ) -> Sequence[MetadataBatches | MetadataValues]:
        if not self.lags:
            return super().read(positions, max_bytes=max_bytes, timeout_seconds=timeout_seconds)
        self._topic.machine.clock.sleep(timeout_seconds)
        return []


class LaggingLogs:
    """Opens logs that can lag, and keeps them."""

    def __init__(self, topic: MemoryMetadataTopic) -> None:
        self._topic = topic
        self.logs: list[LaggingLog] = []

    def open(self, *, timeout_seconds: float) -> LaggingLog:
        self.logs.append(LaggingLog(self._topic, self._topic.identity))
        return self.logs[-1]


@pytest.mark.parametrize("as_batches", [True, False])
def test_a_zombies_late_finish(as_batches: bool) -> None:
    """A broker that has lost its leadership, and does not know, finishes a copy that its successor has deleted."""
    with rig(as_batches=as_batches) as made:
        made.logs = lagging = LaggingLogs(made.topic)
        zombie, leader = made.leader("/zombie"), made.leader("/leader")
        of = segment(1, 0, 9)
        zombie.add_remote_log_segment_metadata(of).result(10)
        lagging.logs[0].lags = True
        made.machine.clock.sleep(2)  # the read that was under way is over
        for state in (DELETING, DELETED):
            update(leader, of, state)
        late = zombie.update_remote_log_segment_metadata(to(of, FINISHED, b"late"))
        made.machine.clock.sleep(5)
        assert not late.done()
        lagging.logs[0].lags = False
        with pytest.raises(RemoteResourceNotFoundException):
            late.result(10)
        for manager in (zombie, leader, made.leader("/new")):
            assert list(manager.list_remote_log_segments(of.topic_id_partition)) == []
            assert manager.remote_log_segment_metadata(of.topic_id_partition, 0, 5) is None
            assert manager.highest_offset_for_epoch(of.topic_id_partition, 0) is None
            assert metric(manager, "events_refused_total") == 1


@pytest.mark.few(3)
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_all_brokers_come_to_the_same(first: int) -> None:
    """If this fails, one broker reads segments that another has deleted, or deletes what is still read."""
    for seed in range(first, first + 20):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
def test_more_seeds() -> None:
    """The same at length."""
    for seed in range(1000, 3000):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
