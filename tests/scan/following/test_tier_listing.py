"""What one listing keeps of a tier, and what it shares with the one before."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterable, Iterator

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.golden import bucket_root, config_of, log_folders
from tierlog import open_tier
from tierlog.remote.tier import Tier
from tierlog.remote.tier.layouts.listing import Candidate, SegmentFilter
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.following.tier_listing import (
    WHOLE_LISTING_EACH,
    TierKeys,
    list_tier,
    relist_partition,
)


def wrote(root: pathlib.Path, topic: str = "orders", partition: int = 0, count: int = 3) -> Bucket:
    bucket = Bucket(root, topic, partition)
    for offset in range(count):
        bucket.segment(f"s{offset}", [message(offset, "m", 0)], lineage={0: 0})
    return bucket


def without_etags(candidates: Iterable[Candidate]) -> list[tuple[str, int, str, str]]:
    return [
        (repr(c.topic_id_partition), c.start_offset, c.segment_path, repr(c.next_start_offset) + repr(sorted(
            (suffix, info.key, info.size_bytes, info.last_modified_ms) for suffix, info in c.objects.items()
        )))
        for c in candidates
    ]  # fmt: skip


def check_same_candidates(tier: Tier) -> None:
    """A packed listing gives the candidates that a listing gives."""
    listing = list_tier(tier)
    kept = [c for _, listed in listing.partitions.items() for c in TierKeys(tier).find_candidates(listed)]
    assert sorted(without_etags(kept)) == sorted(without_etags(tier.find_candidates(SegmentFilter())))
    for partition, listed in listing.partitions.items():
        assert without_etags(TierKeys(tier).find_candidates(listed)) == sorted(
            without_etags(TierKeys(tier).find_candidates(listed))
        )
        again = relist_partition(tier, listed)
        assert again is not None, partition
        assert without_etags(TierKeys(tier).find_candidates(again)) == without_etags(
            TierKeys(tier).find_candidates(listed)
        )
        assert (again.segments, again.newest_ms) == (listed.segments, listed.newest_ms)
        assert listed.segments == len(TierKeys(tier).find_candidates(listed))


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered", "custom-meta"])
def test_the_kept_listing_has_the_segments_of_real_buckets(data: pathlib.Path, run: str) -> None:
    """A server would know fewer segments than the other commands, and leave out records."""
    with open_tier(str(bucket_root(data / run)), config=config_of(data / run)) as tier:
        check_same_candidates(tier)


def test_the_kept_listing_has_the_segments_of_log_directories(data: pathlib.Path) -> None:
    """The same for a broker's disk, whose files belong to several segments."""
    folders = {folder for folder, _ in log_folders(data)}
    assert folders
    folders.add(data / "compacted")
    for folder in folders:
        with open_tier(str(folder), layout="log-dir") as tier:
            check_same_candidates(tier)


def test_a_single_file_is_a_listing_too(data: pathlib.Path) -> None:
    """The one segment that a user has could not be served."""
    log = next((data / "main-plain").rglob("*.log"))
    with open_tier(str(log)) as tier:
        check_same_candidates(tier)
        assert len(list_tier(tier).partitions) == 1
    for log in (data / "record-v0-v1").glob("*.log"):
        with open_tier(str(log)) as tier:
            check_same_candidates(tier)


class ShuffledStore(PassingStore):
    """Lists in any order, as the protocol allows."""

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        found = list(self._store.iter_objects(prefix))
        random.Random(7).shuffle(found)
        yield from found


def test_a_store_that_lists_in_no_order_gives_the_same(tmp_path: pathlib.Path) -> None:
    """On such a store a partition would have only the objects that came last."""
    for partition in range(3):
        wrote(tmp_path, partition=partition)
    with open_tier(str(tmp_path), wrap_store=ShuffledStore) as tier:
        check_same_candidates(tier)


def test_what_did_not_change_is_the_same_object(tmp_path: pathlib.Path) -> None:
    """Every refresh would resolve every partition anew: thousands of requests a minute for nothing."""
    for partition in range(3):
        wrote(tmp_path, partition=partition)
    with open_tier(str(tmp_path)) as tier:
        first = list_tier(tier)
        wrote(tmp_path, partition=1, count=4)
        second = list_tier(tier, first)
        assert {p.partition: second.partitions[p] is listed for p, listed in first.partitions.items()} == {
            0: True,
            1: False,
            2: True,
        }


def test_foreign_objects_and_unfinished_segments_are_no_partitions(tmp_path: pathlib.Path) -> None:
    """Clients would be told of topics that have no record, or a stray object would break the listing."""
    bucket = wrote(tmp_path)
    (tmp_path / "readme.txt").write_text("x")
    (tmp_path / f"{bucket.topic}-{bucket.topic_id}" / "notes").write_text("x")
    (tmp_path / f"{bucket.topic}-{bucket.topic_id}" / "0" / "odd.name").write_text("x")
    torn = wrote(tmp_path, "torn", count=1)
    torn.path("s0", "rsm-manifest").unlink()
    half_deleted = wrote(tmp_path, "going", count=1)
    half_deleted.path("s0", "log").unlink()
    with open_tier(str(tmp_path)) as tier:
        listing = list_tier(tier)
        assert [str(partition) for partition in listing.partitions] == ["orders-0"]
        assert listing.foreign_objects == 2


