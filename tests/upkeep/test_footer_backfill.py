"""``tierlog.upkeep.index``: footers for what is in a bucket already, and none that is not of its segment."""

from __future__ import annotations

import datetime
import hashlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.footers import fill, footers_in, indexed_copy
from tests.support.golden import config_of
from tests.support.manager_configs import KEYS, ZSTD
from tests.support.segments import make_segment, sound_log
from tierlog import upkeep
from tierlog.errors import ConfigError, CorruptRecordError, StoreUnavailableError, UnknownTopicError
from tierlog.opening import open_path
from tierlog.remote.tier import Tier, open_tier
from tierlog.remote.tier.objects.footer import FooterTotals
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.upkeep.footer_backfill import FooterBackfill, index
from tierlog.upkeep.footer_work import FooterOutcome, FooterState

RUNS = ("main-plain", "zstd-aes", "custom-meta")


def contents(folder: pathlib.Path) -> dict[str, str]:
    """The objects of a folder but the footers, by the digest of their bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".footer"
    }


def totals_of(folder: pathlib.Path, config: dict[str, str]) -> list[FooterTotals | None]:
    with open_tier(str(folder), config=config) as tier:
        return [tier.footers.fetch_totals(segment) for segment in tier.iter_segments()]


@pytest.mark.parametrize("run", RUNS)
def test_a_bucket_of_the_plugin(data: pathlib.Path, tmp_path: pathlib.Path, run: str) -> None:
    """If this fails, buckets of the plugin get no footers, or other ones than our own copies, or are changed."""
    bucket, config = tmp_path / "bucket", config_of(data / run)
    shutil.copytree(data / run / "objects", bucket)
    before = contents(bucket)
    told: list[FooterOutcome] = []
    read: list[int] = []
    dry = index(bucket, config=config, dry_run=True, on_segment=told.append)
    assert (dry.pending, dry.written, footers_in(bucket)) == (dry.segments, 0, [])
    result = index(
        bucket, config=config, on_segment=told.append, on_bytes=lambda done, whole: read.append(done / whole)
    )
    assert (result.written, result.failed) == (result.segments, 0)
    assert result.written_bytes == sum(path.stat().st_size for path in footers_in(bucket)) > 0
    assert 0.9 < sum(read) < 1.01
    assert [outcome.state for outcome in told] == (
        [FooterState.PENDING] * dry.segments + [FooterState.WRITTEN] * dry.segments
    )
    assert contents(bucket) == before
    found = totals_of(bucket, config)
    assert None not in found
    again = index(bucket, config=config)
    assert (again.present, again.written) == (again.segments, 0)


def test_a_run_goes_on_where_another_ended(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a run over petabytes that dies begins anew, or leaves a footer that nobody believes."""
    bucket = indexed_copy(data / "zstd-aes", tmp_path / "bucket")
    config = config_of(data / "zstd-aes")
    wanted, paths = totals_of(bucket, config), footers_in(bucket)
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-3])
    content = bytearray(paths[2].read_bytes())
    content[-2] ^= 1
    paths[2].write_bytes(content)
    paths[3].write_bytes(paths[4].read_bytes())
    result = index(bucket, config=config)
    assert (result.written, result.present) == (4, result.segments - 4)
    assert totals_of(bucket, config) == wanted


