"""The judge, by histories made by hand: each invariant holds over a good one, and is found broken in a bad one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.facts import Violation
from tests.simulation.made_cluster import FACTS, PARTITION, SEGMENT, MadeCluster, breaks
from tests.simulation.messages import AbortedTransaction
from tests.support.batches import Batch, encode


@pytest.fixture
def made() -> MadeCluster:
    return MadeCluster()


def test_a_good_history_passes(made: MadeCluster) -> None:
    """Otherwise seeds fail for nothing."""
    first = made.write(b"a", b"b", at=0)
    second = made.write(b"c", at=2)
    made.look()
    made.poll(0, first, second)
    made.poll(1, first, second, is_committed=True)
    made.elect(1, 2)
    made.change(1, role="follower", leader_epoch=1)
    made.change(2, role="leader", leader_epoch=1, lineage=((0, 0), (1, 3)), in_sync=frozenset((1, 2)))
    made.look()
    third = made.write(b"d", at=3, epoch=1)
    made.change(1, lineage=((0, 0), (1, 3)))
    made.look()
    made.poll(0, first, second, third, broker=2)
    made.copy(0, 2, {0: 0}, 0, 1)
    made.change(2, copied_offset=2, segments=((3, 100),), local_log_start_offset=3)
    made.look()
    made.judge.checkpoint(made.now_ms)
    made.judge.settled(made.now_ms)
    made.judge.closed(made.now_ms)


def test_1_what_an_election_loses(made: MadeCluster) -> None:
    """An acknowledged record is gone once a leader begins without it."""
    made.write(b"a", b"b", at=0)
    made.look()
    made.elect(1, 2)
    made.change(
        2,
        role="leader",
        leader_epoch=1,
        lineage=((0, 0), (1, 1)),
        log_end_offset=1,
        high_watermark=1,
        last_stable_offset=1,
    )
    with breaks(1, "lost write"):
        made.look()


def test_1_what_an_unclean_election_loses_is_exempt(made: MadeCluster) -> None:
    """Then it is no violation; and the offsets are another record's from there on, once and for all."""
    made.write(b"a", b"b", at=0)
    made.look()
    made.elect(1, 2, is_unclean=True, in_sync=(2,))
    made.logs[2] = []
    made.change(
        2,
        role="leader",
        leader_epoch=1,
        lineage=((0, 0), (1, 1)),
        log_end_offset=1,
        high_watermark=1,
        last_stable_offset=1,
    )
    made.look()
    made.send(b"c")
    made.append(Batch(1, (b"c",), 1), brokers=(2,))
    made.poll(1, Batch(1, (b"c",), 1), broker=2)
    made.send(b"d")
    with breaks(11, "nonrepeatable read"):
        made.poll(1, Batch(1, (b"d",), 1), broker=2)


@pytest.mark.parametrize("is_back", [True, False])
def test_1_what_an_unclean_election_took_the_next_one_may_bring_back(made: MadeCluster, *, is_back: bool) -> None:
    """Its log was not cut in between. It is read from then on; of another leader's log it is of the old branch."""
    batch = made.write(b"a", b"b", at=0)
    made.look()
    made.elect(1, 2, is_unclean=True, in_sync=(2,))
    ended = {"log_end_offset": 1, "high_watermark": 1, "last_stable_offset": 1}
    made.change(2, role="leader", leader_epoch=1, lineage=((0, 0), (1, 1)), **ended)
    made.change(1, role="follower")
    made.look()
    made.elect(2, 1 if is_back else 2, is_unclean=True, in_sync=(1,))
    if is_back:
        made.change(1, role="leader", leader_epoch=2, lineage=((0, 0), (2, 2)))
    else:
        made.change(2, leader_epoch=2, lineage=((0, 0), (2, 1)))
    made.look()
    made.poll(0, batch)
    contents = made.judge._topics.partitions[PARTITION].contents
    assert (sorted(contents.at), contents.end_offset) == (([0, 1], 2) if is_back else ([0], 1))


