"""The disk in memory: power cuts, no room, and decay."""

from __future__ import annotations

import pytest

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles


def everything(files: MemoryFiles, folder: str = "/") -> list[str]:
    """The paths of all files and directories, each directory before what is in it."""
    found = []
    for entry in files.iter_directory(folder):
        found += [entry.path, *(everything(files, entry.path) if entry.is_directory else ())]
    return found


class TestCrash:
    """What MemoryFiles forgets, as a disk does: code that passes with it has fsynced what it must."""

    def write(self, files: MemoryFiles, path: str, data: bytes, *, fsync: bool, named: bool) -> None:
        with files.open_update(path) as file:
            file.append(data)
            if fsync:
                file.fsync()
        if named:
            files.fsync_directory("/d")

    def test_what_was_not_fsynced_is_gone(self) -> None:
        """If this fails, a missing fsync is found by a user's power cut and not by a test."""
        files = MemoryFiles()
        files.make_directories("/d")
        self.write(files, "/d/both", b"data", fsync=True, named=True)
        self.write(files, "/d/name", b"data", fsync=False, named=True)
        self.write(files, "/d/data", b"data", fsync=True, named=False)
        self.write(files, "/d/none", b"data", fsync=False, named=False)
        files = files.crash()
        found = {entry.name: files.read_whole(entry.path) for entry in files.iter_directory("/d")}
        assert found == {"both": b"data", "name": b""}

    def test_a_name_that_need_not_be_durable_is_not(self) -> None:
        """If this fails, a test passes that needs a rename to survive, and a real disk forgets it."""
        files = MemoryFiles()
        files.make_directories("/d")
        self.write(files, "/d/t", b"x", fsync=True, named=True)
        files.rename("/d/t", "/d/u", durable=False)
        files = files.crash()
        assert files.find("/d/t") is not None
        assert files.find("/d/u") is None

    def test_what_was_committed_stays(self) -> None:
        """If this fails, an object that the store has confirmed is lost in a crash."""
        files = MemoryFiles()
        files.make_directories("/d/e")
        files.write_whole("/d/e/f", b"old")
        with files.open_write("/d/e/f") as file:
            file.write(b"new")
            file.commit()
            files = files.crash()
        assert files.read_whole("/d/e/f") == b"new"
        with files.open_write("/d/e/f") as file:
            file.write(b"newer")
            after = files.crash()
            with pytest.raises(StoreError, match="crashed"):
                file.commit()
        with pytest.raises(StoreError, match="crashed"):
            files.read_whole("/d/e/f")
        assert after.read_whole("/d/e/f") == b"new"

    def test_a_removal_can_be_undone(self) -> None:
        """If this fails, a delete that relies on its order is never tried in the other one."""
        files = MemoryFiles()
        files.put("/d/f", b"x")
        files.remove("/d/f")
        files = files.crash()
        assert files.find("/d/f") is not None
        files.remove("/d/f")
        files.fsync_directory("/d")
        files = files.crash()
        assert files.find("/d/f") is None

    def test_locks_are_free_after_it(self) -> None:
        """If this fails, a cache cannot be opened again after a crash."""
        files = MemoryFiles()
        held = files.try_lock("/lock")
        assert held is not None
        files = files.crash()
        again = files.try_lock("/lock")
        assert again is not None
        held.release()  # of the life before: it is not this one's
        assert files.try_lock("/lock") is None
        again.release()

    def test_what_survives_is_between_old_and_new(self) -> None:
        """If this fails, torn writes that a disk does make are never tried, or ones that it cannot make are."""
        outcomes = set()
        for seed in range(1000):
            files = MemoryFiles()
            files.put("/d/f", b"a" * 1024)
            with files.open_update("/d/f") as file:
                file.write_at(b"b" * 2048, position=0)
            self.write(files, "/d/t", b"x", fsync=True, named=False)
            files.rename("/d/t", "/d/u")
            files.remove("/d/u")
            files = files.crash(SeededRng(seed))
            data = files.read_whole("/d/f")
            sectors = {data[start : start + 512] for start in range(0, len(data), 512)}
            assert sectors <= {b"a" * 512, b"b" * 512, bytes(512)}
            assert files.find("/d/t") is None  # a rename is never done by half
            outcomes.add((len(data), data[:1], data[512:513], files.find("/d/u") is not None))
        assert outcomes == {
            (size, first, second, there)
            for size in (1024, 2048)
            for first in (b"a", b"b")
            for second in (b"a", b"b")
            for there in (True, False)
        }

    def test_what_follows_from_a_lost_change_is_lost(self) -> None:
        """If this fails, a simulated disk ends with two names of one file, or with none, which no real one does."""
        for seed in range(100):
            files = MemoryFiles()
            files.put("/d/a", b"old")
            files.make_directories("/e")
            with files.open_update("/d/t") as file:
                file.append(b"new")
                file.fsync()
            files.rename("/d/t", "/e/t")  # its directory is fsynced, so what led to it stays too
            files.remove("/e/t")
            files.put("/e/other", b"")
            files = files.crash(SeededRng(seed))
            assert files.find("/d/t") is None
            assert files.find("/e/t") is None
            assert files.read_whole("/d/a") == b"old"

    @pytest.mark.parametrize("is_durable", [True, False])
    def test_a_renamed_directory_takes_all_of_its_names_along(self, is_durable: bool) -> None:
        """If this fails, a crash leaves files under a directory's old name and others under its new one, which no disk
        does; or a file that was removed never comes back under the new one, which a disk does.
        """
        outcomes = set()
        for seed in range(200):
            files = MemoryFiles()
            files.put("/d/old", b"")
            files.put("/d/stays", b"")
            files.remove("/d/old")
            files.rename("/d", "/e", durable=is_durable)
            self.write(files, "/e/new", b"", fsync=True, named=False)
            files = files.crash(SeededRng(seed))
            outcomes.add(tuple(path for path in everything(files) if files.stat(path).size_bytes == 0))
        assert outcomes == {
            (f"/{folder}", *(f"/{folder}/{name}" for name in (*new, *old, "stays")))
            for folder in ("e" if is_durable else "de")
            for old in ((), ("old",))
            for new in ((), ("new",))
        }

    def test_directories_moved_into_each_other(self) -> None:
        """If this fails, a simulated disk loses a directory whose moves a crash undid, with all that is in it."""
        for seed in range(300):
            files = MemoryFiles()
            files.put("/a/in-a", b"")
            files.put("/b/in-b", b"")
            files.rename("/a", "/b/a", durable=False)
            files.rename("/b/a", "/a", durable=False)
            files.rename("/b", "/a/b", durable=False)
            files.rename("/a/b/in-b", "/a/in-b", durable=False)
            files.rename("/a", "/c", durable=False)
            with pytest.raises(StoreError, match="no place"):
                files.rename("/c", "/c/b/c")
            files = files.crash(SeededRng(seed))
            names = sorted(path.rpartition("/")[2] for path in everything(files) if not files.stat(path).is_directory)
            assert names == ["in-a", "in-b"], seed

    def test_a_directory_that_was_removed_can_come_back(self) -> None:
        """If this fails, a removal of a folder that relies on its order is never tried in the other one."""
        outcomes = set()
        for seed in range(100):
            files = MemoryFiles()
            files.put("/d/f", b"")
            files.remove("/d/f")
            files.remove("/d")
            outcomes.add(tuple(everything(files.crash(SeededRng(seed)))))
        assert outcomes == {(), ("/d",), ("/d", "/d/f")}
        files = MemoryFiles()
        files.put("/d/f", b"")
        files.remove("/d/f")
        files.remove("/d")
        files.make_directories("/d")  # durable at once, so the removal is too
        assert everything(files.crash()) == ["/d"]

    def test_a_name_in_a_renamed_directory_makes_the_rename_durable(self) -> None:
        """If this fails, a file is under a name that its directory does not have after a crash."""
        files = MemoryFiles()
        files.put("/d/stays", b"")
        files.rename("/d", "/e", durable=False)
        self.write(files, "/e/new", b"", fsync=True, named=False)
        files.fsync_directory("/e")
        files = files.crash()
        assert [entry.path for entry in files.iter_directory("/e")] == ["/e/new", "/e/stays"]
        assert files.find("/d") is None

    def test_a_full_disk(self) -> None:
        """If this fails, a full disk cannot be tried."""
        files = MemoryFiles(capacity_bytes=10)
        with files.open_update("/f") as file:
            file.append(bytes(8))
            with pytest.raises(StoreError, match="space"):
                file.append(bytes(3))
            assert file.size_bytes == 8
            assert files.free_bytes("/") == 2


