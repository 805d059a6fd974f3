"""Listings by folder: the same objects as one listing gives, in its order, with several requests under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import FolderListing, ObjectInfo
from tierlog.runtime.stores.reading import folder_listing
from tierlog.runtime.stores.reading.folder_listing import LISTINGS_MAX, iter_by_folder
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

PAGE = 5
names = st.sampled_from(["a", "a-b", "a.b", "b", "0", "x-y"])
keys = st.lists(names, min_size=1, max_size=5).map("/".join)


class FarStore(PassingStore):
    """A store with latency, in memory: lists in the order of keys, and counts what is under way."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(open_store("memory://"))
        # A key is no folder of another's, as in the stores that have folders.
        self.keys = sorted(key for key in set(found) if not any(other.startswith(f"{key}/") for other in found))
        self.listed: list[str] = []
        self.together = threading.Barrier(1)

    @property
    def is_local(self) -> bool:
        return False

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.listed.append(prefix)
        if prefix.count("/") == 2:
            self.together.wait(10)
        return iter([ObjectInfo(key, 1, 0) for key in self.keys if key.startswith(prefix)])

    def list_folder(self, prefix: str = "") -> FolderListing:
        self.listed.append(prefix)
        below = [key[len(prefix) :] for key in self.keys if key.startswith(prefix)]
        folders = sorted({f"{prefix}{name.partition('/')[0]}/" for name in below if "/" in name})
        return FolderListing(
            tuple(folders), tuple(ObjectInfo(prefix + name, 1, 0) for name in below if "/" not in name)
        )


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_listing, "_PAGE_OBJECTS", PAGE)
    monkeypatch.setattr(folder_listing, "_AHEAD_OBJECTS", 2 * PAGE)


@given(st.lists(keys, max_size=60), st.lists(st.sampled_from(["", "a", "a/", "a-", "a/a", "a/b/", "b/x"]), max_size=3))
@settings(max_examples=300, deadline=None)
def test_it_is_one_listing(found: list[str], prefixes: list[str]) -> None:
    """A segment that is left out or comes twice is a hole, or a second copy, for every reader."""
    with closing(FarStore(found)) as store:
        expected = [info for prefix in prefixes for info in store.iter_objects(prefix)]
        assert list(iter_by_folder(store, prefixes, Machine())) == expected


def partitions(topics: int, each: int, objects: int) -> list[str]:
    return [f"t{topic}/{part}/{n:03}" for topic in range(topics) for part in range(each) for n in range(objects)]


def test_partitions_are_listed_at_once() -> None:
    """One after another, the 3,000 pages of a million segments take five minutes of a store's latency."""
    with closing(FarStore(partitions(2, LISTINGS_MAX // 2, 3))) as store:
        store.together = threading.Barrier(LISTINGS_MAX)
        assert len(list(iter_by_folder(store, [""], Machine()))) == LISTINGS_MAX * 3
        assert sorted(store.listed[:4]) == ["", "", "t0/", "t1/"]


def test_topics_are_listed_at_once() -> None:
    """The topics of a pattern, each of a page."""
    with closing(FarStore(partitions(LISTINGS_MAX, 1, 3))) as store:
        store.together = threading.Barrier(LISTINGS_MAX)
        prefixes = [f"t{topic}/0/" for topic in range(LISTINGS_MAX)]
        assert len(list(iter_by_folder(store, prefixes, Machine()))) == LISTINGS_MAX * 3
        assert sorted(store.listed) == sorted(prefixes)


def test_a_page_costs_one_request() -> None:
    with closing(FarStore(partitions(1, 2, 2))) as store:
        assert len(list(iter_by_folder(store, [""], Machine()))) == 4
        assert store.listed == [""]


def test_a_folder_without_folders_is_listed_as_it_comes() -> None:
    """A partition's own folder, of any number of objects: none is in memory before its turn."""
    with closing(FarStore(partitions(1, 1, 50))) as store:
        assert len(list(iter_by_folder(store, ["t0/0/"], Machine()))) == 50
        assert store.listed == ["t0/0/"]


def test_who_stops_leaves_no_thread() -> None:
    """A reader of the first partitions alone would go on listing all."""
    before = threading.active_count()
    with closing(FarStore(partitions(4, 50, 3))) as store, closing(iter_by_folder(store, [""], Machine())) as objects:
        next(objects)
        objects.close()
        assert threading.active_count() == before
        assert len(store.listed) < 100


def test_an_error_ends_it() -> None:
    class Failing(FarStore):
        def list_folder(self, prefix: str = "") -> FolderListing:
            if prefix == "t2/":
                raise StoreUnavailableError("no answer")
            return super().list_folder(prefix)

    before = threading.active_count()
    with closing(Failing(partitions(4, 5, 3))) as store:
        with pytest.raises(StoreUnavailableError, match="no answer"):
            list(iter_by_folder(store, [""], Machine()))
        assert threading.active_count() == before
