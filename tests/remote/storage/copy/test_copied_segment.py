"""Deletion: the description first, under every place where the segment may be, and again until all is gone."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tierlog.errors import CorruptObjectError, StoreError, StoreUnavailableError
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.copy.copied_segment import delete_segment
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

CUSTOM = {"custom.metadata.fields.include": "OBJECT_PREFIX,OBJECT_KEY", "key.prefix": "old/"}


@pytest.fixture
def bucket() -> Iterator[ObjectStore]:
    store = open_store(f"memory://{uuid.uuid4()}")
    yield store
    store.close()


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")


def copied(bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path, **keys: str) -> bytes | None:
    with TieredStorageManager(wrap_store=lambda _: Unclosed(bucket)) as manager:
        manager.configure(local_keys(tmp_path / "unused") | keys)
        return manager.copy_log_segment_data(segment.metadata, segment.data)


class Unclosed(PassingStore):
    """The same store; closing it does nothing."""

    def close(self) -> None:
        """The fixture's to do."""


class Recording(Unclosed):
    """Notes deletions, and refuses keys that end so."""

    def __init__(self, store: ObjectStore, refused: str = "") -> None:
        super().__init__(store)
        self.deleted: list[list[str]] = []
        self.refused = refused

    def delete(self, keys: Sequence[str]) -> None:
        self.deleted.append(list(keys))
        if self.refused and any(key.endswith(self.refused) for key in keys):
            super().delete([key for key in keys if not key.endswith(self.refused)])
            raise StoreUnavailableError(f"injected: {self.refused} stays")
        super().delete(keys)


@pytest.mark.parametrize("shape", ["aiven-plain", "kafka"])
def test_the_description_goes_first(
    shape: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A reader that finds a manifest fetches its log: that must be there, then."""
    copied(bucket, segment, tmp_path, **SHAPES[shape])
    store = Recording(bucket)
    config = read_storage_config(local_keys(tmp_path / "unused") | SHAPES[shape])
    delete_segment(store, config, segment.finished())  # type: ignore[arg-type]
    assert [key.endswith(("rsm-manifest", "segment.json")) for key in store.deleted[0]] == [True]
    assert not any(key.endswith(("rsm-manifest", "segment.json")) for key in store.deleted[1])
    assert list(bucket.iter_objects()) == []
    delete_segment(store, config, segment.finished())  # type: ignore[arg-type]


def test_a_description_that_stays_keeps_the_rest(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """Half a deletion from the wrong end is a segment that is listed and cannot be read."""
    copied(bucket, segment, tmp_path)
    config = read_storage_config(local_keys(tmp_path / "unused"))
    store = Recording(bucket, "rsm-manifest")
    with pytest.raises(StoreUnavailableError):
        delete_segment(store, config, segment.finished())  # type: ignore[arg-type]
    assert len(list(bucket.iter_objects())) == 3
    store.refused = ".log"
    with pytest.raises(StoreUnavailableError):
        delete_segment(store, config, segment.finished())  # type: ignore[arg-type]
    assert [info.key[-4:] for info in bucket.iter_objects()] == [".log"]
    store.refused = ""
    delete_segment(store, config, segment.finished())  # type: ignore[arg-type]
    assert list(bucket.iter_objects()) == []


def test_segments_of_before_a_change_of_prefix_are_removed(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """The plugin says they are gone, and leaves them for ever."""
    custom = copied(bucket, segment, tmp_path, **CUSTOM)
    assert all(info.key.startswith("old/") for info in bucket.iter_objects())
    config = read_storage_config(local_keys(tmp_path / "unused") | {"key.prefix": "new/"})
    delete_segment(bucket, config, segment.finished(custom))
    assert list(bucket.iter_objects()) == []


def test_damaged_custom_metadata_is_told_and_the_configured_place_emptied(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A deletion that only fails keeps its objects for ever; one that says nothing hides that some may be left."""
    copied(bucket, segment, tmp_path)
    config = read_storage_config(local_keys(tmp_path / "unused"))
    with pytest.raises(CorruptObjectError):
        delete_segment(bucket, config, segment.finished(b"\x02\x01\xff"))
    assert list(bucket.iter_objects()) == []


def test_uploads_go_too_where_they_are_asked_for(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """Parts that nobody sees are paid for."""
    config = read_storage_config(local_keys(tmp_path / "unused"))
    copied(bucket, segment, tmp_path)
    key = next(info.key for info in bucket.iter_objects() if info.key.endswith(".log"))
    bucket.begin_upload(key, part_bytes=1 << 20).put_part(1, [b"x"])
    other = replace(segment.metadata, start_offset=0)
    assert other != segment.metadata
    delete_segment(bucket, config, segment.finished(), uploads_too=True)
    assert list(bucket.iter_uploads()) == []
    assert list(bucket.iter_objects()) == []


def test_an_error_of_uploads_is_no_success(bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """Kafka repeats a deletion that failed, and never one that did not."""

    class NoUploads(Unclosed):
        def iter_uploads(self, prefix: str = "") -> Iterator[object]:
            raise StoreError("injected: no listing")

    config = read_storage_config(local_keys(tmp_path / "unused"))
    with pytest.raises(StoreError, match="no listing"):
        delete_segment(NoUploads(bucket), config, segment.finished(), uploads_too=True)  # type: ignore[arg-type]
