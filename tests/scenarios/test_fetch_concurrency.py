"""Many readers at once: in one thread whose order a seed decides, and in real ones."""

from __future__ import annotations

import itertools
import pathlib
import random
import threading
from collections.abc import Callable
from functools import partial

import pytest
from typing_extensions import Buffer

from tests.support.fetchers import MIB, MemoryBucket, fetcher_over, segment_of
from tests.support.segments import BucketSegment, make_segment, sound_log, throwaway_keys
from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import IndexType
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import PROCESS_BUFFERS
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.waiting.waits import Wait, Waits

SEEDS = range(8)


class SlowBucket(MemoryBucket):
    """Each request takes time of the machine's clock; some fail."""

    def on(self, machine: Machine, chance: random.Random, *, seconds: float = 0.1, failing: float = 0.0) -> SlowBucket:
        self.machine, self.chance, self.seconds, self.failing = machine, chance, seconds, failing
        return self

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        self.machine.clock.sleep(self.seconds * self.chance.random())
        if self.chance.random() < self.failing:
            self.gets.append(("failed", 0, 0))
            raise StoreUnavailableError("injected")
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)


def run_manually(
    seed: int, work: Callable[[Machine, SlowBucket, SegmentFetcher], list[Callable[[], None]]], **options: object
) -> SlowBucket:
    """Pieces of work side by side; all must end, and nothing may be left."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        failing = float(str(options.pop("failing", 0.0)))
        bucket = SlowBucket().on(machine, random.Random(seed), failing=failing)
        bucket.is_local = bool(options.pop("local", False))
        keys = options.pop("keys", None)
        config = read_storage_config({name.replace("_", "."): str(value) for name, value in options.items()})
        fetcher = SegmentFetcher(bucket, config, keys or KeyRing({}, machine), machine=machine)  # type: ignore[arg-type]
        futures = [scheduler.start(each, name=f"work-{n}") for n, each in enumerate(work(machine, bucket, fetcher))]
        for future in futures:
            future.result()
        fetcher.close()
    return bucket


def reading(fetcher: SegmentFetcher, segment: BucketSegment, start: int, end: int) -> Callable[[], None]:
    def work() -> None:
        with fetcher.fetch_log_segment(segment.metadata, start, end) as stream:
            assert stream.read() == segment.log[start : end + 1]

    return work


def iter_wait(wait: Wait) -> Waits[None]:
    yield wait


class TestOneThread:
    """The same seed gives the same run."""

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_chunk_is_fetched_once_for_all(self, data: pathlib.Path, seed: int) -> None:
        """If this fails, a popular chunk is downloaded by each consumer that wants it at that moment."""
        segment, keys = segment_of(data, "zstd-aes")

        def work(machine: Machine, bucket: SlowBucket, fetcher: SegmentFetcher) -> list[Callable[[], None]]:
            bucket.add(segment)
            chance = random.Random(seed)
            ranges = [sorted(chance.sample(range(len(segment.log)), 2)) for _ in range(12)]
            indexes = [lambda: fetcher.fetch_index(segment.metadata, IndexType.OFFSET).close() for _ in range(3)]
            return [reading(fetcher, segment, start, end) for start, end in ranges] + indexes

        bucket = run_manually(
            seed,
            work,
            keys=keys,
            fetch_chunk_cache_class="memory",
            fetch_chunk_cache_size=MIB,
            fetch_prefetch_enabled="false",
        )
        assert len(bucket.asked("rsm-manifest")) == len(bucket.asked("indexes")) == 1
        ranges = sorted(bucket.asked("log"))
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_who_leaves_a_chunk_unopened_leaves_it_to_others(self, data: pathlib.Path, seed: int) -> None:
        """If this fails, a consumer is late since another, which was to open their chunk, was closed before it did."""
        segment, keys = segment_of(data, "zstd-aes")
        took: list[float] = []

        def work(machine: Machine, bucket: SlowBucket, fetcher: SegmentFetcher) -> list[Callable[[], None]]:
            bucket.add(segment)
            reading(fetcher, segment, 0, 0)()
            opened = fetcher._manifests.find(segment.metadata)
            assert opened is not None
            chunks, views = fetcher._chunks, opened.log.views(len(segment.log) - 1, len(segment.log))
            (load,), _ = chunks.request(opened.log, views, turn="a", again=False, soon=True)
            assert not isinstance(load, memoryview)
            work = load._work
            load._work = None  # as if the first one had not offered it yet

            def wait() -> None:
                assert chunks.request(opened.log, views, turn="b", again=False, soon=True)[0] == [load]
                began = machine.clock.monotonic_seconds()
                fetcher._threads.run(iter_wait(chunks.requests.wait_of(load, "chunk", 60)))
                took.append(machine.clock.monotonic_seconds() - began)

            def leave() -> None:
                machine.clock.sleep(1)
                assert work is not None
                load.offer(work)
                chunks.leave([load])

            return [wait, leave]

        run_manually(
            seed, work, local=True, keys=keys, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=10 * MIB
        )
        assert took[0] < 5

    @pytest.mark.few(10)
    @pytest.mark.parametrize("cache", ["", "memory", "disk"])
    @pytest.mark.parametrize("seed", SEEDS)
    def test_faults_are_errors_and_nothing_else(self, data: pathlib.Path, seed: int, cache: str) -> None:
        """If this fails, a store that fails now and then ends readers with wrong bytes, or lets them wait for ever."""
        segment, keys = segment_of(data, "zstd")
        outcomes: list[bool] = []

        def work(machine: Machine, bucket: SlowBucket, fetcher: SegmentFetcher) -> list[Callable[[], None]]:
            bucket.add(segment)
            chance = random.Random(seed)

            def some_reads() -> None:
                for _ in range(4):
                    start, end = sorted(chance.sample(range(len(segment.log)), 2))
                    try:
                        reading(fetcher, segment, start, end)()
                        outcomes.append(True)
                    except StoreUnavailableError:
                        outcomes.append(False)

            return [some_reads] * 6

        options: dict[str, object] = {}
        if cache:
            options = {"fetch_chunk_cache_class": cache, "fetch_chunk_cache_size": 100_000}
        if cache == "disk":
            options["fetch_chunk_cache_path"] = "."
        run_manually(seed, work, keys=keys, failing=0.1, **options)
        assert len(outcomes) == 24
        assert any(outcomes)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_who_is_late_finds_the_bytes_when_she_comes_back(self, data: pathlib.Path, seed: int) -> None:
        """If this fails, a slow store is asked for the same bytes until the end of days."""
        segment, keys = segment_of(data, "zstd")
        late: list[int] = []

        def work(machine: Machine, bucket: SlowBucket, fetcher: SegmentFetcher) -> list[Callable[[], None]]:
            bucket.add(segment)
            bucket.seconds = 120.0

            def stubborn() -> None:
                for attempt in range(100):
                    try:
                        reading(fetcher, segment, 40_000, 120_000)()
                        late.append(attempt)
                        return
                    except StoreUnavailableError:
                        continue
                raise AssertionError("never")

            return [stubborn]

        bucket = run_manually(
            seed,
            work,
            keys=keys,
            fetch_chunk_cache_class="memory",
            fetch_chunk_cache_size=MIB,
            fetch_prefetch_enabled="false",
        )
        assert len(bucket.gets) == 2
        assert late

    @pytest.mark.parametrize("seed", SEEDS)
    def test_closing_ends_all_waits(self, data: pathlib.Path, seed: int) -> None:
        """If this fails, a broker hangs on shutdown, or a consumer takes a shutdown for the end of a segment."""
        segment, keys = segment_of(data, "zstd")
        ended: list[str] = []

        def work(machine: Machine, bucket: SlowBucket, fetcher: SegmentFetcher) -> list[Callable[[], None]]:
            bucket.add(segment)
            bucket.seconds = 60.0
            closed_at = machine.clock.monotonic_seconds() + 0.12

            def read() -> None:
                with pytest.raises(StoreUnavailableError) as raised:
                    reading(fetcher, segment, 0, len(segment.log) - 1)()
                assert abs(machine.clock.monotonic_seconds() - closed_at) < 0.01
                ended.append(str(raised.value))

            def close() -> None:
                machine.clock.sleep(0.12)
                fetcher.close()

            return [*[read] * 5, close]

        run_manually(seed, work, keys=keys)
        assert len(ended) == 5
        assert all("closed" in text for text in ended)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_closing_a_stream_ends_its_read(self, data: pathlib.Path, seed: int) -> None:
        """If this fails, a cancelled fetch of a broker holds its thread until the store answers."""
        segment, keys = segment_of(data, "zstd", chunk_size=4096)

        def work(machine: Machine, bucket: SlowBucket, fetcher: SegmentFetcher) -> list[Callable[[], None]]:
            bucket.add(segment)

            def read() -> None:
                stream = fetcher.fetch_log_segment(segment.metadata, 0)
                bucket.seconds = 5.0
                began = machine.clock.monotonic_seconds()
                closing = machine.scheduler.start(stream.close, name="close")
                with pytest.raises(ValueError, match="closed"):
                    stream.read()
                assert machine.clock.monotonic_seconds() - began < 0.01
                closing.result()

            return [read]

        run_manually(seed, work, keys=keys)


class TestThreads:
    """Real ones."""

    def test_a_hundred_readers(self, data: pathlib.Path) -> None:
        """If this fails, consumers that read at the same time get each other's bytes, or memory grows with them."""
        keys = throwaway_keys(data)
        segments = []
        bucket = MemoryBucket()
        for number in range(4):
            made = make_segment(sound_log(500, base_offset=number * 100_000, batch_bytes=4096))
            segments.append(bucket.add(made.stored(chunk_size=128 << 10, compression=True, key_ring=keys)))
        failures: list[BaseException] = []
        with fetcher_over(
            bucket,
            keys=keys,
            fetch_chunk_cache_class="memory",
            fetch_chunk_cache_size=MIB,
            fetch_memory_max_bytes=8 * MIB,
        ) as fetcher:

            def work(seed: int) -> None:
                chance = random.Random(seed)
                try:
                    for _ in range(4):
                        segment = chance.choice(segments)
                        start = chance.randrange(len(segment.log))
                        reading(fetcher, segment, start, start + chance.randrange(300_000))()
                except BaseException as error:  # noqa: BLE001 - of any thread
                    failures.append(error)

            before, lent = PROCESS_BUFFERS.lent_bytes, [0]
            threads = [threading.Thread(target=partial(work, seed)) for seed in range(100)]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    lent.append(PROCESS_BUFFERS.lent_bytes - before)
                    thread.join(0.001)
            assert fetcher._cache is not None
            assert fetcher._cache.figures.size_bytes <= MIB
        assert not failures
        assert 0 < max(lent) < 32 * MIB
