"""What the metadata topic says of the tier, by its bytes alone: the segments of each partition and their states.

Source: Kafka's schemas of the records of ``__remote_log_metadata``, frame version 1, and the table of states.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.simulation.judge.lineage import Lineage, pieces

STARTED, FINISHED, DELETING, DELETED = range(4)
NAMES: Final = ("started", "finished", "deleting", "deleted")
#: What each state may become; None = no state yet.
_ALLOWED: Final = {
    None: {STARTED},
    STARTED: {STARTED, FINISHED, DELETING},
    FINISHED: {FINISHED, DELETING},
    DELETING: {DELETING, DELETED},
}
PartitionId = tuple[bytes, int]


class UnreadableRecordError(ValueError):
    """Bytes that are no record of the metadata topic."""


#: How long a record of the metadata topic may be there before all brokers have read it, while nothing is cut off.
_UNREAD_MS = 2_000


@dataclass(slots=True)
class Segment:
    """One segment of the tier.

    Attributes:
        epochs: Epoch and its first offset here, ascending.
        end_offset: Inclusive.
        since_ms: When it came into its state.
    """

    segment_id: bytes
    partition: PartitionId
    start_offset: int
    end_offset: int
    max_timestamp: int
    size_bytes: int
    epochs: tuple[tuple[int, int], ...]
    broker: int
    state: int
    since_ms: int = 0

    def __str__(self) -> str:
        epochs = ", ".join(f"{epoch} from {start}" for epoch, start in self.epochs)
        return f"{self.start_offset}..{self.end_offset} ({epochs}) of broker {self.broker}, {NAMES[self.state]}"


class Change(NamedTuple):
    """A record that changes a segment's state."""

    segment_id: bytes
    partition: PartitionId
    broker: int
    state: int


class PartitionChange(NamedTuple):
    """A record about all of a partition."""

    partition: PartitionId
    state: int


class _Reader:
    """Fields of one record, in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size or size < 0:
            raise UnreadableRecordError(f"{size} bytes wanted at {self._at} of {len(self._data)}")
        self._at += size
        return part

    def number(self, form: str) -> int:
        (found,) = struct.unpack(f">{form}", self.take(struct.calcsize(form)))
        return int(found)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def partition(self) -> PartitionId:
        self.take(self.uvarint() - 1)  # the name
        topic_id, number = self.take(16), self.number("i")
        self.tags()
        return topic_id, number

    def segment_id(self) -> bytes:
        found = self.take(16)
        self.tags()
        return found

    def custom(self) -> None:
        size = self.uvarint()
        if size:
            self.take(size - 1)

    def epochs(self) -> tuple[tuple[int, int], ...]:
        found = {}
        for _ in range(self.uvarint() - 1):
            epoch, start = self.number("i"), self.number("q")
            self.tags()
            found[epoch] = start
        return tuple(sorted(found.items()))

    def end(self) -> None:
        self.tags()
        if self._at != len(self._data):
            raise UnreadableRecordError(f"{len(self._data) - self._at} bytes behind the record")


def decode(value: bytes) -> Segment | Change | PartitionChange:
    """Read one record's value. Raises UnreadableRecordError."""
    reader = _Reader(value)
    frame, kind, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != 1 or version != 0 or kind not in (0, 1, 2):
        raise UnreadableRecordError(f"frame {frame}, kind {kind}, version {version}")
    partition = reader.partition()
    found: Segment | Change | PartitionChange
    if kind == 2:
        reader.number("i")
        reader.number("q")
        found = PartitionChange(partition, reader.number("b"))
    elif kind == 1:
        segment_id, broker = reader.segment_id(), reader.number("i")
        reader.number("q")
        reader.custom()
        found = Change(segment_id, partition, broker, reader.number("b"))
    else:
        segment_id = reader.segment_id()
        start, end, broker, newest = reader.number("q"), reader.number("q"), reader.number("i"), reader.number("q")
        reader.number("q")
        epochs, size = reader.epochs(), reader.number("i")
        reader.custom()
        state = reader.number("b")
        found = Segment(segment_id, partition, start, end, newest, size, epochs, broker, state)
    reader.end()
    return found


