"""The remote log index on a broker's disk: lookups, rotation, and what a crash or a bad disk leaves of it."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tierlog.errors import ConfigError, CorruptIndexError, SizeLimitError, StoreError
from tierlog.log.formats.remote_log_index_entry import RemoteLogIndexEntry, encode_identifier
from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex
from tierlog.remote.log_index.partition_index import RemoteLogIndex, Rotation
from tierlog.remote.log_index.remote_log_index_file import FILE_BYTES_MAX
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

FOLDER = "/logs/orders-3"
SMALL = Rotation(log_bytes_max=32767)
SUFFIXES = ("remoteLogIndex", "remoteOffsetIndex", "remoteTimeIndex")


def entry(first: int, last: int | None = None, newest_ms: int = -1, *, size: int = 0) -> RemoteLogIndexEntry:
    key = f"tier/orders/{first:020d}.log".ljust(size, "x")
    return RemoteLogIndexEntry(first, first if last is None else last, -1, newest_ms, 4096, encode_identifier(key))


def row(count: int, *, start: int = 0, size: int = 10_000) -> list[RemoteLogIndexEntry]:
    """Neighbours of ten offsets each, three or so a file."""
    return [entry(10 * at, 10 * at + 9, 1000 + at, size=size) for at in range(start, start + count)]


def disk(clock: ManualClock | None = None, **more: Any) -> MemoryFiles:
    files = MemoryFiles(clock or ManualClock(), **more)
    files.make_directories(FOLDER)
    return files


def opened(files: MemoryFiles, rotation: Rotation = SMALL, *, check_all: bool = False) -> RemoteLogIndex:
    machine = Machine(clock=files.clock, files=files)
    return RemoteLogIndex(FOLDER, rotation=rotation, check_all=check_all, machine=machine)


def names(files: MemoryFiles) -> list[str]:
    return [info.name for info in files.iter_directory(FOLDER)]


def read(files: MemoryFiles, name: str) -> bytes:
    return files.read_whole(f"{FOLDER}/{name}")


def found_by_offset(entries: list[RemoteLogIndexEntry], offset: int) -> RemoteLogIndexEntry | None:
    below = [each for each in entries if each.first_offset <= offset]
    return below[-1] if below and below[-1].last_offset >= offset else None


def counting(entries: list[RemoteLogIndexEntry], start: int) -> list[RemoteLogIndexEntry]:
    """Those that count at or behind an offset: each ends where the next begins."""
    ends = [min(a.last_offset, b.first_offset - 1) for a, b in pairwise(entries)] + [
        e.last_offset for e in entries[-1:]
    ]
    return [each for each, end in zip(entries, ends, strict=True) if end >= start]


def check_lookups(index: RemoteLogIndex, entries: list[RemoteLogIndexEntry]) -> None:
    assert list(index.iter_entries()) == entries
    edges = {offset + by for each in entries for offset in (each.first_offset, each.last_offset) for by in (-1, 0, 1)}
    for offset in {-1, 0, 2**63 - 1, 2**70} | edges:
        assert index.find_entry(offset) == found_by_offset(entries, offset), offset
        assert list(index.iter_entries(offset)) == counting(entries, offset), offset
    for timestamp in {-(2**70), -1, 0, 2**63 - 1} | {e.last_timestamp_ms + by for e in entries for by in (-1, 0, 1)}:
        for start in (0, *(e.first_offset for e in entries[len(entries) // 2 :][:1])):
            wanted = [e for e in counting(entries, start) if e.last_timestamp_ms >= timestamp]
            found = index.find_entry_by_timestamp(timestamp, start_offset=start)
            assert found == (wanted[0] if wanted else None), (timestamp, start)
    assert index.first_offset == (entries[0].first_offset if entries else None)
    assert index.next_offset == (entries[-1].last_offset + 1 if entries else None)


class TestFiles:
    """Names, bytes, rotation."""

    def test_the_three_files(self) -> None:
        """If this fails, other programs cannot read what lies beside the log."""
        files = disk()
        index = opened(files)
        assert names(files) == []
        entries = [entry(121, 238, 500), entry(239, 300, 400), entry(301, 400, 600)]
        index.append(entries)
        assert names(files) == [f"{121:020d}.{suffix}" for suffix in SUFFIXES]
        log, offsets, times = (read(files, name) for name in names(files))
        assert log == b"".join(each.encode() for each in entries)
        second, third = entries[0].size_bytes, entries[0].size_bytes + entries[1].size_bytes
        assert offsets == struct.pack(">iiiiii", 0, 0, 118, second, 180, third)
        assert times == struct.pack(">qiqi", 500, 0, 600, third)
        OffsetIndex(offsets, 121).check(segment_size_bytes=len(log))
        TimeIndex(times, 0).check()
        check_lookups(index, entries)
        check_lookups(opened(files), entries)

    def test_a_full_file_is_followed_by_the_next(self) -> None:
        """If this fails, one file grows for ever, or lookups miss what is in another one."""
        files = disk()
        index = opened(files)
        entries = row(10)
        for each in entries:
            index.append([each])
        assert len(index.files) == 4
        assert names(files) == [f"{first:020d}.{suffix}" for first in (0, 30, 60, 90) for suffix in SUFFIXES]
        assert all(file.log_bytes <= SMALL.log_bytes_max for file in index.files)
        check_lookups(index, entries)
        check_lookups(opened(files), entries)
        at_once = disk()
        opened(at_once).append(entries)
        assert {name: read(files, name) for name in names(files)} == {n: read(at_once, n) for n in names(at_once)}

    def test_a_file_of_some_age_is_followed_by_the_next(self) -> None:
        """If this fails, old files are never whole and never removed on a quiet topic."""
        clock = ManualClock()
        files = disk(clock)
        rotation = Rotation(age_ms_max=60_000)
        index = opened(files, rotation)
        index.append([entry(1)])
        clock.sleep(59)
        index.append([entry(2)])
        assert len(index.files) == 1
        clock.sleep(1)
        index.append([entry(3)])
        assert len(index.files) == 2
        index = opened(files, rotation)
        clock.sleep(60)
        index.append([entry(4)])
        assert [file.base_offset for file in index.files] == [1, 3, 4]

    def test_offsets_far_apart_are_in_two_files(self) -> None:
        """If this fails, a relative offset overflows, and lookups of a partition with a gap go wrong."""
        files = disk()
        index = opened(files)
        entries = [entry(5), entry(5 + 2**31 - 1), entry(5 + 2**31), entry(2**63 - 1)]
        index.append(entries)
        assert [file.base_offset for file in index.files] == [5, 5 + 2**31, 2**63 - 1]
        check_lookups(index, entries)
        check_lookups(opened(files), entries)

    def test_names_of_any_digit_count_are_read(self) -> None:
        """If this fails, files named as the page shows them are passed over, and the index begins anew."""
        for digits in (1, 13, 20, 40):
            files, entries = disk(), row(5)
            opened(files).append(entries)
            for name in names(files):
                number, _, suffix = name.partition(".")
                files.rename(f"{FOLDER}/{name}", f"{FOLDER}/{int(number):0{digits}d}.{suffix}")
            index = opened(files)
            check_lookups(index, entries)
            index.append(row(1, start=5))
            check_lookups(opened(files), row(6))

    def test_two_spellings_of_a_number_are_an_error(self) -> None:
        """If this fails, one of two files that somebody put there wins by chance."""
        files = disk()
        opened(files).append([entry(7)])
        files.put(f"{FOLDER}/007.remoteLogIndex", entry(7).encode())
        with pytest.raises(CorruptIndexError, match="one number"):
            opened(files)
        assert len(names(files)) == 4

    def test_what_is_not_ours_stays(self) -> None:
        """If this fails, opening the index deletes the log beside it."""
        files = disk()
        others = [f"{3:020d}.log", f"{3:020d}.index", "x.remoteLogIndex", f"{2**63}.remoteLogIndex", "3.remotelogindex"]
        for name in others:
            files.put(f"{FOLDER}/{name}", b"not ours")
        files.make_directories(f"{FOLDER}/5.remoteLogIndex")
        index = opened(files)
        index.append(row(3))
        index.truncate_from_end(0)
        assert set(names(opened_files(files))) == {*others, "5.remoteLogIndex"}

    def test_rotation_has_bounds(self) -> None:
        """If this fails, an entry that no file can have stops the broker's copy task."""
        for wrong in ({"log_bytes_max": 32766}, {"log_bytes_max": FILE_BYTES_MAX + 1}, {"age_ms_max": 0}):
            with pytest.raises(ConfigError):
                Rotation(**wrong)

    def test_on_a_real_disk(self, tmp_path: pathlib.Path) -> None:
        """If this fails, the files of memory hide what the files of a disk do not allow."""
        entries = row(10)
        RemoteLogIndex(str(tmp_path), rotation=SMALL).append(entries)
        last = tmp_path / f"{90:020d}.remoteLogIndex"
        last.write_bytes(last.read_bytes()[:-1])
        index = RemoteLogIndex(f"{tmp_path}/", rotation=SMALL)
        check_lookups(index, entries[:-1])
        index.truncate_from_end(40)
        index.remove_before(35)
        check_lookups(RemoteLogIndex(str(tmp_path), rotation=SMALL), entries[3:4])


