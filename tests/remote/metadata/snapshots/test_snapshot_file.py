"""The columnar snapshot. If it answers otherwise than the table that it was written from, history is lost at a restart;
if damage is not told, a broker answers from it.
"""

from __future__ import annotations

import dataclasses
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.remote.metadata.snapshots.samples import PARTITION, SEGMENT, segments, survives_damage
from tierlog._native.segments import SNAPSHOT_HEAD_BYTES, check_snapshot_section, seal_snapshot_section
from tierlog.errors import CorruptIndexError, ObjectNotFoundError, StoreUnavailableError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import MetadataValues, RecordIdentity
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import (
    PendingRemoval,
    SnapshotMismatchError,
    SnapshotState,
    is_snapshot,
    read_snapshot,
    read_snapshot_state,
    write_snapshot,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles

PATH = "/log/_rlmm_snapshot"
PARTITIONS = [TopicIdPartition(Uuid(bytes([7] * 16)), "orders", number) for number in range(3)]
REMOVAL = RemotePartitionDeleteMetadata(
    PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_STARTED, event_timestamp_ms=5, broker_id=1
)
STATE = SnapshotState(
    "topic-a",
    50,
    {3: 100, 7: 0, 49: 2**63 - 1},
    (PendingRemoval(REMOVAL, 3, 41), PendingRemoval(REMOVAL)),
    {3: RecordIdentity(99, 2**32 - 1), 49: RecordIdentity(2**63 - 2, 0)},
)


def made_machine() -> Machine:
    files = MemoryFiles()
    files.make_directories("/log")
    return Machine(files=files)


def lively_table(seed: int, *, as_kafka: bool = False, events: int = 400) -> SegmentTable:
    """Overlapping segments in all states, some deleted again, by events with offsets."""
    rng = random.Random(seed)
    table = SegmentTable(as_kafka=as_kafka, learns_partitions=True)
    values = []
    known: list[RemoteLogSegmentMetadata] = []
    for _ in range(events):
        if known and rng.random() < 0.6:
            segment = rng.choice(known)
            state = RemoteLogSegmentState(rng.randrange(1, 4))
            values.append(
                encode_record(
                    RemoteLogSegmentMetadataUpdate(
                        segment.remote_log_segment_id,
                        event_timestamp_ms=rng.randrange(1000),
                        custom_metadata=rng.choice([None, b"", b"abc"]),
                        state=state,
                        broker_id=2,
                    )
                )
            )
            continue
        start = rng.randrange(300)
        epochs = sorted(rng.sample(range(6), rng.randrange(1, 4)))
        segment = RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(rng.choice(PARTITIONS), Uuid(rng.randbytes(16))),
            start_offset=start,
            end_offset=start + rng.randrange(60),
            max_timestamp_ms=rng.randrange(-1, 10**12),
            broker_id=1,
            event_timestamp_ms=rng.randrange(10**12),
            segment_size_in_bytes=rng.randrange(2**31),
            segment_leader_epochs={epoch: start + 7 * place for place, epoch in enumerate(epochs)},
            custom_metadata=rng.choice([None, b"", rng.randbytes(20)]),
            txn_idx_empty=rng.random() < 0.5,
        )
        known.append(segment)
        values.append(encode_record(segment))
    count = len(values)
    run = MetadataValues(4, count, range(count), [0] * count, [None] * count, values)
    assert table.apply(run).error is None
    return table


def answers(table: SegmentTable) -> dict[str, object]:
    """Everything that the table can be asked."""
    found: dict[str, object] = {"partitions": sorted(table.partitions()), "applied": sorted(table._assigned())}
    for partition in PARTITIONS:
        found[f"{partition}"] = list(table.list(partition))
        for epoch in range(7):
            found[f"{partition} {epoch}"] = (
                table.highest_offset(partition, epoch),
                table.size_in_bytes(partition, epoch),
                [row.tobytes() for row in table.columns(partition, epoch).segment_id],
                [table.find(partition, epoch, offset) for offset in range(0, 370, 5)],
                [table.next_with_txn_index(partition, epoch, offset) for offset in range(0, 370, 30)],
            )
    return found


