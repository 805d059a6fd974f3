"""One segment as the thread that appends to it sees it: a ``.log`` and its indexes; and the row of a log's segments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.appends import IndexTail
from tierlog.errors import StoreError
from tierlog.log.formats.segment_files import SegmentFileKind, segment_file_name
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_folder import LazyFile, LogFolder
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.segments.segment_view import SegmentView
from tierlog.runtime.machine import Machine


class LogSegment(SegmentView):
    """A ``.log`` that begins at ``base_offset``, with its offset, time and transaction index.

    One thread appends, cuts, flushes or renames; any number read meanwhile. After a StoreError of a call that changes
    files, the segment must be opened anew: the files' content is unknown.
    """

    # ---- making one

    @classmethod
    def create(
        cls, machine: Machine, folder: LogFolder | str, base_offset: int, *, config: LogConfig, suffix: str = ""
    ) -> Self:
        """Create a new empty segment. The names are not durable before ``flush`` and an fsync of the folder.

        Index files that lie there are emptied, or removed: without their log they are of no segment.

        Raises:
            StoreError: a file cannot be made; or a ``.log`` of this name, that is not empty, is there.
        """
        segment = cls(machine, folder, base_offset, config=config, suffix=suffix, size_bytes=None)
        log = segment._log.made()
        if log.size_bytes:
            raise StoreError(f"{segment.log_path}: is there already, with {log.size_bytes} bytes")
        segment.begin_anew(config=config)
        return segment

    @classmethod
    def open(
        cls,
        machine: Machine,
        folder: LogFolder | str,
        base_offset: int,
        *,
        config: LogConfig,
        suffix: str = "",
        size_bytes: int | None = None,
    ) -> Self:
        """Open a segment that is there. No file is opened before it is needed, and no index read; trailing zeros of
        preallocation do not count. A missing time or transaction index is an empty one. The caller may know the size
        of the ``.log``, an ordinary file.

        Raises:
            ObjectNotFoundError: there is no ``.log``. StoreError.
        """
        place = folder if isinstance(folder, LogFolder) else LogFolder(machine, folder)
        if size_bytes is None:
            path = f"{place.path}/{segment_file_name(base_offset, SegmentFileKind.LOG)}{suffix}"
            found = machine.files.stat(path)
            if found.is_directory:
                raise StoreError(f"{path}: not a regular file")
            size_bytes = found.size_bytes
        return cls(machine, place, base_offset, config=config, suffix=suffix, size_bytes=size_bytes)

    # ---- writing

    def must_roll(
        self, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int, *, limit_bytes: int, limit_ms: int
    ) -> bool:
        """Whether a batch may not go into this segment any more: it is too large, too old, or an index of it is full,
        or the offset lies too far from its base (Kafka shouldRoll). For the thread that appends.
        """
        if self.end.tail is None:
            self._resumed_tail()
        rolls = self.end.must_roll(
            size_bytes, last_offset, max_timestamp_ms, limit_bytes=limit_bytes, limit_ms=limit_ms
        )
        return self.waited_ms(now_ms, max_timestamp_ms) > limit_ms if rolls is None else rolls

    def _begin_writing(self) -> None:
        for _, file in self._files():
            file.begin_writing()

    def _new_tail(self) -> IndexTail:
        room = self._config.segment_index_bytes
        return IndexTail(
            self.base_offset,
            interval_bytes=self._config.index_interval_bytes,
            offset_entries_max=room // self._offsets.entry.size,
            time_entries_max=room // self._times.entry.size,
        )

    def _resumed_tail(self) -> IndexTail:
        """Return the tail behind the entries that the indexes have, as Kafka goes on with a segment that it opens."""
        self._begin_writing()
        tail = self._new_tail()
        last_time, last_time_offset = self._times.last_entry
        tail.resume(
            offset_entries=self._offsets.entries,
            last_offset=self._offsets.last_entry[0],
            time_entries=self._times.entries,
            last_time=last_time,
            last_time_offset=last_time_offset,
        )
        self.end.tail = tail
        return tail

    def append(self, data: Buffer, *, last_offset: int, max_timestamp_ms: int) -> None:
        """Append one batch, whose offset lies behind all others, with the index entries that are due.

        Raises:
            CorruptRecordError: the offset does not fit the segment; nothing has changed. CorruptIndexError: of a
                segment that was opened. StoreError.
        """
        if self.end.tail is None:
            self._resumed_tail()
        if not self.end.has_file:
            self._begin_appending()
        self.end.append(data, last_offset=last_offset, max_timestamp=max_timestamp_ms)

    def _begin_appending(self) -> None:
        file = self._log.opened()
        file.reserve_ahead(self._config.segment_bytes)
        self.end.write_to(file)

    def append_run(self, data: Buffer, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Append several batches that lie in a row: ``columns`` as ``scan_batches`` has them. Raises as ``append``."""
        tail = self.end.tail or self._resumed_tail()
        position, size_bytes = self.end.size_bytes, memoryview(data).nbytes
        if int(columns["size_bytes"].sum()) != size_bytes:
            raise ValueError(f"{size_bytes} bytes of data for batches of {columns['size_bytes'].sum()} bytes")
        offsets, times = tail.add(columns, position=position)
        if not self.end.has_file:
            self._begin_appending()
        self._append_indexed(data, offsets, times)

    def append_batches(self, data: Buffer, *, batches_max: int) -> None:
        """Append whole batches that lie in a row, at most ``batches_max`` of them, as a cleaner makes them: no space is
        reserved ahead, which long writes gain nothing from. Raises as ``append``.
        """
        tail = self.end.tail or self._resumed_tail()
        offsets, times = tail.add_batches(data, batches_max=batches_max, position=self.end.size_bytes)
        self._append_indexed(data, offsets, times)

    def _append_indexed(self, data: Buffer, offsets: bytes, times: bytes) -> None:
        self._log.opened().append(data)
        self.end.size_bytes += memoryview(data).nbytes
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
        # Else a broker would have a file open for each segment that it ever wrote.
        for _, file in self._files():
            file.let_go()

    def flush(self) -> None:
        """``write_out`` and ``fsync``."""
        self.write_out()
        self.fsync()

    def on_become_inactive(self) -> None:
        """Write the last time entry and all index entries that are still in memory: the segment is closed now."""
        self._times.append((self.end.tail or self._resumed_tail()).close())
        self.end.tail = None
        self.end.write_to(None)
        if self._log.file is not None:
            self._log.file.reserve_ahead(0)
        self.write_out()
        self._offsets.forget_pages()
        self._times.forget_pages()
        for _, file in self._files():
            file.end_writing()

    def truncate_to(self, offset: int) -> int:
        """Cut the segment in front of the first batch that ends at or behind an offset; returns the bytes cut off.

        Index entries at or behind the offset go too. The segment can be appended to afterwards.
        """
        found = self.find_batch(offset)
        greatest = self.largest_record_timestamp
        self._begin_writing()
        # The indexes first: an entry may be missing, and none may point behind the end.
        self.end.tail = None
        self._offsets.truncate_to(offset)
        self._times.truncate_to(offset)
        self._aborted.truncate_to(offset)
        cut_bytes = 0 if found is None else self.end.size_bytes - found.position
        if found is not None:
            self.truncate_log(found.position)
        if self.end.size_bytes == 0:
            self.created_ms = self._machine.clock.time_ms()
        tail = self._resumed_tail()
        if greatest is not None:
            _, last_time_offset = self._times.last_entry
            timestamp, last_offset = self._passed(self._offsets.find_position(last_time_offset)).greatest_timestamp
            tail.note_timestamp(max_timestamp=timestamp, last_offset=last_offset)
        return cut_bytes

    # ---- rebuilding, for recovery

    def begin_rebuild(self) -> None:
        """Forget all index entries: what is indexed from now on takes their place, at the latest with ``write_out``."""
        self._begin_writing()
        self._offsets.begin_rebuild()
        self._times.begin_rebuild()
        self._aborted.reset()
        self.end.tail = self._new_tail()

    def begin_anew(self, *, config: LogConfig) -> None:
        """Make an empty segment as a new one of a configuration: without a transaction index. The folder is not
        fsynced.
        """
        self._config = config
        self._begin_writing()
        self._offsets.reset()
        self._times.reset()
        self._aborted.reset()
        self.end.tail = self._new_tail()
        self._aborted.unmake()
        self.created_ms = self._machine.clock.time_ms()

    def index_batches(self, columns: Mapping[str, NDArray[np.generic]], *, position: int) -> None:
        """Take batches that are in the log, from a position on: only indexes are written."""
        tail = self.end.tail or self._resumed_tail()
        offsets, times = tail.add(columns, position=position)
        self._offsets.append(offsets)
        self._times.append(times)

    def truncate_log(self, size_bytes: int) -> None:
        """Cut the ``.log`` to a size; the indexes stay."""
        if size_bytes >= self.end.size_bytes:
            return
        log = self._log.opened()
        self._cuts.note(size_bytes)
        self.end.size_bytes = size_bytes
        log.truncate(size_bytes)
        # Once more before the next append: a reader that began in between saw both the old and the new bytes.
        self._cuts.note(size_bytes)
        if size_bytes == 0:
            self.end.first_timestamp_ms = None

    # ---- leaving

    def _files(self) -> tuple[tuple[SegmentFileKind, LazyFile], ...]:
        """Return the files, the log first: recovery deletes an index without its log, and would rebuild those of a log
        without any. A segment that was to go is gone, or whole, after a crash.
        """
        return (
            (SegmentFileKind.LOG, self._log),
            (SegmentFileKind.OFFSET_INDEX, self._offsets.file),
            (SegmentFileKind.TIME_INDEX, self._times.file),
            (SegmentFileKind.TRANSACTION_INDEX, self._aborted.file),
        )

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the time of the last change of the log and its two indexes (Kafka setLastModified). Raises StoreError."""
        for kind, file in self._files():
            if kind is not SegmentFileKind.TRANSACTION_INDEX:
                file.set_modified_ms(modified_ms)

    def change_suffix(self, suffix: str) -> None:
        """Rename all files (".deleted", ".swap", "" …), the log first. Readers go on. The folder is not fsynced."""
        self._suffix = suffix
        for kind, file in self._files():
            file.rename_to(self._name(kind))

    def rename_offset_index(self, suffix: str) -> None:
        """Give the offset index alone a suffix, durably: without one under its own name a start rebuilds all of the
        segment's indexes.
        """
        self._offsets.file.rename_to(f"{self._name(SegmentFileKind.OFFSET_INDEX)}{suffix}")
        self._machine.files.fsync_directory(self.log_path.rpartition("/")[0])

    def delete_files(self) -> None:
        """Remove the files, the log first; readers that hold a slice go on. The folder is not fsynced."""
        for _, file in self._files():
            file.remove()

    def close(self) -> None:
        """Release the files; nothing is written. Readers that hold a slice go on. Idempotent."""
        self.end.write_to(None)
        for _, file in self._files():
            file.close()


class LogSegments:
    """Segments by base offset, ascending. Immutable; the segments themselves are not.

    Raises:
        ValueError: two segments have one base offset.
    """

    __slots__ = ("_bases", "segments")

    segments: tuple[LogSegment, ...]

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self.segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = [segment.base_offset for segment in self.segments]
        if len(set(self._bases)) != len(self._bases):
            raise ValueError("two segments of one base offset")

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def first(self) -> LogSegment:
        return self.segments[0]

    @property
    def active(self) -> LogSegment:
        """The last one, which is appended to."""
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment of the greatest base offset at or below an offset."""
        at = bisect_right(self._bases, offset)
        return self.segments[at - 1] if at else None

    def higher(self, offset: int) -> LogSegment | None:
        """Return the segment of the least base offset above an offset."""
        at = bisect_right(self._bases, offset)
        return self.segments[at] if at < len(self.segments) else None

    def from_floor(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments from the floor of an offset on; all, if there is no floor."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def between(self, from_offset: int, to_offset: int) -> tuple[LogSegment, ...]:
        """Return the segments from the floor of an offset on, with base offsets below another."""
        return self.segments[max(0, bisect_right(self._bases, from_offset) - 1) : bisect_left(self._bases, to_offset)]

    def with_added(self, *added: LogSegment) -> LogSegments:
        return LogSegments((*self.segments, *added))

    def without(self, removed: Iterable[LogSegment]) -> LogSegments:
        gone = {id(segment) for segment in removed}
        return LogSegments(segment for segment in self.segments if id(segment) not in gone)
