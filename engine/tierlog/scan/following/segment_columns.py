"""The segments of a partition that is followed, as columns: some 120 bytes each in place of some kilobytes.

A tier of very many segments is looked at for as long as a query runs. What a look has to know of a segment that was
there before is that it is the same one, and its metadata when its partition has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.scan.following.resolution import Resolution
from tierlog.scan.pinned_history import pinned
from tierlog.scan.spans import SpanColumns

#: Of XXH3-128; NumPy leaves out NULs at the end of both that it compares.
_DIGEST: Final = np.dtype("S16")


@dataclass(frozen=True, slots=True, eq=False)
class SegmentColumns(Mapping[bytes, StoredSegment]):
    """Segments by the digest of their objects (``resolution.LoadedSegments``). Each is made when it is asked for, not
    described unless it is a plain one. Immutable; any number of threads.

    Args:
        digests: S16[n], ascending.
        rows: int32[n]: the place in ``spans`` of each.
        spans: Of the history.
        others: Segments that no span uses.
    """

    digests: NDArray[np.bytes_]
    rows: NDArray[np.int32]
    spans: SpanColumns
    others: Mapping[bytes, StoredSegment]

    @classmethod
    def of(cls, segments: Mapping[bytes, StoredSegment], spans: SpanColumns) -> Self:
        """Return the same segments."""
        places = {each: row for row, each in enumerate(spans.listed.rows["segment_id"].tolist())}
        digests: list[bytes] = []
        rows: list[int] = []
        others: dict[bytes, StoredSegment] = {}
        for digest in sorted(segments):
            row = places.get(segments[digest].metadata.remote_log_segment_id.id)
            if row is None:
                others[digest] = segments[digest]
            else:
                digests.append(digest)
                rows.append(row)
        return cls(np.array(digests, _DIGEST), np.array(rows, np.int32), spans, others)

    def __len__(self) -> int:
        return len(self.digests) + len(self.others)

    def __iter__(self) -> Iterator[bytes]:
        size = _DIGEST.itemsize
        packed = self.digests.tobytes()
        yield from (packed[at : at + size] for at in range(0, len(packed), size))
        yield from self.others

    def __contains__(self, digest: object) -> bool:
        return digest in self.others or (isinstance(digest, bytes) and self._place(digest) is not None)

    def __getitem__(self, digest: bytes) -> StoredSegment:
        place = self._place(digest)
        return self.others[digest] if place is None else self.spans[int(self.rows[place])].segment

    def _place(self, digest: bytes) -> int | None:
        wanted = np.array(digest, _DIGEST)[()]
        place = int(np.searchsorted(self.digests, wanted))
        return place if place < len(self.digests) and self.digests[place] == wanted else None


def in_columns(resolution: Resolution) -> Resolution:
    """Return the same resolution with its segments as columns; as it is where columns cannot hold them."""
    if resolution.history is None or isinstance(resolution.loaded, SegmentColumns):
        return resolution
    history = pinned(resolution.history)
    spans = history.lineage.spans
    if not isinstance(spans, SpanColumns):
        return resolution
    return replace(resolution, history=history, loaded=SegmentColumns.of(resolution.loaded, spans))