def snapshot_of(table: SegmentTable, state: SnapshotState = STATE) -> bytes:
    machine = made_machine()
    write_snapshot(PATH, table, state, machine=machine)
    return machine.files.read_whole(PATH)


def load(data: bytes, *, as_kafka: bool = False) -> tuple[SegmentTable, SnapshotState]:
    machine = made_machine()
    machine.files.write_whole(PATH, data)
    return read_snapshot(PATH, machine=machine, as_kafka=as_kafka)


def load_and_close(data: bytes) -> None:
    load(data)[0].close()


@pytest.mark.parametrize("as_kafka", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_loaded_table_answers_as_the_written_one(seed: int, as_kafka: bool) -> None:
    """And goes on as it does: what is written of it is the same file."""
    with lively_table(seed, as_kafka=as_kafka) as table:
        data = snapshot_of(table)
        loaded, state = load(data, as_kafka=as_kafka)
        with loaded:
            assert state == STATE
            assert answers(loaded) == answers(table)
            assert loaded.figures.segments == table.figures.segments
            assert snapshot_of(loaded) == data
            late = MetadataValues(4, 401, [3, 400], [0, 0], [None] * 2, [encode_record(SEGMENT_STARTED)] * 2)
            outcomes = [(run.applied, run.passed_over) for run in (table.apply(late), loaded.apply(late))]
            assert outcomes[0] == outcomes[1]


SEGMENT_STARTED = dataclasses.replace(
    SEGMENT,
    remote_log_segment_id=RemoteLogSegmentId(PARTITIONS[0], Uuid(bytes(16))),
    state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
)


@settings(max_examples=30)
@given(st.lists(segments(), max_size=8, unique_by=lambda each: each.remote_log_segment_id))
def test_any_segments_come_back(held: list[RemoteLogSegmentMetadata]) -> None:
    """Every field, at the ends of its range too."""
    with SegmentTable(learns_partitions=True) as table:
        for segment in held:
            table.put(segment)
        loaded, _ = load(snapshot_of(table, SnapshotState()))
        with loaded:
            assert {each.remote_log_segment_id: each for each in loaded.list(PARTITION)} == {
                each.remote_log_segment_id: each for each in held
            }


def test_an_empty_table() -> None:
    """What a broker without tiered partitions writes; partitions that are assigned stay so."""
    with SegmentTable() as table:
        table.assign(PARTITIONS[1])
        loaded, state = load(snapshot_of(table, SnapshotState("x", 1)))
        with loaded:
            assert loaded.partitions() == [PARTITIONS[1]]
            assert state == SnapshotState("x", 1)


def test_many_partitions_and_sections() -> None:
    """More than one section of segments."""
    with SegmentTable(learns_partitions=True) as table:
        values = [
            encode_record(
                dataclasses.replace(
                    SEGMENT_STARTED,
                    remote_log_segment_id=RemoteLogSegmentId(
                        dataclasses.replace(PARTITION, partition=number % 700), Uuid(number.to_bytes(16, "big"))
                    ),
                    custom_metadata=bytes(350),
                )
            )
            for number in range(42_000)
        ]
        count = len(values)
        table.apply(MetadataValues(0, count, range(count), [0] * count, [None] * count, values))
        data = snapshot_of(table)
        assert len(data) > 17 << 20
        loaded, _ = load(data)
        with loaded:
            assert loaded.figures.segments == count
            assert len(list(loaded.list(dataclasses.replace(PARTITION, partition=699)))) == count // 700
            assert snapshot_of(loaded) == data


def test_every_prefix_and_flipped_bits_are_told() -> None:
    """No damage is ever an answer."""
    with lively_table(1, events=8) as table:
        assert survives_damage(snapshot_of(table), load_and_close, step=7) == (0, 0)


def test_bytes_behind_the_end_are_told() -> None:
    """A file that was written over a longer one."""
    with SegmentTable() as table:
        data = snapshot_of(table)
    with pytest.raises(CorruptIndexError, match="left over") as error:
        load(data + b"\x00")
    assert (error.value.fault, error.value.position, error.value.where) == ("TRAILING_BYTES", len(data), PATH)


def sections_of(data: bytes) -> list[bytes]:
    found, at = [], 16
    while at < len(data):
        size = SNAPSHOT_HEAD_BYTES + struct.unpack_from("<Q", data, at + 8)[0]
        found.append(data[at : at + size])
        at += size
    return found


def resealed(section: bytes, **changes: int) -> bytes:
    """With other numbers in its head, and a checksum that says that they are right."""
    kind, number, count, more, size, _ = check_snapshot_section(section)
    head = {"kind": kind, "number": number, "count": count, "more": more, "size": size} | changes
    sealed = bytearray(section)
    seal_snapshot_section(sealed, *head.values())
    return bytes(sealed)


def test_sections_that_do_not_belong_together_are_told() -> None:
    """Whatever their checksums say: left out, in another order, twice, of another file."""
    with lively_table(1, events=8) as table, lively_table(2, events=8) as other_table:
        data, other = snapshot_of(table), snapshot_of(other_table)
    prefix, sections, others = data[:16], sections_of(data), sections_of(other)
    assert [section[4] for section in sections] == [1, 2, 3, 4, 5]

    def files() -> list[list[bytes]]:
        numbers = range(len(sections))
        return [
            *([*sections[:place], *sections[place + 1 :]] for place in numbers),
            *([*sections[:place], sections[place], *sections[place:]] for place in numbers),
            *([*sections[:place], others[place], *sections[place + 1 :]] for place in (0, 2, 3, 4)),
            [sections[0], sections[2], sections[1], *sections[3:]],
            [sections[0], *(resealed(each, number=place + 1) for place, each in enumerate(sections[2:]))],
            [*sections[:3], resealed(sections[3], count=1), sections[4]],
            [*sections[:3], resealed(sections[3], more=1), sections[4]],
            [resealed(sections[0], count=0), *sections[1:]],
            [resealed(sections[0], size=0), *sections[1:]],
            [sections[0], resealed(sections[1], count=9), *sections[2:]],
            [sections[0], *sections[1:3], resealed(sections[4], number=3)],
        ]

    for file in files():
        with pytest.raises(CorruptIndexError):
            load(prefix + b"".join(file))
    load_and_close(prefix + b"".join(sections))


def test_a_topic_whose_name_is_no_text_is_told() -> None:
    """A forged file with right checksums: else the table is loaded, and whoever lists it gets a UnicodeDecodeError."""
    with lively_table(1, events=8) as table:
        data = snapshot_of(table)
    sections = sections_of(data)
    assert PARTITION.topic.encode() in sections[2]
    kind, number, count, more, size, _ = check_snapshot_section(sections[2])
    forged = bytearray(sections[2].replace(PARTITION.topic.encode(), b"\xff" * len(PARTITION.topic)))
    seal_snapshot_section(forged, kind, number, count, more, size)
    with pytest.raises(CorruptIndexError) as error:
        load(data[:16] + b"".join([*sections[:2], forged, *sections[3:]]))
    assert error.value.fault == "BAD_ENTRY"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "TRUNCATED"),
        (b"TLRLMSNQ" + bytes(100), "BAD_MAGIC"),
        (b"TLRLMSNP\x01" + bytes(100), "BAD_VERSION"),
        (b"TLRLMSNP\x02\x00\x00\x00\x02" + bytes(100), "BAD_VERSION"),
        (b"TLRLMSNP\x02" + bytes(7) + bytes(100), "BAD_ENTRY"),
        (b"TLRLMSNP\x02" + bytes(7) + b"\x00" * 4 + b"\x01\x00\x00\x00" + b"\xff" * 24, "BAD_SIZE"),
    ],
)
def test_what_is_no_snapshot_is_told(data: bytes, fault: str) -> None:
    """Each with its own fault, and the file's name."""
    with pytest.raises(CorruptIndexError) as error:
        load(data)
    assert (error.value.fault, error.value.where) == (fault, PATH)
    assert is_snapshot(data) == data.startswith(b"TLRLMSNP")


