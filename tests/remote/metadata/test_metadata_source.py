"""Metadata as readers take it: from the files of the metadata topic."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import shutil
from collections.abc import Sequence

import pytest

from tests.conftest import DATA, FIXTURES
from tests.support.golden import metadata_folders
from tests.support.metadata_records import FINISHED, PARTITION, SEGMENT, SNAPSHOT, STARTED
from tests.support.metadata_topic import write_topic
from tierlog.errors import ConfigError, CorruptDataError, ObjectNotFoundError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord
from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, write_snapshot
from tierlog.runtime.machine import Machine

State = RemoteLogSegmentState
RUNS = [run for root in (DATA, FIXTURES) if root.is_dir() for run in sorted(root.iterdir()) if metadata_folders(run)]
OTHER = TopicIdPartition(Uuid(bytes(range(16))), "payments", 0)


def update(state: State, segment: RemoteLogSegmentId = SEGMENT, **more: object) -> RemoteLogSegmentMetadataUpdate:
    made = RemoteLogSegmentMetadataUpdate(
        segment, event_timestamp_ms=1_700_000_001_000, custom_metadata=None, state=state, broker_id=1
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def segment(number: int, partition: TopicIdPartition = PARTITION) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(partition, Uuid(bytes([number] * 16)))


def life(number: int, *states: State, partition: TopicIdPartition = PARTITION) -> list[RemoteLogMetadataRecord]:
    found = segment(number, partition)
    began = dataclasses.replace(
        STARTED, remote_log_segment_id=found, start_offset=10 * number, end_offset=10 * number + 9,
        segment_leader_epochs={0: 10 * number},
    )  # fmt: skip
    return [began, *(update(state, found) for state in states)]


def manifests(folder: pathlib.Path) -> set[tuple[str, int, str, int, int]]:
    """(topic, partition, segment id, start, end) of all whole segments, by their manifests."""
    found = set()
    for path in folder.rglob("*.rsm-manifest"):
        about = json.loads(path.read_text())["remoteLogSegmentMetadata"]
        place = about["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]
        ids = about["remoteLogSegmentId"]["id"]
        found.add((place["topic"], place["partition"], ids, about["startOffset"], about["endOffset"]))
    return found


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_a_real_topic_names_the_segments_that_are_there(run: pathlib.Path) -> None:
    """Else a read by metadata lacks segments, or meets ones that the cluster had deleted."""
    wanted = manifests(run / "objects")
    topics = {topic for topic, *_ in wanted}
    with open_metadata(metadata_folders(run)) as view:
        found = {
            (place.topic, place.partition, str(each.remote_log_segment_id.id), each.start_offset, each.end_offset)
            for place in view.partitions()
            for each in view.readable(place)
        }
        assert all(each.state is not State.DELETE_SEGMENT_FINISHED for each in view.segments())
    assert {each for each in found if each[0] in topics} == wanted
    if run.parent == FIXTURES and wanted:
        assert {topic for topic, *_ in found} == topics


def test_deleted_segments_are_told_from_unknown_ones(fixtures: pathlib.Path) -> None:
    """Else leftovers of another cluster are taken for segments that were deleted, and go."""
    run = fixtures / "main-plain"
    gone = manifests(run / "objects-removed-later")
    assert gone
    with open_metadata(metadata_folders(run), remember_departed=True) as view:
        ids = {(p.topic, p.partition): p for p in view.partitions()}
        for topic, partition, raw, *_ in gone:
            deleted = RemoteLogSegmentId(ids[topic, partition], Uuid.from_text(raw))
            assert view.find(deleted) is None
            assert view.last_state(deleted) is State.DELETE_SEGMENT_FINISHED
            assert view.last_state(dataclasses.replace(deleted, id=Uuid(bytes(16)))) is None
    with open_metadata(metadata_folders(run)) as view:
        assert view.last_state(deleted) is None


def test_states_and_how_far_the_metadata_reaches(tmp_path: pathlib.Path) -> None:
    """Else a copy or a deletion under way is read as history, or new objects as if the metadata knew them."""
    records = [
        *life(1),
        *life(2, State.COPY_SEGMENT_FINISHED),
        *life(3, State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED),
        *life(4, State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED),
    ]
    write_topic(tmp_path, 0, records, timestamp_ms=1000)
    write_topic(tmp_path, 1, life(5, State.COPY_SEGMENT_FINISHED, partition=OTHER), timestamp_ms=5000)
    with open_metadata(str(tmp_path), remember_departed=True) as view:
        assert [each.remote_log_segment_id for each in view.readable(PARTITION)] == [segment(2)]
        assert [view.last_state(segment(number)) for number in range(6)] == [None, *State, None]
        assert {each.remote_log_segment_id for each in view.segments()} == {
            *(segment(number) for number in (1, 2, 3)),
            segment(5, OTHER),
        }
        assert view.newest_record_ms(PARTITION) == 1000 + len(records) - 1
        assert view.newest_record_ms(OTHER) == 5001
        unknown = dataclasses.replace(OTHER, partition=7)
        assert (view.knows(unknown), view.newest_record_ms(unknown), view.last_state(segment(1, unknown))) == (
            False,
            -1,
            None,
        )


def test_a_segment_of_which_only_updates_are_there(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else objects that the metadata gives to somebody count as nobody's; and nothing reports the odd event."""
    finished = [*life(1, State.COPY_SEGMENT_FINISHED), update(State.COPY_SEGMENT_FINISHED, segment(2))]
    write_topic(tmp_path, 0, finished)
    with caplog.at_level(logging.WARNING), open_metadata(str(tmp_path), remember_departed=True) as view:
        assert view.find(segment(2)) is None
        assert view.last_state(segment(2)) is State.COPY_SEGMENT_FINISHED
    assert "1 events that do not fit the state of their segments are passed over, the first at offset 2" in caplog.text


