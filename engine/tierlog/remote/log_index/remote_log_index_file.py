"""One file of the remote log index, and the offset and time index beside it: read, looked up, checked, made again.

The three share a number in their names, as a segment's files do: no entry begins below it. The remote log index is
authoritative; the other two are derived from it and can always be made again.

- ``.remoteOffsetIndex``, 8 bytes for each entry of the remote log index: its first offset, less the number; its
  position.
- ``.remoteTimeIndex``, 12 bytes for each entry whose last timestamp is later than all before: the timestamp; the
  position.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError, ObjectNotFoundError, SizeLimitError
from tierlog.log.formats.remote_log_index_entry import (
    ENTRY_BYTES_MAX,
    NO_TIMESTAMP_MS,
    RemoteLogIndexEntry,
    parse_entry,
    require_order,
)
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from tierlog.runtime.machine.files import Files

LOG_SUFFIX: Final = ".remoteLogIndex"
OFFSET_SUFFIX: Final = ".remoteOffsetIndex"
TIME_SUFFIX: Final = ".remoteTimeIndex"
#: Of a remote log index: larger ones are refused, and none is written.
FILE_BYTES_MAX: Final = 64 << 20
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_WINDOW_BYTES: Final = 1 << 20
_OFFSET_ROW: Final = struct.Struct(">ii")
_TIME_ROW: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class RemoteIndexFile:
    """The three files of one number, as far as they are valid. Immutable: a longer file is another value.

    Attributes:
        path: Path of the three files without suffix.
        base_offset: The number in their names.
        first_offset: First offset of the first entry.
        last: The last entry.
        newest_ms: The latest of all last timestamps in ms; -1 if there is none.
        log_bytes, offset_bytes, time_bytes: Valid bytes of each file; bytes behind them were never finished.
        began_ms: When the first entry was written, as far as that is known.
    """

    path: str
    base_offset: int
    first_offset: int
    last: RemoteLogIndexEntry
    newest_ms: int
    log_bytes: int
    offset_bytes: int
    time_bytes: int
    began_ms: int

    @property
    def log_path(self) -> str:
        return self.path + LOG_SUFFIX

    @property
    def offset_path(self) -> str:
        return self.path + OFFSET_SUFFIX

    @property
    def time_path(self) -> str:
        return self.path + TIME_SUFFIX

    def fits(self, entry: RemoteLogIndexEntry, log_bytes_max: int) -> bool:
        """Whether the file can take one more entry."""
        return (
            self.log_bytes + entry.size_bytes <= log_bytes_max
            and entry.first_offset - self.base_offset <= _RELATIVE_OFFSET_MAX
        )

    def read_entry(self, files: Files, position: int) -> RemoteLogIndexEntry:
        """Read the entry at a position. Raises CorruptIndexError: there is none."""
        return _entry_at(files, self.log_path, position, self.log_bytes)

    def find_position(self, files: Files, offset: int) -> int:
        """Find the position of the last entry that begins at or below an offset; of the first entry if none does."""
        rows = _read(files, self.offset_path, self.offset_bytes)
        return OffsetIndex(rows, self.base_offset).lookup(_int64(offset)).position

    def find_entry(self, files: Files, offset: int) -> RemoteLogIndexEntry | None:
        """Find the last entry that begins at or below an offset.

        Raises:
            CorruptIndexError: the files are damaged, or do not belong together.
        """
        if offset < self.first_offset:
            return None
        rows = _read(files, self.offset_path, self.offset_bytes)
        row = OffsetIndex(rows, self.base_offset).lookup(_int64(offset))
        entry = self.read_entry(files, row.position)
        if entry.first_offset != row.offset or entry.first_offset > offset:
            text = f"leads to an entry from offset {entry.first_offset}"
            raise CorruptIndexError(
                text, fault="BAD_ENTRY", expected=row.offset, found=entry.first_offset, where=self.offset_path
            )
        return entry

    def find_time_position(self, files: Files, timestamp_ms: int) -> int:
        """Find a position such that every entry before it has an earlier last timestamp than the one asked for."""
        rows = _read(files, self.time_path, self.time_bytes)
        return TimeIndex(rows, 0).lookup(_int64(timestamp_ms)).offset

    def iter_entries(self, files: Files, position: int = 0) -> Iterator[tuple[int, RemoteLogIndexEntry]]:
        """Yield (position, entry) from a position on. Raises CorruptIndexError: no entry begins there, or a later one
        is damaged.
        """
        return _iter_log(files, self.log_path, position, self.log_bytes)


def _int64(number: int) -> int:
    """Return a number clamped to 64 bits: callers may ask for any number, files hold no larger ones."""
    return max(-(2**63), min(number, 2**63 - 1))


def _entry_at(files: Files, path: str, position: int, end_position_exclusive: int) -> RemoteLogIndexEntry:
    data = bytearray(max(0, min(ENTRY_BYTES_MAX, end_position_exclusive - position)))
    with files.open_read(path) as opened:
        size = opened.read_into(data, position=position)
    return _parse(memoryview(data)[:size], 0, position, path)


def _iter_log(
    files: Files, path: str, position: int, end_position_exclusive: int
) -> Iterator[tuple[int, RemoteLogIndexEntry]]:
    """Iterate the entries of a remote log index, read window by window, however large the file."""
    with files.open_read(path) as opened:
        window = bytearray(min(_WINDOW_BYTES + ENTRY_BYTES_MAX, max(0, end_position_exclusive - position)))
        while position < end_position_exclusive:
            size = opened.read_into(window, position=position)
            view = memoryview(window)[: min(size, end_position_exclusive - position)]
            is_last = position + len(view) == end_position_exclusive
            at = 0
            while at == 0 or (at < len(view) and (is_last or at < _WINDOW_BYTES)):
                entry = _parse(view, at, position + at, path)
                yield position + at, entry
                at += entry.size_bytes
            position += at


def _parse(view: memoryview, at: int, position: int, where: str) -> RemoteLogIndexEntry:
    try:
        return parse_entry(view, at)
    except CorruptIndexError as error:
        error.position = position
        raise error.located(where) from None


def _read(files: Files, path: str, size_bytes: int) -> bytearray:
    """Read the first bytes of a file. Raises CorruptIndexError: the file is shorter."""
    data = bytearray(size_bytes)
    with files.open_read(path) as opened:
        if (found := opened.read_into(data, position=0)) != size_bytes:
            text = "the file is shorter than it was"
            raise CorruptIndexError(text, fault="TRUNCATED", expected=size_bytes, found=found, where=path)
    return data


@dataclass(slots=True)
class IndexRows:
    """The rows of the offset index and the time index, derived from entries one after another.

    Args:
        base_offset: The number in the files' names.
        position: Where the next entry begins.
        newest_ms: The latest last timestamp of the entries before, in ms.
    """

    base_offset: int
    position: int = 0
    newest_ms: int = NO_TIMESTAMP_MS
    offsets: bytearray = field(default_factory=bytearray)
    times: bytearray = field(default_factory=bytearray)

    def add(self, entry: RemoteLogIndexEntry) -> None:
        """Derive the rows of one more entry. Raises CorruptIndexError: no file of this number can hold the entry."""
        relative = entry.first_offset - self.base_offset
        if not 0 <= relative <= _RELATIVE_OFFSET_MAX:
            text = f"an entry from offset {entry.first_offset} in a file of number {self.base_offset}"
            raise CorruptIndexError(text, fault="BAD_ENTRY", position=self.position)
        self.offsets += _OFFSET_ROW.pack(relative, self.position)
        if entry.last_timestamp_ms > self.newest_ms:
            self.times += _TIME_ROW.pack(entry.last_timestamp_ms, self.position)
            self.newest_ms = entry.last_timestamp_ms
        self.position += entry.size_bytes


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of checking the three files of a number.

    Attributes:
        file: The valid part; None if not one entry is valid.
        fault: The fault that ends the valid part early; None if all of it is valid.
    """

    file: RemoteIndexFile | None
    fault: CorruptIndexError | None = None


