"""One segment recovered: every batch read and checked, its indexes rebuilt, and cut at the first bad batch; and the
report of such changes.


Source: Kafka LogSegment#recover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.batches import RangeCheck
from tierlog.arguments import INT32_MAX
from tierlog.errors import CorruptRecordError
from tierlog.log.formats.segment_files import OFFSET_MAX
from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.producer_replay import ProducerReplay
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.marks import mark
from tierlog.runtime.machine.files import Files, ReadableFile


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that loading did to a file, or found and left as it is: a hole, a lineage that begins too late.

    Attributes:
        kind: "cut", "rebuilt", "deleted", "swapped", "split", "created", "epochs", "started", "hole", "lineage".
        path: Of the file; of a hole, the log that ends in front of it.
        text: What, in words.
        bytes_cut: Of a log that was cut, or a file that was deleted.
    """

    kind: str
    path: str
    text: str
    bytes_cut: int = 0

    @property
    def is_change(self) -> bool:
        return self.kind not in ("hole", "lineage")


@dataclass(slots=True)
class RecoveryReport:
    """The changes that loading made to a log's files, and the holes that it found, in order.

    Attributes:
        batches_checked: That were read, and found right.
        bytes_checked: Of logs that were read.
    """

    actions: list[RecoveryAction] = field(default_factory=list)
    batches_checked: int = 0
    bytes_checked: int = 0

    def add(self, kind: str, path: str, text: str, *, bytes_cut: int = 0) -> None:
        """Note an action."""
        self.actions.append(RecoveryAction(kind, path, text, bytes_cut))


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
    """The outcome of a segment.

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
            mark("loading: a torn tail is cut")
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
        self._replay = ProducerReplay(state, read=segment.read_at)
        self._latest_epoch = -1 if latest_epoch is None else latest_epoch
        self.epochs: list[tuple[int, int]] = []
        self.batches = 0
        self.bytes_read = 0
        self.must_repeat = False
        self.has_gaps = False
        self._next_offset = segment.base_offset

    def run(self) -> tuple[int, CorruptRecordError | None]:
        """Recover the segment: return (sound bytes of the log, the fault of the batch behind them)."""
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
        found: tuple[str, Any] | None = None
        windows = 0
        for window in segment.iter_windows():
            found = check.gather(window)
            self.bytes_read += len(window)
            windows += 1
            if check.gathered >= _ROWS_HELD or windows >= _WINDOWS_HELD:  # a thousand batches cost little more than one
                windows = 0
                self._take(check.take())
            if found is not None:
                break
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


#: A larger one is no index of a segment: it counts as another one, and is not read.
_SIZE_BYTES_MAX: Final = 128 << 20
#: Divisible by the sizes of all entries.
_PIECE_BYTES: Final = 3 << 12


@dataclass(frozen=True, slots=True)
class IndexContents:
    """The files by path: None where there is none, otherwise the bytes without preallocated zeros at the end."""

    files: dict[str, bytes | None]

    @classmethod
    def read(cls, files: Files, segment: LogSegment) -> IndexContents:
        """Read the three indexes of a segment. Raises StoreError."""
        sizes = {segment.offset_index_path: 8, segment.time_index_path: 12, segment.transaction_index_path: 0}
        return cls({path: _content(files, path, entry_size) for path, entry_size in sizes.items()})

    def changes(self, after: IndexContents) -> Iterator[tuple[str, str]]:
        """(path, what happened to it), of those that differ. An empty transaction index is as good as none."""
        for path, now in after.files.items():
            was = self.files.get(path)
            if (was or b"") == (now or b"") and (was is not None or path.endswith(".txnindex")):
                continue
            if was is None:
                yield path, "it was missing"
            else:
                yield path, f"from the log: {len(was)} bytes were there, {len(now or b'')} now"


def _content(files: Files, path: str, entry_size: int) -> bytes | None:
    found = files.find(path)
    if found is None:
        return None
    if found.size_bytes > _SIZE_BYTES_MAX:
        return b"?"
    if not found.size_bytes:
        return b""
    with files.open_read(path) as file:
        data = b"".join(_pieces(file, stops_at_zeros=bool(entry_size)))
    if entry_size:
        used = len(data.rstrip(b"\0"))
        whole = len(data) - len(data) % entry_size
        data = data[: min(whole, -(-used // entry_size) * entry_size)] if whole == len(data) else data
    return data


def _pieces(file: ReadableFile, *, stops_at_zeros: bool) -> Iterator[bytes]:
    """The bytes of a file, up to a piece that is zeros alone: a broker that is killed leaves 10 MiB of them."""
    for position in range(0, file.size_bytes, _PIECE_BYTES):
        piece = bytearray(min(_PIECE_BYTES, file.size_bytes - position))
        count = file.read_into(piece, position=position)
        yield bytes(piece[:count])
        if stops_at_zeros and piece.count(0) == len(piece):
            return