class TestDecay:
    """A disk is wiped, rots or fails, without a crash."""

    def test_a_flipped_bit(self) -> None:
        """If this fails, a simulated disk's decay is not seen, or is undone by a crash."""
        files = MemoryFiles()
        files.put("/f", b"abc")
        assert files.flip_bit("/f", position=1, bit=0)
        assert not files.flip_bit("/f", position=3, bit=0)
        assert files.read_whole("/f") == b"acc"
        with pytest.raises(ObjectNotFoundError):
            files.flip_bit("/g", position=0, bit=0)
        assert files.crash().read_whole("/f") == b"acc"

    def test_a_flipped_bit_below_a_write(self) -> None:
        """If this fails, decay strikes bytes that only memory has, or comes back after they were written."""
        for is_synced in (True, False):
            files = MemoryFiles()
            files.put("/f", b"abc")
            with files.open_update("/f") as file:
                file.write_at(b"x", position=1)
                file.write_at(b"d", position=3)
                assert files.flip_bit("/f", position=1, bit=0)
                assert not files.flip_bit("/f", position=3, bit=0)
                assert files.read_whole("/f") == b"axcd"
                if is_synced:
                    file.fsync()
            assert files.crash().read_whole("/f") == (b"axcd" if is_synced else b"acc")

    def test_a_flipped_bit_of_what_was_never_synced(self) -> None:
        """If this fails, files that nobody syncs, as those of a cache, never decay."""
        files = MemoryFiles()
        files.make_directories("/d")
        with files.open_update("/d/f") as file:
            file.append(b"abc")
        assert not files.flip_bit("/d/f", position=1, bit=0)
        assert files.flip_bit("/d/f", position=1, bit=0, written_out=True)
        assert files.read_whole("/d/f") == b"acc"

    def test_a_wiped_disk(self) -> None:
        """If this fails, a broker whose disk was replaced finds its old logs, or loses those of another disk."""
        files = MemoryFiles(capacity_bytes=100)
        for path in ("/one/a/f", "/one/g", "/two/f"):
            files.put(path, bytes(10))
        files.remove("/one/g")
        left = files.wipe("/one")
        assert everything(left) == ["/one", "/two", "/two/f"]
        assert left.free_bytes("/") == 90
        with pytest.raises(StoreError, match="crashed"):
            files.stat("/two/f")
        left = left.crash(SeededRng(1))
        assert everything(left) == ["/one", "/two", "/two/f"]
        assert everything(left.wipe()) == []
        with pytest.raises(ObjectNotFoundError):
            MemoryFiles().wipe("/one")
