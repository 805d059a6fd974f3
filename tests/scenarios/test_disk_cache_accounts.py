"""What the disk cache accounts and what lies on the disk, while many write, evict, forget and fail at once."""

from __future__ import annotations

import logging
import os
import pathlib
import random
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tierlog.errors import StoreError
from tierlog.remote.storage.cache.disk_chunk_cache import PAUSE_SECONDS, DiskChunkCache
from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles


def chunk_of(number: int) -> memoryview:
    return memoryview(random.Random(number).randbytes(600 + number * 37))


def bytes_in(files: MemoryFiles) -> int:
    """Of all files of the cache, those that are being written among them; a lock is empty."""
    folders = [entry.path for entry in files.iter_directory("/cache/tierlog-chunks") if entry.is_directory]
    return sum(entry.size_bytes for folder in folders for entry in files.iter_directory(folder))


class ShakyFiles:
    """Files in memory: everybody may go on at each call, and a call may fail, before or after it was done by half."""

    def __init__(
        self, files: MemoryFiles, scheduler: ManualScheduler, chance: random.Random, fault_rate: float
    ) -> None:
        self.files = files
        self._scheduler = scheduler
        self._chance = chance
        self.fault_rate = fault_rate
        self.bytes_max = -1

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.files, name)
        return self._shaky(found) if name in {"rename", "remove", "make_directories", "read_range"} else found

    def _shaky(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def shaky(*args: Any, **more: Any) -> Any:
            self.step()
            return call(*args, **more)

        return shaky

    def open_update(self, path: str, **more: Any) -> UpdatableFile:
        self.step()
        return ShakyFile(self.files.open_update(path, **more), self)  # type: ignore[return-value]

    def step(self) -> None:
        """Somebody else's turn, and perhaps a fault."""
        self._scheduler.may_switch()
        if self.bytes_max >= 0:
            self.bytes_max = max(self.bytes_max, bytes_in(self.files))
        if self._chance.random() < self.fault_rate:
            raise StoreError("injected")


class ShakyFile:
    """An open file of ShakyFiles."""

    def __init__(self, file: UpdatableFile, files: ShakyFiles) -> None:
        self._file = file
        self._files = files

    def append(self, data: memoryview | bytes) -> int:
        view = memoryview(data)
        self._file.append(view[: len(view) // 2])
        self._files.step()
        return self._file.append(view[len(view) // 2 :])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@given(seed=st.integers(0, 1 << 32), fault_rate=st.sampled_from([0.0, 0.02, 0.2]), limit=st.sampled_from([4000, 9000]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_accounted_is_what_is_there(
    seed: int, fault_rate: float, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, the cache takes more of the disk than it may, or less and less of what it may, until a restart."""
    caplog.set_level(logging.CRITICAL)
    machine, scheduler = ManualScheduler.machine(seed)
    assert isinstance(machine.files, MemoryFiles)
    memory = machine.files
    memory.make_directories("/cache")
    files = ShakyFiles(memory, scheduler, random.Random(seed), 0.0)
    shaky = Machine(machine.clock, machine.rng, scheduler, files, machine.process)  # type: ignore[arg-type]
    damaged: list[int] = []
    cache = DiskChunkCache("/cache", limit, machine=shaky, on_damage=lambda: damaged.append(1))
    files.fault_rate, files.bytes_max = fault_rate, 0

    def work(number: int) -> None:
        chance = random.Random(seed + number)
        for _ in range(30):
            wanted = chance.randrange(12)
            key = ChunkKey("a.log", wanted)
            found = cache.find(key)
            assert found is None or found == chunk_of(wanted)
            if found is None:
                cache.put(key, chunk_of(wanted))
            if chance.random() < 0.1:
                cache.drop(key)
            elif chance.random() < 0.05:
                cache.forget("a.log")
            if fault_rate:
                machine.clock.sleep(chance.choice([0.0, PAUSE_SECONDS]))
            assert cache.disk_bytes <= limit

    with scheduler:
        pool = scheduler.pool(4, name="writer")
        for one in [pool.submit(lambda number=number: work(number)) for number in range(4)]:
            one.result()
        pool.close()
        files.fault_rate = 0.0
        machine.clock.sleep(PAUSE_SECONDS)
        cache.put(ChunkKey("b.log", 1), chunk_of(1))  # which removes what could not be removed before
        assert files.bytes_max <= limit
        assert bytes_in(memory) == cache.disk_bytes == cache.figures.size_bytes
        files.bytes_max = -1
        there = sum(cache.find(ChunkKey("a.log", number)) is not None for number in range(12))
        assert there == cache.figures.entries - 1
        if not fault_rate:
            assert cache._paused_until_seconds < 0
        cache.close()
        again = DiskChunkCache("/cache", limit, machine=shaky)
        assert bytes_in(memory) == again.disk_bytes == again.figures.size_bytes
        assert again.find(ChunkKey("b.log", 1)) == chunk_of(1)
        again.close()


def test_threads_that_write_the_same_chunks(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, two readers of one log make the cache rest for half a minute, and it forgets what it holds."""
    cache = DiskChunkCache(str(tmp_path), 12 * 3000, machine=Machine())
    wrong: list[int] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(600):
            wanted = chance.randrange(30 if number % 2 else 4)
            found = cache.find(ChunkKey("a.log", wanted))
            if found is None:
                cache.put(ChunkKey("a.log", wanted), chunk_of(wanted))
            elif found != chunk_of(wanted):
                wrong.append(wanted)
            if chance.random() < 0.01:
                cache.forget("a.log")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    with caplog.at_level(logging.WARNING):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not caplog.records
    assert not wrong
    on_disk = sum(path.stat().st_size for path in (tmp_path / "tierlog-chunks").rglob("*.chunk*"))
    assert on_disk == cache.disk_bytes == cache.figures.size_bytes <= 12 * 3000
    cache.close()


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_files_are_for_their_owner_alone(tmp_path: pathlib.Path) -> None:
    """If this fails, every user of the host reads what consumers read, where the cache is in the clear."""
    cache = DiskChunkCache(str(tmp_path), 1 << 20, machine=Machine(), encrypted=False)
    cache.put(ChunkKey("a.log", 1), chunk_of(1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tierlog-chunks").rglob("*")}
    assert len(modes) == 3
    assert {mode for name, mode in modes.items() if name.endswith(".chunk")} == {0o600}
    assert {mode for name, mode in modes.items() if len(name) == 2} == {0o700}
    assert stat.S_IMODE((tmp_path / "tierlog-chunks").stat().st_mode) == 0o700
    cache.close()


def test_nothing_is_fsynced(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, each chunk that is cached waits for a disk that is the broker's log's too."""
    fsyncs: list[int] = []
    monkeypatch.setattr(os, "fsync", fsyncs.append)
    cache = DiskChunkCache(str(tmp_path), 1 << 20, machine=Machine())
    for number in range(20):
        cache.put(ChunkKey("a.log", number), chunk_of(number))
        assert cache.find(ChunkKey("a.log", number)) == chunk_of(number)
    assert fsyncs == []
    cache.close()


def test_what_breaks_in_the_middle_is_not_accounted(tmp_path: pathlib.Path) -> None:
    """If this fails, an interrupt, or memory that is short, costs a chunk's room and its place until a restart."""

    class Breaking(PosixFiles):
        is_broken = True

        def rename(self, source: str, target: str, *, durable: bool = True) -> None:
            if self.is_broken:
                raise MemoryError
            super().rename(source, target, durable=durable)

    files = Breaking()
    cache = DiskChunkCache(str(tmp_path), 1 << 20, machine=Machine(files=files))
    with suppress(MemoryError):
        cache.put(ChunkKey("a.log", 1), chunk_of(1))
    assert cache.disk_bytes == cache.figures.size_bytes == 0
    assert list(tmp_path.rglob("*.chunk*")) == []
    files.is_broken = False
    cache.put(ChunkKey("a.log", 1), chunk_of(1))
    assert cache.find(ChunkKey("a.log", 1)) == chunk_of(1)
    cache.close()
