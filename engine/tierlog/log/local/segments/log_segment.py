"""One segment: a ``.log`` and its indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.appends import IndexTail
from tierlog._native.batches import BatchSearch, FoundBatch
from tierlog.errors import CorruptRecordError, StoreError
from tierlog.log.formats.segment_files import SegmentFileKind, segment_file_name
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.segments.batch_reads import (
    TimestampAndOffset as TimestampAndOffset,  # noqa: PLC0414 - one of a segment's answers
)
from tierlog.log.local.segments.batch_reads import find_record_by_timestamp, search_batches
from tierlog.log.local.segments.index_file import OffsetIndexFile, TimeIndexFile
from tierlog.log.local.segments.lazy_file import LazyFile
from tierlog.log.local.segments.log_slice import LogSlice
from tierlog.log.local.segments.transaction_index_file import TransactionIndexFile
from tierlog.runtime.machine import Machine

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
Result = TypeVar("Result")


class BatchPosition(NamedTuple):
    """Where a batch lies in its segment; ``base_offset`` and ``last_offset`` as its header has them."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class SegmentRead(NamedTuple):
    """What a segment has for a fetch.

    Attributes:
        records: The bytes; they begin with a whole batch's first byte and may end inside one.
        first_offset: Base offset of the first batch, as its header has it.
        first_entry_incomplete: Whether the first batch does not fit into what was asked for.
    """

    records: LogSlice
    first_offset: int
    first_entry_incomplete: bool


