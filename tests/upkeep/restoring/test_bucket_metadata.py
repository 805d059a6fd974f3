"""Metadata from a bucket alone, against what writers returned and what the metadata topics of real clusters say."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.closed_segments import ClosedSegment, golden_segments
from tests.support.golden import config_of
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.metadata_topics import TopicRecords, read_topic
from tests.support.segments import make_segment, sound_log, topic_uuid
from tierlog.errors import ConfigError, StoreUnavailableError
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.upkeep.copying.segment_source import TopicMap
from tierlog.upkeep.restoring.bucket_metadata import BucketMetadata, RestoredPartition, RestoredSegment

NEW_ID = Uuid(b"the-new-topic-id")
GOLDEN = ["main-plain", "zstd-aes"]
LARGER = ["aes", "custom-meta", "heuristic", "local-tiered", "plain-4m", "zstd"]


class FarStore(CountingStore):
    """A store that is asked side by side, as those behind a network are."""

    is_local = False


def restored(
    folder: pathlib.Path,
    config: Mapping[str, str] | None = None,
    *,
    topics: TopicMap | None = None,
    far: bool = False,
) -> list[RestoredPartition]:
    def wrap(store: ObjectStore) -> ObjectStore:
        return FarStore(store) if far else store

    read = read_storage_config(config, machine=Machine())
    with (
        open_tier(str(folder), config=config, wrap_store=wrap) as tier,
        BucketMetadata(tier, read, topics=topics) as of,
    ):
        return list(of.iter_partitions())


def segments_of(partitions: list[RestoredPartition]) -> dict[Uuid, RestoredSegment]:
    return {each.metadata.remote_log_segment_id.id: each for partition in partitions for each in partition.segments}


def topic_of(run: pathlib.Path) -> TopicRecords:
    """What the run's metadata topic says."""
    folders = sorted({path.parent for path in (run / "broker-after-stop").rglob("__remote_log_metadata-0")})
    return read_topic(folders)


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def check_against_topic(run: pathlib.Path, *, far: bool) -> None:
    there = {path.stem[-22:] for path in (run / "objects").rglob("*.log")}
    topic = topic_of(run)
    wanted = {key: found for key, found in topic.finished.items() if str(key) in there}
    found = segments_of(restored(run / "objects", config_of(run), far=far))
    assert found.keys() == wanted.keys()
    assert wanted
    describes = any((run / "objects").rglob("*.rsm-manifest"))
    for segment_id, topics in wanted.items():
        ours = found[segment_id].metadata
        assert ours.state is _FINISHED
        assert ours.event_timestamp_ms == found[segment_id].stored.last_modified_ms
        assert ours.broker_id == (topics.broker_id if describes else -1)
        if describes:
            assert found[segment_id].started_ms == topic.begun[segment_id].event_timestamp_ms
        known = replace(topics, state=_FINISHED, event_timestamp_ms=ours.event_timestamp_ms, broker_id=ours.broker_id)
        assert ours == known


@pytest.mark.parametrize("run", GOLDEN)
@pytest.mark.parametrize("far", [False, True])
def test_a_bucket_says_what_its_clusters_topic_said(data: pathlib.Path, run: str, far: bool) -> None:
    """Each field that differs is one by which a broker that starts anew misses a segment, or serves wrong offsets."""
    check_against_topic(data / run, far=far)


@pytest.mark.parametrize("run", LARGER)
def test_every_bucket_says_what_its_clusters_topic_said(fixtures: pathlib.Path, run: str) -> None:
    """The same over all that real systems wrote: custom metadata, Kafka's own test storage, all transforms."""
    check_against_topic(fixtures / run, far=False)


@pytest.fixture(scope="module")
def closed(data: pathlib.Path) -> list[ClosedSegment]:
    return list(golden_segments(data / "main-plain"))[:6]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_bucket_that_we_write_says_what_the_copy_returned(
    closed: list[ClosedSegment], tmp_path: pathlib.Path, shape: str
) -> None:
    """Custom metadata too: without it a digest is not checked any more, or a prefix that changed hides segments."""
    keys = local_keys(tmp_path / "store") | SHAPES[shape]
    wanted = {}
    with TieredStorageManager() as manager:
        manager.configure(keys)
        for segment in closed:
            custom = manager.copy_log_segment_data(segment.metadata, segment.data)
            wanted[segment.metadata.remote_log_segment_id.id] = segment.finished(custom)
    config = {key: str(value) for key, value in SHAPES[shape].items()}
    found = segments_of(restored(tmp_path / "store", config, far=True))
    assert {key: replace(each.metadata, event_timestamp_ms=0) for key, each in found.items()} == {
        key: replace(each, event_timestamp_ms=0) for key, each in wanted.items()
    }


