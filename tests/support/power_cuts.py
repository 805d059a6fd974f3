"""A disk in memory for power cuts: what lies on it, and how the manager is configured."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import KEYS
from tests.support.segments import make_segment, sound_log
from tierlog.runtime.simulated.memory_files import MemoryFiles

CONFIG = {
    "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
    "storage.root": "/bucket",
    "chunk.size": "16384",
    "broker.id": 1,
    "fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache",
    "fetch.chunk.cache.path": "/cache",
    "fetch.chunk.cache.size": "100000",
    "fetch.chunk.cache.prefetch.max.size": "65536",
}


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    return make_segment(sound_log(40, base_offset=100)).closed_in(tmp_path_factory.mktemp("made"))


def disk_with(segment: ClosedSegment) -> MemoryFiles:
    """A disk on which the broker's segment and the keys lie, and the bucket is empty."""
    files = MemoryFiles()
    data = segment.data
    for path in (data.log_segment, data.offset_index, data.time_index, data.producer_snapshot):
        files.put(path, pathlib.Path(path).read_bytes())
    for name, path in KEYS.items():
        if name.endswith(".file"):
            files.put(path, pathlib.Path(path).read_bytes())
    files.make_directories("/bucket")
    files.make_directories("/cache")
    return files
