"""A follower's machine: pauses, fencing, hostile answers, leader changes in every state."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.replicas import BACKOFF_MS, Replica, asked, batch_of, controlled, grown, made, sent
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_errors import KafkaError, LogBusyError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import (
    AskEpochEnd,
    AskOffset,
    AuxStateBuilt,
    Brokers,
    BrokerState,
    BuildAuxState,
    EpochEnd,
    FetchedRecords,
    FetchRecords,
    Follower,
    FollowerRequest,
    FollowerSettings,
    FollowerState,
    LeaderAndIsr,
    OffsetAndEpoch,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles


def test_records_are_appended_and_the_lag_is_told() -> None:
    """The usual life."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    request = asked(follower, FetchRecords)
    assert (request.leader_epoch, request.offset, request.last_fetched_epoch) == (0, 0, -1)
    assert follower.next_request(0) is None, "one request is in flight at a time"
    follower.on_answer(request, FetchedRecords(5, 0, [sent(0, count=3) + sent(3)[:20]]), 0)
    assert (replica.log.log_end_offset, replica.log.high_watermark, follower.lag) == (3, 3, 2)
    request = asked(follower, FetchRecords)
    assert (request.offset, request.last_fetched_epoch) == (3, 0)
    follower.on_answer(request, FetchedRecords(5, 2, [sent(3, count=2)]), 0)
    assert (follower.lag, replica.log.log_start_offset) == (0, 2)


def test_a_throttled_follower_that_lags_does_not_fetch() -> None:
    """Kafka throttles those alone that are not in sync."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    assert follower.next_request(0, is_throttled=True) is None
    request = asked(follower, FetchRecords)
    follower.on_answer(request, FetchedRecords(0, 0), 0)
    assert isinstance(follower.next_request(0, is_throttled=True), FetchRecords)


@pytest.mark.parametrize(
    "error",
    [
        None,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_OR_FOLLOWER,
        KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaError.UNKNOWN_SERVER_ERROR,
        KafkaError.KAFKA_STORAGE_ERROR,
    ],
)
def test_an_error_is_followed_by_a_pause(error: KafkaError | None) -> None:
    """If this fails, a follower asks a leader that is not one yet in a busy loop, or never again."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    follower.on_error(asked(follower, FetchRecords, 7), error, 7)
    assert follower.next_request(7 + BACKOFF_MS - 1) is None
    asked(follower, FetchRecords, 7 + BACKOFF_MS)


def test_a_fenced_follower_waits_for_its_new_leader() -> None:
    """The leader is of a newer epoch: only the controller's word helps."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 3)
    follower.on_error(asked(follower, FetchRecords), KafkaError.FENCED_LEADER_EPOCH, 0)
    assert (follower.state, follower.next_request(10**9)) == (FollowerState.FENCED, None)
    assert not follower.follow(1, 3)
    assert follower.follow(2, 4)
    assert asked(follower, FetchRecords).leader_epoch == 4


def test_a_follower_that_was_stopped_goes_on_in_the_same_epoch() -> None:
    """A partition that is taken from its fetcher and given to another has the leader that it had."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 3)
    old = asked(follower, FetchRecords)
    follower.stop()
    assert follower.next_request(0) is None
    assert not follower.follow(1, 2)
    assert follower.follow(1, 3)
    follower.on_answer(old, FetchedRecords(1, 0, [sent(0)]), 0)
    assert replica.log.log_end_offset == 0, "an answer to what was asked before the stop"
    asked(follower, FetchRecords)


@pytest.mark.parametrize(
    "answer",
    [
        FetchedRecords(9, 0, [sent(5)]),
        FetchedRecords(9, 0, [b"no batch, but long enough to be the header of one of them, and more"]),
        FetchedRecords(9, 0, [sent(0)[:-1] + b"?"]),
        FetchedRecords(9, 0, [sent(0) + sent(0)]),
    ],
    ids=["a gap behind the end is Kafka's", "garbage", "a flipped bit", "an offset twice"],
)
def test_what_the_log_refuses_changes_nothing(answer: FetchedRecords[bytes]) -> None:
    """Bad input: the partition is as it was, and asked again after the pause."""
    replica = made()
    follower = replica.follower
    grown(replica, 2)
    follower.follow(1, 0)
    request = asked(follower, FetchRecords)
    follower.on_answer(request, answer, 0)
    gap = answer.records == [sent(5)]
    assert replica.log.log_end_offset == (6 if gap else 2)
    at_once = follower.next_request(0)
    assert (at_once is None) == (not gap)
    assert isinstance(at_once or follower.next_request(BACKOFF_MS), FetchRecords)


