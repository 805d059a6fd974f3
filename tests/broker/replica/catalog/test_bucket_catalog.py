"""A catalog over buckets that change underneath it."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import shutil
import sys

import pytest
from kio.schema.errors import ErrorCode

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.catalogs import (
    NEVER_SECONDS,
    BarePartition,
    Watching,
    history_of,
    opened_catalog,
    relisted,
    remove,
    segment,
    spans_of,
)
from tests.support.golden import bucket_root, config_of
from tests.support.kip_scripts import SCRIPTS
from tests.support.loops import LOOPS, run_on
from tests.support.segments import topic_uuid
from tests.support.waiting import ends, until
from tierlog import open_tier
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.catalog.bucket_catalog import BucketCatalog, CatalogSettings
from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.scan.history import TierHistory

ORDERS = Uuid.from_text(topic_uuid("orders"))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "place",
    [
        "main-plain",
        "zstd-aes",
        "local-tiered",
        "custom-meta",
        "compacted",
        "record-v0-v1/mixed-v0-v1-v2.log",
        "zstd-aes/local-before",
    ],
)
def test_histories_are_those_of_a_scan(data: pathlib.Path, place: str, loop: str) -> None:
    """A consumer would get other records than `tierlog cat` shows, on real buckets of all layouts."""
    root, config = data / place, {}
    if (root / "config.json").exists():
        root, config = bucket_root(root), config_of(root)
    with open_tier(str(root), config=config) as tier:
        expected = TierHistory(tier).partitions()
    assert expected

    async def main() -> None:
        async with opened_catalog(root, config=config) as catalog:
            served = {(topic.name, number) for topic in catalog.topics() for number in topic.partitions}
            assert served == {(each.topic, each.partition) for each in expected}
            for each in expected:
                histories = history_of(catalog, each.topic, each.partition)
                assert histories.current is None
                assert await histories.resolve() == each
                assert histories.current == each
                found = catalog.find(each.topic)
                assert found is not None
                assert catalog.find_by_id(found.topic_id) in (found, None)

    run_on(loop, main)


def test_topics_are_told_without_a_manifest(tmp_path: pathlib.Path) -> None:
    """A start over many segments would take minutes before the first client is answered."""
    for partition in (0, 2):
        segment(Bucket(tmp_path, partition=partition), 0)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            (topic,) = catalog.topics()
            assert (topic.name, topic.topic_id, topic.partitions) == ("orders", ORDERS, (0, 2))
            assert catalog.find_by_id(ORDERS) == catalog.find("orders") == topic
            assert catalog.find("other") is catalog.find_by_id(Uuid.from_text(topic_uuid("x"))) is None
            assert catalog.partition("orders", 1) is catalog.partition("other", 0) is None
            assert catalog.partition("orders", -1) is None
            assert not watching.store.fetched

    run_on("uvloop", main)


def test_all_who_ask_at_once_wait_for_one_resolution(tmp_path: pathlib.Path) -> None:
    """A thousand consumers that start together would read every manifest a thousand times."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    segment(bucket, 2)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            histories = history_of(catalog, "orders")
            found = await asyncio.gather(*(histories.resolve() for _ in range(50)))
            assert {id(each) for each in found} == {id(histories.current)}
            assert len(watching.store.fetched) == 2
            assert history_of(catalog, "orders") is histories

    run_on("uvloop", main)


