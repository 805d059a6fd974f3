"""The file of the last listing: what is read from it, and what of it is never believed."""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
from dataclasses import replace

import pytest
import xxhash

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.catalogs import NEVER_SECONDS, history_of, opened_catalog, relisted, spans_of
from tests.support.golden import bucket_root, config_of
from tests.support.loops import run_on
from tests.support.waiting import until
from tierlog import open_tier
from tierlog.broker.replica.catalog.bucket_catalog import CatalogSettings
from tierlog.broker.replica.catalog.saved_listing import ListingSaver, SavedListing
from tierlog.errors import StoreError, StoreUnavailableError
from tierlog.remote.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.following.tier_listing import ListedPartition, TierListing, list_tier
from tierlog.testing.failing_disk import PowerCut

STATE = "/state/listing"


def wrote(root: pathlib.Path, *topics: str) -> None:
    for topic in topics:
        bucket = Bucket(root, topic)
        for offset in range(2):
            bucket.segment(f"s{offset}", [message(offset, "m", 0)], lineage={0: 0})


def on(files: MemoryFiles) -> Machine:
    return replace(Machine(), files=files)


def saved_text(tier: Tier, listing: TierListing) -> bytes:
    files = MemoryFiles()
    SavedListing(STATE, tier, on(files)).save(listing)
    return files.read_whole(STATE)


def loaded(tier: Tier, data: bytes) -> TierListing | None:
    files = MemoryFiles()
    files.make_directories("/state")
    files.put(STATE, data)
    return SavedListing(STATE, tier, on(files)).load()


def sealed(*lines: dict[str, object]) -> bytes:
    """Lines with a trailer that fits them."""
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    trailer = {"folders": len(lines) - 1, "checksum": xxhash.xxh3_128_hexdigest(text)}
    return text + json.dumps(trailer).encode() + b"\n"


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered", "custom-meta"])
def test_what_is_loaded_is_what_was_saved(data: pathlib.Path, run: str) -> None:
    """After a restart a client would see other topics than before."""
    with open_tier(str(bucket_root(data / run)), config=config_of(data / run)) as tier:
        listing = list_tier(tier)
        assert loaded(tier, saved_text(tier, listing)) == listing


def test_folders_in_which_nothing_is_whole_are_kept_too(tmp_path: pathlib.Path) -> None:
    """The listing behind a start would take every unfinished upload for news."""
    wrote(tmp_path, "orders", "torn")
    for manifest in tmp_path.glob("torn*/0/*.rsm-manifest"):
        manifest.unlink()
    with open_tier(str(tmp_path)) as tier:
        listing = list_tier(tier)
        assert len(listing.folders) == 2
        assert loaded(tier, saved_text(tier, listing)) == listing
        empty = TierListing({}, {}, 0)
        assert loaded(tier, saved_text(tier, empty)) == empty


def test_a_file_that_is_damaged_anywhere_is_not_used(tmp_path: pathlib.Path) -> None:
    """A flipped bit would take away a segment, or serve one topic under the id of another."""
    wrote(tmp_path, "orders")
    with open_tier(str(tmp_path)) as tier:
        whole = saved_text(tier, list_tier(tier))
        for position in range(len(whole)):
            for bit in (0x01, 0x80):
                damaged = bytearray(whole)
                damaged[position] ^= bit
                assert loaded(tier, bytes(damaged)) is None, position
            assert loaded(tier, whole[:position]) is None, position
        assert loaded(tier, whole + b"\n") is None
        assert loaded(tier, whole) is not None


def test_a_file_of_another_bucket_or_version_is_not_used(tmp_path: pathlib.Path) -> None:
    """A server would answer with the topics of the bucket that it served before."""
    for root in ("a", "b"):
        wrote(tmp_path / root, "orders")
    with open_tier(str(tmp_path / "a")) as one, open_tier(str(tmp_path / "b")) as other:
        text = saved_text(one, list_tier(one))
        assert loaded(other, text) is None
        header, *rest = [json.loads(line) for line in text.splitlines()[:-1]]
        assert loaded(one, sealed(header, *rest)) is not None
        assert loaded(one, sealed(header | {"version": 2}, *rest)) is None
    with open_tier(str(tmp_path / "a"), layout="log-dir") as other_layout:
        assert loaded(other_layout, text) is None


@pytest.mark.parametrize(
    "change",
    [
        {"path": 5},
        {"names": "abc"},
        {"names": [5, 6, 7, 8, 9, 10]},
        {"names": []},
        {"numbers": "!!"},
        {"numbers": None},
        {"topic": ""},
        {"topic": 5},
        {"topicId": "short"},
        {"topicId": None},
        {"partition": -1},
        {"partition": 2**40},
        {"partition": "0"},
        {"segments": -1},
        {"segments": 1.5},
        {"segments": True},
    ],
)
def test_a_file_that_somebody_made_is_no_danger(tmp_path: pathlib.Path, change: dict[str, object]) -> None:
    """A file with a checksum that fits and values that do not would stop the server at each start."""
    wrote(tmp_path, "orders")
    with open_tier(str(tmp_path)) as tier:
        header, folder = [json.loads(line) for line in saved_text(tier, list_tier(tier)).splitlines()[:-1]]
        assert loaded(tier, sealed(header, folder)) is not None
        assert loaded(tier, sealed(header, folder | change)) is None
        assert loaded(tier, sealed(header, folder, folder)) is None
        assert loaded(tier, sealed()) is None
        assert loaded(tier, b"[" * 100_000 + b"\n") is None


