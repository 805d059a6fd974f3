"""A log that begins anew behind the tier, by the manager: real logs, a store and a metadata topic, from a seed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from tests.scenarios.two_brokers import Cluster, batch_of
from tests.support.index_stores import HangingStore, IndexStore
from tests.support.tier_tasks import failing
from tests.support.tiered_brokers import CONFIG, BrokerReplica, Endpoint
from tierlog.errors import StoreError
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.remote.api import (
    IndexType,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from tierlog.remote.manager.aux_states import AuxStates
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.tiered_partition import Role
from tierlog.replication import BuildAuxState, FollowerState, ReplicationError
from tierlog.runtime.machine.scheduling import CancelledError
from tierlog.testing.failing_disk import PowerCut

#: Two segments stay here.
LOCAL_CONFIG = replace(CONFIG, local_retention_bytes=300)


def producers(replica: BrokerReplica) -> dict[int, tuple[int, int, int]]:
    return {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
        for entry in replica.log._contents.producers.snapshot()
    }


def tiered(cluster: Cluster) -> None:
    """Three epochs, the transaction of producer 7 open over the border of the tier, aborted behind it; offsets 0 to 4
    are in the tier alone.
    """
    for epoch in range(3):
        cluster.elect(1)
        cluster.append(0, b"m%d" % epoch)
        cluster.append_transactional(0, epoch)
        if epoch == 1:
            cluster.settle()
            cluster.roll()
    cluster.abort(0)
    cluster.settle()
    cluster.roll()
    cluster.append(0, b"last")
    cluster.settle()
    cluster.tier()
    first = cluster.replica(1).log
    assert first.log_start_offset == 0


def shape(replica: BrokerReplica) -> tuple[object, ...]:
    offsets = replica.log.offsets
    return offsets[:5], tuple(replica.epochs.items()), tuple(sorted(producers(replica).items()))


def prepared(cluster: Cluster) -> BuildAuxState:
    """A wiped follower that asks for its aux state; nothing is built yet."""
    tiered(cluster)
    only_first(cluster)
    cluster.brokers[2].wipe(0)
    cluster.hear(2)
    replica = cluster.replica(2)
    while True:
        request = replica.follower.next_request(cluster.now_ms)
        assert request is not None
        if isinstance(request, BuildAuxState):
            cluster.brokers[2].wait_ready(0)
            return request
        try:
            cluster._answer(replica, cluster.replica(1), request)
        except ReplicationError as error:
            replica.follower.on_error(request, error.error, cluster.now_ms)


def only_first(cluster: Cluster) -> None:
    """Local retention takes the first segment alone."""
    for broker in (1, 2):
        log = cluster.replica(broker).log
        kept = log.size() - log.log_segments()[0].size_bytes
        log.update_config(replace(log.config, local_retention_bytes=kept))
        log.delete_old_segments()
        assert log.local_log_start_offset == 4, log.offsets


def cluster_of(**more: Any) -> Cluster:
    return Cluster(config=replace(CONFIG, local_retention_bytes=1 << 30), **more)


def test_a_wiped_follower_has_lineage_and_producers() -> None:
    """If this fails, a follower that leads next shows aborted records, or appends a resent batch again."""
    with cluster_of() as cluster:
        tiered(cluster)
        only_first(cluster)
        before = shape(cluster.replica(2))
        cluster.brokers[2].wipe(0)
        cluster.hear(2)
        asked = cluster.settle()
        assert any(isinstance(each, BuildAuxState) for each in asked)
        follower, leader = cluster.replica(2), cluster.replica(1)
        assert follower.log.highest_offset_in_remote_storage == 3
        assert shape(follower) == before == shape(leader)
        assert follower.epochs == {0: 0, 1: 2, 2: 4}
        assert cluster.brokers[2].services.metrics.value("build_aux_state_errors") == 0
        assert follower.log.collect_aborted_transactions(4, 8) == leader.log.collect_aborted_transactions(4, 8) != ()
        for broker in (1, 2):
            cluster.check_committed(broker)
        assert cluster.values(1) == cluster.values(2)
        cluster.elect(2)
        resent = batch_of(
            [b"t2"], now_ms=cluster.now_ms, producer_id=7, producer_epoch=0, base_sequence=2, transactional=True
        )
        end = follower.log.log_end_offset
        with contextlib.suppress(AppendRefusedError):  # no transaction is open: a duplicate, or refused
            follower.leader.append(resent, required_acks=1, now_ms=cluster.now_ms)
        assert follower.log.log_end_offset == end


def test_a_lineage_reaches_back_to_the_logs_start() -> None:
    """If this fails, nothing of the tier is found by a follower that was wiped: it has no epoch for the offsets."""
    with cluster_of() as cluster:
        prepared(cluster)
        cluster.replica(2).follower.on_error(None, None, 0)  # type: ignore[arg-type]
        replica = cluster.replica(2)
        request = BuildAuxState(2, 1, 3, 0)
        assert replica.term is not None
        built = cluster.brokers[2].aux_states.execute(replica.term, request).result(60)
        assert built.next_offset == replica.log.log_end_offset == 4
        assert [replica.log.leader_epoch_cache.epoch_for_offset(at) for at in range(4)] == [0, 0, 1, 1]
        assert producers(replica) == {7: (0, 1, 1)}
        assert replica.log.last_stable_offset == 1, "the transaction is open"


@pytest.mark.parametrize("empty", [True, False])
def test_a_broker_of_another_make_asks_its_leader(empty: bool) -> None:
    """``build`` has the same outcome as the follower's machine."""
    with cluster_of() as cluster:
        tiered(cluster)
        only_first(cluster)
        if empty:
            cluster.brokers[2].wipe(0)
            cluster.hear(2)
        else:
            cluster.replica(2).log.truncate_to(2)
            assert cluster.replica(2).log.must_be_rebuilt
        cluster.brokers[2].wait_ready(0)
        replica = cluster.replica(2)
        assert replica.term is not None
        endpoint = Endpoint(cluster.brokers[1])
        built = cluster.brokers[2].aux_states.build(replica.term, endpoint, leader_epoch=2).result(60)
        assert built.next_offset == replica.log.log_end_offset == 4
        assert (replica.epochs, replica.log.log_start_offset) == ({0: 0, 1: 2}, 0)


