"""The segments of a log, as a value that is replaced as a whole: readers take it without a lock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tierlog.log.local.segments.log_segment import LogSegment


class LogSegments:
    """Segments by base offset, ascending. Immutable; the segments themselves are not.

    Raises:
        ValueError: two segments have one base offset.
    """

    __slots__ = ("_bases", "segments")

    segments: tuple[LogSegment, ...]

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self.segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = [segment.base_offset for segment in self.segments]
        if len(set(self._bases)) != len(self._bases):
            raise ValueError("two segments of one base offset")

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def first(self) -> LogSegment:
        return self.segments[0]

    @property
    def active(self) -> LogSegment:
        """The last one, which is appended to."""
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def floor(self, offset: int) -> LogSegment | None:
        """The segment of the greatest base offset at or below an offset."""
        at = bisect_right(self._bases, offset)
        return self.segments[at - 1] if at else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment of the least base offset above an offset."""
        at = bisect_right(self._bases, offset)
        return self.segments[at] if at < len(self.segments) else None

    def from_floor(self, offset: int) -> tuple[LogSegment, ...]:
        """The segments from the floor of an offset on; all, if there is no floor."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def between(self, from_offset: int, to_offset: int) -> tuple[LogSegment, ...]:
        """The segments from the floor of an offset on, with base offsets below another."""
        return self.segments[max(0, bisect_right(self._bases, from_offset) - 1) : bisect_left(self._bases, to_offset)]

    def with_added(self, *added: LogSegment) -> LogSegments:
        return LogSegments((*self.segments, *added))

    def without(self, removed: Iterable[LogSegment]) -> LogSegments:
        gone = {id(segment) for segment in removed}
        return LogSegments(segment for segment in self.segments if id(segment) not in gone)
