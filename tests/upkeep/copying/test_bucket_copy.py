"""The engine of copies over stores that fail: what cannot be proved equal does not stay."""

from __future__ import annotations

import pathlib
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import pytest
from typing_extensions import Buffer

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog.errors import CorruptDataError, StoreError
from tierlog.remote.storage.copy.copy_target import open_copy_target
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore
from tierlog.testing.failing_store import FailingStore
from tierlog.upkeep.copying.bucket_copy import BucketCopy
from tierlog.upkeep.copying.copy_work import CopyState, SegmentOutcome
from tierlog.upkeep.copying.segment_source import SegmentSource

Result = TypeVar("Result")

PLAIN = {"chunk.size": "100"}
SEGMENTS = 4


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    bucket = Bucket(tmp_path / "source")
    for number in range(SEGMENTS):
        base = 3 * number
        bucket.segment(f"u{number}", [message(base + at, f"m{base + at}", 0) for at in range(3)], lineage={0: 0})
    return tmp_path / "source"


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class RottingStore(FailingStore):
    """One bit of every log that is read is another than was written."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, {}, rng=random.Random(0), clock=ManualClock())

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        data = bytearray(
            memoryview(
                super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)
            )
        )
        if key.endswith(".log"):
            data[len(data) // 2] ^= 4
        return data


def run_copy(
    source: pathlib.Path, dest: pathlib.Path, config: dict[str, str], wrap: type[RottingStore] | None = None
) -> list[SegmentOutcome]:
    with open_tier(str(source)) as tier:
        target = open_copy_target(str(dest), config=config, wrap_store=wrap or (lambda store: store))
        try:
            return list(BucketCopy(tier, target, workers=2))
        finally:
            target.close()


@pytest.mark.parametrize("run", [None, "zstd-aes"])
def test_what_does_not_come_back_as_it_went_is_removed(
    source: pathlib.Path, tmp_path: pathlib.Path, data: pathlib.Path, run: str | None
) -> None:
    """A store that takes bytes and gives others would else hold the only copy."""
    config = config_of(data / run) if run else PLAIN
    outcomes = run_copy(source, tmp_path / "dest", config, RottingStore)
    assert [outcome.state for outcome in outcomes] == [CopyState.FAILED] * SEGMENTS
    assert all(isinstance(outcome.error, CorruptDataError) for outcome in outcomes)
    assert files(tmp_path / "dest") == {}


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_runs_over_a_store_that_breaks_end_in_the_same_bucket(
    source: pathlib.Path, tmp_path: pathlib.Path, seed: int
) -> None:
    """Errors, lost answers and writes that land late: repeated runs end with every segment, each right."""
    dest, clock, chance = tmp_path / "dest", ManualClock(), random.Random(seed)
    late: list[FailingStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        # It gets better: threads take turns as they like, so no seed says by itself when a run comes through.
        rate = 0.05 * 0.96 ** len(late)
        late.append(FailingStore(store, {"error": rate, "lost": rate, "late": rate}, rng=chance, clock=clock))
        return late[-1]

    for _ in range(200):
        with open_tier(str(source)) as tier:
            target = open_copy_target(str(dest), config=PLAIN, wrap_store=wrap)
            try:
                states = [outcome.state for outcome in BucketCopy(tier, target)]
            except StoreError:
                states = []
            finally:
                late[-1].land_late()
                target.close()
        if states and CopyState.FAILED not in states:
            break
    else:
        pytest.fail("no run came through")
    # What landed late may have brought back pieces: a last run over a sound store makes it right.
    assert CopyState.FAILED not in [outcome.state for outcome in run_copy(source, dest, PLAIN)]
    run_copy(source, tmp_path / "want", PLAIN)
    assert files(dest) == files(tmp_path / "want")


def test_a_source_that_changes_is_not_copied(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    """A segment gets its id from its bytes: bytes that came later must not go under that id."""
    with open_tier(str(source)) as tier:
        segment = next(iter(tier.iter_segments()))
        part = SegmentSource(tier, segment)
        with part.open_read(part.data.log_segment) as log:
            buffer = bytearray(segment.size_bytes)
            assert log.read_into(memoryview(buffer)[:23], position=0) == 23
            peeked = bytearray(7)
            assert log.read_into(peeked, position=61) == 7
            with pytest.raises(ValueError, match="not read to its end"):
                _ = part.digest
            assert log.read_into(memoryview(buffer)[:40], position=0) == 40
            assert log.read_into(memoryview(buffer)[40:], position=40) == segment.size_bytes - 40
        assert bytes(buffer) == (source / segment.log.key).read_bytes()
        assert bytes(peeked) == bytes(buffer[61:68])
        before = part.digest
        part._given_digest = bytes(16)
        with pytest.raises(CorruptDataError, match="changed"):
            _ = part.digest
        assert len(before) == 16


class StallingStore(PassingStore):
    """Logs behind the first one are not taken until ``go_on`` is set."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.go_on, self.is_stalled = threading.Event(), threading.Event()
        self._logs = 0

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        if call.body and call.key.endswith(".log"):
            self._logs += 1
            if self._logs > 1:
                self.is_stalled.set()
                self.go_on.wait(60)
        return run()


def test_a_run_that_is_stopped_ends_the_copies_that_run(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """^C would wait until large segments are copied, and a SIGKILL behind a SIGTERM would leave halves of them."""
    stores: list[StallingStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(StallingStore(store))
        return stores[-1]

    with (
        open_tier(str(source)) as tier,
        closing(open_copy_target(str(tmp_path / "dest"), config=PLAIN, wrap_store=wrap)) as target,
    ):
        late = threading.Timer(30, stores[-1].go_on.set)
        late.start()
        try:
            with closing(iter(BucketCopy(tier, target))) as done:  # type: ignore[type-var]
                assert next(done).state is CopyState.COPIED
                assert stores[-1].is_stalled.wait(20)
                began = time.monotonic()
            assert time.monotonic() - began < 10
        finally:
            late.cancel()
            stores[-1].go_on.set()
    assert len(list((tmp_path / "dest").rglob("*.rsm-manifest"))) == 1
