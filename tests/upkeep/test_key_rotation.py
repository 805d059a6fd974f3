"""Manifests under another key pair: every segment stays readable, whatever happens on the way."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from typing_extensions import Buffer

from tests.support.key_pairs import pairs
from tests.support.metadata_topic import view_of
from tests.support.servers import StoreServer
from tierlog.errors import ConfigError, EncryptionKeyError, ObjectConflictError, StoreUnavailableError
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata
from tierlog.remote.tier.objects.footer import FooterTotals
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.store_urls import open_store
from tierlog.testing.failing_store import FailingStore
from tierlog.upkeep.footer_backfill import index
from tierlog.upkeep.key_rotation import KeyRotation
from tierlog.upkeep.rewrap_work import Rewrap, RewrapState, rotation_key_ring


@dataclass
class Sealed:
    """An encrypted bucket under k1."""

    url: str
    options: dict[str, str]
    data: pathlib.Path
    before: dict[str, bytes] = field(default_factory=dict)

    def objects(self) -> dict[str, bytes]:
        store = open_store(self.url, self.options)
        found = {info.key: bytes(store.fetch(info.key)) for info in store.iter_objects()}
        store.close()
        return found

    def manifests(self) -> list[str]:
        return sorted(key for key in self.before if key.endswith(".rsm-manifest"))

    def run(
        self,
        *,
        apply: bool = True,
        wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
        metadata: MetadataView | None = None,
        ids: Sequence[str] = ("k1", "k2"),
    ) -> list[Rewrap]:
        config = self.options | pairs(self.data, *ids, active="k2")
        with open_tier(self.url, layout="aiven", config=config, wrap_store=wrap) as tier:
            return list(KeyRotation(tier, rotation_key_ring(config, tier), metadata=metadata, apply=apply, workers=3))

    def logs(self, key_id: str) -> list[bytes]:
        """Read with one pair alone."""
        with open_tier(self.url, config=self.options | pairs(self.data, key_id, active=key_id)) as tier:
            return [b"".join(bytes(w) for _, w in tier.iter_log_windows(s)) for s in tier.iter_segments()]


@pytest.fixture
def folder(data: pathlib.Path, tmp_path: pathlib.Path) -> Sealed:
    shutil.copytree(data / "zstd-aes/objects", tmp_path / "bucket")
    made = Sealed(str(tmp_path / "bucket"), {}, data)
    made.before = made.objects()
    assert len(made.manifests()) >= 3
    return made


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.server)])
def bucket(request: pytest.FixtureRequest, data: pathlib.Path) -> Iterator[Sealed]:
    if request.param == "folder":
        yield request.getfixturevalue("folder")
        return
    server: StoreServer = request.getfixturevalue("s3")
    made = Sealed(server.upload(data / "zstd-aes/objects", f"rotated/{uuid.uuid4()}"), dict(server.options), data)
    made.before = made.objects()
    yield made


def totals_of(bucket: Sealed, key_id: str) -> list[FooterTotals | None]:
    """What the footers say to a reader with one pair alone."""
    with open_tier(bucket.url, config=bucket.options | pairs(bucket.data, key_id, active=key_id)) as tier:
        segments = list(tier.iter_segments())
        batches = [tier.footers.fetch_batches(segment) for segment in segments]
        totals = [tier.footers.fetch_totals(segment) for segment in segments]
    assert [found is None for found in batches] == [found is None for found in totals]
    return totals


def test_footers_go_with_their_manifests(bucket: Sealed) -> None:
    """If this fails, a rotation costs the footers of a bucket, or they are read by the old pair for ever."""
    config = bucket.options | pairs(bucket.data, "k1", active="k1")
    assert index(bucket.url, config=config).written == len(bucket.manifests())
    wanted = totals_of(bucket, "k1")
    assert None not in wanted
    before = {key: content for key, content in bucket.objects().items() if key.endswith(".footer")}
    assert states(bucket.run(apply=False)) == {RewrapState.PENDING}
    assert {key: bucket.objects()[key] for key in before} == before
    assert states(bucket.run()) == {RewrapState.REWRAPPED}
    assert totals_of(bucket, "k2") == wanted
    after = bucket.objects()
    assert all(after[key] != content for key, content in before.items())
    assert all(after[key][40:] != content[40:] for key, content in before.items())  # a new IV
    assert index(bucket.url, config=bucket.options | pairs(bucket.data, "k2", active="k2")).written == 0


def test_footers_of_other_manifests_go(folder: Sealed) -> None:
    """If this fails, a stale footer is made one of the new manifest, and counts what is not there."""
    index(folder.url, config=pairs(folder.data, "k1", active="k1"))
    paths = sorted(pathlib.Path(folder.url).rglob("*.footer"))
    stale, damaged, absent = paths[:3]
    manifest = stale.with_suffix(".rsm-manifest")
    manifest.write_bytes(manifest.read_bytes() + b" ")
    damaged.write_bytes(damaged.read_bytes()[:50])
    absent.unlink()
    assert states(folder.run()) == {RewrapState.REWRAPPED}
    assert sorted(pathlib.Path(folder.url).rglob("*.footer")) == paths[3:]
    assert totals_of(folder, "k2").count(None) == 3


def test_no_footer_takes_the_memory(folder: Sealed) -> None:
    """An object of a terabyte under a footer's name would end each rotation."""
    index(folder.url, config=pairs(folder.data, "k1", active="k1"))
    paths = sorted(pathlib.Path(folder.url).rglob("*.footer"))
    longer, other = paths[:2]
    for path, size_bytes in ((longer, longer.stat().st_size), (other, 0)):
        with path.open("r+b") as file:
            file.truncate(size_bytes)
            file.truncate(32 << 20)

    def wrap(store: ObjectStore) -> ObjectStore:
        fetch = store.fetch

        def small(key: str) -> Buffer:
            assert not key.endswith(".footer")
            return fetch(key)

        store.fetch = small  # type: ignore[method-assign]
        return store

    assert states(folder.run(wrap=wrap)) == {RewrapState.REWRAPPED}
    assert sorted(pathlib.Path(folder.url).rglob("*.footer")) == paths[2:]


