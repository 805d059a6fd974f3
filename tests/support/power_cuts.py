"""A disk in memory that loses power at a chosen access."""

from __future__ import annotations

import contextlib
import pathlib

import pytest

from tests.support.closed_segments import ClosedSegment, made_segment
from tests.support.manager_configs import KEYS
from tierlog.runtime.machine.randomness import SeededRng
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
    return made_segment(tmp_path_factory.mktemp("made"), batches=40)


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


class PowerCut:
    """Ends the life of a disk at its n-th access; ``left`` is what the next life finds."""

    def __init__(self, files: MemoryFiles, seed: int, accesses: int) -> None:
        self.left: MemoryFiles | None = None
        self.accesses = 0
        self._files, self._seed = files, seed
        self._held = files._disk.held

        def watched() -> contextlib.AbstractContextManager[None]:
            self.accesses += 1
            if self.accesses == accesses:
                self.cut()
            return self._held()

        files._disk.held = watched  # type: ignore[method-assign]

    def cut(self) -> MemoryFiles:
        """Now, unless it has come."""
        if self.left is None:
            self._files._disk.held = self._held  # type: ignore[method-assign]
            self.left = self._files.crash(SeededRng(self._seed))
        return self.left
