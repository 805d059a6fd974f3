"""Whether a log on the disk is already the one that an export would write."""

from __future__ import annotations

import numpy as np

from tierlog.errors import CorruptRecordError
from tierlog.log.checks.index_builder import IndexBuilder
from tierlog.records.batch_runs import BatchColumns, BatchRuns
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.runtime.machine.files import Files
from tierlog.upkeep.verify.file_windows import iter_file_windows


def find_complete(
    files: Files, path: str, segment: StoredSegment, *, base_offset: int, end_offset_exclusive: int, whole: bool
) -> IndexBuilder | None:
    """The indexes of the log at ``path`` if it is complete, else None.

    Complete: of the segment's size (if all of it counts), every checksum right, offsets within [base, end) and up to
    its end, each batch in the leader epoch that the segment had there. The tier is not read.
    """
    found = files.find(path)
    if found is None or found.is_directory or (whole and found.size_bytes != segment.size_bytes):
        return None
    builder = IndexBuilder(base_offset)
    runs = BatchRuns(iter_file_windows(files, path), verify_crc=True)
    last_offset = base_offset - 1
    for run in runs:
        if not (bool(run.columns["crc_ok"].all()) and _in_epochs(run.columns, segment)):
            return None
        try:
            builder.add(run.columns)  # refuses offsets that do not rise from the base
        except CorruptRecordError:
            return None
        last_offset = int(run.columns["last_offset"][-1])
    ends_there = last_offset < end_offset_exclusive if whole else last_offset == end_offset_exclusive - 1
    return builder if ends_there and not runs.rest and not runs.stopped else None


def _in_epochs(table: BatchColumns, segment: StoredSegment) -> bool:
    """Whether batches are of the expected epochs: segments of two branches can agree in size and offsets, never in
    epochs.
    """
    pairs = sorted(segment.metadata.segment_leader_epochs.items())
    if not pairs:
        return True
    epochs = np.array([epoch for epoch, _ in pairs], np.int64)
    starts = np.array([start for _, start in pairs], np.int64)
    place = np.searchsorted(starts, table["base_offset"].astype(np.int64), side="right") - 1
    found = table["leader_epoch"].astype(np.int64)
    return bool(((found < 0) | (place < 0) | (found == epochs[np.maximum(place, 0)])).all())
