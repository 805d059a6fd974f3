"""Segments that are there before those in front of them: nothing is passed over that may still come."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator

from tests.support.buckets import Bucket
from tests.support.catalogs import history_of, opened_catalog, relisted, remove, segment, spans_of
from tests.support.loops import run_on
from tests.support.waiting import until
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.following.resolution import LATE_MS


def age(bucket: Bucket, name: str, seconds: float) -> None:
    """Have a segment written so long ago."""
    at = time.time() - seconds
    for suffix in ("log", "indexes", "rsm-manifest"):
        os.utime(bucket.path(name, suffix), (at, at))


def test_what_lies_behind_a_gap_waits_for_what_is_late(tmp_path: pathlib.Path) -> None:
    """A consumer would pass over records that come a moment later, and never read them."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            known = await histories.resolve()
            segment(bucket, 4)
            for _ in range(2):
                await relisted(catalog)
                await until(lambda: not histories._is_pending)
                assert spans_of(await histories.resolve()) == spans_of(known) == [(0, 2)]
            segment(bucket, 2)
            await relisted(catalog)
            await until(lambda: spans_of(histories.current) == [(0, 2), (2, 4), (4, 6)])  # type: ignore[arg-type]

    run_on("uvloop", main)


def test_the_first_look_at_a_partition_waits_for_what_is_late(tmp_path: pathlib.Path) -> None:
    """A server that starts while a bucket fills would pass over records."""
    bucket = Bucket(tmp_path)
    for first in (0, 4):
        segment(bucket, first)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(0, 2)]

    run_on("uvloop", main)


def test_a_leader_of_which_the_first_segment_is_late_says_nothing_yet(tmp_path: pathlib.Path) -> None:
    """The records of the new leader in front of the gap would be passed over, and those of the old one cut off."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0, 6)
    lineage = {0: 0, 1: 4}

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            await histories.resolve()
            segment(bucket, 8, epoch=1, lineage=lineage)
            await relisted(catalog)
            await until(lambda: not histories._is_pending)
            assert spans_of(await histories.resolve()) == [(0, 6)]
            segment(bucket, 4, 4, epoch=1, lineage=lineage)
            await relisted(catalog)
            await until(lambda: spans_of(histories.current) == [(0, 4), (4, 8), (8, 10)])  # type: ignore[arg-type]

    run_on("uvloop", main)


def test_a_gap_that_is_old_is_passed_over(tmp_path: pathlib.Path) -> None:
    """One lost segment would end a partition for good."""
    bucket = Bucket(tmp_path)
    for first in (0, 4):
        segment(bucket, first)
        age(bucket, f"s{first}e0", LATE_MS / 1000 + 1)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(0, 2), (4, 6)]

    run_on("uvloop", main)


def test_a_gap_becomes_old_though_nothing_new_is_listed(tmp_path: pathlib.Path) -> None:
    """A partition that nobody writes any more would never be served to its end."""
    bucket = Bucket(tmp_path)
    for first in (0, 4):
        segment(bucket, first)
    age(bucket, "s4e0", LATE_MS / 1000 - 1)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            assert spans_of(await histories.resolve()) == [(0, 2)]
            await until(lambda: spans_of(histories.current) == [(0, 2), (4, 6)])  # type: ignore[arg-type]

    run_on("uvloop", main)


def test_a_segment_that_is_lost_does_not_move_the_end_back(tmp_path: pathlib.Path) -> None:
    """Consumers at the end would be out of range, and begin anew."""
    bucket = Bucket(tmp_path)
    for first in (0, 2, 4):
        segment(bucket, first)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            await histories.resolve()
            remove(bucket, "s2e0")
            await relisted(catalog)
            await until(lambda: spans_of(histories.current) == [(0, 2), (4, 6)])  # type: ignore[arg-type]

    run_on("uvloop", main)


class _Overtaken(PassingStore):
    """A store in which a copy ended while a listing was under way, which lacks it."""

    overtaken = ""

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        overtaken, self.overtaken = self.overtaken, ""
        for info in self.inner.iter_objects(prefix):
            if not overtaken or overtaken not in info.key:
                yield info


def test_a_listing_that_a_copy_overtook_is_asked_again(tmp_path: pathlib.Path) -> None:
    """A new segment would be served a pause later than it could be."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    stores: list[_Overtaken] = []

    def wrap(store: object) -> _Overtaken:
        stores.append(_Overtaken(store))  # type: ignore[arg-type]
        return stores[-1]

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=wrap) as catalog:
            histories = history_of(catalog, "orders")
            await histories.resolve()
            segment(bucket, 2)
            segment(bucket, 4)
            stores[-1].overtaken = bucket.keys["s2e0"] + ".rsm-manifest"
            await relisted(catalog)
            await until(lambda: spans_of(histories.current) == [(0, 2), (2, 4), (4, 6)])  # type: ignore[arg-type]

    run_on("uvloop", main)
