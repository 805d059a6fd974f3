"""A leader: acknowledgements, the in-sync set, the high watermark, fencing, offsets. Logs are real, in memory."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.replicas import Replica, batch_of, controlled, settle
from tierlog.log.local.log_errors import KafkaError, LogTruncatedError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.replication import (
    AlterPartition,
    Brokers,
    BrokerState,
    Completed,
    FetchRecords,
    Leader,
    LeaderAndIsr,
    LeaderSettings,
    OffsetAndEpoch,
    ReplicationError,
    tick_all,
)
from tierlog.runtime.machine.clock import ManualClock

LEADER: Final = 1
REPLICAS: Final = (1, 2, 3)
LAG_MS: Final = 1000


class Rig:
    """A leader and two followers, whose fetches a test makes itself."""

    def __init__(
        self, *, in_sync: tuple[int, ...] = REPLICAS, minimum: int = 1, clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.brokers = Brokers({broker: BrokerState(broker * 10) for broker in (2, 3)})
        self.replica = Replica(
            LEADER,
            self.clock,
            self.brokers,
            leader_settings=LeaderSettings(replica_lag_time_max_ms=LAG_MS, min_insync_replicas=minimum),
        )
        self.leader, self.log = self.replica.leader, self.replica.log
        self.state = LeaderAndIsr(5, 0, REPLICAS, frozenset(in_sync))
        self.leader.lead(self.state, self.now_ms)

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms()

    def wait(self, ms: int) -> None:
        self.clock.advance(ms / 1000 + 1e-6)

    def fetch(
        self, broker: int, offset: int, *, broker_epoch: int | None = None, log_start: int = 0, epoch: int = 5
    ) -> int:
        """A follower's fetch; how many bytes it gets."""
        asked = FetchRecords(5, offset, epoch if offset else -1, log_start)
        answer = self.leader.fetch(
            broker,
            asked,
            max_bytes=1 << 20,
            now_ms=self.now_ms,
            broker_epoch=broker * 10 if broker_epoch is None else broker_epoch,
        )
        return sum(part.size_bytes for part in answer.records)

    def proposed(self) -> list[AlterPartition]:
        return [each for each in self.leader.take_actions() if isinstance(each, AlterPartition)]

    def accept(self, proposal: AlterPartition) -> None:
        members = frozenset(broker for broker, _ in proposal.in_sync_replicas)
        state = LeaderAndIsr(proposal.leader_epoch, proposal.partition_epoch + 1, REPLICAS, members)
        self.leader.on_altered(proposal, state, self.now_ms)


def refused(error: KafkaError, call: object, *arguments: object, **more: object) -> None:
    with pytest.raises(ReplicationError) as raised:
        call(*arguments, **more)  # type: ignore[operator]
    assert raised.value.error is error


# ---- the high watermark and acknowledgements


def test_the_high_watermark_is_the_smallest_end_of_the_in_sync_set() -> None:
    """If this fails, a record is acknowledged that one crash takes."""
    rig = Rig()
    rig.replica.append(b"a")
    rig.replica.append(b"b")
    rig.fetch(2, 2)
    assert rig.log.high_watermark == 0, "the third has not fetched"
    rig.fetch(3, 1)
    assert rig.log.high_watermark == 1
    rig.fetch(3, 2)
    assert rig.log.high_watermark == 2


def test_a_caught_up_follower_about_to_join_is_waited_for() -> None:
    """The high watermark passes no follower that joins in the next moment, and would lack what was committed."""
    rig = Rig(in_sync=(1,))
    rig.replica.append(b"a")
    assert rig.log.high_watermark == 1
    rig.fetch(2, 1)
    assert [each.in_sync_replicas for each in rig.proposed()] == [((1, 1), (2, 20))]
    rig.replica.append(b"b")
    assert rig.log.high_watermark == 1, "it may be in the set by now"
    rig.fetch(2, 2)
    assert rig.log.high_watermark == 2