def test_1_exempt_is_nothing_that_was_synced() -> None:
    """With flush.messages=1 crashes alone take nothing that was acknowledged."""
    made = MadeCluster(dataclasses.replace(FACTS, flush_messages=1))
    made.write(b"a", at=0)
    made.look()
    made.elect(1, 2, is_unclean=True)
    made.change(
        2, role="leader", leader_epoch=1, lineage=((1, 0),), log_end_offset=0, high_watermark=0, last_stable_offset=0
    )
    with breaks(1, "lost write"):
        made.look()


@pytest.mark.parametrize(
    ("invariant", "anomaly", "batches"),
    [
        (1, "lost write", [Batch(0, (b"a", b"other"))]),
        (1, "phantom read", [Batch(0, (b"a", b"b")), Batch(2, (b"never",))]),
        (1, "duplicate", [Batch(0, (b"a", b"b")), Batch(2, (b"a",))]),
        (1, "phantom read", [Batch(0, (b"a", b"b")), Batch(2, (b"refused",))]),
        (12, "poll skip", [Batch(1, (b"b",))]),
        (12, "poll skip", [Batch(0, (b"a",)), Batch(2, (b"other",))]),
    ],
)
def test_1_what_a_read_shows(made: MadeCluster, invariant: int, anomaly: str, batches: list[Batch]) -> None:
    """A consumer reads each acknowledged record once, and nothing else."""
    made.write(b"a", b"b", at=0)
    made.send(b"other")
    made.judge.refused("producer", made.send(b"refused"), "INVALID_RECORD", True, made.now_ms)
    made.change(1, log_end_offset=10)
    with breaks(invariant, anomaly):
        made.poll(0, *batches)


def test_1_what_was_read_cannot_be_refused(made: MadeCluster) -> None:
    """A producer hears for good that its batch is nowhere, and consumers have read it; or it may be somewhere."""
    number = made.send(b"a")
    made.append(Batch(0, (b"a",)))
    made.poll(0, Batch(0, (b"a",)))
    made.judge.refused("producer", number, "REQUEST_TIMED_OUT", False, made.now_ms)
    with breaks(1, "phantom read"):
        made.judge.refused("producer", number, "INVALID_RECORD", True, made.now_ms)


def test_2_a_dead_branch_is_not_served(made: MadeCluster) -> None:
    """What a broker serves is of its lineage, as that is at the moment."""
    made.write(b"a", b"b", at=0)
    made.change(1, lineage=((0, 0), (3, 1)), log_end_offset=5)
    with breaks(2, "dead branch read"):
        made.poll(0, Batch(0, (b"a", b"b")))


def test_3_what_counts_as_copied_is_finished(made: MadeCluster) -> None:
    """A leader's copied offset has no hole below it."""
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    made.change(1, copied_offset=1)
    made.look()
    made.change(1, copied_offset=2)
    with breaks(3, "hole in the tier"):
        made.look()


@pytest.mark.parametrize("has_heard", [False, True])
def test_3_a_leader_of_before_counts_what_the_tier_had(made: MadeCluster, *, has_heard: bool) -> None:
    """It was paused while the topic left the tier and entered it again; who leads by now has heard of it."""
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    made.change(1, copied_offset=1)
    made.look()
    if not has_heard:
        made.judge.topic_changed("orders", 0, dataclasses.replace(FACTS, is_tiered=False), made.now_ms)
    made.elect(1, 2)
    if has_heard:
        made.judge.topic_changed("orders", 0, dataclasses.replace(FACTS, is_tiered=False), made.now_ms)
        made.change(1, leader_epoch=1)
    made.copy(0, 1, {0: 0}, 2)
    made.judge.topic_changed("orders", 0, FACTS, made.now_ms)
    if not has_heard:
        made.judge.step(frozenset((1,)), made.now_ms)
        return
    with breaks(3, "hole in the tier"):
        made.judge.step(frozenset((1,)), made.now_ms)


def test_3_a_leader_of_before_counts_what_the_next_one_removes(made: MadeCluster) -> None:
    """It finished a copy that the next leader had taken for given up, and has yet to hear of its deletion; what it then
    deletes locally is judged (seed 175567).
    """
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    made.change(1, copied_offset=1)
    made.elect(1, 2)
    made.copy(0, 1, {0: 0}, 2)
    made.judge.step(frozenset((1,)), made.now_ms)
    made.change(1, local_log_start_offset=2)
    with breaks(4, "lost write"):
        made.judge.step(frozenset((1,)), made.now_ms)


