"""The metadata topics of real brokers, and Kafka's own tables of the KIP's scenarios, asked of our table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.remote.metadata.table.segments import DELETED, FINISHED, ORDERS, segment, segment_id, update
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, MetadataBatches
from tierlog.remote.metadata.record_serde import decode_record
from tierlog.remote.metadata.segment_table import SegmentTable


def topic_directories(root: Path) -> Iterator[Path]:
    """Every folder of a broker's with a metadata topic in it."""
    yield from sorted({path.parent for path in root.glob(f"*/*/**/{METADATA_TOPIC}-*") if path.is_dir()})


def replay(directory: Path, table: SegmentTable, *, run_bytes: int | None = None) -> None:
    for folder in sorted(directory.glob(f"{METADATA_TOPIC}-*")):
        place = int(folder.name.rsplit("-", 1)[1])
        for log in sorted(folder.glob("*.log")):
            data = memoryview(log.read_bytes())
            at = 0
            while at < len(data):
                end = at
                while end < len(data) and end - at < (run_bytes or len(data)):
                    end += 12 + int.from_bytes(data[end + 8 : end + 12], "big")
                run = table.apply(MetadataBatches(place, 0, data[at:end]))
                assert run.error is None, log
                assert run.refused_count == 0
                at = end


@dataclass
class Known:
    """A segment by the furthest of its records: its life has one direction, and its id is never used again."""

    state: RemoteLogSegmentState
    begun: RemoteLogSegmentMetadata | None = None
    custom_metadata: bytes | None = None


def furthest_states(directory: Path) -> dict[RemoteLogSegmentId, Known]:
    """What the readable reader of records finds in all files, in any order."""
    known: dict[RemoteLogSegmentId, Known] = {}
    for log in directory.glob(f"{METADATA_TOPIC}-*/*.log"):
        for value in decode(log.read_bytes(), columns=("value",)).column("value"):
            record = decode_record(value.as_buffer())
            assert isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
            each = known.setdefault(record.remote_log_segment_id, Known(record.state))
            each.state = max(each.state, record.state)
            if isinstance(record, RemoteLogSegmentMetadata):
                each.begun = record
            each.custom_metadata = record.custom_metadata or each.custom_metadata
    return known


def check_replay(root: Path) -> int:
    checked = 0
    for directory in topic_directories(root):
        known = furthest_states(directory)
        with SegmentTable(learns_partitions=True) as table:
            replay(directory, table)
            replay(directory, table, run_bytes=1)
            assert table.figures.segments == sum(each.state is not DELETED for each in known.values())
            assert set(table.partitions()) == {each.topic_id_partition for each in known}
            for which, each in known.items():
                found = table.get(which)
                checked += 1
                if each.state is DELETED:
                    assert found is None
                    continue
                assert found is not None
                assert each.begun is not None
                assert (found.state, found.custom_metadata) == (each.state, each.custom_metadata)
                for name in (
                    "remote_log_segment_id",
                    "start_offset",
                    "end_offset",
                    "max_timestamp_ms",
                    "segment_size_in_bytes",
                    "segment_leader_epochs",
                    "txn_idx_empty",
                ):
                    assert getattr(found, name) == getattr(each.begun, name)
            for partition in table.partitions():
                finished = [each for each in table.list(partition) if each.state is FINISHED]
                for each in finished:
                    for epoch, start in each.segment_leader_epochs.items():
                        assert table.find(partition, epoch, start) is not None
    return checked


def test_the_topics_of_real_brokers_give_the_states_that_their_records_reach(data: Path) -> None:
    """Replayed in order, the table has the states that the furthest record of each segment tells."""
    assert check_replay(data) > 50


def test_so_do_all_of_the_full_set(fixtures: Path) -> None:
    """Custom metadata, deletions under way, and every broker of every run."""
    assert check_replay(fixtures) > 250


@pytest.mark.parametrize(
    ("name", "fault", "applied"),
    [
        ("00-good", None, 1),
        ("01-unknown-api-key", "BAD_VERSION", 0),
        ("02-unknown-version", "BAD_VERSION", 0),
        ("03-truncated", "TRUNCATED", 0),
        ("04-empty-value", "TRUNCATED", 0),
        ("05-null-value", "BAD_FIELD_LENGTH", 0),
        ("06-trailing", "TRAILING_BYTES", 0),
        ("07-string-length-lies", "TRUNCATED", 0),
        ("08-update-before-add", None, 0),
    ],
)
def test_bad_records_are_errors_with_their_offset(data: Path, name: str, fault: str | None, applied: int) -> None:
    """Kafka's consumer task stops for good at such a record; ours says which one it is, and why."""
    with SegmentTable(learns_partitions=True) as table:
        run = table.apply(MetadataBatches(0, 99, (data / "bad" / "rlmm" / f"{name}.log").read_bytes()))
        assert (run.error and run.error.fault) == fault
        assert run.applied == applied
        if run.error is None:
            assert run.next_offset == 99
        else:
            assert run.next_offset == run.error.base_offset == 0
        assert run.refused_count == (1 if name.startswith("08") else 0)