def test_a_follower_that_never_caught_up_is_not_waited_for_by_a_clock_that_just_began() -> None:
    """If this fails, producers get no acknowledgement from a machine that has just started, since a replica that is out
    of the set runs and does not fetch.
    """
    rig = Rig(in_sync=(1,), clock=ManualClock(time_ms=0))
    rig.replica.append(b"a")
    assert rig.log.high_watermark == 1
    rig.fetch(2, 0)
    rig.replica.append(b"b")
    assert rig.log.high_watermark == 2, "nor for one that has fetched far behind"


def test_the_high_watermark_stands_still_below_the_minimum() -> None:
    """KIP-966: what too few replicas have is not committed, whatever their ends are."""
    rig = Rig(in_sync=(1,), minimum=2)
    rig.replica.append(b"a")
    rig.fetch(2, 1)
    assert rig.log.high_watermark == 0
    (proposal,) = rig.proposed()
    rig.accept(proposal)
    assert rig.log.high_watermark == 1


def test_acknowledgements_wait_for_the_high_watermark() -> None:
    """Acks = all: a producer is told only when all of the set has it, in the order of its offsets."""
    rig = Rig(in_sync=(1, 2))
    for token in ("a", "b"):
        rig.leader.wait_for_replication(rig.replica.append(b"x", acks=-1), token)
    rig.leader.wait_for_replication(9, "later")
    assert rig.leader.take_actions() == []
    rig.fetch(2, 2)
    assert controlled(rig.replica) == [Completed("a", None), Completed("b", None)]
    rig.leader.cancel("later")
    rig.leader.resign()
    assert rig.leader.take_actions() == []


def test_too_few_in_sync_replicas() -> None:
    """Before an append it is refused; behind one it is told, for the record may still be lost."""
    rig = Rig(in_sync=(1, 2), minimum=2)
    rig.leader.wait_for_replication(rig.replica.append(b"x", acks=-1), "x")
    rig.wait(LAG_MS + 1)
    rig.leader.tick(rig.now_ms)
    (proposal,) = rig.proposed()
    assert proposal.in_sync_replicas == ((1, 1),)
    rig.accept(proposal)
    refused(KafkaError.NOT_ENOUGH_REPLICAS, rig.leader.append, batch_of([b"y"]), required_acks=-1, now_ms=0)
    assert rig.replica.append(b"y", acks=1) == 2
    rig.log.maybe_increment_high_watermark(1)
    rig.leader.wait_for_replication(1, "late")
    assert Completed("late", KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND) in rig.leader.take_actions()


def test_just_enough_in_sync_replicas() -> None:
    """With min.insync.replicas=2 two are enough: else each send of a cluster that has lost one broker fails."""
    rig = Rig(in_sync=(1, 2), minimum=2)
    rig.leader.wait_for_replication(rig.replica.append(b"x", acks=-1), "x")
    rig.fetch(2, 1)
    assert rig.leader.take_actions() == [Completed("x", None)]


def test_the_minimum_is_not_above_the_number_of_replicas() -> None:
    """A topic of one replica with min.insync.replicas=2 works, as in Kafka."""
    rig = Rig(minimum=2)
    rig.leader.lead(LeaderAndIsr(6, 1, (1,), frozenset((1,))), rig.now_ms)
    rig.replica.append(b"a", acks=-1)
    assert rig.log.high_watermark == 1


def test_resigning_ends_what_waits() -> None:
    """If this fails, a producer waits for a leader that leads no more."""
    rig = Rig()
    rig.leader.wait_for_replication(4, "produce")
    rig.leader.wait_for_records(0, FetchIsolation.HIGH_WATERMARK, "fetch")
    rig.leader.resign()
    assert set(rig.leader.take_actions()) == {
        Completed("produce", KafkaError.NOT_LEADER_OR_FOLLOWER),
        Completed("fetch", KafkaError.NOT_LEADER_OR_FOLLOWER),
    }
    refused(KafkaError.NOT_LEADER_OR_FOLLOWER, rig.replica.append, b"x")
    refused(KafkaError.NOT_LEADER_OR_FOLLOWER, rig.fetch, 2, 0)


