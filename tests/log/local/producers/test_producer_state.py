"""Producers and transactions: real logs replayed against the brokers' own snapshots and indexes, and Kafka's rules."""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native.appends import Marker, find_marker, sequence_after
from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.producer_snapshot import (
    ProducerEntry,
    ProducerSnapshot,
    encode_producer_snapshot,
    parse_producer_snapshot,
)
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import AppendOrigin, ProducerBatch
from tierlog.log.local.producers.producer_entries import BatchMetadata, ProducerSettings, ProducerStateEntry
from tierlog.log.local.producers.producer_state import AbortedTransaction, LastRecord, PreparedAppend, ProducerState

NOW = 1_700_000_000_000
YEARS_AGO_MS = 1_750_000_000_000
VERIFYING = ProducerSettings(transaction_partition_verification_enable=True)
CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


# ---- real logs


def batches_of(log: bytes) -> list[ProducerBatch]:
    columns = {name: column.tolist() for name, column in scan_batches(log)[0].items()}
    found = []
    for row, attributes in enumerate(columns["attributes"]):
        at, size = columns["position"][row], columns["size_bytes"][row]
        is_control = bool(attributes & 0x20)
        found.append(
            ProducerBatch(
                producer_id=columns["producer_id"][row],
                producer_epoch=columns["producer_epoch"][row],
                base_sequence=columns["base_sequence"][row],
                base_offset=columns["base_offset"][row],
                last_offset=columns["last_offset"][row],
                max_timestamp_ms=columns["max_timestamp"][row],
                is_transactional=bool(attributes & 0x10),
                is_control=is_control,
                marker=find_marker(log[at : at + size]) if is_control else None,
            )
        )
    return found


def replayed(folder: Path, *, restarted: bool = False) -> int:
    """Replay a partition's segments; at each end the broker's own snapshot and transaction index must come out.

    A broker that was restarted has dropped producers whose records have the generator's timestamps, years old.
    """
    logs = sorted(folder.glob("*.log"))
    state = ProducerState(ProducerSettings(producer_id_expiration_ms=2**62))
    state.restart(int(logs[0].stem))
    compared = 0
    for log in logs:
        snapshot = folder / f"{log.stem}.snapshot"
        if snapshot.exists() and state.end_offset == int(log.stem):
            known = {entry.producer_id: entry for entry in parse_producer_snapshot(snapshot.read_bytes()).entries}
            ours = {entry.producer_id: entry for entry in state.snapshot()}
            expired = {i for i in ours.keys() - known.keys() if restarted and ours[i].timestamp_ms < YEARS_AGO_MS}
            assert {i: entry for i, entry in ours.items() if i not in expired} == known, snapshot
            compared += len(known)
        batches = batches_of(log.read_bytes())
        aborted = state.replay(batches, end_offset=batches[-1].last_offset + 1 if batches else state.end_offset)
        index = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in aborted)
        written = log.with_suffix(".txnindex")
        assert index == (written.read_bytes() if written.exists() else b""), log
        compared += len(aborted)
    return compared


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
def test_what_brokers_knew_comes_out_of_their_logs(data: Path, run: str) -> None:
    """Else recovery forgets a producer, or a reader of committed records is given aborted ones."""
    folders = sorted({log.parent for log in (data / run).glob("local-before/**/fx-*/*.log")})
    assert sum(replayed(folder) for folder in folders) > 0


def test_what_brokers_knew_comes_out_of_their_logs_in_the_full_set(fixtures: Path) -> None:
    """The same for all runs: several leaders, open transactions. Compacted logs lack what their snapshots tell of."""
    folders = sorted({log.parent for log in fixtures.glob("*/local-before/**/fx-*/*.log")})
    compared = sum(replayed(folder, restarted=True) for folder in folders if "compact" not in folder.name)
    assert compared > 400