def test_a_task_that_gives_up_does_not_harm_the_others(tmp_path: pathlib.Path) -> None:
    """A client that disconnects would end the resolution that others wait for."""
    segment(Bucket(tmp_path), 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            given_up, waiting = asyncio.ensure_future(histories.resolve()), asyncio.ensure_future(histories.resolve())
            await asyncio.sleep(0)
            given_up.cancel()
            assert spans_of(await waiting) == [(0, 2)]
            with pytest.raises(asyncio.CancelledError):
                await given_up

    run_on("uvloop", main)


def test_new_segments_are_followed_and_known_manifests_not_read_again(tmp_path: pathlib.Path) -> None:
    """A consumer would never see what was written after the start, or each refresh would read the whole bucket."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    segment(Bucket(tmp_path, "idle"), 0)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            histories, idle = history_of(catalog, "orders"), history_of(catalog, "idle")
            first, idle_history = await histories.resolve(), await idle.resolve()
            version = catalog.version
            other = catalog.watch([("idle", 0)])
            waiting = asyncio.ensure_future(catalog.watch([("orders", 0)]).wait(NEVER_SECONDS))
            watching.store.fetched.clear()
            segment(bucket, 2)
            await relisted(catalog)
            assert await waiting
            assert catalog.version > version
            assert not other.has_rung, "a poll of another partition is not woken"
            assert histories.current is not first
            assert spans_of(await histories.resolve()) == [(0, 2), (2, 4)]
            assert [key for key in watching.store.fetched if "rsm-manifest" in key] == [
                f"{bucket.keys['s2e0']}.rsm-manifest"
            ]
            assert idle.current is idle_history

    run_on("uvloop", main)


def test_nothing_new_wakes_nobody(tmp_path: pathlib.Path) -> None:
    """Thousands of long polls would be answered, and asked again, at every refresh."""
    segment(Bucket(tmp_path), 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            history = await history_of(catalog, "orders").resolve()
            version = catalog.version
            waiting = asyncio.ensure_future(catalog.watch([("orders", 0)]).wait(0.3))
            await relisted(catalog)
            assert not await waiting
            assert catalog.version == version
            assert history_of(catalog, "orders").current is history

    run_on("uvloop", main)


def test_retention_moves_the_log_start(tmp_path: pathlib.Path) -> None:
    """A consumer would be sent to records that are deleted."""
    bucket = Bucket(tmp_path)
    for first in (0, 2, 4):
        segment(bucket, first)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            assert (await histories.resolve()).earliest_offset == 0
            remove(bucket, "s0e0")
            remove(bucket, "s2e0", "log")  # its deletion goes on
            await relisted(catalog)
            await until(lambda: histories.current is not None and histories.current.earliest_offset == 4)

    run_on("uvloop", main)


def test_a_missed_object_has_its_partition_listed_soon(tmp_path: pathlib.Path) -> None:
    """Until the next refresh a consumer would be told of a storage error for what retention took."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    segment(bucket, 2)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            histories = history_of(catalog, "orders")
            await histories.resolve()
            version, lists = catalog.version, watching.store.lists
            remove(bucket, "s0e0", "log")
            for _ in range(100):
                histories.report_missing(FileNotFoundError("s0e0"))
            await until(lambda: histories.current is not None and histories.current.earliest_offset == 2)
            assert watching.store.lists == lists + 1
            await until(lambda: catalog.version > version)
            # The next listing finds the same, and nothing changes any more.
            history = histories.current
            await relisted(catalog)
            assert histories.current is history

    run_on("uvloop", main)


def test_segments_that_vanish_before_they_are_resolved_are_listed_again(tmp_path: pathlib.Path) -> None:
    """A partition whose oldest segment was deleted since the listing would not be readable."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    segment(bucket, 2)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            remove(bucket, "s0e0")
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(2, 4)]

    run_on("uvloop", main)


def test_what_is_gone_is_an_unknown_topic(tmp_path: pathlib.Path) -> None:
    """A consumer of a deleted topic would wait for ever, or get the records of the topic that replaced it."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    segment(Bucket(tmp_path, partition=1), 0)
    other = segment(Bucket(tmp_path, "other"), 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            served, partition = catalog.partition("orders", 0), history_of(catalog, "orders", 1)
            gone = history_of(catalog, "other")
            histories = history_of(catalog, "orders")
            await histories.resolve()
            version = catalog.version
            shutil.rmtree(tmp_path / other.split("/")[0])
            shutil.rmtree((tmp_path / bucket.keys["s0e0"]).parent.parent)
            newer = Bucket(tmp_path, topic_id=topic_uuid("another id"))
            segment(newer, 0, 7)
            await relisted(catalog)
            assert catalog.version > version
            assert [(str(topic.topic_id), topic.partitions) for topic in catalog.topics()] == [(newer.topic_id, (0,))]
            assert catalog.find_by_id(ORDERS) is None
            for each in (histories, partition, gone):
                assert each.current is None
                with pytest.raises(ApiError) as told:
                    await each.resolve()
                assert told.value.code is ErrorCode.unknown_topic_or_partition
            gone.report_missing(FileNotFoundError("x"))
            assert catalog.partition("orders", 0) is not served
            assert catalog.partition("orders", 1) is None
            assert spans_of(await history_of(catalog, "orders").resolve()) == [(0, 7)]

    run_on("uvloop", main)


def test_partitions_that_are_added_are_served(tmp_path: pathlib.Path) -> None:
    """Consumers of a topic that grew would never be assigned its new partitions."""
    segment(Bucket(tmp_path), 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            version = catalog.version
            segment(Bucket(tmp_path, partition=3), 0)
            segment(Bucket(tmp_path, "other"), 0)
            await relisted(catalog)
            assert catalog.version > version
            assert [(topic.name, topic.partitions) for topic in catalog.topics()] == [
                ("orders", (0, 3)),
                ("other", (0,)),
            ]
            assert spans_of(await history_of(catalog, "orders", 3).resolve()) == [(0, 2)]

    run_on("uvloop", main)


def test_an_unclean_election_replaces_the_history_as_a_whole(tmp_path: pathlib.Path) -> None:
    """A consumer would be sent records of the abandoned branch after the new leader's have come."""
    first = Bucket(tmp_path)
    first.segment("u1", [message(0, "m0", 0), message(1, "dead", 0), message(2, "dead", 0)], lineage={0: 0})

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            histories = history_of(catalog, "orders")
            assert spans_of(await histories.resolve()) == [(0, 3)]
            SCRIPTS["4"](tmp_path)
            await relisted(catalog)
            await until(lambda: histories.current is not None and histories.current.end_offset_exclusive == 2)
            assert histories.current is not None
            assert len(histories.current.unreferenced) == 1

    run_on("uvloop", main)


def test_a_listing_that_fails_keeps_what_is_known(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store that is away for a minute would take all topics away from all clients."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            histories = history_of(catalog, "orders")
            history = await histories.resolve()
            watching.store.broken = StoreUnavailableError("503")
            with caplog.at_level(logging.INFO):
                for _ in range(3):
                    await relisted(catalog)
            assert "503" in str(catalog.refresh_error)
            assert histories.current is history
            assert [topic.name for topic in catalog.topics()] == ["orders"]
            assert sum("cannot be listed" in record.message for record in caplog.records) == 1
            watching.store.broken = None
            segment(bucket, 2)
            await relisted(catalog)
            assert catalog.refresh_error is None
            await until(lambda: histories.current is not history)

    run_on("uvloop", main)


@pytest.mark.parametrize(("refresh_seconds", "limit_seconds"), [(1.0, 30.0), (60.0, 180.0)])
def test_a_server_is_ready_while_its_listing_is_young(
    refresh_seconds: float, limit_seconds: float, tmp_path: pathlib.Path
) -> None:
    """A balancer goes on to send clients to a server whose bucket is gone, and they read what is no longer true."""
    segment(Bucket(tmp_path), 0)
    clock, watching = ManualClock(), Watching()
    settings = CatalogSettings(refresh_seconds=refresh_seconds, segments_ahead_max=0)

    async def main() -> None:
        machine = Machine(clock=clock)
        async with opened_catalog(tmp_path, settings, wrap_store=watching, machine=machine) as catalog:
            assert catalog.unready_reason == ""
            watching.store.broken = StoreUnavailableError("503 of the store")
            clock.advance(limit_seconds - 1)
            await relisted(catalog)
            assert catalog.unready_reason == ""
            clock.advance(1)
            expected = f"the last listing of the bucket is {limit_seconds:g} s old; {limit_seconds:g} s are allowed"
            assert catalog.unready_reason == f"{expected}: 503 of the store"
            watching.store.broken = None
            await relisted(catalog)
            assert catalog.unready_reason == ""

    run_on("uvloop", main)


def test_a_listing_that_stalls_blocks_nobody_and_is_given_up(tmp_path: pathlib.Path) -> None:
    """One hanging request would freeze the server, or following would end for ever."""
    bucket = Bucket(tmp_path)
    segment(bucket, 0)
    segment(Bucket(tmp_path, partition=1), 0)
    watching = Watching()
    settings = CatalogSettings(refresh_seconds=NEVER_SECONDS, refresh_deadline_seconds=2.0, segments_ahead_max=0)

    async def main() -> None:
        async with opened_catalog(tmp_path, settings, wrap_store=watching) as catalog:
            watching.store.gate.clear()
            before = catalog.listings
            catalog.refresh_soon()
            await until(lambda: watching.store.lists >= 2)
            assert spans_of(await history_of(catalog, "orders", 1).resolve()) == [(0, 2)]
            await until(lambda: catalog.listings > before)
            assert isinstance(catalog.refresh_error, StoreUnavailableError)
            watching.store.gate.set()
            segment(Bucket(tmp_path, "new"), 0)
            await until(lambda: catalog.find("new") is not None)
            assert catalog.refresh_age_seconds is not None
            assert catalog.refresh_age_seconds < NEVER_SECONDS

    run_on("uvloop", main)


def test_a_start_over_a_store_that_fails_says_so(tmp_path: pathlib.Path) -> None:
    """A server with a wrong address would start, and serve nothing, in silence."""
    segment(Bucket(tmp_path), 0)

    async def main() -> None:
        watching = Watching()
        with open_tier(str(tmp_path), layout="aiven", wrap_store=watching) as tier:
            watching.store.broken = StoreUnavailableError("503")
            catalog = BucketCatalog(tier, lambda histories: histories)  # type: ignore[arg-type, return-value]
            with pytest.raises(StoreUnavailableError):
                await catalog.start()
            assert "since the start" in catalog.unready_reason
            await catalog.close()

    run_on("uvloop", main)


def test_a_start_may_go_without_the_bucket(tmp_path: pathlib.Path) -> None:
    """A front would take a whole cluster from its clients when its bucket is away for a minute."""
    segment(Bucket(tmp_path), 0)

    async def main() -> None:
        watching = Watching()
        with open_tier(str(tmp_path), layout="aiven", wrap_store=watching) as tier:
            watching.store.broken = StoreUnavailableError("503")
            catalog = BucketCatalog(tier, BarePartition, CatalogSettings(segments_ahead_max=0))  # type: ignore[arg-type]
            await catalog.start(may_be_away=True)
            try:
                assert not catalog.topics()
                assert "503" in catalog.unready_reason
                watching.store.broken = None
                await until(lambda: catalog.find("orders") is not None)
                assert not catalog.unready_reason
            finally:
                await catalog.close()

    run_on("uvloop", main)


def test_what_nobody_asked_for_is_resolved_ahead(tmp_path: pathlib.Path) -> None:
    """Clients would be told of partitions without leader epochs for as long as nobody reads them."""
    for partition in range(5):
        segment(Bucket(tmp_path, partition=partition), 0)
    watching = Watching()
    settings = CatalogSettings(refresh_seconds=NEVER_SECONDS, segments_ahead_max=3)

    async def main() -> None:
        async with opened_catalog(tmp_path, settings, wrap_store=watching) as catalog:
            version = catalog.version
            await until(lambda: catalog.version > version)
            known = [history_of(catalog, "orders", partition).current is not None for partition in range(5)]
            assert known == [True, True, True, False, False]
            offsets = [catalog.partition("orders", partition).offsets for partition in range(5)]  # type: ignore[union-attr]
            assert [each is not None for each in offsets] == known
            await relisted(catalog)
            assert catalog.version == version + 1
            assert len(watching.store.fetched) == 3

    run_on("uvloop", main)


def test_a_close_ends_what_waits_on_a_store_that_hangs(tmp_path: pathlib.Path) -> None:
    """A server could not be stopped while its store hangs."""
    segment(Bucket(tmp_path), 0)
    watching = Watching()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=watching) as catalog:
            watching.store.gate.clear()
            catalog.refresh_soon()
            await until(lambda: watching.store.lists >= 2)
            with ends():
                await catalog.close()
            watching.store.gate.set()

    run_on("uvloop", main)


def test_waiting_costs_nothing_while_nothing_happens(tmp_path: pathlib.Path) -> None:
    """A thousand idle consumers would keep a core busy."""
    segment(Bucket(tmp_path), 0)

    async def main() -> None:
        async with opened_catalog(tmp_path) as catalog:
            watches = [catalog.watch([("orders", 0)]) for _ in range(1000)]
            waiting = [asyncio.ensure_future(watch.wait(NEVER_SECONDS)) for watch in watches]
            await asyncio.sleep(0.05)
            calls: list[str] = []
            sys.setprofile(lambda frame, event, argument: calls.append(event))  # of this thread alone
            await asyncio.sleep(0.3)
            sys.setprofile(None)
            assert len(calls) < len(watches)
            segment(Bucket(tmp_path, "new"), 0)
            catalog.refresh_soon()
            assert all(await asyncio.gather(*waiting))

    run_on("uvloop", main)
