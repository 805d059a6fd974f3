"""A segment's own description against its log: offsets, leader epochs, the largest timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tierlog.log.checks.checked_run import CheckedRun, Walk
from tierlog.log.checks.findings import Finding, fault, note


class EpochCheck:
    """Checks that each batch was written in the leader epoch that a checkpoint gives to its offset.

    Args:
        epochs: Epoch to start offset. Batches below the first start, or of an unknown epoch (-1), are not judged.
        source: Name of the checkpoint, for messages.
    """

    def __init__(self, epochs: Mapping[int, int], where: str, source: str) -> None:
        pairs = sorted(epochs.items())
        self._epochs = np.array([epoch for epoch, _ in pairs], np.int64)
        self._starts = np.array([start for _, start in pairs], np.int64)
        self._where = where
        self._source = source
        self._said: set[tuple[int, int]] = set()

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        if not len(self._epochs):
            return
        offsets, found = run.column("base_offset"), run.column("leader_epoch")
        place = np.searchsorted(self._starts, offsets, side="right") - 1
        expected = self._epochs[np.maximum(place, 0)]
        for batch in np.flatnonzero(run.sound & (place >= 0) & (found >= 0) & (found != expected)).tolist():
            pair = (int(expected[batch]), int(found[batch]))
            if pair not in self._said:  # once a pair, not once a batch
                self._said.add(pair)
                yield fault(
                    "LEADER_EPOCH",
                    f"leader epoch of the batch differs from {self._source}",
                    self._where,
                    position=int(run.column("position")[batch]),
                    offset=int(offsets[batch]),
                    expected=pair[0],
                    found=pair[1],
                )

    def finish(self, _walk: Walk, /) -> Iterator[Finding]:
        yield from ()


class RangeCheck:
    """Checks that offsets lie within those of the segment's description. Gaps between batches are legal, and counted.

    Args:
        start_offset: Lowest offset that may be in the log; None if unknown.
        end_offset: Last offset, inclusive, of the description; None if it was read from this very log.
        max_timestamp_ms: Largest timestamp of the description; None if unknown.
    """

    def __init__(
        self, where: str, *, start_offset: int | None, end_offset: int | None, max_timestamp_ms: int | None
    ) -> None:
        self._where = where
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._max_timestamp_ms = max_timestamp_ms
        self._last_offset = -1
        self._newest = -1
        self._gaps = 0
        self._first_gap = (-1, -1)

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        if self._start_offset is not None:
            yield from self._below(run, self._start_offset)
        self._count_gaps(run)
        if run.sound.any():
            self._last_offset = max(self._last_offset, int(run.column("last_offset")[run.sound].max()))
            self._newest = max(self._newest, int(run.column("max_timestamp")[run.sound].max()))

    def _below(self, run: CheckedRun, start_offset: int) -> Iterator[Finding]:
        low = np.flatnonzero(run.sound & (run.column("last_offset") < start_offset))
        if len(low):
            batch = int(low[0])
            yield fault(
                "SEGMENT_OFFSET",
                "the batch lies below the base offset of its segment",
                self._where,
                position=int(run.column("position")[batch]),
                offset=int(run.column("base_offset")[batch]),
                expected=f"at least {start_offset}",
                found=int(run.column("last_offset")[batch]),
            )

    def _count_gaps(self, run: CheckedRun) -> None:
        before = np.concatenate(([self._last_offset], run.column("last_offset")[:-1]))
        gaps = np.flatnonzero(run.sound & (before >= 0) & (run.column("base_offset") > before + 1))
        if len(gaps) and not self._gaps:
            first = int(gaps[0])
            self._first_gap = (int(before[first]) + 1, int(run.column("base_offset")[first]))
        self._gaps += len(gaps)

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        if self._gaps:
            first, end = self._first_gap
            yield note(
                "OFFSET_GAP",
                f"{self._gaps} gaps between batches (legal after compaction), the first from {first} to {end - 1}",
                self._where,
                offset=first,
            )
        if not walk.complete or self._last_offset < 0:
            return
        if self._end_offset is not None and self._last_offset != self._end_offset:
            above = self._last_offset > self._end_offset
            yield (fault if above else note)(
                "SEGMENT_OFFSET" if above else "OFFSET_GAP",
                "the last offset of the log is not the end offset of the segment's description",
                self._where,
                position=walk.end_position,
                expected=self._end_offset,
                found=self._last_offset,
            )
        if self._max_timestamp_ms is not None and self._newest >= 0 and self._newest != self._max_timestamp_ms:
            yield note(
                "MAX_TIMESTAMP",
                "the largest timestamp of the log is not that of the segment's description",
                self._where,
                expected=self._max_timestamp_ms,
                found=self._newest,
            )
