"""One cleaning of one log: the latest record of each key stays, the older ones go.

The dirty part of the log is read first, up to the offset at which the map of its keys is full. Then all segments in
front of that offset are written anew, in groups that fit into one segment, and swapped in group by group. The log's
lock is held for the swaps alone.

Before an older record goes, the newer one is on the disk: the log is flushed up to the end of the map first. Stricter
than Kafka: checksums are compared, so that damage is not written anew under a right one; and whatever ends a cleaning
leaves no file.

Source: Kafka Cleaner.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add, le
from typing import Final, NamedTuple

from tierlog._native.compaction import CleanedTransactions, OffsetMap, WindowCleaner
from tierlog.arguments import INT32_MAX, INT64_MAX
from tierlog.errors import CorruptRecordError, StoreError
from tierlog.log.local.compaction.segment_windows import SegmentWindow, WindowBuffer
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.marks import mark
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer

_log = logging.getLogger(__name__)

_SECRET_BYTES: Final = 16


@dataclass(slots=True)
class CleanerStats:
    """The measures of one cleaning (Kafka CleanerStats). Records that are still in aborted or control batches count.

    Attributes:
        map_bytes_read: Of the dirty part, for the map.
        map_messages_read: Of the dirty part.
        bytes_read: Of the segments that were written anew.
        bytes_written: Of the new ones.
        messages_read: Not those of batches that went as a whole.
        messages_written: In the new segments.
        invalid_messages_read: Those without a key, which went.
        buffer_utilization: Used part of the map's slots, 0 to 1.
        index_seconds: Of the map.
        elapsed_seconds: Of all.
    """

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    buffer_utilization: float = 0.0
    index_seconds: float = 0.0
    elapsed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The end of a cleaning.

    Attributes:
        next_dirty_offset: Where the next one begins: in front of ``first_uncleanable_offset`` if the map was full.
    """

    next_dirty_offset: int
    stats: CleanerStats


class Cleaner:
    """Cleans one log after another. Not thread-safe: a thread has its own.

    Args:
        machine: Has the clock, the chance for the map's secret, and the files.
        dedupe_buffer_bytes: Of the map: 24 of each key.
        load_factor: The part of the map's slots that is used, 0 to 1.
        io_buffer_bytes: Of each of two buffers; they grow for a larger batch, whatever ``message.max.bytes`` is now.
        throttle: Called with each number of bytes that was read or written; it may wait, and may raise.
        check_done: Called between windows; it raises LogCleaningAbortedError to end the cleaning.

    Raises:
        ValueError: the map holds no key.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        dedupe_buffer_bytes: int,
        load_factor: float,
        io_buffer_bytes: int,
        throttle: Callable[[int], None],
        check_done: Callable[[], None],
    ) -> None:
        self._machine = machine
        secret = machine.rng.secret_bytes(_SECRET_BYTES)
        self._map = OffsetMap(dedupe_buffer_bytes, load_factor=load_factor, secret=secret)
        self._buffer = WindowBuffer(io_buffer_bytes)
        self._throttle = throttle
        self._check_done = check_done

    def clean(
        self, log: UnifiedLog, *, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int
    ) -> CleaningResult:
        """Clean a log up to an offset, as far as the map holds its keys.

        Args:
            log: A compacted one. Its other callers go on; whoever cuts, renames or deletes it ends the cleaning first.
            first_dirty_offset: Where the last cleaning ended.
            first_uncleanable_offset: Exclusive end: at most the base offset of the active segment, and the last stable
                offset.
            now_ms: The time by which delete horizons are set and compared, ms since 1970 UTC.

        Raises:
            LogCleaningAbortedError: by ``check_done``, or the log was cut. CorruptRecordError: a batch is damaged.
            SizeLimitError: a batch's content is above ``max_decompressed_message_bytes``. CorruptIndexError.
            StoreError: a segment cannot be read, or a new one not be written: the log is as it was, but for groups that
            were swapped in before. LogOfflineError: a swap failed. LogClosedError.
        """
        stats, clock = CleanerStats(), self._machine.clock
        begun = clock.monotonic_seconds()
        offsets = max(0, first_uncleanable_offset - first_dirty_offset)
        self._map.clear(self._machine.rng.secret_bytes(_SECRET_BYTES), keys=offsets)
        parts = _Parts(self._machine, self._map, self._buffer, self._throttle, self._check_done)
        cleaning = _Cleaning(parts, log, first_uncleanable_offset, now_ms=now_ms, stats=stats)
        horizon_ms = cleaning.legacy_delete_horizon_ms(first_dirty_offset)
        end_offset = cleaning.fill_map(first_dirty_offset)
        stats.index_seconds = clock.monotonic_seconds() - begun
        log.flush(end_offset)  # the newer records, before the older ones go
        for group in group_segments(
            log.log_segments(0, end_offset), log.config, first_uncleanable_offset=first_uncleanable_offset
        ):
            cleaning.replace(group, legacy_delete_horizon_ms=horizon_ms)
        stats.buffer_utilization = len(self._map) / self._map.slots
        stats.elapsed_seconds = clock.monotonic_seconds() - begun
        return CleaningResult(end_offset, stats)


def group_segments(
    segments: Sequence[LogSegment], config: LogConfig, *, first_uncleanable_offset: int
) -> list[list[LogSegment]]:
    """Group neighbours so that the records of each group fit into one segment, with its indexes (Kafka
    groupSegmentsBySize). Raises StoreError.
    """
    groups: list[list[LogSegment]] = []
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    sums = (0, 0, 0)
    for at, segment in enumerate(segments):
        sizes = (segment.size_bytes, *segment.index_bytes)
        sums = tuple(map(add, sums, sizes))
        # Not by its last record, which would have to be looked for.
        end_offset = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable_offset
        fits = (
            all(map(le, sums, limits))
            and (not segment.size_bytes or end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX)
            if groups
            else False
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            sums = sizes
    return groups


class _Parts(NamedTuple):
    """The cleaner's own, for one call."""

    machine: Machine
    offset_map: OffsetMap
    buffer: WindowBuffer
    throttle: Callable[[int], None]
    check_done: Callable[[], None]


