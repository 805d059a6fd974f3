"""The judge of what retention has to delete, in the tier and while a run goes on, by histories made by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.judge.retention import Deadlines, Overdue
from tests.simulation.made_cluster import FACTS, PARTITION, MadeCluster, breaks
from tests.simulation.messages import Partition
from tests.support.batches import Batch, encode

_IDS = [bytes([each] * 16) for each in range(1, 9)]


def _tiered(**facts: int) -> MadeCluster:
    """Three segments of 100 bytes each in the tier, their newest records as old as the cluster, and a local one."""
    made = MadeCluster(dataclasses.replace(FACTS, **facts))
    for at in range(4):
        made.write(b"x%d" % at, at=at)
    for at, segment_id in enumerate(_IDS[:3]):
        made.copy(at, at, {0: at}, 0, 1, segment_id=segment_id)
    for broker in (1, 2):
        made.change(broker, copied_offset=2, local_log_start_offset=3, segments=((3, 100),))
    made.look()
    return made


def test_7_the_tier_is_within_its_bounds() -> None:
    """A settled cluster has nothing left to delete: neither by time nor by size."""
    for facts in ({}, {"retention_bytes": 301}, {"retention_ms": 2_000_000}):
        made = _tiered(**facts)
        made.judge.settled(made.now_ms)


@pytest.mark.parametrize("facts", [{"retention_bytes": 300}, {"retention_ms": 900_000}])
def test_7_the_tier_is_over_its_bounds(facts: dict[str, int]) -> None:
    """Without its first segment it would still have 300 bytes; or that segment is 1,000,000 ms old."""
    made = _tiered(**facts)
    with breaks(7, "late deletion"):
        made.judge.settled(made.now_ms)


def test_7_nobody_knows_by_how_much_copies_overlap() -> None:
    """Retention may be wrong by the bytes of such a copy, and by no more."""
    for overlaps in (False, True):
        made = _tiered(retention_bytes=300)
        made.judge.checkpoint(made.now_ms)
        data = b"".join(encode(Batch(at, (b"x%d" % at,), timestamp_ms=made.now_ms)) for at in range(4))
        made.judge.served(1, PARTITION, 0, data, False, made.now_ms)
        if overlaps:
            made.copy(2, 3, {0: 2}, 0, 1, segment_id=_IDS[4])
        made.change(1, log_start_offset=1)
        if overlaps:
            made.look()
            continue
        with breaks(7, "early deletion"):
            made.look()


def test_7_offsets_of_two_copies_count_once() -> None:
    """Two leaders copied a segment."""
    made = _tiered(retention_bytes=301)
    made.copy(1, 1, {0: 1}, 0, 1, segment_id=_IDS[5])
    made.judge.settled(made.now_ms)


def test_7_nothing_is_in_front_of_the_log() -> None:
    """Neither below its start nor of epochs that it has left behind; another branch's in part may stay."""
    made = _tiered()
    made.copy(0, 1, {0: 0, 3: 1}, 0, 1, segment_id=_IDS[5])
    made.judge.settled(made.now_ms)
    made.judge.records_deletion_asked(made.replicas[1].partition, 1, made.now_ms)
    for broker in (1, 2):
        made.change(broker, log_start_offset=1)
    made.look()
    made.judge.settled(made.now_ms)  # it goes on
    made.now_ms += 11_000
    made.change(1)
    with breaks(7, "late deletion"):
        made.judge.settled(made.now_ms)
    made.copy(0, 0, {0: 0}, 2, 3, segment_id=_IDS[0])
    made.stored = {key: size for key, size in made.stored.items() if "-AQEB" not in key}
    made.judge.settled(made.now_ms)


