"""The footer that goes with a segment: written where it is asked for, gone with the segment, never of other bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.batches import Batch
from tests.support.closed_segments import ClosedSegment, golden_segments
from tests.support.manager_configs import KEYS, ZSTD, local_keys
from tests.support.message_set_builder import MessageSetBuilder
from tests.support.segments import FIRST_MS, make_segment, sound_log
from tierlog.errors import ConfigError, StoreError
from tierlog.records import scan
from tierlog.records.decoding import decode
from tierlog.remote.api import RemoteStorageException
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import StoredSegment, Tier, open_tier
from tierlog.remote.tier.objects.custom_metadata import decode_custom_metadata
from tierlog.remote.tier.objects.footer import FooterBatches
from tierlog.upkeep.orphan_search import OrphanKind, OrphanSearch

ON = {"footer.object.enabled": "true"}
SHAPES: Mapping[str, Mapping[str, str]] = {
    "aiven": {},
    "aiven-zstd-aes": ZSTD | KEYS | {"key.prefix": "a/prefix-"},
    "kafka": {"layout": "kafka"},
}


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    log = sound_log(base_offset=100, codecs=("none", "zstd", "lz4", "gzip"))
    return make_segment(log).closed_in(tmp_path_factory.mktemp("made"))


@contextlib.contextmanager
def managing(folder: pathlib.Path, keys: Mapping[str, object]) -> Iterator[TieredStorageManager]:
    with TieredStorageManager() as manager:
        manager.configure(local_keys(folder) | keys)
        yield manager


def objects(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def footer_of(folder: pathlib.Path) -> pathlib.Path:
    (path,) = [path for key, path in objects(folder).items() if key.endswith(".footer")]
    return path


@contextlib.contextmanager
def opened(folder: pathlib.Path, keys: Mapping[str, str]) -> Iterator[tuple[Tier, StoredSegment]]:
    with open_tier(str(folder), config={"key.prefix": "", **keys}) as tier:
        (stored,) = tier.iter_segments()
        yield tier, stored


def require_of(batches: FooterBatches | None, log: bytes) -> None:
    """The batches of a log, as another reader finds them."""
    assert batches is not None
    table, records = scan(log), decode(log)
    assert batches.position.tolist() == table.position.tolist()
    assert batches.base_offset.tolist() == table.base_offset.tolist()
    assert batches.last_offset.tolist() == table.last_offset.tolist()
    assert batches.record_count.tolist() == table.record_count.tolist()
    totals = batches.totals()
    assert (totals.records, totals.least_offset) == (records.num_rows, records["offset"][0].as_py())
    times = records["timestamp"].cast("int64").to_numpy()
    assert (totals.least_timestamp_ms, totals.greatest_timestamp_ms) == (times.min(), times.max())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_copy_writes_it(segment: ClosedSegment, tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, what our storage manager tiers is counted by reading it, or wrongly."""
    with managing(tmp_path, SHAPES[shape] | ON) as manager:
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with opened(tmp_path, SHAPES[shape]) as (tier, stored):
            require_of(tier.footers.fetch_batches(stored), segment.log)
            assert (tier.footers.passed_over, tier.foreign_objects) == (0, 0)
            assert tier.layout == ("kafka" if shape == "kafka" else "aiven")
        if "aes" in shape:
            assert b"TLSF" in footer_of(tmp_path).read_bytes()
            assert FIRST_MS.to_bytes(8, "little") not in footer_of(tmp_path).read_bytes()
        manager.delete_log_segment_data(segment.finished(custom))
        assert objects(tmp_path) == {}