def test_a_leader_of_another_epoch_is_an_error() -> None:
    with cluster_of() as cluster:
        prepared(cluster)
        replica = cluster.replica(2)
        assert replica.term is not None
        build = cluster.brokers[2].aux_states.build(replica.term, Endpoint(cluster.brokers[1]), leader_epoch=1)
        error = build.exception(60)
        assert isinstance(error, ReplicationError)
        assert error.error is KafkaError.FENCED_LEADER_EPOCH
        assert replica.log.log_end_offset == 0


class TestLastTieredOffset:
    """follower.fetch.last.tiered.offset.enable: what is in the tier is not fetched from the leader."""

    CONFIG = RemoteLogManagerConfig(follower_fetch_last_tiered_offset_enable=True)

    def test_it_begins_behind_all_of_the_tier(self) -> None:
        with cluster_of(manager_config=self.CONFIG) as cluster:
            prepared(cluster)
            replica = cluster.replica(2)
            assert replica.term is not None
            build = cluster.brokers[2].aux_states.build(replica.term, Endpoint(cluster.brokers[1]), leader_epoch=2)
            assert build.result(60).next_offset == replica.log.log_end_offset == 7
            assert replica.epochs == {0: 0, 1: 2, 2: 4}
            assert cluster.replica(1).log.local_log_start_offset == 4

    def test_a_leader_that_does_not_know_is_asked_later(self) -> None:
        """It has only just begun to lead, and has not looked up yet what is copied."""
        with cluster_of(manager_config=self.CONFIG) as cluster:
            prepared(cluster)
            cluster.brokers[1].directory.checkpoint()
            cluster.brokers[1].stop()
            cluster.brokers[1].start()
            cluster.elect(1)
            assert cluster.replica(1).log.highest_offset_in_remote_storage == -1
            replica = cluster.replica(2)
            assert replica.term is not None
            cluster.brokers[2].wait_ready(0)
            build = cluster.brokers[2].aux_states.build(replica.term, Endpoint(cluster.brokers[1]), leader_epoch=3)
            error = build.exception(60)
            assert isinstance(error, ReplicationError)
            assert error.error is KafkaError.OFFSET_NOT_AVAILABLE
            assert replica.log.log_end_offset == 0


