"""One suite for every store that needs no server: a local folder, one in memory, and the stores around a store."""

from __future__ import annotations

import pathlib
import random
import shutil
import uuid
from collections.abc import Callable
from typing import ClassVar

import pytest

from tierlog.errors import ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import CountingStore, StoreCounts
from tierlog.testing.failing_store import FailingStore


@pytest.fixture(params=["local", "memory-files", "memory", "counting", "failing-never"])
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> ObjectStore:
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4()}")
    if request.param == "memory-files":
        files = MemoryFiles()
        files.make_directories("/root")
        return LocalStore("/root", Machine(files=files))
    local = open_store(str(tmp_path))
    if request.param == "counting":
        return CountingStore(local)
    if request.param == "failing-never":
        return FailingStore(local, {}, rng=random.Random(1), clock=ManualClock())
    return local


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return sorted(info.key for info in store.iter_objects(prefix))


def test_keys_come_back_as_they_went_in(store: ObjectStore) -> None:
    """If this fails, objects whose names hold a space, a percent sign or a letter of another alphabet are lost."""
    names = ["a b", "100%25", "ü/п", "t-1/0/x.log", "~+&=;,@!'()"]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == sorted(names)
    for name in names:
        assert bytes(store.fetch(name)) == name.encode()


def test_prefixes_are_strings_not_folders(store: ObjectStore) -> None:
    """If this fails, a key.prefix without a slash at its end finds nothing."""
    for name in ("tier-a/x", "tier-b/y/z", "tier", "other"):
        store.put(name, b"1")
    assert keys(store, "tier-") == ["tier-a/x", "tier-b/y/z"]
    assert keys(store, "tier") == ["tier", "tier-a/x", "tier-b/y/z"]
    assert keys(store, "tier-b/") == ["tier-b/y/z"]
    assert keys(store, "tier-b/y/z/") == []
    assert keys(store, "nothing/") == []


def test_one_level(store: ObjectStore) -> None:
    """If this fails, reading one topic lists the whole bucket."""
    for name in ("a/1", "a/b/2", "c"):
        store.put(name, b"12")
    top = store.list_folder()
    assert (sorted(top.folders), [info.key for info in top.objects]) == (["a/"], ["c"])
    inner = store.list_folder("a/")
    assert (inner.folders, [(info.key, info.size_bytes) for info in inner.objects]) == (("a/b/",), [("a/1", 2)])
    assert store.list_folder("none/").objects == ()
    assert top.objects[0].last_modified_ms > 1_600_000_000_000


def test_ranges(store: ObjectStore) -> None:
    """If this fails, windows hold other bytes than they should, or a short object goes unnoticed."""
    store.put("k", bytes(range(100)))
    assert bytes(store.fetch_range("k", start_position=10, end_position_exclusive=20)) == bytes(range(10, 20))
    assert bytes(store.fetch_range("k", start_position=90, end_position_exclusive=120)) == bytes(range(90, 100))
    assert bytes(store.fetch_range("k", start_position=100, end_position_exclusive=101)) == b""
    assert bytes(store.fetch_range("k", start_position=500, end_position_exclusive=600)) == b""


def test_what_is_not_there(store: ObjectStore) -> None:
    """If this fails, a deleted object looks like a broken store."""
    with pytest.raises(ObjectNotFoundError, match="nope"):
        store.fetch("nope")
    with pytest.raises(ObjectNotFoundError, match="nope"):
        store.fetch_range("nope", start_position=0, end_position_exclusive=1)


