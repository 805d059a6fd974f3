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
        end, read_into = segment.size_bytes, segment.read_into
        try:
            while position < end:
                # A window's Python runs with cold caches, behind all records of the one before: few calls.
                buffer = self._buffer
                data = buffer if len(buffer) <= end - position else buffer[: end - position]
                count = read_into(data, position=position)
                survey = survey_window(data if count == len(data) else data[:count], base_position=position)
                if survey.valid_bytes:
                    yield SegmentWindow(data[: survey.valid_bytes], position, survey)
                    position += survey.valid_bytes
                else:
                    self._grow(survey.next_size_bytes, count, position, end)
        finally:
            self._resize(self._size_bytes)

    def _grow(self, next_size_bytes: int, count: int, position: int, end: int) -> None:
        """Make room for a batch that is larger than the buffer; of 0 bytes, which is not known."""
        size_bytes = next_size_bytes or count + 1
        if count < min(len(self._buffer), end - position) or position + size_bytes > end:
            text = f"a batch of {size_bytes} bytes, and {end - position} are left"
            raise CorruptRecordError(text, fault="PARTIAL", position=position)
        self._resize(max(size_bytes, 2 * len(self._buffer)) if next_size_bytes == 0 else size_bytes)

    def _resize(self, size_bytes: int) -> None:
        if len(self._buffer) != size_bytes:
            self._buffer = new_buffer(size_bytes)