def test_4_local_deletion_stays_behind_the_tier(made: MadeCluster) -> None:
    """What is deleted locally is finished in the tier, in the log's own epoch."""
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0)
    made.change(2, local_log_start_offset=2)
    with breaks(4, "lost write"):
        made.look()
    made.copy(0, 1, {0: 0}, 1)
    made.look()
    made.change(2, lineage=((0, 0), (4, 1)))
    with breaks(4, "lost write"):
        made.look()


def test_4_what_a_leader_deletes_in_front_of_its_start(made: MadeCluster) -> None:
    """A follower lags; the leader, amid a change that nobody sees, has published its start."""
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    made.judge.records_deletion_asked(PARTITION, 2, made.now_ms)
    made.change(2, local_log_start_offset=2)
    made.look()
    made.change(1, log_start_offset=2, local_log_start_offset=2)
    made.copy(0, 1, {0: 0}, 2)
    made.judge.step(frozenset((2,)), made.now_ms)
    made.look()


def test_4_a_lost_lineage_is_judged_once_it_is_known(made: MadeCluster) -> None:
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    made.change(2, local_log_start_offset=2, lineage=())
    made.look()
    made.change(2, local_log_start_offset=2, lineage=((1, 0),))
    with breaks(4, "lost write"):
        made.look()


def test_5_the_store_has_what_metadata_own(made: MadeCluster) -> None:
    """Once settled: no object more, none less."""
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    made.judge.settled(made.now_ms)
    lost = made.stored.popitem()[0]
    with breaks(5, "lost object"):
        made.judge.settled(made.now_ms)
    made.stored[lost] = 1
    made.put(bytes([8] * 16), 3, "log")
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)


def test_5_orphans_of_an_ended_life_are_counted(made: MadeCluster) -> None:
    """A put that landed after its broker had crashed is nobody's fault, and is named."""
    made.write(b"a", at=0)
    made.judge.broker_stopped(1, 0, False, made.now_ms)
    made.judge.broker_started(1, 1, made.now_ms)
    made.put(bytes([8] * 16), 3, "log")
    made.judge.settled(made.now_ms)
    made.judge.closed(made.now_ms)
    assert made.judge._trace.counters["orphans"] == 1


def test_5_late_objects_are_waited_for(made: MadeCluster) -> None:
    """A request that its broker had given up lands behind the deletion: the broker looks again a minute later."""
    late = bytes([8] * 16)
    made.judge._tier.deleted.add(late)
    assert not made.judge.has_late_objects()
    made.put(late, 3, "log")
    assert made.judge.has_late_objects()
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)
    made.judge.broker_stopped(1, 0, False, made.now_ms)
    assert not made.judge.has_late_objects()


def test_5_what_is_finished_is_not_deleted(made: MadeCluster) -> None:
    """Readers find the segment, and its objects are gone."""
    made.write(b"a", b"b", at=0)
    made.copy(0, 1, {0: 0}, 0, 1)
    with breaks(1, "lost write"):
        made.judge.object_deleted(next(iter(made.stored)), "broker-1", made.now_ms)


@pytest.mark.parametrize(
    ("decided", "is_shown", "anomaly"),
    [(None, True, "precommitted read"), (False, True, "aborted read"), (True, False, "lost write")],
)
def test_6_transactions_are_whole(made: MadeCluster, decided: bool | None, is_shown: bool, anomaly: str) -> None:
    """Read committed shows what was committed, and nothing else."""
    made.send(b"a", transaction="t")
    if decided is not None:
        made.judge.transaction_decided("t", decided, made.now_ms)
    batch = Batch(0, (b"a",), producer_id=5, producer_epoch=0, transactional=True)
    made.append(batch)
    aborted = () if is_shown else (AbortedTransaction(5, 0),)
    with breaks(6, anomaly):
        made.poll(0, batch, is_committed=True, aborted=aborted)


