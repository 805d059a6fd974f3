"""What must not come and comes: from a leader, a follower, a controller, a clock. Each is refused with its error, the
partition is as it was, and others are untouched.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.replicas import BACKOFF_MS, Replica, asked, batch_of, grown, made, sent
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.replication import (
    AlterPartition,
    AskOffset,
    Brokers,
    EpochEnd,
    FetchedRecords,
    FetchRecords,
    FollowerState,
    LeaderAndIsr,
    LeaderSettings,
    OffsetAndEpoch,
    ReplicationError,
)
from tierlog.runtime.machine.clock import ManualClock

REPLICAS: Final = (1, 2, 3)
LAG_MS: Final = 1000
DAY_MS: Final = 86_400_000


def contents(replica: Replica) -> tuple[object, ...]:
    """All that a partition is."""
    log = replica.log
    offsets = log.log_start_offset, log.local_log_start_offset, log.high_watermark, log.log_end_offset
    return *offsets, replica.epochs, replica.epochs_on_disk, replica.records()


def damaged(batch: bytes, position: int, new: bytes) -> bytes:
    return batch[:position] + new + batch[position + len(new) :]


def following(epoch: int = 3) -> Replica:
    """A replica with offsets 5 and 6 of epoch 2, that follows broker 1."""
    replica = made()
    replica.log.truncate_fully_and_start_at(5)
    grown(replica, 2, epoch=2)
    replica.follower.follow(1, epoch)
    return replica


# ---- of a leader


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (sent(8, epoch=3) + sent(7, epoch=3), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(7, epoch=3) + sent(7, epoch=3), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(6, epoch=2, count=3), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(5, epoch=2), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(4, epoch=2), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(7, epoch=1), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(7, epoch=3) + sent(8, epoch=2), KafkaError.UNKNOWN_SERVER_ERROR),
        (sent(7, epoch=-1), KafkaError.UNKNOWN_SERVER_ERROR),
        (damaged(sent(7, epoch=3), 0, b"\xff" * 8), KafkaError.UNKNOWN_SERVER_ERROR),
        (damaged(sent(7, epoch=3), 23, b"\xff" * 4), KafkaError.CORRUPT_MESSAGE),
        (sent(7, epoch=3) + damaged(sent(8, epoch=3), 60, b"?"), KafkaError.CORRUPT_MESSAGE),
        (damaged(sent(7, epoch=3), 16, b"\x05"), KafkaError.CORRUPT_MESSAGE),
    ],
    ids=[
        "out of order",
        "an offset twice",
        "begins within the log",
        "below the log's end",
        "below the log's start",
        "an epoch below the log's last",
        "epochs that fall",
        "no epoch",
        "a negative offset",
        "ends before it begins",
        "the second one damaged",
        "a magic of no format",
    ],
)
def test_records_that_no_leader_sends(records: bytes, error: KafkaError) -> None:
    """If this fails, one bad answer ends a replica, or makes it a fork."""
    replica, other = following(), following()
    follower, before = replica.follower, contents(replica)
    with pytest.raises(AppendRefusedError) as raised:
        replica.log.append_as_follower(records, leader_epoch=3)
    assert raised.value.error is error
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(9, 5, [records]), 0)
    assert isinstance(follower.refusal, AppendRefusedError)
    assert (follower.refusal.error, follower.state) == (error, FollowerState.FETCHING)
    assert contents(replica) == contents(other) == before
    assert follower.next_request(BACKOFF_MS - 1) is None

    again = asked(follower, FetchRecords, BACKOFF_MS)
    assert (again.offset, again.last_fetched_epoch) == (7, 2)
    follower.on_answer(again, FetchedRecords(8, 5, [sent(7, epoch=3)]), BACKOFF_MS)
    assert (follower.refusal, replica.log.log_end_offset, replica.log.high_watermark) == (None, 8, 8)


def test_records_of_an_epoch_above_the_leaders() -> None:
    """They, and all behind them, are left out: who leads in that epoch sends them."""
    replica = following()
    follower, before = replica.follower, contents(replica)
    answer = FetchedRecords(5, 5, [sent(7, epoch=4) + sent(8, epoch=4)])
    follower.on_answer(asked(follower, FetchRecords), answer, 0)
    assert contents(replica) == before
    asked(follower, FetchRecords)


def test_missing_offsets_are_a_compacted_leaders() -> None:
    """As in Kafka: the topic may have been compacted once, and a follower cannot know."""
    replica = following()
    follower = replica.follower
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(13, 5, [sent(9, epoch=3) + sent(12, epoch=3)]), 0)
    assert sorted(replica.records()) == [5, 6, 9, 12]
    assert asked(follower, FetchRecords).offset == 13


@pytest.mark.parametrize(
    "answer",
    [
        FetchedRecords(-1, 0, []),
        FetchedRecords(10**9, 10**9, []),
        FetchedRecords(0, -1, []),
        FetchedRecords(0, 0, [], EpochEnd(10**6, 10**9)),
        FetchedRecords(0, 0, [], EpochEnd(-7, 10**9)),
    ],
    ids=[
        "no high watermark",
        "offsets far behind the end",
        "no log start",
        "a divergence behind the end",
        "of no epoch",
    ],
)
def test_offsets_that_no_leader_has(answer: FetchedRecords[bytes]) -> None:
    """No record goes or comes by them, and the high watermark stays within the log."""
    replica = following()
    follower, log = replica.follower, replica.log
    log.update_high_watermark(6)
    records = replica.records()
    follower.on_answer(asked(follower, FetchRecords), answer, 0)
    assert (replica.records(), replica.epochs) == (records, {2: 5}) or log.log_start_offset == 7
    assert log.local_log_start_offset <= log.high_watermark <= log.log_end_offset == 7
    assert isinstance(follower.next_request(0) or follower.next_request(BACKOFF_MS), FetchRecords)


def test_answers_of_another_partition_or_leadership() -> None:
    """A driver that mixes up what it was answered moves no log."""
    replica, other = following(), following()
    mine, others = asked(replica.follower, FetchRecords), asked(other.follower, FetchRecords)
    before = contents(replica)
    replica.follower.on_answer(others, FetchedRecords(8, 5, [sent(7, epoch=3)]), 0)
    replica.follower.on_error(others, KafkaError.FENCED_LEADER_EPOCH, 0)
    assert (contents(replica), replica.follower.state) == (before, FollowerState.FETCHING)
    assert replica.follower.next_request(0) is None, "its own request is still awaited"

    assert replica.follower.follow(2, 4)
    replica.follower.on_answer(mine, FetchedRecords(8, 5, [sent(7, epoch=3)]), 0)
    replica.follower.on_error(mine, KafkaError.OFFSET_OUT_OF_RANGE, 0)
    assert contents(replica) == before
    assert asked(replica.follower, FetchRecords).leader_epoch == 4


def test_a_leadership_that_goes_back() -> None:
    """News may come late: an earlier epoch ends nothing, in the follower nor in the leader."""
    replica = following(epoch=3)
    request = asked(replica.follower, FetchRecords)
    assert not replica.follower.follow(9, 2)
    assert not replica.follower.follow(9, 3), "one epoch has one leader"
    replica.follower.on_answer(request, FetchedRecords(8, 5, [sent(7, epoch=3)]), 0)
    assert (replica.follower.leader, replica.follower.leader_epoch, replica.log.log_end_offset) == (1, 3, 8)

    leading = led()
    before = contents(leading)
    for state in (LeaderAndIsr(4, 9, (1,), frozenset((1,))), LeaderAndIsr(5, 0, (1,), frozenset((1,)))):
        assert not leading.leader.lead(state, 0)
    assert (contents(leading), leading.leader.in_sync.members) == (before, {1, 2, 3})


def test_an_offset_asked_for_that_goes_back() -> None:
    """A leader that says that its log begins behind its end moves no log for longer than it says so."""
    replica = following()
    follower, before = replica.follower, contents(replica)
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_OUT_OF_RANGE, 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(7, 3), 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(-9, -1), 0)
    assert (contents(replica), follower.next_request(0)) == (before, None)


# ---- of a follower


def led() -> Replica:
    """A leader of epoch 5 with offsets 0 to 2, and two followers."""
    brokers, settings = Brokers(), LeaderSettings(replica_lag_time_max_ms=LAG_MS)
    replica = Replica(1, ManualClock(), brokers, leader_settings=settings)
    replica.leader.lead(LeaderAndIsr(5, 0, REPLICAS, frozenset(REPLICAS)), 0)
    for value in (b"a", b"b", b"c"):
        replica.leader.append(batch_of([value]), required_acks=1, now_ms=0)
    return replica


@pytest.mark.parametrize(
    ("broker", "asked_for", "error"),
    [
        (2, FetchRecords(5, -1, -1, 0), KafkaError.OFFSET_OUT_OF_RANGE),
        (2, FetchRecords(5, 4, 5, 0), None),
        (2, FetchRecords(5, 2**63 - 1, -1, 0), KafkaError.OFFSET_OUT_OF_RANGE),
        (2, FetchRecords(5, 3, 9, 0), KafkaError.OFFSET_OUT_OF_RANGE),
        (2, FetchRecords(4, 3, 5, 0), KafkaError.FENCED_LEADER_EPOCH),
        (2, FetchRecords(6, 3, 5, 0), KafkaError.UNKNOWN_LEADER_EPOCH),
        (9, FetchRecords(5, 3, 5, 0), KafkaError.UNKNOWN_LEADER_EPOCH),
        (1, FetchRecords(5, 3, 5, 0), KafkaError.UNKNOWN_LEADER_EPOCH),
    ],
    ids=[
        "negative",
        "behind the end",
        "the greatest offset",
        "an epoch to come",
        "fenced",
        "ahead",
        "no replica",
        "itself",
    ],
)
def test_fetches_that_no_follower_sends(broker: int, asked_for: FetchRecords, error: KafkaError | None) -> None:
    """If one of them counted as progress, a record would be called committed that nobody has."""
    replica = led()
    before = contents(replica)
    if error is None:
        answer = replica.leader.fetch(broker, asked_for, max_bytes=1, now_ms=0)
        assert (answer.diverging, list(answer.records)) == (EpochEnd(5, 3), [])
    else:
        with pytest.raises(ReplicationError) as raised:
            replica.leader.fetch(broker, asked_for, max_bytes=1, now_ms=0)
        assert raised.value.error is error
    assert contents(replica) == before
    assert {each.log_end_offset for each in replica.leader.in_sync.followers.values()} == {-1}
    assert replica.leader.take_actions() == []


def test_a_controllers_answer_to_another_partition() -> None:
    """A proposal is known by itself: one of another partition, or an earlier one, changes no in-sync set."""
    replica, other = led(), led()
    replica.leader.tick(2 * LAG_MS)
    other.leader.tick(2 * LAG_MS)
    (proposal,), (others,) = replica.leader.take_actions(), other.leader.take_actions()
    assert isinstance(proposal, AlterPartition)
    assert isinstance(others, AlterPartition)
    state = LeaderAndIsr(5, 1, REPLICAS, frozenset((1,)))
    replica.leader.on_altered(others, state, 0)
    replica.leader.on_alter_failed(others, KafkaError.INELIGIBLE_REPLICA)
    replica.leader.on_altered(proposal, LeaderAndIsr(4, 9, REPLICAS, frozenset((1,))), 0)
    assert (replica.leader.in_sync.members, replica.leader.in_sync.is_pending) == ({1, 2, 3}, True)
    replica.leader.on_altered(proposal, state, 0)
    assert replica.leader.in_sync.members == {1}


# ---- of a clock


def test_a_clock_that_jumps_ahead() -> None:
    """All followers lag at once: one proposal, and each comes back with its next fetch."""
    replica = led()
    leader = replica.leader
    for broker in (2, 3):
        leader.fetch(broker, FetchRecords(5, 3, 5, 0), max_bytes=1, now_ms=0)
    leader.append(batch_of([b"d"]), required_acks=1, now_ms=DAY_MS)
    leader.tick(DAY_MS)
    (proposal,) = leader.take_actions()
    assert isinstance(proposal, AlterPartition)
    assert [broker for broker, _ in proposal.in_sync_replicas] == [1]
    assert (replica.log.high_watermark, leader.in_sync.maximal) == (3, {1, 2, 3}), "they count until it is decided"


@pytest.mark.parametrize("back_ms", [1, LAG_MS, DAY_MS])
def test_a_clock_that_is_set_back(back_ms: int) -> None:
    """No follower is put out of the set for it, and none waits for a time that comes a day later."""
    replica = led()
    leader = replica.leader
    for broker in (2, 3):
        leader.fetch(broker, FetchRecords(5, 3, 5, 0), max_bytes=1, now_ms=DAY_MS)
    now_ms = DAY_MS - back_ms
    leader.append(batch_of([b"d"]), required_acks=1, now_ms=now_ms)
    leader.tick(now_ms)
    assert leader.take_actions() == []
    for broker in (2, 3):
        leader.fetch(broker, FetchRecords(5, 4, 5, 0), max_bytes=1, now_ms=now_ms)
    assert replica.log.high_watermark == 4

    waiting = following()
    waiting.follower.on_error(asked(waiting.follower, FetchRecords, DAY_MS), None, DAY_MS)
    assert waiting.follower.next_request(DAY_MS) is None
    asked(waiting.follower, FetchRecords, now_ms)


def test_times_of_list_offsets_that_mean_nothing() -> None:
    """A negative time of no meaning is one at which no record is later than it; nothing fails."""
    replica = led()
    for timestamp in (-7, -(2**63), 2**63 - 1):
        found = replica.leader.list_offset(timestamp, isolation=FetchIsolation.LOG_END)
        assert found in ((-1, -1), (0, 5))
