"""The judge of the last reads of a run, by histories made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.simulation.facts import ReadPart
from tests.simulation.made_cluster import FACTS, PARTITION, MadeCluster, breaks
from tests.simulation.messages import AbortedTransaction
from tests.support.batches import Batch, encode


def _read(made: MadeCluster, start: int, end: int, *parts: Any, is_committed: bool = False, broker: int = 1) -> None:
    """A replica was read: each part is what was asked for, batches, and aborted transactions."""
    read = []
    for offset, batches, *aborted in parts:
        data = b"".join(encode(each) for each in batches)
        made.judge.served(broker, PARTITION, offset, data, False, made.now_ms)
        read.append(ReadPart(offset, data, tuple(AbortedTransaction(*each) for each in aborted)))
    made.judge.read_whole(
        broker, PARTITION, is_committed=is_committed, start=start, end=end, parts=tuple(read), now_ms=made.now_ms
    )


@pytest.fixture
def made() -> MadeCluster:
    return MadeCluster()


def test_all_is_read_from_every_replica(made: MadeCluster) -> None:
    """Each record once, in order, up to the end; from the log start on, when that has risen."""
    first, second = made.write(b"a", b"b", at=0), made.write(b"c", at=2)
    made.look()
    for broker in (1, 2):
        _read(made, 0, 3, (0, [first]), (2, [second]), broker=broker)
    made.change(1, log_start_offset=2, local_log_start_offset=2)
    made.judge.records_deletion_asked(PARTITION, 2, made.now_ms)
    made.look()
    _read(made, 2, 3, (2, [second]), is_committed=True)
    _read(made, 1, 3, (1, [first]), (2, [second]))  # read before the start rose


@pytest.mark.parametrize(
    ("invariant", "anomaly", "start", "end", "parts"),
    [
        (1, "lost write", 2, 3, [(2, "c")]),
        (1, "lost write", 0, 2, [(0, "a")]),
        (1, "lost write", 0, 3, [(0, "a")]),
        (1, "lost write", 0, 3, []),
        (12, "poll skip", 0, 4, [(0, "a"), (2, "d")]),
        (12, "poll skip", 0, 4, [(0, "a"), (3, "d")]),
        (12, "nonmonotonic poll", 0, 3, [(0, "ac"), (3, "c")]),
        (1, "corrupt read", 0, 3, [(0, "a"), (2, "e")]),
    ],
)
def test_what_a_read_lacks(
    made: MadeCluster, invariant: int, anomaly: str, start: int, end: int, parts: list[tuple[int, str]]
) -> None:
    """A start behind the log's, an end before what is committed, a hole, a step back, another record."""
    batches = {"a": made.write(b"a", b"b", at=0), "c": made.write(b"c", at=2), "d": made.write(b"d", at=3)}
    batches["e"] = Batch(2, (b"d",), timestamp_ms=made.now_ms)
    made.judge.served(1, PARTITION, 0, b"".join(map(encode, list(batches.values())[:3])), False, made.now_ms)
    if end < 4:
        made.judge._topics.partitions[PARTITION].contents.cut(3)
    with breaks(invariant, anomaly):
        read = tuple(ReadPart(at, b"".join(encode(batches[name]) for name in names), ()) for at, names in parts)
        made.judge.read_whole(1, PARTITION, is_committed=False, start=start, end=end, parts=read, now_ms=made.now_ms)


@pytest.mark.parametrize("is_commit", [True, False])
def test_committed_records_are_read_and_no_others(made: MadeCluster, is_commit: bool) -> None:
    """A transaction is whole for a reader of committed records, or hidden; for the other one it is there."""
    ours = {"producer_id": 5, "producer_epoch": 0}
    made.send(b"a", transaction="t")
    made.judge.transaction_decided("t", is_commit, made.now_ms)
    batches = [
        Batch(0, (b"a",), transactional=True, **ours),
        Batch(1, (b"",), marker="commit" if is_commit else "abort", **ours),
    ]
    made.append(*batches)
    hidden: tuple[Any, ...] = (0, batches, (5, 0))
    _read(made, 0, 2, hidden)
    _read(made, 0, 2, (0, batches) if is_commit else hidden, is_committed=True)
    with breaks(6, "lost write" if is_commit else "aborted read"):
        _read(made, 0, 2, hidden if is_commit else (0, batches), is_committed=True)


def test_a_duplicate_is_somewhere(made: MadeCluster) -> None:
    """A producer was told that its batch is there already, and not where."""
    batch = made.write(b"a", at=0)
    made.judge.acknowledged("producer", made.send(b"b"), -1, True, made.now_ms)
    with breaks(1, "lost write"):
        _read(made, 0, 1, (0, [batch]))
    made.append(Batch(1, (b"b",)))
    _read(made, 0, 2, (0, [batch, Batch(1, (b"b",))]))


