"""The search for orphans: order of its steps, order of its deletions, and whose clock counts."""

from __future__ import annotations

import datetime
import pathlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from typing_extensions import Buffer

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.metadata_topic import view_of
from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_view import MetadataView, partition_key
from tierlog.remote.storage.copy.copy_target import open_copy_target
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.failing_store import FailingStore
from tierlog.upkeep.copying.bucket_copy import BucketCopy, copy
from tierlog.upkeep.orphan_search import OrphanKind, OrphanSearch, orphans
from tierlog.upkeep.restoring.metadata_restore import restore


class Deletions(FailingStore):
    """Remembers what was deleted, and refuses descriptions if it is to."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, {}, rng=random.Random(0), clock=ManualClock())
        self.deleted: list[str] = []
        self.refuse = False

    def delete(self, keys: Sequence[str]) -> None:
        if self.refuse and any(key.endswith("rsm-manifest") for key in keys):
            raise StoreUnavailableError("503")
        self.deleted += keys
        super().delete(keys)


def made(root: pathlib.Path, count: int = 3) -> Bucket:
    bucket = Bucket(root)
    for number in range(count):
        bucket.segment(f"u{number}", [message(number, "m", 0)], lineage={0: 0})
    return bucket


def metadata_of(
    bucket: Bucket, states: dict[str, RemoteLogSegmentState], *, custom_metadata: bytes | None = None
) -> MetadataView:
    partition = TopicIdPartition(Uuid.from_text(bucket.topic_id), bucket.topic, bucket.partition)
    segments = []
    for name, state in states.items():
        start = int(bucket.keys[name].rsplit("/", 1)[1][:20])
        segments.append(
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(partition, Uuid.from_text(bucket.keys[name][-22:])),
                start_offset=start,
                end_offset=start,
                max_timestamp_ms=0,
                broker_id=1,
                event_timestamp_ms=0,
                segment_size_in_bytes=bucket.path(name, "log").stat().st_size,
                segment_leader_epochs={0: start},
                custom_metadata=custom_metadata,
                state=state,
            )
        )
    return view_of(segments, newest_ms={partition_key(partition): 2**62})


def test_descriptions_go_first(tmp_path: pathlib.Path) -> None:
    """Otherwise a reader begins with half a segment; and one that stays must stay whole."""
    bucket = made(tmp_path / "bucket")
    metadata = metadata_of(bucket, {"u0": RemoteLogSegmentState.COPY_SEGMENT_FINISHED})
    stores: list[Deletions] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(Deletions(store))
        return stores[-1]

    with open_tier(str(tmp_path / "bucket"), wrap_store=wrap) as tier:
        search = OrphanSearch(tier, lambda: metadata, older_than_ms=0)
        report = search.run()
        assert [orphan.kind for orphan in report.orphans] == [OrphanKind.UNOWNED] * 2
        stores[0].refuse = True
        with pytest.raises(StoreUnavailableError):
            list(search.delete(report.orphans))
        assert len([path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]) == 9
        stores[0].refuse = False
        assert list(search.delete(report.orphans)) == report.orphans
        manifests = [key.endswith("rsm-manifest") for key in stores[0].deleted]
        assert manifests == [True, True, False, False, False, False]


def test_metadata_is_read_after_the_listing(tmp_path: pathlib.Path) -> None:
    """Otherwise a copy that begins between the two has objects and no owner."""
    bucket = made(tmp_path / "bucket")

    def read() -> MetadataView:
        # What comes into the bucket from now on is not in the listing; what the metadata says now counts.
        bucket.segment("late", [message(9, "m", 0)], lineage={0: 0})
        return metadata_of(bucket, dict.fromkeys(("u0", "u1", "u2"), RemoteLogSegmentState.COPY_SEGMENT_STARTED))

    with open_tier(str(tmp_path / "bucket")) as tier:
        report = OrphanSearch(tier, read, older_than_ms=0).run()
    assert (report.orphans, report.objects) == ([], 9)


def test_a_segment_that_becomes_whole_meanwhile_stays(tmp_path: pathlib.Path) -> None:
    """Otherwise a slow copy that ends while its leftovers are counted is destroyed."""
    bucket = made(tmp_path / "bucket")
    manifest = bucket.path("u1", "rsm-manifest")
    content = manifest.read_bytes()
    manifest.unlink()
    with open_tier(str(tmp_path / "bucket")) as tier:
        search = OrphanSearch(tier, older_than_ms=0)
        report = search.run()
        assert [orphan.kind for orphan in report.orphans] == [OrphanKind.LEFTOVER]
        manifest.write_bytes(content)
        assert list(search.delete(report.orphans)) == []
    assert bucket.path("u1", "log").exists()


def test_a_clock_that_is_wrong_makes_nothing_old(tmp_path: pathlib.Path) -> None:
    """A deletion goes by the store's clock: a machine a year ahead would else delete copies under way."""
    bucket = made(tmp_path / "bucket")
    bucket.path("u1", "rsm-manifest").unlink()
    ahead = replace(Machine(), clock=ManualClock(time_ms=4_000_000_000_000))
    with open_tier(str(tmp_path / "bucket"), machine=ahead) as tier:
        search = OrphanSearch(tier, older_than_ms=3_600_000)
        assert len(search.run().orphans) == 1
        report = search.run(ask_store=True)
    assert (report.orphans, report.young) == ([], 1)
    assert len([path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]) == 8


