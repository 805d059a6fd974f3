"""A log with records whose lineage begins too late: the manager completes it, for a leader and for a follower."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.remote.manager.test_aux_states import cluster_of, only_first, producers, tiered
from tests.scenarios.two_brokers import Cluster
from tests.support.tier_tasks import segment_bytes, task_tier
from tests.support.tiered_brokers import BrokerReplica, Endpoint, partition_of
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentState, RemoteResourceNotFoundException
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.replication import BuildAuxState


def another_branch(cluster: Cluster) -> None:
    """Have the tier hold the first offsets in an epoch that no log here has; its objects cannot be read."""
    node = cluster.brokers[1]
    first = next(each for each in node.metadata.list_remote_log_segments(partition_of()) if each.start_offset == 0)
    segment_id = RemoteLogSegmentId.generate_new(partition_of(), rng=cluster.machine.rng)
    started, epochs = RemoteLogSegmentState.COPY_SEGMENT_STARTED, {0: 0, 9: 2}
    other = replace(first, remote_log_segment_id=segment_id, state=started, segment_leader_epochs=epochs)
    node.metadata.add_remote_log_segment_metadata(other).result(60)
    deletions = SegmentDeletions(node.services)
    deletions.change(deletions.update_of(other, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))


def test_nothing_expires_until_the_lineage_is_completed() -> None:
    """The file of the epochs was lost: by those of the records here alone the tier would have nothing in front of them,
    all of which would go, with the log's start behind it.
    """
    with task_tier() as tier:
        size = segment_bytes(tier.filled(3))
        tier.limit(local_retention_bytes=1, retention_bytes=100 * size)
        tier.append(epoch=1)
        tier.log.update_high_watermark(40)
        assert tier.log.delete_old_segments()
        tier.log.leader_epoch_cache.clear_and_flush()
        tier.restart()
        tier.new_term()
        log = tier.log
        assert log.must_be_rebuilt
        assert log.leader_epoch_cache.epoch_with_offsets() == {1: 30}
        log.update_high_watermark(40)
        tier.settle()
        assert (tier.starts, tier.stored(), log.log_start_offset) == ([], 3, 0)
        log.complete_lineage([(0, 0)])
        tier.limit(retention_bytes=3 * size)
        tier.settle()
        assert (tier.starts, tier.stored(), log.log_start_offset) == ([10], 2, 10)


class TestLeaders:
    """A leader has nobody to fetch from."""

    @pytest.mark.parametrize("has_other_branch", [False, True])
    def test_records_stay_and_the_lineage_is_completed(self, has_other_branch: bool) -> None:
        """Its checkpoint was lost: without its lineage nothing of its tier would be found, and it would not lead. What
        the tier has of later epochs than its own is another log's.
        """
        with cluster_of() as cluster:
            tiered(cluster)
            only_first(cluster)
            if has_other_branch:
                another_branch(cluster)
            log = cluster.replica(2).log
            cluster.elect(1)
            cluster.settle()
            before = log.log_end_offset
            log.leader_epoch_cache.clear_and_flush()
            log.leader_epoch_cache.assign(2, 4)
            log.leader_epoch_cache.assign(3, 8)
            cluster.brokers[2].stop()
            cluster.brokers[2].start()
            replica = cluster.replica(2)
            log = replica.log
            assert log.must_be_rebuilt
            cluster.elect(2)
            assert replica.build is not None
            replica.build[1].exception(60)
            cluster._built(replica)
            assert replica.build is None
            assert not log.must_be_rebuilt
            assert replica.epochs == {0: 0, 1: 2, 2: 4, 4: before}
            cluster.settle()
            cluster.check_committed(2)

    @pytest.mark.parametrize("empty", [False, True])
    def test_a_log_starts_here_if_all_in_front_of_it_has_expired(self, empty: bool) -> None:
        """A kill took its log start back to an older checkpoint: if this fails, it leads nothing until an operator
        comes.
        """
        with cluster_of() as cluster:
            tiered(cluster)
            only_first(cluster)
            node = cluster.brokers[2]
            for each in list(node.metadata.list_remote_log_segments(partition_of())):
                if each.start_offset == 0:
                    SegmentDeletions(node.services).begin(each)
            if empty:
                cluster.replica(2).log.truncate_to(2)
            else:
                epochs = cluster.replica(2).log.leader_epoch_cache
                epochs.clear_and_flush()
                epochs.assign(2, 4)
            node.stop()
            cluster.brokers[1].stop()
            node.start()
            assert cluster.replica(2).log.must_be_rebuilt
            cluster.elect(2)
            replica = cluster.replica(2)
            assert replica.build is not None
            assert replica.build[1].exception(60) is None
            cluster._built(replica)
            start = 2 if empty else 4
            assert (replica.log.log_start_offset, replica.log.local_log_start_offset) == (start, start)
            assert cluster.append(0, b"more") == (2 if empty else 8)
            assert replica.epochs == ({3: 2} if empty else {2: 4, 3: 8})

    def test_a_log_does_not_start_here_if_the_tier_has_what_is_in_front(self) -> None:
        """In whatever epoch: if this fails, a leader gives up offsets that only seem to have expired."""
        with cluster_of() as cluster:
            tiered(cluster)
            only_first(cluster)
            node = cluster.brokers[2]
            own = [each for each in node.metadata.list_remote_log_segments(partition_of()) if each.start_offset == 0]
            another_branch(cluster)
            for each in own:
                SegmentDeletions(node.services).begin(each)
            epochs = cluster.replica(2).log.leader_epoch_cache
            epochs.clear_and_flush()
            epochs.assign(2, 4)
            node.stop()
            cluster.brokers[1].stop()
            node.start()
            cluster.elect(2)
            replica = cluster.replica(2)
            assert replica.build is not None
            assert isinstance(replica.build[1].exception(60), RemoteResourceNotFoundException)
            assert replica.log.must_be_rebuilt
            assert replica.log.log_start_offset == 0

    def test_an_empty_log_begins_behind_the_tier(self) -> None:
        """The log was cut below its first segment, and is all that is left."""
        with cluster_of() as cluster:
            tiered(cluster)
            only_first(cluster)
            log = cluster.replica(2).log
            log.truncate_to(2)
            cluster.brokers[1].stop()
            cluster.elect(2)
            replica = cluster.replica(2)
            assert replica.build is not None
            replica.build[1].exception(60)
            cluster._built(replica)
            assert not log.must_be_rebuilt
            assert replica.leader.is_leading
            assert cluster.append(0, b"more") == log.log_end_offset - 1 == 4
            assert replica.epochs == {0: 0, 1: 2, 3: 4}


class TestFollowersWithRecords:
    """A follower that is in sync must not lose what is committed."""

    @staticmethod
    def restarted(cluster: Cluster) -> BrokerReplica:
        """An in-sync follower that has offsets 4 to 7 here, and starts without the lineage of 0 to 3."""
        tiered(cluster)
        only_first(cluster)
        cluster.replica(2).log.leader_epoch_cache.truncate_from_start(4)
        cluster.brokers[2].stop()
        cluster.brokers[2].start()
        replica = cluster.replica(2)
        assert replica.log.must_be_rebuilt
        assert replica.epochs == {2: 4}
        cluster.hear(2)
        return replica

    def test_its_lineage_is_completed_and_its_records_stay(self) -> None:
        """The local log of its leader has gone meanwhile: what is here is not fetched again."""
        with cluster_of() as cluster:
            replica = self.restarted(cluster)
            leader = cluster.replica(1)
            asked = []
            while replica.log.must_be_rebuilt:
                request = cluster.exchange(2)
                asked += [] if request is None else [request]
                offsets = replica.log.local_log_start_offset, replica.log.log_end_offset
                assert offsets == (4, 8), asked
                cluster.machine.clock.sleep(0.01)
            (build,) = (each for each in asked if isinstance(each, BuildAuxState))
            assert build.keeps_records
            assert replica.epochs == leader.epochs == {0: 0, 1: 2, 2: 4}
            assert producers(replica) == producers(leader)
            cluster.append(0, b"more")
            cluster.settle()
            cluster.check_committed(2)

    @pytest.mark.parametrize("rounds", range(1, 6))
    def test_its_leader_may_die_meanwhile(self, rounds: int) -> None:
        """The follower leads then, and has everything: if this fails, committed records are lost."""
        with cluster_of() as cluster:
            replica = self.restarted(cluster)
            for _ in range(rounds):
                cluster.exchange(2)
            cluster.brokers[1].stop()
            cluster.elect(2)
            if replica.build is not None:
                replica.build[1].exception(60)
                cluster._built(replica)
            assert replica.epochs == {0: 0, 1: 2, 2: 4, 3: 8}
            cluster.append(0, b"more")
            cluster.check_committed(2)

    def test_the_start_of_the_leaders_log_has_risen(self) -> None:
        """The tier's lineage begins at the start of when it was copied."""
        with cluster_of() as cluster:
            replica = self.restarted(cluster)
            cluster.replica(1).log.maybe_increment_log_start_offset(3, "deleted")
            cluster.settle()
            assert replica.epochs == {1: 3, 2: 4}
            assert replica.log.log_start_offset == 3

    def test_a_follower_of_the_brokers_own(self) -> None:
        """A broker of one's own gives the leader; the manager asks it."""
        with cluster_of() as cluster:
            replica = self.restarted(cluster)
            assert replica.term is not None
            cluster.brokers[2].wait_ready(0)
            state = cluster.states[0]
            made = cluster.brokers[2].aux_states.build(
                replica.term, Endpoint(cluster.brokers[1]), leader_epoch=state.leader_epoch
            )
            assert made.result(60).next_offset == 8
            assert replica.epochs == {0: 0, 1: 2, 2: 4}
            replica.follower.follow(1, state.leader_epoch)
            cluster.settle()
            cluster.check_committed(2)
