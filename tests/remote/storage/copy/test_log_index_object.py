"""The entry of the remote log index that goes with a segment, and a follower's index that is made of them."""

from __future__ import annotations

import contextlib
import pathlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import KEYS, ZSTD, local_keys
from tests.support.segments import FIRST_MS, make_segment, sound_log
from tierlog.errors import CorruptObjectError, SizeLimitError, StoreError
from tierlog.log.formats.remote_log_index_entry import (
    RemoteLogIndexEntry,
    iter_entries,
    parse_identifier,
)
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteResourceNotFoundException, RemoteStorageException
from tierlog.remote.config import read_storage_config
from tierlog.remote.log_index.partition_index import RemoteLogIndex, append_segments
from tierlog.remote.storage.copy.copied_segment import (
    OBJECT_BYTES_MAX,
    fetch_log_index,
    first_timestamp_ms,
    segment_entry,
)
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.layouts.segment_objects import log_index_keys
from tierlog.remote.tier.objects.custom_metadata import decode_custom_metadata
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.upkeep.orphan_search import OrphanKind, OrphanSearch

ON = {"log.index.object.enabled": "true"}
SHAPES: Mapping[str, Mapping[str, str]] = {
    "aiven": {},
    "aiven-zstd-aes": ZSTD | KEYS | {"key.prefix": "a/prefix-"},
    "kafka": {"layout": "kafka"},
}


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path_factory.mktemp("made"))


@contextlib.contextmanager
def managing(folder: pathlib.Path, keys: Mapping[str, object]) -> Iterator[TieredStorageManager]:
    with TieredStorageManager() as manager:
        manager.configure(local_keys(folder) | keys)
        yield manager


