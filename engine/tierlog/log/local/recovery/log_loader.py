"""Loading a log: what Kafka's LogLoader does when a broker starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tierlog.arguments import require_flag, require_int64, require_path, require_type
from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.segment_files import OFFSET_MAX, SegmentFileKind, find_segment_file, segment_file_name
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_folder import (
    LogFolder,
    agreed_topic_id,
    check_unlocked,
    is_tiered,
    partition_of,
    require_topic_id,
)
from tierlog.log.local.producers.producer_entries import ProducerSettings
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.batch_epochs import complete_from_batches
from tierlog.log.local.recovery.folder_tidying import DELETED, split_segment, tidy_folder
from tierlog.log.local.recovery.producer_replay import restore_producers
from tierlog.log.local.recovery.segment_recovery import (
    IndexContents,
    RecoveryReport,
    SegmentOverflowError,
    recover_segment,
)
from tierlog.log.local.recovery.tier_start import TierStart, TierStartFile, TierStartState
from tierlog.log.local.segments.log_segment import LogSegment, LogSegments
from tierlog.marks import mark
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

_INDEXES: Final = (
    SegmentFileKind.OFFSET_INDEX,
    SegmentFileKind.TIME_INDEX,
    SegmentFileKind.TRANSACTION_INDEX,
)


@dataclass(frozen=True, slots=True)
class LogCheckpoints:
    """The log directory's checkpoints of one log.

    Attributes:
        recovery_point: Offset up to which the log was flushed, exclusive; None: unknown. 0 is known: nothing was.
        log_start_offset, high_watermark: 0 where they say nothing.

    Raises:
        TypeError: a field is of another type. ValueError: one does not fit into 64 bits.
    """

    recovery_point: int | None = None
    log_start_offset: int = 0
    high_watermark: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.recovery_point is not None:
            require_int64("recovery_point", self.recovery_point)
        require_int64("log_start_offset", self.log_start_offset)
        require_int64("high_watermark", self.high_watermark)


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A log that is ready to run.

    Attributes:
        place: The folder that the segments are in: a rename of it moves them all.
        tier_start: What the log's ``start-from-tier`` says; None: there is none.
        must_be_rebuilt: Whether the log is tiered and lacks what it must have of the tier: it was cut below its first
            segment, and is empty; or its lineage does not reach back to its start.
    """

    place: LogFolder
    segments: LogSegments
    producers: ProducerState
    snapshots: ProducerSnapshots
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport
    tier_start: TierStart | None
    must_be_rebuilt: bool


