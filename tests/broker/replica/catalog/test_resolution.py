"""Partitions that are resolved: what is damaged, lost or empty, and what is tried again."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time

import pytest

from tests.support.batches import encode, message
from tests.support.buckets import Bucket
from tests.support.catalogs import (
    Watching,
    history_of,
    opened_catalog,
    relisted,
    remove,
    segment,
    spans_of,
)
from tests.support.loops import run_on
from tests.support.waiting import until
from tierlog.broker.replica.catalog.cached_history import CachedHistory
from tierlog.errors import CorruptObjectError, ObjectNotFoundError, StoreUnavailableError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.scan.following.resolution import LATE_MS
from tierlog.scan.history import PartitionHistory


def test_one_unreadable_manifest_harms_its_partition_alone(tmp_path: pathlib.Path) -> None:
    """One damaged object would make the whole bucket unreadable, or its records would be left out in silence."""
    bucket = Bucket(tmp_path)
    for first in (0, 2, 4):
        segment(bucket, first)
    segment(Bucket(tmp_path, partition=1), 0)
    bucket.path("s2e0", "rsm-manifest").write_bytes(b"{")
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            histories = history_of(catalog, "orders")
            for _ in range(3):
                with pytest.raises(CorruptObjectError, match="00002"):
                    await histories.resolve()
            fetches = watching.store.fetched.count(f"{bucket.keys['s2e0']}.rsm-manifest")
            assert fetches == 1, "it is tried again after a pause, not at each request"
            assert spans_of(await history_of(catalog, "orders", 1).resolve()) == [(0, 2)]
            remove(bucket, "s2e0")
            segment(bucket, 2)
            await relisted(catalog)
            assert spans_of(await histories.resolve()) == [(0, 2), (2, 4), (4, 6)]

    run_on("uvloop", main)


def test_an_unreadable_copy_is_left_out_where_the_log_went_on_behind_it(tmp_path: pathlib.Path) -> None:
    """A partition would be unreadable though every record of it is there."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0, 4)
    segment(bucket, 2, 2)
    segment(bucket, 4)
    bucket.path("s2e0", "rsm-manifest").write_bytes(b"{")
    _age(bucket, "s0e0", "s2e0")

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(0, 4), (4, 6)]

    run_on("uvloop", main)


def test_an_unreadable_segment_that_may_be_the_newest_leaders_is_an_error(tmp_path: pathlib.Path) -> None:
    """Of an unclean election the branch that was cut off would be served, until the manifest can be read: other records
    would then stand at offsets that consumers have read.
    """
    bucket = Bucket(tmp_path)
    segment(bucket, 0, 4)
    segment(bucket, 2, epoch=1, lineage={0: 0, 1: 2})
    manifest = bucket.path("s2e1", "rsm-manifest")
    whole = manifest.read_bytes()
    manifest.write_bytes(b"{")

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            with pytest.raises(CorruptObjectError, match="00002"):
                await history_of(catalog, "orders").resolve()
            manifest.write_bytes(whole)
            await relisted(catalog)
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(0, 2), (2, 4)]

    run_on("uvloop", main)


def test_a_segment_that_each_listing_has_and_no_read_finds_is_an_error(tmp_path: pathlib.Path) -> None:
    """As above, by a store that lists an object which it does not give."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0, 4)
    segment(bucket, 2, epoch=1, lineage={0: 0, 1: 2})
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            watching.store.missing.add(f"{bucket.keys['s2e1']}.rsm-manifest")
            with pytest.raises(ObjectNotFoundError, match="is listed, and is not there"):
                await history_of(catalog, "orders").resolve()
            watching.store.missing.clear()
            history = await _resolved_at_last(history_of(catalog, "orders"), ObjectNotFoundError)
            assert spans_of(history) == [(0, 2), (2, 4)]

    run_on("uvloop", main)


@pytest.mark.parametrize("left", ["a branch that was cut off", "a part of the log"])
def test_the_newest_segments_do_not_go_before_older_ones(
    tmp_path: pathlib.Path, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While a topic is being deleted, in whatever order, consumers would be sent back to records that they have had, or
    to ones that never counted.
    """
    bucket = Bucket(tmp_path)
    segment(bucket, 0, 2)
    segment(bucket, 2, 6)
    segment(bucket, 4, epoch=1, lineage={0: 0, 1: 4})
    segment(bucket, 6, epoch=1, lineage={0: 0, 1: 4})

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            assert spans_of(await histories.resolve()) == [(0, 2), (2, 4), (4, 6), (6, 8)]
            remove(bucket, "s6e1")
            if left == "a branch that was cut off":
                remove(bucket, "s4e1")
            await relisted(catalog)
            await until(lambda: "older ones are left" in caplog.text)
            assert spans_of(await histories.resolve()) == [(0, 2), (2, 4), (4, 6), (6, 8)]
            for name in ("s0e0", "s2e0", "s4e1"):
                if bucket.path(name, "log").exists():
                    remove(bucket, name)
            await relisted(catalog)
            assert catalog.partition("orders", 0) is None

    run_on("uvloop", main)


