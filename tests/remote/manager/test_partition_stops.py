"""Stops of partitions whose tier is deleted, while others stop, or enter the tier again: from a seed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

from tests.contract.metadata_events import DELETING, FINISHED, OTHER, PARTITION, bring, listed, segment
from tests.support.removing_brokers import Broker, Cluster, cluster
from tierlog.remote.api import RemoteLogSegmentState, RetriableRemoteStorageException, TopicIdPartition
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.partition_stops import PartitionStops, StopPartition
from tierlog.remote.manager.partition_terms import PartitionTerms, TermTask
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tiered_partition import TieredPartition
from tierlog.runtime.machine.scheduling import Future


@dataclasses.dataclass
class Stopping:
    """A broker whose partitions stop.

    Attributes:
        run_seconds: How long a run of a leader's tasks takes.
    """

    cluster: Cluster
    broker: Broker
    terms: PartitionTerms
    stops: PartitionStops
    run_seconds: float = 0.0

    def leave_tier(self, partition: TopicIdPartition) -> Future[Mapping[TopicIdPartition, Exception]]:
        return self.stops.stop([StopPartition(partition, delete_remote_log=True, stop_metadata=True)])

    def states(self, partition: TopicIdPartition) -> set[RemoteLogSegmentState]:
        return {each.state for each in self.broker.inner.list_remote_log_segments(partition)}


@contextlib.contextmanager
def stopping(*partitions: TopicIdPartition) -> Iterator[Stopping]:
    """A broker that leads partitions with one segment each in the tier."""
    with cluster() as made:
        broker = Broker(made, 1)
        broker.host(*partitions)
        for partition in partitions:
            made.fill(broker, 1, partition)
        services = broker.services
        notices, schedule = MetadataNotices(services), TaskSchedule(services.machine, name="tasks", workers=4)

        def run(_: TieredPartition) -> float:
            services.machine.clock.sleep(rig.run_seconds)
            return 30.0

        idle = TermTask(schedule, run)
        terms = PartitionTerms(services, notices, copying=idle, expiring=idle, following=idle)
        rig = Stopping(made, broker, terms, PartitionStops(services, terms, notices, SegmentDeletions(services)))
        yield rig
        terms.end_all()
        for part in (rig.stops, schedule, notices):
            part.close()


def test_a_partition_is_marked_beside_the_deletions_of_others() -> None:
    """If this fails, a topic that leaves the tier and enters it again, under another leader, loses records: the leader
    takes segments for copied which are yet to be deleted, behind some thousand of other topics.
    """
    third = TopicIdPartition(OTHER.topic_id, OTHER.topic, 2)
    with stopping(PARTITION, OTHER, third) as rig:
        clock = rig.cluster.rig.machine.clock
        rig.broker.storage.hooks["delete_log_segment_data"] = lambda _: clock.sleep(600)
        rig.leave_tier(PARTITION)
        rig.leave_tier(OTHER)
        clock.sleep(1)
        done = rig.leave_tier(third)
        clock.sleep(1)
        assert rig.states(third) == {DELETING}
        assert done.result(1300) == {}
        assert not rig.cluster.stored


def test_copies_that_come_behind_a_failed_marking_stay() -> None:
    """If this fails, one refused event as a topic leaves the tier loses records: the copies that another broker makes
    when it is tiered again are deleted, and local retention has gone by them.
    """
    with stopping(PARTITION) as rig:
        clock, failures = rig.cluster.rig.machine.clock, [RetriableRemoteStorageException("there is no leader")]

        def fail_once(_: object) -> None:
            if failures:
                raise failures.pop()

        other = Broker(rig.cluster, 2)
        other.host(PARTITION)
        rig.run_seconds = 4.0  # a copy that is under way
        rig.terms.begin(frozenset({PARTITION}), frozenset())
        clock.sleep(0.5)
        rig.broker.metadata.hooks["update_remote_log_segment_metadata"] = fail_once
        done = rig.leave_tier(PARTITION)
        clock.sleep(1)
        assert (failures, rig.states(PARTITION)) == ([], {FINISHED})
        bring(other.inner, dataclasses.replace(segment(600, 0, 99), broker_id=2), FINISHED)
        assert done.result(100) == {}
        assert listed(other.inner) == [600]
