"""Streams that are read on after errors: whatever happens, what a reader gets are the bytes of its range, in order."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
from collections.abc import Iterator

import pytest
from typing_extensions import Buffer

from tests.support.fetchers import CACHES, MIB, MemoryBucket, fetcher_over, segment_of
from tests.support.segments import BucketSegment
from tests.support.waiting import wait_until
from tierlog.errors import CorruptObjectError, ObjectNotFoundError, StoreUnavailableError, TierlogError
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.fetch.segment_stream import ViewStream
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.optional_reads import Cancel, OnAnswer


class IllBucket(MemoryBucket):
    """Fails requests for logs by chance, with errors that pass or that do not, or gives fewer bytes."""

    chance = random.Random(0)
    passing = final = 0.0
    is_plain = False

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        found = super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)
        if key.endswith(".log"):
            drawn = self.chance.random()
            if drawn < self.passing:
                raise StoreUnavailableError("503")
            if drawn < self.passing + self.final:
                is_cut = self.is_plain or self.chance.random() < 0.5  # other bytes of a plain log can pass for its own
                return memoryview(found)[:-1] if is_cut else bytes(memoryview(found).nbytes)
        return found


class StartingBucket(IllBucket):
    """Begins reads without a thread: some are answered at once, some when the next one begins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.later: list[tuple[OnAnswer, object]] = []

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        try:
            answer: Buffer | BaseException = self.fetch_range(
                key, start_position=start_position, end_position_exclusive=end_position_exclusive
            )
        except TierlogError as error:
            answer = error
        on_answer(answer)
        return lambda: None