def test_several_brokers_add_up_and_replicas_count_once(tmp_path: pathlib.Path) -> None:
    """Else metadata of a cluster of more than one broker cannot be given, or is counted twice."""
    first, second = life(1, State.COPY_SEGMENT_FINISHED), life(2, State.COPY_SEGMENT_FINISHED, partition=OTHER)
    write_topic(tmp_path / "a", 0, first)
    write_topic(tmp_path / "b", 1, second)
    behind = tmp_path / "c"
    write_topic(behind, 0, first[:1])
    folders = [str(tmp_path / name) for name in "abc"]
    for order in (folders, folders[::-1], [*folders, *folders]):
        with open_metadata(order) as view:
            assert [each.state for each in view.segments()] == [State.COPY_SEGMENT_FINISHED] * 2
    with open_metadata(str(tmp_path / "a/__remote_log_metadata-0")) as view:
        assert view.partitions() == [PARTITION]


def test_a_late_event_does_not_bring_a_segment_back(tmp_path: pathlib.Path) -> None:
    """Else a zombie leader's record makes readers ask for objects that were deleted."""
    over = (State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED)
    write_topic(tmp_path, 0, [*life(1, *over), update(State.COPY_SEGMENT_FINISHED, segment(1)), *life(2)])
    with open_metadata(str(tmp_path), remember_departed=True) as view:
        assert list(view.readable(PARTITION)) == []
        assert view.last_state(segment(1)) is State.DELETE_SEGMENT_FINISHED


