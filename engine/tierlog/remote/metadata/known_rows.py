"""The readable segments of a partition as columns, out of a segment table or a listing; and their lineage, where it is
a plain one.

A lineage is plain where no two segments have an offset of it in common: then it follows from the columns, and no value
is made of a segment. ``resolve_lineage`` has the others, and is what both have to agree with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.lineage import Gap, Lineage, counted_ranges, epoch_ranges
from tierlog.remote.metadata.listed_spans import (
    NO_FOOTER,
    SPAN_DTYPE,
    UNLISTED_FOOTER,
    ListedSpans,
    SegmentOrigin,
    origin_of,
)
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import ListedSegment

_FINISHED: Final = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
#: Leader epochs of a partition that are asked for one by one.
_EPOCHS_MAX: Final = 4096
_NO_ID: Final = (0,) * 16


ROW_DTYPE: Final = np.dtype(
    [
        ("start_offset", "<i8"),
        ("end_offset", "<i8"),
        ("max_timestamp_ms", "<i8"),
        ("event_timestamp_ms", "<i8"),
        ("segment_size_in_bytes", "<i4"),
        ("broker_id", "<i4"),
        ("txn_idx_empty", "?"),
        ("segment_id", "u1", 16),
    ]
)


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Readable segments by start offset.

    Attributes:
        rows: One a segment: ROW_DTYPE, or SEGMENT_DTYPE of a table, which has the same names and more.
        last_modified_ms: int64[n].
        footer_sizes: int64[n]: see ``listed_spans.SPAN_DTYPE``.
        last_epochs: int64[n]: the last leader epoch of each.
        whole: By row, the metadata of segments that have several leader epochs, or custom metadata.
    """

    partition: TopicIdPartition
    rows: NDArray[np.void]
    last_modified_ms: NDArray[np.int64]
    footer_sizes: NDArray[np.int64]
    last_epochs: NDArray[np.int64]
    whole: dict[int, RemoteLogSegmentMetadata]

    @classmethod
    def of_table(cls, table: SegmentTable, partition: TopicIdPartition, *, has_footers: bool) -> Self | None:
        """Return the readable segments of a partition; None if there is none, or their leader epochs are too many.

        Args:
            table: Does not change.
            partition: Of which partition.
            has_footers: Whether segments may have footers.
        """
        rows = table.columns(partition).view(np.ndarray)
        rows = rows[rows["state"] == _FINISHED]
        if not len(rows):
            return None
        whole: dict[int, RemoteLogSegmentMetadata] = {}
        last_epochs = np.full(len(rows), -1, np.int64)
        for at in np.flatnonzero((rows["epoch_count"] != 1) | (rows["custom_metadata_size"] >= 0)).tolist():
            found = _get(table, partition, rows, at)
            if found is None or found.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                return None
            whole[at] = found
            last_epochs[at] = max(found.segment_leader_epochs)
        if not _fill_epochs(table, partition, rows, last_epochs):
            return None
        footers = np.full(len(rows), UNLISTED_FOOTER if has_footers else NO_FOOTER, np.int64)
        modified = rows["event_timestamp_ms"].copy()  # the store was not asked
        return cls(partition, rows, modified, footers, last_epochs, whole)

    @classmethod
    def of_listed(cls, segments: Sequence[ListedSegment]) -> Self:
        """Return segments of one partition, at least one."""
        segments = sorted(segments, key=lambda each: each.manifest.start_offset)
        manifests = [each.manifest for each in segments]
        rows = np.zeros(len(segments), ROW_DTYPE)
        # From start_offset to broker_id, which ROW_DTYPE has in the same order.
        rows[:] = [(*each[2:8], each.txn_idx_empty, _NO_ID) for each in manifests]
        ids = b"".join([each.segment_id for each in segments])
        rows["segment_id"] = np.frombuffer(ids, np.uint8).reshape(-1, 16)
        footers = [NO_FOOTER if each.footer_size is None else each.footer_size for each in segments]
        found = cls(
            segments[0].topic_id_partition,
            rows,
            np.array([each.last_modified_ms for each in segments], np.int64),
            np.array(footers, np.int64),
            np.array([each.leader_epochs[-1][0] for each in manifests], np.int64),
            {},
        )
        for at, each in enumerate(manifests):
            epochs = each.leader_epochs
            if len(epochs) > 1 or epochs[0][1] != each.start_offset:
                found.whole[at] = replace(found.metadata(at), segment_leader_epochs=EpochMap(dict(epochs)))
        return found

    def newest_segment(self, origin: SegmentOrigin) -> StoredSegment | None:
        """Return the segment of ``lineage.newest_segment``, not described; None where ids alone decide."""
        rows = self.rows
        order = np.lexsort((rows["event_timestamp_ms"], rows["end_offset"], self.last_epochs))
        at = int(order[-1])
        if len(order) > 1:
            other = int(order[-2])
            ranks = [(self.last_epochs[n], rows["end_offset"][n], rows["event_timestamp_ms"][n]) for n in (at, other)]
            if ranks[0] == ranks[1]:
                return None
        footer_size = int(self.footer_sizes[at])
        return origin.segment(
            self.metadata(at),
            last_modified_ms=int(self.last_modified_ms[at]),
            footer_size=None if footer_size == NO_FOOTER else footer_size,
        )

    def lineage(self, epochs: LeaderEpochs, newest: StoredSegment) -> Lineage | None:
        """Return the lineage of ``resolve_lineage``, without segments that no span uses; None if it is no plain one.

        Args:
            epochs: Of the newest segment's checkpoint.
            newest: The newest segment.
        """
        rows = self.rows
        if epochs.find_entry(int(self.last_epochs.max())) is None:
            return None
        ranges = epoch_ranges(epochs.entries, newest.end_offset + 1)
        numbers = np.fromiter(ranges, np.int64, len(ranges))
        starts, ends = (np.array([each[side] for each in ranges.values()], np.int64) for side in (0, 1))
        place = np.searchsorted(numbers, self.last_epochs).clip(max=len(numbers) - 1)
        known = numbers[place] == self.last_epochs
        first = np.maximum(starts[place], rows["start_offset"])
        last = np.minimum(ends[place], rows["end_offset"] + 1)
        for at, metadata in self.whole.items():
            own = counted_ranges(metadata, ranges)
            if len(own) > 1:
                return None
            known[at] = bool(own)
            first[at], last[at] = own[0] if own else (0, 0)
        used = np.flatnonzero(known & (first < last))
        used = used[np.argsort(first[used], kind="stable")]
        first, last = first[used], last[used]
        if (last[:-1] > first[1:]).any():
            return None
        gaps = np.flatnonzero(last[:-1] < first[1:])
        return Lineage(
            epochs,
            self._spans(origin_of(newest), used, first, last),
            tuple(Gap(int(last[at]), int(first[at + 1])) for at in gaps),
            (),
            newest,
        )

    def _spans(
        self,
        origin: SegmentOrigin,
        used: NDArray[np.int64],
        first: NDArray[np.int64],
        end_exclusive: NDArray[np.int64],
    ) -> ListedSpans:
        chosen = self.rows[used]
        made = np.zeros(len(used), SPAN_DTYPE)
        made["first_offset"], made["end_offset_exclusive"] = first, end_exclusive
        for name in ("start_offset", "end_offset", "max_timestamp_ms", "event_timestamp_ms", "broker_id"):
            made[name] = chosen[name]
        made["last_modified_ms"] = self.last_modified_ms[used]
        made["size_bytes"] = chosen["segment_size_in_bytes"]
        made["segment_id"] = np.ascontiguousarray(chosen["segment_id"]).view("V16").ravel()
        made["txn_idx_empty"] = chosen["txn_idx_empty"]
        made["leader_epoch"] = self.last_epochs[used]
        made["footer_size"] = self.footer_sizes[used]
        epochs: dict[int, tuple[tuple[int, int], ...]] = {}
        custom: dict[int, bytes] = {}
        for number, at in enumerate(used.tolist()) if self.whole else ():
            if (metadata := self.whole.get(at)) is None:
                continue
            own = tuple(metadata.segment_leader_epochs.items())
            if len(own) > 1 or own[0][1] != metadata.start_offset:
                epochs[number] = own
                made["leader_epoch"][number] = -1
            if metadata.custom_metadata is not None:
                custom[number] = metadata.custom_metadata
        return ListedSpans(origin, made, epochs, custom)

    def metadata(self, at: int) -> RemoteLogSegmentMetadata:
        """Return the metadata of a row."""
        row = self.rows[at]
        return self.whole.get(at) or RemoteLogSegmentMetadata(
            RemoteLogSegmentId(self.partition, Uuid(row["segment_id"].tobytes())),
            start_offset=int(row["start_offset"]),
            end_offset=int(row["end_offset"]),
            max_timestamp_ms=int(row["max_timestamp_ms"]),
            broker_id=int(row["broker_id"]),
            event_timestamp_ms=int(row["event_timestamp_ms"]),
            segment_size_in_bytes=int(row["segment_size_in_bytes"]),
            segment_leader_epochs=EpochMap({int(self.last_epochs[at]): int(row["start_offset"])}),
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_idx_empty=bool(row["txn_idx_empty"]),
        )


