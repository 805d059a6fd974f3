"""The remote log index of a partition: the places of its records in the tier, in files beside its log.

The older page of KIP-405 stores this on the broker's disk, today's page in a topic: there is no index unless a manager
makes one. The leader appends each segment that it copied, once it is COPY_SEGMENT_FINISHED; followers read the same
entries from the object beside each segment (``remote.storage.copy.copied_segment``) and append those
(``append_segments``).

Entries are ordered by their first offsets. They may overlap, since each broker cuts segments in its own places: where
one entry begins, the one before it ends. An offset behind its entry's last one is not in the index, whatever an earlier
entry says: that entry belongs to another leader's log.

After a crash the index holds every entry whose ``append`` had returned, perhaps some that were being written, and never
a hole: the bytes of an entry are fsynced before it counts, a file is closed and fsynced before the next is begun, and
recovery ends the index at the first damage. ``next_offset`` says from where to append again.

An index that is opened is one row of files without a hole, whatever ended the last run. After a clean stop all entries
are there. After a crash the last file may end inside an entry and lack rows of its offset and time index; the other
files were closed. On a disk that lost bytes, the entries before the first damage stay: behind it a hole would look like
offsets that never were in the tier. The segments themselves are still in the tier.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np

from tierlog.errors import ConfigError, CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.remote_log_index_entry import ENTRY_BYTES_MAX, RemoteLogIndexEntry
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.log_index.remote_log_index_file import (
    FILE_BYTES_MAX,
    LOG_SUFFIX,
    OFFSET_SUFFIX,
    TIME_SUFFIX,
    Found,
    IndexRows,
    RemoteIndexFile,
    open_file,
    remove,
    scan_file,
    shorten,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files

#: Entries of segments in memory, and written in one go.
_GATHERED_MAX: Final = 256
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Rotation:
    """The limits at which the next file is begun."""

    log_bytes_max: int = 1 << 20
    age_ms_max: int | None = 7 * 24 * 3_600_000

    def __post_init__(self) -> None:
        if not ENTRY_BYTES_MAX <= self.log_bytes_max <= FILE_BYTES_MAX:
            raise ConfigError(f"remote log index of {self.log_bytes_max} bytes: {ENTRY_BYTES_MAX} … {FILE_BYTES_MAX}")
        if self.age_ms_max is not None and self.age_ms_max < 1:
            raise ConfigError(f"remote log index of {self.age_ms_max} ms: at least 1")


class RemoteLogIndex:
    """The remote log index of a partition's folder.

    Args:
        folder: The partition's folder, which exists. Other files in it are left alone.
        rotation: When a next file is begun.
        check_all: Check every entry of every file, instead of those of the last file and the ends of the others.
        machine: Has the files and the clock.

    Raises:
        CorruptIndexError: two files have the same number, one written with more zeros than the other: one must be
            removed.
        SizeLimitError: a file is larger than 64 MiB. StoreError and its kinds.

    Thread safety: any number of threads look up; one at a time changes it. No lock is held while the disk works.
    """

    def __init__(
        self,
        folder: str,
        *,
        rotation: Rotation | None = None,
        check_all: bool = False,
        machine: Machine | None = None,
    ) -> None:
        self._machine = machine or Machine()
        self._files = self._machine.files
        self._folder = folder.rstrip("/")
        self._rotation = rotation or Rotation()
        self._known = recover_files(self._files, self._folder, check_all=check_all)
        #: (path, log bytes that count) of the file that an append which failed was writing.
        self._unfinished: tuple[str, int] | None = None

    @property
    def files(self) -> tuple[RemoteIndexFile, ...]:
        """The files by number; entries are appended to the last one."""
        return self._known

    @property
    def first_offset(self) -> int | None:
        """First offset of the first entry; None for an empty index."""
        return self._known[0].first_offset if self._known else None

    @property
    def last_entry(self) -> RemoteLogIndexEntry | None:
        """The last entry; None for an empty index."""
        return self._known[-1].last if self._known else None

    @property
    def next_offset(self) -> int | None:
        """The offset behind the last entry; None for an empty index."""
        return None if self.last_entry is None else self.last_entry.last_offset + 1

    # -- looking up

    def find_entry(self, offset: int) -> RemoteLogIndexEntry | None:
        """Find the entry of the segment that holds an offset; None if there is none.

        Raises:
            CorruptIndexError: the files are damaged: open them with ``check_all``, and append the missing entries then.
            StoreError and its kinds.
        """

        def find(known: tuple[RemoteIndexFile, ...]) -> RemoteLogIndexEntry | None:
            found = _from(known, offset)[0].find_entry(self._files, offset) if known else None
            return found if found is not None and found.last_offset >= offset else None

        return self._looked_up(find)

    def find_entry_by_timestamp(self, timestamp_ms: int, *, start_offset: int = 0) -> RemoteLogIndexEntry | None:
        """Find the first entry that may have a record of this time or later; None if none has.

        Args:
            timestamp_ms: ms since 1970 UTC; records without a timestamp count as earlier than all.
            start_offset: Entries that end before it, or whose successor begins before it, do not count.

        Raises:
            See ``find_entry``.
        """

        def find(known: tuple[RemoteIndexFile, ...]) -> RemoteLogIndexEntry | None:
            for file in _from(known, start_offset):
                if file.newest_ms < timestamp_ms:
                    continue
                position = max(
                    file.find_time_position(self._files, timestamp_ms), file.find_position(self._files, start_offset)
                )
                for _, entry in file.iter_entries(self._files, position):
                    if entry.last_timestamp_ms >= timestamp_ms and entry.last_offset >= start_offset:
                        return entry
            return None

        return self._looked_up(find)

    def iter_entries(self, start_offset: int = 0) -> Iterator[RemoteLogIndexEntry]:
        """Iterate all entries that count at or behind an offset, in order, as of now.

        Raises:
            See ``find_entry``. ObjectNotFoundError: the index was cut meanwhile.
        """
        for file in _from(self._known, start_offset):
            position = file.find_position(self._files, start_offset)
            entries = (entry for _, entry in file.iter_entries(self._files, position))
            yield from (entry for entry in entries if entry.last_offset >= start_offset)

    def _looked_up(self, find: Callable[[tuple[RemoteIndexFile, ...]], Result]) -> Result:
        """Run a lookup again if files were cut or removed under it."""
        while True:
            known = self._known
            try:
                return find(known)
            except (CorruptIndexError, ObjectNotFoundError):
                if known is self._known:
                    raise

    # -- changing

    def append(self, entries: Iterable[RemoteLogIndexEntry]) -> None:
        """Add entries behind the last one. On return they survive a crash. Entries that the index has already are
        passed over.

        Args:
            entries: Their first offsets strictly rise.

        Raises:
            ValueError: an entry begins where, or before, the last one does, and is not in the index; nothing was added.
            StoreError and its kinds: some of the first entries were added; call again with all of them.
        """
        wanted = self._unknown(entries)
        self._settle()
        while wanted:
            file = self._known[-1] if self._known else None
            if file is None or self._is_full(file, wanted[0]):
                if file is not None:
                    self._close(file)
                wanted = self._begin(wanted)
            else:
                wanted = self._extend(file, wanted)

    def _unknown(self, entries: Iterable[RemoteLogIndexEntry]) -> list[RemoteLogIndexEntry]:
        wanted: list[RemoteLogIndexEntry] = []
        last = self._known[-1].last.first_offset if self._known else -1
        for entry in entries:
            if entry.first_offset > last:
                wanted.append(entry)
                last = entry.first_offset
            elif wanted or self._beginning_at(entry.first_offset) != entry:
                raise ValueError(
                    f"an entry from offset {entry.first_offset} behind one from {last}: cut the index there first"
                )
        return wanted

    def _beginning_at(self, offset: int) -> RemoteLogIndexEntry | None:
        found = self.find_entry(offset)
        return found if found is not None and found.first_offset == offset else None

    def _is_full(self, file: RemoteIndexFile, entry: RemoteLogIndexEntry) -> bool:
        age_ms_max = self._rotation.age_ms_max
        if age_ms_max is not None and self._machine.clock.time_ms() - file.began_ms >= age_ms_max:
            return True
        return not file.fits(entry, self._rotation.log_bytes_max)

    def _close(self, file: RemoteIndexFile) -> None:
        """Fsync all three files: from now on their ends are trusted."""
        for path, size_bytes in ((file.offset_path, file.offset_bytes), (file.time_path, file.time_bytes)):
            self._write(path, size_bytes, bytearray(), fsync=True)
        self._files.fsync_directory(self._folder)

    def _begin(self, entries: list[RemoteLogIndexEntry]) -> list[RemoteLogIndexEntry]:
        """Begin a new file with as many entries as it takes, and return the entries that are left."""
        first = entries[0]
        path = f"{self._folder}/{first.first_offset:020d}"
        file = RemoteIndexFile(
            path, first.first_offset, first.first_offset, first, -1, 0, 0, 0, self._machine.clock.time_ms()
        )
        return self._extend(file, entries)

    def _extend(self, file: RemoteIndexFile, entries: list[RemoteLogIndexEntry]) -> list[RemoteLogIndexEntry]:
        rows = IndexRows(file.base_offset, file.log_bytes, file.newest_ms)
        data, written = bytearray(), 0
        grown = file
        for entry in entries:
            if not grown.fits(entry, self._rotation.log_bytes_max):
                break
            rows.add(entry)
            data += entry.encode()
            written += 1
            grown = replace(grown, last=entry, log_bytes=rows.position)
        self._unfinished = (file.path, file.log_bytes)
        self._write(file.log_path, file.log_bytes, data, fsync=True)
        if not file.log_bytes:
            self._files.fsync_directory(self._folder)
        self._write(file.offset_path, file.offset_bytes, rows.offsets)
        self._write(file.time_path, file.time_bytes, rows.times)
        grown = replace(
            grown,
            newest_ms=rows.newest_ms,
            offset_bytes=file.offset_bytes + len(rows.offsets),
            time_bytes=file.time_bytes + len(rows.times),
        )
        self._known = (*(known for known in self._known if known.path != file.path), grown)
        self._unfinished = None
        return entries[written:]

    def _settle(self) -> None:
        """Remove the bytes of a failed append, so that after a restart they are not behind later entries."""
        if self._unfinished is not None:
            path, log_bytes = self._unfinished
            if log_bytes:
                shorten(self._files, path, log_bytes)
            else:
                remove(self._files, path)
            self._unfinished = None

    def _write(self, path: str, size_bytes: int, data: bytearray, *, fsync: bool = False) -> None:
        """Append behind the valid bytes of a file, over the bytes that a failed append may have left there."""
        with self._files.open_update(path) as opened:
            if opened.size_bytes < size_bytes:
                text = "the file is shorter than it was: somebody else writes to it"
                raise CorruptIndexError(
                    text, fault="TRUNCATED", expected=size_bytes, found=opened.size_bytes, where=path
                )
            if opened.size_bytes > size_bytes:
                opened.truncate(size_bytes)
            opened.append(data)
            if fsync:
                opened.fsync()

    def truncate_from_end(self, offset: int) -> None:
        """Remove the entries that begin at or behind an offset, as when the log is cut there; 0 removes all.

        An entry that begins before the offset stays, and its last offsets count until another entry begins there.

        Raises:
            See ``find_entry``; called again, it goes on.
        """
        self._settle()
        while self._known and self._known[-1].first_offset >= offset:
            before = self._known
            self._change(before[:-1], partial(remove, self._files, before[-1].path))
        if self._known and self._known[-1].last.first_offset >= offset:
            *others, file = self._known
            cut = self._cut(file, offset)
            self._change((*others, cut), partial(shorten, self._files, cut.path, cut.log_bytes))

    def _change(self, known: tuple[RemoteIndexFile, ...], work: Callable[[], None]) -> None:
        """Publish the new files to readers first, since those exist; on an error the old ones are back, to be tried
        again.
        """
        before, self._known = self._known, known
        try:
            work()
        except BaseException:
            self._known = before
            raise

    def _cut(self, file: RemoteIndexFile, offset: int) -> RemoteIndexFile:
        """Return a file without its entries from an offset on; it has such entries and others."""
        rows = self._files.read_whole(file.offset_path, limit_bytes=FILE_BYTES_MAX)[: file.offset_bytes]
        offsets, positions = OffsetIndex(rows, file.base_offset).columns()
        kept = int(np.searchsorted(offsets, offset))
        log_bytes = int(positions[kept])
        time_rows = self._files.read_whole(file.time_path, limit_bytes=FILE_BYTES_MAX)[: file.time_bytes]
        times, places = TimeIndex(time_rows, 0).columns()
        kept_times = int(np.searchsorted(places, log_bytes))
        return replace(
            file,
            last=file.read_entry(self._files, int(positions[kept - 1])),
            newest_ms=int(times[kept_times - 1]) if kept_times else -1,
            log_bytes=log_bytes,
            offset_bytes=kept * OFFSET_ENTRY_BYTES,
            time_bytes=kept_times * TIME_ENTRY_BYTES,
        )

    def remove_before(self, log_start_offset: int) -> None:
        """Remove the files all of whose entries lie before an offset; the last file stays.

        Raises:
            StoreError and its kinds; called again, it goes on.
        """
        while len(self._known) > 1 and self._known[1].first_offset <= log_start_offset:
            before = self._known
            self._change(before[1:], partial(remove, self._files, before[0].path))


def append_segments(
    index: RemoteLogIndex,
    segments: Iterable[RemoteLogSegmentMetadata],
    fetch: Callable[[RemoteLogSegmentMetadata], Iterable[RemoteLogIndexEntry]],
) -> list[RemoteLogSegmentMetadata]:
    """Append the entries that were stored beside segments and are missing in a follower's index.

    Args:
        index: The follower's.
        segments: The partition's segments by start offset; those that do not begin behind the last entry are passed
            over.
        fetch: Fetches the entries of one segment, as ``TieredStorageManager.fetch_log_index`` does.

    Returns:
        The segments without stored entries: they were copied without ``log.index.object.enabled``, or are gone.

    Raises:
        ValueError: the segments are not in order. The errors of ``fetch`` but FileNotFoundError, and StoreError: the
            entries of the segments before were added; call again.
    """
    lacking: list[RemoteLogSegmentMetadata] = []
    gathered: list[RemoteLogIndexEntry] = []
    last = index.last_entry
    for metadata in segments:
        if last is not None and metadata.start_offset <= last.first_offset:
            continue
        try:
            gathered += fetch(metadata)
        except FileNotFoundError:
            lacking.append(metadata)
        if len(gathered) >= _GATHERED_MAX:
            index.append(gathered)
            gathered = []
    index.append(gathered)
    return lacking


def _from(known: tuple[RemoteIndexFile, ...], offset: int) -> tuple[RemoteIndexFile, ...]:
    """Return the file that holds the last entry at or below an offset, and all files behind it; all files
    if none does.
    """
    return known[max(0, bisect_right([file.first_offset for file in known], offset) - 1) :]


_log = logging.getLogger(__name__)

_SUFFIXES: Final = "|".join(re.escape(suffix) for suffix in (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX))
_NAME: Final = re.compile(rf"(?P<digits>[0-9]{{1,255}})(?P<suffix>{_SUFFIXES})")
_INT64_MAX: Final = 2**63 - 1


def recover_files(files: Files, folder: str, *, check_all: bool) -> tuple[RemoteIndexFile, ...]:
    """Return the valid files by number; the others are removed.

    Args:
        files: The file system.
        folder: The partition's folder, without "/" at its end. Files with other names are left alone.
        check_all: Check every entry of every file, instead of those of the last file and the ends of the others.

    Raises:
        CorruptIndexError: two files of one number. SizeLimitError: a file is too large. StoreError and its kinds.
    """
    listed = _list(files, folder)
    sound: list[RemoteIndexFile] = []
    for at, number in enumerate(listed.numbers):
        look = scan_file if check_all or at == len(listed.numbers) - 1 else open_file
        found = look(files, number.path, number.base_offset, modified_ms=number.modified_ms)
        file, fault = found.file, found.fault
        if file is not None and sound and file.first_offset <= sound[-1].last.first_offset:
            text = f"begins at {file.first_offset}, and the file before it goes on to {sound[-1].last.first_offset}"
            file, fault = None, CorruptIndexError(text, fault="BAD_ORDER", where=number.path + LOG_SUFFIX)
        if file is not None:
            sound.append(file)
        if file is None or fault is not None:
            _end_at(files, number.path, Found(file, fault), [each.path for each in listed.numbers[at + 1 :]])
            break
    for path in listed.strays:
        files.remove(path)
    return tuple(sound)


def _end_at(files: Files, path: str, found: Found, later: list[str]) -> None:
    """Remove the files behind a number, the last ones first, so that a crash in between leaves no hole."""
    if found.fault is not None:
        _log.warning(
            "%s; the remote log index ends there, and %d later files of it are removed", found.fault, len(later)
        )
    for each in reversed(later):
        remove(files, each)
    if found.file is None:
        remove(files, path)
    else:
        shorten(files, path, found.file.log_bytes)


@dataclass(frozen=True, slots=True)
class _Number:
    """The number of a remote log index as its name spells it; ``path`` is without suffix."""

    base_offset: int
    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class _Listed:
    """All remote log indexes by number, and index files that belong to none."""

    numbers: list[_Number]
    strays: list[str]


def _list(files: Files, folder: str) -> _Listed:
    """List a folder's index files. Numbers may have any number of digits: ours have 20, KIP-405's page shows 13."""
    numbers: dict[int, _Number] = {}
    others: list[tuple[str, str]] = []
    for info in files.iter_directory(folder):
        name = _NAME.fullmatch(info.name)
        if name is None or info.is_directory or int(name["digits"]) > _INT64_MAX:
            continue
        path = f"{folder}/{name['digits']}"
        if name["suffix"] != LOG_SUFFIX:
            others.append((path, name["suffix"]))
            continue
        number = _Number(int(name["digits"]), path, info.modified_ms)
        if numbers.setdefault(number.base_offset, number) is not number:
            text = f"{numbers[number.base_offset].path} and {path} are one number: one of them must go"
            raise CorruptIndexError(text, fault="BAD_ORDER", where=path + LOG_SUFFIX)
    paths = {number.path for number in numbers.values()}
    strays = [path + suffix for path, suffix in others if path not in paths]
    return _Listed([numbers[base] for base in sorted(numbers)], strays)
