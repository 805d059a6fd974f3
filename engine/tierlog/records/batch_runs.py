"""Windows of a log, cut anywhere, as runs of whole batches. Only a batch that straddles two windows is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.batches import find_batch_size, scan_batches
from tierlog.errors import CorruptRecordError
from tierlog.records.batch_table import CODEC_MASK

#: A batch on disk may not be larger than a decompressed one.
BATCH_SIZE_BYTES_MAX = 256 << 20
#: Bytes at a batch's start that contain its size.
SIZE_KNOWN_BYTES = 17

#: As ``scan_batches`` gives them, each of shape (n_batches,); positions in the log.
BatchColumns = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Neighbouring whole batches, at least one.

    Attributes:
        columns: Columns of their headers.
        position: Of data[0] in the log, bytes.
        data: The bytes of exactly these batches.
    """

    columns: BatchColumns
    position: int
    data: memoryview

    def column(self, name: str) -> NDArray[np.int64]:
        return self.columns[name].astype(np.int64, copy=False)

    def bytes_of(self, batch: int) -> memoryview:
        start = int(self.columns["position"][batch]) - self.position
        return self.data[start : start + int(self.columns["size_bytes"][batch])]

    def begins_below(self, end_offset_exclusive: int) -> NDArray[np.bool_]:
        """Return a mask of the batches that begin below an offset.

        The header of a compressed batch of formats 0 and 1 has its last offset only. Offsets rise, so one at most lies
        across the bound: its records are looked at.

        Raises:
            CorruptRecordError: they cannot be read.
        """
        found = self.column("base_offset") < end_offset_exclusive
        if found.all():
            return found
        across = int(np.argmin(found))
        if self.columns["magic"][across] < 2 and self.columns["attributes"][across] & CODEC_MASK:
            from tierlog._native.decoding import RecordDecoder

            decoder = RecordDecoder(
                ["offset"],
                base_position=int(self.columns["position"][across]),
                from_offset=-(2**63),
                to_offset_exclusive=end_offset_exclusive,
            )
            found[across] = any(part.num_rows for part in decoder.feed(self.bytes_of(across)))
            found[across] |= any(part.num_rows for part in decoder.finish())
        return found


@dataclass(slots=True)
class BatchRuns:
    """An iterable of BatchRun, for one iteration; after it the attributes say how the data ended.

    Attributes:
        windows: The log's bytes in order from a batch border on.
        verify_crc: Fill the column ``crc_ok``.
        end_position: Byte position behind the last whole batch; to begin with, that of the first window.
        rest: The bytes behind it, which are no whole batch; of a broken end only up to the end of its window.
        rest_size_bytes: The size that the batch in ``rest`` declares; 0 if even that is missing.
        broken: Why the bytes behind ``end_position`` are no batch; None if they are a batch that is cut off, or there
            are none.
        oversized: Whether the batch in ``rest`` is larger than BATCH_SIZE_BYTES_MAX, or declares to be.
    """

    windows: Iterable[Buffer]
    verify_crc: bool = False
    end_position: int = 0
    rest: bytearray = field(default_factory=bytearray)
    rest_size_bytes: int = 0
    broken: CorruptRecordError | None = None
    oversized: bool = False

    def __iter__(self) -> Iterator[BatchRun]:
        """Yield the runs, in the order of the log."""
        for window in self.windows:
            left = memoryview(window).cast("B")
            while len(left) and not self.stopped:
                if self.rest:
                    left = self._top_up(left)
                    if not self._whole:
                        continue
                    joined, self.rest = self.rest, bytearray()
                    yield from self._scan(memoryview(joined))
                else:
                    yield from self._scan(left)
                    break
            if self.stopped:
                return

    @property
    def stopped(self) -> bool:
        return self.oversized or self.broken is not None

    @property
    def _whole(self) -> bool:
        return 0 < self.rest_size_bytes <= len(self.rest)

    def _top_up(self, window: memoryview) -> memoryview:
        """Move the missing bytes of the straddling batch out of the window: first those that declare its size."""
        wanted = (self.rest_size_bytes or SIZE_KNOWN_BYTES) - len(self.rest)
        self.rest += window[:wanted]
        if not self.rest_size_bytes:
            self._read_size()
        return window[wanted:]

    def _scan(self, data: memoryview) -> Iterator[BatchRun]:
        table, end, _, broken = scan_batches(data, base_position=self.end_position, verify_crc=self.verify_crc)
        start, self.end_position = self.end_position, end
        whole = end - start
        if len(table["position"]):
            yield BatchRun(table, start, data[:whole])
        self.broken = broken
        self.rest = bytearray(data[whole:])
        self.rest_size_bytes = 0
        if broken is None:
            self._read_size()

    def _read_size(self) -> None:
        try:
            self.rest_size_bytes = find_batch_size(self.rest) or 0
        except CorruptRecordError as error:
            error.position = self.end_position
            self.broken = error
        self.oversized = self.rest_size_bytes > BATCH_SIZE_BYTES_MAX