def test_a_partition_delete_is_no_segment(tmp_path: pathlib.Path) -> None:
    """Else a topic that is being removed hides what is still there, or ends the read."""
    marked = RemotePartitionDeleteMetadata(
        PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=1, broker_id=1
    )
    write_topic(tmp_path, 0, [*life(1, State.COPY_SEGMENT_FINISHED), marked])
    with open_metadata(str(tmp_path), remember_departed=True) as view:
        assert len(list(view.readable(PARTITION))) == 1


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([SNAPSHOT], "offset 2"),
        ([b"\x01\x09\x00"], "type 9"),
        ([b"\x01\x00\x01"], "version 1"),
        ([b""], "empty"),
        ([b"\x01\x00\x00\xff\xff\xff\xff\x0f"], "topic name"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(
    tmp_path: pathlib.Path, records: Sequence[RemoteLogMetadataRecord | bytes], told: str
) -> None:
    """Else a read goes on by metadata of which nobody knows what it said."""
    write_topic(tmp_path, 3, [*life(1, State.COPY_SEGMENT_FINISHED), *records])
    with pytest.raises(CorruptDataError) as caught:
        open_metadata(str(tmp_path))
    assert "__remote_log_metadata-3" in str(caught.value)
    assert told in str(caught.value)


def test_bad_records_of_the_golden_data(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The same for each kind of damage."""
    for path in sorted((data / "bad/rlmm").glob("*.log")):
        folder = tmp_path / path.stem / "__remote_log_metadata-0"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / "00000000000000000000.log")
        if path.name.startswith("00-"):
            with open_metadata(str(folder.parent)) as view:
                assert len(list(view.segments())) == 1
            continue
        # Of the last one nothing is unreadable; but there is only an update, so that no segment is known.
        error = ConfigError if path.name.startswith("08-") else CorruptDataError
        with pytest.raises(error, match="no record of any segment" if error is ConfigError else "metadata-0"):
            open_metadata(str(folder.parent))


def test_keyed_records_and_tombstones(tmp_path: pathlib.Path) -> None:
    """Else the topic of a cluster that compacts it (KIP-1266) cannot be read."""
    write_topic(tmp_path, 0, [*life(1, State.COPY_SEGMENT_FINISHED), None], key=b"k")
    with open_metadata(str(tmp_path), remember_departed=True) as view:
        assert len(list(view.readable(PARTITION))) == 1


def test_sources_from_which_nothing_follows(tmp_path: pathlib.Path) -> None:
    """Else an empty or trimmed topic reads as: nothing is stored."""
    write_topic(tmp_path / "trimmed", 0, [FINISHED, update(State.DELETE_SEGMENT_STARTED)], first_offset=7)
    write_topic(tmp_path / "empty", 0, [])
    (tmp_path / "other/orders-0").mkdir(parents=True)
    shutil.copytree(tmp_path / "trimmed/__remote_log_metadata-0", tmp_path / "other/orders-0", dirs_exist_ok=True)
    for source, told in [
        ("trimmed", "__remote_log_metadata-0 begins at 7"),
        ("empty", "metadata"),
        ("other", "no rec"),
    ]:
        with pytest.raises(ConfigError, match=told):
            open_metadata(str(tmp_path / source))
    for nothing in ([], "", ["x", ""]):
        with pytest.raises(ConfigError, match="no source"):
            open_metadata(nothing)
    with pytest.raises(ObjectNotFoundError):
        open_metadata(str(tmp_path / "nowhere"))


def test_a_snapshot_is_a_source_too(tmp_path: pathlib.Path) -> None:
    """Else the file that a manager starts from in a second cannot be given to a read."""
    path = tmp_path / "metadata.snapshot"
    (folder,) = metadata_folders(DATA / "main-plain")
    with open_metadata(folder) as files:
        write_snapshot(str(path), files.table, SnapshotState(), machine=Machine())
        with open_metadata(str(path)) as snapshot:
            assert sorted(snapshot.partitions()) == sorted(files.partitions())
            for partition in files.partitions():
                wanted = list(files.readable(partition))
                assert list(snapshot.readable(partition)) == wanted
                events = [each.event_timestamp_ms for each in files.table.list(partition)]
                assert snapshot.newest_record_ms(partition) == max(events, default=-1)
                assert snapshot.newest_record_ms(partition) <= files.newest_record_ms(partition)
    with open_metadata(path.as_uri()) as snapshot:
        assert snapshot.partitions()
    with pytest.raises(ConfigError, match="only source"):
        open_metadata([str(path), folder])
    data = path.read_bytes()
    for damaged in (data[:-1], data[:200] + bytes([data[200] ^ 1]) + data[201:], data[:8]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match=path.name):
            open_metadata(str(path))
    path.write_bytes(b"#!/bin/sh")
    with pytest.raises(ConfigError, match="no snapshot of metadata"):
        open_metadata(str(path))
