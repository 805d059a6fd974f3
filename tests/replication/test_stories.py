"""The two stories of why leader epochs came to be, and the local halves of the KIP's scripts, with real logs."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.replicas import Replica, TieredSegment, settle
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.partition_log import RecordsPart
from tierlog.replication import (
    AskEpochEnd,
    AskOffset,
    Brokers,
    BuildAuxState,
    FetchedRecords,
    FetchRecords,
    Follower,
    FollowerState,
    HighWatermarkFollower,
    LeaderAndIsr,
    ReplicationError,
)
from tierlog.runtime.machine.clock import ManualClock

A: Final = 1
B: Final = 2
COMMITTED: Final = FetchIsolation.HIGH_WATERMARK


def state_of(leader_epoch: int, *in_sync: int, partition_epoch: int | None = None) -> LeaderAndIsr:
    epoch = leader_epoch if partition_epoch is None else partition_epoch
    return LeaderAndIsr(leader_epoch, epoch, (A, B), frozenset(in_sync))


def pair(follower_class: type[Follower], *, tiered: bool = False) -> tuple[Replica, Replica]:
    """Brokers A and B, without a role."""
    clock, brokers = ManualClock(), Brokers()
    config = (
        LogConfig(remote_storage_enable=tiered, local_retention_bytes=0, retention_ms=-1) if tiered else LogConfig()
    )
    a, b = (Replica(broker, clock, brokers, follower_class, config=config, is_tiered=tiered) for broker in (A, B))
    return a, b


def replicated(follower: Replica, leader: Replica) -> None:
    """Let the follower have all, and the high watermark reach it."""
    settle(follower, leader)
    assert follower.log.high_watermark == leader.log.high_watermark == leader.log.log_end_offset


@pytest.mark.parametrize(
    ("follower_class", "kept"), [(HighWatermarkFollower, [b"m1"]), (Follower, [b"m1", b"m2"])], ids=["old", "epochs"]
)
def test_a_high_watermark_that_lags_and_an_immediate_election(
    follower_class: type[Follower], kept: list[bytes]
) -> None:
    """Script E1: with the old rule a committed record is lost, with epochs it is not."""
    a, b = pair(follower_class)
    b.lead(state_of(0, A, B), 0)
    a.follow(B, 0)
    b.append(b"m1")
    replicated(a, b)
    b.append(b"m2")
    request = a.follower.next_request(0)
    assert request is not None
    fetched = b.leader.fetch(A, request, max_bytes=1 << 20, now_ms=0, broker_epoch=a.epoch)  # type: ignore[arg-type]
    a.follower.on_answer(request, fetched.read(), 0)
    acknowledging = a.follower.next_request(0)
    assert acknowledging is not None
    b.leader.fetch(A, acknowledging, max_bytes=1 << 20, now_ms=0, broker_epoch=a.epoch)  # type: ignore[arg-type]
    assert (b.log.high_watermark, a.log.high_watermark, a.log.log_end_offset) == (2, 1, 2), "m2 is committed"

    a.stop()
    a.start(clean=True)
    a.follow(B, 1)
    a.follower.next_request(0)  # B dies before it answers
    b.stop()
    a.lead(state_of(2, A), 0)
    assert a.values() == kept
    assert a.epochs_on_disk == {0: 0, 2: len(kept)}

    b.start(clean=True)
    b.follow(A, 2)
    settle(b, a)
    assert b.values() == kept


@pytest.mark.parametrize("follower_class", [HighWatermarkFollower, Follower], ids=["old", "epochs"])
def test_logs_that_diverge_after_several_hard_failures(follower_class: type[Follower]) -> None:
    """Script E2: with the old rule the logs differ for ever, with epochs the follower cuts to the divergence."""
    a, b = pair(follower_class)
    a.lead(state_of(0, A, B), 0)
    b.follow(A, 0)
    a.append(b"m1")
    settle(b, a)
    b.log.flush()
    a.append(b"m2")
    replicated(b, a)
    a.log.flush()
    a.crash()
    b.crash()
    b.start()
    assert b.values() == [b"m1"], "m2 was committed, and not synced"
    b.lead(state_of(1, B), 0)
    b.append(b"m3")
    assert b.log.high_watermark == 2
    a.start()
    a.follow(B, 1)
    asked = settle(a, b)
    if follower_class is HighWatermarkFollower:
        assert (a.values(), b.values()) == ([b"m1", b"m2"], [b"m1", b"m3"]), "they differ, and nobody knows"
        assert not any(isinstance(each, AskEpochEnd) for each in asked)
    else:
        assert a.values() == b.values() == [b"m1", b"m3"]
        assert a.records() == b.records()
        assert a.epochs_on_disk == b.epochs_on_disk == {0: 0, 1: 1}


@pytest.mark.parametrize("on_fetch", [True, False])
def test_epochs_that_alternate_take_several_rounds(on_fetch: bool) -> None:
    """KIP-279: each was the leader in turn without the other: one answer does not tell where they part."""
    a, b = pair(Follower)
    a.lead(state_of(0, A), 0)
    a.append(b"shared")
    b.follow(A, 0)
    settle(b, a)
    for epoch, leader in ((1, a), (2, b), (3, a), (4, b)):
        leader.follow(0, epoch)
        leader.lead(state_of(epoch, leader.broker_id), 0)
        leader.append(b"%d" % epoch)
        leader.append(b"%d" % epoch)
    assert (a.epochs, b.epochs) == ({0: 0, 1: 1, 3: 3}, {0: 0, 2: 1, 4: 3})
    b.lead(state_of(5, B), 0)
    a.follow(B, 5, truncates_on_fetch=on_fetch)
    asked = settle(a, b)
    assert a.records() == b.records()
    assert a.values() == [b"shared", b"2", b"2", b"4", b"4"]
    kind = FetchRecords if on_fetch else AskEpochEnd
    assert sum(isinstance(each, kind) for each in asked) >= 2


def test_a_leader_that_knows_no_epoch_has_it_cut_to_the_high_watermark() -> None:
    """The rule before epochs is what is left where the leader cannot tell (seed 002, 4.3)."""
    a, b = pair(Follower)
    a.lead(state_of(0, A, B), 0)
    b.follow(A, 0)
    a.append(b"m1")
    replicated(b, a)
    a.append(b"m2")
    request = b.follower.next_request(0)
    assert isinstance(request, FetchRecords)
    b.follower.on_answer(
        request, a.leader.fetch(B, request, max_bytes=1 << 20, now_ms=0, broker_epoch=b.epoch).read(), 0
    )
    assert (b.log.log_end_offset, b.log.high_watermark) == (2, 1)
    a.log.leader_epoch_cache.clear_and_flush()
    a.leader.resign()
    a.leader.leader_epoch, a.leader.is_leading = 1, True
    a.leader.in_sync.lead(state_of(1, A, B), leader_end_offset=2, is_new_leader=True, now_ms=0)
    b.follow(A, 1, truncates_on_fetch=False)
    asked = b.follower.next_request(0)
    assert isinstance(asked, AskEpochEnd)
    assert a.leader.end_offset_for_epoch(asked.epoch) == (-1, -1)
    b.follower.on_answer(asked, a.leader.end_offset_for_epoch(asked.epoch), 0)
    assert (b.log.log_end_offset, b.follower.state) == (1, FollowerState.FETCHING)


def tiered(start: int, end: int, epochs: dict[int, int], *in_epochs: int) -> TieredSegment:
    return TieredSegment(start, end, tuple(epochs.items()), in_epochs, encode_producer_snapshot(()))


def lead_through(replica: Replica, batches: dict[int, list[bytes]]) -> None:
    """Append values in the leader epochs that are named."""
    for epoch, values in batches.items():
        replica.leader.resign()
        replica.lead(state_of(epoch, replica.broker_id), 0)
        for value in values:
            replica.append(value)
            replica.log.roll()
    replica.log.update_high_watermark(replica.log.log_end_offset)


def drop_local(replica: Replica, offset: int) -> None:
    """Let local retention delete what lies below an offset."""
    replica.log.update_highest_offset_in_remote_storage(offset - 1)
    replica.log.delete_old_segments()
    assert replica.log.local_log_start_offset == offset


def test_script_1_a_new_follower_begins_behind_the_tier() -> None:
    """KIP-405, scenario 1: the follower never holds what only the tier has."""
    a, b = pair(Follower, tiered=True)
    lead_through(a, {0: [b"m0", b"m1", b"m2"], 1: [b"m3", b"m4"], 2: [b"m5", b"m6"], 3: [b"m7"]})
    drop_local(a, 3)
    tier = [tiered(0, 2, {0: 0}, 0), tiered(3, 5, {0: 0, 1: 3, 2: 5}, 1, 2)]
    b.follow(A, 3)
    asked = settle(b, a, tier=tier)
    steps = [each for each in asked if not isinstance(each, FetchRecords)]
    assert [type(each) for each in steps] == [AskOffset, AskOffset, AskEpochEnd, BuildAuxState]
    build = steps[-1]
    assert isinstance(build, BuildAuxState)
    assert (build.epoch, build.offset, build.log_start_offset) == (0, 2, 0)
    assert (b.log.log_start_offset, b.log.local_log_start_offset, b.log.log_end_offset) == (0, 3, 8)
    assert b.epochs == {0: 0, 1: 3, 2: 5, 3: 7}
    assert b.log.high_watermark == 8
    assert b.values() == [b"m3", b"m4", b"m5", b"m6", b"m7"]


def test_script_2_a_follower_out_of_sync_begins_behind_the_tier() -> None:
    """KIP-405, scenario 2: what it had lies in the tier by now, and goes."""
    a, b = pair(Follower, tiered=True)
    lead_through(
        a, {0: [b"m0", b"m1", b"m2"], 1: [b"m3", b"m4"], 2: [b"m5", b"m6"], 3: [b"m7", b"m8", b"m9", b"m10", b"m11"]}
    )
    b.follow(A, 3)
    lead_through(b, {})
    b.log.assign_epoch_start_offset(0, 0)
    for number in range(4):
        if number == 3:
            b.log.assign_epoch_start_offset(1, 3)
        (found,) = a.log.read(number, max_bytes=1, isolation=FetchIsolation.LOG_END).records
        b.log.append_as_follower(found.read(), leader_epoch=3)
    assert (b.epochs, b.log.log_end_offset) == ({0: 0, 1: 3}, 4)
    drop_local(a, 9)
    tier = [
        tiered(0, 2, {0: 0}, 0),
        tiered(3, 5, {0: 0, 1: 3, 2: 5}, 1, 2),
        tiered(6, 8, {0: 0, 1: 3, 2: 5, 3: 7}, 2, 3),
    ]
    build = next(each for each in settle(b, a, tier=tier) if isinstance(each, BuildAuxState))
    assert (build.epoch, build.offset) == (3, 8)
    assert (b.log.log_start_offset, b.log.local_log_start_offset, b.log.log_end_offset) == (0, 9, 12)
    assert b.epochs == {0: 0, 1: 3, 2: 5, 3: 7}
    assert b.values() == [b"m9", b"m10", b"m11"]


def appended(replica: Replica, leader_epoch: int, *values: bytes) -> None:
    """Lead an epoch, and append values to one segment."""
    replica.leader.resign()
    replica.lead(state_of(leader_epoch, replica.broker_id), 0)
    for value in values:
        replica.append(value)


def closed(replica: Replica) -> list[tuple[int, int, dict[int, int]]]:
    """The closed segments that a copy may take: first offset, end, and the epochs that go with the segment."""
    cache = replica.log.leader_epoch_cache
    return [
        (segment.base_offset, end, dict(cache.epoch_entries_in_range(segment.base_offset, end)))
        for segment, end in replica.log.closed_segments()
    ]


def leased_epochs(replica: Replica, base_offset: int) -> dict[int, int]:
    """The lineage that is copied with a closed segment."""
    segment = next(each for each in replica.log.log_segments() if each.base_offset == base_offset)
    with replica.log.lease(segment) as data:
        return dict(parse_leader_epochs(data.leader_epoch_index))


def fetched(leader: Replica, offset: int, *, last_epoch: int) -> FetchedRecords[RecordsPart] | KafkaError:
    """The leader's answer to a fetch of the other broker."""
    asked = FetchRecords(leader.leader.leader_epoch, offset, last_epoch, 0)
    try:
        return leader.leader.fetch(A if leader.broker_id == B else B, asked, max_bytes=1 << 20, now_ms=0)
    except ReplicationError as error:
        return error.error


