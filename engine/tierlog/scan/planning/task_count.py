"""At least so many tasks, down to one batch each: cuts as fine as a request for a number of tasks needs them.

An offset index has an entry for every few KiB at best. Where its entries are too few, the headers of the batches
themselves say where they begin, of logs that are small enough to be read for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.runtime.machine.scheduling import run_all
from tierlog.scan.planning.batch_borders import BatchBorders
from tierlog.scan.planning.range_cutting import CutPiece, RangeCutter, WantedOffsets
from tierlog.scan.scan_range import ScanRange

#: Log bytes that are read for the borders of their batches, at most.
WALKED_BYTES_MAX: Final = 512 << 20
_CONCURRENCY: Final = 16
_INT64_MAX: Final = 2**63 - 1


def cut_into(cutter: RangeCutter, wanted: Sequence[WantedOffsets], least: int) -> list[ScanRange]:
    """The ranges of some partitions, in their order, by offset: at least ``least``, or one for each batch.

    A log whose batches cannot be told is left as its index divides it: that is told by who reads it, or in a warning.

    Raises:
        CorruptDataError, StoreError and their kinds: as ``RangeCutter.iter_ranges``.
    """
    ranges = list(cutter.iter_ranges(wanted))
    if len(ranges) >= least:
        return ranges
    pieces = list(cutter.iter_pieces(wanted))
    if _count(cutter, pieces, 1) < least:
        pieces = _walked(cutter, pieces, least)
    size = _size(cutter, pieces, least)
    return [each for piece in pieces for each in cutter.iter_cut(piece, size)]


def _size(cutter: RangeCutter, pieces: Sequence[CutPiece], least: int) -> int:
    """The largest size of a range that makes ranges enough; 1, a batch each, where none does."""
    size = cutter.max_bytes
    while size > 1 and _count(cutter, pieces, size) < least:
        size //= 2
    return max(1, size)


def _count(cutter: RangeCutter, pieces: Sequence[CutPiece], max_bytes: int) -> int:
    return sum(1 for piece in pieces for _ in cutter.iter_bounds(piece, max_bytes))


def _walked(cutter: RangeCutter, pieces: Sequence[CutPiece], least: int) -> list[CutPiece]:
    """The pieces with the borders of all their batches."""
    size_bytes = sum(end - start for start, end in map(_extent, pieces))
    if size_bytes > WALKED_BYTES_MAX:
        why = f"offset indexes divide the log no further, and {size_bytes} bytes of it are not read for that"
        cutter.warn(f"{_count(cutter, pieces, 1)} tasks, not {least}: {why}")
        return list(pieces)
    with cutter.tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-walk") as pool:
        return list(run_all(pool, lambda piece: _with_batches(cutter.tier, piece), pieces))


def _extent(piece: CutPiece) -> tuple[int, int]:
    """Positions [start, end) of what is read of a piece."""
    if piece.borders is None or piece.first_offset >= piece.end_offset_exclusive:
        return 0, 0
    start = piece.borders.start_position(piece.first_offset)
    return start, piece.borders.end_position(piece.end_offset_exclusive)


def _with_batches(tier: Tier, piece: CutPiece) -> CutPiece:
    """What follows a fault stays one range: it is told by who reads it."""
    start, end = _extent(piece)
    offsets: list[int] = []
    positions: list[int] = []
    segment = piece.piece.span.segment
    at, is_sound = start, True
    try:
        for run in iter_batch_runs(tier, segment, start, end):
            last = run.column("last_offset")
            before = [offsets[-1] if offsets else segment.start_offset - 1, *last[:-1].tolist()]
            is_sound &= bool((run.column("base_offset") > before).all() and last[-1] <= segment.end_offset)
            offsets += run.column("last_offset").tolist()
            positions += run.column("position").tolist()
            at = positions[-1] + int(run.column("size_bytes")[-1])
    except (CorruptDataError, ObjectNotFoundError):
        offsets.append(_INT64_MAX)
        positions.append(at)
    if (
        piece.borders is None
        or not offsets
        or not is_sound
        or any(one >= other for one, other in itertools.pairwise(offsets))
    ):
        return piece
    size_bytes = piece.borders.size_bytes
    return replace(piece, borders=BatchBorders(np.array(offsets), np.array(positions), size_bytes, complete=True))