def test_a_snapshot_goes_out_and_comes_in(data: Path) -> None:
    """Else after a restart a duplicate is appended, or a transaction is taken for ended."""
    log = next(iter(sorted((data / "main-plain").glob("local-before/*/fx-txn-0/*.log"))))
    state = ProducerState(ProducerSettings(producer_id_expiration_ms=2**62))
    batches = batches_of(log.read_bytes())
    state.replay(batches[: len(batches) // 2], end_offset=500)
    stored = parse_producer_snapshot(encode_producer_snapshot(state.snapshot()))
    again = ProducerState(ProducerSettings(producer_id_expiration_ms=2**62))
    again.load(stored, offset=500, now_ms=NOW)
    assert again.snapshot() == state.snapshot()
    assert again.first_undecided_offset == state.first_undecided_offset
    assert (again.end_offset, again.snapshot_offset, again.snapshot_is_due) == (500, 500, False)


# ---- rules


def batch(
    producer: int = 1, epoch: int = 0, sequence: int = 0, *, at: int = 0, count: int = 1, txn: bool = False
) -> ProducerBatch:
    return ProducerBatch(producer, epoch, sequence, at, at + count - 1, NOW + at, is_transactional=txn)


def marker(producer: int = 1, epoch: int = 0, *, at: int, commit: bool = True, coordinator: int = 7) -> ProducerBatch:
    told = Marker(commit, coordinator, NOW + at)
    return ProducerBatch(producer, epoch, -1, at, at, NOW + at, is_transactional=True, is_control=True, marker=told)


def append(
    state: ProducerState, *batches: ProducerBatch, origin: AppendOrigin = CLIENT, version: int | None = None
) -> list[AbortedTransaction]:
    prepared = state.prepare(batches, origin=origin, transaction_version=version)
    assert prepared.duplicate is None
    return state.apply(prepared, end_offset=batches[-1].last_offset + 1)


def refused(
    state: ProducerState, *batches: ProducerBatch, origin: AppendOrigin = CLIENT, version: int | None = None
) -> KafkaError:
    """The error of an append, after which nothing has changed."""
    before = state.snapshot(), state.first_unstable_offset, state.end_offset
    with pytest.raises(AppendRefusedError) as caught:
        state.prepare(batches, origin=origin, transaction_version=version)
    assert (state.snapshot(), state.first_unstable_offset, state.end_offset) == before
    return caught.value.error


def test_duplicates_and_gaps() -> None:
    """Else a producer's retry is stored twice, or a lost batch goes unnoticed."""
    state = ProducerState()
    for i in range(7):
        append(state, batch(sequence=10 * i, at=10 * i, count=10))
    for i in range(7):
        if i < 2:  # five are remembered
            assert refused(state, batch(sequence=10 * i, at=70, count=10)) is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
            continue
        found = state.prepare([batch(sequence=10 * i, at=70, count=10)], origin=CLIENT)
        assert found == PreparedAppend(duplicate=BatchMetadata(10 * i + 9, 10 * i + 9, 9, NOW + 10 * i))
        assert (found.duplicate.first_offset, found.duplicate.first_sequence) == (10 * i, 10 * i)
    for sequence, count in [(60, 9), (61, 9), (71, 1), (0, 1)]:
        assert refused(state, batch(sequence=sequence, at=70, count=count)) is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(state, batch(sequence=70, at=70))
    first = ProducerState()
    append(first, batch(sequence=0, at=5, count=10))
    assert first.prepare([batch(sequence=0, at=15, count=10)], origin=CLIENT).duplicate == (9, 14, 9, NOW + 5)
    append(state, batch(sequence=3, at=71), origin=COORDINATOR)  # offset commits have no order
    append(state, batch(sequence=99, at=72), origin=REPLICATION)  # the leader has checked it


def test_epochs_of_a_producer() -> None:
    """Else a fenced producer goes on writing, or a new one cannot begin."""
    state = ProducerState()
    append(state, batch(epoch=3, sequence=5, at=0))  # of a producer that is not known any sequence is taken
    assert refused(state, batch(epoch=2, sequence=6, at=1)) is KafkaError.INVALID_PRODUCER_EPOCH
    assert refused(state, batch(epoch=2, at=1), origin=COORDINATOR) is KafkaError.INVALID_PRODUCER_EPOCH
    assert refused(state, batch(epoch=4, sequence=6, at=1)) is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(state, batch(epoch=4, sequence=0, at=1))
    assert refused(state, batch(epoch=3, sequence=6, at=2)) is KafkaError.INVALID_PRODUCER_EPOCH
    append(state, batch(epoch=4, sequence=1, at=2))
    append(state, batch(epoch=2, sequence=8, at=3), origin=REPLICATION)
    assert state.producers[1].producer_epoch == 2
    assert [b.last_sequence for b in state.producers[1].batches] == [8]


def test_sequences_wrap() -> None:
    """Else a producer is refused after two billion records."""
    state = ProducerState()
    append(state, batch(sequence=2**31 - 3, at=0, count=3))
    assert refused(state, batch(sequence=1, at=3)) is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(state, batch(sequence=0, at=3))
    state = ProducerState()
    append(state, batch(sequence=2**31 - 2, at=0, count=4))  # 2^31-2, 2^31-1, 0, 1
    assert state.producers[1].last_sequence == 1
    assert state.producers[1].batches[-1].first_sequence == 2**31 - 2
    append(state, batch(sequence=2, at=4))
    assert [sequence_after(*pair) for pair in [(2**31 - 1, 1), (2**31 - 2, 3), (-1, 5), (3, 4)]] == [0, 1, -1, 7]


def test_a_batch_without_producer_changes_nothing_but_the_end() -> None:
    """Else plain producers fill the state."""
    state = ProducerState()
    append(state, batch(producer=-1, sequence=-1, at=0, count=5, txn=True))
    assert (state.is_empty, state.end_offset, state.snapshot_is_due) == (True, 5, True)


def test_transactions_and_the_last_stable_offset() -> None:
    """Else a reader of committed records goes too far, or never on."""
    state = ProducerState()
    append(state, batch(1, txn=True, at=10))
    append(state, batch(2, txn=True, at=11))
    append(state, batch(1, sequence=1, txn=True, at=12))
    assert (state.first_undecided_offset, state.first_unstable_offset) == (10, 10)
    assert refused(state, batch(1, sequence=2, at=13)) is KafkaError.INVALID_TXN_STATE
    assert append(state, marker(1, at=13, commit=False), origin=COORDINATOR, version=0) == [(1, 10, 13, 11)]
    assert (state.first_undecided_offset, state.first_unstable_offset) == (11, 10)  # not replicated yet
    state.on_high_watermark(13)
    assert state.first_unstable_offset == 10  # the marker itself is not below
    state.on_high_watermark(14)
    assert state.first_unstable_offset == 11
    assert append(state, marker(2, at=14), origin=COORDINATOR, version=0) == []
    assert (state.first_undecided_offset, state.first_unstable_offset) == (None, 11)
    state.on_high_watermark(15)
    assert state.first_unstable_offset is None
    append(state, batch(1, sequence=2, txn=True, at=15))
    assert append(state, marker(1, at=16, commit=False), origin=COORDINATOR, version=1) == [(1, 15, 16, 17)]


def test_transactions_end_as_fast_however_many_are_open() -> None:
    """Else a coordinator that comes back and aborts what its producers left holds each partition's log for minutes."""

    def seconds(count: int) -> float:
        state = ProducerState()
        for producer in range(count):
            append(state, batch(producer, txn=True, at=producer))
        began = time.process_time()
        for producer in range(count):
            assert append(state, marker(producer, at=count + producer, commit=False), origin=COORDINATOR, version=0)
            state.on_high_watermark(count + producer + 1)
        assert state.first_unstable_offset is None
        return time.process_time() - began

    # Eight times as many take eight times as long, and 64 times where each one looks at all the others.
    assert min(seconds(40_000), seconds(40_000)) < 24 * min(seconds(5_000), seconds(5_000))


def test_a_marker_of_an_empty_transaction() -> None:
    """Else an abort of nothing hides records, or an unknown producer ends the log's writer."""
    state = ProducerState()
    assert append(state, marker(5, epoch=3, at=0, commit=False), origin=COORDINATOR, version=0) == []
    entry = state.producers[5]
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp_ms) == (3, 7, NOW)
    assert state.first_unstable_offset is None


def test_the_last_records_of_what_nobody_cuts() -> None:
    """Else compaction takes the last committed batch of a producer for one that is cut: a resend of it is stored twice
    (simulation, seed 10876).
    """
    state, asked = ProducerState(), list[bool]()

    def earlier() -> list[ProducerEntry]:
        asked.append(True)
        return [
            ProducerEntry(1, 0, 3, 3, 0, NOW, -1, -1),
            ProducerEntry(2, 7, 9, 4, 0, NOW, -1, -1),
            ProducerEntry(3, 2, -1, -1, 0, NOW, 0, -1),
        ]

    append(state, batch(1, sequence=0, at=5), batch(1, sequence=1, at=6), origin=REPLICATION)
    assert state.last_records_below(7, earlier) == {1: LastRecord(6, 0)}
    assert state.last_records_below(6, earlier) == {1: LastRecord(5, 0)}
    assert not asked
    assert state.last_records_below(5, earlier) == {1: LastRecord(3, 0)}
    append(state, batch(2, epoch=8, at=7), batch(3, epoch=2, at=8), batch(4, at=9), origin=REPLICATION)
    known = {1: LastRecord(6, 0), 2: LastRecord(4, 7), 3: LastRecord(None, 2), 4: LastRecord(9, 0)}
    assert state.last_records_below(7, earlier) == known


@pytest.mark.parametrize(("known", "epoch"), [(None, 4), (3, 4), (4, 4), (5, 5)])
def test_an_emptied_marker_tells_its_epoch(known: int | None, epoch: int) -> None:
    """Compaction left its header alone, for that: else who was fenced writes again once a log is replayed (simulation,
    seed 10685).
    """
    state = ProducerState()
    if known is not None:
        append(state, batch(6, epoch=known, at=0), origin=REPLICATION)
    append(state, marker(6, epoch=4, at=1)._replace(marker=None), origin=REPLICATION)
    entry = state.producers[6]
    is_begun = epoch != known
    assert (entry.producer_epoch, entry.last_timestamp_ms) == (epoch, NOW + is_begun)
    assert (entry.last_data_offset, state.first_unstable_offset) == (None if is_begun else 0, None)


def test_fenced_coordinators_and_late_markers() -> None:
    """Else a zombie coordinator ends the next transaction of a producer."""
    state = ProducerState()
    append(state, batch(1, epoch=4, txn=True, at=0))
    append(state, marker(1, epoch=4, at=1, coordinator=9), origin=COORDINATOR, version=1)
    append(state, batch(1, epoch=4, sequence=1, txn=True, at=2))
    late = marker(1, epoch=4, at=3, coordinator=8)
    assert refused(state, late, origin=COORDINATOR, version=1) is KafkaError.TRANSACTION_COORDINATOR_FENCED
    old = marker(1, epoch=3, at=3, coordinator=9)
    assert refused(state, old, origin=COORDINATOR, version=1) is KafkaError.INVALID_PRODUCER_EPOCH
    # Version 2: the marker's epoch is above that of the transaction's batches ...
    same = marker(1, epoch=4, at=3, coordinator=9)
    assert refused(state, same, origin=COORDINATOR, version=2) is KafkaError.INVALID_PRODUCER_EPOCH
    append(state, marker(1, epoch=5, at=3, coordinator=9), origin=COORDINATOR, version=2)
    # ... and when it comes again, nothing is open any more.
    append(state, marker(1, epoch=5, at=4, coordinator=9), origin=COORDINATOR, version=2)
    with pytest.raises(ValueError, match="version"):
        state.prepare([marker(1, epoch=6, at=5)], origin=COORDINATOR)
    append(state, batch(2, epoch=2**15 - 1, txn=True, at=5))  # there is no later epoch
    append(state, marker(2, epoch=2**15 - 1, at=6), origin=COORDINATOR, version=2)


def test_a_follower_takes_what_its_leader_let_through(caplog: pytest.LogCaptureFixture) -> None:
    """Else a replica stops for ever at a marker that its leader has."""
    state = ProducerState()
    append(state, batch(1, epoch=4, txn=True, at=0), origin=REPLICATION)
    append(state, marker(1, epoch=4, at=1, coordinator=9), origin=REPLICATION)
    append(state, marker(1, epoch=3, at=2, coordinator=8), origin=REPLICATION)
    assert (state.producers[1].producer_epoch, state.producers[1].coordinator_epoch) == (3, 8)
    assert len(caplog.records) == 2


def test_several_producers_in_one_append() -> None:
    """Else a fetch that a follower takes as a whole gives another index than batch by batch."""
    fetched = [
        batch(1, txn=True, at=0),
        batch(2, txn=True, at=1),
        marker(2, at=2, commit=False),
        batch(2, sequence=1, txn=True, at=3),
        marker(1, at=4, commit=False),
        batch(-1, at=5),
    ]
    together, single = ProducerState(), ProducerState()
    whole = append(together, *fetched, origin=REPLICATION)
    assert whole == [(2, 1, 2, 0), (1, 0, 4, 3)]
    assert single.replay(fetched, end_offset=6) == whole
    assert together.snapshot() == single.snapshot()
    assert (together.first_undecided_offset, together.first_unstable_offset) == (3, 0)
    assert (single.first_undecided_offset, single.first_unstable_offset) == (3, 0)


def test_two_transactions_of_a_producer_in_one_append() -> None:
    """The entry of the first would hide the second: a follower's consumers, and those of the tier that it copies to,
    would get aborted records.
    """
    fetched = [
        batch(1, txn=True, at=0),
        marker(1, at=1, commit=False),
        batch(1, sequence=1, txn=True, at=2),
        marker(1, at=3, commit=False),
        batch(2, txn=True, at=4),
    ]
    state = ProducerState()
    assert append(state, *fetched, origin=REPLICATION) == [(1, 0, 1, 2), (1, 2, 3, 4)]


def test_the_earliest_transaction_counts_whoever_wrote_first() -> None:
    """Else the last stable offset lies behind records that nobody has decided on."""
    state = ProducerState()
    fetched = [batch(1, at=0), batch(2, at=1, txn=True), batch(1, sequence=1, at=2, txn=True)]
    append(state, *fetched, origin=REPLICATION)
    assert state.first_undecided_offset == 1
    again = ProducerState()
    again.load(ProducerSnapshot(tuple(state.snapshot())), offset=3, now_ms=NOW)  # producer 1 comes first in it
    assert [entry.producer_id for entry in state.snapshot()] == [1, 2]
    assert again.first_undecided_offset == 1


# ---- verification


def ask(state: ProducerState, sequence: int = 0, epoch: int = 0, *, v2: bool = False) -> object:
    return state.begin_verification(1, sequence=sequence, producer_epoch=epoch, supports_epoch_bump=v2, now_ms=NOW)


def test_a_transaction_begins_only_if_it_was_verified() -> None:
    """Else a transaction hangs for ever: its coordinator knows nothing of it."""
    state = ProducerState(VERIFYING)
    assert refused(state, batch(txn=True)) is KafkaError.INVALID_TXN_STATE
    guard = ask(state)
    assert guard is not None
    assert ask(state) is guard
    assert refused(state, batch(txn=True)) is KafkaError.INVALID_TXN_STATE  # without it
    state.apply(state.prepare([batch(txn=True)], origin=CLIENT, guard=guard), end_offset=1)
    assert ask(state) is None  # it is open
    append(state, batch(sequence=1, at=1, txn=True))
    append(state, marker(at=2), origin=COORDINATOR, version=1)
    # The guard of the transaction before verifies nothing: its answer may have come late.
    with pytest.raises(AppendRefusedError):
        state.prepare([batch(sequence=2, at=3, txn=True)], origin=CLIENT, guard=guard)
    assert ask(state, sequence=2) not in (None, guard)
    state.on_high_watermark(9)
    append(state, batch(sequence=2, at=3))  # no transaction, nothing to verify


def test_a_marker_takes_the_guard_away() -> None:
    """Else a batch that comes after its transaction's abort begins one that nobody ends."""
    state = ProducerState(VERIFYING)
    guard = ask(state)
    append(state, marker(at=0, commit=False), origin=COORDINATOR, version=1)
    with pytest.raises(AppendRefusedError):
        state.prepare([batch(at=1, txn=True)], origin=CLIENT, guard=guard)
    # Of version 2 the marker of the transaction before has the epoch of the next one: its guard stays.
    state = ProducerState(VERIFYING)
    guard = ask(state, epoch=3, v2=True)
    append(state, marker(epoch=3, at=0), origin=COORDINATOR, version=2)
    assert state.prepare([batch(epoch=3, at=1, txn=True)], origin=CLIENT, guard=guard).duplicate is None
    append(state, marker(epoch=4, at=1), origin=COORDINATOR, version=2)
    with pytest.raises(AppendRefusedError):
        state.prepare([batch(epoch=4, at=2, txn=True)], origin=CLIENT, guard=guard)


def test_the_lowest_sequence_that_asked_comes_first() -> None:
    """Else a batch that has to be asked for again is out of order for ever."""
    state = ProducerState(VERIFYING)
    guard = ask(state, sequence=4)
    assert ask(state, sequence=2) is guard
    assert ask(state, sequence=3) is guard
    with pytest.raises(AppendRefusedError) as caught:
        state.prepare([batch(sequence=3, txn=True)], origin=CLIENT, guard=guard)
    assert caught.value.error is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.prepare([batch(sequence=2, txn=True)], origin=CLIENT, guard=guard).appends
    ask(state, sequence=9, epoch=1)  # a later epoch begins anew
    assert state.prepare([batch(epoch=1, sequence=9, txn=True)], origin=CLIENT, guard=guard).appends
    state = ProducerState(VERIFYING)
    guard = ask(state, sequence=2, v2=True)
    with pytest.raises(AppendRefusedError, match="begins with 0"):
        state.prepare([batch(sequence=2, txn=True)], origin=CLIENT, guard=guard)


def test_what_does_not_touch_a_question() -> None:
    """Else an answer of the coordinator is thrown away, or counts for another epoch."""
    state = ProducerState(VERIFYING)
    guard = ask(state, sequence=5)
    append(state, batch(sequence=0))  # of no transaction
    assert state.prepare([batch(sequence=1, at=1, txn=True)], origin=CLIENT, guard=guard).appends
    state = ProducerState(VERIFYING)
    append(state, batch(sequence=0, count=2))
    guard = ask(state, sequence=2, v2=True)  # it is known, so it need not begin with 0
    prepared = state.prepare([batch(sequence=2, at=2, txn=True)], origin=CLIENT, guard=guard)
    state.apply(prepared, end_offset=3)
    assert refused(state, batch(epoch=1, at=3, txn=True)) is KafkaError.INVALID_TXN_STATE  # the open one is not its own
    state = ProducerState(VERIFYING)
    guard = ask(state, sequence=4, epoch=3)
    assert ask(state, sequence=9, epoch=2) is guard  # of an earlier epoch: late, and passed over
    with pytest.raises(AppendRefusedError) as caught:
        state.prepare([batch(epoch=3, sequence=5, txn=True)], origin=CLIENT, guard=guard)
    assert caught.value.error is KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_fenced_producer_is_told_so_first() -> None:
    """Else it takes a recoverable error for a fatal one."""
    state = ProducerState(VERIFYING)
    append(state, batch(epoch=5))
    with pytest.raises(AppendRefusedError) as caught:
        ask(state, epoch=4)
    assert caught.value.error is KafkaError.INVALID_PRODUCER_EPOCH
    assert refused(state, batch(epoch=4, at=1, txn=True)) is KafkaError.INVALID_PRODUCER_EPOCH


# ---- life


def test_producers_expire_and_open_transactions_do_not() -> None:
    """Else the state grows for ever, or an open transaction loses its producer."""
    state = ProducerState(replace(VERIFYING, producer_id_expiration_ms=1000))
    append(state, batch(1, at=0), batch(-1, at=1))
    append(state, batch(2, at=2))
    append(state, batch(3, at=3, txn=True), origin=REPLICATION)
    asked = ask(state)
    assert state.remove_expired(NOW + 999) == 0
    assert state.remove_expired(NOW + 1000) == 1
    assert sorted(state.producers) == [2, 3]
    assert ask(state) is not asked  # nobody answered
    stored = ProducerSnapshot(tuple(state.snapshot()))
    state.load(stored, offset=4, now_ms=NOW + 5000)
    assert (sorted(state.producers), state.first_undecided_offset) == ([3], 3)


def test_late_transactions() -> None:
    """Else nobody is told of a transaction that hangs."""
    state = ProducerState(ProducerSettings(transaction_max_timeout_ms=1000))
    assert not state.has_late_transaction(2**62)
    append(state, batch(1, at=0, txn=True))
    append(state, batch(2, at=1, txn=True))
    assert not state.has_late_transaction(NOW + 301_000)
    assert state.has_late_transaction(NOW + 301_001)
    append(state, batch(1, sequence=1, at=2, txn=True))
    assert not state.has_late_transaction(NOW + 301_001)


def test_the_log_moves() -> None:
    """Else after DeleteRecords a snapshot has the wrong number, or the last stable offset stays behind the log."""
    state = ProducerState()
    append(state, batch(1, at=0, txn=True))
    append(state, marker(1, at=1), origin=COORDINATOR, version=0)
    state.on_log_start(10, latest_snapshot_offset=None)
    assert (state.first_unstable_offset, state.end_offset, state.snapshot_offset) == (None, 10, 10)
    assert 1 in state.producers
    state.on_log_start(11, latest_snapshot_offset=5)
    assert (state.end_offset, state.snapshot_offset, state.snapshot_is_due) == (11, 5, True)
    state.restart(20)
    assert (state.is_empty, state.end_offset, state.snapshot_offset) == (True, 20, 0)


def test_a_snapshot_that_contradicts_itself_is_refused() -> None:
    """Else the log's writer stops in the middle of an append, long after."""
    state = ProducerState()
    append(state, batch(9, at=3))
    one = ProducerStateEntry(1, producer_epoch=0, last_timestamp_ms=NOW, current_txn_first_offset=5).to_snapshot()
    two = ProducerStateEntry(2, producer_epoch=0, last_timestamp_ms=NOW, current_txn_first_offset=5).to_snapshot()
    for entries in [(one, one), (one, two)]:
        with pytest.raises(CorruptIndexError):
            state.load(ProducerSnapshot(entries), offset=9, now_ms=NOW)
    assert (list(state.producers), state.end_offset) == ([9], 4)


steps = st.lists(
    st.tuples(
        st.sampled_from(["data", "data", "commit", "abort", "watermark", "restart"]),
        st.integers(1, 3),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=40,
)


@given(steps)
def test_against_a_list_of_batches(given_steps: list[tuple[str, int, int, bool]]) -> None:
    """Else some order of transactions and restarts leaves a reader of committed records at the wrong place."""
    state = ProducerState()
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    sequences: dict[int, int] = {}
    offset, watermark = 0, 0
    for kind, producer, count, txn in given_steps:
        if kind == "data":
            in_txn = producer in opened or txn
            append(state, batch(producer, sequence=sequences.get(producer, 0), at=offset, count=count, txn=in_txn))
            sequences[producer] = sequences.get(producer, 0) + count
            if in_txn:
                opened.setdefault(producer, offset)
            offset += count
        elif kind in ("commit", "abort"):
            found = append(state, marker(producer, at=offset, commit=kind == "commit"), origin=COORDINATOR, version=1)
            first = opened.pop(producer, None)
            stable = min(opened.values(), default=offset + 1)
            expected = [(producer, first, offset, stable)] if first is not None and kind == "abort" else []
            assert found == expected
            if first is not None:
                ended.append((first, offset))
            offset += 1
        elif kind == "watermark":
            watermark = max(watermark, offset - count)
            state.on_high_watermark(watermark)
            ended = [e for e in ended if e[1] >= watermark]
        else:
            stored = parse_producer_snapshot(encode_producer_snapshot(state.snapshot()))
            state = ProducerState()
            state.load(stored, offset=offset, now_ms=NOW)
            ended = []  # a log that is opened knows of none that is not replicated
        assert state.end_offset == offset
        assert state.first_undecided_offset == min(opened.values(), default=None)
        assert state.first_unstable_offset == min([*opened.values(), *(e[0] for e in ended)], default=None)
