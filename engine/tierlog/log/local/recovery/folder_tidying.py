"""Deletions, cleanings and swaps that a crash interrupted, finished or undone by the names that they left.

The split of a segment whose offsets do not fit its indexes is such a swap.

A cleaner, or a split, writes new segments as ``.cleaned``, fsyncs them, renames them to ``.swap`` from the highest to
the lowest, deletes the replaced ones and removes the suffix. So with a ``.cleaned`` file the swap had not begun: the
new files are deleted. Without one it is finished. The folder is fsynced between the steps, so that a crash in here
leaves one of the states that are known here.

Source: Kafka LogLoader#removeTempFilesAndCollectSwapFiles and #load, LocalLog#replaceSegments,
#splitOverflowedSegment (KAFKA-6264).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tierlog.arguments import INT32_MAX
from tierlog.errors import CorruptRecordError
from tierlog.log.formats.segment_files import SegmentFileKind, SegmentFileName, find_segment_file, group_segment_files
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.recovery.segment_recovery import RecoveryReport
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.records.batch_runs import BatchRun, BatchRuns
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
#: The endings of files that do not count as they are.
_PASSING: Final = (DELETED, CLEANED, SWAP, TEMPORARY_SUFFIX)
#: KRaft's own, of its snapshots: the owner of the metadata log deletes them.
_KRAFT_DELETED: Final = ".checkpoint.deleted"


def tidy_folder(
    machine: Machine, folder: str, *, config: LogConfig, report: RecoveryReport
) -> dict[SegmentFileKind, dict[int, int]]:
    """Bring a log's folder into a state in which every file counts; the segments' files then, by kind and base offset,
    those of logs with their sizes.

    Raises:
        CorruptRecordError: a segment that was about to be swapped in cannot be read. StoreError.
    """
    listed = machine.files.list_files(folder, sized=SegmentFileKind.LOG.value)
    if any(name.endswith(_PASSING) for name, _ in listed):
        _Tidying(machine, folder, config, report).run()
        listed = machine.files.list_files(folder, sized=SegmentFileKind.LOG.value)
    return group_segment_files(listed)


class _Tidying:
    """One call of tidy_folder."""

    def __init__(self, machine: Machine, folder: str, config: LogConfig, report: RecoveryReport) -> None:
        self._machine = machine
        self._files = machine.files
        self._folder = folder
        self._config = config
        self._report = report

    def run(self) -> None:
        self._have_lost_transactions_rebuilt()
        swaps = self._remove_what_did_not_count()
        if not swaps:
            return
        self._files.fsync_directory(self._folder)  # replaced files are deleted only when the new ones are durable
        self._remove_replaced(swaps)
        self._files.fsync_directory(self._folder)
        for name in sorted(swaps, key=lambda swap: (swap.base_offset, swap.kind is SegmentFileKind.LOG)):
            path = self._path(name)
            self._files.rename(path, path.removesuffix(SWAP), durable=False)
            self._report.add("swapped", path.removesuffix(SWAP), "an interrupted swap was finished")
            if name.kind is SegmentFileKind.LOG:  # from the lowest up: one between two .swap files would count as old
                self._files.fsync_directory(self._folder)
        self._files.fsync_directory(self._folder)

    def _have_lost_transactions_rebuilt(self) -> None:
        """Remove the offset index of a segment whose deletion a power cut undid but for its transaction index, durably:
        loading rebuilds both then. Of a transaction index it cannot tell whether there was one.
        """
        listed = self._files.list_files(self._folder)
        there, ending = group_segment_files(listed), f"{SegmentFileKind.TRANSACTION_INDEX.value}{DELETED}"
        gone = {name.base_offset for path, _ in listed if path.endswith(ending) and (name := find_segment_file(path))}
        halves = gone & there[SegmentFileKind.LOG].keys() - there[SegmentFileKind.TRANSACTION_INDEX].keys()
        for base_offset in sorted(halves):
            index = SegmentFileName(base_offset, SegmentFileKind.OFFSET_INDEX)
            self._delete_named(index, "the segment's deletion was interrupted behind its transaction index")
        if halves:
            self._files.fsync_directory(self._folder)

    def _remove_what_did_not_count(self) -> list[SegmentFileName]:
        """Delete files that were being deleted, or are incomplete; return those to swap in."""
        cleaned: list[SegmentFileName] = []
        swaps: list[SegmentFileName] = []
        for entry in list(self._files.iter_directory(self._folder)):
            if entry.is_directory:
                continue
            if entry.name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(entry.path)
            elif entry.name.endswith(DELETED) and not entry.name.endswith(_KRAFT_DELETED):
                self._delete(entry.path, entry.size_bytes, "an interrupted deletion was finished")
            elif (name := find_segment_file(entry.name)) is not None and name.transient:
                (cleaned if name.transient == "cleaned" else swaps).append(name)
        begin = min((name.base_offset for name in cleaned), default=None)
        if begin is None:
            return swaps
        undone = [name for name in swaps if name.base_offset >= begin]
        for name in undone:
            self._delete_named(name, "an interrupted cleaning was undone")
        if undone:
            self._files.fsync_directory(self._folder)  # without its .cleaned such a swap looks like a whole one
        for name in cleaned:
            self._delete_named(name, "an interrupted cleaning was undone")
        return [name for name in swaps if name.base_offset < begin]

    def _remove_replaced(self, swaps: list[SegmentFileName]) -> None:
        bounds = [self._range_of(name) for name in swaps if name.kind is SegmentFileKind.LOG]
        if not bounds:
            return  # the log has its name already; its indexes follow
        first, behind = min(low for low, _ in bounds), max(high for _, high in bounds)
        for entry in list(self._files.iter_directory(self._folder)):
            name = None if entry.is_directory else find_segment_file(entry.name)
            if name is not None and name.transient != "swap" and first <= name.base_offset < behind:
                self._delete(entry.path, entry.size_bytes, "it was replaced by an interrupted swap")

    def _range_of(self, name: SegmentFileName) -> tuple[int, int]:
        """Return the offsets of a segment that is to be swapped in: [first, behind)."""
        segment = LogSegment.open(self._machine, self._folder, name.base_offset, config=self._config, suffix=SWAP)
        try:
            return name.base_offset, segment.read_next_offset()
        finally:
            segment.close()

    def _delete_named(self, name: SegmentFileName, why: str) -> None:
        path = self._path(name)
        found = self._files.find(path)
        if found is not None:
            self._delete(path, found.size_bytes, why)

    def _delete(self, path: str, size_bytes: int, why: str) -> None:
        self._files.remove(path)
        self._report.add("deleted", path, why, bytes_cut=size_bytes)

    def _path(self, name: SegmentFileName) -> str:
        return f"{self._folder}/{name}"


#: A segment that would fall into more pieces was not written by a broker.
PIECES_MAX: Final = 1024


def split_segment(
    machine: Machine,
    folder: str,
    segment: LogSegment,
    *,
    config: LogConfig,
    report: RecoveryReport,
    next_base_offset: int,
) -> None:
    """Replace a segment by several with the same batches, whose indexes can name all offsets.

    The new ones are left as ``.swap`` files, durably: the swap is finished by ``tidy_folder``, as after a crash. Bytes
    behind the last sound batch are copied too: recovery has to find them, and to cut there.

    Raises:
        CorruptRecordError: it would fall into too many pieces, or has offsets of the next segment, which the swap would
            take for replaced: a base offset is damaged then, too. StoreError. The log is as it was.
    """
    pieces: list[LogSegment] = []

    def create(base_offset: int) -> LogSegment:
        return LogSegment.create(machine, folder, base_offset, config=config, suffix=CLEANED)

    try:
        for run, first, behind, base_offset in _cuts(segment, next_base_offset):
            if base_offset is not None:
                if len(pieces) >= PIECES_MAX:
                    text = f"its offsets are so far apart that it would fall into more than {PIECES_MAX} segments"
                    raise CorruptRecordError(text, fault="BAD_OFFSET").located(segment.log_path)
                if not pieces and base_offset != segment.base_offset:  # an empty one replaces the segment itself
                    pieces.append(create(segment.base_offset))
                pieces.append(create(base_offset))
            start = int(run.columns["position"][first]) - run.position
            end = int(run.columns["position"][behind - 1] + run.columns["size_bytes"][behind - 1]) - run.position
            columns = {name: column[first:behind] for name, column in run.columns.items()}
            pieces[-1].append_run(run.data[start:end], columns)
        for piece in pieces:
            piece.on_become_inactive()
            piece.flush()
        _copy_rest(machine, segment, pieces)
        machine.files.fsync_directory(folder)
        for piece in reversed(pieces):  # with the lowest .cleaned still there, all of it would be undone
            piece.change_suffix(SWAP)
            machine.files.fsync_directory(folder)
    finally:
        for piece in pieces:
            piece.close()
    text = f"its offsets do not fit one segment: {len(pieces)} of the same batches"
    report.add("split", segment.log_path, text)


def _copy_rest(machine: Machine, segment: LogSegment, pieces: list[LogSegment]) -> None:
    position = sum(piece.size_bytes for piece in pieces)
    if position < segment.size_bytes:
        with machine.files.open_update(pieces[-1].log_path) as file:
            for window in segment.iter_windows(position):
                file.append(window)
            file.fsync()


def _cuts(segment: LogSegment, end_offset: int) -> Iterator[tuple[BatchRun, int, int, int | None]]:
    """(run, first row, row behind, base offset of the segment that begins with it, None if it goes on) in order."""
    base: int | None = None
    next_offset = segment.base_offset
    for run in BatchRuns(segment.iter_windows(), verify_crc=True):
        last_offsets = run.column("last_offset")
        rising = np.diff(last_offsets, prepend=next_offset - 1) > 0
        good = rising & run.columns["crc_ok"].astype(bool)
        count = len(last_offsets) if good.all() else int(np.argmin(good))
        if count and last_offsets[count - 1] >= end_offset:
            text = f"a batch ends at offset {last_offsets[count - 1]}, and the next segment begins at {end_offset}"
            raise CorruptRecordError(text, fault="BAD_OFFSET").located(segment.log_path)
        row = 0
        while row < count:
            begins = None
            last = int(last_offsets[row])
            if base is None or last - base > INT32_MAX:
                if base is None and last - segment.base_offset <= INT32_MAX:
                    base = segment.base_offset
                else:  # a compressed batch of an old format has its last offset alone
                    base = max(min(int(run.column("base_offset")[row]), last), next_offset, last - INT32_MAX)
                begins = base
            rest = np.asarray(last_offsets[row:count] - base > INT32_MAX, bool)
            behind = row + (int(np.argmax(rest)) if rest.any() else count - row)
            yield run, row, behind, begins
            next_offset = int(last_offsets[behind - 1]) + 1
            row = behind
        if count < len(last_offsets):
            return
