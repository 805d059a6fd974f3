"""The spans of a history under one interface: as values, or as columns where there are very many."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from tierlog.remote.api import EpochMap, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.metadata.listed_spans import SPAN_DTYPE, ListedSpans, SegmentOrigin
from tierlog.remote.tier.layouts.plain_segments import NOT_PLAIN, PLAIN_DTYPE, plain_segment
from tierlog.remote.tier.objects.listed_manifest import PlainNumbers
from tierlog.runtime.stores.wrappers.passing_store import MASK

#: Rows that become values together.
_ROWS: Final = 512


class Spans(Sequence[Span]):
    """Spans by offset ascending, disjoint. Immutable; any number of threads."""

    __slots__ = ()

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes of the logs of all segments that have a span."""

    @property
    @abstractmethod
    def have_footers(self) -> bool:
        """Whether any of the segments may have one."""

    @property
    @abstractmethod
    def ends(self) -> tuple[int, int] | None:
        """The first offset, and the one behind the last; None without a span."""

    @abstractmethod
    def iter_late(
        self, first_offset: int, end_offset_exclusive: int, first_timestamp_ms: int
    ) -> Iterator[tuple[Span, bool]]:
        """Iterate the spans that hold any of [first, end) of that time or later, as far as the segments say, cut to it;
        and whether each is the first one in a row.
        """

    @abstractmethod
    def estimated(self, first_offset: int, end_offset_exclusive: int, first_timestamp_ms: int) -> tuple[int, int]:
        """Return bytes and offsets of the spans of ``iter_late``; bytes by offsets, without an index."""

    def iter_between(self, first_offset: int, end_offset_exclusive: int) -> Iterator[Span]:
        """Iterate the spans that hold any of [first, end), cut to it."""
        for span, _ in self.iter_late(first_offset, end_offset_exclusive, -(2**63)):
            yield span


@dataclass(frozen=True, slots=True)
class SpanValues(Spans):
    """Spans that are values."""

    spans: Sequence[Span]

    @overload
    def __getitem__(self, at: int) -> Span: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Span]: ...
    def __getitem__(self, at: int | slice) -> Span | Sequence[Span]:
        return self.spans[at]

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def size_bytes(self) -> int:
        return sum(span.segment.size_bytes for span in self.spans)

    @property
    def have_footers(self) -> bool:
        return any(span.segment.footer for span in self.spans)

    @property
    def ends(self) -> tuple[int, int] | None:
        return (self.spans[0].first_offset, self.spans[-1].end_offset_exclusive) if self.spans else None

    def iter_late(
        self, first_offset: int, end_offset_exclusive: int, first_timestamp_ms: int
    ) -> Iterator[tuple[Span, bool]]:
        is_first = True
        for span in self.spans:
            found = _cut(span, first_offset, end_offset_exclusive)
            if found is None:
                continue
            late = span.segment.metadata.max_timestamp_ms >= first_timestamp_ms
            if late:
                yield found, is_first
            is_first = not late

    def estimated(self, first_offset: int, end_offset_exclusive: int, first_timestamp_ms: int) -> tuple[int, int]:
        found = [span for span, _ in self.iter_late(first_offset, end_offset_exclusive, first_timestamp_ms)]
        return sum(map(_estimated_bytes, found)), sum(span.end_offset_exclusive - span.first_offset for span in found)


