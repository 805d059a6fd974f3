"""A partition's log as a list of batches: what the living log has to do, in as few words as possible.

Written from ``docs/formats/log-files.md`` (Kafka's behaviour), not from the code that it judges. Nothing is indexed,
nothing is stored twice: every answer is searched for in the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

NO_PRODUCER = -1
KEPT_BATCHES = 5
#: A producer that was silent for longer may have expired: a day, and the oldest records of a batch.
SURELY_KNOWN_MS = 86_400_000 - 10_000


@dataclass(frozen=True)
class ModelRecord:
    offset: int
    timestamp_ms: int


@dataclass(frozen=True)
class ModelBatch:
    """A batch as it lies in the log."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    records: tuple[ModelRecord, ...]
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    #: (is_commit, coordinator epoch) of a control batch.
    marker: tuple[bool, int] | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def max_timestamp_ms(self) -> int:
        return max((record.timestamp_ms for record in self.records), default=-1)

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset) % 2**31


@dataclass
class ModelSegment:
    base_offset: int
    created_ms: int
    batches: list[ModelBatch] = field(default_factory=list)
    cut_ms: int | None = None

    @property
    def size(self) -> int:
        return sum(batch.size for batch in self.batches)

    @property
    def max_timestamp_ms(self) -> int:
        return max((batch.max_timestamp_ms for batch in self.batches), default=-1)

    @property
    def largest_timestamp_ms(self) -> int:
        """Of its records; the file's time of change without records, as after a cut within its first batch."""
        return self.max_timestamp_ms if self.batches else self.cut_ms or self.created_ms

    def position_of(self, offset: int) -> int | None:
        """Of the first batch that ends at or behind an offset."""
        at = 0
        for batch in self.batches:
            if batch.last_offset >= offset:
                return at
            at += batch.size
        return None

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)


@dataclass
class ModelProducer:
    """What the log knows of a producer: its last five batches, of which a restart may have forgotten the oldest."""

    epoch: int = -1
    batches: list[ModelBatch] = field(default_factory=list)
    doubtful: int = 0
    coordinator_epoch: int = -1
    open_from: int | None = None


@dataclass(frozen=True)
class ModelAborted:
    producer_id: int
    first_offset: int
    last_offset: int