@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-custom", "aiven-zstd-aes", "kafka"])
def test_our_manager_reads_a_mapped_segment_where_it_lies(
    tmp_path: pathlib.Path, closed: list[ClosedSegment], shape: str
) -> None:
    """Else the segments of a topic that had to be made anew are lost with its id."""
    keys = local_keys(tmp_path / "store") | SHAPES[shape]
    (segment,) = [each for each in closed if each.data.transaction_index is not None][:1] or closed[:1]
    old = segment.metadata.topic_id_partition
    with TieredStorageManager() as manager:
        manager.configure(keys)
        manager.copy_log_segment_data(segment.metadata, segment.data)
        config = {key: str(value) for key, value in SHAPES[shape].items()}
        (partition,) = restored(tmp_path / "store", config, topics=TopicMap({old.topic_id: NEW_ID}))
        (found,) = partition.segments
        assert partition.topic_id_partition == TopicIdPartition(NEW_ID, old.topic, old.partition)
        assert found.moved
        with manager.fetch_log_segment(found.metadata, 0) as stream:
            assert stream.read() == segment.log
        for kind, path in (
            (IndexType.OFFSET, segment.data.offset_index),
            (IndexType.TIMESTAMP, segment.data.time_index),
            (IndexType.PRODUCER_SNAPSHOT, segment.data.producer_snapshot),
        ):
            with manager.fetch_index(found.metadata, kind) as stream:
                assert stream.read() == pathlib.Path(path).read_bytes()
        with manager.fetch_index(found.metadata, IndexType.LEADER_EPOCH) as stream:
            assert stream.read() == segment.data.leader_epoch_index
        manager.delete_log_segment_data(found.metadata)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    """Epoch 0 to offset 5, whose last two were never committed: leader 1 began at 4; a duplicate of its segment."""
    made = Bucket(tmp_path / "bucket")
    made.segment("a", [message(at, f"a{at}", 0) for at in range(3)], lineage={0: 0})
    made.segment("dead", [message(at, f"x{at}", 0) for at in range(3, 6)], lineage={0: 0})
    made.segment("b", [message(3, "a3", 0), message(4, "b4", 1), message(5, "b5", 1)], lineage={0: 0, 1: 4})
    made.segment("b2", [message(4, "b4", 1)], lineage={0: 0, 1: 4})
    return made


def test_dead_branches_are_registered_and_told_apart(bucket: Bucket) -> None:
    """A broker deletes them by retention only if its metadata has them; a reader must know what it will see."""
    (partition,) = restored(bucket.root)
    assert len(partition.segments) == 4
    assert partition.history is not None
    spans = [
        (str(span.segment.metadata.remote_log_segment_id.id), span.first_offset, span.end_offset_exclusive)
        for span in partition.history.spans
    ]
    assert spans == [(topic_uuid("orders/0/a"), 0, 3), (topic_uuid("orders/0/b"), 3, 6)]
    assert len(partition.history.unreferenced) == 2
    assert not partition.left_out


