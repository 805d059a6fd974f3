"""The judge of what replicas know of producers, by histories made by hand; and of copies that came late."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.facts import ProducerView
from tests.simulation.made_cluster import FACTS, PARTITION, MadeCluster, breaks
from tests.support.batches import Batch

KNOWN = ProducerView(epoch=3, last_sequence=1, last_offset=1)


def _made() -> MadeCluster:
    """Both replicas have a batch of producer 7, at the offsets 0 and 1, and both know it."""
    made = MadeCluster()
    made.write(b"a", b"b", at=0, producer_id=7, producer_epoch=3)
    made.producers = {1: {7: KNOWN}, 2: {7: KNOWN}}
    made.look()
    made.judge.checkpoint(made.now_ms)
    return made


def test_all_replicas_know_the_last_batch() -> None:
    """Or a resend of it would be appended by the one that does not, once that leads."""
    made = _made()
    made.producers[2] = {}
    with breaks(12, "forgotten producer"):
        made.judge.checkpoint(made.now_ms)


@pytest.mark.parametrize(
    "known",
    [
        dataclasses.replace(KNOWN, epoch=2),
        dataclasses.replace(KNOWN, last_offset=0, last_sequence=0),
        dataclasses.replace(KNOWN, last_offset=-1, last_sequence=-1),
        dataclasses.replace(KNOWN, last_sequence=2),
    ],
)
def test_an_earlier_batch_is_not_the_last(known: ProducerView) -> None:
    made = _made()
    made.producers[2] = {7: known}
    with breaks(12, "forgotten producer"):
        made.judge.checkpoint(made.now_ms)


def test_a_later_epoch_has_no_batch_yet() -> None:
    """A marker, or another life of the producer, has begun it."""
    made = _made()
    made.producers[2] = {7: ProducerView(epoch=4, last_sequence=-1, last_offset=-1)}
    made.judge.checkpoint(made.now_ms)


@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("epoch", [3, 4])
def test_a_compaction_takes_the_last_batch_once_the_next_epoch_has_begun(
    *, is_compacted: bool, is_there: bool, epoch: int
) -> None:
    """The marker lay behind what was synced, and went by a crash: nothing of the batch is left in that log."""
    made = MadeCluster(dataclasses.replace(FACTS, is_compacted=is_compacted, is_tiered=False))
    made.write(b"a", b"b", at=0, keys=(b"k", b"l"), producer_id=7, producer_epoch=3)
    made.append(Batch(2, (b"",), producer_id=7, producer_epoch=epoch, marker="commit"))
    made.producers = {1: {7: dataclasses.replace(KNOWN, epoch=epoch)}, 2: {7: KNOWN}}
    made.look()
    made.judge.checkpoint(made.now_ms)
    made.producers[2] = {7: ProducerView(epoch=3, last_sequence=-1, last_offset=-1)}
    del made.logs[2][is_there:]
    made.change(2, log_end_offset=2, high_watermark=2, last_stable_offset=2)
    if is_compacted and not is_there and epoch == 4:
        made.judge.step(frozenset((2,)), made.now_ms)
        return
    with breaks(12, "forgotten producer"):
        made.judge.step(frozenset((2,)), made.now_ms)


@pytest.mark.parametrize("is_in_sync_log", [True, False])
def test_a_compaction_may_go_by_a_marker_that_nobody_has_read(*, is_in_sync_log: bool) -> None:
    """The leader crashes behind it, before a consumer has come by: the others' logs have it."""
    made = MadeCluster(dataclasses.replace(FACTS, is_compacted=True, is_tiered=False))
    made.write(b"a", b"b", at=0, keys=(b"k", b"l"), producer_id=7, producer_epoch=3)
    made.producers = {1: {7: dataclasses.replace(KNOWN, epoch=4)}, 2: {7: KNOWN}}
    made.look()
    made.judge.checkpoint(made.now_ms)
    if is_in_sync_log:
        made.append(Batch(2, (b"",), producer_id=7, producer_epoch=4, marker="commit"), brokers=(1,))
    made.producers[2] = {7: ProducerView(epoch=3, last_sequence=-1, last_offset=-1)}
    made.logs[2].clear()
    made.judge.broker_stopped(2, 0, False, made.now_ms)
    made.judge.broker_started(2, 1, made.now_ms)
    if is_in_sync_log:
        made.judge.step(frozenset((2,)), made.now_ms)
        return
    with breaks(12, "forgotten producer"):
        made.judge.step(frozenset((2,)), made.now_ms)


def test_a_batch_that_was_cut_is_not_known() -> None:
    """Or its resend would be called a duplicate of what is nowhere."""
    made = _made()
    made.change(2, log_end_offset=0, high_watermark=0, last_stable_offset=0)
    with breaks(12, "phantom duplicate"):
        made.look()
    made.producers[2] = {}
    made.look()


def test_a_silent_producer_is_forgotten() -> None:
    made = _made()
    made.producers[2] = {}
    made.now_ms += 2 * 86_400_000
    made.change(1)
    made.change(2)
    made.judge.checkpoint(made.now_ms)