def test_batches_of_a_later_epoch_are_left_out() -> None:
    """A leader of epoch 3 has no batch of epoch 4: what is sent of one is not believed."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 3)
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(2, 0, [sent(0, epoch=3) + sent(1, epoch=4)]), 0)
    assert (replica.log.log_end_offset, replica.epochs) == (1, {3: 0})


def test_batches_that_lie_in_several_parts() -> None:
    """A leader answers with parts of its log, and a network may cut them anywhere."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    data = sent(0, count=3) + sent(3) + sent(4, count=2)
    parts = [data[:70], b"", memoryview(data)[70:200], data[200:]]
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(6, 0, parts), 0)
    assert (replica.log.log_end_offset, replica.log.size()) == (6, len(data))
    assert replica.values() == [b"%d" % at for at in range(6)]


class Received(bytearray):
    """A buffer of the network, whose end can be seen."""


def test_what_was_received_is_held_no_longer_than_it_takes() -> None:
    """If this fails, an idle partition holds the whole buffer that its last records came in, and one whose disk has
    failed holds it for ever.
    """
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    for is_offline in (False, True):
        request = asked(follower, FetchRecords)
        buffer = Received(sent(replica.log.log_end_offset))
        received = weakref.ref(buffer)
        if is_offline:
            replica.log.take_offline(OSError("the disk is gone"))
        follower.on_answer(request, FetchedRecords(1, 0, [memoryview(buffer)]), 0)
        del buffer
        assert (received(), replica.log.log_end_offset) == (None, 1)
    assert follower.state is FollowerState.FAILED


def test_a_divergence_that_no_cut_ends_is_not_asked_again_at_once() -> None:
    """A leader that says what cannot be must not make its follower ask as fast as it can."""
    replica = made()
    follower = replica.follower
    grown(replica, 3)
    follower.follow(1, 1)
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(0, 0, diverging=EpochEnd(0, 9)), 0)
    assert replica.log.log_end_offset == 3
    assert follower.next_request(0) is None
    asked(follower, FetchRecords, BACKOFF_MS)


def test_a_cut_that_waits_for_a_cleaning_is_tried_again() -> None:
    """If this fails, a cleaned segment that takes a minute to sync ends the fetcher of all partitions of a leader."""
    cleanings = ["of a large segment"]

    @contextlib.contextmanager
    def paused(_: int | None) -> Iterator[None]:
        if cleanings:
            raise LogBusyError("orders-0: a cleaning did not end within 60 s")
        yield

    machine = Machine(clock=ManualClock(), files=MemoryFiles())
    with UnifiedLog.open("/logs/orders-0", machine=machine, pause_cleaning=paused) as log:
        for at in range(4):
            log.append_as_leader(batch_of([b"%d" % at]), leader_epoch=0)
            log.roll()
        follower = Follower(log, FollowerSettings(fetch_backoff_ms=BACKOFF_MS))
        follower.follow(1, 1)
        diverges: FetchedRecords[bytes] = FetchedRecords(0, 0, diverging=EpochEnd(0, 2))
        follower.on_answer(asked(follower, FetchRecords), diverges, 0)
        assert (log.log_end_offset, follower.next_request(0)) == (4, None)
        cleanings.clear()
        follower.on_answer(asked(follower, FetchRecords, BACKOFF_MS), diverges, BACKOFF_MS)
        assert (log.log_end_offset, asked(follower, FetchRecords, BACKOFF_MS).offset) == (2, 2)


