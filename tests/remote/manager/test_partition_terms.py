"""Terms of partitions, notices to the metadata manager, and stops: from a seed, and in threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.support.living_logs import opened
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import RemoteLogSegmentId, RemoteStorageException, TopicIdPartition, Uuid
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_health import HealthCheck
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.partition_stops import PartitionStops, StopPartition
from tierlog.remote.manager.partition_terms import PartitionTerms, TermTask
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import PendingFuture
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing import MemoryStorageManager

TOPIC_ID = Uuid(bytes(15) + b"\1")
NONE: frozenset[TopicIdPartition] = frozenset()


def partition(number: int, topic_id: Uuid = TOPIC_ID, topic: str = "orders") -> TopicIdPartition:
    return TopicIdPartition(topic_id, topic, number)


class ToldManager(DictMetadataManager):
    """A metadata manager that notes what it hears, is ready when the test says so, and refuses."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self.heard: list[tuple[str, frozenset[TopicIdPartition]]] = []
        self.refusals = 0
        self.refused_at: list[float] = []
        self.seconds = 0.0
        self.ready: PendingFuture[None] | None = None

    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        self._hear("lead", leader_partitions)
        self._hear("follow", follower_partitions)
        super().on_partition_leadership_changes(leader_partitions, follower_partitions)

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        self._hear("stop", partitions)
        super().on_stop_partitions(partitions)

    def _hear(self, what: str, partitions: AbstractSet[TopicIdPartition]) -> None:
        self._machine.clock.sleep(self.seconds)
        if self.refusals:
            self.refusals -= 1
            self.refused_at.append(self._machine.clock.monotonic_seconds())
            raise RemoteStorageException("not now")
        if partitions:
            self.heard.append((what, frozenset(partitions)))

    def when_ready(self, topic_id_partition: TopicIdPartition) -> PendingFuture[None] | None:
        return self.ready