def test_6_a_good_transaction_passes(made: MadeCluster) -> None:
    """Committed ones are shown, aborted ones are not."""
    ours = {"producer_id": 5, "producer_epoch": 0}
    made.send(b"a", transaction="t")
    made.send(b"b", transaction="u")
    made.judge.transaction_decided("t", True, made.now_ms)
    made.judge.transaction_decided("u", False, made.now_ms)
    batches = (
        Batch(0, (b"a",), transactional=True, **ours),
        Batch(1, (b"",), marker="commit", **ours),
        Batch(2, (b"b",), transactional=True, **ours),
        Batch(3, (b"",), marker="abort", **ours),
    )
    made.append(*batches)
    made.poll(0, *batches, is_committed=True, aborted=(AbortedTransaction(5, 2),))
    with breaks(6, "changed decision"):
        made.judge.transaction_decided("t", False, made.now_ms)


def test_7_nothing_goes_before_its_bound() -> None:
    """A log start that rises over records that are neither old nor too many, and that no admin asked for."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_ms=5000, retention_bytes=150))
    made.write(b"a" * 100, at=0)
    made.write(b"b" * 100, at=1)
    made.judge.checkpoint(made.now_ms)
    made.look()
    began = {"log_start_offset": 1, "local_log_start_offset": 1}
    made.change(1, **began, segments=((1, 170),))  # by size
    made.look()
    made.write(b"c" * 100, at=2)
    made.judge.checkpoint(made.now_ms)
    made.change(1, log_start_offset=2, local_log_start_offset=2, segments=((2, 100),))
    with breaks(7, "early deletion"):
        made.look()
    made.now_ms += 6000
    made.change(1, log_start_offset=3, local_log_start_offset=3, segments=((3, 0),))  # by time
    made.look()


@pytest.mark.parametrize(("first_age_ms", "second_age_ms"), [(0, 6000), (6000, 0)])
def test_7_some_go_by_the_size_and_others_by_their_age(first_age_ms: int, second_age_ms: int) -> None:
    """By the size only the oldest may go, and only an old one behind it by its age."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_ms=5000, retention_bytes=300))
    began = made.now_ms
    for at, age_ms in enumerate((first_age_ms, second_age_ms, 0)):
        made.now_ms = began - age_ms
        made.write(b"%d" % at * 100, at=at)
    made.now_ms = began
    made.look()
    made.judge.checkpoint(made.now_ms)
    made.change(1, log_start_offset=2, local_log_start_offset=2, segments=((2, 170),))
    if second_age_ms:
        made.look()
        return
    with breaks(7, "early deletion"):
        made.look()


def test_7_what_an_admin_asked_for_goes(made: MadeCluster) -> None:
    """DeleteRecords has no bound."""
    made.write(b"a", b"b", at=0)
    made.judge.checkpoint(made.now_ms)
    made.judge.records_deletion_asked(PARTITION, 1, made.now_ms)
    made.change(1, log_start_offset=1, local_log_start_offset=1)
    made.look()