def test_a_rotation_that_ends_before_the_footer(folder: Sealed) -> None:
    """If this fails, a crash between a manifest and its footer gives wrong counts."""
    index(folder.url, config=pairs(folder.data, "k1", active="k1"))

    def wrap(store: ObjectStore) -> ObjectStore:
        put = store.put

        def failing(key: str, data: Buffer, *, expected_etag: str | None = None) -> StoredObject:
            if key.endswith(".footer"):
                raise StoreUnavailableError("away")
            return put(key, data, expected_etag=expected_etag)

        store.put = failing  # type: ignore[method-assign, assignment]
        return store

    with pytest.raises(StoreUnavailableError):
        folder.run(wrap=wrap)
    config = pairs(folder.data, "k1", "k2", active="k2")
    with open_tier(folder.url, config=config) as tier:
        found = [tier.footers.fetch_totals(segment) for segment in tier.iter_segments()]
        assert 0 < found.count(None) == tier.footers.passed_over
    assert index(folder.url, config=config).written == found.count(None)


def states(outcomes: list[Rewrap]) -> set[RewrapState]:
    return {outcome.state for outcome in outcomes}


def test_every_segment_goes_to_the_new_pair(bucket: Sealed) -> None:
    """If this fails, an old pair can never go, or takes segments with it."""
    logs = bucket.logs("k1")
    assert states(bucket.run(apply=False)) == {RewrapState.PENDING}
    assert bucket.objects() == bucket.before
    outcomes = bucket.run()
    assert (len(outcomes), states(outcomes)) == (len(bucket.manifests()), {RewrapState.REWRAPPED})
    after = bucket.objects()
    assert {key for key in after if after[key] != bucket.before[key]} == set(bucket.manifests())
    for key in bucket.manifests():
        was, now = json.loads(bucket.before[key]), json.loads(after[key])
        assert was["encryption"].pop("dataKey").startswith("k1:")
        assert now["encryption"].pop("dataKey").startswith("k2:")
        assert was == now
    assert bucket.logs("k2") == logs
    with pytest.raises(EncryptionKeyError, match="k2"):
        bucket.logs("k1")
    assert bucket.run() == []
    assert bucket.objects() == after
    assert bucket.run(ids=["k2"]) == []


class Meddling(FailingStore):
    """Something else happens to an object at the moment in which it is to be replaced."""

    def __init__(self, store: ObjectStore, meddle: Callable[[ObjectStore, str], None]) -> None:
        super().__init__(store, {}, rng=random.Random(0), clock=ManualClock())
        self.inner_store = store
        self.meddle = meddle

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self.meddle(self.inner_store, key)
        return super().put(key, data, expected_etag=expected_etag)


def test_what_changed_meanwhile_stays_as_it_is(bucket: Sealed) -> None:
    """If this fails, a manifest that a broker wrote at this moment is lost."""
    other = bucket.before[bucket.manifests()[0]] + b" "
    meddle = lambda store, key: store.put(key, other)  # noqa: E731
    outcomes = bucket.run(wrap=partial(Meddling, meddle=meddle))
    assert states(outcomes) == {RewrapState.FAILED}
    assert all(isinstance(outcome.error, ObjectConflictError) for outcome in outcomes)
    assert {bucket.objects()[key] for key in bucket.manifests()} == {other}