class DirectBucket(IllBucket):
    """Puts bytes where it is told, also those of a read that then fails."""

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        out[: len(out) // 2] = bytes(len(out) // 2)
        found = memoryview(
            self.fetch_range(key, start_position=start_position, end_position_exclusive=start_position + len(out))
        )
        out[: len(found)] = found
        return len(found)


BUCKETS = {"local": IllBucket, "direct": DirectBucket, "blocking": IllBucket, "starting": StartingBucket}


def read_somehow(stream: ViewStream, chance: random.Random) -> bytes:
    """One call of one of the forms of reading."""
    size = chance.choice([1, 100, 5_000, 40_000, 150_000, 300_000])
    form = chance.randrange(3)
    if form == 0:
        return stream.read(size)
    if form == 1:
        into = bytearray(size)
        return bytes(into[: stream.readinto(into)])
    return b"".join(bytes(view) for view in stream.buffers(size))


def check_dead(stream: ViewStream, error: TierlogError, chance: random.Random) -> None:
    """Every later call raises the same, and hands out nothing."""
    position = stream.tell()
    for _ in range(3):
        with pytest.raises(type(error)) as again:
            read_somehow(stream, chance)
        assert (str(again.value), stream.tell()) == (str(error), position)


def check_stream(stream: ViewStream, segment: BucketSegment, start: int, chance: random.Random) -> None:
    """Read it to its end, or to an error that stays; at each moment what came is a prefix."""
    out = bytearray()
    wanted = segment.log[start:]
    for _ in range(10_000):
        try:
            got = read_somehow(stream, chance)
        except StoreUnavailableError:
            out[stream.tell() :] = b""
        except TierlogError as error:
            check_dead(stream, error, chance)
            return
        else:
            out += got
            if not got:
                assert bytes(out) == wanted
                return
        assert stream.tell() <= len(wanted)
        if stream.tell() > len(out):  # views that came before an error of the same call
            out += segment.log[start + len(out) : start + stream.tell()]
        assert wanted.startswith(bytes(out))
    raise AssertionError("never at an end")


@pytest.mark.few(16)
@pytest.mark.parametrize("kind", list(BUCKETS))
@pytest.mark.parametrize("cache", list(CACHES))
@pytest.mark.parametrize("form", ["plain", "zstd", "aes", "zstd-aes"])
def test_any_schedule_of_faults_and_reads(
    data: pathlib.Path, tmp_path: pathlib.Path, form: str, cache: str, kind: str
) -> None:
    """If this fails, a consumer that tries again, as the error tells it to, loses records without a word."""
    segment, keys = segment_of(data, form, size_bytes=400_000, chunk_size=16_384)
    bucket = BUCKETS[kind](is_local=kind in ("local", "direct"))
    bucket.add(segment)
    bucket.is_plain = form == "plain"
    options = {name.replace(".", "_"): value for name, value in CACHES[cache].items()}
    if cache == "disk":
        options["fetch_chunk_cache_path"] = str(tmp_path)
    bucket.chance = random.Random(f"{form}{cache}{kind}")
    with fetcher_over(bucket, keys=keys, **options) as fetcher:
        for seed in range(12):
            chance = random.Random(seed)
            bucket.passing, bucket.final = chance.choice([(0.0, 0.0), (0.3, 0.0), (0.5, 0.02), (0.0, 0.1)])
            start = chance.randrange(len(segment.log))
            with fetcher.fetch_log_segment(segment.metadata, start) as stream:
                resting = _resting(fetcher, stream, chance)
                check_stream(resting, segment, start, chance)
        wait_until(lambda: fetcher._budget.held_bytes == 0)  # what is being opened is let go of when it is open


def _resting(fetcher: SegmentFetcher, stream: ViewStream, chance: random.Random) -> ViewStream:
    """The same stream, whose memory is needed elsewhere now and then, between two reads."""

    class Resting(ViewStream):
        def __init__(self) -> None:
            self.__dict__.update(stream.__dict__)
            self._on_drop = None

        def _require_usable(self) -> None:
            if chance.random() < 0.2:
                stream._source.give_up()  # type: ignore[attr-defined]
            super()._require_usable()

    del fetcher
    return Resting()


@pytest.mark.parametrize("seed", range(12))
def test_slow_stores_late_errors_and_closes(data: pathlib.Path, seed: int) -> None:
    """If this fails, a reader that comes back after a timeout gets bytes of further on, or waits for ever."""
    segment, keys = segment_of(data, "zstd-aes", size_bytes=300_000, chunk_size=16_384)
    machine, scheduler = ManualScheduler.machine(seed)

    class Slow(IllBucket):
        def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
            machine.clock.sleep(self.chance.choice([0.0, 0.1, 15.0]))
            return super().fetch_range(
                key, start_position=start_position, end_position_exclusive=end_position_exclusive
            )

    from tierlog.remote.config import read_storage_config

    with scheduler:
        bucket = Slow()
        bucket.chance, bucket.passing = random.Random(seed), 0.2
        bucket.add(segment)
        config = read_storage_config({"fetch.memory.max.bytes": str(8 * MIB)})
        fetcher = SegmentFetcher(bucket, config, keys, machine=machine)

        def read() -> None:
            chance = random.Random(seed)
            for _ in range(30):
                with contextlib.suppress(StoreUnavailableError):
                    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                        check_stream(stream, segment, 0, chance)
                    return

        for future in [scheduler.start(read, name=f"r{n}") for n in range(4)]:
            future.result()
        fetcher.close()
        assert fetcher._budget.held_bytes == 0


@pytest.fixture
def plain(data: pathlib.Path) -> Iterator[tuple[MemoryBucket, BucketSegment, SegmentFetcher]]:
    segment, keys = segment_of(data, "zstd-aes", size_bytes=400_000, chunk_size=16_384)
    bucket = MemoryBucket()
    bucket.add(segment)
    with fetcher_over(bucket, keys=keys) as fetcher:
        yield bucket, segment, fetcher


def test_where_a_stream_is(plain: tuple[MemoryBucket, BucketSegment, SegmentFetcher]) -> None:
    """If this fails, a caller that wants to go on elsewhere does not know where."""
    bucket, segment, fetcher = plain
    with fetcher.fetch_log_segment(segment.metadata, 1000, 200_000) as stream:
        assert stream.tell() == 0
        assert stream.read(5000) == segment.log[1000:6000]
        bucket.failures["log"] = [StoreUnavailableError("reset")]
        stream._source.give_up()  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailableError):
            stream.read()
        assert stream.tell() == 5000
        assert stream.read() == segment.log[6000:200_001]
        assert stream.tell() == 199_001


