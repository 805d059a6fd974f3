"""The leader epochs of records as their batches have them: of those that are there again, since the log start that had
taken them was lost, while the lineage stays cut to it; and of all, where the file of the lineage was lost.
"""

from __future__ import annotations

import logging

import numpy as np

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.segments.log_segment import LogSegments
from tierlog.records.batch_runs import BatchRuns

_log = logging.getLogger(__name__)
_EPOCHS_MAGIC = 2


def complete_from_batches(
    epochs: LeaderEpochs, segments: LogSegments, *, log_start_offset: int, end_offset: int
) -> LeaderEpochs:
    """Return a log's epochs back to the first record that it has here; as they are, where nobody can know these.

    Args:
        epochs: Of the log.
        segments: Of the log.
        log_start_offset: Of the log.
        end_offset: Of the log.
    """
    first = epochs.earliest
    start = max(log_start_offset, segments.first.base_offset) if len(segments) else 0
    known_from = end_offset if first is None else first.start_offset
    if not len(segments) or known_from <= start:
        return epochs
    try:
        found = _read(segments, start, known_from)
        begin = found.earliest
        if first is None or begin is None:
            return epochs if begin is None else found
        return epochs.continuing(found, begin.start_offset, known_from)
    except (CorruptRecordError, ValueError) as error:
        _log.warning("offsets %d … %d: their epochs are not known: %s", start, known_from - 1, str(error))
        return epochs


def _read(segments: LogSegments, from_offset: int, up_to_offset: int) -> LeaderEpochs:
    """The epochs of the batches of a range; none, where its first batch is of a format without them. Raises
    CorruptRecordError.
    """
    found = LeaderEpochs()
    for segment in segments.between(from_offset, up_to_offset):
        runs = BatchRuns(segment.iter_windows())
        for run in runs:
            bases = run.column("base_offset")
            epochs = np.where(run.column("magic") >= _EPOCHS_MAGIC, run.column("leader_epoch"), -1)
            inside = np.flatnonzero((run.column("last_offset") >= from_offset) & (bases < up_to_offset))
            if found.latest is None and len(inside) and epochs[inside[0]] < 0:
                return found
            known = -1 if found.latest is None else found.latest.epoch
            highest = np.maximum.accumulate(np.concatenate(([known], epochs[inside])))
            for row in inside[np.flatnonzero(np.diff(highest))].tolist():  # where a later epoch begins
                found = found.assign(int(epochs[row]), max(int(bases[row]), from_offset))
            if len(bases) and bases[-1] >= up_to_offset:
                return found
        if runs.broken is not None:
            raise runs.broken.located(segment.log_path)
    return found