def test_an_answer_of_another_kind_is_refused() -> None:
    """A slip of the driver's: nothing has changed, and the right answer still counts."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    request = asked(follower, FetchRecords)
    with pytest.raises(TypeError, match="no answer to FetchRecords"):
        follower.on_answer(request, OffsetAndEpoch(0, 0), 0)
    with pytest.raises(TypeError, match="a part of the records"):
        follower.on_answer(request, FetchedRecords(1, 0, sent(0)), 0)  # type: ignore[arg-type]
    follower.on_answer(request, FetchedRecords(1, 0, [sent(0)]), 0)
    assert replica.log.log_end_offset == 1


def test_a_log_that_is_offline_fails_for_ever() -> None:
    """Retry is a promise: the same error, whatever is called."""
    replica = made()
    follower = replica.follower
    follower.follow(1, 0)
    request = asked(follower, FetchRecords)
    replica.log.take_offline(OSError("the disk is gone"))
    follower.on_answer(request, FetchedRecords(1, 0, [sent(0)]), 0)
    assert follower.state is FollowerState.FAILED
    assert "the disk is gone" in str(follower.failure)
    assert not follower.follow(1, 5)
    follower.stop()
    assert (follower.state, follower.next_request(10**9)) == (FollowerState.FAILED, None)


def test_out_of_range_behind_the_leaders_end() -> None:
    """An unclean leader is shorter: the log is cut to its end."""
    replica = made()
    follower = replica.follower
    grown(replica, 5)
    follower.follow(1, 1)
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_OUT_OF_RANGE, 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(3, 1), 0)
    assert (replica.log.log_end_offset, asked(follower, FetchRecords).offset) == (3, 3)


def test_out_of_range_in_front_of_the_leaders_start() -> None:
    """It was away for too long: the log begins anew where the leader's does."""
    replica = made()
    follower = replica.follower
    grown(replica, 5)
    follower.follow(1, 1)
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_OUT_OF_RANGE, 0)
    latest, earliest = asked(follower, AskOffset), None
    assert (latest.timestamp, follower.state) == (-1, FollowerState.OUT_OF_RANGE)
    follower.on_answer(latest, OffsetAndEpoch(30, 1), 0)
    earliest = asked(follower, AskOffset)
    assert earliest.timestamp == -2
    follower.on_answer(earliest, OffsetAndEpoch(20, 1), 0)
    assert (replica.log.log_start_offset, asked(follower, FetchRecords).offset) == (20, 20)


def test_out_of_range_that_is_in_range_by_now() -> None:
    """The leader's log is changing: asked again, after the pause."""
    replica = made()
    follower = replica.follower
    grown(replica, 5)
    follower.follow(1, 1)
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_OUT_OF_RANGE, 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(5, 1), 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(0, 0), 0)
    assert (replica.log.log_end_offset, follower.next_request(0)) == (5, None)
    asked(follower, FetchRecords, BACKOFF_MS)


def test_a_cut_to_a_leaders_start_within_a_batch() -> None:
    """If this fails, a replica that led, and whose last records nobody has, is out of sync until the start of its new
    leader rises: a client has deleted records there, up to within a batch.
    """
    replica = made()
    follower, log = replica.follower, replica.log
    grown(replica, 15)
    follower.follow(1, 1)
    # Its records from 9 on are of epoch 1, and its lineage starts with its log.
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(19, 12, [], EpochEnd(0, 12)), 0)
    request = asked(follower, FetchRecords)
    assert (request.offset, request.last_fetched_epoch, log.log_start_offset) == (12, 0, 0)
    follower.on_answer(request, FetchedRecords(19, 12, [sent(9, epoch=1, count=10)]), 0)
    assert follower.refusal is None
    assert (log.log_start_offset, log.log_end_offset, replica.epochs) == (12, 19, {1: 12})


def to_aux_state(follower: Follower) -> BuildAuxState:
    """Answer up to the action: the leader has offsets from 9 on, written in epoch 3."""
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE, 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(0, 0), 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(9, 3), 0)
    follower.on_answer(asked(follower, AskEpochEnd), EpochEnd(2, 7), 0)
    build = asked(follower, BuildAuxState)
    assert isinstance(build, BuildAuxState)
    return build


def test_an_aux_state_that_cannot_be_built_yet_is_tried_again() -> None:
    """The tier is away, or the metadata is not ready: the log is as it was."""
    replica = made(tiered=True)
    follower = replica.follower
    grown(replica, 4)
    follower.follow(1, 3)
    build = to_aux_state(follower)
    assert (build.epoch, build.offset, follower.state) == (3, 8, FollowerState.BUILDING_AUX_STATE)
    follower.on_error(build, None, 0)
    assert (replica.log.log_end_offset, follower.next_request(0)) == (4, None)
    asked(follower, FetchRecords, BACKOFF_MS)


