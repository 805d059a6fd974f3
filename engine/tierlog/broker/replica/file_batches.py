"""Batches of plain files of this machine, which are sent as parts of their files: no byte of them is copied.

A stored segment is such a file where its tier is a directory, or a broker's logs, and nobody writes to it any more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from tierlog._native.batches import walk_ready_batches
from tierlog._native.files import ReadyFile
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX
from tierlog.remote.manager.batch_reads import (
    AT_ONCE_BYTES_MAX,
    MOST_BYTES,
    BatchChecks,
    BatchCut,
    BatchReads,
    DamagedBatchError,
    Fault,
    FoundBatches,
    SoundRanges,
    UnsoundBatch,
    WantedBatches,
    begins_behind,
    cut_of,
    found_batches,
    has_gap,
)
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.tier.chunks.stored_segment import SegmentLog, StoredSegment
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import Worker
from tierlog.runtime.waiting.waits import Waits

#: The least that is sent as a part of a file: less is copied faster than it is sent by a call of its own.
_PART_BYTES_LEAST: Final = 64 << 10
#: Files whose sound ranges are remembered.
_FILES_MAX: Final = 16384
#: Errors of a file whose bytes are not in memory, or that was cut.
_NOT_THERE: Final = (errno.EAGAIN, errno.ENOTSUP, errno.ENODATA)


class FileBatchChecks(BatchChecks):
    """Checks of batches in chunks and in files. Ranges of a file are remembered while its inode, size and times of
    change stay. Any number of threads.

    Args:
        reader: Large ranges are checked by its threads.
        machine: Its locks.
    """

    def __init__(self, reader: SegmentReader, machine: Machine) -> None:
        super().__init__()
        self._reader = reader
        self._lock = machine.scheduler.lock()
        self._files: dict[Hashable, tuple[object, SoundRanges]] = {}

    def in_a_thread(self, what: str, feed: Callable[[], Fault | None]) -> Waits[Fault | None]:
        """Make a call that takes long in no event loop."""
        return self._reader.in_a_thread(what, feed)

    def check_file(
        self, log: SegmentLog, file: ReadyFile, first: int, end_exclusive: int
    ) -> Waits[UnsoundBatch | None]:
        """Check batches like ``check_pieces``, of a log that is a plain file, which the system has in memory.

        Raises:
            BlockingIOError: the system has not all of it in memory, or the file ends before.
        """
        version, changed = log.version, file.version
        with self._lock:
            known = self._files.pop(version, None)
            sound = known[1] if known is not None and known[0] == changed else SoundRanges()
            self._files[version] = changed, sound  # the newest is last
            if len(self._files) > _FILES_MAX:
                del self._files[next(iter(self._files))]
        if sound.covers(first, end_exclusive):
            return None
        check, size = self.begin(log, first), end_exclusive - first
        feed = partial(
            check.feed_file,
            file.descriptor,
            log.file_position + first,
            size,
            waits=size > AT_ONCE_BYTES_MAX,
        )
        try:
            unsound = yield from self.run(log, check, feed, size)
        except OSError as error:
            if error.errno in _NOT_THERE:
                raise BlockingIOError(errno.EAGAIN, "not in memory") from error
            raise
        sound_end = end_exclusive if unsound is None else unsound.position
        if first < sound_end:
            sound.add(first, sound_end)
        return unsound


class FileBatchReads(BatchReads[StoredSegment, SegmentLog]):
    """Reads batches of stored segments for an event loop, which sends parts of files. Any number of threads.

    Args:
        reader: Of the segments' bytes, and of their open files.
        machine: Its locks.
        checks_batches: Whether batches are checked before they are sent: ``fetch.check.batches.enabled``.
        worker: Of the event loop.
    """

    def __init__(self, reader: SegmentReader, machine: Machine, *, checks_batches: bool, worker: Worker) -> None:
        self._file_checks = FileBatchChecks(reader, machine) if checks_batches else None
        super().__init__(reader, machine, checks=self._file_checks)
        self._reader = reader
        self._worker = worker

    def find_ready(
        self, log: SegmentLog, wanted: WantedBatches, position: int, window: int, *, is_known: bool
    ) -> Waits[FoundBatches | None]:
        """Find the batches as a part of their file, if the system has its bytes in memory and nothing about them is
        unusual; else None. A segment that is written to is not sent so: its bytes may change.
        """
        file = self._reader.ready_file(log)
        end = min(position + window, log.size_bytes)
        if file is None or not file.holds(log.file_position + position, end - position):
            return None
        max_bytes = min(wanted.max_bytes, MOST_BYTES)
        walked = walk_ready_batches(
            file.descriptor,
            log.file_position,
            end,
            start_position=position,
            log_size_bytes=log.size_bytes,
            least_offset=log.start_offset,
            greatest_offset=log.end_offset,
            wanted_offset=wanted.offset,
            end_offset_exclusive=wanted.end_offset_exclusive,
            max_bytes=max_bytes,
        )
        if walked is None or (not is_known and begins_behind(walked[0], position, wanted.offset)):
            return None
        walk = walked[0]
        first, size = walk.first_position, walk.first_size_bytes
        if first < 0 or size > BATCH_SIZE_BYTES_MAX or has_gap(walk, position, wanted.offset):
            return None
        if size > wanted.max_bytes and not wanted.is_first_whole:
            return found_batches(log, wanted, walk, (), BatchCut(first, first, walk.first_base_offset))
        if first + size > end and not file.holds(log.file_position + first, size):
            return None
        cut = cut_of(walk, max_bytes, end)
        if self._file_checks is not None:
            try:
                unsound = yield from self._file_checks.check_file(log, file, first, cut.whole_position)
            except BlockingIOError:
                return None
            if unsound is not None:
                if unsound.position == first:
                    raise DamagedBatchError(unsound.error)
                cut = BatchCut(unsound.position, unsound.position, unsound.offset)
        piece: memoryview | FilePart | None
        if cut.stop - first >= _PART_BYTES_LEAST:
            self._reader.note_ready(cut.stop - first)
            start = log.file_position + first
            piece = FilePart(file, position=start, size_bytes=cut.stop - first, worker=self._worker)
        else:
            piece = self._reader.copy_ready(log, file, first, cut.stop)
        if piece is None:
            return None
        if cut.whole_position < log.size_bytes:
            self.hints.put(log.version, cut.whole_offset, cut.whole_position)
        return found_batches(log, wanted, walk, (piece,), cut)