class CalledOffStorage(MemoryStorageManager):
    """Notes the copies that are called off."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine=machine)
        self.called_off: list[RemoteLogSegmentId] = []

    def call_off_copy(self, segment_id: RemoteLogSegmentId) -> bool:
        self.called_off.append(segment_id)
        raise ValueError("of a third party's")


class NotedDeletions(SegmentDeletions):
    """Notes the partitions whose segments are to be deleted, and refuses number 9."""

    def __init__(self, services: TierServices, deleted: list[TopicIdPartition]) -> None:
        super().__init__(services)
        self._deleted = deleted

    def delete_all(
        self, topic_id_partition: TopicIdPartition, only: frozenset[RemoteLogSegmentId] | None = None
    ) -> None:
        if topic_id_partition.partition == 9:
            raise RemoteStorageException("the store refuses")
        self._deleted.append(topic_id_partition)


@dataclass
class Rig:
    machine: Machine
    metadata: ToldManager
    storage: CalledOffStorage
    services: TierServices
    notices: MetadataNotices
    schedule: TaskSchedule
    terms: PartitionTerms
    stops: PartitionStops
    runs: list[tuple[str, TieredPartition]]
    run_seconds: dict[str, float]
    deleted: list[TopicIdPartition]
    logs: dict[TopicIdPartition, UnifiedLog]

    def ran(self, kind: str) -> list[int]:
        return [each.topic_id_partition.partition for name, each in self.runs if name == kind]

    def close(self) -> None:
        self.terms.end_all()
        for each in (self.stops, self.schedule, self.notices):
            each.close()


def make_rig(machine: Machine) -> Rig:
    metadata, storage = ToldManager(machine), CalledOffStorage(machine)
    logs: dict[TopicIdPartition, UnifiedLog] = {}
    services = TierServices(
        config=RemoteLogManagerConfig(task_interval_ms=1000),
        storage=storage,
        metadata=metadata,
        find_log=logs.get,
        broker_id=1,
        machine=machine,
        metrics=ManagerMetrics(machine),
    )
    runs: list[tuple[str, TieredPartition]] = []
    run_seconds: dict[str, float] = {}
    deleted: list[TopicIdPartition] = []

    def task(name: str) -> TermTask:
        def run(of: TieredPartition) -> float:
            runs.append((name, of))
            machine.clock.sleep(run_seconds.get(name, 0.0))
            return 1.0

        return TermTask(schedule, run)

    schedule = TaskSchedule(machine, name="tasks", workers=4)
    notices = MetadataNotices(services)
    terms = PartitionTerms(
        services, notices, copying=task("copy"), expiring=task("expiration"), following=task("follower")
    )
    stops = PartitionStops(services, terms, notices, NotedDeletions(services, deleted))
    return Rig(machine, metadata, storage, services, notices, schedule, terms, stops, runs, run_seconds, deleted, logs)


@pytest.fixture(params=range(3))
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    machine, scheduler = ManualScheduler.machine(request.param)
    with scheduler:
        made = make_rig(machine)
        yield made
        made.close()
        machine.clock.sleep(1000)
        assert scheduler.unfinished == []


def tiered_log(rig: Rig, of: TopicIdPartition, **keys: object) -> UnifiedLog:
    config = LogConfig(remote_storage_enable=True, remote_log_delete_on_disable=True, **keys)  # type: ignore[arg-type]
    folder = f"/logs/{of.topic}-{of.partition}"
    rig.machine.files.make_directories(folder)
    log = rig.logs[of] = opened(rig.machine, config=config, folder=folder)
    return log


class TestTerms:
    """Terms and their tasks."""

    def test_roles_decide_the_tasks(self, rig: Rig) -> None:
        """A follower that copies writes every segment twice; a leader that does not, none."""
        rig.terms.begin(frozenset({partition(0)}), frozenset({partition(1)}))
        rig.machine.clock.sleep(0.5)
        assert (rig.ran("copy"), rig.ran("expiration"), rig.ran("follower")) == ([0], [0], [1])
        assert (rig.terms.count(Role.LEADER), rig.terms.count(Role.FOLLOWER)) == (1, 1)
        rig.terms.begin(frozenset({partition(1)}), frozenset({partition(0)}))
        rig.machine.clock.sleep(0.4)
        assert (rig.ran("copy"), rig.ran("expiration"), rig.ran("follower")) == ([0, 1], [0, 1], [1, 0])
        assert rig.runs[0][1].has_ended
        assert [what for what, _ in rig.metadata.heard] == ["lead", "follow", "lead", "follow"]

    def test_a_repeated_notice_restarts_nothing(self, rig: Rig) -> None:
        """A controller repeats itself with each change of the cluster: every task would begin again with it."""
        for _ in range(5):
            rig.terms.begin(frozenset({partition(0)}), NONE)
            rig.machine.clock.sleep(0.1)
        assert rig.ran("copy") == rig.ran("expiration") == [0]
        assert rig.metadata.heard == [("lead", frozenset({partition(0)}))]
        term = rig.terms.find(partition(0))
        assert term is not None
        assert term is rig.runs[0][1]

    def test_tasks_begin_with_the_metadata(self, rig: Rig) -> None:
        """A task that asks earlier counts an error of every partition at every start of the broker."""
        rig.metadata.ready = rig.machine.scheduler.future()
        rig.terms.begin(frozenset({partition(0), partition(1)}), NONE)
        rig.machine.clock.sleep(5)
        assert rig.runs == []
        rig.terms.end(partition(1))
        rig.metadata.ready.set_result(None)
        rig.machine.clock.sleep(0.5)
        assert rig.ran("copy") == [0]

    def test_tasks_begin_though_the_metadata_never_comes(self, rig: Rig) -> None:
        """Tasks meet the error, count it and try again; without them nothing would say why nothing is copied."""
        rig.metadata.ready = rig.machine.scheduler.future()
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        rig.metadata.ready.set_exception(RemoteStorageException("a record cannot be read"))
        rig.machine.clock.sleep(0.5)
        assert rig.ran("copy") == [0]

    @pytest.mark.parametrize("end", ["ready", "never ready", "stopped"])
    def test_when_a_term_has_begun(self, rig: Rig, end: str) -> None:
        """A read right behind the notice waits for the metadata manager to hear of it; it is not refused."""
        rig.metadata.seconds = 1
        rig.metadata.ready = rig.machine.scheduler.future()
        assert rig.terms.has_begun(partition(0))
        assert rig.terms.when_begun(partition(0)) is None
        rig.terms.begin(frozenset({partition(0)}), NONE)
        begun = rig.terms.when_begun(partition(0))
        assert begun is not None
        assert not rig.terms.has_begun(partition(0))
        rig.machine.clock.sleep(5)
        assert not begun.done()
        if end == "ready":
            rig.metadata.ready.set_result(None)
            begun.result(5)
            assert rig.terms.when_begun(partition(0)) is None
        else:
            if end == "stopped":
                rig.terms.end(partition(0))
            else:
                rig.metadata.ready.set_exception(RemoteStorageException("a record cannot be read"))
            with pytest.raises(RemoteStorageException):
                begun.result(5)
        rig.metadata.seconds = 0

    def test_a_topic_that_was_made_anew_is_another_one(self, rig: Rig) -> None:
        """Segments of the old topic would be taken for the new one's."""
        new = partition(0, Uuid(bytes(15) + b"\2"))
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        before = rig.terms.find(partition(0))
        rig.terms.begin(frozenset({new}), NONE)
        rig.machine.clock.sleep(0.4)
        assert before is not None
        assert before.has_ended
        assert rig.terms.find(partition(0)) is None
        assert rig.terms.find(new) is not None
        assert ("stop", frozenset({partition(0)})) in rig.metadata.heard
        assert [each.topic_id_partition for name, each in rig.runs if name == "copy"] == [partition(0), new]
        rig.terms.end(new)
        assert not rig.terms.has_topic("orders")

    def test_copying_stops_and_goes_on(self, rig: Rig) -> None:
        """remote.log.copy.disable there and back, at once: one copy of the partition at a time, whatever comes."""
        rig.run_seconds["copy"] = 0.5
        log = tiered_log(rig, partition(0))
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.2)
        term = rig.terms.find(partition(0))
        assert term is not None
        with term.copying(RemoteLogSegmentId(partition(0), Uuid.random())):
            rig.terms.stop_copying([partition(0), partition(7)])
        assert len(rig.storage.called_off) == 1
        assert term.copying_stopped
        rig.terms.resume_copying([partition(0)])
        rig.terms.resume_copying([partition(0)])
        rig.machine.clock.sleep(0.2)
        assert rig.ran("copy") == [0]  # the first run has not ended
        rig.machine.clock.sleep(0.4)
        assert rig.ran("copy") == [0, 0]
        assert not term.copying_stopped
        rig.terms.stop_copying([partition(0)])
        log.update_config(LogConfig(remote_storage_enable=True, remote_log_copy_disable=True))
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(5)
        assert rig.ran("copy") == [0, 0]
        assert len(rig.ran("expiration")) >= 5

    def test_copying_that_is_disabled_again_stays_so(self, rig: Rig) -> None:
        """If this fails, a partition whose copying was enabled for a moment has a task that never finds work."""
        rig.run_seconds["copy"] = 0.5
        log = tiered_log(rig, partition(0))
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.2)
        rig.terms.stop_copying([partition(0)])
        rig.terms.resume_copying([partition(0)])
        log.update_config(LogConfig(remote_storage_enable=True, remote_log_copy_disable=True))
        rig.terms.stop_copying([partition(0)])
        rig.machine.clock.sleep(5)
        assert rig.ran("copy") == [0]
        log.update_config(LogConfig(remote_storage_enable=True))
        rig.terms.resume_copying([partition(0)])
        rig.machine.clock.sleep(0.2)
        assert rig.ran("copy") == [0, 0]

    def test_copying_that_is_enabled_while_a_term_begins(self, rig: Rig) -> None:
        """If this fails, nothing is copied until the next role, and local retention deletes nothing."""
        log = tiered_log(rig, partition(0), remote_log_copy_disable=True)

        def find_log(of: TopicIdPartition) -> object:
            seen = SimpleNamespace(config=log.config)
            if log.config.remote_log_copy_disable:  # a change of the topic, whole, behind what the term has read
                log.update_config(LogConfig(remote_storage_enable=True))
                rig.terms.resume_copying([of])
            return seen

        rig.services.find_log = find_log  # type: ignore[assignment]
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        assert rig.ran("copy") == [0]

    def test_an_ended_term_calls_its_copy_off(self, rig: Rig) -> None:
        """A copy of 8 GB that nobody wants goes on for minutes, while the new leader makes its own."""
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        term = rig.terms.find(partition(0))
        assert term is not None
        segment_id = RemoteLogSegmentId(partition(0), Uuid.random())
        with term.copying(segment_id):
            rig.terms.begin(NONE, frozenset({partition(0)}))
        assert rig.storage.called_off == [segment_id]