def opened_files(files: MemoryFiles) -> MemoryFiles:
    """After it was opened once more."""
    opened(files)
    return files


class TestChanges:
    """What is appended and cut."""

    def test_again_is_fine(self) -> None:
        """If this fails, a manager that restarts between the append and its own note of it cannot go on."""
        files, entries = disk(), row(5)
        index = opened(files)
        index.append(entries[:4])
        before = {name: read(files, name) for name in names(files)}
        index.append(entries[1:3])
        index.append([])
        assert {name: read(files, name) for name in names(files)} == before
        index.append(entries)
        check_lookups(index, entries)

    def test_what_contradicts_the_index_is_refused(self) -> None:
        """If this fails, a segment of a dead branch stands before that of the living one, or behind it twice."""
        index = opened(disk())
        index.append(row(3))
        for wrong in (
            [entry(20, 25)],
            [entry(5)],
            [entry(40), entry(40)],
            [entry(50), entry(45)],
            [entry(50), *row(1)],
        ):
            with pytest.raises(ValueError, match="cut the index"):
                index.append(wrong)
        check_lookups(index, row(3))

    def test_entries_may_overlap(self) -> None:
        """If this fails, a new leader whose segments have other borders cannot go on, or offset 4 is read from the old
        one.
        """
        index = opened(disk())
        first, second = entry(0, 9), entry(4, 6)
        index.append([first, second])
        assert (index.find_entry(3), index.find_entry(4), index.find_entry(7)) == (first, second, None)

    def test_a_cut(self) -> None:
        """If this fails, entries of a branch that lost an election are found after it."""
        for offset in (-1, 0, 1, 25, 30, 31, 59, 60, 99, 100, 2**63 - 1):
            files = disk()
            index = opened(files)
            index.append(row(10))
            index.truncate_from_end(offset)
            kept = [each for each in row(10) if each.first_offset < offset]
            check_lookups(index, kept)
            check_lookups(opened(files), kept)
            index.append([entry(1000, 1001, 5)])
            check_lookups(index, [*kept, entry(1000, 1001, 5)])
            check_lookups(opened(files, check_all=True), [*kept, entry(1000, 1001, 5)])

    def test_old_files_go(self) -> None:
        """If this fails, the index of a topic with a week's retention grows for ever, or loses what is still there."""
        for offset, left in ((0, 0), (29, 0), (30, 3), (59, 3), (60, 6), (10**9, 9)):
            files = disk()
            index = opened(files)
            index.append(row(10))
            index.remove_before(offset)
            check_lookups(index, row(10)[left:])
            check_lookups(opened(files), row(10)[left:])

    def test_a_full_disk(self) -> None:
        """If this fails, an append that failed leaves half an entry, and the next one stands behind it."""
        entries = row(6)
        for capacity in range(1000, 60_000, 1700):
            files = disk(capacity_bytes=capacity)
            index = opened(files)
            with pytest.raises(StoreError):
                index.append(entries)
            kept = list(index.iter_entries())
            assert kept == entries[: len(kept)]
            files._disk.capacity_bytes = 10**6
            index.append(entries)
            check_lookups(index, entries)
            check_lookups(opened(files, check_all=True), entries)

    def test_what_failed_does_not_come_back(self) -> None:
        """If this fails, an entry of a lost leader stands behind the new one's after a restart."""
        for size in (10_000, 100):
            files = disk()
            index = opened(files)
            index.append(row(2, size=100))
            broken = BrokenSync(files)
            with pytest.raises(StoreError, match="broken"):
                index.append([entry(500, size=size), entry(600, size=32_000)])
            broken.mend()
            index.truncate_from_end(20)
            expected = [each for each in index.iter_entries() if each.first_offset < 20]
            index.append([entry(300)])
            check_lookups(opened(files), [*expected, entry(300)])