def test_7_what_is_due_goes_within_its_interval() -> None:
    """While nothing disturbs the cluster, no segment is due for longer than the tasks take; the next one may be due."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_bytes=150))
    for at in range(4):
        made.write(b"x%d" % at, at=at)
    for start in (0, 1, 2):
        made.now_ms += 8_000
        made.judge.records_deletion_asked(made.replicas[1].partition, start, made.now_ms)
        segments = tuple((base, 100) for base in range(start, 4))
        made.change(1, segments=segments, log_start_offset=start, local_log_start_offset=start)
        made.look()
        made.judge.checkpoint(made.now_ms)
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_bytes=150))
    for at in range(4):
        made.write(b"x%d" % at, at=at)
    made.change(1, segments=tuple((base, 100) for base in range(4)))
    made.judge.checkpoint(made.now_ms)
    made.now_ms += 8_000
    made.judge.fault_began("cut", "broker-1 store", made.now_ms)
    made.judge.checkpoint(made.now_ms + 8_000)
    made.judge.fault_ended("cut", "broker-1 store", made.now_ms)
    made.judge.checkpoint(made.now_ms)
    made.judge.checkpoint(made.now_ms + 8_000)
    with breaks(7, "late deletion"):
        made.judge.checkpoint(made.now_ms + 11_000)


def test_7_a_leader_of_before_deletes_by_its_own_clock() -> None:
    """It has not heard that it is none any more; the present one takes its start from the tier, by another clock."""
    for age_ms in (5_001, 4_000):
        made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_ms=5_000))
        made.write(b"a", at=0)
        made.look()
        made.judge.checkpoint(made.now_ms)
        made.elect(1, 2)
        written_ms, made.now_ms = made.now_ms, made.now_ms + age_ms
        made.change(1, log_start_offset=1, local_log_start_offset=1)
        if age_ms < 5_000:
            with breaks(7, "early deletion"):
                made.look()
            continue
        made.look()
        made.now_ms = written_ms + 4_000
        made.change(2, role="leader", leader_epoch=1, log_start_offset=1, local_log_start_offset=1)
        made.look()


def test_7_a_start_that_a_leader_tells_amid_its_change() -> None:
    """Its clock counts, not that of the follower who has heard of it first, and who may lead next."""
    for age_ms in (5_001, 4_000):
        made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_ms=5_000))
        made.write(b"a", at=0)
        made.look()
        made.judge.checkpoint(made.now_ms)
        started = {"log_start_offset": 1, "local_log_start_offset": 1}
        made.change(1, **started, clock_ms=made.now_ms + age_ms)
        made.now_ms += 4_000
        made.change(2, **started)
        made.judge.step(frozenset((2,)), made.now_ms)
        if age_ms < 5_000:
            with breaks(7, "early deletion"):
                made.judge.step(frozenset((1,)), made.now_ms)
            continue
        made.elect(1, 2)
        made.change(2, role="leader", leader_epoch=1)
        made.judge.step(frozenset((2,)), made.now_ms)


def test_7_an_expiry_ends_behind_its_leaders_term() -> None:
    """It had begun when its broker heard of the next leader: by its own bounds, and once; else records are lost."""

    def unreadable(made: MadeCluster, offset: int) -> int | None:
        return made.judge.unreadable(
            1, PARTITION, offset, "OFFSET_OUT_OF_RANGE", is_committed=False, now_ms=made.now_ms
        )

    for age_ms in (5_001, 4_000):
        made = MadeCluster(dataclasses.replace(FACTS, retention_ms=5_000))
        for at in range(2):
            made.write(b"a%d" % at, at=at)
        made.look()
        made.judge.checkpoint(made.now_ms)
        made.elect(1, 2)
        made.now_ms += age_ms
        made.change(1, role="follower", leader_epoch=1)
        made.look()
        made.change(1, log_start_offset=1, local_log_start_offset=1, lineage=((0, 1),))
        if age_ms < 5_000:
            with breaks(7, "early deletion"):
                made.look()
            continue
        made.look()
        assert unreadable(made, 0) == 1
        made.change(1, log_start_offset=2, local_log_start_offset=2)
        made.look()
        with breaks(1, "lost write"):
            unreadable(made, 1)


@pytest.mark.parametrize("nothing_is_copied", [{"is_tiered": False}, {"is_copy_disabled": True}])
def test_7_a_follower_deletes_by_its_bounds_of_then(nothing_is_copied: dict[str, bool]) -> None:
    """Where nothing is copied it has its own retention; the topic keeps all before it leads (seeds 214088, 214697)."""
    facts = dataclasses.replace(FACTS, retention_ms=5_000, **nothing_is_copied)
    for age_ms in (5_001, 4_000):
        made = MadeCluster(facts)
        made.write(b"a", at=0)
        made.look()
        made.judge.checkpoint(made.now_ms)
        made.now_ms += age_ms
        made.change(2, log_start_offset=1, local_log_start_offset=1)
        if age_ms < 5_000:
            with breaks(7, "early deletion"):
                made.look()
            continue
        made.look()
        made.judge.topic_changed("orders", 0, dataclasses.replace(facts, retention_ms=-1), made.now_ms)
        made.now_ms += 60_000
        made.elect(1, 2)
        made.change(2, role="leader", leader_epoch=1)
        made.look()


def _stopped(*, is_copied: bool = True) -> MadeCluster:
    """A topic that is copied no more: offsets 0 and 1 are in the tier, of which the second is as new as the clock, and
    the others here, 1,000,000 ms old; the bound is 900,000.
    """
    made = MadeCluster(dataclasses.replace(FACTS, is_copy_disabled=True, retention_ms=900_000))
    for at, written_ms in enumerate((1_000_000, 2_000_000, 1_000_000, 1_000_000)):
        made.now_ms = written_ms
        made.write(b"x%d" % at, at=at)
    made.now_ms = 1_000_000
    made.look()
    made.judge.checkpoint(made.now_ms)
    for at, newest_ms in enumerate((1_000_000, 2_000_000) if is_copied else ()):
        made.copy(at, at, {0: at}, 0, 1, segment_id=_IDS[at], newest_ms=newest_ms)
    for broker in (1, 2):
        copied = {"copied_offset": 1} if is_copied else {}
        made.change(broker, log_start_offset=1, local_log_start_offset=2, segments=((2, 100), (3, 100)), **copied)
    made.judge.records_deletion_asked(PARTITION, 1, made.now_ms)
    made.look()
    if is_copied:
        made.copy(0, 0, {0: 0}, 2, 3, segment_id=_IDS[0])
        made.stored = {key: size for key, size in made.stored.items() if f"/{0:020d}-" not in key}
    made.now_ms = 2_000_000
    made.look()
    return made


def test_7_what_is_copied_no_more_goes_behind_its_tier() -> None:
    """What the tier has in front may be newer, and its start rises over that; without such it is late."""
    made = _stopped()
    made.judge.settled(made.now_ms)
    made.change(1, log_start_offset=3, local_log_start_offset=3, segments=((3, 100),))
    with breaks(7, "early deletion"):
        made.look()
    made = _stopped()
    made.judge.records_deletion_asked(PARTITION, 2, made.now_ms)
    made.change(1, log_start_offset=3, local_log_start_offset=3, segments=((3, 100),))
    made.look()


def test_7_another_branch_in_front_goes_by_time() -> None:
    """What is copied no more waits for what the tier has in front, and that goes once it is too old. Else a disk that
    fills is not noticed.
    """
    for newest_ms in (2_000_000, 1_000_000):
        made = _stopped(is_copied=False)
        made.change(1, role="follower")
        made.copy(1, 9, {0: 1}, 0, 1, segment_id=_IDS[6], newest_ms=newest_ms)  # another leader's, of before
        made.change(1, role="leader")
        if newest_ms == made.now_ms:
            made.judge.settled(made.now_ms)
            continue
        with breaks(7, "late deletion"):
            made.judge.settled(made.now_ms)


def test_7_what_is_copied_no_more_waits_for_nothing_else() -> None:
    """If the tier has nothing in front of it, it is due by its own age."""
    made = _stopped(is_copied=False)
    with breaks(7, "late deletion"):
        made.judge.settled(made.now_ms)


def test_4_a_topic_that_left_the_tier_takes_what_was_deleted_locally() -> None:
    """Its tier is deleted by then: what a replica had deleted before is copied by a leader again, or lost. What it
    deletes after that is judged.
    """
    made = MadeCluster()
    made.write(b"a", b"b", b"c", at=0)
    made.judge.topic_changed("orders", 0, dataclasses.replace(FACTS, is_tiered=False), made.now_ms)
    made.change(2, local_log_start_offset=2)
    made.look()
    made.judge.topic_changed("orders", 0, FACTS, made.now_ms)
    made.look()
    made.now_ms += 16_000
    made.change(2, local_log_start_offset=3)
    with breaks(4, "lost write"):
        made.look()


def test_7_what_is_due_goes_one_behind_the_other() -> None:
    """A store that is slow has a backlog deleted later than one segment; what stands still is late."""
    deadlines, partition = Deadlines(), Partition("orders", 0)

    def check(now_ms: int, *keys: str) -> None:
        deadlines.check(partition, [Overdue(each, each) for each in keys], now_ms, within_ms=100)

    check(0, "tier a", "tier b", "local 0")
    check(90, "tier b", "local 0")
    with breaks(7, "late deletion"):
        check(110, "tier b", "local 0")
    check(150, "tier b")
    with breaks(7, "late deletion"):
        check(200, "tier b")


def test_7_what_a_log_had_when_it_deleted_counts() -> None:
    """Its end was cut before it led: nobody had committed that."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_ms=5000, retention_bytes=150))
    for at, value in enumerate((b"a", b"b", b"c")):
        made.write(value * 100, at=at)
    made.look()
    made.judge.checkpoint(made.now_ms)
    made.change(2, log_start_offset=1, local_log_start_offset=1, segments=((1, 100), (2, 100)))
    made.judge.step(frozenset((2,)), made.now_ms)
    made.elect(1, 2)
    led = {"role": "leader", "leader_epoch": 1, "lineage": ((0, 0), (1, 3))}
    made.change(2, log_start_offset=1, local_log_start_offset=1, segments=((1, 100),), **led)
    made.judge.step(frozenset((2,)), made.now_ms)
    made.change(2, log_start_offset=2, local_log_start_offset=2, segments=((2, 100),))
    with breaks(7, "early deletion"):
        made.judge.step(frozenset((2,)), made.now_ms)
