"""One segment recovered: every batch read and checked, its indexes rebuilt, and cut at the first bad batch.

Source: Kafka LogSegment#recover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.batches import RangeCheck
from tierlog.errors import CorruptRecordError
from tierlog.log.formats.segment_files import OFFSET_MAX
from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.log_config import INT32_MAX
from tierlog.log.local.producers.producer_replay import ProducerReplay
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine.buffers import new_buffer

#: Of one read: it stays in a processor's cache until its checksums are done.
WINDOW_BYTES: Final = 1 << 20
_ROWS_HELD: Final = 8192
_WINDOWS_HELD: Final = 64
_EPOCHS_MAGIC: Final = 2

Columns = Mapping[str, NDArray[Any]]


class SegmentOverflowError(Exception):
    """A sound batch lies too far behind its segment's base offset: no index of the segment can name it.

    Brokers before 2.0 left such segments (KAFKA-6264); they are split. It does not leave this room.
    """

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(segment.log_path)
        self.segment = segment


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """What became of a segment.

    Attributes:
        fault: Of the batch where it was cut; None if that was cut off already, or nothing is wrong.
        has_gaps: Whether offsets are missing between its batches, as compaction leaves them.
    """

    batches: int
    bytes_read: int
    bytes_cut: int
    fault: CorruptRecordError | None
    has_gaps: bool


def recover_segment(
    segment: LogSegment,
    *,
    producers: Callable[[], ProducerState],
    epochs: LeaderEpochCache,
    before_cut: Callable[[], None],
    next_base_offset: int = OFFSET_MAX,
) -> tuple[RecoveredSegment, ProducerState]:
    """Recover a segment; nothing is fsynced. The state of the producers behind it goes with the outcome.

    Args:
        segment: Its indexes are rebuilt, whatever they are.
        producers: The state in front of the segment, a new one at each call.
        epochs: Takes the epochs that begin in the segment.
        before_cut: Called before bytes are cut off: whatever lies behind them in the log has to go first, for good,
            since after the cut nothing shows any more that it must.
        next_base_offset: Of the segment behind it, which has the offsets from there on: a batch that says otherwise is
            damaged, for no checksum covers its base offset.

    Raises:
        SegmentOverflowError: the segment has to be split. StoreError.
    """
    cut = 0
    fault: CorruptRecordError | None = None
    while True:
        state = producers()
        passed = _Pass(segment, state, epochs.latest_epoch, next_base_offset)
        valid, wrong = passed.run()
        fault = fault or wrong
        size = segment.size_bytes
        if valid < size:
            before_cut()
            segment.truncate_log(valid)
            cut += size - valid
        if not passed.must_repeat:
            break
    if fault is not None:
        fault = fault.located(segment.log_path)
    segment.on_become_inactive()
    epochs.assign_all(passed.epochs)
    return RecoveredSegment(passed.batches, passed.bytes_read, cut, fault, passed.has_gaps), state


class _Pass:
    """One reading of a segment.

    Attributes:
        must_repeat: The indexes were built over batches that are cut off now.
        epochs: (epoch, first offset) that begin in the segment.
        has_gaps: Whether offsets are missing between batches, or in front of the first.
    """

    def __init__(
        self, segment: LogSegment, state: ProducerState, latest_epoch: int | None, next_base_offset: int
    ) -> None:
        self._segment = segment
        self._end_offset = next_base_offset
        self._replay = ProducerReplay(state, read=self._read)
        self._latest_epoch = -1 if latest_epoch is None else latest_epoch
        self.epochs: list[tuple[int, int]] = []
        self.batches = 0
        self.bytes_read = 0
        self.must_repeat = False
        self.has_gaps = False
        self._next_offset = segment.base_offset

    def run(self) -> tuple[int, CorruptRecordError | None]:
        """(bytes of the log that are sound, what is wrong with the batch behind them)."""
        try:
            return self._read_all()
        except CorruptRecordError as error:  # of a producer: found when later batches have been indexed already
            self.must_repeat = True
            return error.position, error

    def _read_all(self) -> tuple[int, CorruptRecordError | None]:
        segment = self._segment
        segment.begin_rebuild()
        size = segment.size_bytes
        check = RangeCheck(
            position=0,
            first_offset=segment.base_offset,
            last_offset=min(segment.base_offset + INT32_MAX, self._end_offset - 1),
            size_bytes=size,
            kind=CorruptRecordError,
        )
        buffer = new_buffer(min(WINDOW_BYTES, size))
        found: tuple[str, Any] | None = None
        windows = 0
        while self.bytes_read < size and found is None:
            count = segment.read_into(buffer, position=self.bytes_read)
            if not count:
                break
            found = check.gather(buffer[:count])
            self.bytes_read += count
            windows += 1
            if check.gathered >= _ROWS_HELD or windows >= _WINDOWS_HELD:  # a thousand batches cost little more than one
                windows = 0
                self._take(check.take())
        self._take(check.take())
        segment.append_aborted(self._replay.finish())
        if found is None:
            return check.end_position, None
        rule, fault = found
        fits_no_index = segment.base_offset + INT32_MAX < fault.found < self._end_offset
        if rule == "order" and fault.base_offset >= fault.expected and fits_no_index:
            raise SegmentOverflowError(segment)
        return fault.position, fault

    def _take(self, columns: Columns) -> None:
        if not len(columns["position"]):
            return
        self.batches += len(columns["position"])
        first, last = columns["base_offset"], columns["last_offset"]
        self.has_gaps |= int(first[0]) != self._next_offset or bool((first[1:] != last[:-1] + 1).any())
        self._next_offset = int(last[-1]) + 1
        self._segment.index_batches(columns, position=int(columns["position"][0]))
        aborted = self._replay.feed(columns)
        if aborted:
            self._segment.append_aborted(aborted)
        epochs = columns["leader_epoch"]
        if int(epochs.max()) > self._latest_epoch:
            self._note_epochs(np.where(columns["magic"] >= _EPOCHS_MAGIC, epochs, -1), columns["base_offset"])

    def _note_epochs(self, epochs: NDArray[Any], base_offsets: NDArray[Any]) -> None:
        highest = np.maximum.accumulate(np.concatenate(([self._latest_epoch], epochs)))
        for row in np.flatnonzero(highest[1:] > highest[:-1]).tolist():
            self.epochs.append((int(epochs[row]), int(base_offsets[row])))
        self._latest_epoch = int(highest[-1])

    def _read(self, position: int, size_bytes: int) -> memoryview:
        buffer = new_buffer(size_bytes)
        return buffer[: self._segment.read_into(buffer, position=position)]