async def _resolved_at_last(histories: CachedHistory, error: type[Exception]) -> PartitionHistory:
    """The history, once the pause behind an error is over."""

    async def resolved() -> PartitionHistory:
        while True:
            try:
                return await histories.resolve()
            except error:
                await asyncio.sleep(0.05)

    return await asyncio.wait_for(resolved(), 20)


def _age(bucket: Bucket, *names: str) -> None:
    """Have segments be written so long ago that whatever is written now is behind them for good."""
    written = time.time() - 2 * LATE_MS / 1000
    for name in names:
        for suffix in ("log", "indexes", "rsm-manifest"):
            os.utime(bucket.path(name, suffix), (written, written))


def test_a_log_that_is_lost_in_the_middle_is_an_error(tmp_path: pathlib.Path) -> None:
    """A consumer would pass over the lost records and never know."""
    bucket = Bucket(tmp_path)
    for first in (0, 2, 4):
        segment(bucket, first)
    remove(bucket, "s2e0", "log")

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            with pytest.raises(FileNotFoundError, match="retention"):
                await history_of(catalog, "orders").resolve()

    run_on("uvloop", main)


def test_a_failing_store_is_tried_again_after_a_pause(tmp_path: pathlib.Path) -> None:
    """A passing error would last, or a store in trouble would be asked by every request of every client."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            watching.store.unreadable.add("rsm-manifest")
            histories = history_of(catalog, "orders")
            for _ in range(5):
                with pytest.raises(StoreUnavailableError):
                    await histories.resolve()
            assert len(watching.store.fetched) == 1
            watching.store.unreadable.clear()
            await _resolved_at_last(histories, StoreUnavailableError)

    run_on("uvloop", main)


def test_a_newer_listing_that_cannot_be_resolved_leaves_the_older_history(tmp_path: pathlib.Path) -> None:
    """A new segment with a damaged manifest would take away the records that were readable all along."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            history = await histories.resolve()
            segment(bucket, 2)
            whole = bucket.path("s2e0", "rsm-manifest").read_bytes()
            bucket.path("s2e0", "rsm-manifest").write_bytes(b"{")
            await relisted(catalog)
            await asyncio.sleep(0.1)
            assert histories.current is history
            assert await histories.resolve() is history
            bucket.path("s2e0", "rsm-manifest").write_bytes(whole)
            await relisted(catalog)
            await until(lambda: histories.current is not history)

    run_on("uvloop", main)


@pytest.mark.parametrize("start", [0, 7])
def test_a_log_without_records_is_an_empty_partition(tmp_path: pathlib.Path, start: int) -> None:
    """A partition to which nobody has written yet would be an unknown one, and its consumer fail."""
    for partition in (0, 1):
        folder = tmp_path / f"orders-{partition}"
        folder.mkdir()
        (folder / f"{start:020d}.log").write_bytes(b"")
        (folder / "leader-epoch-checkpoint").write_bytes(f"0\n1\n3 {start}\n".encode() if partition else b"")

    async def main() -> None:
        async with opened_catalog(tmp_path, layout="log-dir") as catalog:
            histories = history_of(catalog, "orders", 1)
            history = await histories.resolve()
            assert (history.earliest_offset, history.end_offset_exclusive) == (start, start)
            assert history.lineage.epochs == LeaderEpochs([(3, start)])
            assert (history.spans, history.gaps, history.unreferenced) == ((), (), ())
            assert (await history_of(catalog, "orders", 0).resolve()).lineage.epochs == LeaderEpochs()
            (tmp_path / "orders-1" / f"{start:020d}.log").write_bytes(encode(message(start, "m", 3)))
            await relisted(catalog)
            await until(lambda: histories.current is not history)
            assert spans_of(await histories.resolve()) == [(start, start + 1)]

    run_on("uvloop", main)
