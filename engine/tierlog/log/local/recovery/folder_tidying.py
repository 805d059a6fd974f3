"""Deletions, cleanings and swaps that a crash interrupted, finished or undone by the names that they left.

A cleaner, or a split, writes new segments as ``.cleaned``, fsyncs them, renames them to ``.swap`` from the highest to
the lowest, deletes what they replace and takes the suffix away. So with a ``.cleaned`` file the swap had not begun:
what is new goes. Without one it is finished. The folder is fsynced between the steps, so that a crash in here leaves
one of the states that are understood here.

Source: Kafka LogLoader#removeTempFilesAndCollectSwapFiles and #load, LocalLog#replaceSegments.
"""

from __future__ import annotations

from typing import Final

from tierlog.log.formats.segment_files import SegmentFileKind, SegmentFileName, find_segment_file
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.recovery.recovery_report import RecoveryReport
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
#: KRaft's own, of its snapshots: whoever keeps the metadata log sees to them.
_KRAFT_DELETED: Final = ".checkpoint.deleted"


def tidy_folder(machine: Machine, folder: str, *, config: LogConfig, report: RecoveryReport) -> None:
    """Bring a log's folder into a state in which every file counts.

    Raises:
        CorruptRecordError: a segment that was about to be swapped in cannot be read. StoreError.
    """
    _Tidying(machine, folder, config, report).run()


class _Tidying:
    """One call of tidy_folder."""

    def __init__(self, machine: Machine, folder: str, config: LogConfig, report: RecoveryReport) -> None:
        self._machine = machine
        self._files = machine.files
        self._folder = folder
        self._config = config
        self._report = report

    def run(self) -> None:
        swaps = self._remove_what_did_not_count()
        if not swaps:
            return
        self._files.fsync_directory(self._folder)  # what is replaced goes only when what replaces it stays
        self._remove_replaced(swaps)
        self._files.fsync_directory(self._folder)
        for name in sorted(swaps, key=lambda swap: (swap.base_offset, swap.kind is SegmentFileKind.LOG)):
            path = self._path(name)
            self._files.rename(path, path.removesuffix(SWAP), durable=False)
            self._report.add("swapped", path.removesuffix(SWAP), "an interrupted swap was finished")
            if name.kind is SegmentFileKind.LOG:  # from the lowest up: one between two .swap files would count as old
                self._files.fsync_directory(self._folder)
        self._files.fsync_directory(self._folder)

    def _remove_what_did_not_count(self) -> list[SegmentFileName]:
        """Delete what was on its way out, or in and not whole; what is to be swapped in."""
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
        """The offsets of a segment that is to be swapped in: [first, behind)."""
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