def open_file(files: Files, path: str, base_offset: int, *, modified_ms: int) -> Found:
    """Open files that were closed. They are trusted if their ends agree with each other, else scanned (``scan_file``).

    They were fsynced before a later file was begun: no crash damages them.

    Raises:
        SizeLimitError: too large. StoreError and its kinds.
    """
    size_bytes = files.stat(path + LOG_SUFFIX).size_bytes
    _require_size(size_bytes, path)
    try:
        file = _trusted(files, path, base_offset, size_bytes, modified_ms)
    except (CorruptIndexError, ObjectNotFoundError):
        file = None
    return scan_file(files, path, base_offset, modified_ms=modified_ms) if file is None else Found(file)


def _trusted(files: Files, path: str, base_offset: int, size_bytes: int, modified_ms: int) -> RemoteIndexFile | None:
    """Return the files by their ends alone. None, or CorruptIndexError, if the ends do not agree."""
    rows = files.read_whole(path + OFFSET_SUFFIX, limit_bytes=FILE_BYTES_MAX)
    time_rows = files.read_whole(path + TIME_SUFFIX, limit_bytes=FILE_BYTES_MAX)
    index, time_index = OffsetIndex(rows, base_offset), TimeIndex(time_rows, 0)
    index.check(segment_size_bytes=size_bytes)
    time_index.check()
    whole = (len(index) * OFFSET_ENTRY_BYTES, len(time_index) * TIME_ENTRY_BYTES) == (len(rows), len(time_rows))
    if not whole or not rows:
        return None
    offsets, positions = index.columns()
    log, last_position = path + LOG_SUFFIX, int(positions[-1])
    first, last = (_entry_at(files, log, position, size_bytes) for position in (0, last_position))
    newest_ms = NO_TIMESTAMP_MS
    if time_rows:
        times, places = time_index.columns()
        newest_ms = int(times[-1])
        if _entry_at(files, log, int(places[-1]), size_bytes).last_timestamp_ms != newest_ms:
            return None
    agree = (int(positions[0]), int(offsets[0]), int(offsets[-1])) == (0, first.first_offset, last.first_offset)
    is_end = last_position + last.size_bytes == size_bytes
    if not is_end or not agree or newest_ms < max(first.last_timestamp_ms, last.last_timestamp_ms, NO_TIMESTAMP_MS):
        return None
    return RemoteIndexFile(
        path,
        base_offset,
        first.first_offset,
        last,
        newest_ms,
        log_bytes=size_bytes,
        offset_bytes=len(rows),
        time_bytes=len(time_rows),
        began_ms=modified_ms,
    )


