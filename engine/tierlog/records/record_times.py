"""The times of the records of each batch, which a header tells in part: the greatest, and the first record's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from tierlog.errors import CorruptRecordError, SizeLimitError
from tierlog.records.batch_runs import BatchRun
from tierlog.records.batch_table import CONTROL, LOG_APPEND_TIME

if TYPE_CHECKING:
    import pyarrow as pa

    from tierlog._native.decoding import RecordDecoder

Int64s = NDArray[np.int64]

#: What one batch may decompress to; the times of a larger one stay unknown.
DECOMPRESSED_BYTES_MAX: Final = 16 << 20
#: Batches of one run that cannot be read; behind so many nothing more of it is tried.
_FAULTS_MAX: Final = 100


class RecordTimes:
    """The least and the greatest timestamp of each batch of a run, n of them, as decoded rows are added.

    Args:
        positions: int64[n]: of the batches, ascending.

    Attributes:
        least, greatest: int64[n], ms; 2^63-1 and -2^63 of a batch without rows.
    """

    def __init__(self, positions: Int64s) -> None:
        self._positions = positions
        self.least = np.full(len(positions), 2**63 - 1, np.int64)
        self.greatest = np.full(len(positions), -(2**63), np.int64)

    def add(self, rows: pa.RecordBatch) -> Int64s:
        """Add rows with the columns ``timestamp`` (ms) and ``batchPosition``, at least one.

        Returns:
            int64[rows]: the number of each row's batch in the run.
        """
        positions = rows.column("batchPosition").to_numpy()
        timestamps = rows.column("timestamp").cast("int64").to_numpy()
        firsts = np.flatnonzero(np.diff(positions, prepend=positions[0] - 1))
        batches = np.searchsorted(self._positions, positions[firsts])
        # A batch of many records is given in several pieces, but once in each.
        self.least[batches] = np.minimum(self.least[batches], np.minimum.reduceat(timestamps, firsts))
        self.greatest[batches] = np.maximum(self.greatest[batches], np.maximum.reduceat(timestamps, firsts))
        return np.repeat(batches, np.diff(firsts, append=len(positions)))


def least_timestamps(
    run: BatchRun, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> tuple[Int64s, NDArray[np.bool_]]:
    """Return the least timestamp of the records of each batch, which no header of CreateTime has.

    Args:
        run: Batches of magic 2; their checksums are the caller's to check.
        decompressed_bytes_max: Larger batches are not looked at.

    Returns:
        Timestamps, int64[n], ms, and whether each is known: of a batch that could be read, and whose header tells the
        greatest of its records. Of control batches, and of batches without records, the header's greatest.

    Cost: records of CreateTime are decompressed and walked, those of others not. Memory: one decompressed batch.
    """
    greatest = run.column("max_timestamp")
    told = (run.column("attributes") & (CONTROL | LOG_APPEND_TIME)) != 0
    told |= run.column("record_count") == 0
    if told.all():
        return greatest, told
    times = _decoded(run, decompressed_bytes_max)
    known = told | (times.greatest == greatest)
    return np.where(told | ~known, greatest, times.least), known


def _decoded(run: BatchRun, decompressed_bytes_max: int) -> RecordTimes:
    from tierlog._native.decoding import RecordDecoder  # loads Arrow, which a broker's copies do without as a rule

    times = RecordTimes(run.column("position"))
    decoder = RecordDecoder(
        ["timestamp", "batchPosition"],
        base_position=run.position,
        verify_crc=False,
        from_offset=-(2**63),
        decompressed_limit=decompressed_bytes_max,
    )
    feed = decoder.feed(run.data)
    for _ in range(_FAULTS_MAX):
        try:
            for rows in feed:
                times.add(rows)
            for rows in decoder.finish():
                times.add(rows)
            break
        except (CorruptRecordError, SizeLimitError):
            if not _skipped(decoder):
                break
            feed = decoder.feed(b"")
    return times


def _skipped(decoder: RecordDecoder) -> bool:
    try:
        decoder.skip_batch()
    except (CorruptRecordError, ValueError):
        return False
    return True