def test_a_branch_that_has_to_be_cut_yet_is_not_judged() -> None:
    """What a follower has there is another leader's, though the offset is the same."""
    made = _made()
    made.producers[2] = {}
    made.change(2, lineage=((1, 0),), leader_epoch=1)
    made.look()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_compaction_takes_the_last_batch_once_there_is_a_later_one(*, is_there: bool) -> None:
    """That was of a branch which an unclean election took."""
    made = MadeCluster(dataclasses.replace(FACTS, is_compacted=True, is_tiered=False))
    made.write(b"a", b"b", at=0, keys=(b"k", b"l"), producer_id=7, producer_epoch=3)
    made.producers = {1: {7: KNOWN}, 2: {7: KNOWN}}
    made.look()
    made.judge.checkpoint(made.now_ms)
    made.elect(1, 1, is_unclean=True, in_sync=(1,))
    made.change(1, leader_epoch=1, lineage=((0, 0), (1, 2)))
    made.look()
    del made.logs[2][is_there:]
    made.producers[2] = {}
    made.change(2, leader_epoch=1)
    if not is_there:
        made.judge.checkpoint(made.now_ms)
        return
    with breaks(12, "forgotten producer"):
        made.judge.checkpoint(made.now_ms)


@pytest.mark.parametrize("start", [1, 2])
def test_a_producer_in_front_of_the_start_is_forgotten(start: int) -> None:
    """By a replica too that starts, behind a crash, where the log did before, until its leader tells it."""
    made = _made()
    made.judge.records_deletion_asked(PARTITION, start, made.now_ms)
    made.change(1, log_start_offset=start, local_log_start_offset=start)
    made.look()
    made.producers[2] = {}
    if start == 2:
        made.judge.checkpoint(made.now_ms)
        return
    with breaks(12, "forgotten producer"):
        made.judge.checkpoint(made.now_ms)


def test_a_start_is_looked_at() -> None:
    """What a replica has restored of producers is judged when it is there again."""
    made = _made()
    made.look()
    made.judge.broker_stopped(2, 0, True, made.now_ms)
    made.judge.broker_started(2, 1, made.now_ms)
    made.producers[2] = {}
    with breaks(12, "forgotten producer"):
        made.look()


def test_no_offset_is_copied_that_the_log_has_not() -> None:
    """A cut lowers the copied offset: what is appended behind it is in no tier."""
    made = MadeCluster()
    made.append(Batch(0, (b"a", b"b")))
    made.change(2, copied_offset=1)
    made.look()
    made.change(2, log_end_offset=1, high_watermark=1, last_stable_offset=1)
    with breaks(9, "offsets out of order"):
        made.look()


def test_a_copy_that_came_late_goes_unless_its_broker_has_ended() -> None:
    """Who goes on has to find that its copy is another leader's by now, and is deleted."""
    made = MadeCluster()
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1, 2, 3)
    made.stored.clear()
    made.put(bytes([7] * 16), 0, "log")
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)
    made.judge.broker_stopped(1, 0, False, made.now_ms)
    made.judge.broker_started(1, 1, made.now_ms)
    made.judge.settled(made.now_ms)


def test_a_put_that_was_given_up_may_land_late() -> None:
    """Its broker cannot know; `tierlog orphans` names it."""
    made = MadeCluster()
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1, 2, 3)
    made.stored.clear()
    key = made.put(bytes([7] * 16), 0, "log")
    made.judge.object_put(key, 1, 1, 0, made.now_ms, is_awaited=False)
    made.judge.settled(made.now_ms)
    made.judge.closed(made.now_ms)
    assert made.judge._trace.counters["orphans"] == 1


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_put_that_was_sent_again_may_land_when_its_object_was_deleted(*, is_deleted: bool, is_awaited: bool) -> None:
    """Its copier had the answer of the second one. The deletion goes on with other objects meanwhile."""
    made = MadeCluster()
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1, 2)
    for key in made.stored:
        if is_deleted or not key.endswith(".log"):
            made.judge.object_deleted(key, "broker-1", made.now_ms)
    key = next(each for each in made.stored if each.endswith(".log"))
    made.stored = {key: 1}
    made.judge.object_put(key, 1, 1, 0, made.now_ms, is_awaited=is_awaited)
    made.copy(0, 1, {0: 0}, 3)
    if is_deleted and not is_awaited:
        made.judge.settled(made.now_ms)
        return
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)


def test_12_a_log_that_begins_anew_is_judged_behind_that() -> None:
    """A replica that was cut below its first segment knows producers once it has begun from the tier."""
    made = _made()
    made.producers[2] = {}
    with breaks(12, "forgotten producer"):
        made.judge.checkpoint(made.now_ms)
    made.producers[2] = None  # type: ignore[assignment]
    made.judge.checkpoint(made.now_ms)


def test_a_batch_whose_first_copy_retention_took() -> None:
    """A broker whose log began behind it has never known its producer; one whose log still has it may serve both."""
    made = MadeCluster()
    number = made.send(b"a")
    made.acknowledge(number, 0)
    made.append(Batch(0, (b"a",)), Batch(1, (b"b",)))
    made.send(b"b")
    made.look()
    made.judge.records_deletion_asked(PARTITION, 1, made.now_ms)
    made.change(1, log_start_offset=1, local_log_start_offset=1)
    made.look()
    made.acknowledge(number, 2)
    made.acknowledge(number, 0)
    with breaks(1, "duplicate"):
        made.acknowledge(number, 3)
