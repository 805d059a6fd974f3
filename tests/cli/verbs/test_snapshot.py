"""``tierlog snapshot``: what an operator sees of the metadata, and hands on."""

from __future__ import annotations

import base64
import dataclasses
import pathlib

import pytest

from tests.remote.metadata.snapshots.samples import PARTITION, SEGMENT
from tests.support.command import Run
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import MetadataValues
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.kafka_snapshot import parse_kafka_snapshot
from tierlog.remote.metadata.snapshots.snapshot_file import PendingRemoval, SnapshotState, read_snapshot, write_snapshot
from tierlog.runtime.machine import Machine

STATE = SnapshotState(
    "topic-a",
    50,
    {7: 9},
    (
        PendingRemoval(
            RemotePartitionDeleteMetadata(
                PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=1, broker_id=1
            ),
            7,
            8,
        ),
    ),
)


def numbered(number: int, partition: TopicIdPartition = PARTITION) -> RemoteLogSegmentMetadata:
    return dataclasses.replace(
        SEGMENT,
        remote_log_segment_id=RemoteLogSegmentId(partition, Uuid(number.to_bytes(16, "big"))),
        start_offset=number * 101,
        end_offset=number * 101 + 100,
        segment_leader_epochs={2: number * 101},
        custom_metadata=None,
        txn_idx_empty=False,
        state=type(SEGMENT.state).COPY_SEGMENT_STARTED,
    )