def test_long_polls_wait_for_their_isolation() -> None:
    """A follower is woken by an append, a consumer by the high watermark."""
    rig = Rig(in_sync=(1, 2))
    rig.leader.wait_for_records(0, FetchIsolation.LOG_END, "follower")
    rig.leader.wait_for_records(0, FetchIsolation.HIGH_WATERMARK, "consumer")
    rig.replica.append(b"x")
    assert rig.leader.take_actions() == [Completed("follower", None)]
    rig.fetch(2, 1)
    assert rig.leader.take_actions() == [Completed("consumer", None)]
    rig.leader.wait_for_records(0, FetchIsolation.TXN_COMMITTED, "at once")
    assert rig.leader.take_actions() == [Completed("at once", None)]


# ---- the in-sync set


def test_a_follower_that_lags_leaves_and_joins_again() -> None:
    """replica.lag.time.max.ms, counted from when it last had all that there was."""
    rig = Rig()
    rig.replica.append(b"a")
    rig.fetch(2, 1)
    rig.wait(LAG_MS)
    assert tick_all([rig.leader], rig.now_ms) == []
    rig.wait(1)
    assert tick_all([rig.leader], rig.now_ms) == [rig.leader]
    (proposal,) = rig.proposed()
    assert proposal.in_sync_replicas == ((1, 1), (2, 20)), "the other is at the end, however long ago it asked"
    rig.accept(proposal)
    assert rig.log.high_watermark == 1
    rig.fetch(3, 0)
    assert rig.proposed() == []
    rig.fetch(3, 1)
    (proposal,) = rig.proposed()
    assert proposal.in_sync_replicas == ((1, 1), (2, 20), (3, 30))