def test_script_3_several_hard_failures() -> None:
    """KIP-405, scenario 3: the tail of a segment in the tier was lost by both brokers, and written otherwise since."""
    a, b = pair(Follower, tiered=True)
    a.lead(state_of(0, A, B), 0)
    b.follow(A, 0)
    a.append(b"m0")
    settle(b, a)
    b.log.flush()
    a.append(b"m1")
    a.log.roll()
    a.append(b"m2")
    replicated(b, a)
    assert (b.log.log_end_offset, closed(a)) == (3, [(0, 2, {0: 0})]), "u1 is offsets 0 and 1"
    a.log.flush()
    a.crash()
    b.crash()

    b.start()
    assert (b.values(), b.epochs) == ([b"m0"], {0: 0})
    b.log.roll()
    appended(b, 1, b"m3")
    b.log.roll()
    a.start()
    assert (a.log.log_end_offset, a.epochs) == (3, {0: 0})
    a.follow(B, 1)
    asked = settle(a, b)
    assert isinstance(asked[0], FetchRecords)
    assert (asked[0].offset, asked[0].last_fetched_epoch) == (3, 0)
    assert a.records() == b.records() == {0: (0, b"m0"), 1: (1, b"m3")}
    assert a.epochs == a.epochs_on_disk == {0: 0, 1: 1}

    a.log.roll()
    b.append(b"m4")
    settle(a, b)
    assert closed(b) == [(0, 1, {0: 0}), (1, 2, {1: 1})]
    assert b.log.end_offset_for_epoch(0) == (0, 1), "epoch 0 is copied up to 0, whatever u1 ends with"
    assert leased_epochs(b, 1) == {0: 0, 1: 1}
    for replica in (a, b):
        drop_local(replica, 2)
        assert (replica.log.log_start_offset, replica.values()) == (0, [b"m4"])
        assert [replica.log.leader_epoch_cache.epoch_for_offset(at) for at in range(3)] == [0, 1, 1]
    assert fetched(b, 0, last_epoch=-1) is fetched(b, 1, last_epoch=0) is KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE
    diverging = fetched(b, 2, last_epoch=0)
    assert isinstance(diverging, FetchedRecords)
    assert (diverging.diverging, len(diverging.records)) == ((0, 1), 0)
    assert b.leader.end_offset_for_epoch(0) == (0, 1)


