"""The transaction index of one segment as a file that grows; most segments have none.

Source: Kafka TransactionIndex.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from tierlog._native.indexes import check_transaction_index, collect_aborted
from tierlog.errors import CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.segment_indexes import TRANSACTION_ENTRY_BYTES
from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.log.local.log_folder import LazyFile, LogFolder
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.runtime.machine import Machine

_ENTRY: Final = struct.Struct(">hqqqq")
_ENTRIES_READ_AT_ONCE: Final = 1920


class TransactionIndexFile:
    """Aborted transactions by their markers' offsets, ascending.

    One thread at a time changes the index; any number read meanwhile. An entry goes into the file at once: there are
    few, and readers of committed records need each.
    """

    def __init__(
        self, machine: Machine, folder: LogFolder, name: str, *, base_offset: int, is_new: bool = False
    ) -> None:
        self._files = machine.files
        self._folder = folder
        self.file = LazyFile(machine, folder, name)
        self._base_offset = base_offset
        self._count = 0 if is_new else -1
        self._last_offset: int | None = None
        self._changes, self._synced_changes = int(not is_new), 0
        self._names = self._synced_names = 0

    def _known_count(self) -> int:
        """Return the number of whole entries; bytes behind them do not count."""
        if self._count < 0:
            file = self.file.find()
            self._count = 0 if file is None else file.size_bytes // TRANSACTION_ENTRY_BYTES
        return self._count

    def _pieces(self) -> Iterator[tuple[int, bytearray]]:
        """(index of the first entry, entries), a bounded number at a time."""
        count = self._known_count()
        for first in range(0, count, _ENTRIES_READ_AT_ONCE):
            data = bytearray(min(_ENTRIES_READ_AT_ONCE, count - first) * TRANSACTION_ENTRY_BYTES)
            file = self.file.find()
            if file is None or file.read_into(data, position=first * TRANSACTION_ENTRY_BYTES) < len(data):
                raise LogTruncatedError(f"{self.file.path}: truncated, while it was read")
            yield first, data

    def append(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Add entries; the file is made with the first.

        Raises:
            CorruptIndexError: the markers' offsets do not rise, or a transaction ends before it begins. StoreError.
        """
        if not aborted:
            return
        count, last = self._known_count(), self._last()
        for entry in aborted:
            if entry.last_offset <= last or entry.first_offset > entry.last_offset:
                text = f"transaction {entry.first_offset} … {entry.last_offset} cannot follow one that ends at {last}"
                raise CorruptIndexError(text, where=self.file.path)
            last = entry.last_offset
        data = b"".join(
            _ENTRY.pack(0, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in aborted
        )
        is_new = self.file.find() is None
        file = self.file.made()
        self._names += is_new  # not before: an fsync of another thread in between would take the name for synced
        if file.size_bytes != count * TRANSACTION_ENTRY_BYTES:
            file.truncate(count * TRANSACTION_ENTRY_BYTES)  # a torn entry: what follows it would never be read
        file.append(data)
        self._changes += 1
        self._last_offset = last
        self._count = count + len(aborted)

    def _last(self) -> int:
        """Return the offset of the last marker, -1 if there is none."""
        if self._last_offset is None:
            count, data = self._known_count(), bytearray(TRANSACTION_ENTRY_BYTES)
            if count:
                self.file.opened().read_into(data, position=(count - 1) * TRANSACTION_ENTRY_BYTES)
            self._last_offset = _ENTRY.unpack(data)[3] if count else -1
        return self._last_offset

    def collect(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        """((producer id, first offset, last offset) of what touches a range, whether no later segment can hold more).

        Raises:
            CorruptIndexError: an entry of an unknown version. LogTruncatedError. StoreError.
        """
        found: list[tuple[int, int, int]] = []
        if self._count:
            for _, data in self._pieces():
                entries, is_complete = collect_aborted(data, fetch_offset, upper_bound_offset)
                found.extend(entries.tolist())
                if is_complete:
                    return found, True
        return found, False

    def collect_entries(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The entries that ``collect`` finds, with their last stable offsets. Raises as it does."""
        wanted, is_complete = self.collect(fetch_offset=fetch_offset, upper_bound_offset=upper_bound_offset)
        if not wanted:
            return [], is_complete
        known = set(wanted)
        rows = (AbortedTransaction._make(row[1:]) for _, data in self._pieces() for row in _ENTRY.iter_unpack(data))
        return [row for row in rows if row[:3] in known], is_complete

    def check(self) -> None:
        """Raise CorruptIndexError where an entry's version, order or range is wrong; a torn one does not count."""
        last = -1
        for first, data in self._pieces():
            try:
                check_transaction_index(data, self._base_offset)
            except CorruptIndexError as error:
                error.position += first * TRANSACTION_ENTRY_BYTES
                raise error.located(self.file.path) from None
            if _ENTRY.unpack_from(data)[3] <= last:
                raise CorruptIndexError("offsets fall", position=first * TRANSACTION_ENTRY_BYTES, where=self.file.path)
            last = _ENTRY.unpack_from(data, len(data) - TRANSACTION_ENTRY_BYTES)[3]

    def truncate_to(self, offset: int) -> None:
        """Remove the entries from the first on whose marker lies at or behind an offset."""
        kept = 0
        for first, data in self._pieces():
            last_offsets = [row[3] for row in _ENTRY.iter_unpack(data)]
            kept = first + next((at for at, last in enumerate(last_offsets) if last >= offset), len(last_offsets))
            if kept < first + len(last_offsets):
                break
        self._cut(kept)

    def reset(self) -> None:
        """Remove all entries."""
        self._cut(0)

    def unmake(self) -> None:
        """Remove the file: for a copy of the segment an empty one is not none."""
        self._count, self._last_offset = 0, None
        self.file.unmake()

    def _cut(self, count: int) -> None:
        self._count, self._last_offset = count, None
        file = self.file.find()
        if file is not None and file.size_bytes > count * TRANSACTION_ENTRY_BYTES:
            file.truncate(count * TRANSACTION_ENTRY_BYTES)
            self._changes += 1

    def fsync(self) -> None:
        """Fsync the file, if there is one and it may have changed since the last time, and the folder that has got its
        name since then: it is made long after the segment. Any thread.
        """
        changes, names = self._changes, self._names
        if self._synced_changes != changes:
            with contextlib.suppress(ObjectNotFoundError):
                self.file.fsync()
            if self._synced_names != names:
                self._files.fsync_directory(self._folder.path)
                self._synced_names = names
            self._synced_changes = changes  # not before: a second thread would take it for done
