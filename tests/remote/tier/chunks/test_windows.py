"""What reading asks of a store: how many GETs, how far ahead, and what happens when the store breaks."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import random
import threading
from collections.abc import Iterator

import pytest
from typing_extensions import Buffer

from tests.support.bad_objects import key_config
from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.segments import make_segment, sound_log
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import CorruptObjectError, ObjectNotFoundError, StoreUnavailableError, TierlogError
from tierlog.remote.api import IndexType
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier import StoredSegment, Tier
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.layouts.aiven import AivenLayout
from tierlog.remote.tier.layouts.listing import Scope
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.testing.failing_store import FailingStore


class FarStore(CountingStore):
    """The same objects as if behind a network: reading ahead is worth it. Keeps what was asked."""

    is_local = False  # type: ignore[assignment]

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.ranges: list[tuple[str, int, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        self.ranges.append((key.rpartition(".")[2], start_position, end_position_exclusive))
        assert self.gate.wait(LIMIT_SECONDS)
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)


def ring_of(data: pathlib.Path) -> KeyRing:
    files = read_storage_config(key_config(data)).private_key_files
    return KeyRing({key_id: pathlib.Path(path).read_bytes() for key_id, path in files.items()})


def tier_over(store: ObjectStore, data: pathlib.Path | None = None) -> Tier:
    ring = ring_of(data) if data else KeyRing({})
    return Tier(store, AivenLayout(store, Scope(), ring), key_ring=ring, machine=Machine(clock=ManualClock()))


def local(root: pathlib.Path) -> LocalStore:
    return LocalStore(str(root))


def largest(tier: Tier) -> StoredSegment:
    return max(tier.iter_segments(), key=lambda segment: segment.size_bytes)


def test_the_last_chunk_is_opened_no_further_than_is_asked_for(tmp_path: pathlib.Path) -> None:
    """If this fails, each step of a search by time or offset decompresses a whole chunk for one batch header."""
    log = sound_log(8, batch_bytes=50_000)  # four blocks of zstd's
    made = make_segment(log).stored(chunk_size=1 << 20, compression=True)
    damaged = made.objects[f"{made.base}.log"][:-40] + b"\xff" * 40  # which only the last block's decoder can tell
    dataclasses.replace(made, objects=made.objects | {f"{made.base}.log": damaged}).put_in(tmp_path)
    with tier_over(local(tmp_path)) as tier:
        segment = largest(tier)
        assert b"".join(window for _, window in tier.iter_log_windows(segment, 3, 64)) == log[3:64]
        with pytest.raises(CorruptObjectError):
            list(tier.iter_log_windows(segment))


class TestRequests:
    """Each GET costs money and a round trip."""

    def test_neighbouring_chunks_come_in_one_get(self, data: pathlib.Path) -> None:
        """If this fails, a scan pays a request a chunk, as the plugin does."""
        store = FarStore(local(data / "zstd-aes" / "objects"))
        with tier_over(store, data) as tier:
            segment = largest(tier)
            assert segment.chunk_index is not None
            assert segment.chunk_index.chunk_count > 2
            store.ranges.clear()
            list(tier.iter_log_windows(segment))
            assert store.ranges == [("log", 0, segment.log.size_bytes)]

    def test_no_chunk_is_fetched_twice(self, data: pathlib.Path) -> None:
        """If this fails, windows that are no multiple of the chunk read its bytes again and again."""
        store = FarStore(local(data / "zstd-aes" / "objects"))
        with tier_over(store, data) as tier:
            segment = largest(tier)
            store.ranges.clear()
            list(tier.iter_log_windows(segment, window_bytes=20_000))
            ranges = sorted((start, end) for _, start, end in store.ranges)
            assert len(ranges) > 2
            assert ranges[0][0] == 0
            assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))

    def test_listing_fetches_only_the_manifests_of_the_topic(self, data: pathlib.Path) -> None:
        """If this fails, a read of one topic pays for the manifests of the whole bucket."""
        store = CountingStore(local(data / "main-plain" / "objects"))
        with tier_over(store) as tier:
            segments = list(tier.iter_segments("fx-txn"))
            assert segments
            assert store.counts.gets == len(segments)
            assert not store.reset().puts
            tier.topics()
            assert store.counts.gets == 0

    def test_an_empty_part_and_an_absent_one_cost_nothing(self, tmp_path: pathlib.Path) -> None:
        """If this fails, each segment without transactions costs a request that the manifest had answered."""
        Bucket(tmp_path).segment("a", [message(0, "v", 0)], lineage={0: 0})
        store = CountingStore(local(tmp_path))
        with tier_over(store) as tier:
            segment = largest(tier)
            store.reset()
            assert tier.fetch_index(segment, IndexType.TRANSACTION) is None
            assert tier.fetch_index(segment, IndexType.OFFSET) == b""
            assert store.counts.gets == 0

    def test_a_plain_window_is_the_stores_own_buffer(self, data: pathlib.Path) -> None:
        """If this fails, a plain scan copies every byte once more than it must."""
        kept: list[Buffer] = []

        class Keeping(CountingStore):
            def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
                found = super().fetch_range(
                    key, start_position=start_position, end_position_exclusive=end_position_exclusive
                )
                kept.append(found)
                return found

        with tier_over(Keeping(local(data / "main-plain" / "objects"))) as tier:
            _, window = next(tier.iter_log_windows(largest(tier)))
            assert window.obj is memoryview(kept[-1]).obj


class TestListing:
    """Manifests come side by side, and still in order."""

    def test_from_afar_as_from_a_disk(self, data: pathlib.Path) -> None:
        """If this fails, segments of a bucket come in the order in which its answers arrive."""
        root = data / "main-plain" / "objects"
        with tier_over(local(root)) as near, tier_over(FarStore(local(root))) as far:
            assert list(far.iter_segments()) == list(near.iter_segments())
            first = far.iter_segments()
            assert next(first) == next(near.iter_segments())
            first.close()  # type: ignore[attr-defined]

    def test_faults_are_kept_apart(self, tmp_path: pathlib.Path) -> None:
        """If this fails, one broken manifest hides all other segments from ls and verify."""
        bucket = Bucket(tmp_path)
        for number in range(40):
            bucket.segment(str(number), [message(number, "v", 0)], lineage={0: 0})
        for number in (3, 17):
            bucket.path(str(number), "rsm-manifest").write_bytes(b"[]")
        faults: list[TierlogError] = []
        with tier_over(FarStore(local(tmp_path))) as tier:
            starts = [segment.start_offset for segment in tier.iter_segments(faults=faults)]
            assert starts == [number for number in range(40) if number not in (3, 17)]
            assert [f"{number:020d}" in str(fault) for number, fault in zip((3, 17), faults, strict=True)] == [True] * 2
            with pytest.raises(CorruptObjectError, match=f"{3:020d}"):
                list(tier.iter_segments())


class TestReadingAhead:
    """Several windows are under way, and never more than asked for."""

    def test_at_most_prefetch_windows_beyond_the_one_in_use(self, data: pathlib.Path) -> None:
        """If this fails, a slow consumer fills the memory with windows."""
        store = FarStore(local(data / "main-plain" / "objects"))
        with tier_over(store) as tier:
            segment = largest(tier)
            store.ranges.clear()
            windows = tier.iter_log_windows(segment, window_bytes=1000, prefetch=2)
            for taken in range(1, 6):
                next(windows)
                assert taken <= len(store.ranges) <= taken + 2
            windows.close()

    def test_closing_drops_what_has_not_begun(self, data: pathlib.Path) -> None:
        """If this fails, a query with a limit goes on reading the bucket after its last row."""
        store = FarStore(local(data / "main-plain" / "objects"))
        with tier_over(store) as tier:
            segment = largest(tier)
            store.ranges.clear()
            windows = tier.iter_log_windows(segment, window_bytes=500, prefetch=40)
            next(windows)
            store.gate.clear()
            windows.close()
            store.gate.set()
        assert len(store.ranges) < 60  # the segment has more windows than that

    def test_one_chunk_larger_than_the_window_is_read_alone(self, data: pathlib.Path) -> None:
        """If this fails, reading ahead of huge chunks multiplies them in memory."""
        store = FarStore(local(data / "zstd-aes" / "objects"))
        with tier_over(store, data) as tier:
            segment = largest(tier)
            store.ranges.clear()
            windows = tier.iter_log_windows(segment, window_bytes=100, prefetch=8)
            next(windows)
            assert len(store.ranges) == 1
            windows.close()

    def test_a_range_outside_the_log_is_refused_at_once(self, data: pathlib.Path) -> None:
        """If this fails, a wrong plan reads the bytes of nothing."""
        with tier_over(local(data / "main-plain" / "objects")) as tier:
            segment = largest(tier)
            for start, end in ((-1, 5), (5, 4), (0, segment.size_bytes + 1)):
                with pytest.raises(ValueError, match="range"):
                    tier.iter_log_windows(segment, start, end)
            assert list(tier.iter_log_windows(segment, 7, 7)) == []


class TestBrokenStores:
    """A store that fails is an error, never fewer bytes."""

    @pytest.mark.parametrize("fault", ["error", "reset", "stall", "short"])
    @pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
    def test_each_fault_is_typed_and_nothing_is_lost_in_silence(self, data: pathlib.Path, run: str, fault: str) -> None:
        """If this fails, a broken connection looks like the end of the data."""
        clock = ManualClock()
        failing = FailingStore(local(data / run / "objects"), {fault: 0.4}, rng=random.Random(7), clock=clock)
        with tier_over(local(data / run / "objects"), data) as sound:
            segments = list(sound.iter_segments())
            wanted = [b"".join(window for _, window in sound.iter_log_windows(segment)) for segment in segments]
        errors: list[TierlogError] = []
        with tier_over(failing, data) as tier:
            for segment, whole in zip(segments, wanted, strict=True):
                got = b""
                try:
                    for _, window in tier.iter_log_windows(segment, window_bytes=30_000):
                        got += window
                    assert got == whole
                except TierlogError as error:
                    assert whole.startswith(got)
                    assert got != whole
                    errors.append(error)
        assert errors
        assert failing.injected[fault] >= len(errors)
        kind = CorruptObjectError if fault == "short" else StoreUnavailableError
        assert all(isinstance(error, kind) and error.retriable == (fault != "short") for error in errors)
        assert fault != "stall" or clock.monotonic_seconds() > 0

    def test_an_object_that_is_gone_names_the_segment_and_its_age(self, tmp_path: pathlib.Path) -> None:
        """If this fails, retention looks like corruption."""
        bucket = Bucket(tmp_path)
        bucket.segment("a", [message(0, "v", 0)], lineage={0: 0})
        store = local(tmp_path)
        with tier_over(store) as tier:
            segment = largest(tier)
            bucket.path("a", "log").unlink()
            bucket.path("a", "indexes").unlink()
            old = dataclasses.replace(segment, last_modified_ms=tier.machine.clock.time_ms() - 90_000_000)
            with pytest.raises(ObjectNotFoundError, match=r"orders-.*\.log: gone .* 1 d 1 h ago"):
                list(tier.iter_log_windows(old))
            with pytest.raises(ObjectNotFoundError, match="gone since"):
                tier.fetch_index(segment, IndexType.LEADER_EPOCH)

    def test_a_manifest_that_goes_while_listing_is_no_segment(self, tmp_path: pathlib.Path) -> None:
        """If this fails, listing a bucket while retention runs fails."""
        bucket = Bucket(tmp_path)
        for number, name in enumerate("ab"):
            bucket.segment(name, [message(number, "v", 0)], lineage={0: 0})

        class Vanishing(CountingStore):
            def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
                found = list(super().iter_objects(prefix))
                bucket.path("a", "rsm-manifest").unlink()
                return iter(found)

        with tier_over(Vanishing(local(tmp_path))) as tier:
            assert [segment.start_offset for segment in tier.iter_segments()] == [1]
