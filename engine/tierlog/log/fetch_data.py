"""The result of a read of a log, in its local segments or in the tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

#: Bytes as they lie in a log: a view of memory, or a slice of a file.
Part_co = TypeVar("Part_co", covariant=True)


class FetchDataInfo(NamedTuple, Generic[Part_co]):
    """The result of a read (Kafka's FetchDataInfo).

    Attributes:
        start_offset: The one asked for.
        segment_base_offset: Of the segment in which the bytes begin; -1 where nothing was read.
        position: Where they begin in that segment, bytes; -1 where nothing was read.
        records: The bytes of batches as they lie in the log, in order, never joined. They begin with the first byte of
            the batch that holds the offset (or of the next one) and may end inside a batch.
        size_bytes: Of all of ``records``.
        first_offset: Base offset of the first batch; -1 where there is none.
        last_offset: Of the last whole batch; -1 where there is none, or it is unknown.
        first_entry_incomplete: Whether the first batch does not fit into the bytes that were asked for and is handed
            out in part.
        aborted_transactions: (producer id, first offset) of the aborted transactions that touch the offsets read,
            ascending by first offset; None unless committed records were asked for.
    """

    start_offset: int
    segment_base_offset: int = -1
    position: int = -1
    records: Sequence[Part_co] = ()
    size_bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1
    first_entry_incomplete: bool = False
    aborted_transactions: Sequence[tuple[int, int]] | None = None