def test_a_power_cut_while_it_is_written_leaves_one_of_both(tmp_path: pathlib.Path) -> None:
    """After a crash the server would start with half a bucket."""
    wrote(tmp_path, "orders")
    with open_tier(str(tmp_path)) as tier:
        old = list_tier(tier)
        wrote(tmp_path, "more")
        new = list_tier(tier, old)
        found, at = set(), 0
        while True:
            files = MemoryFiles()
            SavedListing(STATE, tier, on(files)).save(old)
            at += 1
            power = PowerCut(files, at=at, seed=at)
            with contextlib.suppress(StoreError):
                SavedListing(STATE, tier, on(files)).save(new)
            if power.left is None:
                break
            after = SavedListing(STATE, tier, on(power.left)).load()
            assert after in (old, new)
            found.add(after == new)
        found.add(SavedListing(STATE, tier, on(power.cut())).load() == new)
        assert at > 3
        assert found == {False, True}


def test_saving_is_seldom_and_failing_is_no_harm(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """A large listing would be written all the time, or a full disk would end the following."""
    wrote(tmp_path, "orders")
    clock, files = ManualClock(), MemoryFiles()
    with open_tier(str(tmp_path)) as tier:
        saved = SavedListing(STATE, tier, on(files))
        saver = ListingSaver(saved, replace(on(files), clock=clock))
        assert saver.load() is None
        first = list_tier(tier)
        saver.note(first)
        assert saved.load() == first
        wrote(tmp_path, "more")
        second = list_tier(tier, first)
        saver.note(second)
        assert saved.load() == first
        clock.advance(40)
        saver.note(list_tier(tier, second))
        assert saved.load() == first, "it is the same listing, which is to be saved later"
        saver.flush()
        assert saved.load() == second
        blocked = tmp_path / "file"
        blocked.write_text("x")
        failing = ListingSaver(SavedListing(f"{blocked}/listing", tier, Machine()), Machine())
        with caplog.at_level(logging.WARNING):
            failing.note(first)
        assert "cannot be saved" in caplog.text


class NoListing(PassingStore):
    """A store that answers no listing."""

    def iter_objects(self, prefix: str = "") -> object:  # type: ignore[override]
        raise StoreUnavailableError("503")


def test_a_restart_serves_before_it_lists_and_then_lists(tmp_path: pathlib.Path) -> None:
    """A server over a large bucket would answer nobody for minutes after each restart."""
    wrote(tmp_path / "bucket", "orders")
    settings = CatalogSettings(
        refresh_seconds=NEVER_SECONDS, segments_ahead_max=0, state_file=str(tmp_path / "state" / "deep" / "listing")
    )
    gates: list[bool] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        return NoListing(store) if gates else store

    async def first() -> None:
        async with opened_catalog(tmp_path / "bucket", settings, layout="aiven") as catalog:
            wrote(tmp_path / "bucket", "more")
            await relisted(catalog)  # too soon to be saved: the close saves it

    async def without_a_store() -> None:
        gates.append(True)
        async with opened_catalog(tmp_path / "bucket", settings, layout="aiven", wrap_store=wrap) as catalog:
            assert "since the start" in catalog.unready_reason
            assert catalog.refresh_age_seconds is None
            assert [topic.name for topic in catalog.topics()] == ["more", "orders"]
            assert spans_of(await history_of(catalog, "more").resolve()) == [(0, 1), (1, 2)]
            await until(lambda: catalog.refresh_error is not None)

    async def with_news() -> None:
        gates.clear()
        wrote(tmp_path / "bucket", "news")
        async with opened_catalog(tmp_path / "bucket", settings, layout="aiven") as catalog:
            await until(lambda: catalog.find("news") is not None)
            assert catalog.refresh_age_seconds is not None

    for main in (first, without_a_store, with_news):
        run_on("uvloop", main)


def test_a_saved_listing_shares_what_did_not_change(tmp_path: pathlib.Path) -> None:
    """The first listing behind a start would have all partitions resolved anew."""
    wrote(tmp_path, "orders", "other")
    with open_tier(str(tmp_path)) as tier:
        known = loaded(tier, saved_text(tier, list_tier(tier)))
        assert known is not None
        again = list_tier(tier, known)
        assert all(again.folders[path] is each for path, each in known.folders.items())
        assert all(isinstance(each, ListedPartition) for each in again.folders.values())
