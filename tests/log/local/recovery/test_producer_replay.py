"""Batches folded into the producers' state against the same batches one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import Batch, encode
from tests.support.broker_logs import ToldClock
from tierlog._native.appends import find_marker
from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptRecordError
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.producers.producer_appends import AppendOrigin, ProducerBatch
from tierlog.log.local.producers.producer_entries import BatchMetadata, ProducerStateEntry
from tierlog.log.local.producers.producer_state import AbortedTransaction, ProducerState
from tierlog.log.local.recovery.producer_replay import ProducerReplay
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles

START_MS = 1_700_000_000_000
#: Producers, epochs that go back too, in and out of transactions, markers: few of each, so that they meet.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([-1, 1, 1, 1, 2, 3]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from(["plain", "transactional", "commit", "abort", "emptied"]),
        st.integers(1, 3),
    ),
    max_size=40,
)


def log_of(steps: list[tuple[int, int, str, int]], *, mixed: bool = False) -> list[Batch]:
    """A log; unless ``mixed``, a producer is either in transactions or never."""
    batches, offset = [], 0
    for producer_id, epoch, kind, count in steps:
        in_transactions = producer_id == 2 if not mixed else kind == "transactional"
        if producer_id < 0:
            batch = Batch(offset, (b"v",) * count)
        elif kind in ("commit", "abort"):
            batch = Batch(offset, producer_id=producer_id, producer_epoch=epoch, marker=kind)
        elif kind == "emptied":
            batch = Batch(offset, (), producer_id=producer_id, producer_epoch=epoch, marker="commit")
        else:
            batch = Batch(
                offset,
                (b"v",) * count,
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=in_transactions,
                timestamp_ms=1_000 + offset % 7,
            )
        batches.append(batch)
        offset = batch.last_offset + 1
    return batches


def producer_batch(batch: Batch) -> ProducerBatch:
    data = encode(batch)
    row = {name: column.tolist()[0] for name, column in scan_batches(data)[0].items()}
    return ProducerBatch(
        row["producer_id"],
        row["producer_epoch"],
        row["base_sequence"],
        row["base_offset"],
        row["last_offset"],
        row["max_timestamp"],
        bool(row["attributes"] & 0x10),
        bool(row["attributes"] & 0x20),
        find_marker(data) if row["attributes"] & 0x20 else None,
    )


def one_by_one(state: ProducerState, batches: list[Batch]) -> list[AbortedTransaction]:
    aborted: list[AbortedTransaction] = []
    for batch in batches:
        aborted += state.replay([producer_batch(batch)], end_offset=batch.last_offset + 1)
    return aborted


def folded(state: ProducerState, batches: list[Batch], *, piece: int, rows_held: int) -> list[AbortedTransaction]:
    data = b"".join(map(encode, batches))
    view = memoryview(data)
    replay = ProducerReplay(state, read=lambda position, size: view[position : position + size], rows_held=rows_held)
    columns = scan_batches(data)[0]
    aborted: list[AbortedTransaction] = []
    for start in range(0, len(batches), piece):
        aborted += replay.feed({name: column[start : start + piece] for name, column in columns.items()})
    return aborted + replay.finish()


def everything(state: ProducerState) -> object:
    """All that a state knows, in its order."""
    producers = [(e.to_snapshot(), list(e.batches)) for e in state.producers.values()]
    return producers, state.first_undecided_offset, state.first_unstable_offset, state.end_offset


@given(STEPS, st.integers(1, 12), st.sampled_from([1, 5, 8192]))
def test_a_fold_is_what_one_by_one_is(steps: list[tuple[int, int, str, int]], piece: int, rows_held: int) -> None:
    """Else a recovered log lets a duplicate in, refuses a producer that goes on, or hands out an aborted record."""
    batches = log_of(steps)
    expected, found = ProducerState(), ProducerState()
    aborted = one_by_one(expected, batches)
    assert folded(found, batches, piece=piece, rows_held=rows_held) == aborted
    assert everything(found) == everything(expected)


@given(STEPS, st.integers(0, 40), st.integers(1, 12), st.sampled_from([1, 5, 8192]))
def test_held_batches_make_one_append_of_a_replay(
    steps: list[tuple[int, int, str, int]], known: int, piece: int, rows_held: int
) -> None:
    """Else a segment is replayed to other producers than Kafka's, whose epochs fall within it: of two replicas that led
    in turn one would take a batch for a duplicate, and the other would not.
    """
    batches = log_of(steps)
    before, behind = batches[:known], batches[known:]
    expected, found = ProducerState(), ProducerState()
    for state in (expected, found):
        one_by_one(state, before)
    prepared = expected.prepare(map(producer_batch, behind), origin=AppendOrigin.REPLICATION)
    expected.apply(prepared, end_offset=behind[-1].last_offset + 1 if behind else expected.end_offset)
    held: dict[int, ProducerStateEntry | None] = {}
    found.hold_batches([-1, 1, 2], held)
    found.hold_batches([2, 3], held)
    folded(found, behind, piece=piece, rows_held=rows_held)
    found.join_batches(held)
    assert everything(found) == everything(expected)


def test_a_producer_whose_epoch_rises_and_falls_back_within_a_segment() -> None:
    """Kafka's snapshot of the log that was cut has the batch of the segment in front, and so a resend of it is a
    duplicate there: here it must be one, too.
    """
    mine = {"producer_id": 4, "timestamp_ms": START_MS}
    earlier = Batch(0, producer_epoch=0, transactional=True, **mine)
    risen = [
        Batch(1, producer_epoch=1, transactional=True, **mine),
        Batch(2, producer_epoch=0, marker="commit", **mine),
    ]
    machine = Machine(files=MemoryFiles(), clock=ToldClock(START_MS))
    with UnifiedLog.open("logs/orders-0", machine=machine) as log:
        log.append_as_follower(bytearray(encode(earlier)), leader_epoch=0)
        log.roll()
        for batch in (*risen, Batch(3)):
            log.append_as_follower(bytearray(encode(batch)), leader_epoch=0)
        log.truncate_to(3)
        snapshot = log.snapshot_at(3)
    assert snapshot is not None
    (entry,) = parse_producer_snapshot(snapshot).entries
    assert (entry.producer_epoch, entry.last_offset, entry.transaction_first_offset) == (0, 0, -1)


@given(STEPS, st.integers(1, 12))
def test_a_batch_outside_of_its_producers_transaction_is_where_a_log_ends(
    steps: list[tuple[int, int, str, int]], piece: int
) -> None:
    """Else recovery goes on behind what no leader writes, or says another place than that of the batch."""
    batches = log_of(steps, mixed=True)
    expected, found = ProducerState(), ProducerState()
    positions, at, wrong = [], 0, None
    for row, batch in enumerate(batches):
        positions.append(at)
        at += len(encode(batch))
        try:
            one_by_one(expected, [batch])
        except AppendRefusedError:
            wrong = row
            break
    if wrong is None:
        folded(found, batches, piece=piece, rows_held=4)
        assert everything(found) == everything(expected)
        return
    with pytest.raises(CorruptRecordError) as told:
        folded(found, batches, piece=piece, rows_held=4)
    assert told.value.position == positions[wrong]


def test_only_the_last_five_batches_are_kept() -> None:
    """Else memory grows with the log, or a duplicate of the fifth last request is appended again."""
    batches = [Batch(offset, producer_id=9, producer_epoch=0) for offset in range(20)]
    state = ProducerState()
    folded(state, batches, piece=20, rows_held=100)
    kept = state.producers[9].batches
    assert kept == tuple(BatchMetadata(offset, offset, 0, 1_700_000_000_000) for offset in range(15, 20))


@pytest.mark.parametrize("cut", [lambda data: data[:-3], lambda data: b"\0" * len(data)])
def test_a_control_batch_that_cannot_be_read_is_told_by_its_place(cut: Callable[[bytes], bytes]) -> None:
    """Else a broken marker ends a transaction, or the error names no batch."""
    batches = [Batch(0, producer_id=1, producer_epoch=0, transactional=True)]
    batches.append(Batch(1, producer_id=1, producer_epoch=0, marker="abort"))
    state, start = ProducerState(), len(encode(batches[0]))
    data = b"".join(map(encode, batches))
    replay = ProducerReplay(state, read=lambda position, size: memoryview(cut(data[position : position + size])))
    replay.feed(scan_batches(data)[0])
    with pytest.raises(CorruptRecordError) as told:
        replay.finish()
    assert told.value.position == start
    assert state.first_undecided_offset == 0


def test_batches_of_old_formats_have_no_producer_and_no_end() -> None:
    """Else the state's end moves over records that say nothing about producers (Kafka recover skips them)."""
    old = bytes.fromhex("00000000000000640000001257e7496e0000000000026b31000000027631")
    state = ProducerState()
    state.restart(3)
    replay = ProducerReplay(state, read=lambda position, size: memoryview(b""))
    assert replay.feed(scan_batches(old)[0]) == []
    assert replay.finish() == []
    assert state.end_offset == 3