def test_script_4_an_unclean_election_and_a_cut() -> None:
    """KIP-405, scenario 4: the leader that returns cuts what was in the tier alone, and begins behind the new tier."""
    a, b = pair(Follower, tiered=True)
    appended(a, 0, b"m0")
    b.follow(A, 0)
    settle(b, a)
    appended(a, 0, b"m1", b"m2")
    a.log.roll()
    appended(a, 0, b"m3")
    assert (a.log.high_watermark, closed(a)) == (4, [(0, 3, {0: 0})]), "u1 is offsets 0 to 2"
    a.stop()

    appended(b, 1, b"m4")
    b.log.roll()
    b.append(b"m5")
    assert (b.epochs, b.log.log_end_offset, b.log.high_watermark) == ({0: 0, 1: 1}, 3, 3)
    assert b.log.end_offset_for_epoch(0) == (0, 1), "epoch 0 is copied up to 0, whatever u1 ends with"
    assert (closed(b), leased_epochs(b, 0)) == ([(0, 2, {0: 0, 1: 1})], {0: 0, 1: 1})
    drop_local(b, 2)
    diverging = fetched(b, 2, last_epoch=0)
    assert isinstance(diverging, FetchedRecords)
    assert diverging.diverging == (0, 1)

    a.start(clean=True)
    a.follow(B, 1)
    u1, u2 = tiered(0, 2, {0: 0}, 0), tiered(0, 1, {0: 0, 1: 1}, 0, 1)
    asked = settle(a, b, tier=[u1, u2])
    cut, moved = (each for each in asked[:2] if isinstance(each, FetchRecords))
    assert (cut.offset, cut.last_fetched_epoch, moved.offset) == (4, 0, 1)
    build = next(each for each in asked if isinstance(each, BuildAuxState))
    assert (build.epoch, build.offset) == (1, 1), "which u1 does not hold"
    assert (a.epochs, a.log.log_start_offset, a.log.local_log_start_offset) == ({0: 0, 1: 1}, 0, 2)
    assert a.values() == b.values() == [b"m5"]


