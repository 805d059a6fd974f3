"""Whether what a reader gets is a run of sound record batches, in order: a check over chunks as they go by.

Chunks of a segment all authenticate under the same key, so that two of them can change places and still be authentic
(docs/formats/objects.md, Encryption of chunks and indexes); of a plain segment nothing authenticates at all. What the
broker put there does tell: each batch has a checksum, offsets rise, and all of them lie within the segment.
"""

from __future__ import annotations

from tierlog._native.batches import RangeCheck
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import RemoteLogSegmentMetadata


class BatchCheck:
    """Feed it the bytes of one range in order. It keeps none of them.

    A range that begins inside a batch cannot be checked. Position 0 is a border; any other start is one if the first
    batch that stands there is sound, and this says nothing until it has seen that. Brokers ask for positions of the
    offset index, which are borders.

    Args:
        metadata: Of the segment: its offsets and its size.
        position: Of the first byte in the log.
        name: Of the object, for messages.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata, *, position: int, name: str) -> None:
        self._name = name
        self._last = metadata.end_offset
        self._check = RangeCheck(
            position=position,
            first_offset=metadata.start_offset,
            last_offset=metadata.end_offset,
            size_bytes=metadata.segment_size_in_bytes,
        )

    @property
    def is_checking(self) -> bool:
        """Whether what was fed so far began at a border, as far as can be known."""
        return self._check.is_checking

    def feed(self, data: memoryview) -> None:
        """The next bytes.

        Raises:
            CorruptObjectError: a batch among those that are whole now does not match its checksum, lies outside the
                segment's offsets or behind a later one; no batch begins where one ends; or the one that has begun says
                that it ends behind the segment. ValueError: fed behind such a fault.
        """
        found = self._check.feed(data)
        if found is not None:
            raise self._told(*found)

    def _told(self, rule: str, error: CorruptObjectError) -> CorruptObjectError:
        if rule == "crc":
            error.text = "a batch does not match its checksum"
        elif rule == "size":
            error.text = "no batch of the segment can be so large"
        elif rule == "order":
            error.text = (
                f"a batch of offsets {error.base_offset} … {error.found} where only {error.expected} … {self._last} "
                "can stand: chunks of another place, or of another segment"
            )
        return error.located(self._name)