class TestNotices:
    """Notices to the metadata manager."""

    def test_it_is_not_waited_for(self, rig: Rig) -> None:
        """A broker's thread for metadata of the cluster would stand still with a third party's manager."""
        rig.metadata.seconds = 100
        began = rig.machine.clock.monotonic_seconds()
        for _ in range(5):
            rig.terms.begin(frozenset({partition(0), partition(1)}), NONE)
            rig.terms.begin(NONE, frozenset({partition(0)}))
            rig.terms.end(partition(1))
        assert rig.machine.clock.monotonic_seconds() == began
        assert rig.notices.waiting <= 2
        rig.machine.clock.sleep(1000)
        assert rig.notices.waiting == 0
        assert rig.metadata.is_ready(partition(0))

    def test_a_refused_notice_is_given_again(self, rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
        """A partition whose leader's manager does not know it is copied nowhere, until the next election."""
        rig.metadata.refusals = 3
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.3)
        assert isinstance(rig.notices.failure, RemoteStorageException)
        rig.terms.begin(frozenset({partition(1)}), NONE)
        rig.machine.clock.sleep(10)
        assert rig.notices.failure is None
        assert rig.metadata.is_ready(partition(0))
        assert rig.metadata.is_ready(partition(1))
        assert set(rig.ran("copy")) == {0, 1}
        assert "not taken the roles" in caplog.text
        assert "partitions stop" not in caplog.text  # it hears of stops if there are any

    def test_pauses_between_refusals_double(self, rig: Rig) -> None:
        """A third party's manager that restarts is asked by each broker without a pause, or not again for minutes."""
        rig.metadata.refusals = 12
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(600)
        config, at = rig.services.config, rig.metadata.refused_at
        pauses = [1000 * (after - before) for before, after in itertools.pairwise(at)]
        wanted = [min(config.task_retry_backoff_ms << n, config.task_retry_backoff_max_ms) for n in range(11)]
        assert pauses == pytest.approx(wanted, abs=1005)  # the schedule's grain
        assert rig.metadata.is_ready(partition(0))

    def test_the_last_word_counts(self, rig: Rig) -> None:
        """A stop that a later notice overtakes takes the partition from its leader."""
        rig.metadata.seconds = 3
        rig.terms.begin(frozenset({partition(5)}), NONE)
        rig.machine.clock.sleep(1)
        stopped: list[Exception | None] = []
        rig.terms.begin(frozenset({partition(0), partition(1)}), NONE)
        for number in (0, 1):
            rig.notices.stop(partition(number), stopped.append, is_here=lambda: False)
        rig.terms.end(partition(0))
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(30)
        assert stopped == [None, None]
        assert rig.metadata.is_ready(partition(0))
        assert not rig.metadata.is_ready(partition(1))