def test_script_f_a_follower_becomes_leader() -> None:
    """After the five: the new leader's segments have borders of their own, and the old leader cuts what was not
    replicated.
    """
    a, b = pair(Follower, tiered=True)
    appended(a, 0, b"m0", b"m1", b"m2")
    a.log.roll()
    b.follow(A, 0)
    settle(b, a)
    b.log.roll()
    appended(a, 1, b"m3")
    b.follow(A, 1)
    settle(b, a)
    b.log.roll()
    a.append(b"m4")
    a.log.roll()
    a.append(b"m5")
    appended(a, 2, b"m6")
    b.follow(A, 2)
    settle(b, a)
    a.append(b"m7")
    a.append(b"m8")
    assert a.epochs == {0: 0, 1: 3, 2: 6}
    assert closed(a) == [(0, 3, {0: 0}), (3, 5, {1: 3})], "u1 and u2"
    assert (b.log.log_end_offset, b.log.high_watermark) == (7, 7)
    a.stop()

    b.lead(state_of(3, B), 0)
    b.log.roll()
    b.append(b"m7b")
    assert b.epochs == {0: 0, 1: 3, 2: 6, 3: 7}
    assert [b.log.end_offset_for_epoch(epoch) for epoch in (3, 2, 1)] == [(3, 8), (2, 7), (1, 6)]
    assert closed(b) == [(0, 3, {0: 0}), (3, 4, {1: 3}), (4, 7, {1: 4, 2: 6})], "u3 is 4 to 6: offset 4 is copied twice"
    assert [segment.base_offset for segment, _ in b.log.closed_segments(5)] == [4], "offset 4 was copied last"
    assert leased_epochs(b, 4) == {0: 0, 1: 3, 2: 6}

    a.start(clean=True)
    a.log.update_highest_offset_in_remote_storage(4)
    a.follow(B, 3)
    asked = settle(a, b)
    assert isinstance(asked[0], FetchRecords)
    assert (asked[0].offset, asked[0].last_fetched_epoch) == (9, 2)
    assert a.records() == b.records()
    assert (a.values()[6:], a.epochs) == ([b"m6", b"m7b"], b.epochs)
    assert a.log.highest_offset_in_remote_storage == 4


def test_script_5_a_broker_that_restarts_empty_takes_the_leaders_branch() -> None:
    """KIP-405, scenario 5: the tier has segments of both branches; the leader's epochs choose."""
    a, b = pair(Follower, tiered=True)
    lead_through(a, {0: [b"m0", b"m1", b"m2", b"m3", b"m4a"], 2: [b"m7", b"m8"]})
    drop_local(a, 6)
    tier = [
        tiered(0, 3, {0: 0}, 0),
        tiered(0, 3, {0: 0, 1: 2}, 0, 1),
        tiered(4, 5, {0: 0, 2: 5}, 0, 2),
    ]
    b.follow(A, 2)
    build = next(each for each in settle(b, a, tier=tier) if isinstance(each, BuildAuxState))
    assert (build.epoch, build.offset) == (2, 5)
    assert (b.epochs, b.log.local_log_start_offset, b.values()) == ({0: 0, 2: 5}, 6, [b"m8"])
