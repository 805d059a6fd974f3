"""The snapshots of a folder against brokers' own files, Kafka's rules, and a disk that loses power."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.producers.producer_appends import ProducerBatch
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots, in_order_of_kafka
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles

FOLDER = "/logs/orders-0"
NOW = 1_700_000_000_000


def machine_with(*offsets: int) -> Machine:
    """A machine whose folder has an empty snapshot at each offset."""
    machine = Machine(files=MemoryFiles())
    machine.files.make_directories(FOLDER)
    for offset in offsets:
        machine.files.write_whole(f"{FOLDER}/{offset:020d}.snapshot", encode_producer_snapshot(()))
    return machine


def state_of(*producer_ids: int) -> ProducerState:
    """Producers that have written one batch each, one record a batch."""
    state = ProducerState()
    for offset, producer_id in enumerate(producer_ids):
        batch = ProducerBatch(producer_id, 0, 0, base_offset=offset, last_offset=offset, max_timestamp_ms=NOW)
        state.replay([batch], end_offset=offset + 1)
    return state


def snapshots_of(machine: Machine) -> ProducerSnapshots:
    return ProducerSnapshots(machine, LogFolder(machine, FOLDER))


def entry(producer_id: int) -> ProducerEntry:
    return ProducerEntry(producer_id, 0, 0, producer_id, 0, NOW, -1, -1)


def rewritten_equal(folder: Path) -> int:
    compared = 0
    for path in sorted(folder.rglob("*.snapshot")):
        if "bad" not in path.relative_to(folder).parts:
            entries = parse_producer_snapshot(path.read_bytes()).entries
            shuffled = sorted(entries, key=lambda e: e.producer_id)
            assert encode_producer_snapshot(in_order_of_kafka(shuffled)) == path.read_bytes(), path
            compared += len(entries)
    return compared


def test_a_brokers_snapshot_is_written_again_byte_for_byte(data: Path) -> None:
    """Else a recovery that changes nothing leaves other files, and comparing two replicas' folders is of no use."""
    assert rewritten_equal(data) > 0


def test_every_snapshot_of_the_golden_data_is_written_again_byte_for_byte(fixtures: Path) -> None:
    """As above, of all brokers."""
    assert rewritten_equal(fixtures) > 100


def test_the_order_is_that_of_a_javas_hash_map() -> None:
    """Else a snapshot of many producers differs from Kafka's: its table doubles, and the halves of a hash are mixed."""
    assert [e.producer_id for e in in_order_of_kafka(map(entry, [17, 1, 16, 0]))] == [16, 0, 17, 1]
    ids = [e.producer_id for e in in_order_of_kafka(map(entry, range(1000, 1013)))]
    assert ids == [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012]
    wide = [2**32, 2**48 + 5, 3]  # buckets 1, 5 ^ 1 and 3
    assert [e.producer_id for e in in_order_of_kafka(map(entry, wide))] == [2**32, 3, 2**48 + 5]


def test_a_snapshot_is_taken_once_and_read_again() -> None:
    """Else each roll writes the same snapshot again, or a restart forgets its producers."""
    machine = machine_with()
    snapshots, state = snapshots_of(machine), state_of(7, 8)
    path = snapshots.take(state)
    assert path == f"{FOLDER}/00000000000000000002.snapshot"
    assert snapshots.take(state) is None
    assert (snapshots.offsets, snapshots.latest_offset, snapshots.path_at(2)) == ((2,), 2, path)
    assert snapshots.path_at(1) is None
    loaded = ProducerState()
    snapshots_of(machine).load_latest(loaded, log_start_offset=0, log_end_offset=9, now_ms=NOW)
    assert loaded.snapshot() == state.snapshot()
    assert (loaded.end_offset, loaded.snapshot_offset) == (2, 2)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_power_cut_leaves_a_snapshot_or_one_that_nobody_takes(fsync: bool) -> None:
    """Else producers are restored from half a file; one that was synced is there, and an older one is the way back."""
    for seed in range(40):
        machine = machine_with(1)
        machine.files.fsync_directory(FOLDER)
        snapshots, state = snapshots_of(machine), state_of(*range(40))
        snapshots.take(state, fsync=fsync)
        if not fsync and seed % 2:
            assert snapshots.has_unsynced
            unsynced = snapshots.open_unsynced()
            for file in unsynced.files:
                with file:
                    file.fsync()
            assert snapshots.has_unsynced
            snapshots.note_synced(unsynced)
            assert not snapshots.has_unsynced
            machine.files.fsync_directory(FOLDER)
        found = Machine(files=machine.files.crash(SeededRng(seed)))  # type: ignore[attr-defined]
        loaded = ProducerState()
        snapshots_of(found).load_latest(loaded, log_start_offset=0, log_end_offset=40, now_ms=NOW)
        durable = fsync or seed % 2
        assert loaded.end_offset == 40 if durable else loaded.end_offset in (1, 40)
        assert len(loaded.producers) == (40 if loaded.end_offset == 40 else 0)