class _Cleaning:
    """One call of ``Cleaner.clean``."""

    def __init__(
        self, parts: _Parts, log: UnifiedLog, first_uncleanable_offset: int, *, now_ms: int, stats: CleanerStats
    ) -> None:
        self._parts, self._map = parts, parts.offset_map
        self._throttle, self._check_done = parts.throttle, parts.check_done
        self._log, self._end, self._now_ms, self._stats = log, first_uncleanable_offset, now_ms, stats
        self._generation = log.generation
        self._native = WindowCleaner(self._map, decompressed_limit=log.config.max_decompressed_message_bytes)
        self._out = parts.buffer.of_its_size()
        self._transactions = self._new_transactions()

    def _new_transactions(self) -> CleanedTransactions:
        return CleanedTransactions(self._parts.machine.rng.secret_bytes(_SECRET_BYTES))

    def legacy_delete_horizon_ms(self, first_dirty_offset: int) -> int:
        """Tombstones of magic 0 and 1 go from segments that were changed at or before this time."""
        clean = self._log.log_segments(0, first_dirty_offset)
        return clean[-1].modified_ms - self._log.config.delete_retention_ms if clean else 0

    # ---- the map

    def fill_map(self, first_dirty_offset: int) -> int:
        """Take the keys of the dirty part; return the offset up to which, exclusive, the map knows the log."""
        dirty = self._log.log_segments(first_dirty_offset, self._end)
        transactions = self._new_transactions()
        transactions.add_aborted(self._aborted(first_dirty_offset, self._end))
        ends = [*(segment.base_offset for segment in dirty[1:]), self._end]
        for segment, end_offset in zip(dirty, ends, strict=False):
            self._check_done()
            with _locating(segment):
                if not self._take_keys(segment, transactions, first_dirty_offset):
                    break
            self._map.latest_offset = end_offset - 1  # nothing lies in a gap at the segment's end
        return max(first_dirty_offset, self._map.latest_offset + 1)

    def _take_keys(self, segment: LogSegment, transactions: CleanedTransactions, from_offset: int) -> bool:
        """Take the keys of a segment; whether the map held all."""
        for window in self._parts.buffer.windows(segment, segment.position_before(from_offset)):
            self._check_done()
            self._throttle(len(window.data))
            verdicts = None
            if window.survey.has_producers:
                verdicts = transactions.judge(
                    window.data, batches=window.survey.batches, is_for_map=True, base_position=window.position
                )
            messages, is_full = self._native.index(
                window.data, verdicts=verdicts, from_offset=from_offset, base_position=window.position
            )
            self._stats.map_messages_read += messages
            if is_full:
                return False
            self._stats.map_bytes_read += len(window.data)
        return True

    def _aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self._log.log_segments(from_offset, INT64_MAX):
            entries, is_complete = segment.collect_aborted_entries(
                fetch_offset=from_offset, upper_bound_offset=to_offset
            )
            found += entries
            if is_complete:
                break
        return found

    # ---- the new segments

    def replace(self, group: Sequence[LogSegment], *, legacy_delete_horizon_ms: int) -> None:
        """Write the segments of a group into one, and swap it in. Raises as ``clean``."""
        cleaned = self._log.create_cleaned_segment(group[0].base_offset)
        try:
            self._fill(cleaned, group, legacy_delete_horizon_ms)
            cleaned.on_become_inactive()
            cleaned.flush()
            cleaned.set_modified_ms(group[-1].modified_ms)
            self._parts.machine.files.fsync_directory(self._log.folder)
            self._log.replace_segments(cleaned, group, generation=self._generation)
        except LogOfflineError:
            mark("cleaner: a swap may be halfway")
            raise  # halfway, maybe: the next start finishes the swap, or undoes it
        except BaseException:
            _discard(cleaned)
            raise

    def _fill(self, cleaned: LogSegment, group: Sequence[LogSegment], legacy_delete_horizon_ms: int) -> None:
        self._transactions.set_last_records(self._log.last_records_of_producers())
        ends = [*(segment.base_offset for segment in group[1:]), group[-1].read_next_offset()]
        for segment, end_offset in zip(group, ends, strict=True):
            self._transactions.add_aborted(self._aborted(segment.base_offset, end_offset))
            retains = segment.modified_ms > legacy_delete_horizon_ms
            with _locating(segment):
                self._copy_into(cleaned, segment, retain_legacy_tombstones=retains)

    def _copy_into(self, cleaned: LogSegment, segment: LogSegment, *, retain_legacy_tombstones: bool) -> None:
        for window in self._parts.buffer.windows(segment, 0):
            self._check_done()
            self._throttle(len(window.data))
            verdicts = None
            if window.survey.has_producers:
                verdicts = self._transactions.judge(
                    window.data,
                    batches=window.survey.batches,
                    now_ms=self._now_ms,
                    base_position=window.position,
                )
                retained = self._transactions.take_retained()
                cleaned.append_aborted([AbortedTransaction(*entry) for entry in retained])
            self._filter(cleaned, window, verdicts, retain_legacy_tombstones=retain_legacy_tombstones)

    def _filter(
        self,
        cleaned: LogSegment,
        window: SegmentWindow,
        verdicts: bytearray | None,
        *,
        retain_legacy_tombstones: bool,
    ) -> None:
        """Append the batches of a window that stay to the new segment."""
        data, batch, position, stats = window.data, 0, window.position, self._stats
        while True:
            done = self._native.filter(
                data,
                self._out,
                verdicts=None if verdicts is None else verdicts[batch:],
                now_ms=self._now_ms,
                delete_horizon_ms=self._now_ms + self._log.config.delete_retention_ms,
                retained_next_offset=self._end,
                retain_legacy_tombstones=retain_legacy_tombstones,
                base_position=position,
            )
            stats.bytes_read += done.read_bytes
            stats.bytes_written += done.written_bytes
            stats.messages_read += done.messages_read
            stats.messages_written += done.messages_retained
            stats.invalid_messages_read += done.invalid_messages
            if done.written_bytes:
                cleaned.append_batches(self._out[: done.written_bytes], batches_max=done.batches)
                self._throttle(done.written_bytes)
            elif done.room_bytes:
                self._out = new_buffer(max(done.room_bytes, 2 * len(self._out)))
            if done.read_bytes == len(data):
                return
            data, batch, position = data[done.read_bytes :], batch + done.batches, position + done.read_bytes


@contextlib.contextmanager
def _locating(segment: LogSegment) -> Iterator[None]:
    """A block whose errors of batches get the segment's path."""
    try:
        yield
    except CorruptRecordError as error:
        raise error.located(segment.log_path) from None


def _discard(cleaned: LogSegment) -> None:
    """Remove the files of a segment that was not swapped in; the next start removes what cannot be removed now."""
    try:
        cleaned.delete_files()
    except (StoreError, LogClosedError) as error:
        _log.warning("%s: stays until the next start: %s", cleaned.log_path, error)
    finally:
        cleaned.close()