def _fill_epochs(
    table: SegmentTable, partition: TopicIdPartition, rows: NDArray[np.void], last_epochs: NDArray[np.int64]
) -> bool:
    """Fill in the leader epochs of segments that have one, and which begins with them; whether all of them are found.

    A row does not name its epochs: those between the first and the last segment's are asked for.
    """
    plain = np.flatnonzero(last_epochs < 0)
    if not len(plain):
        return True
    ends = [_get(table, partition, rows, int(at)) for at in (plain[0], plain[-1])]
    known = [max(end.segment_leader_epochs) for end in ends if end is not None]
    if len(known) < len(ends) or abs(known[0] - known[1]) >= _EPOCHS_MAX:
        return False
    if known[0] == known[1] and len(table.columns(partition, known[0])) == len(table.columns(partition)):
        last_epochs[plain] = known[0]  # all segments have it, and these no other: most partitions
        return True
    ids = _ids(rows[plain])
    order = np.argsort(ids)
    for epoch in range(min(known), max(known) + 1):
        wanted = _ids(table.columns(partition, epoch).view(np.ndarray))
        at = np.searchsorted(ids[order], wanted).clip(max=len(ids) - 1)
        last_epochs[plain[order[at[ids[order[at]] == wanted]]]] = epoch
    return bool((last_epochs >= 0).all())


def _ids(rows: NDArray[np.void]) -> NDArray[np.bytes_]:
    return np.ascontiguousarray(rows["segment_id"]).view("S16").ravel()


def _get(
    table: SegmentTable, partition: TopicIdPartition, rows: NDArray[np.void], at: int
) -> RemoteLogSegmentMetadata | None:
    return table.get(RemoteLogSegmentId(partition, Uuid(rows["segment_id"][at].tobytes())))