def test_counts_that_the_file_cannot_hold_take_no_memory() -> None:
    """A hostile count of segments."""
    with SegmentTable() as table:
        data = snapshot_of(table)
    sections = sections_of(data)
    topic = bytearray(sections[0])
    struct.pack_into("<Q", topic, SNAPSHOT_HEAD_BYTES + 8, 2**62)
    with pytest.raises(CorruptIndexError, match="segments of 0 partitions in"):
        load(data[:16] + resealed_raw(topic) + b"".join(sections[1:]))


def resealed_raw(section: bytearray) -> bytes:
    numbers = struct.unpack_from("<4xI8xIIII", section)
    seal_snapshot_section(section, *numbers)
    return bytes(section)


def test_a_table_that_answers_otherwise_is_refused() -> None:
    """Kafka's marks cannot be made up; a table that does without them takes the file."""
    with lively_table(1) as table:
        ours = snapshot_of(table)
    with lively_table(1, as_kafka=True) as table:
        kafkas = snapshot_of(table)
    with pytest.raises(SnapshotMismatchError, match="answer as Kafka's"):
        load(ours, as_kafka=True)
    load_and_close(kafkas)


def test_the_state_alone() -> None:
    """For a caller that wants to know how far it reaches."""
    machine = made_machine()
    with lively_table(1) as table:
        write_snapshot(PATH, table, STATE, machine=machine)
    assert read_snapshot_state(PATH, machine=machine) == STATE
    machine.files.write_whole(PATH, b"nothing")
    with pytest.raises(CorruptIndexError) as error:
        read_snapshot_state(PATH, machine=machine)
    assert error.value.where == PATH


