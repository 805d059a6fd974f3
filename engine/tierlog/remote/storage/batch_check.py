"""Whether what a reader gets is a run of sound record batches, in order: a check over chunks as they go by.

Chunks of a segment all authenticate under the same key, so that two of them can change places and still be authentic
(section 18 of the object format's notes); of a plain segment nothing authenticates at all. What the broker put there
does tell: each batch has a checksum, offsets rise, and all of them lie within the segment.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tierlog._native.batches import BatchStream
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import RemoteLogSegmentMetadata

_Columns = Mapping[str, NDArray[np.generic]]


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
        self._first, self._last = metadata.start_offset, metadata.end_offset
        self._is_border = position == 0
        self._stream = BatchStream(base_position=position)
        self._position = position
        self._size_bytes = metadata.segment_size_in_bytes
        self._seen_offset = self._first - 1
        self._off = False

    @property
    def is_checking(self) -> bool:
        """Whether what was fed so far began at a border, as far as can be known."""
        return self._is_border and not self._off

    def feed(self, data: memoryview) -> None:
        """The next bytes.

        Raises:
            CorruptObjectError: a batch among those that are whole now does not match its checksum, lies outside the
                segment's offsets or behind a later one; no batch begins where one ends; or the one that has begun says
                that it ends behind the segment.
        """
        if self._off:
            return
        try:
            self._feed(data)
        except CorruptObjectError:
            if self._is_border:
                raise
            self._off = True

    def _feed(self, data: memoryview) -> None:
        columns, broken = self._stream.feed(data)
        self._position += len(data)
        if len(columns["position"]):
            if not self._is_border:
                self._check_first(columns)
                self._is_border = True
            self._check(columns)
        if broken is not None:
            raise self._corrupt(broken.text, broken.fault, self._stream.end_position)
        if self._position + self._stream.left_bytes > self._size_bytes:
            text = "no batch of the segment can be so large"
            raise self._corrupt(text, "BAD_SIZE", self._stream.end_position)

    def _check_first(self, columns: _Columns) -> None:
        """One sound batch within the segment proves a border; what follows it must be sound then."""
        first, last = int(_int64(columns, "base_offset")[0]), int(_int64(columns, "last_offset")[0])
        if not columns["crc_ok"][0] or not self._first <= first <= last <= self._last:
            raise self._corrupt("no batch of the segment begins here", "BAD_ENTRY", self._stream.end_position)

    def _check(self, columns: _Columns) -> None:
        wrong = np.flatnonzero(~columns["crc_ok"].astype(np.bool_))
        positions = _int64(columns, "position")
        if len(wrong):
            raise self._corrupt("a batch does not match its checksum", "BAD_CRC", int(positions[wrong[0]]))
        base, last = _int64(columns, "base_offset"), _int64(columns, "last_offset")
        before = np.concatenate(([self._seen_offset], last[:-1]))
        late = np.flatnonzero((base <= before) | (last > self._last))
        if len(late):
            at = int(late[0])
            text = (
                f"a batch of offsets {int(base[at])} … {int(last[at])} where only {int(before[at]) + 1} … {self._last} "
                "can stand: chunks of another place, or of another segment"
            )
            raise self._corrupt(text, "BAD_ENTRY", int(positions[at]), base_offset=int(base[at]))
        self._seen_offset = int(last[-1])

    def _corrupt(self, text: str, fault: str, position: int, *, base_offset: int = -1) -> CorruptObjectError:
        return CorruptObjectError(text, fault=fault, position=position, base_offset=base_offset, where=self._name)


def _int64(columns: _Columns, name: str) -> NDArray[np.int64]:
    return columns[name].astype(np.int64, copy=False)
