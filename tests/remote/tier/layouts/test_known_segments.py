"""Segments by their ids alone: the same as a listing finds, without one."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Iterator, Sequence

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError
from tierlog.remote.api import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.storage.copy.copy_target import open_copy_target
from tierlog.remote.tier import StoredSegment, Tier, open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.upkeep.copying.bucket_copy import BucketCopy


class Known:
    """What metadata would say: these segments."""

    def __init__(self, segments: Sequence[StoredSegment]) -> None:
        self.segments = [segment.metadata for segment in segments]

    def partitions(self) -> list[TopicIdPartition]:
        return list({segment.topic_id_partition: None for segment in self.segments})

    def readable(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        found = [segment for segment in self.segments if segment.topic_id_partition == partition]
        return iter(sorted(found, key=lambda segment: segment.start_offset))


class Counted:
    """Opens tiers whose requests are counted, those of finding out the layout too."""

    def __init__(self) -> None:
        self.stores: list[CountingStore] = []

    def __call__(self, store: ObjectStore) -> ObjectStore:
        self.stores.append(CountingStore(store))
        return self.stores[-1]

    @property
    def lists(self) -> int:
        return sum(store.counts.lists for store in self.stores)


def listed(path: pathlib.Path, config: dict[str, str] | None = None) -> list[StoredSegment]:
    with open_tier(path, config=config) as tier:
        return list(tier.iter_segments())


def same(found: Sequence[StoredSegment], wanted: Sequence[StoredSegment]) -> bool:
    """Whether they are the same segments at the same places; what only a listing tells is left out."""

    def plain(segment: StoredSegment) -> object:
        parts = [(kind, part._replace(object_size_bytes=-1)) for kind, part in segment.parts]
        log = segment.log._replace(object_size_bytes=-1)
        return segment.metadata.remote_log_segment_id, segment.size_bytes, segment.name, log, parts, segment.encryption

    return [plain(segment) for segment in found] == [plain(segment) for segment in wanted]


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "custom-meta", "local-tiered"])
@pytest.mark.parametrize("named", [False, True])
def test_what_a_listing_finds_is_found_without_one(data: pathlib.Path, run: str, named: bool) -> None:
    """Else planning by metadata lists a bucket of millions of objects, or reads other bytes than planning without."""
    path, config, counted = data / run / "objects", config_of(data / run), Counted()
    if run == "local-tiered":
        path /= "kafka-tiered-storage"
    wanted = listed(path, config)
    layout = wanted[0].layout if named else "auto"
    with open_tier(path, layout=layout, config=config, wrap_store=counted, known=Known(wanted)) as tier:
        found = list(tier.iter_segments())
        assert tier.layout == wanted[0].layout
        assert {topic.name for topic in tier.topics()} == {each.topic_id_partition.topic for each in wanted}
        for segment, other in zip(found, wanted, strict=True):
            assert tier.fetch_index(segment, IndexType.LEADER_EPOCH) == tier.fetch_index(other, IndexType.LEADER_EPOCH)
    assert same(found, wanted)
    assert len(found) > 2
    assert counted.lists == 0


def test_our_own_layout(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The same for segments that describe themselves in ``segment.json``."""
    with open_tier(data / "main-plain/objects") as source:
        target = open_copy_target(str(tmp_path), config={"layout": "kafka"})
        try:
            copied = [outcome.metadata for outcome in BucketCopy(source, target, topics=["fx-txn"])]
        finally:
            target.close()
    wanted, counted = listed(tmp_path), Counted()
    assert len(wanted) == len(copied) > 2
    with open_tier(tmp_path, wrap_store=counted, known=Known(wanted)) as tier:
        assert same(list(tier.iter_segments()), wanted)
        assert tier.layout == "kafka"
    assert counted.lists == 0


def bucket_of(root: pathlib.Path, count: int = 3) -> Bucket:
    bucket = Bucket(root)
    for number in range(count):
        bucket.segment(f"s{number}", [message(number, "m", 0)], lineage={0: 0})
    return bucket


def test_the_folder_of_a_topic(data: pathlib.Path) -> None:
    """Else a path inside of a bucket shows the whole bucket, or nothing."""
    root, counted = data / "main-plain/objects", Counted()
    everything = listed(root)
    folder = next(root.glob("fx-lso-*"))
    with open_tier(folder, wrap_store=counted, known=Known(everything)) as tier:
        found = list(tier.iter_segments())
    assert same(found, [each for each in everything if each.topic_id_partition.topic == "fx-lso"])
    assert counted.lists == 0


@pytest.mark.parametrize("run", ["custom-meta", "local-tiered"])
def test_folders_that_nobody_configured(data: pathlib.Path, run: str) -> None:
    """Else metadata asks for more configuration than the same bucket without it: its keys show what is in front."""
    root, counted = data / run / "objects", Counted()
    wanted = listed(root)
    with open_tier(root, wrap_store=counted, known=Known(wanted)) as tier:
        assert same(list(tier.iter_segments()), wanted)
    assert counted.lists == 1