@pytest.mark.parametrize("run", RUNS)
def test_another_place(data: pathlib.Path, tmp_path: pathlib.Path, run: str) -> None:
    """If this fails, buckets that are read-only are written to, or their footers are found by nobody."""
    bucket, place, config = tmp_path / "bucket", tmp_path / "mine" / "footers", config_of(data / run)
    shutil.copytree(data / run / "objects", bucket)
    wanted = totals_of(indexed_copy(data / run, tmp_path / "beside"), config)
    for path in [bucket, *bucket.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert index(bucket, to=place, config=config).written == len(wanted)
    assert footers_in(bucket) == []
    assert totals_of(bucket, {**config, "footer.path": str(place)}) == wanted
    assert totals_of(bucket, config) == [None] * len(wanted)
    again = index(bucket, to=place, config=config)
    assert (again.present, again.written, again.removed) == (again.segments, 0, 0)


def test_what_went_from_the_bucket_goes_from_the_other_place(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, footers of deleted segments pile up for ever, or those of another bucket go."""
    bucket, place, config = tmp_path / "bucket", tmp_path / "place", config_of(data / "main-plain")
    shutil.copytree(data / "main-plain" / "objects", bucket)
    other = config_of(data / "zstd-aes")
    index(data / "zstd-aes" / "objects", to=place, config=other)
    index(bucket, to=place, config=config)
    gone = min(bucket.rglob("*fx-txn-*/0/*.rsm-manifest"))
    kept = footers_in(place)
    for path in bucket.rglob(f"{gone.stem}.*"):
        path.unlink()
    partly = index(bucket, "fx-txn", to=place, config=config)
    assert (partly.removed, footers_in(place)) == (0, kept)
    dry = index(bucket, to=place, config=config, dry_run=True)
    assert (dry.pending, footers_in(place)) == (1, kept)
    assert index(bucket, to=place, config=config).removed == 1
    assert {path.stem for path in kept} - {path.stem for path in footers_in(place)} == {gone.stem}
    assert index(data / "zstd-aes" / "objects", to=place, config=other).written == 0


def test_damage_gets_no_footer(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a footer says that rotten batches are sound, or one of them ends the run."""
    bucket, config = tmp_path / "bucket", config_of(data / "main-plain")
    shutil.copytree(data / "main-plain" / "objects", bucket)
    logs = sorted(bucket.rglob("*.log"))
    content = bytearray(logs[0].read_bytes())
    content[len(content) // 2] ^= 1
    logs[0].write_bytes(content)
    logs[1].write_bytes(logs[1].read_bytes()[:-1])
    logs[2].with_suffix(".rsm-manifest").write_bytes(b"{}")
    result = index(bucket, config=config)
    assert (result.failed, result.written) == (3, result.segments - 3)
    assert {str(failed.error).partition(":")[0].rpartition("/")[2].partition(" ")[0] for failed in result.failures} == {
        logs[0].name,
        logs[1].name,
        logs[2].with_suffix(".rsm-manifest").name,
    }
    assert all(failed.name.endswith(".footer") for failed in result.failures)
    assert not [path for path in footers_in(bucket) if path.stem in {log.stem for log in logs[:3]}]


def test_batches_out_of_order_get_no_footer(tmp_path: pathlib.Path) -> None:
    """If this fails, chunks that changed places are counted, whose reading is refused."""
    one, other = sound_log(1, base_offset=0), sound_log(1, base_offset=2)
    made = make_segment(one + other, lineage={0: 0})
    bucket = tmp_path / "bucket"
    made.stored().put_in(bucket)
    (log,) = bucket.rglob("*.log")
    log.write_bytes(other + one)
    (failed,) = index(bucket).failures
    assert isinstance(failed.error, CorruptRecordError)
    assert "where only" in str(failed.error)


def changing(bucket: pathlib.Path, change: Callable[[], None]) -> Callable[[ObjectStore], ObjectStore]:
    """A store under which the bucket changes as soon as a footer is put."""

    def wrap(store: ObjectStore) -> ObjectStore:
        put = store.put

        def changed(key: str, data: Any, **more: Any) -> Any:
            found = put(key, data, **more)
            if key.endswith(".footer"):
                change()
            return found

        store.put = changed  # type: ignore[method-assign]
        return store

    return wrap


@pytest.mark.parametrize("how", ["deleted", "rewritten"])
def test_a_segment_that_changes_meanwhile(tmp_path: pathlib.Path, how: str) -> None:
    """If this fails, retention races with a run, and objects stay that nobody owns."""
    bucket = tmp_path / "bucket"
    made = make_segment(sound_log(), lineage={0: 0})
    made.stored().put_in(bucket)

    def change() -> None:
        for path in [path for path in bucket.rglob("*") if path.is_file() and path.suffix != ".footer"]:
            if how == "deleted":
                path.unlink()
            elif path.suffix == ".rsm-manifest":
                path.write_bytes(path.read_bytes() + b" ")

    with open_tier(str(bucket), wrap_store=changing(bucket, change), all_footers=True) as tier:
        (outcome,) = FooterBackfill(tier)
    assert outcome.state is FooterState.FAILED
    assert footers_in(bucket) == []
    if how == "rewritten":
        assert "run again" in str(outcome.error)
        assert index(bucket).written == 1


def test_old_formats_get_none(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a run ends at what an old broker wrote, or a wrapper counts as one record."""
    log = (data / "record-v0-v1" / "v1-none.log").read_bytes()
    made = make_segment(sound_log(), lineage={0: 0})
    bucket = tmp_path / "bucket"
    stored = make_old(made.stored(), log)
    stored.put_in(bucket)
    told: list[FooterOutcome] = []
    result = index(bucket, on_segment=told.append)
    assert (result.unfit, result.written, footers_in(bucket)) == (1, 0, [])
    assert "magic 0 or 1" in told[0].reason


def make_old(stored: Any, log: bytes) -> Any:
    """The same segment with another log, as its manifest says."""
    import dataclasses
    import json

    objects = dict(stored.objects)
    manifest = json.loads(objects[f"{stored.base}.rsm-manifest"])
    chunk = manifest["chunkIndex"]
    chunk |= {"originalFileSize": len(log), "finalTransformedChunkSize": len(log)}
    manifest["remoteLogSegmentMetadata"]["endOffset"] = 10_000
    objects[f"{stored.base}.rsm-manifest"] = json.dumps(manifest).encode()
    objects[f"{stored.base}.log"] = log
    return dataclasses.replace(stored, objects=objects)


def test_topics_and_partitions(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, one topic of a bucket cannot be indexed alone."""
    bucket, config = tmp_path / "bucket", config_of(data / "main-plain")
    shutil.copytree(data / "main-plain" / "objects", bucket)
    with pytest.raises(UnknownTopicError, match="no segments of nobody; there are: fx-"):
        index(bucket, "nobody", config=config)
    first = index(bucket, "fx-txn", config=config)
    assert first.written == first.segments == len(list(bucket.rglob("fx-txn-*/*/*.log")))
    with pytest.raises(UnknownTopicError):
        index(bucket, "fx-txn", partitions=[7], config=config, dry_run=True)


def test_refusals(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a mistake is noticed when the run is over."""
    with pytest.raises(ConfigError, match="footers are of the layouts"):
        index(data / "main-plain" / "local-before" / "broker1")
    bucket = tmp_path / "bucket"
    shutil.copytree(data / "main-plain" / "objects", bucket)
    for inside in (bucket, bucket / "footers"):
        with pytest.raises(ConfigError, match="lies in"):
            index(bucket, to=inside, config=config_of(data / "main-plain"))
    with pytest.raises(TypeError, match="dry_run"):
        index(bucket, dry_run=1)  # type: ignore[arg-type]


def test_an_unsound_one_beside_hides_the_other_place(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a run writes footers at a place where readers do not look, and says that all is well."""
    bucket = indexed_copy(data / "custom-meta", tmp_path / "bucket")
    footers_in(bucket)[0].write_bytes(b"none")
    config = config_of(data / "custom-meta")
    result = index(bucket, to=tmp_path / "place", config=config)
    assert (result.failed, result.present) == (1, result.segments - 1)
    assert "delete it" in str(result.failures[0].error)


def test_a_store_that_fails_ends_the_run(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a run against a store that is away goes on for hours, a segment at a time."""
    bucket = tmp_path / "bucket"
    shutil.copytree(data / "main-plain" / "objects", bucket)

    def wrap(store: ObjectStore) -> ObjectStore:
        def failing(*_: object, **__: object) -> Any:
            raise StoreUnavailableError("away")

        store.put = failing  # type: ignore[method-assign]
        return store

    config = config_of(data / "main-plain")
    with open_tier(str(bucket), config=config, wrap_store=wrap, all_footers=True) as tier:
        with pytest.raises(StoreUnavailableError):
            list(FooterBackfill(tier))
        assert footers_in(bucket) == []


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_a_copy_has_footers_of_its_own(data: pathlib.Path, tmp_path: pathlib.Path, run: str, asked: bool) -> None:
    """If this fails, a copied bucket has footers of the other one, which nobody believes, or lacks those asked for."""
    bucket = indexed_copy(data / run, tmp_path / "bucket")
    target = {"key.prefix": "copied/", "footer.object.enabled": str(asked).lower()} | (ZSTD | KEYS if asked else {})
    for copied in (len(footers_in(bucket)), 0):
        result = upkeep.copy(bucket, tmp_path / "dest", config=config_of(data / run), dest_config=target)
        assert (result.is_whole, result.copied) == (True, copied)
    found = totals_of(tmp_path / "dest", target)
    assert found == (totals_of(bucket, config_of(data / run)) if asked else [None] * len(found))
    assert upkeep.verify(tmp_path / "dest", config=target).is_sound


@pytest.mark.parametrize("run", RUNS)
def test_other_jobs_do_not_see_them(data: pathlib.Path, tmp_path: pathlib.Path, run: str) -> None:
    """If this fails, footers are taken for orphans, or a restored cluster has other segments because of them."""
    config = config_of(data / run)
    bucket = indexed_copy(data / run, tmp_path / "bucket")
    plain = data / run / "objects"
    report = upkeep.orphans(bucket, config=config, older_than=datetime.timedelta(0))
    before = upkeep.orphans(plain, config=config, older_than=datetime.timedelta(0))
    assert (report.orphans, report.segments, report.foreign) == ([], before.segments, before.foreign)
    assert report.objects == before.objects + before.segments
    told = [restored(each, config) for each in (plain, bucket)]
    assert told[0] == told[1]
    assert told[0]


def test_a_late_footer_does_not_make_a_segment_young(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a nightly index hides orphans for ever, and keeps a lost cluster from being restored."""
    bucket, config = tmp_path / "bucket", config_of(data / "main-plain")
    shutil.copytree(data / "main-plain" / "objects", bucket)
    for path in bucket.rglob("*.log"):
        for each in path.parent.glob(f"{path.stem}.*"):
            os.utime(each, (1_700_000_000, 1_700_000_000))
    index(bucket, config=config)
    newest: list[int] = []
    upkeep.restore(bucket, config=config, on_partition=lambda found: newest.append(found.newest_ms))
    assert set(newest) == {1_700_000_000_000}
    manifest = min(bucket.rglob("*.rsm-manifest"))
    manifest.unlink()
    (orphan,) = upkeep.orphans(bucket, config=config).orphans  # older than a day
    assert [key.rpartition(".")[2] for key in orphan.keys] == ["footer", "indexes", "log"]
    for suffix in (".log", ".indexes"):
        manifest.with_suffix(suffix).unlink()
    report = upkeep.orphans(bucket, config=config)
    assert (report.orphans, report.young) == ([], 1)


def restored(bucket: pathlib.Path, config: dict[str, str]) -> list[object]:
    found: list[upkeep.RestoredPartition] = []
    upkeep.restore(bucket, config=config, on_partition=found.append)
    return [segment.metadata for partition in found for segment in partition.segments]


@pytest.mark.parametrize("keys", [{}, ZSTD | KEYS, {"layout": "kafka"}], ids=["plain", "zstd-aes", "kafka"])
def test_it_is_what_a_copy_writes(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    """If this fails, a backfilled segment is counted otherwise than one whose copy wrote the footer."""
    made = make_segment(sound_log(codecs=("none", "zstd", "snappy")), lineage={0: 0}).closed_in(tmp_path / "log")
    bucket, config = tmp_path / "bucket", {"key.prefix": "", **keys}
    fill(bucket, [made], keys)
    wanted, (path,) = list(read(bucket, config)), footers_in(bucket)
    size = path.stat().st_size
    path.unlink()
    assert index(bucket, config=config).written_bytes == size
    assert list(read(bucket, config)) == wanted


def read(bucket: pathlib.Path, config: dict[str, str]) -> Iterator[object]:
    tier: Tier
    with open_path(bucket, config=config) as tier:
        for segment in tier.iter_segments():
            found = tier.footers.read(segment)
            assert found is not None
            assert found[1] is not None
            yield found[0].totals, found[0].binding, found[1].least_timestamp.tolist()
