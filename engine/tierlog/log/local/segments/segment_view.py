"""A segment as its readers see it: a ``.log`` and its indexes, and the batches, records and bytes found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from typing_extensions import Buffer

from tierlog._native.appends import SegmentEnd
from tierlog._native.batches import BatchSearch, FoundBatch
from tierlog._native.decoding import RecordDecoder
from tierlog.arguments import INT64_MAX, INT64_MIN, require_int64
from tierlog.errors import CorruptDataError, CorruptRecordError
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.formats.segment_files import SegmentFileKind, segment_file_name
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.log.local.log_folder import LazyFile, LogFolder
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.segments.index_file import OffsetIndexFile, TimeIndexFile
from tierlog.log.local.segments.transaction_index_file import TransactionIndexFile
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.files import UpdatableFile


class LogCuts:
    """The number of a ``.log``'s cuts, and its least size. Its segment's writer counts, any thread reads.

    Attributes:
        count: Two of each cut: one before the file becomes shorter, one before anything is appended there.
        least_size_bytes: The smallest size that the file was ever cut to.
    """

    __slots__ = ("count", "least_size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.least_size_bytes = 2**63 - 1

    def note(self, size_bytes: int) -> None:
        """Count a cut, before it is made."""
        self.least_size_bytes = min(self.least_size_bytes, size_bytes)
        self.count += 1


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes [position, position + size_bytes) of a ``.log``.

    The file stays open as long as a reader holds the slice, whatever the log does meanwhile: it may have renamed or
    removed the segment, or been closed. ``file.descriptor`` is what ``os.sendfile`` takes; ``check`` afterwards
    verifies that these were the bytes.

    Thread safety: any number of threads.
    """

    file: UpdatableFile
    path: str
    position: int
    size_bytes: int
    cuts: LogCuts
    cuts_before: int
    """``cuts.count`` before the bytes were looked for."""

    def read(self) -> memoryview:
        """Read the bytes, in memory of their own.

        Raises:
            LogTruncatedError: the log was truncated meanwhile: they went, or others may stand there. StoreError.
        """
        buffer = new_buffer(self.size_bytes)
        self.read_into(buffer)
        return buffer

    def read_into(self, buffer: Buffer) -> None:
        """Fill a buffer of ``size_bytes``. Raises as ``read``: then any byte of it may have been written."""
        count = self.file.read_into(buffer, position=self.position)
        self.check()
        if count < self.size_bytes:
            raise LogTruncatedError(f"{self.path}: truncated to {self.position + count} bytes, while it was read")

    def check(self) -> None:
        """Check that the log was not cut. Raises LogTruncatedError: it was, and the bytes read may be of
        other batches.
        """
        if self.cuts.count != self.cuts_before and self.cuts.least_size_bytes < self.position + self.size_bytes:
            raise LogTruncatedError(f"{self.path}: truncated since bytes from {self.position} on were handed out")


