"""The judge of compacted topics, by histories made by hand: invariant 14, and markers that went."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.facts import NOTHING, ReadPart
from tests.simulation.judge.compaction import Clocks, TombstoneTimes
from tests.simulation.made_cluster import FACTS, PARTITION, MadeCluster, breaks
from tests.simulation.messages import AbortedTransaction
from tests.support.batches import Batch, encode


def test_14_a_compacted_topic_has_the_last_values() -> None:
    """A compacted log has the last value of each key, and a tombstone for its time."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, is_compacted=True))
    made.write(b"old", b"new", at=0, keys=(b"k", b"k"))
    made.write(b"other", at=2, keys=(b"l",))
    number = made.send(None, keys=(b"l",))
    made.append(Batch(3, (None,), keys=(b"l",)))
    made.acknowledge(number, 3)
    made.look()
    made.judge.checkpoint(made.now_ms)
    new, gone = Batch(1, (b"new",), keys=(b"k",)), Batch(3, (None,), keys=(b"l",))
    made.logs = {each: [encode(new), encode(gone)] for each in (1, 2)}
    made.judge.checkpoint(made.now_ms)
    made.logs = {each: [encode(new)] for each in (1, 2)}
    with breaks(14, "lost write"):
        made.judge.checkpoint(made.now_ms)
    made.now_ms += 20_000
    made.change(1)
    made.change(2)
    made.judge.checkpoint(made.now_ms)
    made.logs = {each: [encode(Batch(0, (b"old",), keys=(b"k",)))] for each in (1, 2)}
    with breaks(14, "lost write"):
        made.judge.checkpoint(made.now_ms)


def test_14_a_high_watermark_that_fell_hides_no_tombstone() -> None:
    """An unclean start leads with the high watermark of its checkpoint: the log was cleaned beyond that."""
    facts = dataclasses.replace(FACTS, is_tiered=False, is_compacted=True, delete_retention_ms=0)
    made = MadeCluster(facts)
    made.write(b"value", at=0, keys=(b"k",))
    number = made.send(None, keys=(b"k",))
    made.append(Batch(1, (None,), keys=(b"k",)))
    made.acknowledge(number, 1)
    made.write(b"other", at=2, keys=(b"l",))
    made.now_ms += 20_000
    made.look()
    made.logs = {each: [encode(Batch(2, (b"other",), keys=(b"l",)))] for each in (1, 2)}
    for broker in (1, 2):
        made.change(broker, high_watermark=1)
    made.judge.checkpoint(made.now_ms)
    for broker in (1, 2):
        made.change(broker, high_watermark=3)
    made.judge.checkpoint(made.now_ms)
    made.logs = {1: [], 2: []}
    with breaks(14, "lost write"):
        made.judge.checkpoint(made.now_ms)


def test_14_a_tombstone_goes_by_the_time_that_its_first_cleaning_wrote() -> None:
    """A longer ``delete.retention.ms`` leaves the time that is in the batch; clocks that differ make it earlier."""
    facts = dataclasses.replace(FACTS, is_tiered=False, is_compacted=True, delete_retention_ms=3_000)
    made = MadeCluster(facts)
    made.write(b"value", at=0, keys=(b"k",))
    number = made.send(None, keys=(b"k",))
    made.append(Batch(1, (None,), keys=(b"k",)))
    made.acknowledge(number, 1)
    made.look()
    made.judge.topic_changed("orders", 0, dataclasses.replace(facts, delete_retention_ms=20_000), made.now_ms + 1_000)
    made.logs = {1: [], 2: []}
    made.now_ms += 2_000
    with breaks(14, "lost write"):
        made.judge.checkpoint(made.now_ms)
    made.change(2, clock_ms=made.now_ms + 1_000)
    made.judge.step(frozenset((2,)), made.now_ms)
    made.judge.checkpoint(made.now_ms)


def test_14_a_tombstone_of_a_longer_time_stays() -> None:
    """What was sent long after the shorter ``delete.retention.ms`` had ended goes by the longer one."""
    facts = dataclasses.replace(FACTS, is_tiered=False, is_compacted=True, delete_retention_ms=0)
    made = MadeCluster(facts)
    made.judge.topic_changed("orders", 0, dataclasses.replace(facts, delete_retention_ms=20_000), made.now_ms)
    made.now_ms += 16_000
    number = made.send(None, keys=(b"k",))
    made.append(Batch(0, (None,), keys=(b"k",)))
    made.acknowledge(number, 0)
    made.look()
    made.logs = {1: [], 2: []}
    made.now_ms += 10_000
    with breaks(14, "lost write"):
        made.judge.checkpoint(made.now_ms)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize("was_away", [True, False])
@pytest.mark.parametrize("waited_ms", [1_000, 10_000])
def test_6_a_marker_goes_by_its_time(*, is_commit: bool, is_compacted: bool, was_away: bool, waited_ms: int) -> None:
    """A follower that was away for longer has the records, which its leader has no more, and not their marker: its
    producer's next one decides there, and without one its last stable offset stays (Kafka's too). Nobody else may show
    an aborted record, or hide a committed one.
    """
    facts = dataclasses.replace(FACTS, is_tiered=False, is_compacted=is_compacted, delete_retention_ms=5_000)
    made = MadeCluster(facts)
    made.now_ms += 500
    made.send(b"a", keys=(b"k",), transaction="t")
    made.judge.transaction_decided("t", is_commit, made.now_ms)
    ours = {"producer_id": 5, "producer_epoch": 0}
    batch = Batch(0, (b"a",), keys=(b"k",), transactional=True, **ours)
    made.append(batch, Batch(1, (b"",), marker="abort" if is_commit else "commit", **ours))
    if was_away:
        made.elect(0, 1, in_sync=(1,))
        made.now_ms += 500
        made.elect(0, 1)
    made.now_ms += waited_ms
    aborted = (AbortedTransaction(5, 0),) if is_commit else ()
    data = b"".join(made.logs[2])
    part = ReadPart(0, data, aborted)

    def read() -> None:
        made.judge.read_whole(2, PARTITION, is_committed=True, start=0, end=2, parts=(part,), now_ms=made.now_ms)

    def poll() -> None:
        made.poll(0, batch, is_committed=True, broker=2, aborted=aborted)

    def hang() -> int | None:
        return made.judge.unreadable(2, PARTITION, 0, NOTHING, is_committed=True, now_ms=made.now_ms)

    made.judge.served(2, PARTITION, 0, data, False, made.now_ms)
    if is_compacted and was_away and waited_ms > 5_000:
        poll()
        read()
        assert hang() is None
        return
    with breaks(1, "lost write"):
        hang()
    with breaks(6, "lost write" if is_commit else "aborted read"):
        poll()
    if not is_commit or not is_compacted:  # a key's last value is asked for elsewhere
        with breaks(6, "lost write" if is_commit else "aborted read"):
            read()


def test_a_tombstone_of_a_cleaning_that_began_before_a_change() -> None:
    """It goes by the cleaning's start and the new value: from the change on, however short that is."""
    times, clocks = TombstoneTimes(), Clocks()
    times.configured(20_000, 0)
    times.configured(3_000, 15_000)
    slack_ms = 3_000 - times.earliest_ms(1_000_000, clocks) + 1_000_000
    assert times.earliest_ms(11_000, clocks) == 15_000 - slack_ms
    assert times.earliest_ms(14_000, clocks) == 17_000 - slack_ms