def test_an_error_that_stays(plain: tuple[MemoryBucket, BucketSegment, SegmentFetcher]) -> None:
    """If this fails, a damaged chunk is skipped by whoever reads on."""
    bucket, segment, fetcher = plain
    key = f"{segment.base}.log"
    damaged = bytearray(segment.objects[key])
    damaged[len(damaged) // 2] ^= 1
    bucket.objects[key] = bytes(damaged)
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        with pytest.raises(CorruptObjectError) as first:
            stream.read()
        bucket.objects[key] = segment.objects[key]
        check_dead(stream, first.value, random.Random(1))


def test_opening_asks_for_nothing_but_the_manifest(plain: tuple[MemoryBucket, BucketSegment, SegmentFetcher]) -> None:
    """If this fails, a broker pays for bytes of streams that it never reads."""
    bucket, segment, fetcher = plain
    with fetcher.fetch_log_segment(segment.metadata, 0):
        assert [suffix for suffix, _, _ in bucket.gets] == ["rsm-manifest"]
    del bucket.objects[f"{segment.base}.log"]
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream, pytest.raises(ObjectNotFoundError):
        stream.read(1)


def test_a_held_view_holds_little_more_than_it_shows(plain: tuple[MemoryBucket, BucketSegment, SegmentFetcher]) -> None:
    """If this fails, a consumer that keeps a few bytes of each stream keeps a chunk of each."""
    _, segment, fetcher = plain
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        for size in (100, 9000, 16_384, 3):
            for view in stream.buffers(size):
                assert memoryview(view.obj).nbytes <= 2 * len(view)  # type: ignore[arg-type]


def test_two_threads_at_once_are_refused(plain: tuple[MemoryBucket, BucketSegment, SegmentFetcher]) -> None:
    """If this fails, two threads that read one stream by mistake each get half of it, and nobody notices."""
    _, segment, fetcher = plain
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        waits = stream._source.take_waits(10)  # type: ignore[attr-defined]
        next(waits)
        with pytest.raises(ValueError, match="another thread"):
            stream.read(10)
        waits.close()
        assert stream.read(10) == segment.log[:10]


def test_many_streams_in_turn_under_a_small_budget(data: pathlib.Path) -> None:
    """If this fails, a hundred open streams take memory without bound, or starve one another."""
    for form in ("plain", "zstd-aes"):
        segment, keys = segment_of(data, form, size_bytes=2 * MIB, chunk_size=MIB)
        bucket = MemoryBucket()
        bucket.add(segment)
        with fetcher_over(bucket, keys=keys, fetch_memory_max_bytes=8 * MIB) as fetcher:
            streams = [fetcher.fetch_log_segment(segment.metadata, 100 * n) for n in range(60)]
            for turn in range(4):
                for number, stream in enumerate(streams):
                    at = 100 * number + turn * 50_000
                    assert stream.read(50_000) == segment.log[at : at + 50_000]
                    assert fetcher._budget.held_bytes <= 8 * MIB
            for stream in streams:
                stream.close()
            wait_until(lambda: fetcher._budget.held_bytes == 0)


def test_memory_that_cannot_be_written(plain: tuple[MemoryBucket, BucketSegment, SegmentFetcher]) -> None:
    """If this fails, a caller's mistake ends its stream, or skips what it did not read."""
    _, segment, fetcher = plain
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        with pytest.raises(TypeError, match="written"):
            stream.readinto(b"0123456789")  # type: ignore[arg-type]
        assert stream.read(10) == segment.log[:10]


class FailedLoad:
    """A source whose load failed: all its readers get the same error, as all readers of one load are."""

    position, left_bytes = 0, 10

    def __init__(self, error: StoreUnavailableError) -> None:
        self._error = error

    def seek(self, position: int) -> None:
        self.position = position

    def take(self, size_bytes: int) -> memoryview:
        raise self._error

    def close(self) -> None:
        """There is nothing to be closed."""


def test_readers_of_one_failed_load_leave_each_other_alone() -> None:
    """The tasks of other clients, which heard of the error before and go on, would end in their midst: one object that
    cannot be had would break their connections, and whatever they do next.
    """
    error = StoreUnavailableError("503")

    async def consume(may_go_on: asyncio.Event, told: asyncio.Event) -> str:
        stream = ViewStream(FailedLoad(error), translate=lambda failed: failed)
        try:
            stream.read(3)
        except StoreUnavailableError:
            told.set()
        await may_go_on.wait()
        return "went on"

    async def both() -> list[str]:
        events = [(asyncio.Event(), asyncio.Event()) for _ in range(3)]
        tasks = []
        for may_go_on, told in events:
            tasks.append(asyncio.ensure_future(consume(may_go_on, told)))
            await asyncio.wait_for(told.wait(), 10)
        for may_go_on, _ in events:
            may_go_on.set()
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    assert asyncio.run(both()) == ["went on"] * 3
