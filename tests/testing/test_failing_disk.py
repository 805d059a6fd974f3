"""The disk in memory: what of unsynced changes a power cut leaves, and how single operations fail."""

from __future__ import annotations

import errno
import itertools

import pytest

from tierlog.errors import StoreError, StoreUnavailableError
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_disk import CHANGES, DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import FailingDisk, PowerCut, flip_bits

SECTOR = 512
SEEDS = range(400)


def disk(data: bytes = b"") -> MemoryFiles:
    files = MemoryFiles()
    files.put("/d/f", data)
    return files


class TestUnsyncedWrites:
    """Each on its own kept, lost or torn, as a page cache leaves them."""

    def test_a_later_write_may_survive_alone(self) -> None:
        """If this fails, no test sees a disk that wrote an entry of an index and not the record in front of it."""
        found = set()
        for seed in SEEDS:
            files = disk(bytes(3 * SECTOR))
            with files.open_update("/d/f") as file:
                for number in range(3):
                    file.write_at(b"%d" % (number + 1) * SECTOR, position=number * SECTOR)
            found.add(files.crash(SeededRng(seed)).read_whole("/d/f")[::SECTOR])
        assert found == {bytes(each) for each in itertools.product(*zip(b"\0\0\0", b"123", strict=True))}

    def test_a_sector_never_has_a_later_write_without_an_earlier_one(self) -> None:
        """If this fails, recovery is asked to mend what no disk can make, and hides it by being too cautious."""
        found = set()
        for seed in SEEDS:
            files = disk(b"....")
            with files.open_update("/d/f") as file:
                for position in range(4):
                    file.write_at(b"x", position=position)
            found.add(files.crash(SeededRng(seed)).read_whole("/d/f"))
        assert found == {b"....", b"x...", b"xx..", b"xxx.", b"xxxx"}

    def test_a_write_is_torn_at_sectors(self) -> None:
        """If this fails, a batch whose middle is missing is never tried."""
        found = set()
        for seed in SEEDS:
            files = disk(bytes(3 * SECTOR))
            with files.open_update("/d/f") as file:
                file.write_at(b"x" * 2 * SECTOR, position=SECTOR // 2)
            data = files.crash(SeededRng(seed)).read_whole("/d/f")
            assert data[: SECTOR // 2] == bytes(SECTOR // 2)
            found.add((data[SECTOR - 1], data[SECTOR], data[2 * SECTOR]))
        assert len(found) == 8

    def test_lengths_and_bytes_are_independent(self) -> None:
        """If this fails, a file that grew and has zeros at its end is never tried."""
        found = set()
        for seed in SEEDS:
            files = disk(b"a" * SECTOR)
            with files.open_update("/d/f") as file:
                file.append(b"b" * SECTOR)
                file.append(b"c" * SECTOR)
            data = files.crash(SeededRng(seed)).read_whole("/d/f")
            assert len(data) in (SECTOR, 2 * SECTOR, 3 * SECTOR)
            found.add(data[::SECTOR])
        assert found == {b"a", b"ab", b"a\0", b"abc", b"a\0c", b"ab\0", b"a\0\0"}

    def test_what_was_cut_off_does_not_come_back_into_a_file_that_grew_again(self) -> None:
        """If this fails, a log that was truncated has its old batches behind the new ones after a power cut."""
        found = set()
        for seed in SEEDS:
            files = disk(b"o" * 4 * SECTOR)
            with files.open_update("/d/f") as file:
                file.truncate(SECTOR)
                file.append(b"n" * SECTOR)
            data = files.crash(SeededRng(seed)).read_whole("/d/f")
            found.add(data[::SECTOR])
        assert found == {b"oooo", b"o", b"o\0", b"on"}


class TestPowerCut:
    """At the n-th change."""

    def test_every_change_counts(self) -> None:
        """If this fails, a crash between two changes is not tried."""

        def live(files: MemoryFiles) -> None:
            files.make_directories("/d/e")
            with files.open_update("/d/e/f") as file:
                file.append(b"x")
                file.fsync()
                file.truncate(0)
            files.fsync_directory("/d/e")
            files.rename("/d/e/f", "/d/e/g")
            files.write_whole("/d/e/h", b"y")
            files.remove("/d/e/g")

        power = PowerCut(files := disk(), at=0, seed=1)
        live(files)
        assert power.seen == 8 + 5 + 1
        for at in range(1, power.seen + 1):
            power = PowerCut(files := disk(), at=at, seed=at)
            with pytest.raises(StoreError, match="crashed"):
                live(files)
            assert power.left is not None
            assert power.left is power.cut()
            with pytest.raises(StoreError, match="crashed"):
                files.find("/d")
            live(power.left)

    def test_a_directory_is_renamed_wholly_or_not(self) -> None:
        """If this fails, a partition that is being deleted has its files in two folders after a crash."""
        found = set()
        for seed in range(40):
            files = disk(b"x")
            files.put("/d/below/g", b"y")
            files.rename("/d", "/gone", durable=False)
            assert [info.name for info in files.iter_directory("/gone")] == ["below", "f"]
            assert files.find("/d") is None
            left = files.crash(SeededRng(seed))
            names = [info.name for info in left.iter_directory("/")]
            assert left.read_whole(f"/{names[0]}/f") + left.read_whole(f"/{names[0]}/below/g") == b"xy"
            found.add(tuple(names))
        assert found == {("d",), ("gone",)}
        files = disk(b"x")
        files.rename("/d", "/gone")
        assert files.crash().read_whole("/gone/f") == b"x"


class TestErrors:
    """Of single operations."""

    def test_a_full_disk_takes_a_part(self) -> None:
        """If this fails, half a batch at the end of a log is never tried."""
        sizes = set()
        for seed in range(40):
            full = FailingDisk(files := disk(), errno.ENOSPC, at=2, kinds={DiskOperation.WRITE}, seed=seed)
            with full, files.open_update("/d/f") as file:
                file.append(b"whole")
                with pytest.raises(StoreError, match="No space left"):
                    file.write_at(b"half", position=5)
                sizes.add(files.stat("/d/f").size_bytes)
                file.write_at(b"half", position=5)
        assert sizes == {5, 6, 7, 8, 9}

    def test_a_disk_that_stays_read_only(self) -> None:
        """If this fails, a test of a broken disk tries one failure and then a sound disk."""
        with FailingDisk(files := disk(b"x"), errno.EROFS, at=1, lasting=True) as broken:
            for change in (
                lambda: files.remove("/d/f"),
                lambda: files.rename("/d/f", "/d/g"),
                lambda: files.write_whole("/d/g", b""),
                lambda: files.open_update("/d/f").truncate(0),
                lambda: files.fsync_directory("/d"),
            ):
                with pytest.raises(StoreError, match="Read-only"):
                    change()
            assert files.read_whole("/d/f") == b"x"
            assert broken.failed == broken.seen == 5
        files.remove("/d/f")

    def test_no_descriptor_is_left(self) -> None:
        """If this fails, a log that cannot open its next segment is never tried."""
        kinds = {DiskOperation.OPEN, DiskOperation.CREATE}
        with FailingDisk(files := disk(b"x"), errno.EMFILE, at=2, kinds=kinds, suffix="f") as broken:
            files.open_read("/d/f").close()
            with pytest.raises(StoreUnavailableError, match="Too many open files"):
                files.open_update("/d/f")
            assert files.read_whole("/d/f") == b"x"
            assert (broken.seen, broken.failed) == (3, 1)

    def test_a_read_fails(self) -> None:
        """If this fails, a bad sector is never tried."""
        with FailingDisk(files := disk(b"x"), errno.EIO, at=1, kinds={DiskOperation.READ}):
            with pytest.raises(StoreError, match="error"):
                files.read_whole("/d/f")
            assert files.read_whole("/d/f") == b"x"

    def test_a_failed_fsync_loses_the_bytes_for_good(self) -> None:
        """If this fails, a log that tries a failed fsync again, and believes the second, passes all tests."""
        left, seen = set(), set()
        for seed in SEEDS:
            files = disk(b"a" * SECTOR)
            with files.open_update("/d/f") as file:
                file.append(b"b" * SECTOR)
                with FailingDisk(files, errno.EIO, at=1, kinds={DiskOperation.FSYNC}, seed=seed):
                    with pytest.raises(StoreError, match="error"):
                        file.fsync()
                    file.append(b"c" * SECTOR)
                    file.fsync()
                seen.add(files.read_whole("/d/f")[::SECTOR])
            data = files.crash().read_whole("/d/f")
            assert len(data) == 3 * SECTOR
            left.add(data[::SECTOR])
        assert left == seen == {b"abc", b"a\0c"}

    def test_other_changes_are_counted_and_not_failed(self) -> None:
        """If this fails, nobody can say how many operations there are to fail."""
        counted = FailingDisk(files := disk(), errno.EIO, at=0, lasting=True)
        files.write_whole("/d/g", b"x")
        files.read_whole("/d/g")
        assert (counted.seen, counted.failed) == (5, 0)
        assert DiskOperation.READ not in CHANGES

    def test_one_of_two_disks_fails_and_then_the_power_goes(self) -> None:
        """If this fails, a broker whose disk has failed is never tried with a power cut on top, nor one that failed
        twice.
        """
        files = disk(b"x")
        files.put("/e/f", b"y")
        power = PowerCut(files, at=4, seed=1)
        with FailingDisk(files, errno.EIO, at=1, inside="/d/", lasting=True, kinds=set(DiskOperation)) as alone:
            full = FailingDisk(files, errno.ENOSPC, at=1, inside="/e/")
            with full, files.open_update("/e/f") as file, pytest.raises(StoreError, match="No space"):
                file.append(b"z")
            for change in (files.read_whole, files.remove):
                with pytest.raises(StoreError, match="Input/output"):
                    change("/d/f")
            assert files.read_whole("/e/f") == b"y"
            assert (alone.seen, alone.failed, power.seen) == (2, 2, 3)
        assert files.read_whole("/d/f") == b"x"
        with pytest.raises(StoreError, match="crashed"):
            files.remove("/d/f")
        assert power.cut().read_whole("/d/f") == b"x"


def test_bits_flip_where_they_are_looked_for() -> None:
    """If this fails, decay of one broker's logs is never tried, or strikes what a test relies on."""
    struck = set()
    for seed in range(200):
        files = disk(bytes(3))
        for path in ("/d/below/g.log", "/e/h.log", "/d/empty.log"):
            files.put(path, bytes(0 if "empty" in path else 3))
        with files.open_update("/d/below/g.log") as file:
            file.append(b"only in memory")
        flipped = flip_bits(files, SeededRng(seed), inside="/d", suffix=".log", count=2)
        data = files.read_whole("/d/below/g.log")
        assert data[3:] == b"only in memory"
        assert len(flipped) <= 2
        assert sum(byte.bit_count() for byte in data[:3]) in ({len(flipped)} if len(flipped) < 2 else {0, 2})
        assert files.read_whole("/d/f") == files.read_whole("/e/h.log") == bytes(3)
        struck.update(number for number, byte in enumerate(data[:3]) if byte)
    assert struck == {0, 1, 2}
    assert not flip_bits(MemoryFiles(), SeededRng(1))