@pytest.fixture
def snapshot_file(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two partitions that were read from metadata partition 7."""
    records = [numbered(1), numbered(2), numbered(3, dataclasses.replace(PARTITION, partition=4))]
    path = tmp_path / "snapshot"
    with SegmentTable(learns_partitions=True) as table:
        table.apply(MetadataValues(7, 9, [5, 6, 8], [0] * 3, [None] * 3, list(map(encode_record, records))))
        write_snapshot(str(path), table, STATE, machine=Machine())
    return path


def test_it_shows_a_snapshot(snapshot_file: pathlib.Path, tierlog: Run) -> None:
    """Every segment with its state, and how far the snapshot reaches."""
    shown = tierlog("snapshot", snapshot_file)
    assert shown.code == 0
    lines = shown.text.splitlines()
    assert lines[0] == "of the topic topic-a, 50 partitions, read up to 7:9"
    assert lines[1] == "orders-3 DELETE_PARTITION_MARKED"
    assert lines[2] == f"orders-3 id {PARTITION.topic_id} 2 segments 2048 bytes"
    assert lines[3].split()[:3] == ["START", "END", "BYTES"]
    assert lines[4].split() == [
        *("101", "201", "1024", "2023-11-14T22:13:20.000Z", "2:101", "COPY_SEGMENT_STARTED", "AAAAAAAAAAAAAAAAAAAAAQ")
    ]
    assert len(lines) == 9


def test_its_json_has_the_names_of_ls(snapshot_file: pathlib.Path, tierlog: Run) -> None:
    """One object for each segment, for scripts."""
    shown = tierlog("snapshot", snapshot_file, "--output", "json")
    assert [line["segment"] for line in shown.lines] == [str(Uuid(number.to_bytes(16, "big"))) for number in (1, 2, 3)]
    assert shown.lines[0] == {
        "topic": "orders",
        "topicId": str(PARTITION.topic_id),
        "partition": 3,
        "segment": "AAAAAAAAAAAAAAAAAAAAAQ",
        "startOffset": 101,
        "endOffset": 201,
        "sizeBytes": 1024,
        "maxTimestamp": 1700000000000,
        "eventTimestamp": 1700000000123,
        "brokerId": 1,
        "leaderEpochs": {"2": 101},
        "customMetadata": None,
        "txnIndexEmpty": False,
        "state": "COPY_SEGMENT_STARTED",
    }


def test_a_snapshot_of_a_snapshot_is_the_same_file(snapshot_file: pathlib.Path, tierlog: Run) -> None:
    """Positions and removals go with it."""
    copied = snapshot_file.parent / "copied"
    done = tierlog("snapshot", snapshot_file, "--to", copied)
    assert (done.code, done.text) == (0, f"3 segments of 2 partitions written to {copied}\n")
    assert copied.read_bytes() == snapshot_file.read_bytes()


def test_other_commands_read_it_as_metadata(snapshot_file: pathlib.Path) -> None:
    """``--metadata FILE``."""
    with open_metadata(str(snapshot_file)) as view:
        assert view.find(numbered(2).remote_log_segment_id) == numbered(2)
        assert view.newest_record_ms(PARTITION) == SEGMENT.event_timestamp_ms


@pytest.mark.parametrize(("form", "name"), [("kafka-3", "remote_log_snapshot"), ("kip", "remote_log_flat_file")])
def test_the_other_forms_are_written_and_read(snapshot_file: pathlib.Path, tierlog: Run, form: str, name: str) -> None:
    """One file a partition; what the form has no field for is said."""
    folder = snapshot_file.parent / "out"
    done = tierlog("snapshot", snapshot_file, "--to", folder, "--format", form)
    assert done.code == 0, done.err
    assert "1 partition removals" in done.err
    assert ("brokers" in done.err) == (form == "kip")
    assert sorted(each.name for each in folder.iterdir()) == ["orders-3", "orders-4"]
    shown = tierlog("snapshot", folder / "orders-3" / name, "--output", "json")
    wanted = tierlog("snapshot", snapshot_file, "--output", "json").lines[:2]
    for line in wanted:
        line["brokerId"] = 1 if form == "kafka-3" else -1
    assert shown.lines == wanted
    if form == "kafka-3":
        written = parse_kafka_snapshot((folder / "orders-4" / name).read_bytes())
        assert written is not None
        assert (written.metadata_partition, written.offset) == (7, 8)


def test_a_field_that_a_form_cannot_hold_is_refused(tmp_path: pathlib.Path, tierlog: Run) -> None:
    """Its storage would not find the segment again."""
    path = tmp_path / "snapshot"
    with SegmentTable(learns_partitions=True) as table:
        held = dataclasses.replace(numbered(1), custom_metadata=b"key")
        table.apply(MetadataValues(7, 6, [5], [0], [None], [encode_record(held)]))
        write_snapshot(str(path), table, SnapshotState(), machine=Machine())
    done = tierlog("snapshot", path, "--to", tmp_path / "out", "--format", "kip")
    assert done.code == 2
    assert "custom metadata" in done.err
    shown = tierlog("snapshot", path, "--output", "json").lines[0]["customMetadata"]
    assert base64.b64decode(str(shown)) == b"key"


def test_a_topic_whose_name_is_no_folder_is_refused(tmp_path: pathlib.Path, tierlog: Run) -> None:
    """A record of the topic must not choose where files are written."""
    path = tmp_path / "a" / "snapshot"
    path.parent.mkdir()
    with SegmentTable(learns_partitions=True) as table:
        held = numbered(1, dataclasses.replace(PARTITION, topic="../../x"))
        table.apply(MetadataValues(7, 6, [5], [0], [None], [encode_record(held)]))
        write_snapshot(str(path), table, SnapshotState(), machine=Machine())
    done = tierlog("snapshot", path, "--to", tmp_path / "a" / "out", "--format", "kafka-3")
    assert done.code == 2
    assert "no topic's name" in done.err
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_where_no_offset_is_known_the_other_forms_are_refused(tmp_path: pathlib.Path, tierlog: Run) -> None:
    """Kafka would read its topic from a made-up offset on."""
    path = tmp_path / "snapshot"
    with SegmentTable(learns_partitions=True) as table:
        table.put(numbered(1))
        write_snapshot(str(path), table, SnapshotState(), machine=Machine())
    done = tierlog("snapshot", path, "--to", tmp_path / "out", "--format", "kafka-3")
    assert done.code == 2
    assert "not known" in done.err


def test_damage_and_wrong_use_are_told(snapshot_file: pathlib.Path, tierlog: Run) -> None:
    """By the exit codes of all commands, with the file's name."""
    data = snapshot_file.read_bytes()
    snapshot_file.write_bytes(data[:-1])
    done = tierlog("snapshot", snapshot_file)
    assert done.code == 3
    assert str(snapshot_file) in done.err
    assert tierlog("snapshot", snapshot_file.parent / "missing").code == 3
    lost = snapshot_file.parent / "remote_log_snapshot"
    lost.write_bytes(b"")
    assert tierlog("snapshot", lost).code == 2


def test_a_topics_folder_becomes_a_snapshot(data: pathlib.Path, tmp_path: pathlib.Path, tierlog: Run) -> None:
    """What a broker's disk says, in one file."""
    folder = next(path.parent.parent for path in sorted(data.rglob("__remote_log_metadata-*/*.log")))
    to = tmp_path / "snapshot"
    done = tierlog("snapshot", folder, "--to", to)
    assert done.code == 0, done.err
    table, state = read_snapshot(str(to), machine=Machine())
    with table, open_metadata(str(folder)) as view:
        assert state == SnapshotState()
        found = {each.remote_log_segment_id: each for part in table.partitions() for each in table.list(part)}
        assert found == {each.remote_log_segment_id: each for each in view.segments()}
        assert found