@pytest.mark.parametrize("steps", range(5))
def test_a_new_leader_in_every_state(steps: int) -> None:
    """If this fails, an answer of the old leadership moves a log that follows another by now."""
    replica = made(tiered=True)
    follower = replica.follower
    grown(replica, 4)
    follower.follow(1, 3)
    answers: list[Any] = [
        KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE,
        OffsetAndEpoch(0, 0),
        OffsetAndEpoch(9, 3),
        EpochEnd(2, 7),
        AuxStateBuilt(9),
    ]
    request: FollowerRequest | None = None
    for answer in answers[:steps]:
        request = follower.next_request(0)
        assert request is not None
        if isinstance(answer, KafkaError):
            follower.on_error(request, answer, 0)
        else:
            follower.on_answer(request, answer, 0)
    request = follower.next_request(0)
    assert request is not None
    assert follower.follow(5, 4)
    if isinstance(answers[steps], KafkaError):
        follower.on_error(request, answers[steps], 0)
    else:
        follower.on_answer(request, answers[steps], 0)
    assert (follower.leader, follower.leader_epoch, replica.log.log_end_offset) == (5, 4, 4)
    assert asked(follower, FetchRecords).leader_epoch == 4


def test_an_empty_follower_may_begin_at_what_the_tier_lacks() -> None:
    """follower.fetch.last.tiered.offset.enable (KIP-1023)."""
    replica = made(tiered=True, last_tiered=True)
    follower = replica.follower
    follower.follow(1, 3)
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE, 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(0, 0), 0)
    pending = asked(follower, AskOffset)
    assert pending.timestamp == -6
    follower.on_answer(pending, OffsetAndEpoch(12, 3), 0)
    follower.on_answer(asked(follower, AskEpochEnd), EpochEnd(2, 7), 0)
    build = asked(follower, BuildAuxState)
    assert (build.epoch, build.offset) == (3, 11)


def test_an_empty_follower_whose_leader_does_not_know_the_tier_waits() -> None:
    """-1 of the pending upload, and a local start that is not the log's: OFFSET_NOT_AVAILABLE in Kafka."""
    replica = made(tiered=True, last_tiered=True)
    follower = replica.follower
    follower.follow(1, 3)
    follower.on_error(asked(follower, FetchRecords), KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE, 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(0, 0), 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(-1, -1), 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(9, 3), 0)
    assert follower.next_request(0) is None
    asked(follower, FetchRecords, BACKOFF_MS)


def cut_below_its_segments(replica: Replica) -> None:
    """Let a follower of epoch 1 have offsets 6 and 7 here and 0 to 5 in the tier, and its leader cut it to 3."""
    follower, log = replica.follower, replica.log
    for at in range(8):
        log.append_as_leader(batch_of([b"%d" % at]), leader_epoch=0)
        log.roll()
    log.update_high_watermark(8)
    log.update_highest_offset_in_remote_storage(5)
    log.delete_old_segments()
    assert log.local_log_start_offset == 6
    follower.follow(1, 1)
    follower.on_answer(asked(follower, FetchRecords), FetchedRecords(9, 0, diverging=EpochEnd(0, 3)), 0)
    assert (log.log_start_offset, log.log_end_offset, replica.epochs, log.must_be_rebuilt) == (0, 3, {0: 0}, True)


@pytest.mark.parametrize("start", [0, 2, 5])
def test_a_log_that_is_cut_below_its_segments_and_a_leader_that_needs_no_tier(start: int) -> None:
    """If this fails, the follower asks for a segment that no tier has, for ever."""
    replica = made(tiered=True)
    cut_below_its_segments(replica)
    follower, log = replica.follower, replica.log
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(start, 0), 0)
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(start, 0), 0)
    request = asked(follower, FetchRecords)
    assert (request.offset, request.last_fetched_epoch, request.log_start_offset) == (start, -1, start)
    follower.on_answer(request, FetchedRecords(start + 1, start, [sent(start)]), 0)
    assert (log.log_end_offset, replica.epochs, log.must_be_rebuilt) == (start + 1, {0: start}, False)