class SegmentTable:
    """The segments of all partitions, after each record.

    Attributes:
        segments: Those that are not deleted, by id.
        deleted: Ids of those that are.
        versions: By partition: how many records there were.
        ended: Partitions of which a deletion of all is finished.
    """

    def __init__(self) -> None:
        self.segments: dict[bytes, Segment] = {}
        self.deleted: set[bytes] = set()
        self.versions: dict[PartitionId, int] = {}
        self.ended: set[PartitionId] = set()
        self._by_partition: dict[PartitionId, dict[bytes, Segment]] = {}

    def apply(self, value: bytes, now_ms: int = 0) -> Segment | None:
        """Take one record, in its order; return the segment that it changed. What the states forbid changes nothing.

        Raises UnreadableRecordError.
        """
        record = decode(value)
        self.versions[record.partition] = self.versions.get(record.partition, 0) + 1
        if isinstance(record, PartitionChange):
            if record.state == 2:
                self.ended.add(record.partition)
                self._forget_late(record.partition, now_ms)
            return None
        known = self.segments.get(record.segment_id)
        if record.segment_id in self.deleted or record.partition in self.ended:
            return None  # of a partition that is gone: a zombie's
        if record.state not in _ALLOWED[None if known is None else known.state]:
            return None
        if isinstance(record, Segment):
            if known is None:
                record.since_ms = now_ms
                self.segments[record.segment_id] = record
                self._by_partition.setdefault(record.partition, {})[record.segment_id] = record
            return record
        assert known is not None  # a change of nothing is forbidden
        known.state, known.broker, known.since_ms = record.state, record.broker, now_ms
        if known.state == DELETED:
            del self.segments[known.segment_id], self._by_partition[known.partition][known.segment_id]
            self.deleted.add(known.segment_id)
        return known

    def _forget_late(self, partition: PartitionId, now_ms: int) -> None:
        """What a zombie began just before a removal finished, its remover had not read: it goes with the partition, and
        its objects are its copier's to remove.
        """
        for each in list(self.of(partition)):
            if each.state == STARTED and each.since_ms > now_ms - _UNREAD_MS:
                del self.segments[each.segment_id], self._by_partition[partition][each.segment_id]
                self.deleted.add(each.segment_id)

    def of(self, partition: PartitionId) -> Iterable[Segment]:
        """The segments of a partition that are not deleted."""
        return self._by_partition.get(partition, {}).values()

    def finished_within(self, partition: PartitionId, lineage: Lineage, end_exclusive: int) -> list[Segment]:
        """The finished segments of a partition all of whose offsets are a log's own, by their starts. One may reach
        back in front of the log's first epoch: what it overlaps there has gone.
        """
        own = {epoch: (first, last) for epoch, first, last in pieces(lineage, end_exclusive)}
        first_epoch = min(own, default=0)

        def is_within(segment: Segment) -> bool:
            parts = [each for each in pieces(segment.epochs, segment.end_offset + 1) if each[0] >= first_epoch]
            return bool(parts) and all(
                epoch in own and (own[epoch][0] <= low or epoch == first_epoch) and high <= own[epoch][1]
                for epoch, low, high in parts
            )

        found = [each for each in self.of(partition) if each.state == FINISHED and is_within(each)]
        return sorted(found, key=lambda each: (each.start_offset, each.end_offset))

    def partly_within(
        self, partition: PartitionId, lineage: Lineage, end_exclusive: int
    ) -> list[tuple[int, int, Segment]]:
        """The other finished segments that have offsets of a log, by their starts: the first one, and the end."""
        own = {epoch: (first, last) for epoch, first, last in pieces(lineage, end_exclusive)}
        whole = self.finished_within(partition, lineage, end_exclusive)
        found = []
        for each in self.of(partition):
            parts = [
                (max(low, own[epoch][0]), min(high, own[epoch][1]))
                for epoch, low, high in pieces(each.epochs, each.end_offset + 1)
                if epoch in own
            ]
            parts = [(low, high) for low, high in parts if low < high]
            if each.state == FINISHED and each not in whole and parts:
                found.append((parts[0][0], parts[-1][1], each))
        return sorted(found, key=lambda each: each[:2])

    def overlapping_bytes(self, partition: PartitionId) -> int:
        """The bytes of the segments that begin in another one, and end behind it."""
        size, end = 0, -1
        for each in sorted(self.of(partition), key=lambda each: (each.start_offset, each.end_offset)):
            size += each.size_bytes if each.start_offset <= end < each.end_offset else 0
            end = max(end, each.end_offset)
        return size

    def around(self, partition: PartitionId, offset: int) -> str:
        """In words, the segments that have an offset, and the first and last of the partition."""
        every = sorted(self.of(partition), key=lambda each: (each.start_offset, each.end_offset))
        chosen = [each for each in every if each.start_offset <= offset <= each.end_offset]
        ends = f", all of {every[0].start_offset}..{every[-1].end_offset}" if every else ""
        return f"{'; '.join(map(str, chosen)) or 'no segment'}{ends}"

    def hole(self, partition: PartitionId, lineage: Lineage, start: int, end_exclusive: int) -> int | None:
        """The first offset of a log's range that no finished segment has in the log's own epoch; None: none."""
        covered = []
        for segment in self.of(partition):
            if segment.state != FINISHED or segment.end_offset < start or segment.start_offset >= end_exclusive:
                continue
            own = {epoch: (first, last) for epoch, first, last in pieces(segment.epochs, segment.end_offset + 1)}
            for epoch, first, last in pieces(lineage, end_exclusive):
                if epoch in own:
                    low, high = max(first, own[epoch][0]), min(last, own[epoch][1])
                    if low < high:
                        covered.append((low, high))
        at = start
        for low, high in sorted(covered):
            if low > at:
                break
            at = max(at, high)
        return at if at < end_exclusive else None
