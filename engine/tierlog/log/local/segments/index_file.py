"""The offset and the time index of one segment, as files that grow: their ends in memory, their pages on disk.

Entries go into a tail in memory, and from there into the file a page at a time: an append of a batch costs no write for
its index. After the process is killed the files lack the last entries; their entries are right, and a lookup then reads
a little more of the log. The entries in front of the tail are known by the first entry of each page, so that a lookup
there reads one page of 4 KiB.

Source: Kafka AbstractIndex, OffsetIndex, TimeIndex, whose files are mapped and allocated ahead: zeros behind the last
entry of such a file do not count, and go when the file is first written.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple

from typing_extensions import Buffer

from tierlog._native.appends import WaitingEntries
from tierlog._native.indexes import find_upper_bound_offset, lookup_offset, lookup_timestamp
from tierlog.errors import CorruptIndexError, ObjectNotFoundError
from tierlog.log.local.log_folder import LazyFile, LogFolder
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import ReadableFile, UpdatableFile

#: A tail that grew beyond so many pages is cut to half of them.
_TAIL_PAGES_MAX: Final = 16
_PAGES_READ_AT_ONCE: Final = 16
_OFFSET_MAX: Final = 2**63 - 1
_RELATIVE_MAX: Final = 2**31 - 1


class _Page(NamedTuple):
    """A page that was read from the file; ``generation`` is that of the index then."""

    number: int
    generation: int
    data: bytes


class IndexFile:
    """Entries that only grow, but for a truncation.

    One thread at a time changes it; any number look things up meanwhile. Their lock is held for memory work alone.
    """

    entry: ClassVar[struct.Struct]
    #: Whole entries, about 4 KiB.
    page_bytes: ClassVar[int]

    def __init__(
        self, machine: Machine, folder: LogFolder, name: str, *, base_offset: int, is_new: bool = False
    ) -> None:
        self.file = LazyFile(machine, folder, name)
        self._base_offset = base_offset
        self._lock = machine.scheduler.lock()
        self._generation = 0
        # The two fields of the first entry of each page in front of the tail.
        self._firsts = array("q")
        self._seconds = array("q")
        self._tail = bytearray()
        #: Entries of batches that were appended by one native call; a lookup moves them into the tail.
        self.waiting = WaitingEntries(self.page_bytes)
        self._written_bytes = 0
        self._is_known = is_new
        # Changes of the file, and how many an fsync has seen: none of those of a process before this one.
        self._changes, self._synced_changes = 1, 0
        self._page = _Page(-1, -1, b"")
        # Whether the entries are made anew, and the file has those of before behind the written ones.
        self._is_rebuilding = False
        # The last entry, where no more than that is known.
        self._end: bytes | None = None

    # ---- look-ups

    @property
    def entries(self) -> int:
        """The number of entries."""
        self._know()
        with self._lock:
            self._collect()
            return self._size_bytes // self.entry.size

    @property
    def _tail_position(self) -> int:
        return len(self._firsts) * self.page_bytes

    @property
    def _size_bytes(self) -> int:
        return len(self._firsts) * self.page_bytes + len(self._tail)

    def _last(self) -> tuple[int, int] | None:
        """Return the fields of the last entry. Of an index that was not read so far, no more than its end is read."""
        if not self._is_known:
            end = self._read_end() if self._end is None else self._end
            if not self._is_known:
                self._end = end
                return self.entry.unpack(end) if end else None
        with self._lock:
            self._collect()
            return self.entry.unpack(self._tail[-self.entry.size :]) if self._tail else None

    def _collect(self) -> None:
        """Take the entries that wait into the tail. The caller holds the lock."""
        if self.waiting.size_bytes:
            self._tail += self.waiting.take()

    def _read_end(self) -> bytes:
        """Read the last entry in the file, b"" if there is none. A file that was not open is closed again."""
        file = self.file.peek()
        if file is None:
            return b""
        try:
            size_bytes = self._used_bytes(file)
            return bytes(self._read(file, size_bytes - self.entry.size, self.entry.size)) if size_bytes else b""
        except CorruptIndexError:
            if not self._is_known:
                raise
            return b""

    def _absolute(self, relative_offset: int) -> int:
        if not 0 <= relative_offset <= _OFFSET_MAX - self._base_offset:
            raise CorruptIndexError(f"an entry with the relative offset {relative_offset}", where=self.file.path)
        return self._base_offset + relative_offset

    # ---- loading

    def _know(self) -> None:
        """Read the file, if that was not done yet. Nothing changes it meanwhile: writers read it first."""
        if self._is_known:
            return
        file = self.file.find()
        firsts, seconds, tail = array("q"), array("q"), bytearray()
        if file is not None:
            try:
                tail = self._load(file, firsts, seconds)
            except CorruptIndexError:
                if not self._is_known:
                    raise
        with self._lock:
            if not self._is_known:
                self._firsts, self._seconds, self._tail = firsts, seconds, tail
                self._written_bytes = self._size_bytes
                self._is_known = True

    def _load(self, file: UpdatableFile, firsts: array[int], seconds: array[int]) -> bytearray:
        """Fill the directory from the file; its last page."""
        size_bytes = self._used_bytes(file)
        tail_position = max(0, size_bytes - 1) // self.page_bytes * self.page_bytes
        step = _PAGES_READ_AT_ONCE * self.page_bytes
        for position in range(0, tail_position, step):
            self._note_pages(self._read(file, position, min(step, tail_position - position)), firsts, seconds)
        return self._read(file, tail_position, size_bytes - tail_position)

    def _note_pages(self, pages: bytearray, firsts: array[int], seconds: array[int]) -> None:
        for at in range(0, len(pages), self.page_bytes):
            first, second = self.entry.unpack_from(pages, at)
            firsts.append(first)
            seconds.append(second)

    def _used_bytes(self, file: ReadableFile | UpdatableFile) -> int:
        """Return the bytes of whole entries in front of the zeros of preallocation."""
        size = self.entry.size
        whole = file.size_bytes // size * size
        if whole == size:
            return whole  # a lone zero entry is one: a log whose first record is of 1970
        step = self.page_bytes
        while whole > 0:
            position = (whole - 1) // step * step
            used = len(self._read(file, position, whole - position).rstrip(b"\0"))
            if used:
                return position + -(-used // size) * size
            whole, step = position, _PAGES_READ_AT_ONCE * self.page_bytes
        return 0

    def _read(self, file: ReadableFile | UpdatableFile, position: int, size_bytes: int) -> bytearray:
        data = bytearray(size_bytes)
        count = file.read_into(data, position=position)
        if count < size_bytes:
            raise CorruptIndexError(f"the file ends at {position + count}", position=position, where=self.file.path)
        return data

    def _read_page(self, number: int, generation: int) -> bytes | None:
        """Read a page in front of the tail; None if the index was truncated meanwhile."""
        page = self._page
        if page.number == number and page.generation == generation:
            return page.data
        data = bytearray(self.page_bytes)
        count = self.file.opened().read_into(data, position=number * self.page_bytes)
        if generation != self._generation:
            return None
        if count < self.page_bytes:
            position = number * self.page_bytes
            raise CorruptIndexError(f"the file ends at {position + count}", position=position, where=self.file.path)
        self._page = _Page(number, generation, bytes(data))
        return self._page.data

    def _look_up(self, key: int, find: Callable[[Buffer], tuple[int, int]]) -> tuple[int, int]:
        """Return the result of a search in the page that may have the last entry whose first field is at or below a
        key; of a search in no entries where all lie above it.
        """
        self._know()
        while True:
            with self._lock:
                self._collect()
                if not self._firsts or self.entry.unpack_from(self._tail)[0] <= key:
                    return find(self._tail)
                number, generation = bisect_right(self._firsts, key) - 1, self._generation
            page = self._read_page(number, generation) if number >= 0 else b""
            if page is not None:
                return find(page)

    # ---- changing

    def append(self, entries: bytes) -> None:
        """Add entries behind those that wait: to the tail, and to the file once they make a page."""
        if not self._is_known:
            self._know()
        with self._lock:
            self._collect()
            self._tail += entries
        if len(self._firsts) * self.page_bytes + len(self._tail) - self._written_bytes >= self.page_bytes:
            if not self._is_rebuilding or not self._compare():
                self.write_out()
            if len(self._tail) > _TAIL_PAGES_MAX * self.page_bytes:
                self.forget_pages(_TAIL_PAGES_MAX // 2)

    def write_out(self) -> None:
        """Write the entries that are only in memory; the file is made if it does not exist, and cut to its entries."""
        self._know()
        with self._lock:
            self._collect()
        if self._is_rebuilding:
            self._compare()
            self._is_rebuilding = False
        file, size_bytes = self.file.made(), self._size_bytes
        if file.size_bytes != self._written_bytes:
            file.truncate(self._written_bytes)
            self._changes += 1
        if size_bytes > self._written_bytes:
            file.append(self._tail[self._written_bytes - self._tail_position :])
            self._written_bytes = size_bytes
            self._changes += 1
        self.waiting.note_written()

    def forget_pages(self, pages_kept: int = 0) -> None:
        """Hold at most so many pages in memory, and the last one. All entries have been written out."""
        dropped = max(0, max(0, len(self._tail) - 1) // self.page_bytes - pages_kept) * self.page_bytes
        with self._lock:
            self._note_pages(self._tail[:dropped], self._firsts, self._seconds)
            del self._tail[:dropped]

    def fsync(self) -> None:
        """Fsync the file, unless nothing changed since the last time. Any thread, while another appends."""
        changes = self._changes
        if self._synced_changes != changes:
            with contextlib.suppress(ObjectNotFoundError):  # a time index that was lost, and had no entries since
                self.file.fsync()
            self._synced_changes = changes  # not before: a second thread would take it for done

    def reset(self) -> None:
        """Remove all entries, in memory and on disk."""
        self._is_known = True  # whatever it holds
        self._cut(0, bytearray())

    def begin_rebuild(self) -> None:
        """Forget all entries; those that are appended from now on are written where the file has others. For recovery,
        whose disk has most of them: cutting a file costs more than reading it.
        """
        self._is_known = self._is_rebuilding = True
        with self._lock:
            self._collect()
            self._generation += 1
            self._firsts, self._seconds, self._tail = array("q"), array("q"), bytearray()
        self._written_bytes = 0

    def _compare(self) -> bool:
        """Take the entries as written that the file has already; whether it has all of them."""
        file, wanted = self.file.find(), self._tail[self._written_bytes - self._tail_position :]
        data = bytearray(len(wanted))
        self._is_rebuilding = (
            file is not None and file.read_into(data, position=self._written_bytes) == len(data) and data == wanted
        )
        if self._is_rebuilding:
            self._written_bytes = self._size_bytes
        return self._is_rebuilding

    def _cut(self, pages: int, tail: bytearray) -> None:
        """Cut the index to so many pages and a tail: readers see it first, then the file is cut."""
        with self._lock:
            self._collect()  # they lie behind what stays
            self._generation += 1
            self._firsts, self._seconds, self._tail = self._firsts[:pages], self._seconds[:pages], tail
        file = self.file.made()
        self._written_bytes = min(self._written_bytes, self._size_bytes)
        if file.size_bytes > self._written_bytes:
            file.truncate(self._written_bytes)
            self._changes += 1

    def _truncate_to(self, offset: int, *, field: int) -> None:
        """Remove the entries at or behind an offset, which is a field of the entry."""
        self._know()
        with self._lock:
            self._collect()
        relative = offset - self._base_offset
        pages, data = len(self._firsts), bytes(self._tail)
        if pages and self.entry.unpack_from(data)[field] >= relative:
            pages = max(0, bisect_left((self._firsts, self._seconds)[field], relative) - 1)
            data = self._read_page(pages, self._generation) or b""
        kept = bisect_left([row[field] for row in self.entry.iter_unpack(data)], relative)
        # No page remains if its first entry had to: the entries are in no order, and all as good as lost.
        self._cut(pages if kept else 0, bytearray(data[: kept * self.entry.size]))


class OffsetIndexFile(IndexFile):
    """Entries of 8 bytes: relative offset, position."""

    entry = struct.Struct(">ii")
    page_bytes = 512 * 8

    @property
    def last_entry(self) -> tuple[int, int]:
        """(offset, position) of the last entry; (base offset, 0) if there is none. Raises CorruptIndexError."""
        last = self._last()
        return (self._base_offset, 0) if last is None else (self._absolute(last[0]), self._position(last[1]))

    def _position(self, position: int) -> int:
        if position < 0:
            raise CorruptIndexError(f"an entry with the position {position}", where=self.file.path)
        return position

    def find_position(self, offset: int) -> int:
        """Find the position of the entry with the largest offset at or below one; 0 if there is none.

        Raises:
            CorruptIndexError: the entry's position is negative, or the file has become shorter. StoreError.
        """
        base, relative = self._base_offset, min(offset - self._base_offset, _RELATIVE_MAX)
        return self._position(self._look_up(relative, lambda page: lookup_offset(page, base, base + relative))[1])

    def find_upper_bound(self, position: int) -> int | None:
        """Find the offset of the first entry at or behind a position; None if there is none. Raises as
        ``find_position``.
        """
        self._know()
        position = min(position, _RELATIVE_MAX + 1)
        base = self._base_offset
        while True:
            with self._lock:
                self._collect()
                if not self._firsts or self.entry.unpack_from(self._tail)[1] < position:
                    return find_upper_bound_offset(self._tail, base, position, 0)
                number, generation = bisect_left(self._seconds, position) - 1, self._generation
                following = self._firsts[number + 1] if number + 1 < len(self._firsts) else None
                if following is None:
                    following = self.entry.unpack_from(self._tail)[0]
            page = self._read_page(number, generation) if number >= 0 else b""
            if page is not None:
                found = find_upper_bound_offset(page, base, position, 0)
                return self._absolute(following) if found is None else found

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or behind an offset."""
        self._truncate_to(offset, field=0)


class TimeIndexFile(IndexFile):
    """Entries of 12 bytes: timestamp in ms, relative offset."""

    entry = struct.Struct(">qi")
    page_bytes = 340 * 12

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none. Raises CorruptIndexError."""
        last = self._last()
        return (-1, self._base_offset) if last is None else (last[0], self._absolute(last[1]))

    def find_offset(self, timestamp_ms: int) -> int:
        """Find the offset of the entry with the largest timestamp at or below one; the base offset if there is none.

        Raises:
            CorruptIndexError: the file has become shorter. StoreError.
        """
        return self._look_up(timestamp_ms, lambda page: lookup_timestamp(page, self._base_offset, timestamp_ms))[1]

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or behind an offset."""
        self._truncate_to(offset, field=1)