class LogModel:
    """The whole log. Producers in ``unknown`` are not used any more: what is known of them depends on snapshots."""

    def __init__(self, now_ms: int, *, start: int = 0) -> None:
        self.segments = [ModelSegment(start, now_ms)]
        self.log_start = start
        self.local_log_start = start
        self.end = start
        self.high_watermark = start
        self.highest_remote = -1
        self.epochs: list[tuple[int, int]] = []
        self.producers: dict[int, ModelProducer] = {}
        self.unknown: set[int] = set()
        #: Those that ever had a transaction.
        self.transactional: set[int] = set()
        #: First offsets of open transactions of unknown producers: a log that knew no producer at all stays with
        #: that when it is cut, as Kafka's does.
        self.reopened: list[int] = []
        #: First offset of each producer's first batch.
        self.began: dict[int, int] = {}
        #: (first offset, marker's offset) of ended transactions.
        self.ended: list[tuple[int, int]] = []
        self.aborted: list[ModelAborted] = []
        #: Markers below may have been forgotten: a snapshot does not say which of them are replicated.
        self.doubtful_markers_below = 0
        #: The last stable offset is not known: a transaction that is open began in front of the log.
        self.stable_is_doubtful = False

    # ---- what is there

    @property
    def batches(self) -> Iterator[ModelBatch]:
        return (batch for segment in self.segments for batch in segment.batches)

    @property
    def active(self) -> ModelSegment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def last_stable_bounds(self) -> tuple[int, int]:
        """Between what the last stable offset lies, both inclusive; equal but after some restarts."""
        opened = [p.open_from for p in self.producers.values() if p.open_from is not None]
        sure = [first for first, last in self.ended if last >= self.doubtful_markers_below]
        maybe = [*self.reopened, *(first for first, _ in self.ended)]
        low = min([*opened, *maybe], default=self.high_watermark)
        high = min([*opened, *sure], default=self.high_watermark)
        low, high = max(low, self.log_start), max(high, self.log_start)
        if self.stable_is_doubtful:
            low, high = self.log_start, self.high_watermark
        return min(low, self.high_watermark), min(high, self.high_watermark)

    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    # ---- leader epochs (section 14)

    def assign_epoch(self, epoch: int, offset: int) -> None:
        if epoch < 0 or (self.epochs and self.epochs[-1][0] == epoch and offset >= self.epochs[-1][1]):
            return
        self.epochs = [(e, o) for e, o in self.epochs if e < epoch and o < offset]
        self.epochs.append((epoch, offset))

    def cut_epochs_from_start(self, offset: int) -> None:
        gone = [e for e in self.epochs if e[1] <= offset]
        self.epochs = [e for e in self.epochs if e[1] > offset]
        if gone:
            self.epochs.insert(0, (gone[-1][0], offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        later = [e for e in self.epochs if e[0] > epoch]
        floor = [e for e in self.epochs if e[0] <= epoch]
        if not floor:
            return epoch, later[0][1]
        return floor[-1][0], later[0][1]

    def epoch_for_offset(self, offset: int) -> int | None:
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), None)

    # ---- appending (section 12)

    def rolls(self, appended: list[ModelBatch], *, now_ms: int, segment_bytes: int, segment_ms: int) -> bool:
        """Whether an append begins another segment."""
        segment = self.active
        if segment.size > segment_bytes - sum(batch.size for batch in appended):
            return True
        if not segment.batches:
            return False
        first, greatest = segment.batches[0].max_timestamp_ms, max(b.max_timestamp_ms for b in appended)
        waited = greatest - first if first >= 0 else now_ms - segment.created_ms
        return waited > segment_ms or appended[-1].last_offset - segment.base_offset > 2**31 - 1

    def roll(self, offset: int, now_ms: int) -> None:
        if self.active.base_offset == offset and not self.active.batches:
            self.segments.pop()
        self.segments.append(ModelSegment(offset, now_ms))

    def append(self, appended: list[ModelBatch], *, now_ms: int, segment_bytes: int, segment_ms: int) -> None:
        """Take batches that the log has taken."""
        for batch in appended:
            self.assign_epoch(batch.leader_epoch, batch.base_offset)
        if self.rolls(appended, now_ms=now_ms, segment_bytes=segment_bytes, segment_ms=segment_ms):
            self.roll(max(appended[0].base_offset, self.end), now_ms)
        self.active.batches += appended
        self.end = appended[-1].last_offset + 1
        for batch in appended:
            self.take_producer(batch)

    def take_producer(self, batch: ModelBatch) -> None:
        if batch.producer_id == NO_PRODUCER:
            return
        self.began.setdefault(batch.producer_id, batch.base_offset)
        producer = self.producers.setdefault(batch.producer_id, ModelProducer())
        if batch.producer_epoch != producer.epoch:
            producer.epoch, producer.batches, producer.doubtful = batch.producer_epoch, [], 0
        if batch.marker is None:
            producer.batches.append(batch)
            if len(producer.batches) > KEPT_BATCHES:
                del producer.batches[0]
                producer.doubtful = max(0, producer.doubtful - 1)
            if batch.transactional:
                self.transactional.add(batch.producer_id)
                if producer.open_from is None:
                    producer.open_from = batch.base_offset
            return
        is_commit, producer.coordinator_epoch = batch.marker
        if producer.open_from is not None:
            self.ended.append((producer.open_from, batch.base_offset))
            if not is_commit:
                self.aborted.append(ModelAborted(batch.producer_id, producer.open_from, batch.base_offset))
            producer.open_from = None

    # ---- offsets (section 11.1)

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = min(max(offset, self.local_log_start), self.end)
        self.ended = [ended for ended in self.ended if ended[1] >= self.high_watermark]

    def raise_log_start(self, offset: int, *, tiered: bool) -> bool:
        if tiered:
            self.local_log_start = max(offset, self.local_log_start)
        if offset <= self.log_start:
            return False
        self.log_start = offset
        if not tiered:
            self.local_log_start = offset
        self.set_high_watermark(max(self.high_watermark, offset))
        self.cut_epochs_from_start(offset)
        return True

    # ---- shortening (section 14)

    def drop_segments(self, count: int, *, now_ms: int, moves_local_alone: bool) -> None:
        """Delete the oldest; if all go, another begins at the log's end first."""
        if count == 0:
            return
        if count == len(self.segments):
            self.roll(self.end, now_ms)
            if len(self.segments) == count:  # the last was empty, and was made anew
                count -= 1
        self.segments = self.segments[count:]
        first = self.segments[0].base_offset
        self.aborted = [a for a in self.aborted if a.last_offset >= first]
        if moves_local_alone:
            self.local_log_start = max(self.local_log_start, first)
        else:
            self.raise_log_start(first, tiered=False)

    def truncate(self, offset: int, *, now_ms: int, tiered: bool) -> bool:
        self.epochs = [e for e in self.epochs if e[1] < min(offset, self.end)]
        if offset >= self.end:
            return False
        if offset < self.segments[0].base_offset:
            keeps_start = tiered and offset > self.log_start
            epochs, start = self.epochs, self.log_start if keeps_start else None
            self.start_anew(offset, start, now_ms=now_ms, tiered=tiered)
            self.epochs = epochs if keeps_start else []
            return True
        self.segments = [s for s in self.segments if s.base_offset <= offset]
        kept: list[ModelBatch] = []
        for batch in self.active.batches:
            if batch.last_offset >= offset:
                break
            kept.append(batch)
        if len(kept) < len(self.active.batches):
            self.active.cut_ms = now_ms
        self.active.batches = kept
        self.end = offset
        self.highest_remote = min(self.highest_remote, offset - 1)
        self.aborted = [a for a in self.aborted if a.last_offset < offset]
        self.log_start = min(self.log_start, offset)
        if not tiered:
            self.local_log_start = self.log_start
        self.set_high_watermark(self.high_watermark)
        self.restart_producers(now_ms)
        return True

    def start_anew(self, offset: int, log_start: int | None, *, now_ms: int, tiered: bool) -> None:
        self.segments = [ModelSegment(offset, now_ms)]
        self.end = offset
        self.log_start = offset if log_start is None else log_start
        self.local_log_start = offset if tiered else self.log_start
        self.epochs = []
        self.highest_remote = min(self.highest_remote, offset - 1)
        self.high_watermark = self.end
        self.producers, self.began = {}, {}
        self.transactional = set()
        self.ended, self.aborted, self.reopened = [], [], []
        self.stable_is_doubtful = False

    def reopen(self, *, recovered_from: int | None, now_ms: int, tiered: bool) -> None:
        """Load what the files have: an end that a cut left behind the last batch is forgotten (section 13).

        Args:
            recovered_from: The recovery point of an unclean stop; None after a clean one.
            now_ms: The clock.
            tiered: Whether the log is.
        """
        start, batches = self.log_start, self.active.batches
        self.highest_remote = -1
        self.end = batches[-1].last_offset + 1 if batches else self.active.base_offset
        if recovered_from is not None:
            first = self.segments[0].base_offset
            floor = max((s.base_offset for s in self.segments if s.base_offset <= recovered_from), default=first)
            # Entries that are known stay: an epoch may begin in front of its first batch, where a cut took another one.
            for batch in [b for s in self.segments if s.base_offset >= floor for b in s.batches]:
                if batch.leader_epoch > self.latest_epoch():
                    self.assign_epoch(batch.leader_epoch, batch.base_offset)
        if self.end < start:
            self.start_anew(start, None, now_ms=now_ms, tiered=tiered)
            return
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.cut_epochs_from_start(start)
        if tiered:
            self.local_log_start = max(start, self.segments[0].base_offset)
        self.set_high_watermark(self.high_watermark)
        self.restart_producers(now_ms)

    def restart_producers(self, now_ms: int) -> None:
        """Read the producers anew: from some snapshot, and from the log behind it.

        Of a producer whose first batches are gone the snapshot may know more than the log: it is not used any more. Nor
        is one that a snapshot knows as silent for too long: it is dropped as it is loaded, with the epoch of its
        coordinator, and what lies behind the snapshot brings only its transaction back, as in Kafka.
        """
        first = max(self.segments[0].base_offset, self.log_start)
        self.began = {producer_id: begun for producer_id, begun in self.began.items() if begun < self.end}
        hidden = {producer_id for producer_id, begun in self.began.items() if begun < first}
        self.stable_is_doubtful |= not hidden.isdisjoint(self.transactional)
        self.unknown |= hidden
        self.producers, self.ended, aborted = {}, [], self.aborted
        idle_since_ms: dict[int, int] = {}
        for batch in list(self.batches):
            self.take_producer(batch)
            producer = self.producers.get(batch.producer_id)
            if producer is not None and producer.open_from is None:
                idle_since_ms[batch.producer_id] = batch.max_timestamp_ms
        self.unknown |= {each for each, at_ms in idle_since_ms.items() if at_ms < now_ms - SURELY_KNOWN_MS}
        # A producer that expired behind its transaction's end is there again where the end was cut off.
        forgotten = [self.producers.pop(producer_id) for producer_id in self.unknown & self.producers.keys()]
        self.reopened = [producer.open_from for producer in forgotten if producer.open_from is not None]
        self.aborted = aborted  # the transaction index stays as it is
        self.ended = [ended for ended in self.ended if ended[1] >= self.high_watermark]
        self.doubtful_markers_below = self.end
        for producer in self.producers.values():
            producer.doubtful = max(0, len(producer.batches) - 1)

    def forget_idle_producers(self) -> None:
        """Those that expired: without an open transaction."""
        for producer_id in [i for i, producer in self.producers.items() if producer.open_from is None]:
            del self.producers[producer_id]
            self.unknown.add(producer_id)