class TestStops:
    """Partitions that this broker leaves."""

    def stop(self, rig: Rig, *stopped: StopPartition) -> dict[TopicIdPartition, Exception]:
        return dict(rig.stops.stop(stopped).result(100))

    def test_each_kind(self, rig: Rig) -> None:
        """A stop deletes as Kafka's StopReplica does, by its two flags."""
        parts = {partition(number) for number in range(4)}
        rig.terms.begin(frozenset(parts), NONE)
        rig.machine.clock.sleep(0.5)
        assert not self.stop(
            rig,
            StopPartition(partition(0), delete_local_log=True, delete_remote_log=True),
            StopPartition(partition(1), delete_local_log=True),
            StopPartition(partition(2)),
            StopPartition(partition(3), delete_remote_log=True, stop_metadata=True),
        )
        assert rig.deleted == [partition(0), partition(3)] or rig.deleted == [partition(3), partition(0)]
        assert [rig.metadata.is_ready(partition(number)) for number in range(4)] == [False, False, True, False]
        count = len(rig.runs)
        rig.machine.clock.sleep(5)
        assert len(rig.runs) == count
        assert rig.terms.all() == []

    def test_one_that_fails_stops_no_other(self, rig: Rig) -> None:
        """A broker with one segment that cannot be deleted would keep all partitions of its topics."""
        rig.services.metrics.add("copy_bytes", "orders")
        rig.terms.begin(frozenset({partition(8), partition(9)}), NONE)
        rig.machine.clock.sleep(0.5)
        errors = self.stop(
            rig, *(StopPartition(partition(n), delete_local_log=True, delete_remote_log=True) for n in (9, 8))
        )
        assert list(errors) == [partition(9)]
        assert rig.deleted == [partition(8)]
        assert not rig.metadata.is_ready(partition(9))
        with pytest.raises(KeyError):
            rig.services.metrics.value("copy_bytes", topic="orders")

    def test_a_deletion_waits_for_the_copy(self, rig: Rig) -> None:
        """A copy that ends behind the deletion leaves objects that nobody knows."""
        rig.run_seconds["copy"] = 4.0
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        self.stop(rig, StopPartition(partition(0), delete_local_log=True, delete_remote_log=True))
        assert rig.machine.clock.monotonic_seconds() == pytest.approx(4, abs=0.1)
        assert rig.deleted == [partition(0)]

    def test_a_call_that_hangs_is_not_waited_for(self, rig: Rig) -> None:
        """A store that never answers keeps no topic from its deletion."""
        rig.run_seconds["copy"] = 400.0
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        self.stop(rig, StopPartition(partition(0), delete_local_log=True, delete_remote_log=True))
        assert rig.machine.clock.monotonic_seconds() == pytest.approx(10.5, abs=0.1)

    def test_a_partition_that_is_here_again_waits_for_its_deletion(self, rig: Rig) -> None:
        """A topic that leaves the tier and enters it again within a second: its new copies would be deleted too, and
        the metadata manager would forget it, behind local retention that goes by them.
        """
        rig.run_seconds["copy"] = 4.0
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        done = [
            rig.stops.stop([StopPartition(partition(0), delete_remote_log=True, stop_metadata=True)]) for _ in range(2)
        ]
        rig.run_seconds.clear()
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(2)
        assert (rig.ran("copy"), rig.ran("expiration")[1:], rig.deleted) == ([0], [], [partition(0)])
        assert not rig.terms.has_begun(partition(0))
        rig.machine.clock.sleep(4)
        assert [each.result(0) for each in done] == [{}, {}]
        assert (set(rig.ran("copy")), rig.deleted) == ({0}, [partition(0)] * 2)
        assert rig.terms.has_begun(partition(0))
        assert rig.metadata.is_ready(partition(0))

    @pytest.mark.parametrize("seconds", [0.0, 0.2], ids=["pending", "delivered"])
    def test_a_term_that_begins_beside_the_stop(self, rig: Rig, seconds: float) -> None:
        """If this fails, a partition that is elected while it stops is dead until its next role: nothing is copied,
        nothing expires, and no read of the tier finds anything.
        """
        rig.terms.begin(NONE, frozenset({partition(0)}))
        rig.machine.clock.sleep(0.5)
        end_of_stop = rig.notices.stop

        def late(*args: Any, **named: Any) -> None:
            rig.terms.begin(frozenset({partition(0)}), NONE)
            rig.machine.clock.sleep(seconds)
            end_of_stop(*args, **named)

        rig.notices.stop = late  # type: ignore[method-assign]
        assert not self.stop(rig, StopPartition(partition(0), stop_metadata=True))
        rig.machine.clock.sleep(5)
        assert set(rig.ran("copy")) == {0}
        assert rig.terms.has_begun(partition(0))
        assert rig.metadata.is_ready(partition(0))

    def test_nothing_is_left_of_a_deletion(self, rig: Rig) -> None:
        """If this fails, a leader's memory grows with each topic that is made and deleted."""
        deleted = [partition(0, Uuid(bytes(15) + bytes((number,)))) for number in range(2, 6)]
        for each in deleted:
            rig.terms.begin(frozenset({each}), NONE)
            rig.machine.clock.sleep(0.5)
            done = [rig.stops.stop([StopPartition(each, delete_remote_log=True)]) for _ in range(2)]
            assert [future.result(100) for future in done] == [{}, {}]
        assert not rig.terms._held

    def test_a_close_ends_what_waits(self, rig: Rig) -> None:
        """A caller that waits for a deletion must hear that the manager is closed."""
        rig.run_seconds["copy"] = 400.0
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        future = rig.stops.stop([StopPartition(partition(0), delete_remote_log=True)])
        assert rig.stops.stop([]).result(0) == {}
        rig.stops.close()
        for each in (future, rig.stops.stop([StopPartition(partition(1))])):
            with pytest.raises(RemoteStorageException, match="closed"):
                each.result(0)

    def test_a_manager_that_does_not_take_the_stop(self, rig: Rig) -> None:
        """The caller hears of the failed deletion; the partition has stopped here all the same."""
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(0.5)
        rig.metadata.refusals = 1
        errors = self.stop(rig, StopPartition(partition(0), stop_metadata=True))
        assert list(errors) == [partition(0)]


