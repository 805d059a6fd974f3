"""The segments of a log and its end: UnifiedLog's changes of files, without rules about producers or epochs.

Any failure here takes the log offline: the content of a file after a failed write or sync is unknown until a recovery.

Source: Kafka LocalLog.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from tierlog._native.appends import LogEnd
from tierlog.arguments import INT32_MAX, require_type
from tierlog.errors import CorruptDataError, CorruptRecordError, StoreError
from tierlog.log.formats.segment_files import SegmentFileKind, segment_file_name
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError, LogClosedError, LogOfflineError
from tierlog.log.local.recovery.folder_tidying import CLEANED, DELETED, SWAP
from tierlog.log.local.recovery.log_loader import LoadedLog
from tierlog.log.local.segments.log_segment import LogSegment, LogSegments
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.runtime.waiting.waits import forget_frames

_log = logging.getLogger(__name__)


class LocalLog:
    """A log's segments on disk. The caller holds the log's lock, but for ``sync`` and ``fail``.

    Args:
        loaded: The log as it was found on disk: folder, segments, where it ends.
        tasks: Where the removal of files that were set aside is left; None: they are removed at once.
        on_offline: Called once, when a failure takes the log offline. It must not raise, wait or call the log.

    Attributes:
        place: The log's folder, which the segments have too.
        segments: The present ones.
        end: The next offset, and the end of the active segment: a native append moves both. Replaced as a whole by all
            other changes; readers have the last published one.
        is_closed: Whether ``close`` was called.
        is_usable: Whether the log is neither offline nor closed.
        recovery_point: What lies below is on the disk, exclusive, or in front of the log's start.
        synced_offset: What lies below is on the disk, exclusive: a start that is raised syncs nothing, and a crash may
            take it back.
        generation: Number of cuts of the log: a sync before a cut says nothing about bytes behind it.
    """

    def __init__(
        self,
        machine: Machine,
        loaded: LoadedLog,
        *,
        config: LogConfig,
        tasks: BackgroundTasks | None,
        on_offline: Callable[[Exception], None] | None = None,
    ) -> None:
        self._machine = machine
        self._tasks = tasks
        self._on_offline = on_offline
        self._failure: tuple[str, BaseException] | None = None
        self.is_closed = False
        self.is_usable = True
        self.place = loaded.place
        self.segments = loaded.segments
        self.active = loaded.segments.active
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = max(loaded.recovery_point, loaded.local_log_start_offset)  # nothing lies below
        self.synced_offset = loaded.recovery_point
        #: By id: segments whose files wait for their removal.
        self._aside: dict[int, LogSegment] = {}
        self.generation = 0
        self.config = config
        self.set_config(config)

    @property
    def folder(self) -> str:
        """The path of the log's folder now."""
        return self.place.path

    @property
    def log_end_offset(self) -> int:
        """The next offset."""
        return self.end.log_end_offset

    @log_end_offset.setter
    def log_end_offset(self, offset: int) -> None:
        self.end = LogEnd(offset)

    @property
    def records_end(self) -> int:
        """Behind the last record: in front of the log's end where that was cut to an offset between two batches.

        Raises:
            LogOfflineError: the active segment is damaged, or cannot be read.
        """
        if not self.generation:
            return self.log_end_offset
        with self.changing():
            return self.active.read_next_offset()

    # ---- whether it can be used

    def check_usable(self) -> None:
        """Raise LogOfflineError or LogClosedError if the log is not usable."""
        if self._failure is not None:
            text, cause = self._failure
            raise LogOfflineError(text) from cause
        if self.is_closed:
            raise LogClosedError(f"{self.folder}: the log is closed")

    @property
    def failure(self) -> BaseException | None:
        """The error that took the log offline; None while the log is usable or closed."""
        return None if self._failure is None else self._failure[1]

    def fail(self, error: Exception) -> LogOfflineError:
        """Take the log offline: the error for the caller to raise. The first failure stays."""
        if self._failure is None:
            self._failure = (f"{self.folder}: the log is offline: {error}", error)
            self.is_usable = False
            forget_frames(error)  # which hold the file open that failed
            _log.error("%s", self._failure[0])
            if self._on_offline is not None:
                self._on_offline(error)
        return LogOfflineError(self._failure[0])

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """A block that changes the log, or its files: a file that fails in it takes the log offline.

        Raises:
            LogOfflineError: now, or before. LogClosedError.
        """
        self.check_usable()
        try:
            yield
        except (StoreError, CorruptDataError) as error:
            raise self.fail(error) from error

    # ---- rolling

    def set_config(self, config: LogConfig) -> None:
        """Use another configuration, from the next roll on. Raises TypeError."""
        self.config = require_type("config", config, LogConfig, "a LogConfig")
        self.limit_ms = config.segment_ms_max - config.random_segment_jitter_ms(self._machine.rng)

    def check_fits(self, size_bytes: int) -> None:
        """Raise AppendRefusedError if an append of this size is larger than a segment."""
        if size_bytes > self.config.segment_bytes:
            text = f"{size_bytes} bytes in one append, segment.bytes is {self.config.segment_bytes}"
            raise AppendRefusedError(KafkaError.RECORD_LIST_TOO_LARGE, text)

    def check_place(self, first_offset: int, last_offset: int) -> None:
        """Raise AppendRefusedError if no segment can hold the offsets of one append: they lie too far apart, or in
        front of the active segment, which was begun where a leader was expected to go on.
        """
        if last_offset - first_offset > INT32_MAX:
            text = f"offsets {first_offset} … {last_offset} in one append, a segment has {INT32_MAX + 1}"
            raise AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, text)
        if first_offset < self.active.base_offset:
            text = f"offset {first_offset}, the active segment begins at {self.active.base_offset}"
            raise AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, text)

    def roll_is_due(self, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Whether an append has to go into a new segment. Raises LogOfflineError: the active one's first batch is
        damaged. CorruptIndexError. StoreError.
        """
        try:
            return self.active.must_roll(
                size_bytes,
                last_offset,
                max_timestamp_ms,
                now_ms,
                limit_bytes=self.config.segment_bytes,
                limit_ms=self.limit_ms,
            )
        except CorruptRecordError as error:
            raise self.fail(error) from error

    def roll(self, base_offset: int) -> LogSegment:
        """Close the active segment and begin one at an offset, at or behind the log's end.

        An active segment that is empty and begins there stays, and becomes as a new one: its indexes may be full.

        Raises:
            ValueError: a segment begins there, or behind. StoreError.
        """
        active = self.active
        if base_offset < active.base_offset or (base_offset == active.base_offset and active.size_bytes):
            raise ValueError(f"{self.folder}: a segment from {active.base_offset} on is there, not at {base_offset}")
        if base_offset == active.base_offset:
            active.begin_anew(config=self.config)  # and not another file of this name: a crash could leave neither
            return active
        active.on_become_inactive()
        # No recovery would find out that its last entries are missing; nor, where compaction leaves holes, that its
        # last records are: Kafka goes on behind such a hole, and the replica may lead without what was committed.
        if base_offset <= self.recovery_point or self.config.is_compacted:
            self.sync((active,), (), known_before=active.base_offset)
        self._set_segments(self.segments.with_added(self._create(base_offset)))
        return self.active

    # ---- syncing

    def unsynced(self, up_to_offset: int) -> tuple[LogSegment, ...]:
        """The segments to sync so that all below an offset is on the disk; their index entries are written out."""
        segments = self.segments.between(self.synced_offset, up_to_offset)
        for segment in segments:
            segment.write_out()
        return segments

    def sync(self, segments: Sequence[LogSegment], snapshots: Sequence[UpdatableFile], *, known_before: int) -> None:
        """Sync segments and producer snapshots, which are closed, and the folder if one of these has a new name.

        Args:
            segments: Their index entries are written out.
            snapshots: All of them are new.
            known_before: Segments from here on are new: the ``synced_offset`` of before.

        Raises:
            StoreError: never try again. LogOfflineError: another thread's failure; nothing more is synced.
                LogClosedError.
        """
        for snapshot in snapshots:
            self.check_usable()
            with snapshot:
                snapshot.fsync()
        for segment in segments:
            self.check_usable()
            segment.fsync()
        if snapshots or any(segment.base_offset >= known_before for segment in segments):
            self.check_usable()
            self._machine.files.fsync_directory(self.folder)

    def sync_folder(self) -> None:
        """Have the folder's names on the disk. Raises StoreError."""
        self._machine.files.fsync_directory(self.folder)

    def note_synced(self, up_to_offset: int) -> None:
        """Move the recovery point: all records below an offset have been synced."""
        self.synced_offset = max(self.synced_offset, up_to_offset)
        self.recovery_point = max(self.recovery_point, up_to_offset)

    # ---- shortening

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Cut everything from an offset on; the segments that went. Raises StoreError.

        The later segments are gone for good before the active one is cut: a crash on the way leaves a log that ends
        where one of the old segments ended, and never one with a hole.
        """
        gone = self._cut_off([segment for segment in self.segments if segment.base_offset > offset])
        self.active.truncate_to(offset)
        self.active.flush()
        self._set_end(offset)
        return gone

    def truncate_fully_and_start_at(self, offset: int) -> list[LogSegment]:
        """Set all segments aside and begin anew at an offset; the segments that went. Raises StoreError."""
        gone = self._cut_off(self.segments)
        self._set_segments(LogSegments((self._create(offset),)))
        self._machine.files.fsync_directory(self.folder)
        self._set_end(offset)
        return gone

    def remove(self, segments: Sequence[LogSegment]) -> None:
        """Set the oldest segments aside, the oldest first: they are renamed now, each durably, and removed after
        ``file.delete.delay.ms``. Raises StoreError.

        They stay away after a crash: the recovery point will say that nothing in front of the others is to be checked.
        A crash on the way leaves no hole, past which reads would go, though the tier has what was there.
        """
        self._set_segments(self.segments.without(segments))
        with _closed_on_failure(segments):
            for segment in segments:
                segment.change_suffix(DELETED)
                self._machine.files.fsync_directory(self.folder)
        self._remove_later(segments)

    def create_cleaned(self, base_offset: int) -> LogSegment:
        """Make an empty segment for a cleaner, in place of one that a cleaning left. Raises StoreError."""
        for kind in SegmentFileKind:
            self.place.remove(f"{segment_file_name(base_offset, kind)}{CLEANED}")
        return LogSegment.create(self._machine, self.place, base_offset, config=self.config, suffix=CLEANED)

    def replace(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> list[LogSegment]:
        """Swap a cleaned segment, which is on the disk with its names, in for those that it was made of, as far as they
        are still there; return these. A crash leaves the old ones or the new one (``folder_tidying``). Raises
        StoreError.
        """
        gone = [segment for segment in self.segments if any(segment is old for old in replaced)]
        cleaned.change_suffix(SWAP)
        self.sync_folder()
        self._set_segments(self.segments.without(gone).with_added(cleaned))
        with _closed_on_failure(gone):
            for segment in gone:
                segment.change_suffix(DELETED)
            self.sync_folder()
            cleaned.change_suffix("")
            self.sync_folder()
        self._remove_later(gone)
        return gone

    def _cut_off(self, segments: Iterable[LogSegment]) -> list[LogSegment]:
        """Set the last segments aside, the latest first, each durably: a crash leaves no hole."""
        gone = sorted(segments, key=lambda segment: segment.base_offset, reverse=True)
        for segment in gone:
            segment.change_suffix(DELETED)
            self._machine.files.fsync_directory(self.folder)
        self._set_segments(self.segments.without(gone))
        self._remove_later(gone)
        return gone

    def remove_later(self, name: str) -> None:
        """Remove a file of the folder that was renamed already, after the same delay."""
        self._later(lambda: self.place.remove(name))

    # ---- the end

    def close(self) -> None:
        """Close the segments, those that wait for their removal too; idempotent."""
        self.is_closed = True
        self.is_usable = False
        for segment in (*self.segments, *list(self._aside.values())):
            segment.close()
        self._aside.clear()

    def _remove_later(self, segments: Sequence[LogSegment]) -> None:
        self._aside |= {id(segment): segment for segment in segments}

        def remove() -> None:
            for segment in segments:
                segment.delete_files()
                self._aside.pop(id(segment), None)

        self._later(remove)

    def _later(self, remove: Callable[[], None]) -> None:
        """Remove files after a delay. What cannot be removed stays, and so does all of an offline log: the next start
        removes it by its suffix.
        """

        def attempt() -> None:
            if self._failure is not None:
                return
            try:
                remove()
            except StoreError as error:
                _log.warning("%s: a deleted file stays until the next start: %s", self.folder, error)

        if self._tasks is None:
            attempt()
        else:
            self._tasks.submit(attempt, delay_ms=self.config.file_delete_delay_ms)

    def _create(self, base_offset: int) -> LogSegment:
        return LogSegment.create(self._machine, self.place, base_offset, config=self.config)

    def _set_segments(self, segments: LogSegments) -> None:
        self.segments = segments
        if len(segments):
            self.active = segments.active

    def _set_end(self, offset: int) -> None:
        """The log was cut: it ends here now."""
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.synced_offset = min(self.synced_offset, offset)
        self.generation += 1


@contextlib.contextmanager
def _closed_on_failure(segments: Sequence[LogSegment]) -> Iterator[None]:
    """A block behind which segments that are the log's no more are closed, if it fails: nobody else does."""
    try:
        yield
    except BaseException:
        for segment in segments:
            segment.close()
        raise
