"""A segment as its readers see it: a ``.log``, its indexes, and what is found in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from typing_extensions import Buffer

from tierlog._native.appends import SegmentEnd
from tierlog._native.batches import BatchSearch, FoundBatch
from tierlog.arguments import require_int64
from tierlog.errors import CorruptDataError
from tierlog.log.formats.segment_files import SegmentFileKind, segment_file_name
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.segments.batch_reads import find_record_by_timestamp, search_batches
from tierlog.log.local.segments.index_file import OffsetIndexFile, TimeIndexFile
from tierlog.log.local.segments.lazy_file import LazyFile, LogFolder
from tierlog.log.local.segments.log_slice import LogCuts, LogSlice
from tierlog.log.local.segments.segment_values import BatchPosition, SegmentRead, TimestampAndOffset
from tierlog.log.local.segments.transaction_index_file import TransactionIndexFile
from tierlog.runtime.machine import Machine

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
Result = TypeVar("Result")


class SegmentView:
    """The half of a LogSegment that changes nothing. Any number of threads.

    Attributes:
        base_offset: The segment's.
        created_ms: When it was created or opened, or became empty, by the machine's clock.
        end: Where it ends, and what an append goes by: for the log that appends.
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
        self._log = LazyFile(machine, place, self._name(SegmentFileKind.LOG))
        name = self._name(SegmentFileKind.OFFSET_INDEX)
        self._offsets = OffsetIndexFile(machine, place, name, base_offset=base_offset, is_new=is_new)
        name = self._name(SegmentFileKind.TIME_INDEX)
        self._times = TimeIndexFile(machine, place, name, base_offset=base_offset, is_new=is_new)
        name = self._name(SegmentFileKind.TRANSACTION_INDEX)
        self._aborted = TransactionIndexFile(machine, place, name, base_offset=base_offset, is_new=is_new)
        self.end = SegmentEnd(self._offsets, self._times, size_bytes=size_bytes or 0)
        # Counts the cuts: what a reader saw of a log that was cut meanwhile may be anything.
        self._cuts = LogCuts()

    def _name(self, kind: SegmentFileKind) -> str:
        return f"{segment_file_name(self.base_offset, kind)}{self._suffix}"

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
        if self.end.first_timestamp_ms is None:
            first = self._find(_INT64_MIN)
            if first is not None:
                self.end.first_timestamp_ms = first.max_timestamp_ms
        first_ms = self.end.first_timestamp_ms
        if first_ms is not None and first_ms >= 0:
            return append_timestamp_ms - first_ms
        return now_ms - self.created_ms

    # ---- reading

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill a buffer from the ``.log``; returns the bytes read, fewer at its end alone."""
        return self._log.opened().read_into(buffer, position=position)

    def check_transaction_index(self) -> None:
        """Raises CorruptIndexError where the transaction index is not sound."""
        self._aborted.check()

    def _unless_cut(self, read: Callable[[], Result]) -> Result:
        """The result of a read that no cut came into: else what it saw is no file that ever was, and it is repeated."""
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

    def _search(self, position: int, least_last_offset: int, least_max_timestamp: int = _INT64_MIN) -> BatchSearch:
        search = BatchSearch(
            position=position,
            end_position=self.end.size_bytes,
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
        cuts = self._cuts.count
        first = self._find(start_offset)
        if first is None:
            return None
        most = max(max_bytes, first.size_bytes) if min_one_message else max_bytes
        size_bytes = max(0, min(most, end_position - first.position, self.end.size_bytes - first.position))
        records = LogSlice(self._log.opened(), self._log.path, first.position, size_bytes, self._cuts, cuts)
        return SegmentRead(records, first.base_offset, 0 < most < first.size_bytes)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        """The first record at or behind an offset whose timestamp is at or above one (``leader_epoch`` of its batch).

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
            ValueError, TypeError: no number of 64 bits.
        """
        fetch_offset = require_int64("fetch_offset", fetch_offset)
        upper_bound_offset = require_int64("upper_bound_offset", upper_bound_offset)
        return self._aborted.collect(fetch_offset=fetch_offset, upper_bound_offset=upper_bound_offset)