def test_a_follower_that_is_always_one_fetch_behind_stays() -> None:
    """A busy partition's follower never reaches the end, but what was the end at its fetch before."""
    rig = Rig(in_sync=(1, 2))
    for at in range(8):
        rig.replica.append(b"x")
        rig.fetch(2, at)
        rig.wait(LAG_MS // 2)
        rig.leader.tick(rig.now_ms)
        assert rig.proposed() == []


def test_a_follower_that_falls_behind_leaves_though_it_fetches() -> None:
    """Each acknowledgement would wait for a broker that is slower than the producers, the longer the more."""
    rig = Rig(in_sync=(1, 2))
    for at in range(3):
        rig.replica.append(b"x")
        rig.replica.append(b"y")
        rig.fetch(2, at)
        rig.leader.tick(rig.now_ms)
        assert rig.proposed() == []
        rig.wait(LAG_MS // 2)
    rig.leader.tick(rig.now_ms)
    assert [each.in_sync_replicas for each in rig.proposed()] == [((1, 1),)]


def test_one_proposal_at_a_time() -> None:
    """Two would be judged by one partition epoch; the second waits for the controller's word on the first."""
    rig = Rig(in_sync=(1,))
    rig.fetch(2, 0)
    (first,) = rig.proposed()
    rig.fetch(3, 0)
    assert rig.proposed() == []
    rig.accept(first)
    rig.fetch(3, 0)
    assert [each.partition_epoch for each in rig.proposed()] == [1]


def test_answers_by_partition_epoch() -> None:
    """The set of a controller that had it already has the same epoch: a leader that takes that for an old answer
    proposes nothing any more.
    """
    rig = Rig(in_sync=(1,))
    rig.fetch(2, 0)
    (first,) = rig.proposed()
    rig.accept(first)
    rig.fetch(3, 0)
    (second,) = rig.proposed()
    rig.leader.on_altered(second, LeaderAndIsr(5, 0, REPLICAS, frozenset((1,))), rig.now_ms)
    assert rig.leader.in_sync.is_pending, "the state before the first one"
    assert rig.leader.in_sync.members == {1, 2}
    rig.leader.on_altered(second, LeaderAndIsr(5, 1, REPLICAS, frozenset(REPLICAS)), rig.now_ms)
    assert not rig.leader.in_sync.is_pending
    assert rig.leader.in_sync.members == {1, 2, 3}


@pytest.mark.parametrize(
    ("error", "again", "maximal"),
    [
        (None, True, {1, 2}),
        (KafkaError.UNKNOWN_SERVER_ERROR, True, {1, 2}),
        (KafkaError.INELIGIBLE_REPLICA, False, {1}),
        (KafkaError.OPERATION_NOT_ATTEMPTED, False, {1}),
        (KafkaError.INVALID_UPDATE_VERSION, False, {1, 2}),
        (KafkaError.FENCED_LEADER_EPOCH, False, {1, 2}),
    ],
)
def test_a_proposal_that_fails(error: KafkaError | None, again: bool, maximal: set[int]) -> None:
    """Where the controller may have applied it, the follower counts until newer word comes."""
    rig = Rig(in_sync=(1,))
    rig.fetch(2, 0)
    (proposal,) = rig.proposed()
    rig.leader.on_alter_failed(proposal, error)
    assert rig.proposed() == ([proposal] if again else [])
    assert rig.leader.in_sync.maximal == maximal
    assert rig.leader.in_sync.is_pending == (maximal == {1, 2})
    rig.leader.lead(LeaderAndIsr(5, 7, REPLICAS, frozenset((1,))), rig.now_ms)
    assert not rig.leader.in_sync.is_pending
    rig.leader.on_altered(proposal, LeaderAndIsr(5, 8, REPLICAS, frozenset((1, 2))), rig.now_ms)
    assert rig.leader.in_sync.members == {1}, "the answer to a proposal that newer word has ended"


def test_brokers_that_may_not_join() -> None:
    """KIP-841, KIP-903: a broker that is fenced, stopping, unknown, or of an earlier life."""
    rig = Rig(in_sync=(1,))
    for state in (BrokerState(20, is_fenced=True), BrokerState(20, is_shutting_down=True), BrokerState(19), None):
        rig.brokers.update(2, state)
        rig.fetch(2, 0)
        assert rig.proposed() == []
    rig.brokers.update(2, BrokerState(21))
    refused(KafkaError.NOT_LEADER_OR_FOLLOWER, rig.fetch, 2, 0, broker_epoch=20)
    rig.fetch(2, 0, broker_epoch=-1)
    assert [each.in_sync_replicas for each in rig.proposed()] == [((1, 1), (2, 21))]


def test_a_follower_below_the_epochs_start_does_not_join() -> None:
    """A leader whose high watermark lags: who joins must have all that the leader began with."""
    rig = Rig(in_sync=(1,))
    for _ in range(3):
        rig.replica.append(b"x")
    rig.leader.resign()
    rig.leader.lead(LeaderAndIsr(6, 1, REPLICAS, frozenset((1, 3))), rig.now_ms)
    asked = FetchRecords(6, 2, 5, 0)
    rig.leader.fetch(2, asked, max_bytes=1, now_ms=rig.now_ms, broker_epoch=20)
    assert rig.proposed() == []
    rig.leader.fetch(2, FetchRecords(6, 3, 5, 0), max_bytes=1, now_ms=rig.now_ms, broker_epoch=20)
    assert len(rig.proposed()) == 1


# ---- fencing


def test_before_its_first_leadership() -> None:
    """A broker has a leader for each replica: if this fails, one that has never led takes records."""
    rig = Rig()
    leader = Leader(rig.log, LEADER, rig.brokers)
    refused(KafkaError.NOT_LEADER_OR_FOLLOWER, leader.append, batch_of([b"x"]), required_acks=1, now_ms=0)
    leader.tick(1 << 40)
    assert leader.take_actions() == []
    assert leader.lead(LeaderAndIsr(6, 0, REPLICAS, frozenset((1,))), rig.now_ms)
    assert leader.is_leading


def test_requests_of_other_epochs_are_refused() -> None:
    """A leader answers only those who know which leadership they ask."""
    rig = Rig()
    for epoch, error in ((4, KafkaError.FENCED_LEADER_EPOCH), (6, KafkaError.UNKNOWN_LEADER_EPOCH)):
        asked = FetchRecords(epoch, 0, -1, 0)
        refused(error, rig.leader.fetch, 2, asked, max_bytes=1, now_ms=0, broker_epoch=20)
        refused(error, rig.leader.end_offset_for_epoch, 0, leader_epoch=epoch)
        refused(error, rig.leader.list_offset, -1, isolation=FetchIsolation.LOG_END, leader_epoch=epoch)
    refused(KafkaError.UNKNOWN_LEADER_EPOCH, rig.fetch, 4, 0)


def test_older_word_of_the_controller_changes_nothing() -> None:
    """Metadata may come late, and twice."""
    rig = Rig()
    for state in (
        LeaderAndIsr(4, 9, REPLICAS, frozenset((1,))),
        LeaderAndIsr(5, 0, REPLICAS, frozenset((1,))),
    ):
        assert not rig.leader.lead(state, rig.now_ms)
        assert rig.leader.in_sync.members == set(REPLICAS)
    assert not rig.leader.lead(LeaderAndIsr(5, 1, REPLICAS, frozenset((1,))), rig.now_ms), "no new leadership"
    assert rig.leader.in_sync.members == {1}
    assert rig.leader.lead(LeaderAndIsr(6, 2, REPLICAS, frozenset((1,))), rig.now_ms)
    assert rig.replica.epochs == {6: 0}


def test_a_fetch_out_of_range() -> None:
    """In front of the log's start, behind its end, in an epoch that nobody knows."""
    rig = Rig()
    for _ in range(3):
        rig.replica.append(b"x")
    rig.log.update_high_watermark(3)
    rig.log.maybe_increment_log_start_offset(2, "a test")
    for asked in (FetchRecords(5, 1, 5, 0), FetchRecords(5, 9, -1, 0), FetchRecords(5, 3, 6, 0)):
        refused(KafkaError.OFFSET_OUT_OF_RANGE, rig.leader.fetch, 2, asked, max_bytes=1, now_ms=0, broker_epoch=20)


def test_records_are_handed_out_as_slices_of_the_log() -> None:
    """A broker sends them from the file; what a cut took since is no answer of this log any more."""
    rig = Rig()
    rig.replica.append(b"a" * 100)
    rig.replica.append(b"b" * 100)
    answer = rig.leader.fetch(2, FetchRecords(5, 0, -1, 0), max_bytes=1 << 20, now_ms=0, broker_epoch=20)
    (found,) = rig.log.read(0, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END).records
    (part,) = answer.records
    assert part == found, "the log's own slice"
    assert [bytes(data) for data in answer.read().records] == [bytes(found.read())]
    rig.log.truncate_to(1)
    with pytest.raises(LogTruncatedError):
        answer.read()


# ---- offsets


def test_list_offsets() -> None:
    """Section 6 of the protocol's notes: what clients, followers and debugging consumers are told."""
    rig = Rig(in_sync=(1, 2))
    for _ in range(3):
        rig.replica.append(b"x")
    rig.fetch(2, 2)

    def told(timestamp: int, isolation: FetchIsolation) -> OffsetAndEpoch:
        return rig.leader.list_offset(timestamp, isolation=isolation)

    assert told(-1, FetchIsolation.LOG_END) == (3, 5)
    assert told(-1, FetchIsolation.HIGH_WATERMARK) == (2, 5)
    assert told(-2, FetchIsolation.HIGH_WATERMARK) == (0, 5)
    assert told(0, FetchIsolation.HIGH_WATERMARK) == (0, 5)
    assert told(1 << 50, FetchIsolation.HIGH_WATERMARK) == (-1, -1)
    rig.leader.resign()
    rig.leader.lead(LeaderAndIsr(6, 1, REPLICAS, frozenset((1, 2))), rig.now_ms)
    for timestamp in (-1, 1 << 50):
        refused(
            KafkaError.OFFSET_NOT_AVAILABLE,
            rig.leader.list_offset,
            timestamp,
            isolation=FetchIsolation.HIGH_WATERMARK,
        )
    assert told(-2, FetchIsolation.HIGH_WATERMARK) == (0, 5)
    assert told(-1, FetchIsolation.LOG_END) == (3, 6)


def test_records_are_deleted_once_all_live_replicas_have() -> None:
    """DeleteRecords' low watermark; a dead broker is not waited for."""
    rig = Rig()
    for _ in range(3):
        rig.replica.append(b"x")
    for broker in (2, 3):
        rig.fetch(broker, 3)
    assert rig.leader.delete_records(-1, "all") == 3
    assert controlled(rig.replica) == []
    rig.fetch(2, 3, log_start=3)
    assert (controlled(rig.replica), rig.leader.low_watermark) == ([], 0)
    rig.brokers.update(3, None)
    rig.fetch(2, 3, log_start=3)
    assert (controlled(rig.replica), rig.leader.low_watermark) == ([Completed("all", None)], 3)
    for offset in (-2, 4):
        refused(KafkaError.OFFSET_OUT_OF_RANGE, rig.leader.delete_records, offset, "no")
    rig.leader.settings = LeaderSettings(deletes_records=False)
    refused(KafkaError.POLICY_VIOLATION, rig.leader.delete_records, 3, "no")


def test_a_consumer_is_sent_to_its_rack() -> None:
    """KIP-392: the furthest replica of the rack that has the offset; else the leader."""
    rig = Rig()
    for _ in range(3):
        rig.replica.append(b"x")
    rig.fetch(2, 2)
    rig.fetch(3, 3)
    racks = {1: "a", 2: "b", 3: "b"}
    assert rig.leader.preferred_read_replica(1, "b", racks) == 3
    assert rig.leader.preferred_read_replica(3, "b", racks) == 3
    assert rig.leader.preferred_read_replica(1, "a", racks) is None
    assert rig.leader.preferred_read_replica(1, "c", racks) is None
    assert rig.leader.preferred_read_replica(1, None, racks) is None


def test_a_tick_of_ten_thousand_leaders_looks_at_those_that_are_due() -> None:
    """The bar is 5 ms; here it is which of them are looked at."""
    rigs = [Rig(in_sync=(1, 2)) for _ in range(20)]
    leaders: list[Leader] = [rig.leader for rig in rigs]
    for rig in rigs:
        rig.replica.append(b"x")
    rigs[3].fetch(2, 1)
    now_ms = rigs[0].now_ms + LAG_MS + 1
    assert len(tick_all(leaders, now_ms)) == 19
    assert tick_all(leaders, now_ms) == [], "a proposal is pending: nothing is due"


def test_followers_and_leader_agree() -> None:
    """The machines of both sides, three replicas, to the end."""
    clock, brokers = ManualClock(), Brokers()
    one, two, three = (Replica(broker, clock, brokers) for broker in REPLICAS)
    one.lead(LeaderAndIsr(0, 0, REPLICAS, frozenset((1,))), 0)
    for value in (b"a", b"b", b"c"):
        one.append(value)
    for other in (two, three):
        other.follow(1, 0)
        settle(other, one)
    assert one.leader.in_sync.members == set(REPLICAS)
    assert one.values() == two.values() == three.values() == [b"a", b"b", b"c"]
