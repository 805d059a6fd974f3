"""Some topics of a tier, looked at again and again."""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests.support.batches import Batch, message
from tests.support.buckets import Bucket
from tests.support.golden import bucket_root, config_of, metadata_folders
from tierlog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
    UnknownTopicError,
)
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.tier import Tier, open_tier
from tierlog.remote.tier.objects.listed_manifest import find_listed
from tierlog.remote.tier.objects.manifest import parse_manifest
from tierlog.remote.tier.objects.manifest_writing import encode_manifest
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.following.followed_tier import FollowedTier, Look
from tierlog.scan.history import PartitionHistory, TierHistory
from tierlog.scan.scan_request import TopicSelection
from tierlog.scan.spans import SpanColumns


def wrote(bucket: Bucket, first: int, end: int, name: str = "") -> str:
    name = name or f"s{first}"
    bucket.segment(name, [message(offset, "m", 0) for offset in range(first, end)], lineage={0: 0})
    return name


def spans(look: Look) -> dict[str, list[tuple[int, int]]]:
    found = {}
    for partition, resolution in look.partitions.items():
        assert resolution.history is not None
        name = f"{partition.topic}-{partition.partition}"
        found[name] = [(span.first_offset, span.end_offset_exclusive) for span in resolution.history.spans]
    return found


def described_spans(tier: Tier, history: PartitionHistory) -> list[object]:
    """What counts of a partition, with what describes it, but for sizes of objects that only a listing says."""
    found: list[object] = [history.topic_id_partition, history.gaps, history.warnings]
    for span in history.spans:
        segment = tier.describe_segment(span.segment)
        parts = tuple((kind, part._replace(object_size_bytes=-1)) for kind, part in segment.parts)
        log = segment.log._replace(object_size_bytes=-1)
        found.append((span.first_offset, span.end_offset_exclusive, replace(segment, log=log, parts=parts)))
    return found


def everything(tier: Tier, look: Look) -> list[object]:
    """Return the faults of a look, then the history and the held segments of each partition."""
    found: list[object] = [(each, type(fault)) for each, fault in look.faults.items()]
    for resolution in look.partitions.values():
        assert resolution.history is not None
        found.append((described_spans(tier, resolution.history), resolution.held))
    return found


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    made = Bucket(tmp_path)
    wrote(made, 0, 3)
    return made


@pytest.fixture
def tier(bucket: Bucket) -> Iterator[Tier]:
    with open_tier(bucket.root) as opened:
        yield opened


NAMED = TopicSelection.of_names(["orders"])

Follow = Callable[..., FollowedTier]


@pytest.fixture(params=["described", "columns"])
def follow(request: pytest.FixtureRequest) -> Follow:
    """How segments are kept: of few their descriptions, of very many columns."""
    return partial(FollowedTier, described_max=0) if request.param == "columns" else FollowedTier


def test_each_look_shows_what_is_there(bucket: Bucket, tier: Tier, follow: Follow) -> None:
    """If this fails, a query that follows a topic misses its new segments, or resolves all of it at each look."""
    other = Bucket(bucket.root, partition=1)
    wrote(other, 0, 2)
    followed = follow(tier, NAMED)
    first = followed.look()
    assert spans(first) == {"orders-0": [(0, 3)], "orders-1": [(0, 2)]}
    wrote(bucket, 3, 5)
    second = followed.look()
    assert spans(second) == {"orders-0": [(0, 3), (3, 5)], "orders-1": [(0, 2)]}
    unchanged = TopicIdPartition(next(iter(first.partitions)).topic_id, "orders", 1)
    assert second.partitions[unchanged] is first.partitions[unchanged]
    for name in ("s0", "s3"):
        bucket.path(name, "rsm-manifest").unlink()
    assert spans(followed.look()) == {"orders-1": [(0, 2)]}


def test_a_gap_is_held_while_it_may_be_filled(bucket: Bucket, tier: Tier, follow: Follow) -> None:
    """If this fails, the records of a segment that comes late are passed over for good."""
    followed = follow(tier, NAMED)
    wrote(bucket, 5, 7)
    (held,) = followed.look().partitions.values()
    assert held.held is not None
    assert held.history is not None
    assert (held.history.end_offset_exclusive, held.held.gap.first_offset, held.held.gap.end_offset_exclusive) == (
        3,
        3,
        5,
    )
    wrote(bucket, 3, 5)
    assert spans(followed.look()) == {"orders-0": [(0, 3), (3, 5), (5, 7)]}
    wrote(bucket, 9, 11)
    for each in bucket.root.rglob("*"):  # older than what comes late
        os.utime(each, (0, 0))
    assert spans(followed.look()) == {"orders-0": [(0, 3), (3, 5), (5, 7), (9, 11)]}


