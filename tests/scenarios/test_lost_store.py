"""A tier whose folder is gone while it is open: everything may come back, so nothing of it is "not found"."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tests.support.golden import config_of
from tests.support.segments import make_segment, sound_log
from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import IndexType, RetriableRemoteStorageException
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import open_tier


@pytest.mark.parametrize("chunked", [True, False])
def test_a_segment_is_unavailable_and_not_deleted(tmp_path: pathlib.Path, chunked: bool) -> None:
    """If this fails, a broker whose mount is away for a minute reads for ever that its segments are gone."""
    segment = make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")
    root = tmp_path / "store"
    root.mkdir()
    with TieredStorageManager() as manager:
        manager.configure(
            {
                "storage.backend.class": "filesystem",
                "storage.root": str(root),
                "chunk.size": "4096",
                "compression.enabled": str(chunked).lower(),
            }
        )
        metadata = segment.finished(manager.copy_log_segment_data(segment.metadata, segment.data))
        root.rename(tmp_path / "away")
        for _ in range(2):
            with pytest.raises(RetriableRemoteStorageException, match="folder is gone"):
                manager.fetch_log_segment(metadata, 0).read()
        with pytest.raises(RetriableRemoteStorageException, match="folder is gone"):
            manager.fetch_index(metadata, IndexType.OFFSET)
        with pytest.raises(RetriableRemoteStorageException, match="folder is gone"):
            manager.delete_log_segment_data(metadata)
        another = segment.with_id(9)
        with pytest.raises(RetriableRemoteStorageException, match="folder is gone"):
            manager.copy_log_segment_data(another.metadata, another.data)
        (tmp_path / "away").rename(root)
        with manager.fetch_log_segment(metadata, 0) as stream:
            assert stream.read() == segment.log


@pytest.mark.parametrize(
    ("folder", "layout"),
    [("local-tiered/objects", "local-tiered"), ("main-plain/objects", "aiven"), ("compacted", "log-dir")],
)
def test_readers_are_told_so(data: pathlib.Path, tmp_path: pathlib.Path, folder: str, layout: str) -> None:
    """If this fails, a scan of a folder that is not mounted any more ends as if its segments had expired."""
    run = data / folder.partition("/")[0]
    root = tmp_path / "tier"
    shutil.copytree(data / folder, root)
    config = config_of(run) or {} if (run / "config.json").exists() else {}
    with open_tier(str(root), layout=layout, config=config) as tier:
        segment = next(iter(tier.iter_segments()))
        for _ in tier.iter_log_windows(segment):
            pass
        root.rename(tmp_path / "away")
        with pytest.raises(StoreUnavailableError, match="folder is gone"):
            for _ in tier.iter_log_windows(segment):
                pass
        with pytest.raises(StoreUnavailableError, match="folder is gone"):
            list(tier.iter_segments())
