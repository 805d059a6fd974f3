"""The cache on a disk: what it survives, what it never exceeds, what it leaves alone."""

from __future__ import annotations

import logging
import pathlib
import random
from typing import Any

import pytest

from tests.support.fetchers import MIB, MemoryBucket, fetcher_over, segment_of
from tests.support.waiting import wait_until
from tierlog.errors import ConfigError, StoreError
from tierlog.remote.storage.cache.disk_chunk_cache import PAUSE_SECONDS, DiskChunkCache
from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.runtime.machine.posix_files import PosixFiles

HEADER_MAX = 200


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(p for p in (path / "tierlog-chunks").rglob("*.chunk*") if p.is_file())


def cache_in(path: pathlib.Path, size: int = MIB, machine: Machine | None = None, **more: Any) -> DiskChunkCache:
    return DiskChunkCache(str(path), size, machine=machine or Machine(clock=ManualClock()), **more)


def chunk_of(number: int, size: int = 5000) -> memoryview:
    return memoryview(random.Random(number).randbytes(size))


class TestRestart:
    """Hours of downloads."""

    def test_chunks_are_there_again(self, tmp_path: pathlib.Path) -> None:
        """If this fails, each restart of a broker empties its cache, as with the plugin."""
        cache = cache_in(tmp_path)
        for number in range(20):
            cache.put(ChunkKey("topic/a.log", number), chunk_of(number))
        cache.close()
        again = cache_in(tmp_path)
        for number in range(20):
            found = again.find(ChunkKey("topic/a.log", number))
            assert found == chunk_of(number)
            assert found is not None
            assert found.readonly
        assert again.find(ChunkKey("topic/b.log", 0)) is None
        again.close()

    def test_a_smaller_limit_holds_from_the_start(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a cache that was made smaller stays as large as it was."""
        cache = cache_in(tmp_path)
        for number in range(20):
            cache.put(ChunkKey("a.log", number), chunk_of(number))
        cache.close()
        again = cache_in(tmp_path, 30_000)
        assert sum(file.stat().st_size for file in files_of(tmp_path)) == again.figures.size_bytes <= 30_000
        again.close()

    def test_half_written_files_are_removed_and_foreign_ones_are_not(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a crash leaks disk, or the operator's own files are deleted, as by the plugin."""
        cache = cache_in(tmp_path)
        cache.put(ChunkKey("a.log", 1), chunk_of(1))
        cache.close()
        file = files_of(tmp_path)[0]
        half = file.with_name(file.name.replace("-1.0.chunk", "-2.0.chunk.new"))
        half.write_bytes(b"half")
        foreign = [tmp_path / "notes.txt", tmp_path / "tierlog-chunks" / "notes.txt", file.with_name("x.chunk")]
        for path in foreign:
            path.write_text("mine")
        cache_in(tmp_path).close()
        assert not half.exists()
        assert file.exists()
        assert all(path.read_text() == "mine" for path in foreign)

    def test_folders_of_others_are_neither_counted_nor_touched(self, tmp_path: pathlib.Path) -> None:
        """If this fails, what an operator put beside the chunks is deleted, or hides chunks from the next process."""
        cache = cache_in(tmp_path)
        keys = [ChunkKey(f"{number}.log", 1) for number in range(20)]
        for number, key in enumerate(keys):
            cache.put(key, chunk_of(number))
        held = cache.figures
        cache.close()
        root = tmp_path / "tierlog-chunks"
        ours = files_of(tmp_path)[0]
        foreign = [root / "backup" / ours.name, root / "backup" / f"{ours.name}.new", root / "zz", root / "00"]
        for path in foreign:
            path.parent.mkdir(exist_ok=True)
            path.write_text("mine")
        again = cache_in(tmp_path)
        assert again.disk_bytes == again.figures.size_bytes == held.size_bytes
        assert [again.find(key) for key in keys] == [chunk_of(number) for number in range(20)]
        again.close()
        assert [path.read_text() for path in foreign] == ["mine"] * 4

    def test_damaged_files_are_misses(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a bad disk block is served as a consumer's records."""
        cache = cache_in(tmp_path)
        chance = random.Random(1)
        for number in range(40):
            cache.put(ChunkKey("a.log", number), chunk_of(number))
        cache.close()
        for number, file in enumerate(files_of(tmp_path)):
            data = bytearray(file.read_bytes())
            if number % 3 == 0:
                del data[chance.randrange(len(data)) :]
            elif number % 3 == 1:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            else:
                data += b"more"
            file.write_bytes(bytes(data))
        damaged: list[int] = []
        again = cache_in(tmp_path, on_damage=lambda: damaged.append(1))
        assert [again.find(ChunkKey("a.log", number)) for number in range(40)] == [None] * 40
        assert len(damaged) == 40
        assert files_of(tmp_path) == []
        again.put(ChunkKey("a.log", 1), chunk_of(1))
        assert again.find(ChunkKey("a.log", 1)) == chunk_of(1)
        again.close()

    def test_a_file_under_another_name_is_a_miss(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a file that was moved serves one chunk as another."""
        cache = cache_in(tmp_path)
        for number in (1, 2):
            cache.put(ChunkKey("a.log", number), chunk_of(number))
        first, second = files_of(tmp_path)
        second.write_bytes(first.read_bytes())
        assert cache.find(ChunkKey("a.log", 1)) == chunk_of(1)
        assert cache.find(ChunkKey("a.log", 2)) is None
        cache.close()


class TestBounds:
    """A disk that is shared with the broker's log."""

    def test_the_files_never_take_more_than_the_limit(self, tmp_path: pathlib.Path) -> None:
        """If this fails, the cache fills the disk that the broker writes to."""
        largest = 0

        class Measuring(PosixFiles):
            def rename(self, source: str, target: str, *, durable: bool = True) -> None:
                nonlocal largest
                super().rename(source, target, durable=durable)
                largest = max(largest, sum(file.stat().st_size for file in files_of(tmp_path)))

        cache = cache_in(tmp_path, 60_000, Machine(clock=ManualClock(), files=Measuring()))
        chance = random.Random(2)
        for _ in range(300):
            number = chance.randrange(100)
            if cache.find(ChunkKey("a.log", number)) is None:
                cache.put(ChunkKey("a.log", number), chunk_of(number, 1000 + number * 50))
        assert 50_000 < largest <= 60_000
        assert sum(file.stat().st_size for file in files_of(tmp_path)) == cache.figures.size_bytes
        cache.close()

    def test_the_last_byte_of_the_limit_can_be_used(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a cache that was sized to hold so many chunks holds one less."""
        cache = cache_in(tmp_path)
        cache.put(ChunkKey("a.log", 1), chunk_of(1))
        limit = 2 * cache.disk_bytes
        cache.close()
        cache = cache_in(tmp_path, limit)
        cache.put(ChunkKey("a.log", 2), chunk_of(2))
        assert (cache.disk_bytes, cache.figures.entries) == (limit, 2)
        cache.put(ChunkKey("a.log", 3), chunk_of(3))
        assert (cache.disk_bytes, cache.figures.entries) == (limit, 2)
        cache.close()

    def test_a_chunk_that_is_being_written_is_not_written_twice(self, tmp_path: pathlib.Path) -> None:
        """If this fails, readers of one log that come together write each chunk as often as they are."""
        key = ChunkKey("a.log", 1)
        opened: list[str] = []

        class Meanwhile(PosixFiles):
            def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:
                opened.append(path)
                if len(opened) == 1:
                    cache.put(key, chunk_of(1))  # as another thread does while this one writes
                    cache.forget(key.log_key)
                    cache.put(key, chunk_of(1))
                return super().open_update(path, private=private)

        cache = cache_in(tmp_path, machine=Machine(clock=ManualClock(), files=Meanwhile()))
        cache.put(key, chunk_of(1))
        assert len({*opened}) == 1
        assert (cache.disk_bytes, files_of(tmp_path)) == (0, []), "it was forgotten while it was written"
        cache.put(key, chunk_of(1))
        assert cache.find(key) == chunk_of(1)
        cache.close()

    def test_age_removes_files(self, tmp_path: pathlib.Path) -> None:
        """If this fails, ``retention.ms`` does not free the disk."""
        clock = ManualClock()
        cache = cache_in(tmp_path, machine=Machine(clock=clock), retention_ms=1000)
        cache.put(ChunkKey("a.log", 1), chunk_of(1))
        clock.advance(2)
        cache.put(ChunkKey("a.log", 2), chunk_of(2))
        assert len(files_of(tmp_path)) == 1
        cache.close()

    def test_forgetting_a_log(self, tmp_path: pathlib.Path) -> None:
        """If this fails, chunks of deleted segments stay until they are evicted."""
        cache = cache_in(tmp_path)
        for number in range(3):
            cache.put(ChunkKey("a.log", number), chunk_of(number))
            cache.put(ChunkKey("b.log", number), chunk_of(number))
        cache.forget("a.log")
        assert len(files_of(tmp_path)) == 3
        assert cache.find(ChunkKey("b.log", 2)) == chunk_of(2)
        cache.close()


class Full(PosixFiles):
    """A disk on which nothing can be appended while it is full."""

    full = True

    def open_update(self, path: str, *, private: bool = False) -> UpdatableFile:
        if self.full:
            raise StoreError(f"{path}: No space left on device")
        return super().open_update(path, private=private)


class TestFaults:
    """A slow day, not an error."""

    def test_a_full_disk_costs_one_line_and_no_read(
        self, data: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If this fails, a full disk stops consumers, or floods the log."""
        clock, files = ManualClock(), Full()
        cache = cache_in(tmp_path, machine=Machine(clock=clock, files=files))
        with caplog.at_level(logging.WARNING):
            for number in range(10):
                cache.put(ChunkKey("a.log", number), chunk_of(number))
                clock.advance(PAUSE_SECONDS / 2)
                assert cache.find(ChunkKey("a.log", number)) is None
        assert len(caplog.records) == 1
        assert "No space left" in caplog.text
        assert cache.figures.size_bytes == 0
        files.full = False
        clock.advance(PAUSE_SECONDS)
        cache.put(ChunkKey("a.log", 1), chunk_of(1))
        assert cache.find(ChunkKey("a.log", 1)) == chunk_of(1)
        cache.close()

    def test_files_that_cannot_be_removed_count_until_they_are(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If this fails, a folder whose rights changed makes the cache grow past its limit, or floods the log."""

        class Stuck(PosixFiles):
            is_stuck = True

            def remove(self, path: str) -> None:
                if self.is_stuck:
                    raise StoreError(f"{path}: Operation not permitted")
                super().remove(path)

        files = Stuck()
        cache = cache_in(tmp_path, machine=Machine(clock=ManualClock(), files=files))
        for number in range(5):
            cache.put(ChunkKey("a.log", number), chunk_of(number))
        held = cache.disk_bytes
        with caplog.at_level(logging.WARNING):
            cache.forget("a.log")
        (record,) = caplog.records
        assert "cannot be removed, it is tried again: " in record.getMessage()
        assert "Operation not permitted" in record.getMessage()
        assert (cache.figures.entries, cache.disk_bytes) == (0, held)
        files.is_stuck = False
        cache.put(ChunkKey("b.log", 1), chunk_of(1))
        assert len(files_of(tmp_path)) == cache.figures.entries == 1
        assert cache.disk_bytes == cache.figures.size_bytes
        cache.close()

    def test_a_file_that_cannot_be_read_is_a_miss_that_is_told(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If this fails, a bad disk stops consumers, or nobody learns of it."""

        class Unreadable(PosixFiles):
            def read_range(self, path: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
                raise StoreError(f"{path}: Input/output error")

        damaged: list[int] = []
        cache = cache_in(
            tmp_path,
            machine=Machine(clock=ManualClock(), files=Unreadable()),
            on_damage=lambda: damaged.append(1),
        )
        cache.put(ChunkKey("a.log", 1), chunk_of(1))
        with caplog.at_level(logging.WARNING):
            assert cache.find(ChunkKey("a.log", 1)) is None
        (record,) = caplog.records
        assert "cannot be read, fetched again: " in record.getMessage()
        assert "Input/output error" in record.getMessage()
        assert damaged == [1]
        assert (cache.disk_bytes, files_of(tmp_path)) == (0, [])
        cache.close()

    def test_two_processes_do_not_share_a_directory(self, tmp_path: pathlib.Path) -> None:
        """If this fails, two brokers delete each other's chunks and neither keeps its limit."""
        cache = cache_in(tmp_path)
        with pytest.raises(ConfigError, match="in use"):
            cache_in(tmp_path)
        cache.close()
        cache_in(tmp_path).close()

    def test_a_directory_that_is_not_there(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a mistyped path is found out when the first consumer reads."""
        with pytest.raises(ConfigError, match=r"fetch\.chunk\.cache\.path"):
            cache_in(tmp_path / "missing")


class TestSecrecy:
    """What lies on the broker's disk."""

    def test_chunks_of_encrypted_segments_are_encrypted_there(self, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """If this fails, a thief of the disk reads what the bucket hides; and a restart can still use it."""
        segment, keys = segment_of(data, "aes")
        bucket = MemoryBucket(segment.objects)
        options = {
            "fetch_chunk_cache_class": "disk",
            "fetch_chunk_cache_size": MIB,
            "fetch_chunk_cache_path": tmp_path,
        }
        for _ in range(2):
            with (
                fetcher_over(bucket, keys=keys, **options) as fetcher,
                fetcher.fetch_log_segment(segment.metadata, 0) as stream,
            ):
                assert stream.read() == segment.log
                wait_until(lambda fetcher=fetcher: fetcher._chunks._landing._kept_later_bytes == 0)  # type: ignore[misc]
        assert sum(end - start for start, end in bucket.asked("log")) == len(segment.objects[f"{segment.base}.log"])
        on_disk = b"".join(file.read_bytes() for file in files_of(tmp_path))
        assert segment.log[5000:5040] not in on_disk
        with (
            fetcher_over(bucket, keys=keys, fetch_chunk_cache_encryption_enabled="false", **options) as fetcher,
            fetcher.fetch_log_segment(segment.metadata, 0) as stream,
        ):
            assert stream.read() == segment.log
        assert segment.log[5000:5040] in b"".join(file.read_bytes() for file in files_of(tmp_path))
