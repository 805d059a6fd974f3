"""The bytes of a batch that its checksum does not cover, flipped bit by bit, and what a read made of it.

``baseOffset`` (8 bytes), ``batchLength`` (4), ``partitionLeaderEpoch`` (4), ``magic`` (1); the checksum itself follows.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator

from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket

OFFSET_BITS = range(64)
LENGTH_BITS = range(64, 96)
EPOCH_BITS = range(96, 128)
UNCHECKED_BITS = range(136)
#: Of a segment: the first batch, one in its midst, the last one.
WHERE = ("first", "middle", "last")
FIRST, END, PER_BATCH = 40, 80, 5


def of_five(first: int, end: int) -> list[Batch]:
    """Batches of five records, each with its offset as its value."""
    return [
        Batch(
            base,
            tuple(b"%d" % offset for offset in range(base, base + PER_BATCH)),
            timestamp_ms=1_700_000_000_000 + 1000 * base,
        )
        for base in range(first, end, PER_BATCH)
    ]


class Flipped:
    """A topic of three segments, the one in the midst with any bit of its log flipped.

    Args:
        root: Of the bucket.
        index_interval_bytes: Of the segments' offset indexes.
    """

    def __init__(self, root: pathlib.Path, *, index_interval_bytes: int = 0) -> None:
        bucket = Bucket(root, index_interval_bytes=index_interval_bytes)
        for first in (0, FIRST, END):
            bucket.segment(f"s{first}", of_five(first, first + 40), lineage={0: 0})
        self._log = bucket.path(f"s{FIRST}", "log")
        self._sound = self._log.read_bytes()
        self._starts = [0]
        for batch in of_five(FIRST, END):
            self._starts.append(self._starts[-1] + len(encode(batch)))

    def each(self, batch: int, bits: Iterable[int] = UNCHECKED_BITS) -> Iterator[int]:
        """Flips one bit of a batch of the middle segment after another; sound again at the end."""
        for bit in bits:
            data = bytearray(self._sound)
            data[self._starts[batch] + bit // 8] ^= 0x80 >> bit % 8
            self._log.write_bytes(data)
            yield bit
        self.restore()

    def restore(self) -> None:
        self._log.write_bytes(self._sound)

    @property
    def batches(self) -> int:
        """How many record batches the middle segment has."""
        return len(self._starts) - 1

    def number(self, where: str) -> int:
        return {"first": 0, "middle": self.batches // 2, "last": self.batches - 1}[where]
