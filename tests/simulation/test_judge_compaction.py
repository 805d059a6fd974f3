"""The judge of compacted topics, by histories made by hand: invariant 14."""

from __future__ import annotations

import dataclasses

from tests.simulation.made_cluster import FACTS, MadeCluster, breaks
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