class TestLocal:
    """A folder that others write to."""

    def test_no_way_out_of_the_root(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a hostile key reads any file of the machine."""
        (tmp_path / "secret").write_text("x")
        (tmp_path / "root").mkdir()
        store = LocalStore(str(tmp_path / "root"))
        for key in ("../secret", "/etc/passwd", "a/../../secret", ""):
            with pytest.raises(StoreError):
                store.fetch(key)

    def test_folders_that_vanish_and_files_on_their_way(self, tmp_path: pathlib.Path) -> None:
        """If this fails, listing a live directory fails, or shows what is half written."""
        store = open_store(str(tmp_path))
        for name in ("a/1", "b/1", "c/1"):
            store.put(name, b"")
        (tmp_path / "c" / f"2{TEMPORARY_SUFFIX}").write_bytes(b"")
        listing = store.iter_objects()
        assert next(listing).key == "a/1"
        (tmp_path / "b" / "1").unlink()
        (tmp_path / "b").rmdir()
        assert [info.key for info in listing] == ["c/1"]

    def test_a_loop_of_links_ends(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a link to a folder above hangs the listing."""
        (tmp_path / "a").mkdir()
        for name in ("up", "up2", "a/up", "a/self"):
            (tmp_path / name).symlink_to(tmp_path / name.removesuffix("self") if "self" in name else tmp_path)
        (tmp_path / "f").write_bytes(b"")
        (tmp_path / "good").symlink_to("a")
        (tmp_path / "a" / "g").write_bytes(b"")
        assert keys(open_store(str(tmp_path))) == ["a/g", "f", "good/g"]

    def test_a_root_that_is_none(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a mistyped folder is an empty bucket."""
        (tmp_path / "f").write_bytes(b"")
        with pytest.raises(StoreError, match="not a directory"):
            open_store(str(tmp_path / "f"))
        with pytest.raises(ObjectNotFoundError):
            open_store(str(tmp_path / "x"))


def test_counts(tmp_path: pathlib.Path) -> None:
    """If this fails, the GETs per GiB that we report are wrong."""
    store = CountingStore(open_store(str(tmp_path)))
    store.put("k", bytes(10))
    store.fetch("k")
    store.fetch_range("k", start_position=2, end_position_exclusive=5)
    list(store.iter_objects())
    store.list_folder()
    assert store.reset() == StoreCounts(gets=2, bytes=13, lists=2, puts=1, put_bytes=10)
    assert store.counts == StoreCounts()


class TestFailing:
    """The store that tests break."""

    def run(self, tmp_path: pathlib.Path, seed: int) -> list[str]:
        clock = ManualClock()
        inner = open_store(str(tmp_path))
        inner.put("k", bytes(50))
        rates = {"error": 0.2, "reset": 0.2, "short": 0.2, "stall": 0.2}
        store = FailingStore(inner, rates, rng=random.Random(seed), clock=clock, stall_seconds=3)
        seen = []
        for _ in range(60):
            try:
                seen.append(str(len(memoryview(store.fetch("k")))))
            except StoreUnavailableError as error:
                seen.append(str(error))
        assert sum(store.injected.values()) == sum(entry != "50" for entry in seen)
        assert clock.monotonic_seconds() == 3 * store.injected["stall"]
        return seen

    def test_a_seed_repeats_its_run(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a failure that a test found cannot be found again."""
        assert self.run(tmp_path, 1) == self.run(tmp_path, 1)
        assert self.run(tmp_path, 1) != self.run(tmp_path, 2)

    def test_a_misspelt_fault_is_refused(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a test that breaks nothing passes."""
        with pytest.raises(ValueError, match="unknown faults"):
            FailingStore(open_store(str(tmp_path)), {"eror": 1}, rng=random.Random(1), clock=ManualClock())


class TestStoreThatIsGone:
    """A folder that was deleted, or whose mount vanished: nothing of it is known to be deleted."""

    #: Each call of a store whose objects were "a/k" and "a/b/l".
    CALLS: ClassVar[dict[str, Callable[[LocalStore], object]]] = {
        "fetch": lambda store: store.fetch("a/k"),
        "fetch_range": lambda store: store.fetch_range("a/k", start_position=0, end_position_exclusive=1),
        "find": lambda store: store.find("a/k"),
        "iter_objects": lambda store: list(store.iter_objects()),
        "iter_objects of a folder": lambda store: list(store.iter_objects("a/")),
        "list_folder": lambda store: store.list_folder(),
        "list_folder of a folder": lambda store: store.list_folder("a/"),
        "iter_uploads": lambda store: list(store.iter_uploads()),
        "put": lambda store: store.put("a/new", b"x"),
        "put at the top": lambda store: store.put("new", b"x"),
        "put on a condition": lambda store: store.put("a/new", b"x", expected_etag=""),
        "begin_upload": lambda store: store.begin_upload("a/new", part_bytes=5),
        "delete": lambda store: store.delete(["a/k", "a/b/l"]),
    }

    @pytest.fixture(params=["deleted", "its mount vanished", "a file in its place"])
    def gone(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> LocalStore:
        root = tmp_path / "root"
        root.mkdir()
        store = LocalStore(str(root))
        store.put("a/k", b"1")
        store.put("a/b/l", b"1")
        root.rename(tmp_path / "elsewhere")
        if request.param == "its mount vanished":
            root.mkdir()
        elif request.param == "a file in its place":
            root.write_bytes(b"")
        return store

    @pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
    def test_it_is_unavailable(
        self, gone: LocalStore, tmp_path: pathlib.Path, call: Callable[[LocalStore], object]
    ) -> None:
        """If this fails, a broker takes every segment for deleted, or writes into the disk below the mount."""
        with pytest.raises(StoreUnavailableError, match="folder is gone") as raised:
            call(gone)
        assert raised.value.retriable
        root = tmp_path / "root"
        assert not root.is_dir() or list(root.iterdir()) == []

    @pytest.mark.parametrize("part_by_part", [False, True])
    def test_it_vanishes_while_an_object_is_written(self, tmp_path: pathlib.Path, part_by_part: bool) -> None:
        """If this fails, a copy is told that its object is not found, and is not tried again."""
        root = tmp_path / "root"
        root.mkdir()
        store = LocalStore(str(root))
        upload = store.begin_upload("a/k", part_bytes=1)
        upload.put_part(1, [b"x"])
        shutil.rmtree(root)
        if part_by_part:
            upload.put_part(2, [b"y"])
        with pytest.raises(StoreUnavailableError, match="folder is gone"):
            upload.complete()
        upload.abort()
        assert not root.exists()

    def test_it_comes_back(self, gone: LocalStore, tmp_path: pathlib.Path) -> None:
        """If this fails, a mount that was away for a minute is away until the broker is restarted."""
        root = tmp_path / "root"
        if root.is_dir():
            root.rmdir()
        root.unlink(missing_ok=True)
        shutil.copytree(tmp_path / "elsewhere", root)  # other inodes, as of a mount made anew
        assert bytes(gone.fetch("a/k")) == b"1"
        with pytest.raises(ObjectNotFoundError):
            gone.fetch("a/none")
        gone.delete(["a/k", "a/b/l"])
        assert list(gone.iter_objects()) == []
        with pytest.raises(ObjectNotFoundError):
            gone.fetch("a/k")

    def test_an_empty_store_that_is_there_is_one(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a new bucket is taken for a lost one."""
        store = LocalStore(str(tmp_path))
        assert list(store.iter_objects()) == []
        assert store.find("k") is None
        with pytest.raises(ObjectNotFoundError):
            store.fetch_range("a/k", start_position=0, end_position_exclusive=1)
        store.delete(["a/k"])