class BatchPosition(NamedTuple):
    """A batch's place in its segment; ``base_offset`` and ``last_offset`` as its header has them."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp; -1 where there is none; ``leader_epoch`` None if it is not known."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


#: Of one read of many batches: it stays in a processor's cache until its checksums are done.
WINDOW_BYTES: Final = 1 << 20
_RECORDS_PIECE_BYTES: Final = 1 << 20


def search_batches(search: BatchSearch, file: UpdatableFile, *, path: str) -> BatchSearch:
    """Run a search over a log; the same search, done.

    Raises:
        CorruptRecordError: no batch stands where one must, or the log ends before the search does. StoreError.
    """
    try:
        search.run(file.growing)
    except CorruptRecordError as error:
        raise error.located(path) from None
    return search


#: Fills a buffer from a position of a log on; returns the bytes read, fewer at the log's end alone.
ReadInto = Callable[[Buffer, int], int]


def find_record_by_timestamp(
    batch: FoundBatch,
    read_into: ReadInto,
    *,
    path: str,
    timestamp_ms: int,
    starting_offset: int,
    decompressed_limit: int,
    end_offset_exclusive: int = INT64_MAX,
) -> TimestampAndOffset | None:
    """Find the first record of a batch at or behind an offset, and below another one, whose timestamp is at or above
    one; control records count.

    Raises:
        CorruptRecordError: the batch is damaged, or no longer there. SizeLimitError: its content is above the limit.
            StoreError.
    """
    decoder = RecordDecoder(
        ("offset", "timestamp"),
        base_position=batch.position,
        from_offset=starting_offset,
        to_offset_exclusive=end_offset_exclusive,
        from_timestamp_ms=timestamp_ms,
        control_records=True,
        decompressed_limit=decompressed_limit,
    )
    end_position = batch.position + batch.size_bytes
    try:
        for position in range(batch.position, end_position, _RECORDS_PIECE_BYTES):
            piece = memoryview(bytearray(min(_RECORDS_PIECE_BYTES, end_position - position)))
            count = read_into(piece, position)
            for rows in decoder.feed(piece[:count]):
                return _first_row(rows, batch)
        for rows in decoder.finish():
            return _first_row(rows, batch)
    except CorruptRecordError as error:
        raise error.located(path) from None
    return None


def _first_row(rows: pa.RecordBatch, batch: FoundBatch) -> TimestampAndOffset:
    timestamp_ms, offset = (rows.column(name)[0] for name in ("timestamp", "offset"))
    epoch = batch.leader_epoch
    return TimestampAndOffset(timestamp_ms.value, offset.as_py(), epoch if epoch >= 0 else None)


Result = TypeVar("Result")


class SegmentView:
    """The half of a LogSegment that changes nothing. Any number of threads.

    Attributes:
        base_offset: The segment's.
        created_ms: When it was created or opened, or became empty, by the machine's clock.
        end: Its end, and the state of appends: for the log that appends.
    """

    base_offset: int
    created_ms: int
    end: SegmentEnd

    def __init__(
        self,
        machine: Machine,
        folder: LogFolder | str,
        base_offset: int,
        *,
        config: LogConfig,
        suffix: str,
        size_bytes: int | None,
    ) -> None:
        """A segment that is there, or a new one: without a size. A folder's path alone is that of no living log."""
        self.base_offset = base_offset
        self.created_ms = machine.clock.time_ms()
        self._machine = machine
        self._suffix = suffix
        self._config = config
        is_new = size_bytes is None
        place = folder if isinstance(folder, LogFolder) else LogFolder(machine, folder)
        stem = f"{base_offset:020d}"
        self._log = LazyFile(machine, place, f"{stem}.log{suffix}")
        name = f"{stem}.index{suffix}"
        self._offsets = OffsetIndexFile(machine, place, name, base_offset=base_offset, is_new=is_new)
        name = f"{stem}.timeindex{suffix}"
        self._times = TimeIndexFile(machine, place, name, base_offset=base_offset, is_new=is_new)
        name = f"{stem}.txnindex{suffix}"
        self._aborted = TransactionIndexFile(machine, place, name, base_offset=base_offset, is_new=is_new)
        self.end = SegmentEnd(self._offsets, self._times, size_bytes=size_bytes or 0)
        # Counts the cuts: a reader of a log that was cut meanwhile may have seen anything.
        self._cuts = LogCuts()

    def _name(self, kind: SegmentFileKind) -> str:
        return f"{segment_file_name(self.base_offset, kind)}{self._suffix}"

    # ---- look-ups

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
        """Path of the transaction index, which need not exist."""
        return self._aborted.file.path

    @property
    def size_bytes(self) -> int:
        """Size of the ``.log``."""
        return self.end.size_bytes

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp in the segment; its file's time of change if there is none (Kafka largestTimestamp).

        Raises:
            CorruptIndexError: the time index's last entry. StoreError.
        """
        known = self.largest_record_timestamp
        return self._log.modified_ms() if known is None else known[0]

    @property
    def largest_record_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, last offset of the batch that has it); None if there is none. Raises as the one above."""
        tail = self.end.tail
        known = self._times.last_entry if tail is None else tail.greatest_timestamp
        return known if known[0] >= 0 else None

    @property
    def modified_ms(self) -> int:
        """The ``.log``'s time of change, ms since 1970 UTC. Raises StoreError."""
        return self._log.modified_ms()

    @property
    def index_bytes(self) -> tuple[int, int]:
        """Sizes of the files of the offset and of the time index; of a segment that is closed. Raises StoreError."""
        found = (self._machine.files.find(index.file.path) for index in (self._offsets, self._times))
        offsets, times = (0 if info is None else info.size_bytes for info in found)
        return offsets, times

    def position_before(self, offset: int) -> int:
        """Return a position at or in front of the first batch that ends at or behind an offset, by the index alone.
        Raises CorruptIndexError, StoreError.
        """
        return self._offsets.find_position(offset)

    def read_next_offset(self) -> int:
        """Return the offset behind the last one in the segment; ``base_offset`` if it is empty. Reads from the last
        index entry on.

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

    @property
    def first_batch_timestamp_ms(self) -> int | None:
        """The greatest timestamp of the first batch; None: there is none (Kafka getFirstBatchTimestamp).

        Raises:
            CorruptRecordError: no batch stands there. StoreError.
        """
        if self.end.first_timestamp_ms is None:
            first = self._find(INT64_MIN)
            if first is not None:
                self.end.first_timestamp_ms = first.max_timestamp_ms
        return self.end.first_timestamp_ms

    def waited_ms(self, now_ms: int, append_timestamp_ms: int) -> int:
        """Return the ms for which the segment has been written to, for ``segment.ms`` (Kafka timeWaitedForRoll)."""
        first_ms = self.first_batch_timestamp_ms
        if first_ms is not None and first_ms >= 0:
            return append_timestamp_ms - first_ms
        return now_ms - self.created_ms

    # ---- reading

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill a buffer from the ``.log``; returns the bytes read, fewer at its end alone."""
        return self._log.opened().read_into(buffer, position=position)

    def read_at(self, position: int, size_bytes: int) -> memoryview:
        """Read the bytes of the ``.log`` in memory of their own, fewer at its end alone."""
        buffer = new_buffer(size_bytes)
        return buffer[: self.read_into(buffer, position=position)]

    def iter_windows(self, position: int = 0, end_position: int | None = None) -> Iterator[memoryview]:
        """Iterate the bytes of a range of the ``.log`` (None: to its end), in order; the next window
        overwrites each.
        """
        end = self.size_bytes if end_position is None else end_position
        buffer = new_buffer(min(WINDOW_BYTES, max(0, end - position)))
        while position < end:
            count = self.read_into(buffer[: min(len(buffer), end - position)], position=position)
            if not count:
                return
            yield buffer[:count]
            position += count

    def check_transaction_index(self) -> None:
        """Raise CorruptIndexError where the transaction index is not sound."""
        self._aborted.check()

    def _unless_cut(self, read: Callable[[], Result]) -> Result:
        """Return the result of a read without a cut during it: else the read saw a file that never existed, and is
        repeated.
        """
        while True:
            cuts = self._cuts.count
            try:
                result = read()
            except CorruptDataError:
                if cuts == self._cuts.count:
                    raise
            else:
                if cuts == self._cuts.count:
                    return result

    def _search(self, position: int, least_last_offset: int, least_max_timestamp: int = INT64_MIN) -> BatchSearch:
        search = BatchSearch(
            position=position,
            end_position=self.end.size_bytes,
            least_last_offset=least_last_offset,
            least_max_timestamp=least_max_timestamp,
        )
        return search_batches(search, self._log.file or self._log.opened(), path=self._log.path)

    def _passed(self, position: int) -> BatchSearch:
        """Return a search that passed over all batches from a position on."""
        return self._search(position, INT64_MAX, INT64_MAX)

    def _find(self, offset: int) -> FoundBatch | None:
        return self._unless_cut(lambda: self._search(self._offsets.find_position(offset), offset).found)

    def find_batch(self, offset: int) -> BatchPosition | None:
        """Find the first batch whose last offset is at or behind an offset (Kafka translateOffset); None if there is
        none.

        Raises:
            CorruptRecordError: no batch stands where one must. CorruptIndexError. StoreError.
        """
        found = self._find(offset)
        return None if found is None else BatchPosition(*found[:5])

    def read(
        self, start_offset: int, *, max_bytes: int, end_position: int, min_one_message: bool
    ) -> FetchDataInfo[LogSlice] | None:
        """Read the bytes from the batch that holds an offset on; None if no batch of the segment reaches it.

        Args:
            start_offset: The one asked for.
            max_bytes: At most so many, but with ``min_one_message`` the whole first batch.
            end_position: No byte at or behind it, whatever else.
            min_one_message: Whether a batch above ``max_bytes`` is returned whole.

        Raises:
            ValueError: max_bytes is negative. Else as ``find_batch``.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}")
        cuts = self._cuts.count
        first = self._find(start_offset)
        if first is None:
            return None
        most = max(max_bytes, first.size_bytes) if min_one_message else max_bytes
        size_bytes = max(0, min(most, end_position - first.position, self.end.size_bytes - first.position))
        records = LogSlice(self._log.opened(), self._log.path, first.position, size_bytes, self._cuts, cuts)
        return FetchDataInfo(
            start_offset,
            self.base_offset,
            first.position,
            (records,) if size_bytes else (),
            size_bytes,
            first.base_offset,
            first_entry_incomplete=0 < most < first.size_bytes,
        )

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        """Find the first record at or behind an offset whose timestamp is at or above one (``leader_epoch`` of its
        batch).

        Raises:
            CorruptRecordError: a batch that has to be looked into is damaged. SizeLimitError: its content is above
                ``max_decompressed_message_bytes``. ValueError, TypeError: no number of 64 bits. Else as ``find_batch``.
        """
        timestamp_ms = require_int64("timestamp_ms", timestamp_ms)
        starting_offset = require_int64("starting_offset", starting_offset)

        def find() -> TimestampAndOffset | None:
            from_offset = max(self._times.find_offset(timestamp_ms), starting_offset)
            position = self._offsets.find_position(from_offset)
            while (batch := self._search(position, starting_offset, timestamp_ms).found) is not None:
                file = self._log.opened()
                record = find_record_by_timestamp(
                    batch,
                    lambda piece, at, file=file: file.read_into(piece, position=at),  # type: ignore[misc]
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
        """Find the offset of the first index entry at or behind position + size; None if the index has none."""
        return self._offsets.find_upper_bound(position + size_bytes)

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        """((producer id, first offset, last offset) of aborted transactions in a range, whether no later segment can
        hold more).

        Raises:
            CorruptIndexError: an entry of an unknown version. LogTruncatedError: truncated meanwhile. StoreError.
            ValueError, TypeError: no number of 64 bits.
        """
        fetch_offset = require_int64("fetch_offset", fetch_offset)
        upper_bound_offset = require_int64("upper_bound_offset", upper_bound_offset)
        return self._aborted.collect(fetch_offset=fetch_offset, upper_bound_offset=upper_bound_offset)

    def collect_aborted_entries(
        self, *, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """The same as whole entries of the transaction index. Raises as ``collect_aborted``."""
        return self._aborted.collect_entries(fetch_offset=fetch_offset, upper_bound_offset=upper_bound_offset)
