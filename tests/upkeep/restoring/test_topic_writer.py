"""Restored segments written into a topic that runs: what it knows is respected, and a second run continues a first."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RetriableRemoteStorageException,
)
from tierlog.remote.config import read_storage_config
from tierlog.remote.metadata.metadata_log import metadata_partition
from tierlog.remote.metadata.record_serde import decode_record, encode_record
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.upkeep.restoring.bucket_metadata import BucketMetadata, RestoredSegment
from tierlog.upkeep.restoring.restore_targets import records_of
from tierlog.upkeep.restoring.topic_writer import TopicWriter

MACHINE = Machine()
COUNT = 5


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Iterator[BucketMetadata]:
    """12 segments of 4 partitions."""
    for partition in range(4):
        made = Bucket(tmp_path / "bucket", partition=partition)
        for at in range(3):
            made.segment(f"s{at}", [message(at, "v", 0)], lineage={0: 0})
    read = read_storage_config(None, machine=MACHINE)
    with open_tier(str(tmp_path / "bucket")) as tier, BucketMetadata(tier, read) as metadata:
        yield metadata


@pytest.fixture(params=[False, True])
def topic(request: pytest.FixtureRequest) -> MemoryMetadataTopic:
    """Read as values, and as batches."""
    return MemoryMetadataTopic(COUNT, as_batches=request.param)


def both_of(segment: RestoredSegment) -> tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate]:
    return records_of(segment.metadata, started_ms=segment.started_ms)


def segments_of(bucket: BucketMetadata) -> list[RestoredSegment]:
    return [segment for each in bucket.iter_partitions() for segment in each.segments]


def restore(bucket: BucketMetadata, topic: MemoryMetadataTopic, timeout_seconds: float = 10) -> TopicWriter:
    with topic.open(timeout_seconds=1) as log:
        writer = TopicWriter(log, MACHINE, timeout_seconds=timeout_seconds)
        writer.read_topic()
        segments = segments_of(bucket)
        bucket.survey(writer.look)
        writer.check(lambda: ((each.metadata, each.started_ms) for each in segments))
        for segment in segments:
            writer.add(segment.metadata, started_ms=segment.started_ms)
        writer.finish()
        return writer


def records_in(topic: MemoryMetadataTopic) -> list[tuple[int, object]]:
    return [
        (place, decode_record(value)) for place in range(COUNT) for _, value in topic.values(place) if value is not None
    ]


def place_of(segment: RestoredSegment) -> int:
    return metadata_partition(segment.metadata.topic_id_partition, COUNT)


def test_both_records_of_each_go_where_brokers_look(bucket: BucketMetadata, topic: MemoryMetadataTopic) -> None:
    """A broker refuses FINISHED of what was not STARTED, and reads one metadata partition for each user partition."""
    writer = restore(bucket, topic)
    assert (writer.written, writer.known) == (12, 0)
    wanted = [(place_of(each), record) for each in segments_of(bucket) for record in both_of(each)]
    found = records_in(topic)
    assert len(found) == len(wanted)
    assert all(each in found for each in wanted)


def test_a_second_run_writes_nothing(bucket: BucketMetadata, topic: MemoryMetadataTopic) -> None:
    """Whoever does not know whether it ended runs it again."""
    restore(bucket, topic)
    before = records_in(topic)
    writer = restore(bucket, topic)
    assert (writer.written, writer.known) == (0, 12)
    assert records_in(topic) == before


def test_a_run_that_died_is_continued(bucket: BucketMetadata, topic: MemoryMetadataTopic) -> None:
    """Between the two records of a segment too: else the topic would have to be made anew."""
    first, second = segments_of(bucket)[:2]
    for record in both_of(first):
        topic.append(place_of(first), encode_record(record))
    topic.append(place_of(second), encode_record(both_of(second)[0]))
    writer = restore(bucket, topic)
    assert (writer.written, writer.known) == (11, 1)
    assert len(records_in(topic)) == 24


STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@pytest.mark.parametrize("state", ["begun by another", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"])
def test_another_state_is_refused_and_named(bucket: BucketMetadata, topic: MemoryMetadataTopic, state: str) -> None:
    """A deleted segment would come back, or a copy that is under way would be served before it is whole."""
    segment = segments_of(bucket)[0]
    started, finished = both_of(segment)
    records: list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]
    if state == "begun by another":
        records = [replace(started, broker_id=99)]
    else:
        states = [each for each in RemoteLogSegmentState if STARTED < each <= RemoteLogSegmentState[state]]
        records = [started, *(replace(finished, state=each) for each in states)]
    for record in records:
        topic.append(place_of(segment), encode_record(record))
    before = records_in(topic)
    with pytest.raises(ConfigError, match=str(segment.metadata.remote_log_segment_id.id)):
        restore(bucket, topic)
    assert records_in(topic) == before


def test_a_record_that_is_lost_ends_the_run(bucket: BucketMetadata, topic: MemoryMetadataTopic) -> None:
    """FINISHED of a segment whose STARTED was lost is one that brokers pass over, and a second run must not."""
    topic.drop_appends = 1
    with pytest.raises(RetriableRemoteStorageException):
        restore(bucket, topic)
    segment = segments_of(bucket)[0]
    assert both_of(segment)[1] not in [record for _, record in records_in(topic)]
    topic.append(place_of(segment), encode_record(both_of(segment)[1]))  # as another tool may have left it
    restore(bucket, topic)
    mine = [
        record.state
        for _, record in records_in(topic)
        if isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
        and record.remote_log_segment_id == segment.metadata.remote_log_segment_id
    ]
    assert mine[-2:] == [STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED]


def test_a_topic_that_does_not_acknowledge_ends_the_run(bucket: BucketMetadata, topic: MemoryMetadataTopic) -> None:
    """Not a wait without end, nor a report of success."""
    topic.acknowledge_after = lambda: 0.5
    with pytest.raises(RetriableRemoteStorageException, match="not acknowledged within"):
        restore(bucket, topic, timeout_seconds=0.05)