def test_7_what_is_due_goes() -> None:
    """A settled log is within its bounds."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_ms=5000, retention_bytes=-1))
    made.write(b"a", at=0)
    made.write(b"b", at=1)
    made.change(1, segments=((0, 100), (1, 100)))
    made.look()
    made.judge.settled(made.now_ms)
    made.now_ms += 60_000
    made.change(1)
    with breaks(7, "late deletion"):
        made.judge.settled(made.now_ms)


def test_8_nothing_is_left_open(made: MadeCluster) -> None:
    """Memory, files and tasks are back at zero."""
    made.open = {"broker-1 tasks": 0}
    made.judge.closed(made.now_ms)
    made.open = {"broker-1 tasks": 1}
    with breaks(8, "leak"):
        made.judge.closed(made.now_ms)


@pytest.mark.parametrize(
    "values",
    [
        {"log_start_offset": 1},
        {"local_log_start_offset": 3},
        {"high_watermark": 3},
        {"last_stable_offset": 3},
        {"lineage": ((0, 0), (1, 9))},
        {"lineage": ((1, 0), (0, 1))},
    ],
)
def test_9_offsets_are_in_order(made: MadeCluster, values: dict[str, Any]) -> None:
    """Log start ≤ local start ≤ high watermark ≤ log end, and log start ≤ last stable offset ≤ high watermark."""
    made.write(b"a", b"b", at=0)
    made.look()
    made.change(2, **values)
    with pytest.raises(Violation) as found:
        made.look()
    assert found.value.invariant == 9


def test_9_a_copy_lies_below_the_last_stable_offset(made: MadeCluster) -> None:
    """What is not decided yet is not in the tier."""
    made.write(b"a", b"b", at=0)
    made.change(1, last_stable_offset=1)
    with breaks(9, "unstable copy"):
        made.copy(0, 1, {0: 0}, 0, 1)


@pytest.mark.parametrize("states", [(0, 1), (0, 1, 2)])
def test_10_what_a_zombie_begins_in_a_partition_that_is_gone(made: MadeCluster, states: tuple[int, ...]) -> None:
    """Its record behind the end of the removal is none: nobody has to end the copy. Its objects are judged."""
    made.remove_partition(*states)
    made.copy(0, 0, {0: 0}, 0)
    made.now_ms += 60_000
    made.look()
    if states[-1] < 2:
        with breaks(10, "stuck tier"):
            made.judge.settled(made.now_ms)
        return
    made.judge.settled(made.now_ms)
    made.put(SEGMENT, 0, "log")
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)


@pytest.mark.parametrize("before_ms", [100, 10_000])
def test_10_what_a_zombie_begins_while_its_partition_goes(made: MadeCluster, before_ms: int) -> None:
    """Its remover may not have read a record of just before; one that it must have read has to be ended."""
    made.remove_partition(0, 1)
    made.copy(0, 0, {0: 0}, 0)
    made.now_ms += before_ms
    made.remove_partition(2)
    made.now_ms += 60_000
    made.look()
    if before_ms < 2_000:
        made.judge.settled(made.now_ms)
        return
    with breaks(10, "stuck tier"):
        made.judge.settled(made.now_ms)


def test_10_what_a_topic_leaves_in_the_tier(made: MadeCluster) -> None:
    """Its leader has to remove it, and may crash: nobody else does. A topic that comes back ends what it left."""
    made.copy(0, 0, {0: 0}, 0)
    made.judge.topic_changed("orders", 0, dataclasses.replace(FACTS, is_tiered=False), made.now_ms)
    made.now_ms += 60_000
    made.look()
    made.judge.settled(made.now_ms)
    made.judge.topic_changed("orders", 0, FACTS, made.now_ms)
    with breaks(10, "stuck tier"):
        made.judge.settled(made.now_ms)


@pytest.mark.parametrize(
    ("anomaly", "break_it"),
    [
        ("stuck tier", lambda made: made.copy(0, 0, {0: 0}, 0)),
        ("followers out of sync", lambda made: made.elect(0, 1, in_sync=(1,))),
        ("stuck high watermark", lambda made: made.change(1, high_watermark=1, last_stable_offset=1)),
        ("stuck copies", lambda made: made.change(1, segments=((0, 10), (1, 10), (2, 0)))),
        ("no leader", lambda made: made.change(1, role="follower")),
    ],
)
def test_10_a_settled_cluster_is_done(made: MadeCluster, anomaly: str, break_it: Callable[[MadeCluster], None]) -> None:
    """Three intervals after the faults all is copied, all are in sync, and nothing is half done."""
    made.write(b"a", b"b", at=0)
    made.judge.settled(made.now_ms)
    break_it(made)
    if anomaly == "stuck tier":
        made.judge.settled(made.now_ms + 1_000)  # it goes on
    with breaks(10, anomaly):
        made.judge.settled(made.now_ms + 10_000)


def test_11_what_was_read_stays(made: MadeCluster) -> None:
    """It is there for good, whoever leads next."""
    made.send(b"a")
    made.append(Batch(0, (b"a",)))
    made.poll(0, Batch(0, (b"a",)))
    made.look()
    made.elect(1, 2)
    made.change(
        2, role="leader", leader_epoch=1, lineage=((1, 0),), log_end_offset=0, high_watermark=0, last_stable_offset=0
    )
    with breaks(1, "lost write"):
        made.look()


def test_12_consumers_go_forward(made: MadeCluster) -> None:
    """A consumer that had progressed is not sent back to where it had been."""
    made.write(b"a", b"b", b"c", at=0)
    made.judge.records_deletion_asked(PARTITION, 1, made.now_ms)
    made.change(1, log_start_offset=1, local_log_start_offset=1)
    made.look()
    made.judge.position_reset("consumer", PARTITION, 0, 1, "OFFSET_OUT_OF_RANGE", made.now_ms)
    made.judge.position_reset("consumer", PARTITION, 2, 0, "random", made.now_ms)
    with breaks(12, "nonmonotonic poll"):
        made.judge.position_reset("consumer", PARTITION, 2, 0, "OFFSET_OUT_OF_RANGE", made.now_ms)


def test_12_sends_keep_their_order(made: MadeCluster) -> None:
    """A producer's second batch lies behind its first."""
    first, second = made.send(b"a"), made.send(b"b")
    made.acknowledge(second, 0)
    with breaks(12, "nonmonotonic send"):
        made.acknowledge(first, 1)