def test_a_log_that_is_cut_below_its_segments_begins_from_the_tier() -> None:
    """Section 1: the cut is answered by the tier, not by a log that begins anew without a lineage."""
    replica = made(tiered=True)
    cut_below_its_segments(replica)
    follower, log = replica.follower, replica.log
    follower.on_answer(asked(follower, AskOffset), OffsetAndEpoch(0, 0), 0)
    follower.on_error(asked(follower, AskOffset), None, 0)
    follower.on_answer(asked(follower, AskOffset, BACKOFF_MS), OffsetAndEpoch(0, 0), BACKOFF_MS)
    follower.on_answer(asked(follower, AskOffset, BACKOFF_MS), OffsetAndEpoch(5, 1), BACKOFF_MS)
    follower.on_answer(asked(follower, AskEpochEnd, BACKOFF_MS), EpochEnd(0, 3), BACKOFF_MS)
    build = asked(follower, BuildAuxState, BACKOFF_MS)
    assert (build.epoch, build.offset) == (1, 4)
    log.start_from_tier(5, log_start_offset=0, epochs=[(0, 0), (1, 3)], producer_snapshot=encode_producer_snapshot(()))
    follower.on_answer(build, AuxStateBuilt(5), BACKOFF_MS)
    request = asked(follower, FetchRecords, BACKOFF_MS)
    assert (request.offset, request.last_fetched_epoch, log.must_be_rebuilt) == (5, 1, False)


def lacking_its_lineage() -> tuple[Replica, BuildAuxState]:
    """A follower of epoch 4 with offsets 6 and 7 of epoch 3, which asks for the lineage of what the tier has."""
    replica = made(tiered=True)
    replica.log.truncate_fully_and_start_at(6, 0)
    grown(replica, 2, epoch=3)
    replica.lose_lineage()
    replica.follower.follow(1, 4)
    return replica, to_lineage(replica.follower, 0)


def to_lineage(follower: Follower, now_ms: int) -> BuildAuxState:
    """Answer up to the action: the leader has epoch 3 from 4 to 8, and its log starts at 1."""
    follower.on_answer(asked(follower, AskOffset, now_ms), OffsetAndEpoch(1, 0), now_ms)
    for epoch, end in ((3, EpochEnd(3, 8)), (2, EpochEnd(0, 4))):
        question = asked(follower, AskEpochEnd, now_ms)
        assert question.epoch == epoch
        follower.on_answer(question, end, now_ms)
    build = asked(follower, BuildAuxState, now_ms)
    assert isinstance(build, BuildAuxState)
    assert (build.epoch, build.offset, build.log_start_offset) == (3, 5, 1)
    return build


def test_a_log_whose_lineage_begins_too_late_keeps_its_records() -> None:
    """Of an in-sync follower they are committed: if this fails, and its leader dies next, nobody has them."""
    replica, build = lacking_its_lineage()
    follower, log = replica.follower, replica.log
    assert build.keeps_records
    log.complete_lineage([(0, 0), (3, 4)])
    follower.on_answer(build, AuxStateBuilt(8), 0)
    request = asked(follower, FetchRecords)
    assert (request.offset, request.last_fetched_epoch, log.must_be_rebuilt) == (8, 3, False)
    assert (log.local_log_start_offset, log.log_end_offset, replica.epochs) == (6, 8, {0: 0, 3: 4})


def test_a_log_whose_lineage_nobody_has_is_begun_anew_once_its_records_are_not_counted_on() -> None:
    """If this fails, the follower asks for ever, or gives up what was committed: a leader that looks twice in
    replica.lag.time.max.ms for who lags dies before it has noticed, and the follower is elected without the records.
    """
    replica, build = lacking_its_lineage()
    follower, now_ms = replica.follower, 0
    leading = Replica(1, ManualClock(), Brokers({2: BrokerState(1)}))
    grown(leading, 8, epoch=3)
    leading.lead(LeaderAndIsr(4, 0, (1, 2), frozenset((1, 2))), now_ms)
    while build.keeps_records:
        follower.on_error(build, None, now_ms)
        now_ms += BACKOFF_MS
        if now_ms % 15_000 == 0:
            leading.leader.tick(now_ms)
            controlled(leading, accepts=True)
        is_in_sync = 2 in leading.leader.in_sync.members
        assert not follower.follow(1, 4, is_electable=is_in_sync)
        if is_in_sync:
            build = to_lineage(follower, now_ms)
        else:
            follower.on_answer(asked(follower, AskOffset, now_ms), OffsetAndEpoch(1, 0), now_ms)
            follower.on_answer(asked(follower, AskOffset, now_ms), OffsetAndEpoch(7, 3), now_ms)
            follower.on_answer(asked(follower, AskEpochEnd, now_ms), EpochEnd(0, 4), now_ms)
            build = asked(follower, BuildAuxState, now_ms)
    assert (now_ms, build.epoch, build.offset) == (45_000, 3, 6)
    follower.on_error(build, None, now_ms)
    follower.follow(2, 5, is_electable=False)
    assert to_lineage(follower, now_ms).keeps_records, "of the next leader it asks as long"