class BrokenSync:
    """Every fsync of a file fails, until it is mended."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._open_update = files.open_update

        def open_update(path: str) -> Any:
            opened = self._open_update(path)

            def fail() -> None:
                raise StoreError("broken")

            opened.fsync = fail  # type: ignore[method-assign]
            return opened

        files.open_update = open_update  # type: ignore[method-assign]

    def mend(self) -> None:
        self._files.open_update = self._open_update  # type: ignore[method-assign]


class TestDamage:
    """Bytes that nobody wrote."""

    def built(self) -> MemoryFiles:
        files = disk()
        opened(files).append(row(10))
        return files

    @pytest.mark.parametrize("suffix", SUFFIXES[1:])
    @pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: bytes(len(data))])
    def test_rows_are_made_again(self, suffix: str, damage: Callable[[bytes], bytes]) -> None:
        """If this fails, a lost index file loses segments, although the file beside it has all."""
        for first in (0, 30, 90):
            files = self.built()
            sound = {name: read(files, name) for name in names(files)}
            name = f"{first:020d}.{suffix}"
            files.put(f"{FOLDER}/{name}", damage(sound[name]))
            check_lookups(opened(files), row(10))
            assert {name: read(files, name) for name in names(files)} == sound
            files.remove(f"{FOLDER}/{name}")
            check_lookups(opened(files), row(10))
            assert {name: read(files, name) for name in names(files)} == sound

    @pytest.mark.parametrize("check_all", [False, True])
    def test_a_file_that_ends_early_ends_the_index(self, check_all: bool) -> None:
        """If this fails, an index with a hole says that offsets are not in the tier."""
        files = self.built()
        name = f"{30:020d}.remoteLogIndex"
        files.put(f"{FOLDER}/{name}", read(files, name)[:-1])
        index = opened(files, check_all=check_all)
        check_lookups(index, row(5))
        assert index.next_offset == 50
        index.append(row(10))
        check_lookups(opened(files, check_all=True), row(10))

    def test_a_changed_byte_is_found(self) -> None:
        """If this fails, a lookup gives another segment than the one that was copied."""
        files = self.built()
        name = f"{30:020d}.remoteLogIndex"
        data = bytearray(read(files, name))
        data[row(1)[0].size_bytes + 100] ^= 1
        files.put(f"{FOLDER}/{name}", bytes(data))
        index = opened(files)
        assert index.find_entry(35) == row(10)[3]
        with pytest.raises(CorruptIndexError, match=name):
            index.find_entry(45)
        check_lookups(opened(files, check_all=True), row(4))

    def test_files_of_one_number_that_are_not_of_each_other(self) -> None:
        """If this fails, an index file restored from another broker leads to wrong places."""
        files = self.built()
        index = opened(files)
        rows = OffsetIndex(read(files, f"{30:020d}.remoteOffsetIndex"), 30).columns()[1].tolist()
        moved = struct.pack(">iiiiii", 0, 0, 11, rows[1], 20, rows[2])
        files.put(f"{FOLDER}/{30:020d}.remoteOffsetIndex", moved)
        with pytest.raises(CorruptIndexError, match="leads to an entry from offset 40"):
            index.find_entry(45)
        check_lookups(opened(files, check_all=True), row(10))

    def test_files_out_of_order_end_the_index(self) -> None:
        """If this fails, lookups by offset search a row that is not sorted."""
        files = self.built()
        files.put(f"{FOLDER}/{45:020d}.remoteLogIndex", entry(50).encode())
        check_lookups(opened(files), row(6))
        files = self.built()
        files.put(f"{FOLDER}/{200:020d}.remoteLogIndex", entry(95).encode())
        check_lookups(opened(files), row(10))
        assert len(names(files)) == 12

    def test_a_file_that_is_too_large_is_refused(self) -> None:
        """If this fails, a file that somebody put there takes all memory."""
        files = disk()
        files.put(f"{FOLDER}/0.remoteLogIndex", bytes(FILE_BYTES_MAX + 1))
        with pytest.raises(SizeLimitError):
            opened(files)

    @settings(max_examples=80)
    @given(st.data())
    def test_no_bytes_do_harm(self, data: st.DataObject) -> None:
        """If this fails, a bad disk ends the broker's task with an unexpected error, or gives a wrong place."""
        files, entries = disk(), [entry(10 * at, 10 * at + 9, 1000 + at, size=8000) for at in range(8)]
        opened(files).append(entries)
        for name in data.draw(st.lists(st.sampled_from(names(files)), min_size=1, max_size=3)):
            content = bytearray(read(files, name))
            start = data.draw(st.integers(0, len(content)))
            change = data.draw(st.binary(max_size=30) | st.binary(max_size=30).map(lambda junk: junk + bytes(100)))
            size = data.draw(st.sampled_from((0, len(change), len(content))))
            content[start : start + size] = change
            files.put(f"{FOLDER}/{name}", bytes(content))
        index = opened(files, check_all=data.draw(st.booleans()))
        for offset in range(0, 85, 5):
            try:
                found = index.find_entry(offset)
                assert found is None or found == entries[offset // 10]
                found = index.find_entry_by_timestamp(1000 + offset // 10)
                assert found is None or found in entries
            except CorruptIndexError:
                pass
        index = opened(files, check_all=True)
        kept = list(index.iter_entries())
        assert kept == entries[: len(kept)]
        index.append(entries)
        check_lookups(index, entries)


ENTRIES = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 60), st.integers(-1, 50), st.sampled_from((50, 3000, 15_000))),
    min_size=1,
    max_size=8,
)