def test_12_a_duplicate_has_its_first_offset(made: MadeCluster) -> None:
    """A batch that is sent again is where it was."""
    number = made.send(b"a")
    made.acknowledge(number, 0)
    made.acknowledge(number, 0)
    with breaks(1, "duplicate"):
        made.acknowledge(number, 1)


def test_12_a_read_ends_where_it_may(made: MadeCluster) -> None:
    """Below the high watermark, and below the last stable offset for read committed."""
    batch = made.write(b"a", b"b", at=0)
    with breaks(9, "dirty read"):
        made.poll(0, batch, high_watermark=1)
    with breaks(9, "precommitted read"):
        made.poll(0, batch, is_committed=True, last_stable_offset=1)


def test_13_logs_agree(made: MadeCluster) -> None:
    """Below the high watermark all in-sync replicas have the same bytes."""
    made.send(b"a")
    made.look()
    made.append(Batch(0, (b"a",)), brokers=(1,))
    made.append(Batch(0, (b"a",), timestamp_ms=5), brokers=(2,))
    with breaks(13, "parted logs"):
        made.judge.checkpoint(made.now_ms)


def test_13_members_hold_what_is_committed(made: MadeCluster) -> None:
    """An in-sync replica with a shorter log loses it once it leads."""
    made.write(b"a", b"b", at=0)
    made.look()
    made.logs[2] = []
    made.change(2, log_end_offset=0, high_watermark=0, last_stable_offset=0)
    with breaks(13, "lost write"):
        made.judge.checkpoint(made.now_ms)


def test_13_a_log_has_no_hole(made: MadeCluster) -> None:
    """Neither between its batches nor in its lineage."""
    made.send(b"a")
    made.send(b"b")
    made.look()
    made.append(Batch(0, (b"a",)), Batch(2, (b"b",)))
    with breaks(13, "hole in a log"):
        made.judge.checkpoint(made.now_ms)
    made.logs = {1: [encode(Batch(0, (b"a",), 3))], 2: []}
    with breaks(13, "wrong lineage"):
        made.judge.checkpoint(made.now_ms)


@pytest.mark.parametrize(("start", "is_whole"), [(4, True), (3, False)])
def test_13_what_lies_in_front_of_the_start_may_have_a_hole(made: MadeCluster, *, start: int, is_whole: bool) -> None:
    """A cut to the leader's start takes a whole batch, of another branch, that lies across it."""
    made.write(b"a", b"b", at=0)
    made.look()
    made.append(Batch(4, (b"c",)), brokers=(2,))
    made.change(2, log_start_offset=start, local_log_start_offset=start, high_watermark=2)
    if is_whole:
        made.judge.checkpoint(made.now_ms)
        return
    with breaks(13, "hole in a log"):
        made.judge.checkpoint(made.now_ms)