def test_two_prefixes_of_one_partition_add_up(tmp_path: pathlib.Path) -> None:
    """After a change of key.prefix half of a partition would be missing."""
    one = Bucket(tmp_path, prefix="a/")
    one.segment("u1", [message(0, "m", 0)], lineage={0: 0})
    other = Bucket(tmp_path, prefix="b/")
    other.segment("u2", [message(1, "m", 0)], lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        (listed,) = list_tier(tier).partitions.values()
        assert [c.start_offset for c in TierKeys(tier).find_candidates(listed)] == [0, 1]
        check_same_candidates(tier)


def test_a_listing_fails_as_its_store_does(tmp_path: pathlib.Path) -> None:
    """An unreachable bucket would look like one whose topics were all deleted."""
    wrote(tmp_path)

    class Broken(PassingStore):
        def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
            yield from list(self._store.iter_objects(prefix))[:2]
            raise ConnectionError("reset")

    def broken(store: ObjectStore) -> ObjectStore:
        return Broken(store)

    with open_tier(str(tmp_path), layout="aiven", wrap_store=broken) as tier, pytest.raises(ConnectionError):
        list_tier(tier)


class Resuming(PassingStore):
    """Lists in order and begins behind any key, a page of three objects a request."""

    pages = 0
    is_obedient = True

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from self.iter_objects_behind("", prefix)

    def iter_objects_behind(self, key: str, prefix: str = "") -> Iterator[ObjectInfo]:
        found = sorted(self._store.iter_objects(prefix), key=lambda info: info.key)
        if self.is_obedient:
            found = [info for info in found if info.key > key]
        for number, info in enumerate(found):
            self.pages += number % 3 == 0
            yield info

    @property
    def resumes_listings(self) -> bool:
        return True


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders count as large from 12 objects on, so that a test need not write thousands."""
    monkeypatch.setattr("tierlog.scan.following.tier_listing.LARGE_FOLDER", 12)
    monkeypatch.setattr("tierlog.scan.following.tier_listing.RELISTED_OBJECTS", 6)


def resuming(root: pathlib.Path) -> tuple[Tier, Resuming]:
    stores: list[Resuming] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(Resuming(store))
        return stores[-1]

    return open_tier(str(root), layout="aiven", wrap_store=wrap), stores[-1]


@pytest.mark.usefixtures("small_pages")
def test_what_is_new_is_found_without_listing_what_is_known(tmp_path: pathlib.Path) -> None:
    """Each refresh of a large bucket would cost thousands of requests, or new segments would not be seen."""
    buckets = [wrote(tmp_path, partition=partition, count=count) for partition, count in enumerate((20, 2, 20, 4))]
    tier, store = resuming(tmp_path)
    with tier:
        first = list_tier(tier)
        whole, store.pages = store.pages, 0
        assert list_tier(tier, first, is_whole=False) == first
        assert store.pages < whole / 2
        for bucket in buckets:
            bucket.segment("new", [message(90, "m", 0)], lineage={0: 0})
        wrote(tmp_path, partition=4, count=1)
        wrote(tmp_path, "another", count=1)
        assert list_tier(tier, first, is_whole=False) == list_tier(tier)


@pytest.mark.usefixtures("small_pages")
def test_a_copy_that_was_under_way_is_seen_when_it_is_whole(tmp_path: pathlib.Path) -> None:
    """A segment whose manifest came after that of the next one would be missing until the next whole listing."""
    bucket = wrote(tmp_path, count=20)
    manifest = bucket.path("s18", "rsm-manifest")
    data = manifest.read_bytes()
    manifest.unlink()
    tier, _ = resuming(tmp_path)
    with tier:
        first = list_tier(tier)
        manifest.write_bytes(data)
        (listed,) = list_tier(tier, first, is_whole=False).partitions.values()
        assert listed.segments == 20


@pytest.mark.usefixtures("small_pages")
def test_retention_is_seen_at_the_head_of_a_folder(tmp_path: pathlib.Path) -> None:
    """The log start would stay behind for ten refreshes, and its readers run into what is gone."""
    bucket = wrote(tmp_path, count=20)
    tier, _ = resuming(tmp_path)
    with tier:
        first = list_tier(tier)
        for number in range(19):
            for suffix in ("log", "indexes", "rsm-manifest"):
                bucket.path(f"s{number}", suffix).unlink()
            assert list_tier(tier, first, is_whole=False) == list_tier(tier), number


@pytest.mark.usefixtures("small_pages")
def test_deletions_elsewhere_are_seen_by_the_next_whole_listing(tmp_path: pathlib.Path) -> None:
    """What is deleted in the middle of a folder would be served for ever."""
    bucket = wrote(tmp_path, count=20)
    tier, _ = resuming(tmp_path)
    with tier:
        keys = TierKeys(tier)
        first = listing = keys.list_partitions(None)
        for suffix in ("log", "indexes", "rsm-manifest"):
            bucket.path("s5", suffix).unlink()
        counts = []
        for _ in range(WHOLE_LISTING_EACH):
            listing = keys.list_partitions(listing)
            counts.append(next(iter(listing.partitions.values())).segments)
        assert counts == [20] * (WHOLE_LISTING_EACH - 1) + [19]
        assert first != listing


@pytest.mark.usefixtures("small_pages")
def test_a_store_that_does_not_do_what_it_says_is_listed_as_a_whole(tmp_path: pathlib.Path) -> None:
    """A server that looks like S3 and passes over the key would give every object twice."""
    wrote(tmp_path, count=20)
    wrote(tmp_path, "other", count=20)
    tier, store = resuming(tmp_path)
    with tier:
        first = list_tier(tier)
        store.is_obedient = False
        assert list_tier(tier, first, is_whole=False) == first