class TestFailures:
    """A failure before the switch leaves the log as it was, and the follower asks again."""

    @pytest.mark.parametrize(
        "error", [RetriableRemoteStorageException("away"), RemoteStorageException("broken"), OSError("any")]
    )
    def test_the_store_fails(self, error: Exception) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            before = shape(replica)
            node.storage.refuses = error  # type: ignore[assignment]
            assert replica.term is not None
            assert node.aux_states.execute(replica.term, build).exception(60) is error
            assert shape(replica) == before
            cluster.machine.clock.sleep(0.1)
            counts = node.services.metrics
            failed = not getattr(error, "retriable", False)
            assert counts.count("build_aux_state_requests", "orders") == 1
            assert counts.count("build_aux_state_errors", "orders") == failed
            node.storage.refuses = None
            assert node.aux_states.execute(replica.term, build).result(60).next_offset == 4

    def test_the_metadata_manager_fails(self) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            assert replica.term is not None
            error = RemoteStorageException("no answer")

            def fail(*_: object) -> None:
                raise error

            node.metadata.remote_log_segment_metadata = fail  # type: ignore[method-assign,assignment]
            assert node.aux_states.execute(replica.term, build).exception(60) is error
            cluster.machine.clock.sleep(0.1)
            counts = node.services.metrics
            assert counts.count("build_aux_state_requests", "orders") == 1
            assert counts.count("build_aux_state_errors", "orders") == 1
            assert replica.log.log_end_offset == 0

    def test_the_segment_is_not_known_yet(self) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            assert replica.term is not None
            other = replace_request(build, epoch=0)
            error = node.aux_states.execute(replica.term, other).exception(60)
            assert isinstance(error, RemoteResourceNotFoundException)
            assert replica.log.log_end_offset == 0

    @pytest.mark.parametrize("kind", [IndexType.LEADER_EPOCH, IndexType.PRODUCER_SNAPSHOT])
    @pytest.mark.parametrize("content", [b"", b"\0\0"])
    def test_what_the_tier_has_is_damaged(self, kind: IndexType, content: bytes) -> None:
        """A lineage cut short, a snapshot that is none: an error, and the old log."""
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            IndexStore(node).damage = lambda of, whole: (content or whole[:-3]) if of is kind else whole
            before = shape(replica)
            assert replica.term is not None
            assert node.aux_states.execute(replica.term, build).exception(60) is not None
            assert shape(replica) == before

    def test_a_lineage_that_does_not_reach_the_start_is_refused(self) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            short = b"0\n1\n1 2\n"
            IndexStore(node).damage = lambda of, whole: short if of is IndexType.LEADER_EPOCH else whole
            assert replica.term is not None
            error = node.aux_states.execute(replica.term, build).exception(60)
            assert isinstance(error, RemoteStorageException)
            assert replica.log.log_end_offset == 0

    def test_there_is_no_log(self) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            assert replica.term is not None
            del node.replicas[0]
            error = node.aux_states.execute(replica.term, build).exception(60)
            assert isinstance(error, ReplicationError)
            node.replicas[0] = replica


def replace_request(build: BuildAuxState, *, epoch: int) -> BuildAuxState:
    return BuildAuxState(build.leader_epoch, epoch, build.offset, build.log_start_offset)