DAMAGES = {
    "log missing": (".log", None, "is missing"),
    "log short": (".log", 10, "has 10 bytes"),
    "indexes missing": (".indexes", None, "is missing"),
    "indexes short": (".indexes", 3, "has 3 bytes"),
    "manifest missing": (".rsm-manifest", None, "lacks rsm-manifest"),
    "manifest torn": (".rsm-manifest", 40, "JSON"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_whole_is_named_and_left_out(bucket: Bucket, damage: str) -> None:
    """Registered, it would end a consumer in the middle of a fetch; unnamed, nobody would look for its copy."""
    suffix, size_bytes, reason = DAMAGES[damage]
    path = bucket.root / (bucket.keys["a"] + suffix)
    data = path.read_bytes()
    path.unlink()
    if size_bytes is not None:
        path.write_bytes(data[:size_bytes])
    (partition,) = restored(bucket.root)
    assert len(partition.segments) == 3
    (left,) = partition.left_out
    assert left.name == bucket.keys["a"]
    assert reason in left.reason


def test_a_store_that_fails_ends_the_run(bucket: Bucket) -> None:
    """What was not read is not missing: metadata without it would have brokers start with holes."""

    class Failing(FarStore):
        def fetch(self, key: str) -> object:  # type: ignore[override]
            raise StoreUnavailableError(f"{key}: 503")

    read = read_storage_config(None, machine=Machine())
    with (
        open_tier(str(bucket.root), wrap_store=Failing) as tier,
        BucketMetadata(tier, read) as metadata,
        pytest.raises(StoreUnavailableError),
    ):
        list(metadata.iter_partitions())


def prefixed(tmp_path: pathlib.Path, prefix: str) -> pathlib.Path:
    for partition in (0, 1):
        made = Bucket(tmp_path / "bucket", prefix=prefix, partition=partition)
        made.segment("a", [message(0, "a", 0)], lineage={0: 0})
    (tmp_path / "bucket" / "foreign").mkdir()
    (tmp_path / "bucket" / "foreign" / "file").write_text("not ours")
    return tmp_path / "bucket"


@pytest.mark.parametrize("prefix", ["", "tier/", "a/b/c/", "tier/x-", "x"])
def test_prefixes_lead_to_the_partitions(tmp_path: pathlib.Path, prefix: str) -> None:
    """A bucket is shared, and ``key.prefix`` need not end in a slash."""
    folder = prefixed(tmp_path, prefix)
    found = restored(folder, {"key.prefix": prefix})
    assert [each.topic_id_partition.partition for each in found] == [0, 1]
    if prefix == "" or prefix.endswith("/"):
        assert restored(folder) == found


def test_path_may_be_one_topic_or_partition(tmp_path: pathlib.Path) -> None:
    """As for every other command."""
    folder = prefixed(tmp_path, "")
    (topic,) = folder.glob("orders-*")
    assert len(restored(topic)) == 2
    assert [each.topic_id_partition.partition for each in restored(topic / "1")] == [1]


def test_a_mapped_segment_that_was_copied_is_registered_once(tmp_path: pathlib.Path) -> None:
    """After ``tierlog copy --map`` the bucket has it twice: one must not displace the other."""
    bucket = Bucket(tmp_path / "bucket")
    for name, at in (("a", 0), ("b", 1)):
        bucket.segment(name, [message(at, name, 0)], lineage={0: 0})
    new = Bucket(tmp_path / "bucket", topic_id=str(NEW_ID))
    new.segment("a", [message(0, "a", 0)], lineage={0: 0})
    topics = TopicMap({Uuid.from_text(bucket.topic_id): NEW_ID})
    (partition,) = restored(bucket.root, topics=topics)
    assert [(each.metadata.start_offset, each.moved) for each in partition.segments] == [(0, False), (1, True)]
    assert {each.metadata.topic_id_partition.topic_id for each in partition.segments} == {NEW_ID}
    assert len(restored(bucket.root)) == 2


def test_the_survey_sees_the_newest_object(bucket: Bucket) -> None:
    """Else a restore runs beside a broker that still copies."""
    read = read_storage_config(None, machine=Machine())
    newest = bucket.root / (bucket.keys["b"] + ".indexes")
    os.utime(newest, (2_000_000_000, 2_000_000_000))
    with open_tier(str(bucket.root)) as tier, BucketMetadata(tier, read) as metadata:
        seen: list[object] = []
        assert metadata.survey(seen.append) == (2_000_000_000_000, bucket.keys["b"] + ".indexes")
        assert len(seen) == 4


def test_a_log_directory_is_refused(data: pathlib.Path) -> None:
    """Its segments have no ids: they are in no metadata."""
    read = read_storage_config(None, machine=Machine())
    with open_tier(str(data / "main-plain" / "local-before" / "broker1")) as tier, pytest.raises(ConfigError):
        BucketMetadata(tier, read)


def test_damaged_tails_of_kafkas_test_storage_are_named(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Nothing but the last batches says where such a segment ends: an end that was made up would hide the next one."""
    shutil.copytree(fixtures / "local-tiered" / "objects", tmp_path / "bucket")
    log = min((tmp_path / "bucket").rglob("*.log"))
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    found = restored(tmp_path / "bucket")
    (left,) = [each for partition in found for each in partition.left_out]
    assert "last batches are damaged" in left.reason
    assert len(segments_of(found)) == 5


def contradictions() -> Iterator[tuple[list[str], str]]:
    one, two, three = str(NEW_ID), topic_uuid("two"), topic_uuid("three")
    yield [f"{one}={two}", f"{three}={two}"], "two topics cannot become one"
    yield [f"{one}={two}", f"{one}={three}"], "given twice"
    yield [f"{one}={two}", f"{two}={three}"], "an old id is not a new one"
    yield [f"{one}={one}"], "an old id is not a new one"
    yield [f"{one}={'A' * 22}"], "all zero"
    yield [one], "OLD=NEW expected"
    yield ["a=b"], "OLD=NEW expected"


@pytest.mark.parametrize(("texts", "reason"), list(contradictions()))
def test_maps_that_contradict_themselves_are_refused(texts: list[str], reason: str) -> None:
    """One of two topics would take the other's offsets."""
    with pytest.raises(ConfigError, match=reason):
        TopicMap.parse(texts)


def test_made_segments_are_found_in_the_order_of_their_offsets(tmp_path: pathlib.Path) -> None:
    """Where a layout's keys do not sort by offset."""
    with TieredStorageManager() as manager:
        manager.configure(local_keys(tmp_path / "store") | {"layout": "kafka"})
        for number, start in enumerate((500, 20, 900)):
            segment = (
                make_segment(sound_log(2, base_offset=start)).closed_in(tmp_path / f"made{number}").with_id(9 - number)
            )
            manager.copy_log_segment_data(segment.metadata, segment.data)
    (partition,) = restored(tmp_path / "store", far=True)
    assert [each.metadata.start_offset for each in partition.segments] == [20, 500, 900]
