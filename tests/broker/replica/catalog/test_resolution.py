"""Partitions that are resolved: what is damaged, lost or empty, and what is tried again."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from tests.support.batches import encode
from tests.support.buckets import Bucket, message
from tests.support.catalogs import (
    Watching,
    histories_of,
    opened_catalog,
    relisted,
    remove,
    segment,
    spans_of,
    until,
)
from tests.support.loops import run_on
from tierlog.errors import CorruptObjectError, StoreUnavailableError


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
            histories = histories_of(catalog, "orders")
            for _ in range(3):
                with pytest.raises(CorruptObjectError, match="00002"):
                    await histories.resolve()
            fetches = watching.store.fetched.count(f"{bucket.keys['s2e0']}.rsm-manifest")
            assert fetches == 1, "it is tried again after a pause, not at each request"
            assert spans_of(await histories_of(catalog, "orders", 1).resolve()) == [(0, 2)]
            remove(bucket, "s2e0")
            segment(bucket, 2)
            await relisted(catalog)
            assert spans_of(await histories.resolve()) == [(0, 2), (2, 4), (4, 6)]

    run_on("uvloop", main)


def test_an_unreadable_copy_is_left_out_where_another_has_its_records(tmp_path: pathlib.Path) -> None:
    """A partition would be unreadable though every record of it is there."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0, 4)
    segment(bucket, 2, 2)
    bucket.path("s2e0", "rsm-manifest").write_bytes(b"{")

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            assert spans_of(await histories_of(catalog, "orders").resolve()) == [(0, 4)]

    run_on("uvloop", main)


def test_a_log_that_is_lost_in_the_middle_is_an_error(tmp_path: pathlib.Path) -> None:
    """A consumer would pass over the lost records and never know."""
    bucket = Bucket(tmp_path)
    for first in (0, 2, 4):
        segment(bucket, first)
    remove(bucket, "s2e0", "log")

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            with pytest.raises(FileNotFoundError, match="retention"):
                await histories_of(catalog, "orders").resolve()

    run_on("uvloop", main)


def test_a_failing_store_is_tried_again_after_a_pause(tmp_path: pathlib.Path) -> None:
    """A passing error would last, or a store in trouble would be asked by every request of every client."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            watching.store.unreadable.add("rsm-manifest")
            histories = histories_of(catalog, "orders")
            for _ in range(5):
                with pytest.raises(StoreUnavailableError):
                    await histories.resolve()
            assert len(watching.store.fetched) == 1
            watching.store.unreadable.clear()

            async def resolved() -> None:
                while True:
                    try:
                        await histories.resolve()
                    except StoreUnavailableError:
                        await asyncio.sleep(0.05)
                    else:
                        return

            await asyncio.wait_for(resolved(), 20)

    run_on("uvloop", main)


def test_a_newer_listing_that_cannot_be_resolved_leaves_the_older_history(tmp_path: pathlib.Path) -> None:
    """A new segment with a damaged manifest would take away the records that were readable all along."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = histories_of(catalog, "orders")
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
            histories = histories_of(catalog, "orders", 1)
            history = await histories.resolve()
            assert (history.earliest_offset, history.end_offset_exclusive) == (start, start)
            assert history.lineage.epochs == ((3, start),)
            assert (history.spans, history.gaps, history.unreferenced) == ((), (), ())
            assert (await histories_of(catalog, "orders", 0).resolve()).lineage.epochs == ()
            (tmp_path / "orders-1" / f"{start:020d}.log").write_bytes(encode(message(start, "m", 3)))
            await relisted(catalog)
            await until(lambda: histories.current is not history)
            assert spans_of(await histories.resolve()) == [(start, start + 1)]

    run_on("uvloop", main)