class TestEnds:
    """A build whose time is up, or that is not wanted any more, changes nothing later."""

    def test_its_time_is_up(self) -> None:
        config = RemoteLogManagerConfig(aux_state_timeout_ms=5000)
        with cluster_of(manager_config=config) as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            store = IndexStore(node)
            store.held = IndexType.PRODUCER_SNAPSHOT
            began = cluster.machine.clock.monotonic_seconds()
            assert replica.term is not None
            made = node.aux_states.execute(replica.term, build)
            error = made.exception()
            assert isinstance(error, RetriableRemoteStorageException)
            assert cluster.machine.clock.monotonic_seconds() - began == pytest.approx(5, abs=0.2)
            store.held = None
            cluster.machine.clock.sleep(1)
            assert (store.asked, replica.log.log_end_offset) == (2, 0), "what came too late is dropped"

    @pytest.mark.parametrize("by_term", [True, False])
    def test_it_is_cancelled(self, by_term: bool) -> None:
        """A broker that is to lead cancels first: else the switch would take what it appends then."""
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            store = IndexStore(node)
            store.held = IndexType.LEADER_EPOCH
            assert replica.term is not None
            made = node.aux_states.execute(replica.term, build)
            cluster.machine.clock.sleep(1)
            assert not made.done()
            if by_term:
                replica.begin_term(Role.FOLLOWER)
            else:
                assert made.cancel()
            assert made.cancelled()
            with pytest.raises(CancelledError):
                made.result()
            store.held = None
            cluster.machine.clock.sleep(1)
            assert replica.log.log_end_offset == 0
            assert made.cancel(), "still"

    @pytest.mark.parametrize("by_term", [True, False])
    def test_its_stream_is_closed(self, by_term: bool) -> None:
        """If this fails, a store that hangs holds the few threads of aux states for ever."""
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            stream = HangingStore(node).stream
            assert replica.term is not None
            made = node.aux_states.execute(replica.term, build)
            cluster.machine.clock.sleep(1)
            assert (stream.is_read, stream.is_closed) == (True, False)
            if by_term:
                replica.begin_term(Role.FOLLOWER)
            else:
                assert made.cancel()
            cluster.machine.clock.sleep(1)
            assert stream.is_closed
            assert made.cancelled()

    def test_a_build_that_is_done_is_not_cancelled(self) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            assert replica.term is not None
            made = node.aux_states.execute(replica.term, build)
            assert made.result(60).next_offset == 4
            assert not made.cancel()
            assert not made.cancelled()

    def test_closed_states_build_nothing(self) -> None:
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            with AuxStates(node.services) as states:
                pass
            assert replica.term is not None
            assert states.execute(replica.term, build).cancelled()


def test_metadata_that_are_not_loaded_hold_no_thread() -> None:
    """With one thread, a partition whose metadata are not there delays no other."""
    config = RemoteLogManagerConfig(aux_state_thread_pool_size=1)
    with cluster_of(manager_config=config, partitions=2) as cluster:
        build = prepared(cluster)
        node = cluster.brokers[2]
        cluster.topic.unavailable = True
        cluster.elect(1, 1)
        waiting, ready = cluster.replica(2, 1), cluster.replica(2)
        assert waiting.term is not None
        assert ready.term is not None
        first = node.aux_states.execute(waiting.term, build)
        assert node.aux_states.execute(ready.term, build).result(60).next_offset == 4
        assert not first.done()
        cluster.topic.unavailable = False
        assert isinstance(first.exception(), RemoteResourceNotFoundException), "it is asked for, once it can be"


def test_power_may_go_at_any_change_of_the_disk() -> None:
    """The next start finds the log of before, or the new one whole; the follower goes on, and has all in the end."""
    outcomes = set[int]()
    at = 0
    while True:
        at += 1
        with cluster_of() as cluster:
            build = prepared(cluster)
            replica, node = cluster.replica(2), cluster.brokers[2]
            power = PowerCut(node.files, at=at, seed=at)
            assert replica.term is not None
            with contextlib.suppress(StoreError):
                node.aux_states.execute(replica.term, build).result(60)
            is_cut = power.seen >= at
            if is_cut:
                node.files = power.cut()
                node._down()
                node.aux_states.close()
                node.metadata.close()
                node.start()
                end = cluster.replica(2).log.log_end_offset
                assert end in (0, 4)
                outcomes.add(end)
                cluster.hear(2)
            else:
                power.cut()
                node._down()
                node.aux_states.close()
                node.metadata.close()
                break
            cluster.settle()
            assert cluster.replica(2).epochs == cluster.replica(1).epochs
            assert producers(cluster.replica(2)) == producers(cluster.replica(1))
            cluster.check_committed(2)
    assert outcomes == {0, 4}
    assert at > 5