#: Scenario -> segments (start, end, epochs), then questions (epoch, offset) -> the segment by Kafka 4.3's cache, which
#: was run (and, where it differs, by the KIP).
SCRIPTS: Mapping[str, tuple[list[tuple[int, int, dict[int, int]]], dict[tuple[int, int], tuple[int, int] | int]]] = {
    "1, new follower": ([(0, 2, {0: 0}), (3, 5, {1: 3, 2: 5})], {(0, 2): 0, (0, 3): -1, (1, 4): 1, (2, 5): 1}),
    "2, out-of-sync follower": (
        [(0, 2, {0: 0}), (3, 5, {1: 3, 2: 5}), (6, 8, {2: 6, 3: 7})],
        {(3, 8): 2, (2, 6): 2, (2, 5): 1, (2, 7): -1},
    ),
    "3, hard failures": ([(0, 1, {0: 0}), (1, 1, {1: 1})], {(0, 0): 0, (1, 1): 1, (1, 2): -1, (0, 1): 0}),
    "4, unclean election": (
        [(0, 2, {0: 0}), (0, 1, {0: 0, 1: 1})],
        {(0, 0): (1, 0), (0, 1): (-1, 0), (0, 2): (-1, 0), (1, 1): 1, (1, 2): -1},
    ),
    "5, divergence": (
        [(0, 3, {0: 0}), (0, 3, {0: 0, 1: 2}), (4, 5, {0: 4, 2: 5})],
        {
            (0, 0): (1, 0),
            (0, 1): (1, 0),
            (0, 2): (-1, 0),
            (0, 3): (-1, 0),
            (0, 4): 2,
            (2, 5): 2,
            (1, 2): 1,
            (1, 3): 1,
        },
    ),
    "F, follower becomes leader": (
        [(0, 2, {0: 0}), (3, 4, {1: 3}), (4, 6, {1: 4, 2: 6})],
        {(1, 3): 1, (1, 4): 2, (1, 5): 2, (2, 6): 2},
    ),
}


@pytest.mark.parametrize("as_kafka", [False, True], ids=["ours", "as_kafka"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scenarios_lookups(script: str, as_kafka: bool) -> None:
    """Scenario 5 by Kafka: offsets 2 and 3 are in the bucket and nobody can read them. Ours reads m2 and m3 from u1."""
    segments, questions = SCRIPTS[script]
    with SegmentTable(as_kafka=as_kafka) as table:
        table.assign(ORDERS)
        for number, (start, end, epochs) in enumerate(segments):
            table.apply_record(segment(number, start, end, epochs))
            table.apply_record(update(number, FINISHED))
        for (epoch, offset), expected in questions.items():
            kafka, ours = expected if isinstance(expected, tuple) else (expected, expected)
            wanted = kafka if as_kafka else ours
            found = table.find(ORDERS, epoch, offset)
            assert (found and found.remote_log_segment_id) == (None if wanted < 0 else segment_id(wanted))
        listed = {each.remote_log_segment_id for each in table.list(ORDERS, 0)}
        in_epoch_0 = {segment_id(n) for n, (_, _, epochs) in enumerate(segments) if 0 in epochs}
        if as_kafka and script[0] in "45":  # u1 is in no list of its epoch: no retention ever sees it
            in_epoch_0.discard(segment_id(0))
        assert listed == in_epoch_0
        assert len(list(table.list(ORDERS))) == len(segments)


def test_script_3_finds_the_copied_offset_that_kafka_cuts() -> None:
    """A leader takes its copied offset from these: too low, it uploads again; too high, history is missing."""
    with SegmentTable() as table:
        table.assign(ORDERS)
        table.put(segment(0, 0, 1, {0: 0}, state=FINISHED))
        table.put(segment(1, 1, 1, {1: 1}, state=FINISHED))
        assert [table.highest_offset(ORDERS, epoch) for epoch in range(3)] == [1, 1, None]