def test_what_a_lifecycle_rule_took_is_jumped_over(made: MadeCluster) -> None:
    """Its offsets alone: what lies behind them is read."""
    first, second = made.write(b"a", b"b", at=0), made.write(b"c", at=2)
    made.copy(0, 1, {0: 0}, 0, 1)
    with breaks(1, "lost write"):
        made.judge.unreadable(1, PARTITION, 0, "UNKNOWN_SERVER_ERROR", is_committed=False, now_ms=made.now_ms)
    with breaks(12, "poll skip"):
        _read(made, 0, 3, (2, [second]))
    made.judge.object_deleted(next(iter(made.stored)), "lifecycle", made.now_ms)
    assert made.judge.unreadable(1, PARTITION, 0, "UNKNOWN_SERVER_ERROR", is_committed=False, now_ms=made.now_ms) == 2
    _read(made, 0, 3, (2, [second]))
    _read(made, 0, 3, (0, [first, second]))
    with breaks(1, "lost write"):
        made.judge.unreadable(1, PARTITION, 2, "UNKNOWN_SERVER_ERROR", is_committed=False, now_ms=made.now_ms)


def test_a_replica_may_start_behind_its_leader(made: MadeCluster) -> None:
    """An earlier leader had published that start; else it has lost what lies in front."""
    batch = made.write(b"a", b"b", at=0)
    made.judge.records_deletion_asked(PARTITION, 1, made.now_ms)
    made.change(2, log_start_offset=1, local_log_start_offset=1)
    with breaks(1, "lost write"):
        made.judge.unreadable(2, PARTITION, 0, "OFFSET_OUT_OF_RANGE", is_committed=False, now_ms=made.now_ms)
    made.change(1, log_start_offset=1, local_log_start_offset=1)
    made.look()
    made.change(1, log_start_offset=0, local_log_start_offset=0)
    assert made.judge.unreadable(2, PARTITION, 0, "OFFSET_OUT_OF_RANGE", is_committed=False, now_ms=made.now_ms) == 1
    _read(made, 1, 2, (1, [batch]))


def test_a_replica_without_a_tier_starts_by_its_own_retention() -> None:
    """A follower's segments end elsewhere than its leader's: it deletes one where that has to leave all; no more."""
    first, second = Batch(0, (b"a" * 100,)), Batch(1, (b"b" * 100,))
    size = len(encode(second))
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, retention_bytes=size, retention_ms=-1))
    made.append(first, second)
    made.look()
    made.judge.checkpoint(made.now_ms)

    def read() -> int | None:
        return made.judge.unreadable(2, PARTITION, 0, "OFFSET_OUT_OF_RANGE", is_committed=False, now_ms=made.now_ms)

    made.change(2, log_start_offset=1, local_log_start_offset=1, segments=((1, size),))
    assert read() == 1
    made.change(2, log_start_offset=2, local_log_start_offset=2, segments=())
    with breaks(7, "early deletion"):
        read()


def test_a_replica_may_start_where_it_was_local_when_its_tier_went(made: MadeCluster) -> None:
    """Its leader, which had more, has copied that since; else it has lost what lies in front."""
    made.write(b"a", b"b", at=0)
    batch = made.write(b"c", at=2)
    made.change(2, log_start_offset=2, local_log_start_offset=2)
    with breaks(1, "lost write"):
        made.judge.unreadable(2, PARTITION, 0, "OFFSET_OUT_OF_RANGE", is_committed=False, now_ms=made.now_ms)
    made.judge.topic_changed("orders", 0, dataclasses.replace(FACTS, is_tiered=False), made.now_ms)
    made.look()
    made.judge.topic_changed("orders", 0, FACTS, made.now_ms)
    assert made.judge.unreadable(2, PARTITION, 0, "OFFSET_OUT_OF_RANGE", is_committed=False, now_ms=made.now_ms) == 2
    _read(made, 2, 3, (2, [batch]))


def test_what_has_rotted_ends_a_read(made: MadeCluster) -> None:
    """Nobody can read on; an operator has to act."""
    made.write(b"a", at=0)
    made.judge.fault_began("local rot", "1 /logs/orders-0/00000000000000000000.log", made.now_ms)
    assert made.judge.unreadable(2, PARTITION, 0, "CORRUPT_MESSAGE", is_committed=True, now_ms=made.now_ms) is None


def test_the_last_values_of_a_compacted_topic_are_read() -> None:
    """Whatever compaction took of the others."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, is_compacted=True))
    made.write(b"old", b"new", at=0, keys=(b"k", b"k"))
    last = made.write(b"other", at=2, keys=(b"l",))
    _read(made, 0, 3, (0, [Batch(1, (b"new",), keys=(b"k",)), last]))
    with breaks(14, "lost write"):
        _read(made, 0, 3, (0, [last]))


def test_compaction_takes_committed_records_of_transactions_too() -> None:
    """Records that a reader got are committed all the same."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, is_compacted=True))
    ours = {"producer_id": 5, "producer_epoch": 0}
    made.send(b"old", b"new", keys=(b"k", b"k"), transaction="t")
    made.judge.transaction_decided("t", True, made.now_ms)
    written = Batch(0, (b"old", b"new"), keys=(b"k", b"k"), transactional=True, **ours)
    marker = Batch(2, (b"",), marker="commit", **ours)
    made.append(written, marker)
    made.poll(0, written, marker)
    cleaned = Batch(1, (b"new",), keys=(b"k",), transactional=True, **ours)
    _read(made, 0, 3, (0, [cleaned, marker]), is_committed=True)
    with breaks(14, "lost write"):
        _read(made, 0, 3, (0, [marker]), is_committed=True)