def test_custom_metadata_can_name_the_place(tmp_path: pathlib.Path) -> None:
    """A segment whose objects are elsewhere than its id says owns them there."""
    from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata

    bucket = made(tmp_path / "bucket", 2)
    custom = SegmentCustomMetadata(object_prefix="", object_key=bucket.keys["u1"]).encode()
    metadata = metadata_of(bucket, {"u0": RemoteLogSegmentState.COPY_SEGMENT_FINISHED}, custom_metadata=custom)
    with open_tier(str(tmp_path / "bucket")) as tier:
        assert OrphanSearch(tier, lambda: metadata, older_than_ms=0).run().orphans == []


def test_the_segments_of_a_topic_that_was_restored_under_another_id(tmp_path: pathlib.Path) -> None:
    """Their objects lie under the old id, which no metadata knows: every search would be refused from then on."""
    old, new = (str(Uuid(bytes([number] * 16))) for number in (1, 2))
    Bucket(tmp_path / "bucket", topic_id=old).segment("u0", [message(0, "m", 0)], lineage={0: 0})
    snapshot = str(tmp_path / "snapshot")
    pair = {Uuid.from_text(old): Uuid.from_text(new)}
    assert restore(str(tmp_path / "bucket"), to=snapshot, topic_map=pair, quiet_minutes=0).written == 1
    report = orphans(str(tmp_path / "bucket"), metadata=snapshot, older_than=datetime.timedelta())
    assert (report.orphans, report.segments, report.left_alone) == ([], 1, 0)


class SmallReads(PassingStore):
    """Refuses to fetch large objects."""

    def fetch(self, key: str) -> Buffer:
        found = self.find(key)
        assert found is None or found.size_bytes < 1 << 20
        return super().fetch(key)


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_no_description_takes_the_memory(tmp_path: pathlib.Path, layout: str) -> None:
    """An object of a terabyte under a manifest's name, which nobody reads, would end each search."""
    made(tmp_path / "made", 1)
    if layout == "kafka":
        copy(tmp_path / "made", tmp_path / "bucket", dest_config={"layout": "kafka", "chunk.size": "100"})
        (description,) = (tmp_path / "bucket").rglob("segment.json")
    else:
        bucket = made(tmp_path / "bucket", 1)
        description = bucket.path("u0", "rsm-manifest")
        bucket.path("u0", "indexes").unlink()
    with description.open("r+b") as file:
        file.truncate(32 << 20)
    with open_tier(str(tmp_path / "bucket"), layout=layout) as opened:
        tier = Tier(SmallReads(opened.store), opened.listing, scope=opened.scope)
        kinds = [each.kind for each in OrphanSearch(tier, older_than_ms=0).run().orphans]
    assert kinds == ([] if layout == "kafka" else [OrphanKind.BROKEN])  # damage is the verifier's


@pytest.mark.parametrize("says_empty", [None, False, True])
def test_a_transaction_index_that_is_gone(data: pathlib.Path, tmp_path: pathlib.Path, says_empty: bool | None) -> None:
    """Otherwise a bucket counts as whole whose readers fail, or see what was aborted."""
    topic, dest = "fx-txn", tmp_path / "dest"
    with open_tier(str(data / "main-plain/local-before/broker1")) as source:
        target = open_copy_target(str(dest), config={"chunk.size": "10000", "layout": "kafka"})
        try:
            outcomes = list(BucketCopy(source, target, topics=[topic]))
        finally:
            target.close()
    with open_tier(str(dest)) as tier:
        assert OrphanSearch(tier, older_than_ms=0).run().orphans == []
    lost = min(dest.rglob("*.txnindex"))
    lost.unlink()
    read = None
    if says_empty is not None:
        known = []
        for outcome in outcomes:
            assert outcome.metadata is not None
            finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            known.append(replace(outcome.metadata, txn_idx_empty=says_empty, state=finished))
        metadata = view_of(known)
        read = lambda: metadata  # noqa: E731
    with open_tier(str(dest)) as tier:
        report = OrphanSearch(tier, read, older_than_ms=0).run()
    if says_empty:
        assert report.orphans == []
        return
    (orphan,) = report.orphans
    assert orphan.kind is OrphanKind.BROKEN
    assert "lacks txnindex" in orphan.reason
    assert orphan.key.endswith(lost.parent.name)
    assert report.segments == len(outcomes) - 1