class TestHealth:
    """The health summary, as an operator sees it."""

    def check(self, rig: Rig) -> HealthCheck:
        return HealthCheck(rig.services, rig.terms, rig.notices, {"copy": rig.schedule})

    def test_of_nothing(self, rig: Rig) -> None:
        """A broker without tiered partitions is well."""
        health = self.check(rig).look()
        assert (health.leaders, health.followers, health.loading, health.uncopied) == (0, 0, 0, None)
        assert self.check(rig).uncopied_age_seconds() == 0

    def test_long_runs_and_what_is_loaded(self, rig: Rig) -> None:
        """A manager that hangs is seen, and in which partition."""
        rig.run_seconds["copy"] = 500.0
        rig.terms.begin(frozenset({partition(0)}), NONE)
        rig.machine.clock.sleep(90)
        rig.metadata.ready = rig.machine.scheduler.future()
        rig.metadata.seconds = 5
        rig.terms.begin(NONE, frozenset({partition(1)}))
        rig.machine.clock.sleep(1)
        health = self.check(rig).look()
        assert health.notice_seconds == pytest.approx(1, abs=0.1)
        rig.metadata.seconds = 0
        assert [(run.topic_id_partition, run.task) for run in health.long_runs] == [(partition(0), "copy")]
        assert health.long_runs[0].seconds > 90
        assert (health.leaders, health.followers, health.loading) == (1, 1, 1)


def test_ten_thousand_partitions() -> None:
    """All begin, and all end, in the threads of this process, in seconds."""
    rig = make_rig(Machine())
    parts = frozenset(partition(number) for number in range(10_000))
    rig.terms.begin(parts, NONE)
    done = threading.Event()
    until = rig.machine.clock.monotonic_seconds() + 30
    while len(set(rig.ran("copy"))) < 10_000:
        assert rig.machine.clock.monotonic_seconds() < until
        done.wait(0.05)
    errors = rig.stops.stop([StopPartition(each, delete_local_log=True) for each in parts]).result(30)
    assert errors == {}
    assert rig.terms.all() == []
    assert not rig.terms.has_topic("orders")
    rig.close()