def test_what_is_deleted_meanwhile_does_not_come_back(bucket: Sealed) -> None:
    """If this fails, a segment that Kafka has deleted is there again, without its data."""
    meddle = lambda store, key: store.delete([key])  # noqa: E731
    outcomes = bucket.run(wrap=partial(Meddling, meddle=meddle))
    assert states(outcomes) <= {RewrapState.FAILED}
    assert not [key for key in bucket.objects() if key.endswith(".rsm-manifest")]


def test_a_run_that_breaks_off_is_continued(folder: Sealed) -> None:
    """If this fails, a store that fails halfway leaves a bucket that neither pair reads whole."""
    logs = folder.logs("k1")
    left = [1]

    def fail(_: ObjectStore, key: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StoreUnavailableError(f"{key}: 503")

    with pytest.raises(StoreUnavailableError):
        folder.run(wrap=partial(Meddling, meddle=fail))
    config = pairs(folder.data, "k1", "k2", active="k2")
    with open_tier(folder.url, config=config) as tier:
        found = [b"".join(bytes(w) for _, w in tier.iter_log_windows(s)) for s in tier.iter_segments()]
    assert found == logs
    outcomes = folder.run()
    assert len(outcomes) == len(folder.manifests()) - 1
    assert folder.logs("k2") == logs


class Forgetful(FailingStore):
    """Takes manifests, and gives the old ones."""

    def __init__(self, store: ObjectStore, before: dict[str, bytes]) -> None:
        super().__init__(store, {}, rng=random.Random(0), clock=ManualClock())
        self.before = before

    def fetch(self, key: str) -> Buffer:
        return self.before[key]


def test_a_store_that_gives_something_else_is_told(folder: Sealed) -> None:
    """If this fails, the old pair is thrown away while manifests under it are still served."""
    outcomes = folder.run(wrap=partial(Forgetful, before=folder.before))
    assert states(outcomes) == {RewrapState.FAILED}
    assert "does not come back" in str(outcomes[0].error)


def test_what_cannot_be_opened_stays(folder: Sealed) -> None:
    """If this fails, a data key that nobody can read is replaced by another one, and the segment is gone."""
    outcomes = folder.run(ids=["k2"])
    assert states(outcomes) == {RewrapState.FAILED}
    assert all("k1" in str(outcome.error) for outcome in outcomes)
    assert folder.objects() == folder.before
    broken = pathlib.Path(folder.url) / folder.manifests()[0]
    broken.write_bytes(b"{}")
    failed = [outcome for outcome in folder.run() if outcome.state is RewrapState.FAILED]
    assert [outcome.name for outcome in failed] == [folder.manifests()[0]]
    assert broken.read_bytes() == b"{}"


def test_segments_with_a_digest_are_left_alone(folder: Sealed) -> None:
    """If this fails, brokers refuse segments for ever: their metadata has the digest of the old manifest."""
    digest, unknown, *plain = folder.manifests()
    with open_tier(folder.url, config=folder.options | pairs(folder.data, "k1", active="k1")) as tier:
        segments = {segment.log.key.replace(".log", ".rsm-manifest"): segment for segment in tier.iter_segments()}
    custom = {digest: SegmentCustomMetadata(manifest_digest=bytes(32)).encode()}
    known = [replace(segments[key].metadata, custom_metadata=custom.get(key)) for key in [digest, *plain]]
    outcomes = {outcome.name: outcome for outcome in folder.run(metadata=view_of(known))}
    assert "its digest is in the metadata topic" in str(outcomes[digest].error)
    assert "does not know the segment" in str(outcomes[unknown].error)
    after = folder.objects()
    assert [key for key in folder.manifests() if after[key] == folder.before[key]] == sorted([digest, unknown])
    assert {outcomes[key].state for key in plain} == {RewrapState.REWRAPPED}


def test_a_bucket_that_cannot_be_rotated(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a wrong configuration is found out after half of the manifests."""
    config = pairs(data, "k1", active="k1")
    with open_tier(str(data / "local-tiered/objects"), config=config) as tier:
        with pytest.raises(ConfigError, match="nothing is encrypted"):
            KeyRotation(tier, rotation_key_ring(config, tier), metadata=None, apply=False)
        with pytest.raises(ConfigError, match=r"encryption\.enabled"):
            rotation_key_ring({}, tier)
