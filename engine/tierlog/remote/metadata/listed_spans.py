"""The spans of one partition as columns: a hundred bytes each, whatever describes their segments.

A listing of a million segments outlives the call that made it, and goes through pipes. What it has to know of a segment
is the metadata, not the places of its chunks, which can take kilobytes: a segment that comes from here is not
described (``StoredSegment.is_described``), and its tier describes it when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, overload

import numpy as np
from numpy.typing import NDArray

from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.chunks.stored_segment import FooterPlace, StoredPart, StoredSegment
from tierlog.remote.tier.objects.object_keys import SEGMENT_PATHS
from tierlog.runtime.stores.wrappers.passing_store import MASK

#: A footer's size where it is known that there is none.
NO_FOOTER: Final = -2
#: A footer's size where there may be one.
UNLISTED_FOOTER: Final = -1
SPAN_DTYPE: Final = np.dtype(
    [
        ("first_offset", "<i8"),
        ("end_offset_exclusive", "<i8"),
        ("start_offset", "<i8"),
        ("end_offset", "<i8"),
        ("max_timestamp_ms", "<i8"),
        ("event_timestamp_ms", "<i8"),
        ("last_modified_ms", "<i8"),
        ("footer_size", "<i8"),
        ("segment_id", "V16"),
        ("size_bytes", "<i4"),
        ("broker_id", "<i4"),
        ("leader_epoch", "<i4"),
        ("txn_idx_empty", "?"),
    ]
)


def can_list(layout: str) -> bool:
    """Whether segments of a layout can be described when they are read."""
    return layout in SEGMENT_PATHS


@dataclass(frozen=True, slots=True)
class SegmentOrigin:
    """What the undescribed segments of a partition have in common.

    Attributes:
        layout: Of the segments: see ``can_list``.
        prefix: What stands before the paths of their objects.
        is_masked: Whether messages leave it out.
    """

    topic_id_partition: TopicIdPartition
    layout: str
    prefix: str
    is_masked: bool = False

    def segment(
        self, metadata: RemoteLogSegmentMetadata, *, last_modified_ms: int = 0, footer_size: int | None = None
    ) -> StoredSegment:
        """Return a segment that is not described.

        Args:
            metadata: Of the segment.
            last_modified_ms: As its listing has it.
            footer_size: As FooterPlace has it; None: it is known to have none.

        Raises:
            ValueError: the topic's name is none, so that keys would be another segment's.
        """
        path = SEGMENT_PATHS[self.layout](metadata)
        log = f"{path}.log" if self.layout == "aiven" else f"{path}/{metadata.start_offset:020d}.log"
        return StoredSegment(
            metadata=metadata,
            layout=self.layout,
            name=f"{MASK if self.is_masked else self.prefix}{log}",
            log=StoredPart(f"{self.prefix}{log}", 0, -1),
            parts=(),
            last_modified_ms=last_modified_ms,
            footer=None if footer_size is None else FooterPlace(footer_size, b""),
            is_described=False,
        )


def origin_of(segment: StoredSegment) -> SegmentOrigin:
    """Return the origin of a segment whose objects lie where its metadata says, and of its neighbours."""
    path = SEGMENT_PATHS[segment.layout](segment.metadata)
    prefix, is_masked = segment.log.key.partition(path)[0], segment.name != segment.log.key
    return SegmentOrigin(segment.topic_id_partition, segment.layout, prefix, is_masked)


@dataclass(frozen=True, slots=True)
class ListedSpans(Sequence[Span]):
    """Spans by offset ascending, disjoint; each is made when it is asked for. Immutable; any number of threads.

    Attributes:
        origin: Of their segments.
        rows: SPAN_DTYPE[n]. ``leader_epoch`` is that of all offsets of the segment, or -1: see ``epochs``.
        epochs: By row, the leader epochs of segments that have several, or whose one does not begin with the segment.
        custom: By row, the custom metadata of segments that have any.
    """

    origin: SegmentOrigin
    rows: NDArray[np.void]
    epochs: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    custom: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, spans: Sequence[Span], origin: SegmentOrigin) -> Self | None:
        """Return the same spans; None where a segment's objects lie elsewhere than its metadata says."""
        rows = np.zeros(len(spans), SPAN_DTYPE)
        epochs: dict[int, tuple[tuple[int, int], ...]] = {}
        custom: dict[int, bytes] = {}
        values: list[tuple[Any, ...]] = []
        for number, span in enumerate(spans):
            segment, metadata = span.segment, span.segment.metadata
            footer_size = None if segment.footer is None else segment.footer.size_bytes
            try:
                path = SEGMENT_PATHS[origin.layout](metadata)
            except ValueError:
                return None
            if not segment.closed or not segment.log.key.startswith(f"{origin.prefix}{path}") or segment.log.position:
                return None
            own = tuple(metadata.segment_leader_epochs.items())
            if len(own) != 1 or own[0][1] != metadata.start_offset:
                epochs[number] = own
            if metadata.custom_metadata is not None:
                custom[number] = metadata.custom_metadata
            values.append(
                (
                    span.first_offset,
                    span.end_offset_exclusive,
                    metadata.start_offset,
                    metadata.end_offset,
                    metadata.max_timestamp_ms,
                    metadata.event_timestamp_ms,
                    segment.last_modified_ms,
                    NO_FOOTER if footer_size is None else footer_size,
                    metadata.remote_log_segment_id.id.raw,
                    metadata.segment_size_in_bytes,
                    metadata.broker_id,
                    -1 if number in epochs else own[0][0],
                    metadata.txn_idx_empty,
                )
            )
        try:
            rows[:] = values
        except OverflowError:
            return None
        return cls(origin, rows, epochs, custom)

    def __reduce__(self) -> tuple[object, ...]:
        return (_of_bytes, (self.origin, self.rows.tobytes(), dict(self.epochs), dict(self.custom)))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Span: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Span]: ...
    def __getitem__(self, at: int | slice) -> Span | Sequence[Span]:
        if isinstance(at, slice):
            return [self._span(number) for number in range(*at.indices(len(self.rows)))]
        return self._span(range(len(self.rows))[at])

    def __iter__(self) -> Iterator[Span]:
        return map(self._span, range(len(self.rows)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ListedSpans):
            return NotImplemented
        return (self.origin, self.epochs, self.custom) == (other.origin, other.epochs, other.custom) and bool(
            self.rows.tobytes() == other.rows.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.origin, self.rows.tobytes()))

    @property
    def first_offsets(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.rows["first_offset"]
        return found

    @property
    def end_offsets(self) -> NDArray[np.int64]:
        """Exclusive."""
        found: NDArray[np.int64] = self.rows["end_offset_exclusive"]
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes of the logs of all segments that have a span."""
        return int(self.rows["size_bytes"].sum(dtype=np.int64))

    @property
    def have_footers(self) -> bool:
        """Whether any of the segments may have one."""
        return bool((self.rows["footer_size"] != NO_FOOTER).any())

    def between(self, first_offset: int, end_offset_exclusive: int) -> tuple[int, int]:
        """Return the rows [first, end) that hold any of some offsets."""
        first = int(np.searchsorted(self.end_offsets, first_offset, side="right"))
        end = int(np.searchsorted(self.first_offsets, end_offset_exclusive, side="left"))
        return first, max(first, end)

    def _span(self, number: int) -> Span:
        (
            first,
            end_exclusive,
            start,
            end,
            max_timestamp_ms,
            event_timestamp_ms,
            last_modified_ms,
            footer_size,
            segment_id,
            size_bytes,
            broker_id,
            leader_epoch,
            txn_idx_empty,
        ) = self.rows[number].tolist()
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(self.origin.topic_id_partition, Uuid(segment_id)),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=max_timestamp_ms,
            broker_id=broker_id,
            event_timestamp_ms=event_timestamp_ms,
            segment_size_in_bytes=size_bytes,
            segment_leader_epochs=EpochMap({leader_epoch: start} if leader_epoch >= 0 else dict(self.epochs[number])),
            custom_metadata=self.custom.get(number),
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_idx_empty=txn_idx_empty,
        )
        segment = self.origin.segment(
            metadata,
            last_modified_ms=last_modified_ms,
            footer_size=None if footer_size == NO_FOOTER else footer_size,
        )
        return Span(segment, first, end_exclusive)


def _of_bytes(
    origin: SegmentOrigin,
    rows: bytes,
    epochs: Mapping[int, tuple[tuple[int, int], ...]],
    custom: Mapping[int, bytes],
) -> ListedSpans:
    """Return unpickled spans. Raises ValueError: the bytes are no rows."""
    return ListedSpans(origin, np.frombuffer(rows, SPAN_DTYPE), epochs, custom)
