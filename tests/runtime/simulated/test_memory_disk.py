"""The disk in memory: power cuts, and no room."""

from __future__ import annotations

import pytest

from tierlog.errors import StoreError
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles


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
        """If this fails, a crash leaves a file under a directory's old name and others under its new one: a start is
        tried over a state that no disk has, and not over the one that it has.
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
            found = [path for folder in "de" for path in (f"/{folder}/{name}" for name in ("old", "stays", "new"))]
            outcomes.add(tuple(path for path in found if files.find(path) is not None))
        wanted = {("/e/stays",), ("/e/stays", "/e/new")}
        assert outcomes == (wanted if is_durable else wanted | {("/d/old", "/d/stays"), ("/d/stays",)})

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
