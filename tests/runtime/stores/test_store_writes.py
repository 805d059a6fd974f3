"""Writes where no server is needed: folders that others write to, and stores that break on purpose."""

from __future__ import annotations

import pathlib
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import ObjectConflictError, StoreError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore, UnfinishedUpload
from tierlog.runtime.stores.store_urls import open_store
from tierlog.testing.failing_store import FAULTS, FailingStore


def keys(store: ObjectStore) -> list[str]:
    return sorted(info.key for info in store.iter_objects())


class TestFolders:
    """A local directory as a store."""

    @pytest.mark.parametrize("seed", range(10))
    def test_what_is_durable_survives_a_crash(self, seed: int) -> None:
        """If this fails, a segment that a broker has deleted since is lost with the power."""
        files = MemoryFiles()
        files.make_directories("/root")
        store = LocalStore("/root", Machine(files=files))
        store.put("t/0/a", b"put")
        upload = store.begin_upload("t/1/b", part_bytes=4)
        upload.put_part(2, [b"22"])
        upload.put_part(1, [b"1111"])
        upload.complete()
        store.put("t/0/gone", b"x")
        store.delete(["t/0/gone"])
        left = LocalStore("/root", Machine(files=files.crash(SeededRng(seed))))
        assert keys(left) == ["t/0/a", "t/1/b"]
        assert bytes(left.fetch("t/1/b")) == b"111122"

    def test_folders_go_with_their_last_object(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a bucket of deleted topics is full of folders, or a link is taken for one and removed."""
        store = open_store(str(tmp_path / "."))
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        store.put("a/b/c/1", b"")
        store.put("a/b/2", b"")
        store.put("link/3", b"")
        store.delete(["a/b/c/1"])
        assert (tmp_path / "a" / "b").is_dir()
        assert not (tmp_path / "a" / "b" / "c").exists()
        store.delete(["a/b/2", "link/3", "a"])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "link"]

    def test_a_folder_is_no_object(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a key that is a folder removes it, or looks like an object."""
        store = open_store(str(tmp_path))
        (tmp_path / "folder").mkdir()
        assert store.find("folder") is None
        store.delete(["folder"])
        assert (tmp_path / "folder").is_dir()
        with pytest.raises(StoreError):
            store.delete(["../x"])

    def test_two_uploads_of_one_object(self, tmp_path: pathlib.Path) -> None:
        """If this fails, two writers of one object make a third one of their parts."""
        store = open_store(str(tmp_path))
        one, two = store.begin_upload("k", part_bytes=2), store.begin_upload("k", part_bytes=2)
        one.put_part(1, [b"11"])
        two.put_part(1, [b"22"])
        assert len(list(store.iter_uploads())) == 2
        assert keys(store) == []
        two.complete()
        one.put_part(2, [b"1"])
        one.complete()
        assert bytes(store.fetch("k")) == b"111"
        assert [path.name for path in tmp_path.iterdir()] == ["k"]

    def test_names_that_are_no_uploads(self, tmp_path: pathlib.Path) -> None:
        """If this fails, cleaning up removes the file of somebody else."""
        store = open_store(str(tmp_path))
        (tmp_path / f"k{TEMPORARY_SUFFIX}").write_bytes(b"")
        assert list(store.iter_uploads()) == []
        for name in ("k", f"../k.{'0' * 16}{TEMPORARY_SUFFIX}", f"other.{'0' * 16}{TEMPORARY_SUFFIX}"):
            with pytest.raises(StoreError, match="not an upload"):
                store.abort_upload(UnfinishedUpload("k", name, 0))

    def test_pruning_while_others_write(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a copy fails now and then because a deletion took its folder away."""
        store = open_store(str(tmp_path))
        failed: list[Exception] = []

        def work(number: int) -> None:
            try:
                for _ in range(60):
                    store.put(f"t/0/{number}", b"x")
                    store.delete([f"t/0/{number}"])
            except StoreError as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert list(tmp_path.iterdir()) == []

    def test_only_one_of_many_is_the_first(self, tmp_path: pathlib.Path) -> None:
        """If this fails, two brokers both believe that they lead."""
        store = open_store(str(tmp_path))
        won: list[int] = []

        def work(number: int) -> None:
            try:
                store.put("leader", str(number).encode(), expected_etag=ABSENT)
            except ObjectConflictError:
                return
            won.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert bytes(store.fetch("leader")) == str(won[0]).encode()

    @given(
        parts=st.lists(st.binary(min_size=8, max_size=8), max_size=6),
        last=st.binary(min_size=1, max_size=8),
        data=st.data(),
    )
    def test_any_order_of_parts_is_the_same_object(self, parts: list[bytes], last: bytes, data: st.DataObject) -> None:
        """If this fails, the order in which threads finish is the order of the bytes."""
        files = MemoryFiles()
        files.make_directories("/root")
        store = LocalStore("/root", Machine(files=files))
        whole = [*parts, last]
        upload = store.begin_upload("k", part_bytes=8)
        for number in data.draw(st.permutations(range(1, len(whole) + 1))):
            cut = data.draw(st.integers(0, len(whole[number - 1])))
            upload.put_part(number, [whole[number - 1][:cut], whole[number - 1][cut:]])
        assert upload.complete().size_bytes == len(b"".join(whole))
        assert bytes(store.fetch("k")) == b"".join(whole)


class TestFailing:
    """The store that tests break."""

    def make(self, tmp_path: pathlib.Path, **rates: float) -> tuple[FailingStore, ObjectStore, ManualClock]:
        clock = ManualClock()
        inner = open_store(str(tmp_path))
        return FailingStore(inner, rates, rng=random.Random(1), clock=clock, late_seconds=600), inner, clock

    def test_lost_answers(self, tmp_path: pathlib.Path) -> None:
        """If this fails, no test sees what happens when something was done and looks as if it was not."""
        store, inner, _ = self.make(tmp_path, lost=1)
        with pytest.raises(StoreUnavailableError, match="lost"):
            store.put("k", [b"a", b"b"])
        assert bytes(inner.fetch("k")) == b"ab"
        with pytest.raises(StoreUnavailableError):
            store.delete(["k"])
        assert keys(inner) == []
        with pytest.raises(StoreUnavailableError):
            store.begin_upload("u", part_bytes=4)
        assert [each.key for each in inner.iter_uploads()] == ["u"]

    def test_a_put_that_lands_after_its_deletion(self, tmp_path: pathlib.Path) -> None:
        """If this fails, no test sees the object that comes back ten minutes later."""
        store, inner, clock = self.make(tmp_path, late=1)
        buffer = bytearray(b"bytes of then")
        with pytest.raises(StoreUnavailableError, match="later"):
            store.put("k", memoryview(buffer))
        buffer[:] = b"bytes of now!"
        inner.delete(["k"])
        clock.advance(599)
        assert store.land_late(all_of_it=False) == 0
        assert keys(inner) == []
        clock.advance(2)
        with pytest.raises(StoreUnavailableError):
            store.put("other", b"")
        assert bytes(inner.fetch("k")) == b"bytes of then"
        assert store.land_late() == 1

    def test_parts_and_completions_that_come_too_late(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a completion after an abort makes an object that nobody wants."""
        store, inner, _ = self.make(tmp_path)
        upload = store.begin_upload("k", part_bytes=4)
        upload.put_part(1, [b"1"])
        store._rates["late"] = 1.0
        with pytest.raises(StoreUnavailableError):
            upload.complete()
        store._rates["late"] = 0.0
        upload.abort()
        assert store.land_late() == 1
        assert keys(inner) == []

    def test_a_wrong_bit(self, tmp_path: pathlib.Path) -> None:
        """If this fails, no test sees a body that was damaged on its way."""
        store, inner, _ = self.make(tmp_path, wrong=1)
        inner.put("k", bytes(100))
        found = bytes(store.fetch("k"))
        assert len(found) == 100
        assert sum(byte.bit_count() for byte in found) == 1
        assert store.injected["wrong"] == 1

    def test_every_fault_can_be_drawn(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a fault is in the list and never happens."""
        store, inner, _ = self.make(tmp_path, **dict.fromkeys(FAULTS, 0.2))
        inner.put("k", bytes(50))
        for number in range(200):
            for action in (lambda: store.fetch("k"), lambda n=number: store.put(f"x{n}", b"1")):
                try:
                    action()
                except StoreUnavailableError:
                    continue
        assert all(store.injected[fault] > 0 for fault in FAULTS)