@pytest.mark.parametrize("high_watermark", [2, 1])
def test_what_is_shown_of_a_transaction_was_decided_below_the_high_watermark(
    made: MadeCluster, high_watermark: int
) -> None:
    """A marker that is not replicated yet may be lost: the last stable offset stays in front of its transaction."""
    ours = {"producer_id": 5, "producer_epoch": 0}
    made.send(b"a", transaction="t")
    made.judge.transaction_decided("t", True, made.now_ms)
    written, marker = Batch(0, (b"a",), transactional=True, **ours), Batch(1, (b"",), marker="commit", **ours)
    made.append(written, marker)
    made.poll(0, written, is_committed=True, high_watermark=high_watermark, last_stable_offset=high_watermark)
    made.poll(1, marker)
    if high_watermark == 2:
        made.judge.closed(made.now_ms)
        return
    with breaks(6, "precommitted read"):
        made.judge.closed(made.now_ms)


@pytest.mark.parametrize("kinds", [("cache rot",), ("cache rot", "local rot")])
def test_the_tier_serves_nothing_rotten(made: MadeCluster, kinds: tuple[str, ...]) -> None:
    """Chunks of the cache have checksums; a log's batches are served as they are, and their reader looks."""
    made.append(Batch(0, (b"a" * 100,)))
    for kind in kinds:
        made.judge.fault_began(kind, "1 /x/orders-0/y", made.now_ms)
    data = bytearray(encode(Batch(0, (b"a" * 100,))))
    data[100] ^= 1
    made.judge.served(1, PARTITION, 0, bytes(data), False, made.now_ms)
    if kinds == ("cache rot",):
        with breaks(1, "corrupt read"):
            made.judge.served(1, PARTITION, 0, bytes(data), True, made.now_ms)
    else:
        made.judge.served(1, PARTITION, 0, bytes(data), True, made.now_ms)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_whose_disk_fails_may_have_moved_its_high_watermark(made: MadeCluster, leader: int) -> None:
    """In the very turn: who asked it has that. Of one that is no leader it is nobody's."""
    made.look()
    made.append(Batch(0, (b"a", b"b")))
    made.elect(0, leader)
    made.change(1, role="offline")
    made.change(2, high_watermark=0, last_stable_offset=0)
    made.look()
    made.change(2, role="follower", high_watermark=2, last_stable_offset=2)
    if leader == 1:
        made.judge.checkpoint(made.now_ms)
        return
    with breaks(9, "dirty read"):
        made.judge.checkpoint(made.now_ms)


def test_a_follower_has_its_high_watermark_from_a_leader(made: MadeCluster) -> None:
    """Its own end may be of a branch that has to be cut."""
    made.append(Batch(0, (b"a", b"b")))
    made.change(1, high_watermark=1, last_stable_offset=1)
    made.look()
    with breaks(9, "dirty read"):
        made.judge.checkpoint(made.now_ms)
    made.change(2, high_watermark=1, last_stable_offset=1)
    made.judge.checkpoint(made.now_ms)


def test_a_key_whose_last_value_an_unclean_election_took() -> None:
    """Compaction may have taken the value in front of it, which nobody can have back."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False, is_compacted=True))
    made.write(b"old", b"other", b"tail", at=0, keys=(b"k", b"l", b"m"))
    made.write(b"new", at=3, keys=(b"k",))
    made.look()
    made.elect(1, 2, is_unclean=True, in_sync=(2,))
    made.logs[2] = []
    ends = {"log_end_offset": 3, "high_watermark": 3, "last_stable_offset": 3}
    made.change(2, role="leader", leader_epoch=1, lineage=((0, 0), (1, 3)), **ends)
    made.look()
    old, other = Batch(0, (b"old",), keys=(b"k",)), Batch(1, (b"other",), keys=(b"l",))
    tail = Batch(2, (b"tail",), keys=(b"m",))
    _read(made, 0, 3, (0, [other, tail]), broker=2)
    with breaks(14, "lost write"):
        _read(made, 0, 3, (0, [old, tail]), broker=2)


def test_what_is_damaged_in_the_cache_is_fetched_again(made: MadeCluster) -> None:
    """The store has it whole; but for a log that rotted before it was copied."""
    made.judge.fault_began("cache rot", "1 /cache/x", made.now_ms)
    made.judge.remote_read_failed(1, PARTITION, 0, "UNKNOWN_SERVER_ERROR")
    with breaks(1, "corrupt read"):
        made.judge.remote_read_failed(1, PARTITION, 0, "CORRUPT_MESSAGE")
    made.judge.fault_began("local rot", "1 /logs/orders-0/x", made.now_ms)
    made.judge.remote_read_failed(1, PARTITION, 0, "CORRUPT_MESSAGE")
