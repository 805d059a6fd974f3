"""Reads by a limit: the same bytes, no sooner than they may come."""

from __future__ import annotations

import pathlib
import random

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.storage.copy.copy_target import open_copy_target
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.wrappers.rate_limiter import LIMITED_REQUEST_BYTES, LimitedStore, RateLimiter, limited_reads
from tierlog.upkeep.copying.bucket_copy import BucketCopy

MIB = 1 << 20
CONFIG = {"download.rate.limit.bytes.per.second": str(MIB)}


@pytest.fixture
def machine() -> Machine:
    return Machine(clock=ManualClock())


def limited(folder: pathlib.Path, machine: Machine) -> LimitedStore:
    return LimitedStore(LocalStore(str(folder), machine), RateLimiter(MIB, machine=machine))


def test_ranges_come_whole_and_in_time(tmp_path: pathlib.Path, machine: Machine) -> None:
    """If this fails, a limit changes bytes, or is none."""
    body = random.Random(1).randbytes(3 * LIMITED_REQUEST_BYTES + 77)
    (tmp_path / "k").write_bytes(body)
    store = limited(tmp_path, machine)
    for start, end in ((0, len(body)), (5, 6), (1, LIMITED_REQUEST_BYTES + 2), (len(body) - 3, len(body) + 9 * MIB)):
        before = machine.clock.monotonic_seconds()
        found = bytes(store.fetch_range("k", start_position=start, end_position_exclusive=end))
        assert found == body[start:end]
        assert machine.clock.monotonic_seconds() - before >= (len(found) - LIMITED_REQUEST_BYTES) / MIB
    total = len(body) + LIMITED_REQUEST_BYTES + 2
    assert machine.clock.monotonic_seconds() >= (total - LIMITED_REQUEST_BYTES) / MIB


def test_behind_the_end_is_still_short(tmp_path: pathlib.Path, machine: Machine) -> None:
    """If this fails, a truncated object is another error under a limit."""
    (tmp_path / "k").write_bytes(b"x" * LIMITED_REQUEST_BYTES)
    store = limited(tmp_path, machine)
    big = 3 * LIMITED_REQUEST_BYTES
    assert len(memoryview(store.fetch_range("k", start_position=1, end_position_exclusive=big))) == (4 << 20) - 1
    assert len(memoryview(store.fetch_range("k", start_position=0, end_position_exclusive=big))) == 4 << 20
    assert bytes(store.fetch_range("k", start_position=big, end_position_exclusive=3 * big)) == b""
    with pytest.raises(ObjectNotFoundError):
        store.fetch_range("none", start_position=0, end_position_exclusive=big)


def test_what_comes_after_a_description_waits_for_it(tmp_path: pathlib.Path, machine: Machine) -> None:
    """If this fails, ten thousand manifests pass a limit unseen."""
    (tmp_path / "m").write_bytes(b"{" * MIB)
    store = limited(tmp_path, machine)
    for _ in range(4):
        assert len(memoryview(store.fetch("m"))) == MIB
    assert machine.clock.monotonic_seconds() >= 3


def test_no_limit_is_no_store_around(tmp_path: pathlib.Path, machine: Machine) -> None:
    """If this fails, everybody pays for a limit that nobody set."""
    store = LocalStore(str(tmp_path), machine)
    assert limited_reads(store, None, machine) is store


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_copy_keeps_to_the_limit_of_each_side(tmp_path: pathlib.Path, machine: Machine, side: str) -> None:
    """If this fails, moving a bucket takes the network from the brokers that read it."""
    bucket = Bucket(tmp_path / "source")
    for number in range(3):
        batches = [message(3 * number + at, chr(65 + at) * MIB, 0) for at in range(3)]
        bucket.segment(f"u{number}", batches, lineage={0: 0})
    with open_tier(
        str(tmp_path / "source"), config=CONFIG if side == "source" else None, machine=machine, limited=True
    ) as tier:
        given = {"chunk.size": str(MIB)} | (CONFIG if side == "target" else {})
        target = open_copy_target(str(tmp_path / "dest"), config=given, machine=machine)
        try:
            run = BucketCopy(tier, target, workers=2)
            assert [outcome.error for outcome in run] == [None] * 3
        finally:
            target.close()
    assert machine.clock.monotonic_seconds() >= run.size_bytes / MIB - 8
    with open_tier(str(tmp_path / "source"), config=CONFIG, machine=machine) as tier:
        assert not isinstance(tier.store, LimitedStore)
