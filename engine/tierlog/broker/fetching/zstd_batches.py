"""Batches that clients of old versions cannot read: zstd came with Fetch 10 (KIP-110)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

#: The first version of Fetch whose clients know zstd.
ZSTD_SINCE: Final = 10
#: Of a batch (docs/formats/log-files.md, Record batch): base offset and length, then what the length counts.
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
_MAGIC: Final = 2
_CODEC: Final = 7
_ZSTD: Final = 4


def before_zstd(records: Sequence[memoryview]) -> tuple[list[memoryview], int]:
    """The records in front of the first batch that is compressed with zstd, and their size in bytes.

    Headers alone are looked at, by their lengths; of what is no batch nothing is left out.

    Args:
        records: Batches in order, cut into views anyhow; the last one may be cut short.
    """
    starts = list(accumulate(map(len, records), initial=0))
    end = starts.pop()
    position = 0
    while position + _ATTRIBUTES_AT < end:
        head = _bytes_at(records, starts, position, _ATTRIBUTES_AT + 1)
        if head[_MAGIC_AT] == _MAGIC and head[_ATTRIBUTES_AT] & _CODEC == _ZSTD:
            end = position
            break
        length = int.from_bytes(head[_LENGTH_AT:_LENGTH_END], "big", signed=True)
        position += _LENGTH_END + max(length, 0)
    return [view[: end - start] for start, view in zip(starts, records, strict=True) if start < end], end


def _bytes_at(records: Sequence[memoryview], starts: list[int], position: int, size_bytes: int) -> bytes:
    """Some bytes, which may lie in several views."""
    number = bisect_right(starts, position) - 1
    begin = position - starts[number]
    found = bytes(records[number][begin : begin + size_bytes])
    while len(found) < size_bytes:
        number += 1
        found += bytes(records[number][: size_bytes - len(found)])
    return found