class LogLoader:
    """The loading of a folder's log, once, with mending: interrupted deletions and swaps finished, indexes rebuilt,
    after an unclean stop everything behind the recovery point read and the torn tail cut, producers' state restored.
    Where the recovery point is unknown, all of the log is read; the log is flushed up to its end then, and where a hole
    stays.

    Args:
        folder: The partition's.
        machine: Whose files are read and changed.
        config: The topic's.
        epochs: The log's cache: cut at both ends to the log.
        producers: A new one.
        checkpoints: Of the log directory. ``high_watermark`` is not looked at.
        had_clean_shutdown: Whether the log directory was closed cleanly: then only missing files are rebuilt.
        knows_topic: Whether the configuration is the topic's. Else the topic may be compacted, and what lies behind a
            hole stays even if it was never flushed; or be tiered, and ``start-from-tier`` stays as it is.
        syncs_all: Whether all that was recovered is fsynced: the caller does not flush the log from its recovery point
            on, as it does with one that it runs.

    Attributes:
        segments: Those that are open.
    """

    def __init__(
        self,
        folder: LogFolder,
        *,
        machine: Machine,
        config: LogConfig,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        checkpoints: LogCheckpoints,
        had_clean_shutdown: bool,
        knows_topic: bool = True,
        syncs_all: bool = False,
    ) -> None:
        self._folder = folder.path
        self._place = folder
        self._machine = machine
        self._config = config
        self._epochs = epochs
        self._producers = producers
        self._is_point_known = checkpoints.recovery_point is not None
        self._recovery_point = checkpoints.recovery_point or 0
        self._log_start = checkpoints.log_start_offset
        self._was_clean = had_clean_shutdown
        self._report = RecoveryReport()
        self._snapshots = ProducerSnapshots(machine, folder, is_listed=True)
        self._tier_start_file = TierStartFile(machine.files, folder)
        self._recovered: set[int] = set()
        self._has_gaps = False
        self._knows_topic = knows_topic
        self._syncs_all = syncs_all or had_clean_shutdown or checkpoints.recovery_point is None
        self._unsynced: list[LogSegment] = []
        self._has_synced = False
        self._holes: set[int] = set()
        self._split: set[int] = set()
        self.segments = LogSegments()

    def load(self, *, remote_log_enabled: bool = False) -> LoadedLog:
        """Load the log. All that was mended is fsynced on return, the folder included; but what lies behind the
        recovery point, and was found right, only once the log is flushed. After an error or a crash, loading again
        gives the same log.

        Args:
            remote_log_enabled: Whether the log is tiered: it may begin in front of its first segment.

        Raises:
            CorruptRecordError: flushed records cannot be read. StoreError: a file cannot be read or written. Nothing is
                open after an error.
        """
        try:
            return self._load(remote_log_enabled=remote_log_enabled)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        for segment in self.segments:
            segment.close()

    # ---- the steps

    def _load(self, *, remote_log_enabled: bool) -> LoadedLog:
        tier_start = self._finish_tier_start()
        while True:
            listed = tidy_folder(self._machine, self._folder, config=self._config, report=self._report)
            self._snapshots.relist(listed[SegmentFileKind.PRODUCER_SNAPSHOT])
            try:
                self._open_segments(listed)
                self._recover_unflushed()
                break
            except SegmentOverflowError as overflow:
                if overflow.segment.base_offset in self._split:
                    raise CorruptRecordError("its offsets fit no segment").located(overflow.segment.log_path) from None
                self._split.add(overflow.segment.base_offset)
                self._has_gaps = True  # between its pieces
                split_segment(
                    self._machine,
                    self._folder,
                    overflow.segment,
                    config=self._config,
                    report=self._report,
                    next_base_offset=self._base_behind(overflow.segment),
                )
                self._flush_recovered()
                self._close()
        end_offset = self._find_end()
        recovery_point = min(self._recovery_point, end_offset)
        if self._was_clean or not self._is_point_known or self._holes:
            # All was flushed then, or just now: else what stays behind a hole would go at a later start.
            recovery_point = end_offset
            self._flush_recovered()
        first = self.segments.first.base_offset
        log_start = self._log_start if remote_log_enabled else max(self._log_start, first)
        if self._knows_topic:
            may_need_tier = remote_log_enabled and end_offset == max(log_start, first)
            tier_start = self._tier_start_file.settle(tier_start, log_start, may_need_tier=may_need_tier)
        self._cut_epochs(log_start, end_offset)
        self._restore_producers(log_start, end_offset)
        if self._has_synced or any(action.kind != "rebuilt" for action in self._report.actions):
            self._machine.files.fsync_directory(self._folder)
        is_needed = tier_start is not None and tier_start.state is TierStartState.NEEDED
        return LoadedLog(
            place=self._place,
            segments=self.segments,
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=log_start,
            local_log_start_offset=max(log_start, first),
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            report=self._report,
            tier_start=tier_start,
            must_be_rebuilt=remote_log_enabled and (is_needed or self._lacks_lineage(log_start, first)),
        )

    def _flush_recovered(self) -> None:
        """Flush the recovered segments that only wrote out what recovery changed."""
        for segment in self._unsynced:
            segment.flush()
        self._has_synced |= bool(self._unsynced)
        self._unsynced.clear()

    def _finish_tier_start(self) -> TierStart | None:
        """Make the log that ``start-from-tier`` has decided, if a kill came in between; what the file says then."""
        start = self._tier_start_file.read()
        if start is None:
            return None
        latest = self._epochs.latest_entry
        if start.is_unfinished and (self._was_clean or start.is_overtaken(-1 if latest is None else latest.epoch)):
            # Whoever left it unfinished was killed: a broker that does not know the file has run here since.
            self._tier_start_file.remove()
            self._report.add(
                "deleted", self._tier_start_file.path, "another broker has run over an unfinished beginning"
            )
            return None
        if start.is_unfinished:
            self._begin_anew(start)
            start = start.finished()
            self._tier_start_file.write(start)
        log_start = start.log_start_by(self._log_start, was_clean=self._was_clean)
        if start.state is TierStartState.STARTED and log_start == self._log_start:
            mark("loading: the checkpoint has the log start")
            self._tier_start_file.remove()  # the directory's checkpoint has it
            return None
        self._log_start = log_start
        return start

    def _begin_anew(self, start: TierStart) -> None:
        """Remove what a kill left of the log of before, and make an empty one at an offset."""
        files = self._machine.files
        for entry in list(files.iter_directory(self._folder)):
            if not entry.is_directory and find_segment_file(entry.name) is not None:
                files.remove(entry.path)
        files.fsync_directory(self._folder)
        if start.state is TierStartState.STARTING:
            self._epochs.replace(start.epochs)
            self._snapshots.install(start.offset, start.producer_snapshot)
        segment = LogSegment.create(self._machine, self._place, start.offset, config=self._config)
        segment.flush()
        segment.close()
        files.fsync_directory(self._folder)
        self._recovery_point = min(self._recovery_point, start.offset)
        mark("loading: a beginning from the tier is finished")
        self._report.add("started", segment.log_path, f"{start.state.value} from the tier was finished")

    def _lacks_lineage(self, log_start: int, first: int) -> bool:
        """Whether the log begins in the tier, and nobody knows in which epoch."""
        earliest = self._epochs.earliest_entry
        lacks = log_start < first and (earliest is None or earliest.start_offset > log_start)
        if lacks:
            lineage = "nowhere" if earliest is None else f"at {earliest.start_offset}"
            text = f"the log starts at {log_start}, its lineage {lineage}"
            self._report.add("lineage", f"{self._folder}/leader-epoch-checkpoint", text)
            _log.warning("%s: %s: it has to be built anew from the tier", self._folder, text)
        return lacks

    def _open_segments(self, listed: Mapping[SegmentFileKind, Mapping[int, int]]) -> None:
        """Open the segments, and recover those that cannot be used as they are, unless a later step does."""
        sizes = listed[SegmentFileKind.LOG]
        for kind in _INDEXES:
            for base_offset in listed[kind].keys() - sizes.keys():
                self._remove_orphan(segment_file_name(base_offset, kind))
        indexed = listed[SegmentFileKind.OFFSET_INDEX].keys() & listed[SegmentFileKind.TIME_INDEX].keys()
        self.segments = LogSegments(
            LogSegment.open(self._machine, self._place, base_offset, config=self._config, size_bytes=size_bytes)
            for base_offset, size_bytes in sizes.items()
        )
        damaged: list[LogSegment] = []
        for segment in self.segments:
            is_damaged = segment.base_offset not in indexed
            if segment.base_offset in listed[SegmentFileKind.TRANSACTION_INDEX]:
                try:
                    segment.check_transaction_index()
                except CorruptIndexError as error:
                    # Its text: a stored log record would hold the traceback, and with it the segment's files open.
                    _log.warning("%s: %s", segment.transaction_index_path, str(error))
                    is_damaged = True
            if is_damaged or (self._was_clean and segment is self.segments.active and not _is_whole(segment)):
                damaged.append(segment)
        unflushed = () if self._was_clean else self.segments.from_floor(self._recovery_point)
        for segment in damaged:
            if segment not in unflushed:
                self._recover(segment, behind=())

    def _recover_unflushed(self) -> None:
        """Recover, after an unclean stop, all segments behind the recovery point, up to the first bad batch."""
        if self._was_clean:
            return
        unflushed = self.segments.from_floor(self._recovery_point)
        for place, segment in enumerate(unflushed):
            behind = unflushed[place + 1 :]
            if self._recover(segment, behind=behind) or self._remove_behind_hole(segment, behind):
                return

    def _remove_behind_hole(self, segment: LogSegment, behind: Sequence[LogSegment]) -> bool:
        """Remove the segments behind one that lost whole batches from its end; return whether it did.

        A closed segment is synced after the next one has begun, so that a power cut may take its end and leave the
        next: a log with a hole, which no replica would ever fill. All segments behind it then are behind the recovery
        point too. Compaction makes holes as well, within segments too, and in front of flushed batches: where the
        recovery point is unknown, a hole stays. A hole that was there when the next segment began has a recovery point
        behind it (LogContents.roll).
        """
        if not behind or self._config.is_compacted:
            return False
        end_offset, next_offset = segment.read_next_offset(), behind[0].base_offset
        if next_offset <= end_offset:
            return False
        if self._is_point_known and not self._has_gaps and self._knows_topic:
            self._remove(behind, f"the records from {end_offset} on in front of it are lost, and it was never flushed")
            return True
        if end_offset not in self._holes:
            self._holes.add(end_offset)
            text = f"offsets {end_offset} … {next_offset - 1} are in no segment; what lies behind them stays"
            self._report.add("hole", segment.log_path, text)
            _log.warning("%s: %s", self._folder, text)
        return False

    def _recover(self, segment: LogSegment, *, behind: Sequence[LogSegment]) -> bool:
        """Recover a segment; whether it was cut, and with that lost what lies behind it."""
        if segment.base_offset in self._recovered:
            return False
        before = IndexContents.read(self._machine.files, segment)
        is_flushed = self._base_behind(segment) <= self._recovery_point
        if is_flushed:  # no start would recover it again that finds all its files: a crash in here leaves none
            segment.rename_offset_index(DELETED)

        def producers() -> ProducerState:
            state = self._producers.anew()
            earlier = [other for other in self.segments if other.base_offset < segment.base_offset]
            restore_producers(
                segments=LogSegments(earlier),
                producers=state,
                snapshots=self._snapshots,
                log_start_offset=self._log_start,
                up_to_offset=segment.base_offset,
                now_ms=self._machine.clock.time_ms(),
                keep_later_snapshots=True,
            )
            return state

        def remove_behind() -> None:
            self._remove(behind, "behind the first bad batch of the log")
            self._remove_snapshots(behind=segment.base_offset)  # they may have the end of a transaction that is cut off

        outcome, state = recover_segment(
            segment,
            producers=producers,
            epochs=self._epochs,
            before_cut=remove_behind,
            next_base_offset=self._base_behind(segment),
        )
        if is_flushed:
            segment.flush()
            segment.rename_offset_index("")
        self._recovered.add(segment.base_offset)
        self._has_gaps |= outcome.has_gaps
        self._report.batches_checked += outcome.batches
        self._report.bytes_checked += outcome.bytes_read
        if outcome.bytes_cut:
            why = "a batch is cut off there" if outcome.fault is None else str(outcome.fault)
            text = f"at {segment.size_bytes}, offset {segment.read_next_offset()}: {why}"
            self._report.add("cut", segment.log_path, text, bytes_cut=outcome.bytes_cut)
        rebuilt = list(before.changes(IndexContents.read(self._machine.files, segment)))
        for path, text in rebuilt:
            self._report.add("rebuilt", path, text)
        # A log that ends at its recovery point is flushed no more: its old indexes would come back by a power cut.
        is_last_flush = bool(rebuilt) and segment.read_next_offset() <= self._recovery_point
        syncs = self._syncs_all or outcome.bytes_cut > 0 or is_flushed or is_last_flush
        self._has_synced |= syncs
        if syncs and not is_flushed:
            segment.flush()
        elif not syncs:
            segment.write_out()
            self._unsynced.append(segment)
        self._snapshots.take(state, fsync=syncs)
        return outcome.bytes_cut > 0

    def _base_behind(self, segment: LogSegment) -> int:
        """Base offset of the segment behind this one; OFFSET_MAX behind the last."""
        return min((o.base_offset for o in self.segments if o.base_offset > segment.base_offset), default=OFFSET_MAX)

    def _find_end(self) -> int:
        """The log's end. A log whose records all lie in front of its start begins anew there."""
        if len(self.segments):
            end_offset = self.segments.active.read_next_offset()
            if end_offset >= self._log_start:
                return end_offset
            _log.warning("%s: ends at %d, in front of its start %d", self._folder, end_offset, self._log_start)
            self._epochs.clear_and_flush()
            self._snapshots.remove_all()
            self._remove(self.segments.segments, f"it ends at {end_offset}, and the log starts at {self._log_start}")
            self._producers.restart(self._log_start)
        segment = LogSegment.create(self._machine, self._place, self._log_start, config=self._config)
        self.segments = self.segments.with_added(segment)
        segment.flush()
        self._report.add("created", segment.log_path, "the log has no segment")
        return self._log_start

    def _cut_epochs(self, log_start: int, end_offset: int) -> None:
        before = self._epochs.epochs
        # It was cut to a log start that was lost; elsewhere it stays: an epoch may begin where no batch lies.
        whole = complete_from_batches(before, self.segments, log_start_offset=log_start, end_offset=end_offset)
        if whole != self._epochs.epochs:
            self._epochs.replace(whole)
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(log_start)
        if self._epochs.epochs != before:
            text = f"cut to offsets {log_start} … {end_offset}"
            self._report.add("epochs", f"{self._folder}/leader-epoch-checkpoint", text)
        self._epochs.flush()

    def _restore_producers(self, log_start: int, end_offset: int) -> None:
        bases = [segment.base_offset for segment in self.segments]
        none_there = self._snapshots.latest_offset is None
        # First those behind the end: one of them would pass for that of the end, which would go as a stray.
        self._remove_snapshots(behind=end_offset)
        self._remove_stray_snapshots(bases)
        if self._was_clean and none_there:
            # Written by a version without snapshots: they begin here, so that not all of the log has to be read.
            for offset in (*bases[-2:], end_offset):
                self._producers.end_offset = offset
                self._snapshots.take(self._producers)
            return
        restore_producers(
            segments=self.segments,
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=log_start,
            up_to_offset=end_offset,
            now_ms=self._machine.clock.time_ms(),
        )
        self._remove_stray_snapshots(bases)  # the newest one may be stray now: not only at the next start

    def _remove_snapshots(self, *, behind: int) -> None:
        for path in self._snapshots.truncate(log_start_offset=-1, log_end_offset=behind):
            self._report.add("deleted", path, "a snapshot of what the log does not have")

    def _remove_stray_snapshots(self, bases: list[int]) -> None:
        for path in self._snapshots.remove_strays(bases):
            self._report.add("deleted", path, "a snapshot of no segment")

    # ---- files

    def _remove_orphan(self, name: str) -> None:
        path = f"{self._folder}/{name}"
        found = self._machine.files.find(path)
        if found is not None:
            self._machine.files.remove(path)
            self._report.add("deleted", path, "an index without its log", bytes_cut=found.size_bytes)

    def _remove(self, segments: Sequence[LogSegment], why: str) -> None:
        """Take segments out of the log, for good on return."""
        there = [segment for segment in segments if segment in self.segments.segments]
        if not there:
            return
        self.segments = self.segments.without(there)
        for segment in there:
            size = segment.size_bytes
            segment.close()
            segment.delete_files()
            self._report.add("deleted", segment.log_path, why, bytes_cut=size)
            if (aside := self._snapshots.mark_deleted(segment.base_offset)) is not None:
                self._machine.files.remove(aside)
        self._machine.files.fsync_directory(self._folder)