class LogSegment:
    """A ``.log`` that begins at ``base_offset``, with its offset, time and transaction index.

    One thread appends, cuts, flushes or renames; any number read meanwhile. After a StoreError of a call that changes
    files, nobody may go on with the segment but by opening it anew: what is in the files is not known.

    Attributes:
        base_offset: The segment's.
        created_ms: When it was created or opened, or became empty, by the machine's clock.
    """

    base_offset: int
    created_ms: int

    def __init__(
        self, machine: Machine, folder: str, base_offset: int, *, config: LogConfig, suffix: str, size_bytes: int | None
    ) -> None:
        """Of ``create`` (without a size) and ``open``."""
        self.base_offset = base_offset
        self.created_ms = machine.clock.time_ms()
        self._machine = machine
        self._folder = folder
        self._suffix = suffix
        self._config = config
        is_new = size_bytes is None
        self._size_bytes = size_bytes or 0
        self._log = LazyFile(machine, self._path(SegmentFileKind.LOG))
        path = self._path(SegmentFileKind.OFFSET_INDEX)
        self._offsets = OffsetIndexFile(machine, path, base_offset=base_offset, is_new=is_new)
        path = self._path(SegmentFileKind.TIME_INDEX)
        self._times = TimeIndexFile(machine, path, base_offset=base_offset, is_new=is_new)
        path = self._path(SegmentFileKind.TRANSACTION_INDEX)
        self._aborted = TransactionIndexFile(machine, path, base_offset=base_offset, is_new=is_new)
        # What an append goes by; None until the first one after opening, closing or cutting.
        self._tail: IndexTail | None = None
        # Kafka's rollingBasedTimestamp.
        self._first_timestamp_ms: int | None = None
        # Counts the cuts: what a reader saw of a log that was cut meanwhile may be anything.
        self._generation = 0

    # ---- making one

    @classmethod
    def create(cls, machine: Machine, folder: str, base_offset: int, *, config: LogConfig, suffix: str = "") -> Self:
        """A new empty segment. The names are not durable before ``flush`` and an fsync of the folder.

        Index files that lie there are emptied: without their log they are of no segment.

        Raises:
            StoreError: a file cannot be made; or a ``.log`` of this name, that is not empty, is there.
        """
        segment = cls(machine, folder, base_offset, config=config, suffix=suffix, size_bytes=None)
        log = segment._log.made()
        if log.size_bytes:
            raise StoreError(f"{segment.log_path}: is there already, with {log.size_bytes} bytes")
        segment.begin_rebuild()
        return segment

    @classmethod
    def open(cls, machine: Machine, folder: str, base_offset: int, *, config: LogConfig, suffix: str = "") -> Self:
        """A segment that is there. No file is opened before it is needed, and no index read; trailing zeros of
        preallocation do not count. A missing time or transaction index is an empty one.

        Raises:
            ObjectNotFoundError: there is no ``.log``. StoreError.
        """
        path = f"{folder}/{segment_file_name(base_offset, SegmentFileKind.LOG)}{suffix}"
        found = machine.files.stat(path)
        if found.is_directory:
            raise StoreError(f"{path}: not a regular file")
        return cls(machine, folder, base_offset, config=config, suffix=suffix, size_bytes=found.size_bytes)

    def _path(self, kind: SegmentFileKind) -> str:
        return f"{self._folder}/{segment_file_name(self.base_offset, kind)}{self._suffix}"

    # ---- what is known

    @property
    def log_path(self) -> str:
        return self._log.path

    @property
    def offset_index_path(self) -> str:
        return self._offsets.file.path

    @property
    def time_index_path(self) -> str:
        return self._times.file.path

    @property
    def transaction_index_path(self) -> str:
        """Of the transaction index, which need not exist."""
        return self._aborted.file.path

    @property
    def size_bytes(self) -> int:
        """Of the ``.log``."""
        return self._size_bytes

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp in the segment; its file's time of change if there is none (Kafka largestTimestamp).

        Raises:
            CorruptIndexError: the time index's last entry. StoreError.
        """
        known = self.largest_record_timestamp
        return self._machine.files.stat(self.log_path).modified_ms if known is None else known[0]

    @property
    def largest_record_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, last offset of the batch that has it); None if there is none. Raises as the one above."""
        tail = self._tail
        known = self._times.last_entry if tail is None else tail.greatest_timestamp
        return known if known[0] >= 0 else None

    @property
    def is_index_full(self) -> bool:
        """Whether an index has no room for another entry: the segment has to be rolled. For the thread that appends."""
        return (self._tail or self._resumed_tail()).is_full

    def read_next_offset(self) -> int:
        """Behind the last offset in the segment; ``base_offset`` if it is empty. Reads from the last index entry on.

        Raises:
            CorruptRecordError: no batch stands where one must; a torn one at the end does not count.
            CorruptIndexError. StoreError.
        """

        def last_offset() -> int | None:
            position = self._offsets.last_entry[1]
            last = self._passed(position).passed_last_offset
            # The index says more than the log has: a crash tore the log.
            return self._passed(0).passed_last_offset if last is None and position else last

        last = self._unless_cut(last_offset)
        return self.base_offset if last is None else last + 1

    def waited_ms(self, now_ms: int, append_timestamp_ms: int) -> int:
        """How long the segment has been written to, for ``segment.ms`` (Kafka timeWaitedForRoll)."""
        if self._first_timestamp_ms is None:
            first = self._find(_INT64_MIN)
            if first is not None:
                self._first_timestamp_ms = first.max_timestamp_ms
        if self._first_timestamp_ms is not None and self._first_timestamp_ms >= 0:
            return append_timestamp_ms - self._first_timestamp_ms
        return now_ms - self.created_ms

    # ---- writing

    def _new_tail(self) -> IndexTail:
        room = self._config.segment_index_bytes
        return IndexTail(
            self.base_offset,
            interval_bytes=self._config.index_interval_bytes,
            offset_entries_max=room // self._offsets.entry.size,
            time_entries_max=room // self._times.entry.size,
        )

    def _resumed_tail(self) -> IndexTail:
        """The tail behind the entries that the indexes have, as Kafka goes on with a segment that it opens."""
        tail = self._new_tail()
        last_time, last_time_offset = self._times.last_entry
        tail.resume(
            offset_entries=self._offsets.entries,
            last_offset=self._offsets.last_entry[0],
            time_entries=self._times.entries,
            last_time=last_time,
            last_time_offset=last_time_offset,
        )
        self._tail = tail
        return tail

    def append(self, data: Buffer, *, last_offset: int, max_timestamp_ms: int) -> None:
        """Append one batch, whose offset lies behind all others, with the index entries that are due.

        Raises:
            CorruptRecordError: the offset does not fit the segment; nothing has changed. CorruptIndexError: of a
                segment that was opened. StoreError.
        """
        tail = self._tail or self._resumed_tail()
        position, size_bytes = self._size_bytes, memoryview(data).nbytes
        offsets, times = tail.add_batch(
            last_offset=last_offset, max_timestamp=max_timestamp_ms, position=position, size_bytes=size_bytes
        )
        (self._log.file or self._log.opened()).append(data)
        self._size_bytes = position + size_bytes  # before the indexes: no entry may point behind it
        if offsets:
            self._offsets.append(offsets)
        if times:
            self._times.append(times)

    def append_run(self, data: Buffer, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Append several batches that lie in a row: ``columns`` as ``scan_batches`` has them. Raises as ``append``."""
        tail = self._tail or self._resumed_tail()
        position, size_bytes = self._size_bytes, memoryview(data).nbytes
        if int(columns["size_bytes"].sum()) != size_bytes:
            raise ValueError(f"{size_bytes} bytes of data for batches of {columns['size_bytes'].sum()} bytes")
        offsets, times = tail.add(columns, position=position)
        self._log.opened().append(data)
        self._size_bytes = position + size_bytes
        self._offsets.append(offsets)
        self._times.append(times)

    def append_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Add entries to the transaction index, which is made with the first.

        Raises:
            CorruptIndexError: the markers' offsets do not rise. StoreError.
        """
        self._aborted.append(aborted)

    def write_out(self) -> None:
        """Write the index entries that are in memory alone to their files. By the thread that appends."""
        self._offsets.write_out()
        self._times.write_out()

    def fsync(self) -> None:
        """Fsync the log, then the offset, time and transaction index as they are. Raises StoreError: never try again.

        Any thread, also while another appends.
        """
        self._log.fsync()
        self._offsets.fsync()
        self._times.fsync()
        self._aborted.fsync()

    def flush(self) -> None:
        """``write_out`` and ``fsync``."""
        self.write_out()
        self.fsync()

    def on_become_inactive(self) -> None:
        """Write the last time entry and all index entries that are still in memory: the segment is closed now."""
        self._times.append((self._tail or self._resumed_tail()).close())
        self._tail = None
        self._offsets.become_inactive()
        self._times.become_inactive()

    def truncate_to(self, offset: int) -> int:
        """Cut the segment in front of the first batch that ends at or behind an offset; returns the bytes cut off.

        Index entries at or behind the offset go too. The segment becomes one that can be appended to.
        """
        found = self.find_batch(offset)
        greatest = self.largest_record_timestamp
        # The indexes first: an entry may be missing, and none may point behind the end.
        self._tail = None
        self._offsets.truncate_to(offset)
        self._times.truncate_to(offset)
        self._aborted.truncate_to(offset)
        cut_bytes = 0 if found is None else self._size_bytes - found.position
        if found is not None:
            self.truncate_log(found.position)
        if self._size_bytes == 0:
            self.created_ms = self._machine.clock.time_ms()
        tail = self._resumed_tail()
        if greatest is not None:
            _, last_time_offset = self._times.last_entry
            timestamp, last_offset = self._passed(self._offsets.find_position(last_time_offset)).greatest_timestamp
            tail.note_timestamp(max_timestamp=timestamp, last_offset=last_offset)
        return cut_bytes

    # ---- rebuilding, for recovery

    def begin_rebuild(self) -> None:
        """Forget all index entries, in memory and on disk."""
        self._offsets.reset()
        self._times.reset()
        self._aborted.reset()
        self._tail = self._new_tail()

    def index_batches(self, columns: Mapping[str, NDArray[np.generic]], *, position: int) -> None:
        """Take batches that are in the log, from a position on: only indexes are written."""
        tail = self._tail or self._resumed_tail()
        offsets, times = tail.add(columns, position=position)
        self._offsets.append(offsets)
        self._times.append(times)

    def truncate_log(self, size_bytes: int) -> None:
        """Cut the ``.log`` to a size; the indexes stay."""
        if size_bytes >= self._size_bytes:
            return
        log = self._log.opened()
        self._generation += 1
        self._size_bytes = size_bytes
        log.truncate(size_bytes)
        # Once more before anything is appended there: who began in between saw both the old and the new bytes.
        self._generation += 1
        if size_bytes == 0:
            self._first_timestamp_ms = None

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill a buffer from the ``.log``; returns the bytes read, fewer at its end alone."""
        return self._log.opened().read_into(buffer, position=position)

    def check_transaction_index(self) -> None:
        """Raises CorruptIndexError where the transaction index is not sound."""
        self._aborted.check()

    # ---- reading

    def _unless_cut(self, read: Callable[[], Result]) -> Result:
        """The result of a read that no cut came into: else what it saw is no file that ever was, and it is repeated."""
        while True:
            generation = self._generation
            try:
                result = read()
            except CorruptRecordError:
                if generation == self._generation:
                    raise
            else:
                if generation == self._generation:
                    return result

    def _search(self, position: int, least_last_offset: int, least_max_timestamp: int = _INT64_MIN) -> BatchSearch:
        search = BatchSearch(
            position=position,
            end_position=self._size_bytes,
            least_last_offset=least_last_offset,
            least_max_timestamp=least_max_timestamp,
        )
        return search_batches(search, self._log.file or self._log.opened(), path=self._log.path)

    def _passed(self, position: int) -> BatchSearch:
        """A search that passed over all batches from a position on."""
        return self._search(position, _INT64_MAX, _INT64_MAX)

    def _find(self, offset: int) -> FoundBatch | None:
        return self._unless_cut(lambda: self._search(self._offsets.find_position(offset), offset).found)

    def find_batch(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is at or behind an offset (Kafka translateOffset); None if there is none.

        Raises:
            CorruptRecordError: no batch stands where one must. CorruptIndexError. StoreError.
        """
        found = self._find(offset)
        return None if found is None else BatchPosition(*found[:5])

    def read(
        self, start_offset: int, *, max_bytes: int, end_position: int, min_one_message: bool
    ) -> SegmentRead | None:
        """The bytes from the batch that holds an offset on; None if no batch of the segment reaches it.

        Args:
            start_offset: The one asked for.
            max_bytes: At most so many, but with ``min_one_message`` the whole first batch.
            end_position: No byte at or behind it, whatever else.
            min_one_message: Whether a batch above ``max_bytes`` is handed out as a whole.

        Raises:
            ValueError: max_bytes is negative. Else as ``find_batch``.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}")
        first = self._find(start_offset)
        if first is None:
            return None
        most = max(max_bytes, first.size_bytes) if min_one_message else max_bytes
        size_bytes = max(0, min(most, end_position - first.position, self._size_bytes - first.position))
        records = LogSlice(self._log.opened(), self._log.path, first.position, size_bytes)
        return SegmentRead(records, first.base_offset, most < first.size_bytes)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        """The first record at or behind an offset whose timestamp is at or above one (``leader_epoch`` of its batch).

        Raises:
            CorruptRecordError: a batch that has to be looked into is damaged. SizeLimitError: its content is above
                ``max_decompressed_message_bytes``. Else as ``find_batch``.
        """

        def find() -> TimestampAndOffset | None:
            from_offset = max(self._times.find_offset(timestamp_ms), starting_offset)
            position = self._offsets.find_position(from_offset)
            while (batch := self._search(position, starting_offset, timestamp_ms).found) is not None:
                record = find_record_by_timestamp(
                    batch,
                    self._log.opened(),
                    path=self._log.path,
                    timestamp_ms=timestamp_ms,
                    starting_offset=starting_offset,
                    decompressed_limit=self._config.max_decompressed_message_bytes,
                )
                if record is not None:
                    return record
                position = batch.position + batch.size_bytes
            return None

        return self._unless_cut(find)

    def fetch_upper_bound_offset(self, *, position: int, size_bytes: int) -> int | None:
        """Offset of the first index entry at or behind position + size; None if the index has none."""
        return self._offsets.find_upper_bound(position + size_bytes)

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        """((producer id, first offset, last offset) of aborted transactions in a range, whether no later segment can
        hold more).

        Raises:
            CorruptIndexError: an entry of an unknown version. LogTruncatedError: truncated meanwhile. StoreError.
        """
        return self._aborted.collect(fetch_offset=fetch_offset, upper_bound_offset=upper_bound_offset)

    # ---- leaving

    def _files(self) -> tuple[tuple[SegmentFileKind, LazyFile], ...]:
        """The log first: recovery deletes an index without its log, and would rebuild those of a log without any. A
        segment that was to go is gone, or whole, after a crash.
        """
        return (
            (SegmentFileKind.LOG, self._log),
            (SegmentFileKind.OFFSET_INDEX, self._offsets.file),
            (SegmentFileKind.TIME_INDEX, self._times.file),
            (SegmentFileKind.TRANSACTION_INDEX, self._aborted.file),
        )

    def change_suffix(self, suffix: str) -> None:
        """Rename all files (".deleted", ".swap", "" …), the log first. Readers go on. The folder is not fsynced."""
        self._suffix = suffix
        for kind, file in self._files():
            file.rename_to(self._path(kind))

    def move_to(self, folder: str) -> None:
        """The folder was renamed: the files are in another one now."""
        self._folder = folder
        for kind, file in self._files():
            file.move_to(self._path(kind))

    def delete_files(self) -> None:
        """Remove the files, the log first; readers that hold a slice go on. The folder is not fsynced."""
        for _, file in self._files():
            file.remove()

    def close(self) -> None:
        """Let go of the files; nothing is written. Readers that hold a slice go on. Idempotent."""
        for _, file in self._files():
            file.close()