def scan_file(files: Files, path: str, base_offset: int, *, modified_ms: int) -> Found:
    """Check every entry, and make the offset and the time index again where they differ from the entries.

    The remote log index itself is not changed: bytes behind ``log_bytes`` of the result are damaged or were never
    finished.

    Raises:
        SizeLimitError: too large. StoreError and its kinds.
    """
    size_bytes = files.stat(path + LOG_SUFFIX).size_bytes
    _require_size(size_bytes, path)
    rows = IndexRows(base_offset)
    first = last = None
    fault = None
    try:
        for position, entry in _iter_log(files, path + LOG_SUFFIX, 0, size_bytes):
            require_order(entry, -1 if last is None else last.first_offset, position)
            rows.add(entry)
            first, last = first or entry, entry
    except CorruptIndexError as error:
        fault = error.located(path + LOG_SUFFIX)
    if first is None or last is None:
        return Found(None, fault)
    file = RemoteIndexFile(
        path,
        base_offset,
        first.first_offset,
        last,
        rows.newest_ms,
        log_bytes=rows.position,
        offset_bytes=len(rows.offsets),
        time_bytes=len(rows.times),
        began_ms=modified_ms,
    )
    for name, content in ((file.offset_path, rows.offsets), (file.time_path, rows.times)):
        if not _has(files, name, content):
            files.write_whole(name, content)
    return Found(file, fault)


def shorten(files: Files, path: str, log_bytes: int) -> None:
    """Cut a remote log index for ever; the surplus rows of the other two files no longer count."""
    with files.open_update(path + LOG_SUFFIX) as opened:
        opened.truncate(log_bytes)
        opened.fsync()


def remove(files: Files, path: str) -> None:
    """Remove the three files of a number for ever, the remote log index first: without it the number does not exist."""
    files.remove(path + LOG_SUFFIX)
    files.fsync_directory(path.rpartition("/")[0])
    files.remove(path + OFFSET_SUFFIX)
    files.remove(path + TIME_SUFFIX)


def _has(files: Files, path: str, content: Buffer) -> bool:
    info = files.find(path)
    size_bytes = memoryview(content).nbytes
    return info is not None and info.size_bytes == size_bytes and _read(files, path, size_bytes) == content


def _require_size(size_bytes: int, path: str) -> None:
    if size_bytes > FILE_BYTES_MAX:
        text = f"a remote log index of {size_bytes} bytes; {FILE_BYTES_MAX} are the most"
        raise SizeLimitError(
            text, fault="OVER_LIMIT", expected=FILE_BYTES_MAX, found=size_bytes, where=path + LOG_SUFFIX
        )