def objects(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def shipped(folder: pathlib.Path) -> tuple[str, pathlib.Path]:
    ((key, path),) = [(key, path) for key, path in objects(folder).items() if key.endswith(".remoteLogIndex")]
    return key, path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_copy_ships_its_entry(segment: ClosedSegment, tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, followers cannot build their index, or read the wrong object by it."""
    with managing(tmp_path, SHAPES[shape] | ON) as manager:
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        key, path = shipped(tmp_path)
        ((_, entry),) = iter_entries(path.read_bytes())
        log_key, position = parse_identifier(entry.identifier)
        assert key.removesuffix("remoteLogIndex") == log_key.removesuffix("log")
        assert position == 0
        assert entry.data_length == objects(tmp_path)[log_key].stat().st_size
        assert (entry.first_offset, entry.last_offset) == (segment.metadata.start_offset, segment.metadata.end_offset)
        assert (entry.first_timestamp_ms, entry.last_timestamp_ms) == (FIRST_MS, segment.metadata.max_timestamp_ms)
        assert manager.fetch_log_index(segment.finished(custom)) == (entry,)
        with open_tier(
            str(tmp_path), config=SHAPES[shape] | {"key.prefix": SHAPES[shape].get("key.prefix", "")}
        ) as tier:
            (stored,) = tier.iter_segments()
            assert b"".join(bytes(window) for _, window in tier.iter_log_windows(stored)) == segment.log
            assert tier.foreign_objects == 0
        manager.delete_log_segment_data(segment.finished(custom))
        assert objects(tmp_path) == {}
        with pytest.raises(RemoteResourceNotFoundException):
            manager.fetch_log_index(segment.finished(custom))


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_off_unless_asked_for(segment: ClosedSegment, tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, every bucket has an object more that the plugin never deletes."""
    with managing(tmp_path, SHAPES[shape]) as manager:
        manager.copy_log_segment_data(segment.metadata, segment.data)
        assert not [key for key in objects(tmp_path) if key.endswith(".remoteLogIndex")]
        with pytest.raises(RemoteResourceNotFoundException):
            manager.fetch_log_index(segment.metadata)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_shipped_goes_whatever_is_set_now(segment: ClosedSegment, tmp_path: pathlib.Path, shape: str) -> None:
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
        if not key.endswith(".remoteLogIndex"):
            path.unlink()
    with open_tier(str(tmp_path), layout=layout) as tier:
        search = OrphanSearch(tier, older_than_ms=0)
        (orphan,) = search.run().orphans
        assert (orphan.kind, orphan.keys) == (OrphanKind.LEFTOVER, (shipped(tmp_path)[0],))
        assert list(search.delete([orphan])) == [orphan]
    assert objects(tmp_path) == {}


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_its_size_is_counted(segment: ClosedSegment, tmp_path: pathlib.Path, layout: str) -> None:
    """If this fails, a bill by REMOTE_SIZE misses an object a segment, or a retried copy tells another size."""
    keys = {"layout": layout, "custom.metadata.fields.include": "REMOTE_SIZE"}
    with managing(tmp_path, keys | ON) as manager:
        customs = [manager.copy_log_segment_data(segment.metadata, segment.data) for _ in range(2)]
        sizes = [decode_custom_metadata(custom, where="").remote_size for custom in customs]
        assert sizes == [sum(path.stat().st_size for path in objects(tmp_path).values())] * 2
        shipped(tmp_path)[1].unlink()
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        total = sum(path.stat().st_size for path in objects(tmp_path).values())
        assert decode_custom_metadata(custom, where="").remote_size == total


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_it_is_there_before_the_segment_is(segment: ClosedSegment, tmp_path: pathlib.Path, layout: str) -> None:
    """If this fails, a copy that dies between leaves a whole segment that no follower's index ever has."""
    puts: list[str] = []

    def watched(store: Any) -> Any:
        put = store.put

        def noted(key: str, data: Any, **more: Any) -> Any:
            puts.append(key)
            if key.endswith(".remoteLogIndex"):
                assert not [name for name in objects(tmp_path) if name.endswith(("rsm-manifest", "segment.json"))]
            if fails and key.endswith(".remoteLogIndex"):
                raise StoreError("broken")
            return put(key, data, **more)

        store.put = noted
        return store

    for fails in (True, False):
        with TieredStorageManager(wrap_store=watched) as manager:
            manager.configure(local_keys(tmp_path) | {"layout": layout} | ON)
            if fails:
                with pytest.raises(RemoteStorageException, match="broken"):
                    manager.copy_log_segment_data(segment.metadata, segment.data)
                assert objects(tmp_path) == {}
            else:
                manager.copy_log_segment_data(segment.metadata, segment.data)
    assert puts[-2].endswith(".remoteLogIndex")
    assert puts[-1].endswith(("rsm-manifest", "segment.json"))


class Placed:
    """A store in memory with one object at the place of a segment's entry."""

    def __init__(self, metadata: RemoteLogSegmentMetadata) -> None:
        files = MemoryFiles(ManualClock())
        files.make_directories("/bucket")
        self.config = read_storage_config({"chunk.size": "100"})
        self.metadata = metadata
        self.store = LocalStore("/bucket", Machine(clock=files.clock, files=files))

    def fetch(self, content: bytes) -> tuple[RemoteLogIndexEntry, ...]:
        (place,) = log_index_keys(self.config, self.metadata)
        self.store.put(place, content)
        return fetch_log_index(self.store, self.config, self.metadata)


def entry_of(metadata: RemoteLogSegmentMetadata) -> RemoteLogIndexEntry:
    return segment_entry(metadata, log_key="k.log", stored_bytes=3, first_timestamp_ms=1)


@given(st.binary(max_size=150))
def test_no_object_does_harm(segment: ClosedSegment, junk: bytes) -> None:
    """If this fails, an object that somebody changed ends the follower's task with an unexpected error."""
    with pytest.raises(CorruptObjectError):
        Placed(segment.metadata).fetch(junk)


def test_an_object_of_another_segment_is_refused(segment: ClosedSegment) -> None:
    """If this fails, a swapped object puts offsets into the index that the segment does not have."""
    metadata = segment.metadata
    placed, entry = Placed(metadata), entry_of(metadata)
    halves = [replace(entry, last_offset=110), replace(entry, first_offset=111)]
    assert placed.fetch(b"".join(half.encode() for half in halves)) == tuple(halves)
    for wrong in (
        replace(entry, first_offset=metadata.start_offset - 1),
        replace(entry, last_offset=metadata.end_offset + 1),
    ):
        with pytest.raises(CorruptObjectError, match="the segment has"):
            placed.fetch(wrong.encode())
    with pytest.raises(SizeLimitError):
        placed.fetch(bytes(OBJECT_BYTES_MAX + 1))


def test_an_object_of_more_than_an_entry_can_say(segment: ClosedSegment) -> None:
    """If this fails, a copy of a segment near 2 GiB fails for the sake of an index that nobody needs."""
    entry = segment_entry(segment.metadata, log_key="k.log", stored_bytes=2**31 + 5, first_timestamp_ms=-1)
    assert entry.data_length == 2**31 - 1


def test_the_first_timestamp() -> None:
    """If this fails, the entry of an old segment has the bytes of something else for a time."""
    files = MemoryFiles(ManualClock())

    def of(content: bytes) -> int:
        files.put("/log", content)
        with files.open_read("/log") as log:
            return first_timestamp_ms(log)

    def header(magic: int, attributes: int) -> bytes:
        return struct.pack(">qiibIhiqqqhii", 0, 100, 0, magic, 0, attributes, 0, 1000, 2000, -1, -1, -1, 1)

    def old(magic: int, size_bytes: int) -> bytes:
        return struct.pack(">qiIbbq", 0, size_bytes - 12, 0, magic, 0, 1500)

    assert of(header(2, 0)) == 1000
    assert of(header(2, 8)) == 2000
    assert of(old(1, 112).ljust(112, b"v")) == 1500
    assert of(old(1, 40).ljust(40, b"v")) == 1500
    assert of(old(0, 112).ljust(112, b"v")) == -1
    assert of(header(3, 0)) == -1
    assert of(header(2, 0)[:-1]) == -1
    assert of(b"") == -1


def test_a_follower_has_what_the_leader_has(tmp_path: pathlib.Path) -> None:
    """If this fails, a follower that becomes leader does not know what is in the tier."""
    made = [
        make_segment(sound_log(10, base_offset=base)).closed_in(tmp_path / str(base)) for base in (100, 120, 140, 160)
    ]
    finished = [each.finished() for each in made]
    leader, follower = tmp_path / "leader", tmp_path / "follower"
    for folder in (leader, follower):
        folder.mkdir()
    ours, theirs = RemoteLogIndex(str(leader)), RemoteLogIndex(str(follower))
    with managing(tmp_path / "bucket", ON) as manager:
        for each in made[:3]:
            manager.copy_log_segment_data(each.metadata, each.data)
            ours.append(manager.fetch_log_index(each.finished()))
        assert append_segments(theirs, finished[:2], manager.fetch_log_index) == []
        assert append_segments(theirs, finished[:3], manager.fetch_log_index) == []
        assert list(theirs.iter_entries()) == list(ours.iter_entries())
        assert [path.read_bytes() for path in sorted(follower.iterdir())] == [
            path.read_bytes() for path in sorted(leader.iterdir())
        ]
        assert append_segments(theirs, finished, manager.fetch_log_index) == finished[3:]
    found = RemoteLogIndex(str(follower)).find_entry(125)
    assert found is not None
    assert parse_identifier(found.identifier)[0].endswith(f"{finished[1].remote_log_segment_id.id}.log")