@dataclass(frozen=True, slots=True, eq=False)
class SpanColumns(Spans):
    """Spans that are made of columns when they are asked for; their segments are described where they are plain.

    Attributes:
        listed: The spans, of segments that are not described.
        plain: PLAIN_DTYPE, one a span; none at all where no segment is plain.
    """

    listed: ListedSpans
    plain: NDArray[np.void]

    @classmethod
    def of(cls, listed: ListedSpans, plain: Mapping[bytes, PlainNumbers]) -> Self:
        """Return spans with what describes their segments, by their ids; all others are not plain."""
        found = [plain.get(each, NOT_PLAIN) for each in listed.rows["segment_id"].tolist()] if plain else []
        rows = np.array(found, PLAIN_DTYPE)
        return cls(listed, rows if rows["chunk_size"].any() else rows[:0])

    @overload
    def __getitem__(self, at: int) -> Span: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Span]: ...
    def __getitem__(self, at: int | slice) -> Span | Sequence[Span]:
        if isinstance(at, slice):
            return [self._span(number) for number in range(*at.indices(len(self)))]
        return self._span(range(len(self))[at])

    def __len__(self) -> int:
        return len(self.listed)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpanColumns):
            return NotImplemented
        return self.listed == other.listed and self.plain.tobytes() == other.plain.tobytes()

    def __hash__(self) -> int:
        return hash(self.listed)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        listed = self.listed

        def packed(rows: NDArray[np.void]) -> object:
            """The bytes of rows; from protocol 5 on without a copy, which a pickler would keep until its end."""
            view = np.ascontiguousarray(rows).view(np.uint8).data.toreadonly()
            return pickle.PickleBuffer(view) if protocol.__index__() >= 5 else bytes(view)

        values = listed.origin, packed(listed.rows), dict(listed.epochs), dict(listed.custom), packed(self.plain)
        return (_of_bytes, values)

    @property
    def size_bytes(self) -> int:
        return self.listed.size_bytes

    @property
    def have_footers(self) -> bool:
        return self.listed.have_footers

    @property
    def ends(self) -> tuple[int, int] | None:
        listed = self.listed
        return (int(listed.first_offsets[0]), int(listed.end_offsets[-1])) if len(listed) else None

    def iter_late(
        self, first_offset: int, end_offset_exclusive: int, first_timestamp_ms: int
    ) -> Iterator[tuple[Span, bool]]:
        start, stop = self.listed.between(first_offset, end_offset_exclusive)
        late = self.listed.rows["max_timestamp_ms"][start:stop] >= first_timestamp_ms
        are_first = np.concatenate(([True], ~late[:-1]))
        places = np.flatnonzero(late)  # no span is made of those that are too early
        for span, is_first in zip(self._iter_spans(start + places), are_first[places].tolist(), strict=True):
            cut = _cut(span, first_offset, end_offset_exclusive)
            assert cut is not None
            yield cut, is_first

    def estimated(self, first_offset: int, end_offset_exclusive: int, first_timestamp_ms: int) -> tuple[int, int]:
        start, stop = self.listed.between(first_offset, end_offset_exclusive)
        rows = self.listed.rows[start:stop]
        rows = rows[rows["max_timestamp_ms"] >= first_timestamp_ms]
        first = np.maximum(rows["first_offset"], first_offset)
        counts = np.minimum(rows["end_offset_exclusive"], end_offset_exclusive) - first
        if counts.max(initial=0) >= 1 << 32:  # no broker writes such a segment, and the product would not fit
            return SpanValues(tuple(self)).estimated(first_offset, end_offset_exclusive, first_timestamp_ms)
        parts = rows["size_bytes"] * counts // (rows["end_offset"] - rows["start_offset"] + 1)
        return int(parts.sum()), int(counts.sum())

    def _span(self, number: int) -> Span:
        return next(self._iter_spans(np.array([number])))

    def _iter_spans(self, numbers: NDArray[np.int64]) -> Iterator[Span]:
        """Iterate the spans of some rows, some of which become values together."""
        for at in range(0, len(numbers), _ROWS):
            some = numbers[at : at + _ROWS]
            if not len(self.plain):
                yield from map(self.listed.__getitem__, some.tolist())
                continue
            for number, row, plain in zip(
                some.tolist(), self.listed.rows[some].tolist(), self.plain[some].tolist(), strict=True
            ):
                yield self._plain_span(number, row, plain) if plain[0] else self.listed[number]

    def _plain_span(self, number: int, row: tuple[Any, ...], plain: PlainNumbers) -> Span:
        """Return the span of a plain segment: the value that ``ListedSpans`` makes, and what describes it."""
        first, end_exclusive, start, end, max_ms, event_ms, modified_ms, _, segment_id, size, broker, epoch, empty = row
        origin, prefix = self.listed.origin, self.listed.origin.prefix
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(origin.topic_id_partition, Uuid(segment_id)),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=max_ms,
            broker_id=broker,
            event_timestamp_ms=event_ms,
            segment_size_in_bytes=size,
            segment_leader_epochs=EpochMap({epoch: start} if epoch >= 0 else dict(self.listed.epochs[number])),
            custom_metadata=self.listed.custom.get(number),
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_idx_empty=empty,
        )
        shown = MASK if origin.is_masked else prefix
        segment = plain_segment(metadata, plain, prefix=prefix, shown=shown, last_modified_ms=modified_ms)
        return Span(segment, first, end_exclusive)


def as_spans(spans: Sequence[Span]) -> Spans:
    """Return the spans of a lineage under the interface."""
    if isinstance(spans, Spans):
        return spans
    return SpanColumns.of(spans, {}) if isinstance(spans, ListedSpans) else SpanValues(spans)


def _cut(span: Span, first_offset: int, end_offset_exclusive: int) -> Span | None:
    first, end = max(span.first_offset, first_offset), min(span.end_offset_exclusive, end_offset_exclusive)
    if (first, end) == (span.first_offset, span.end_offset_exclusive):
        return span
    return Span(span.segment, first, end) if first < end else None


def _estimated_bytes(span: Span) -> int:
    segment = span.segment
    offsets = segment.end_offset - segment.start_offset + 1
    return segment.size_bytes * (span.end_offset_exclusive - span.first_offset) // offsets


def _of_bytes(
    origin: SegmentOrigin,
    rows: bytes,
    epochs: Mapping[int, tuple[tuple[int, int], ...]],
    custom: Mapping[int, bytes],
    plain: bytes,
) -> SpanColumns:
    """Return unpickled spans. Raises ValueError: the bytes are no rows, or not of the same spans."""
    listed = ListedSpans(origin, np.frombuffer(rows, SPAN_DTYPE), epochs, custom)
    found = np.frombuffer(plain, PLAIN_DTYPE)
    if len(found) not in (0, len(listed)):
        raise ValueError(f"{len(found)} rows for {len(listed)} spans")
    return SpanColumns(listed, found)