def test_many_removals() -> None:
    """More than one section of them."""
    state = dataclasses.replace(STATE, removals=tuple(PendingRemoval(REMOVAL, 1, number) for number in range(5000)))
    with SegmentTable() as table:
        loaded, found = load(snapshot_of(table, state))
        loaded.close()
    assert found == state


@pytest.mark.parametrize(
    "state",
    [
        SnapshotState("x", 5, {5: 1}),
        SnapshotState("x", 5, {-1: 1}),
        SnapshotState("x", 5, {1: -1}),
        SnapshotState("x", 2**31),
        SnapshotState("x", 5, {1: 1}, last_records={2: RecordIdentity(0, 0)}),
        SnapshotState("x" * 70_000, 5),
    ],
)
def test_a_state_that_cannot_be_is_refused(state: SnapshotState) -> None:
    """Before there is a file that nobody reads; the old one stays."""
    machine = made_machine()
    with SegmentTable() as table:
        write_snapshot(PATH, table, STATE, machine=machine)
        with pytest.raises(ValueError, match="metadata partitions"):
            write_snapshot(PATH, table, state, machine=machine)
    assert read_snapshot_state(PATH, machine=machine) == STATE
    assert [each.name for each in machine.files.iter_directory("/log")] == ["_rlmm_snapshot"]


def test_an_event_while_it_is_written_ends_it() -> None:
    """The segments would be of two moments; the old file stays."""
    machine = made_machine()
    with lively_table(1) as table:
        snapshot = table.snapshot()
        table.unassign(PARTITIONS[0])
        with pytest.raises(RuntimeError, match="changed while"):
            snapshot.next_section(0, memoryview(bytearray(20 << 20)))
    with pytest.raises(ObjectNotFoundError):
        read_snapshot(PATH, machine=machine)


def test_one_writes_at_a_time() -> None:
    """Two managers of one folder do not mix their files."""
    machine = made_machine()
    with SegmentTable() as table, machine.files.open_write(PATH), pytest.raises(StoreUnavailableError):
        write_snapshot(PATH, table, STATE, machine=machine)


def test_on_a_real_disk(tmp_path: object) -> None:
    """And under the simulated scheduler's lock."""
    machine = Machine()
    path = f"{tmp_path}/_rlmm_snapshot"
    with lively_table(1) as table:
        write_snapshot(path, table, STATE, machine=machine)
        loaded, state = read_snapshot(path, machine=machine)
        with loaded:
            assert (answers(loaded), state) == (answers(table), STATE)
    simulated, scheduler = ManualScheduler.machine(1, MemoryFiles())
    with scheduler, SegmentTable(machine=simulated) as table:
        simulated.files.make_directories("/log")
        write_snapshot(PATH, table, STATE, machine=simulated)
        read_snapshot(PATH, machine=simulated)[0].close()
