"""The bytes of a segment, a window of whole batches at a time, in one buffer that grows for a large batch.

Source: Kafka Cleaner#growBuffersOrFail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tierlog._native.compaction import Window, survey_window
from tierlog.errors import CorruptRecordError
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine.buffers import new_buffer


class SegmentWindow(NamedTuple):
    """Whole batches, whose checksums are right.

    Attributes:
        data: Until the next window is read.
        position: In the segment.
        survey: What is in it.
    """

    data: memoryview
    position: int
    survey: Window


class WindowBuffer:
    """The buffer of one cleaner. Not thread-safe.

    Args:
        size_bytes: As it is made; for a larger batch it grows to the batch's size, and shrinks behind the segment.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._buffer = new_buffer(size_bytes)

    def of_its_size(self) -> memoryview:
        """Make another buffer of the size."""
        return new_buffer(self._size_bytes)

    def windows(self, segment: LogSegment, position: int) -> Iterator[SegmentWindow]:
        """Iterate the batches from a position on, where one begins, to the segment's end.

        Raises:
            CorruptRecordError: a batch is damaged, or the segment ends inside it. LogTruncatedError. StoreError.
        """
        end = segment.size_bytes
        try:
            while position < end:
                window = self._read(segment, position, end)
                yield window
                position += window.survey.valid_bytes
        finally:
            self._resize(self._size_bytes)

    def _read(self, segment: LogSegment, position: int, end: int) -> SegmentWindow:
        while True:
            wanted = min(len(self._buffer), end - position)
            count = segment.read_into(self._buffer[:wanted], position=position)
            survey = survey_window(self._buffer[:count], base_position=position)
            if survey.valid_bytes:
                return SegmentWindow(self._buffer[: survey.valid_bytes], position, survey)
            size_bytes = survey.next_size_bytes or count + 1
            if count < wanted or position + size_bytes > end:
                text = f"a batch of {size_bytes} bytes, and {end - position} are left"
                raise CorruptRecordError(text, fault="PARTIAL", position=position)
            self._resize(max(size_bytes, 2 * len(self._buffer)) if survey.next_size_bytes == 0 else size_bytes)

    def _resize(self, size_bytes: int) -> None:
        if len(self._buffer) != size_bytes:
            self._buffer = new_buffer(size_bytes)