def test_what_the_metadata_does_not_name_is_not_there(tmp_path: pathlib.Path) -> None:
    """Else leftovers of failed copies and segments whose deletion has begun are read as history."""
    bucket_of(tmp_path)
    wanted = listed(tmp_path)
    known = Known([wanted[0], wanted[2]])
    with open_tier(tmp_path, known=known) as tier:
        assert [segment.start_offset for segment in tier.iter_segments()] == [0, 2]
        assert [segment.start_offset for segment in tier.iter_segments("orders", partitions=[1])] == []
        assert tier.foreign_objects == 0


@pytest.mark.parametrize("suffix", ["rsm-manifest", "log", "indexes"])
def test_objects_that_are_gone(tmp_path: pathlib.Path, suffix: str) -> None:
    """Else a loss that the metadata shows passes for a shorter history."""
    bucket = bucket_of(tmp_path)
    wanted = listed(tmp_path)
    bucket.path("s1", suffix).unlink()
    faults: list[Exception] = []
    with open_tier(tmp_path, known=Known(wanted)) as tier:
        found = list(tier.iter_segments(faults=faults))  # type: ignore[arg-type]
        if suffix != "rsm-manifest":
            assert (len(found), faults) == (3, [])  # told by who reads them, as without metadata
            return
        with pytest.raises(ObjectNotFoundError, match=r"orders-0 .*: the metadata says that it is there: "):
            list(tier.iter_segments())
    assert [segment.start_offset for segment in found] == [0, 2]
    assert len(faults) == 1


@pytest.mark.parametrize("suffix", ["log", "snapshot", "leader_epoch_checkpoint"])
def test_objects_of_kafkas_test_storage_that_are_gone(data: pathlib.Path, tmp_path: pathlib.Path, suffix: str) -> None:
    """The same where no description is read: a plan would be made of segments that are not there."""
    root = tmp_path / "bucket"
    shutil.copytree(data / "local-tiered/objects/kafka-tiered-storage", root)
    wanted = listed(root)
    min(root.rglob(f"*.{suffix}")).unlink()
    faults: list[Exception] = []
    with open_tier(root, known=Known(wanted)) as tier:
        found = list(tier.iter_segments(faults=faults))  # type: ignore[arg-type]
    assert [type(fault) for fault in faults] == [ObjectNotFoundError]
    assert len(found) == len(wanted) - 1


def test_a_size_that_the_metadata_denies(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Else a truncated log in Kafka's test storage is read as far as it goes."""
    root = tmp_path / "bucket"
    shutil.copytree(data / "local-tiered/objects/kafka-tiered-storage", root)
    wanted = listed(root)
    log = min(root.rglob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    with open_tier(root, known=Known(wanted)) as tier, pytest.raises(CorruptObjectError, match="its metadata says"):
        list(tier.iter_segments())


def test_a_topic_that_leads_elsewhere(tmp_path: pathlib.Path) -> None:
    """Else a record of the metadata topic makes us read files outside of the bucket."""
    bucket_of(tmp_path)
    wanted = listed(tmp_path)
    hostile = Known(wanted)
    metadata = wanted[0].metadata
    elsewhere = TopicIdPartition(metadata.topic_id_partition.topic_id, "../orders", 0)
    segment_id = RemoteLogSegmentId(elsewhere, metadata.remote_log_segment_id.id)
    hostile.segments.append(dataclasses.replace(metadata, remote_log_segment_id=segment_id))
    for layout in ("aiven", "kafka", "local-tiered"):
        faults: list[Exception] = []
        with open_tier(tmp_path, layout=layout, known=hostile) as tier:
            found = list(tier.iter_segments(faults=faults))  # type: ignore[arg-type]
        assert [str(fault) for fault in faults if "no legal topic name" in str(fault)]
        assert len(found) == (3 if layout == "aiven" else 0)


def test_a_layout_without_ids(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Else metadata is silently of no use where a broker's own disk is read."""
    known = Known(listed(data / "main-plain/objects"))
    for layout in ("auto", "log-dir"):
        with pytest.raises(ConfigError, match="no bucket"):
            open_tier(data / "main-plain/local-before/broker1", layout=layout, known=known)


def test_metadata_of_another_bucket(tmp_path: pathlib.Path) -> None:
    """Else a bucket whose segments are all gone looks empty: its keys are listed then, and each loss is reported."""
    bucket_of(tmp_path / "one")
    wanted = listed(tmp_path / "one")
    other = Bucket(tmp_path / "two", topic="payments")
    other.segment("s", [message(0, "m", 0)], lineage={0: 0})
    faults: list[Exception] = []
    with open_tier(tmp_path / "two", known=Known(wanted)) as tier:
        assert tier.layout == "aiven"
        assert not list(tier.iter_segments(faults=faults))  # type: ignore[arg-type]
    assert len(faults) == 3


def test_opening_by_ids_leaves_no_store_open(tmp_path: pathlib.Path) -> None:
    """Else each planned read leaves a connection behind."""
    bucket_of(tmp_path)
    known, closed = Known(listed(tmp_path)), []

    class Watched(CountingStore):
        def close(self) -> None:
            closed.append(self)
            super().close()

    opened: list[Watched] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        opened.append(Watched(store))
        return opened[-1]

    with open_tier(tmp_path, wrap_store=wrap, known=known) as tier:
        assert isinstance(tier, Tier)
    assert {id(store) for store in closed} == {id(store) for store in opened}
    assert len(opened) == 2