def test_the_newest_sound_snapshot_of_the_log_is_loaded_and_corrupt_ones_go() -> None:
    """Else one broken file keeps a log from opening, or a snapshot of records that were cut off is believed."""
    machine = machine_with(5, 10, 20, 30)
    machine.files.write_whole(f"{FOLDER}/{20:020d}.snapshot", b"no snapshot")
    snapshots, state = snapshots_of(machine), ProducerState()
    snapshots.load_latest(state, log_start_offset=0, log_end_offset=25, now_ms=NOW)
    assert (state.end_offset, snapshots.offsets) == (10, (5, 10, 30))
    assert machine.files.find(f"{FOLDER}/{20:020d}.snapshot") is None
    snapshots.load_latest(state, log_start_offset=10, log_end_offset=25, now_ms=NOW)
    assert (state.end_offset, state.snapshot_offset) == (10, 10)  # at the log's start: it says nothing
    machine.files.remove(f"{FOLDER}/{5:020d}.snapshot")
    snapshots.load_latest(state, log_start_offset=3, log_end_offset=7, now_ms=NOW)
    assert (state.end_offset, snapshots.offsets) == (3, (10, 30))


def test_an_entry_twice_makes_a_snapshot_corrupt() -> None:
    """Else a snapshot that no broker writes leaves a state that is none."""
    machine = machine_with(4)
    machine.files.write_whole(f"{FOLDER}/{8:020d}.snapshot", encode_producer_snapshot([entry(1), entry(1)]))
    state = ProducerState()
    with pytest.raises(CorruptIndexError):
        state.load(
            parse_producer_snapshot(machine.files.read_whole(f"{FOLDER}/{8:020d}.snapshot")), offset=8, now_ms=NOW
        )
    snapshots_of(machine).load_latest(state, log_start_offset=0, log_end_offset=9, now_ms=NOW)
    assert state.end_offset == 4


@pytest.mark.parametrize(
    ("bases", "left"),
    [
        ((0, 10), (10, 30)),
        ((0, 10, 20, 30), (10, 20, 30)),
        ((0, 10, 20, 30, 40), (10, 20, 30)),
        ((0, 10, 40), (10,)),
        ((0,), (30,)),
        ((30,), (30,)),
        ((), (30,)),
    ],
)
def test_strays_go_but_for_the_one_at_the_end(bases: tuple[int, ...], left: tuple[int, ...]) -> None:
    """Else snapshots of segments that are gone stay for ever, or a clean stop's own is lost (Kafka
    removeStraySnapshots).
    """
    snapshots = snapshots_of(machine_with(10, 20, 30))
    snapshots.remove_strays(bases)
    assert snapshots.offsets == left


def test_snapshots_leave_with_their_records() -> None:
    """Else a snapshot behind a truncation is believed once the log is that long again, after a power cut too."""
    machine = machine_with(5, 10, 20, 30)
    snapshots = snapshots_of(machine)
    assert snapshots.mark_deleted(20) == f"{FOLDER}/{20:020d}.snapshot.deleted"
    assert snapshots.mark_deleted(20) is None
    machine.files.remove(f"{FOLDER}/{10:020d}.snapshot")
    assert snapshots.mark_deleted(10) is None
    assert snapshots.offsets == (5, 30)
    snapshots.truncate(log_start_offset=5, log_end_offset=29)
    assert snapshots.offsets == ()
    found = Machine(files=machine.files.crash())  # type: ignore[attr-defined]
    assert snapshots_of(found).offsets == ()
    snapshots = snapshots_of(machine_with(5, 10))
    snapshots.remove_all()
    assert snapshots.latest_offset is None


def test_only_snapshots_are_listed() -> None:
    """Else a file that Kafka set aside, or a folder, is taken for a snapshot."""
    machine = machine_with(5)
    for name in ("00000000000000000007.snapshot.deleted", "00000000000000000007.log", "x.snapshot", "9.snapshot.bak"):
        machine.files.write_whole(f"{FOLDER}/{name}", b"")
    machine.files.make_directories(f"{FOLDER}/00000000000000000008.snapshot")
    assert snapshots_of(machine).offsets == (5,)