def test_real_segments(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, what Kafka's producers write gets a footer that says something else."""
    count = 0
    for number, segment in enumerate(golden_segments(data / "main-plain")):
        folder = tmp_path / str(number)
        with managing(folder, SHAPES["aiven-zstd-aes"] | ON) as manager:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        with opened(folder, SHAPES["aiven-zstd-aes"]) as (tier, stored):
            require_of(tier.footers.fetch_batches(stored), segment.log)
        count += 1
    assert count == 5


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_off_unless_asked_for(segment: ClosedSegment, tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, every bucket has an object more that the plugin never deletes."""
    with managing(tmp_path, SHAPES[shape]) as manager:
        manager.copy_log_segment_data(segment.metadata, segment.data)
    assert not [key for key in objects(tmp_path) if key.endswith(".footer")]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_written_goes_whatever_is_set_now(segment: ClosedSegment, tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, switching the key off leaves objects in the bucket for ever."""
    with managing(tmp_path, SHAPES[shape] | ON) as manager:
        manager.copy_log_segment_data(segment.metadata, segment.data)
    with managing(tmp_path, SHAPES[shape]) as manager:
        manager.delete_log_segment_data(segment.finished())
    assert objects(tmp_path) == {}


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_what_the_plugin_leaves_is_an_orphan(segment: ClosedSegment, tmp_path: pathlib.Path, layout: str) -> None:
    """If this fails, what a delete by the plugin leaves is found by nobody."""
    with managing(tmp_path, {"layout": layout} | ON) as manager:
        manager.copy_log_segment_data(segment.metadata, segment.data)
    for key, path in objects(tmp_path).items():
        if not key.endswith(".footer"):
            path.unlink()
    with open_tier(str(tmp_path), layout=layout) as tier:
        assert list(tier.iter_segments()) == []
        search = OrphanSearch(tier, older_than_ms=0)
        (orphan,) = search.run().orphans
        assert (orphan.kind, len(orphan.keys)) == (OrphanKind.LEFTOVER, 1)
        assert list(search.delete([orphan])) == [orphan]
    assert objects(tmp_path) == {}


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_its_size_is_counted(segment: ClosedSegment, tmp_path: pathlib.Path, layout: str) -> None:
    """If this fails, a bill by REMOTE_SIZE misses an object a segment, or a retried copy tells another size."""
    keys = {"layout": layout, "custom.metadata.fields.include": "REMOTE_SIZE", "log.index.object.enabled": "true"}
    with managing(tmp_path, keys | ON) as manager:
        customs = [manager.copy_log_segment_data(segment.metadata, segment.data) for _ in range(2)]
        sizes = [decode_custom_metadata(custom, where="").remote_size for custom in customs]
        assert sizes == [sum(path.stat().st_size for path in objects(tmp_path).values())] * 2


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_it_is_there_before_the_segment_is(segment: ClosedSegment, tmp_path: pathlib.Path, layout: str) -> None:
    """If this fails, a copy that dies between leaves a whole segment without the footer that was asked for, or a failed
    one leaves a footer.
    """
    puts: list[str] = []

    def watched(store: Any) -> Any:
        put = store.put

        def noted(key: str, data: Any, **more: Any) -> Any:
            puts.append(key)
            if key.endswith(".footer"):
                assert not [name for name in objects(tmp_path) if name.endswith(("rsm-manifest", "segment.json"))]
            if key.endswith(fails):
                raise StoreError("broken")
            return put(key, data, **more)

        store.put = noted
        return store

    for fails in ((".footer",), ("rsm-manifest", "segment.json"), ()):
        with TieredStorageManager(wrap_store=watched) as manager:
            manager.configure(local_keys(tmp_path) | {"layout": layout} | ON)
            if fails:
                with pytest.raises(RemoteStorageException, match="broken"):
                    manager.copy_log_segment_data(segment.metadata, segment.data)
                assert objects(tmp_path) == {}
            else:
                manager.copy_log_segment_data(segment.metadata, segment.data)
    assert puts[-2].endswith(".footer")
    assert puts[-1].endswith(("rsm-manifest", "segment.json"))


def test_a_copy_that_follows_another_has_its_own(segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """If this fails, a footer that a dead copy left is taken for that of the next one."""
    with managing(tmp_path, SHAPES["aiven-zstd-aes"] | ON) as manager:
        manager.copy_log_segment_data(segment.metadata, segment.data)
        left = footer_of(tmp_path).read_bytes()
        for key, path in objects(tmp_path).items():
            if key.endswith("rsm-manifest"):
                path.unlink()
        manager.copy_log_segment_data(segment.metadata, segment.data)
        assert footer_of(tmp_path).read_bytes() != left
    with opened(tmp_path, SHAPES["aiven-zstd-aes"]) as (tier, stored):
        require_of(tier.footers.fetch_batches(stored), segment.log)
    footer_of(tmp_path).write_bytes(left)
    with opened(tmp_path, SHAPES["aiven-zstd-aes"]) as (tier, stored):
        assert tier.footers.fetch_batches(stored) is None
        assert tier.footers.passed_over == 1


def test_old_formats_are_copied_without(tmp_path: pathlib.Path) -> None:
    """If this fails, a log of an old broker cannot be tiered, or is counted by its wrappers."""
    builder = MessageSetBuilder(1, base_offset=0)
    builder.append(None, b"v", timestamp_ms=FIRST_MS)
    old = builder.build()
    new = make_segment([Batch(1, (b"a",), timestamp_ms=FIRST_MS)])
    made = dataclasses.replace(
        new,
        log=old + new.log,
        metadata=dataclasses.replace(
            new.metadata, start_offset=0, segment_size_in_bytes=len(old + new.log), segment_leader_epochs={0: 0}
        ),
    )
    closed = made.closed_in(tmp_path / "log")
    with managing(tmp_path / "bucket", ON) as manager:
        manager.copy_log_segment_data(closed.metadata, closed.data)
    keys = objects(tmp_path / "bucket")
    assert len(keys) == 3
    assert not [key for key in keys if key.endswith("footer")]


def test_it_needs_checked_batches() -> None:
    """If this fails, a count is believed that nobody has checked."""
    with pytest.raises(ConfigError, match=r"copy\.source\.verification\.enabled must be enabled"):
        read_storage_config(ON | {"copy.source.verification.enabled": "false"})