def _is_whole(segment: LogSegment) -> bool:
    """Whether a closed log ends with a batch, as far as the last index entry can show."""
    try:
        last = segment.find_batch(max(segment.base_offset, segment.read_next_offset() - 1))
    except (CorruptRecordError, CorruptIndexError):
        return False
    return segment.size_bytes == (0 if last is None else last.position + last.size_bytes)


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """The initial parts of a UnifiedLog.

    Attributes:
        remote_log_enabled: Whether the broker has tiered storage.
        topic_id: None where neither the caller nor ``partition.metadata`` gave one.
        high_watermark: As it was checkpointed.
        is_tiered: Whether broker and topic say so, and the topic is neither compacted nor internal.
    """

    machine: Machine
    config: LogConfig
    remote_log_enabled: bool
    topic: str
    partition: int
    topic_id: Uuid | None
    loaded: LoadedLog
    epochs: LeaderEpochCache
    high_watermark: int
    is_tiered: bool


def open_folder(
    folder: str,
    *,
    machine: Machine | None,
    config: LogConfig | None,
    producer_settings: ProducerSettings | None,
    checkpoints: LogCheckpoints | None,
    had_clean_shutdown: bool,
    topic_id: Uuid | None,
    remote_log_enabled: bool,
    has_lock: bool,
) -> OpenedFolder:
    """Load the log of a folder; arguments and errors are those of ``UnifiedLog.open``.

    ``has_lock``: the caller holds the lock of the log directory.
    """
    require_opening(machine, config, remote_log_enabled=remote_log_enabled)
    machine, config = machine or Machine(), config or LogConfig()
    folder = require_path("folder", folder)
    settings = ProducerSettings() if producer_settings is None else producer_settings
    require_type("producer_settings", settings, ProducerSettings, "a ProducerSettings")
    checkpoints = LogCheckpoints() if checkpoints is None else checkpoints
    require_type("checkpoints", checkpoints, LogCheckpoints, "a LogCheckpoints")
    require_flag("had_clean_shutdown", had_clean_shutdown)
    require_topic_id(topic_id)
    topic, partition = partition_of(folder)
    if not has_lock:
        check_unlocked(machine.files, folder)
    machine.files.make_directories(folder)
    known_id = agreed_topic_id(machine, folder, topic_id)
    place = LogFolder(machine, folder)
    epochs = LeaderEpochCache(EpochCheckpointFile(machine.files, place), machine=machine)
    tiered = is_tiered(topic, config, broker_tiers=remote_log_enabled)
    loader = LogLoader(
        place,
        machine=machine,
        config=config,
        epochs=epochs,
        producers=ProducerState(settings),
        checkpoints=checkpoints,
        had_clean_shutdown=had_clean_shutdown,
    )
    loaded = loader.load(remote_log_enabled=tiered)
    return OpenedFolder(
        machine=machine,
        config=config,
        remote_log_enabled=remote_log_enabled,
        topic=topic,
        partition=partition,
        topic_id=known_id,
        loaded=loaded,
        epochs=epochs,
        high_watermark=checkpoints.high_watermark,
        is_tiered=tiered,
    )


def require_opening(machine: object, config: object, *, remote_log_enabled: object) -> None:
    """Check the arguments with which a log, or a directory of logs, is opened. Raises TypeError."""
    require_type("machine", machine, (Machine, type(None)), "a Machine")
    require_type("config", config, (LogConfig, type(None)), "a LogConfig")
    require_flag("remote_log_enabled", remote_log_enabled)
