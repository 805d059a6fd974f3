"""Index files that grow, are cut and opened again, against the plain functions over the whole index."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sparse_indexes import encode_offset_index, encode_time_index
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.segments.index_file import OffsetIndexFile, TimeIndexFile
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles

BASE = 7000
PATH = "/index"


class SmallOffsets(OffsetIndexFile):
    """Pages of four entries, so that short lists have many."""

    page_bytes = 4 * 8


class SmallTimes(TimeIndexFile):
    page_bytes = 4 * 12


#: (what to do, a number).
steps = st.lists(
    st.tuples(st.sampled_from(["append", "append", "append", "write", "forget", "cut", "open", "zeros", "reset"]),
              st.integers(0, 60)),
    max_size=14,
)  # fmt: skip
#: Of 1 to 3, between one entry and the next, of both fields.
rises = st.integers(0, 2**32 - 1)


@dataclass
class Offsets:
    """An offset index and the list of its entries; or, of SmallTimes, a time index."""

    rng: random.Random
    times: bool = False
    files: MemoryFiles = field(default_factory=MemoryFiles)
    rows: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = self.opened(is_new=True)

    def opened(self, *, is_new: bool = False) -> SmallOffsets | SmallTimes:
        kind = SmallTimes if self.times else SmallOffsets
        machine = Machine(files=self.files)
        return kind(machine, LogFolder(machine, ""), PATH.removeprefix("/"), base_offset=BASE, is_new=is_new)

    def encoded(self, rows: list[tuple[int, int]]) -> bytes:
        firsts, seconds = ([row[at] for row in rows] for at in (0, 1))
        return (encode_time_index if self.times else encode_offset_index)(BASE, firsts, seconds)

    def step(self, name: str, number: int) -> None:
        index = self.index
        if name == "append":
            for _ in range(number):
                first, second = self.rows[-1] if self.rows else ((0, BASE) if self.times else (BASE, 0))
                self.rows.append((first + self.rng.randint(1, 3), second + self.rng.randint(1, 3)))
                index.append(self.encoded(self.rows[-1:]))
        elif name == "write":
            index.write_out()
        elif name == "forget":
            index.write_out()
            index.forget_pages(number % 3)
        elif name == "cut":
            at = 1 if self.times else 0
            offset = BASE + number * 2
            index.truncate_to(offset)
            self.rows = [row for row in self.rows if row[at] < offset]
        elif name == "reset":
            index.reset()
            self.rows = []
        else:
            index.write_out()
            if name == "zeros":
                self.files.put(PATH, self.files.read_whole(PATH) + bytes(24 + number * 7))
            self.index = self.opened()

    def check(self) -> None:
        data = self.encoded(self.rows)
        assert self.index.entries == len(self.rows)
        assert self.index.last_entry == (self.rows[-1] if self.rows else ((-1, BASE) if self.times else (BASE, 0)))
        for target in range(-2, 3 * len(self.rows) + 4):
            if isinstance(self.index, SmallTimes):
                assert self.index.find_offset(target) == TimeIndex(data, BASE).lookup(target).offset
            else:
                plain = OffsetIndex(data, BASE)
                assert self.index.find_position(BASE + target) == plain.lookup(BASE + target).position
                expected = plain.find_upper_bound_offset(position=target, size_bytes=0)
                assert self.index.find_upper_bound(target) == expected

    def check_file(self) -> None:
        self.index.write_out()
        assert self.files.read_whole(PATH) == self.encoded(self.rows)


@given(steps, rises, st.booleans())
def test_equal_to_the_plain_functions(given_steps: list[tuple[str, int]], seed: int, times: bool) -> None:
    """Else a lookup goes behind the record that it is for, once an index is longer than its end in memory."""
    model = Offsets(random.Random(seed), times=times)
    for name, number in given_steps:
        model.step(name, number)
        model.check()
    model.check_file()
    model.index = model.opened()
    model.check()


def test_an_index_of_many_pages(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Else the pages' true size, or the disk's files, make a difference."""
    folder = LogFolder(Machine(), str(tmp_path_factory.mktemp("index")))
    rows = [(BASE + 3 * i + 3, 5000 * i + 5000) for i in range(12_345)]
    data = encode_offset_index(BASE, [row[0] for row in rows], [row[1] for row in rows])
    index = OffsetIndexFile(Machine(), folder, "index", base_offset=BASE, is_new=True)
    for at in range(0, len(data), 8):
        index.append(data[at : at + 8])
    assert len(data) - 4096 < index.file.made().size_bytes <= len(data)
    index.write_out()
    plain = OffsetIndex(data, BASE)
    for each in (index, OffsetIndexFile(Machine(), folder, "index", base_offset=BASE)):
        for offset in range(BASE - 1, rows[-1][0] + 5, 37):
            assert each.find_position(offset) == plain.lookup(offset).position
        for position in range(0, 5000 * len(rows), 123_457):
            expected = plain.find_upper_bound_offset(position=position, size_bytes=0)
            assert each.find_upper_bound(position) == expected
        assert each.entries == len(rows)


@given(st.binary(max_size=200), st.integers(BASE - 10, BASE + 2**33), st.booleans(), st.integers(0, 3))
def test_any_bytes(data: bytes, target: int, times: bool, cut: int) -> None:
    """Else a damaged index ends the process, or an error of no type of ours comes out."""
    model = Offsets(random.Random(0), times=times)
    model.files.put(PATH, data)
    index = model.opened()
    for call in (
        lambda: index.last_entry,
        lambda: index.find_offset(target) if isinstance(index, SmallTimes) else index.find_position(target),
        lambda: index.find_upper_bound(target - BASE) if isinstance(index, SmallOffsets) else None,
        lambda: index.truncate_to(target) if cut else None,
        lambda: index.find_offset(target) if isinstance(index, SmallTimes) else index.find_position(target),
        index.write_out,
    ):
        with contextlib.suppress(CorruptIndexError):
            call()


def test_a_file_that_becomes_shorter() -> None:
    """Else a lookup in an index that somebody cut off goes on in memory that was never filled."""
    model = Offsets(random.Random(1))
    model.step("append", 40)
    model.step("open", 0)
    model.check()
    model.index = model.opened()
    assert model.index.entries == 40
    model.files.open_update(PATH).truncate(8)
    with pytest.raises(CorruptIndexError):
        model.index.find_position(BASE + 40)


def test_entries_are_written_by_the_page(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Else each append of a log costs three writes instead of one."""
    folder = LogFolder(Machine(), str(tmp_path_factory.mktemp("index")))
    index = TimeIndexFile(Machine(), folder, "index", base_offset=BASE, is_new=True)
    for number in itertools.count(1):
        index.append(encode_time_index(BASE, [number], [BASE + number]))
        if index.file.made().size_bytes:
            break
        assert number < 341
    assert index.file.made().size_bytes == TimeIndexFile.page_bytes