def following(last: int, drawn: list[tuple[int, int, int, int]]) -> Iterator[RemoteLogIndexEntry]:
    for step, span, newest_ms, size in drawn:
        last += step
        yield entry(last, last + span, newest_ms, size=size)


class IndexMachine(RuleBasedStateMachine):
    """Against a list, with a power cut at any access of the disk.

    If this fails, some order of appends, cuts and power cuts loses an entry, invents one, or leaves a hole.
    """

    @initialize(seed=st.integers(0, 2**20))
    def start(self, seed: int) -> None:
        self.seed = seed
        self.entries: list[RemoteLogIndexEntry] = []
        self.files = disk()
        self.index = opened(self.files)

    def run(self, change: Callable[[], None], after: list[RemoteLogIndexEntry], cut: int | None, allowed: str) -> None:
        """A change, which a power cut may end; what it leaves is between what was and what is to be."""
        before = self.entries
        if cut is None:
            change()
            self.entries = after
            return
        self.seed += 1
        power = PowerCut(self.files, at=cut, seed=self.seed)
        done = False
        try:
            change()
            done = True
        except StoreError:
            assert power.left is not None
        self.files = power.cut()
        self.index = opened(self.files)
        left = list(self.index.iter_entries())
        shorter, longer = sorted((before, after), key=len)
        assert len(left) in range(len(shorter), len(longer) + 1)
        assert left == (longer[: len(left)] if allowed == "prefix" else longer[len(longer) - len(left) :])
        assert not done or left == after
        self.entries = left

    CUT = st.none() | st.integers(1, 60)

    @rule(drawn=ENTRIES, cut=CUT)
    def append(self, drawn: list[tuple[int, int, int, int]], cut: int | None) -> None:
        more = list(following(self.entries[-1].first_offset if self.entries else 0, drawn))
        self.run(lambda: self.index.append(more), self.entries + more, cut, "prefix")

    @precondition(lambda self: bool(self.entries))
    @rule(at=st.integers(0, 100), by=st.integers(0, 1), cut=CUT)
    def truncate(self, at: int, by: int, cut: int | None) -> None:
        offset = self.entries[at % len(self.entries)].first_offset + by
        after = [each for each in self.entries if each.first_offset < offset]
        self.run(lambda: self.index.truncate_from_end(offset), after, cut, "prefix")

    @precondition(lambda self: bool(self.entries))
    @rule(at=st.integers(0, 100), cut=CUT)
    def remove(self, at: int, cut: int | None) -> None:
        offset = self.entries[at % len(self.entries)].first_offset
        files = self.index.files
        kept = [file.first_offset for file in files[1:] if file.first_offset <= offset]
        first = kept[-1] if kept else self.entries[0].first_offset
        after = [each for each in self.entries if each.first_offset >= first]
        self.run(lambda: self.index.remove_before(offset), after, cut, "suffix")

    @rule(check_all=st.booleans())
    def restart(self, check_all: bool) -> None:
        self.index = opened(self.files, check_all=check_all)

    @invariant()
    def looks_up(self) -> None:
        check_lookups(self.index, self.entries)


IndexMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=15)
TestAgainstAList = IndexMachine.TestCase