def test_a_follower_looks_up_what_is_copied() -> None:
    """Its local retention deletes only that, and it is right when it leads next."""
    with cluster_of() as cluster:
        tiered(cluster)
        replica = cluster.replica(2)
        assert replica.term is not None
        assert replica.term.offsets.copied == (6, 2)
        assert replica.log.highest_offset_in_remote_storage == 6
        lookups = cluster.brokers[2].lookups
        assert lookups.run(replica.term) == 30.0
        replica.term.end()
        assert lookups.run(replica.term) is None
        replica.term = None


def test_a_look_up_that_fails_ends_no_schedule() -> None:
    with cluster_of() as cluster:
        cluster.elect(1)
        cluster.append(0, b"m0")
        cluster.settle()
        replica, node = cluster.replica(2), cluster.brokers[2]
        assert replica.term is not None
        node.metadata.close()
        pauses = [node.lookups.run(replica.term) for _ in range(3)]
        assert pauses == [pytest.approx(each, rel=0.2) for each in (0.5, 1, 2)]
        assert replica.follower.state is not FollowerState.FAILED


def test_pauses_of_look_ups_begin_anew_behind_a_good_one() -> None:
    """Else a follower that has met many short faults looks up its copied offset late, and keeps its local log."""
    with cluster_of() as cluster:
        cluster.elect(1)
        cluster.append(0, b"m0")
        cluster.settle()
        replica, node = cluster.replica(2), cluster.brokers[2]
        assert replica.term is not None
        for _ in range(2):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(replica.term.offsets), "look_up_copied", failing(RemoteStorageException("no")))
                pauses = [node.lookups.run(replica.term) for _ in range(3)]
            assert pauses == [pytest.approx(each, rel=0.2) for each in (0.5, 1, 2)]
            assert node.lookups.run(replica.term) == 30.0


class TestAnotherBranch:
    """The tier's segment goes on in a branch that an unclean election has ended, and the leader has nothing older."""

    @staticmethod
    def abandoned(cluster: Cluster) -> None:
        """Broker 1 alone writes and tiers the end of a segment, with two aborts in it."""
        cluster.elect(1)
        cluster.append(0, b"first")
        cluster.append_transactional(0, 0)
        cluster.settle()
        cluster.roll(brokers=[1, 2])
        cluster.append_transactional(0, 1)
        cluster.append_transactional(0, 0, producer=8)
        cluster.settle()
        cluster.roll(brokers=[2])  # broker 1's segment goes on
        cluster.elect(1, in_sync=[1])
        cluster.abort(0)
        cluster.abort(0, producer=8)
        cluster.append(0, b"of a dead branch")
        cluster.commit(cluster.replica(1))
        cluster.roll(brokers=[1])
        cluster.append(0, b"open")
        cluster.commit(cluster.replica(1))
        copied = cluster.tier()
        assert [(each.start_offset, each.end_offset) for each in copied] == [(0, 1), (2, 6)]

    def test_a_follower_begins_where_its_leader_goes_on(self) -> None:
        """If this fails, a follower takes the segment, is cut below it, takes it again, and is never in sync."""
        with cluster_of() as cluster:
            self.abandoned(cluster)
            border = cluster.replica(2).log.log_end_offset
            cluster.written[0].lose(border)
            log = cluster.replica(2).log
            snapshot = log.snapshot_at(border)
            assert snapshot is not None
            log.start_from_tier(
                border,
                log_start_offset=0,
                epochs=log.leader_epoch_cache.epoch_with_offsets().items(),
                producer_snapshot=snapshot,
            )
            cluster.elect(2, in_sync=[2])
            cluster.append(0, b"of the branch that goes on")
            cluster.commit(cluster.replica(2))
            cluster.brokers[1].wipe(0)
            cluster.hear(1)
            asked = cluster.settle()
            builds = [each.end_offset_max for each in asked if isinstance(each, BuildAuxState)]
            assert builds == [None, border]
            follower, leader = cluster.replica(1), cluster.replica(2)
            assert follower.log.local_log_start_offset == border
            assert shape(follower) == shape(leader)
            assert producers(follower) == {7: (0, 1, 1), 8: (0, 0, 3)}
            assert follower.log.highest_offset_in_remote_storage == border - 1
            cluster.check_committed(1)