def test_a_damaged_partition_harms_no_other(bucket: Bucket, tier: Tier, follow: Follow) -> None:
    """If this fails, one bad object stops a query over a hundred partitions without a name."""
    wrote(Bucket(bucket.root, partition=1), 0, 2)
    followed = follow(tier, NAMED)
    wrote(bucket, 3, 5)
    manifest = bucket.path("s3", "rsm-manifest")
    sound = manifest.read_bytes()
    manifest.write_bytes(b"{")
    look = followed.look()
    assert spans(look) == {"orders-1": [(0, 2)]}
    assert [type(each) for each in look.faults.values()] == [CorruptObjectError]
    manifest.write_bytes(sound)
    look = followed.look()
    assert (spans(look)["orders-0"], look.faults) == ([(0, 3), (3, 5)], {})


def test_what_was_named_is_there(bucket: Bucket, tier: Tier) -> None:
    """If this fails, a topic whose name has a typing error is followed without a word."""
    with pytest.raises(UnknownTopicError, match="no topic order; there are: orders"):
        FollowedTier(tier, TopicSelection.of_names(["order"])).look()
    with pytest.raises(UnknownTopicError, match=r"orders has no segments of partitions \[7\]"):
        FollowedTier(tier, TopicSelection.assign({"orders": [0, 7]})).look()
    assert spans(FollowedTier(tier, TopicSelection.assign({"orders": [0]})).look()) == {"orders-0": [(0, 3)]}
    assert spans(FollowedTier(tier, TopicSelection.matching("order")).look()) == {}
    assert spans(FollowedTier(tier, TopicSelection.matching("ord.*")).look()) == {"orders-0": [(0, 3)]}
    again = Bucket(bucket.root, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    wrote(again, 0, 1)
    for topics in (NAMED, TopicSelection.matching("ord.*")):
        with pytest.raises(ConfigError, match="has 2 topic ids"):
            FollowedTier(tier, topics).look()
    one = FollowedTier(tier, TopicSelection.of_names([f"{again.topic_id}:orders"]))
    assert spans(one.look()) == {"orders-0": [(0, 1)]}


def test_other_topics_are_not_listed(bucket: Bucket) -> None:
    """If this fails, following one topic of a thousand costs the listing of all of them."""
    for number in range(5):
        wrote(Bucket(bucket.root, topic=f"other{number}"), 0, 1)
    listed: list[str] = []

    class Listed(PassingStore):
        def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
            listed.append(prefix)
            return super().iter_objects(prefix)

    with open_tier(bucket.root, layout="aiven", wrap_store=Listed) as tier:
        followed = FollowedTier(tier, NAMED)
        for _ in range(3):
            assert spans(followed.look()) == {"orders-0": [(0, 3)]}
    assert listed == [f"orders-{bucket.topic_id}/"] * 3


def test_a_look_that_fails_changes_nothing(bucket: Bucket, follow: Follow) -> None:
    """If this fails, a store that is away for a moment has a follower see everything anew, or nothing."""
    failing: list[StoreError] = []

    class Failing(PassingStore):
        def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
            if failing:
                raise failing[0]
            return super().iter_objects(prefix)

    with open_tier(bucket.root, layout="aiven", wrap_store=Failing) as tier:
        followed = follow(tier, NAMED)
        first = followed.look()
        failing.append(StoreUnavailableError("away"))
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                followed.look()
        failing.clear()
        assert followed.look().partitions == first.partitions


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
@pytest.mark.parametrize("knows", [False, True])
def test_real_tiers(run: str, data: pathlib.Path, fixtures: pathlib.Path, follow: Follow, *, knows: bool) -> None:
    """If this fails, what is followed is another history than a batch read has, with metadata or without."""
    root = next(folder for folder in (data / run, fixtures / run) if metadata_folders(folder))
    with open_tier(str(bucket_root(root)), layout="aiven") as tier:
        names = {each.name for each in tier.topics()}  # the metadata may have more than the data here
    view = open_metadata(metadata_folders(root)) if knows else None
    with open_tier(str(bucket_root(root)), layout="aiven", config=config_of(root), known=view) as tier:
        histories = TierHistory(tier).partitions(names)
        topics = TopicSelection.of_names(names)
        followed = follow(tier, topics, read_metadata=None if view is None else lambda: view)
        look = followed.look()
        assert not look.faults
        found = [each.history for each in look.partitions.values() if each.history is not None]
        assert [described_spans(tier, each) for each in found] == [described_spans(tier, each) for each in histories]
        again = followed.look()
        assert all(again.partitions[each] is look.partitions[each] for each in look.partitions)


class _Changes:
    """A bucket that changes by chance, as brokers, retention, lifecycle rules and bad luck change one."""

    def __init__(self, seed: int, root: pathlib.Path) -> None:
        self._rng = random.Random(seed)
        self._partitions = [Bucket(root, partition=number) for number in range(2)]
        self._ends = [0, 0]
        self._epochs = [0, 0]
        self._lineages: list[dict[int, int]] = [{0: 0}, {0: 0}]
        self._whole: list[list[str]] = [[], []]
        self._written = 0
        self._mend: Callable[[], object] = lambda: None

    def change(self) -> None:
        """Change something of a partition."""
        self._mend()
        self._mend = lambda: None
        number = self._rng.randrange(2)
        kind = self._rng.choice(["write", "write", "write", "retain", "gap", "elect", "damage", "age"])
        bucket, whole = self._partitions[number], self._whole[number]
        if kind == "write" or not whole:
            self._write(number, self._ends[number])
        elif kind == "gap":
            self._write(number, self._ends[number] + self._rng.randrange(1, 3))
        elif kind == "elect":
            self._epochs[number] += 1
            start = max(0, self._ends[number] - self._rng.randrange(3))  # an unclean one may cut the log
            self._lineages[number] = {e: at for e, at in self._lineages[number].items() if at < start} or {}
            self._lineages[number][self._epochs[number]] = start
            self._write(number, start)
        elif kind == "retain":
            for suffix in ("rsm-manifest", "log", "indexes"):
                bucket.path(whole[0], suffix).unlink()
            del whole[0]
        elif kind == "damage":
            if self._rng.random() < 0.5:
                bucket.path(self._rng.choice(whole), "rsm-manifest").write_bytes(b"{")
            else:  # its metadata are sound: of another one than the newest, only who reads it finds that out
                manifest = bucket.path(whole[-1], "rsm-manifest")
                sound = manifest.read_bytes()
                self._mend = partial(manifest.write_bytes, sound)
                manifest.write_bytes(re.sub(rb'("transformedChunks":)"[^"]*"', rb'\1"AAAA"', sound))
        else:
            for each in bucket.root.rglob("*"):
                os.utime(each, (0, 0))

    def _write(self, number: int, first: int) -> None:
        end = first + self._rng.randrange(1, 4)
        self._written += 1
        name = f"s{self._written}"
        lineage = {epoch: at for epoch, at in self._lineages[number].items() if at < end}
        batches = [Batch(at, (b"m",), epoch=max(e for e, s in lineage.items() if s <= at)) for at in range(first, end)]
        self._partitions[number].segment(
            name, batches, lineage=lineage, compression=self._rng.random() < 0.5, event_timestamp_ms=self._written
        )
        manifest = self._partitions[number].path(name, "rsm-manifest")
        manifest.write_bytes(encode_manifest(parse_manifest(manifest.read_bytes(), where=name)))  # as the plugin does
        assert find_listed(manifest.read_bytes()) is not None
        self._whole[number].append(name)
        self._ends[number] = end


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_followed_as_values_are(tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, a query over very many segments follows another history than one over few."""
    changes = _Changes(seed, tmp_path)
    changes.change()
    packed = 0
    with open_tier(tmp_path, layout="aiven") as one, open_tier(tmp_path, layout="aiven") as other:
        values, columns = (
            FollowedTier(one, NAMED, may_lack=True),
            FollowedTier(other, NAMED, may_lack=True, described_max=0),
        )
        for _ in range(25):
            changes.change()
            seen, kept = values.look(), columns.look()
            assert everything(one, seen) == everything(other, kept)
            histories = [each.history for each in kept.partitions.values() if each.history is not None]
            packed += sum(isinstance(each.lineage.spans, SpanColumns) for each in histories)
    assert packed


def test_footers_are_asked_for(data: pathlib.Path, fixtures: pathlib.Path, follow: Follow) -> None:
    """If this fails, a stream that goes by metadata reads indexes, and whole segments, in place of footers."""
    root = next(folder for folder in (data / "main-plain", fixtures / "main-plain") if metadata_folders(folder))
    view = open_metadata(metadata_folders(root))
    config = {**config_of(root), "footer.object.enabled": "true"}
    with open_tier(str(bucket_root(root)), layout="aiven", config=config, known=view) as tier:
        look = follow(tier, TopicSelection.matching(".*"), read_metadata=lambda: view).look()
        segments = [s.segment for each in look.partitions.values() if each.history for s in each.history.spans]
        assert segments
        assert all(each.footer is not None for each in segments)


def test_the_newest_segment_of_the_metadata_is_there(
    tmp_path: pathlib.Path, data: pathlib.Path, fixtures: pathlib.Path, follow: Follow
) -> None:
    """If this fails, records of a branch that a leader cut off are read, and nobody knows that its segment is lost."""
    root = next(folder for folder in (data / "main-plain", fixtures / "main-plain") if metadata_folders(folder))
    view = open_metadata(metadata_folders(root))
    bucket = tmp_path / "bucket"
    shutil.copytree(bucket_root(root), bucket)
    with open_tier(bucket, layout="aiven", config=config_of(root), known=view) as tier:
        followed = follow(tier, TopicSelection.matching(".*"), read_metadata=lambda: view)
        found = [each.history for each in followed.look().partitions.values() if each.history]
    whole = {each.topic_id_partition: each for each in found}
    several = [partition for partition, history in whole.items() if len(history.spans) > 1]
    assert several
    for partition in several:
        (bucket / f"{whole[partition].lineage.newest.log.key.removesuffix('log')}rsm-manifest").unlink()
    with open_tier(bucket, layout="aiven", config=config_of(root), known=view) as tier:
        look = follow(tier, TopicSelection.matching(".*"), read_metadata=lambda: view).look()
    assert {each: type(fault) for each, fault in look.faults.items()} == dict.fromkeys(several, ObjectNotFoundError)
