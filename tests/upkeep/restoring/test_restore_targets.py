"""Folders of the metadata topic: what brokers find in them."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.metadata_topics import read_topic
from tierlog.errors import ConfigError
from tierlog.log.formats.checkpoints import parse_offset_checkpoint
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    Uuid,
)
from tierlog.remote.config import read_storage_config
from tierlog.remote.metadata.metadata_log import metadata_partition
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.upkeep.exporting.broker_directory import TargetCluster
from tierlog.upkeep.restoring.bucket_metadata import BucketMetadata, RestoredSegment
from tierlog.upkeep.restoring.restore_targets import TopicFolder, records_of
from tierlog.upkeep.verification.verification import Verification

MACHINE = Machine()


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[RestoredSegment]:
    """40 segments of 8 partitions."""
    root = tmp_path_factory.mktemp("bucket")
    for partition in range(8):
        bucket = Bucket(root, partition=partition)
        for at in range(5):
            bucket.segment(f"s{at}", [message(at, "v", 0)], lineage={0: 0})
    read = read_storage_config(None, machine=MACHINE)
    with open_tier(str(root)) as tier, BucketMetadata(tier, read) as metadata:
        return [segment for each in metadata.iter_partitions() for segment in each.segments]


def both_of(segment: RestoredSegment) -> tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate]:
    return records_of(segment.metadata, started_ms=segment.started_ms)


def written(folder: pathlib.Path, segments: list[RestoredSegment], **options: object) -> pathlib.Path:
    target = TopicFolder(str(folder), machine=MACHINE, **options)  # type: ignore[arg-type]
    for segment in segments:
        target.add(segment.metadata, started_ms=segment.started_ms)
    target.finish()
    return folder


def test_what_was_written_is_read_back(segments: list[RestoredSegment], tmp_path: pathlib.Path) -> None:
    """Every field, in the partition in which brokers look, with both records."""
    folder = written(tmp_path / "logs", segments, partition_count=5)
    topic = read_topic([folder])
    assert topic.count == 2 * len(segments)
    for segment in segments:
        segment_id = segment.metadata.remote_log_segment_id.id
        assert topic.begun[segment_id] == both_of(segment)[0]
        assert topic.finished[segment_id] == segment.metadata
    for partition, places in topic.places.items():
        assert places == {metadata_partition(partition, 5)}


@pytest.mark.parametrize("segment_bytes", [1, 700, 1 << 30])
def test_logs_roll_and_are_sound(segments: list[RestoredSegment], tmp_path: pathlib.Path, segment_bytes: int) -> None:
    """A broker cannot open a log of more than 2 GiB, nor one whose indexes do not fit it."""
    many = segments * 30  # batches of 16 KiB are written as they fill
    folder = written(tmp_path / "logs", many, partition_count=2, segment_bytes=segment_bytes)
    logs = sorted(folder.rglob("*.log"))
    assert len(logs) > 2 if segment_bytes < 1 << 20 else len(logs) == 2
    with open_tier(str(folder), layout="log-dir") as tier:
        reports = list(Verification(tier))
    assert sum(report.records for report in reports) == 2 * len(many)
    assert [str(finding) for report in reports for finding in report.findings] == []


def test_it_is_a_whole_log_directory(segments: list[RestoredSegment], tmp_path: pathlib.Path) -> None:
    """Partitions without a segment too: a broker that misses one has an incomplete topic."""
    target = TargetCluster("a-cluster", 7)
    topic_id = Uuid(b"id of the topic!")
    folder = written(tmp_path / "logs", segments[:1], partition_count=3, topic_id=topic_id, target=target)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    assert names == [f"__remote_log_metadata-{number}" for number in range(3)]
    for name in names:
        assert sorted(path.name for path in (folder / name).iterdir()) == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
        assert str(topic_id) in (folder / name / "partition.metadata").read_text()
    ends = parse_offset_checkpoint((folder / "recovery-point-offset-checkpoint").read_bytes())
    assert sorted(ends.values()) == [0, 0, 2]
    assert "node.id=7" in (folder / "meta.properties").read_text()
    assert (folder / ".kafka_cleanshutdown").exists()


def test_a_folder_with_anything_in_it_is_refused(segments: list[RestoredSegment], tmp_path: pathlib.Path) -> None:
    """It may be the log directory that somebody still hopes to save."""
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs", segments[:1], partition_count=1)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="is not empty"):
        TopicFolder(str(tmp_path / "logs"), machine=MACHINE, partition_count=1)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
