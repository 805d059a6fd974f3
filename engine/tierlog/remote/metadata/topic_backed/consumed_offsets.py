"""How far a manager has consumed the metadata topic, and what it has read last of each metadata partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tierlog.remote.metadata.metadata_log import LogBounds, RecordIdentity


class ConsumedOffsets:
    """The offsets of the metadata partitions that are followed.

    Attributes:
        positions: Metadata partition → where it is read on.
        last_records: Of those, unless nothing was read → the last record that was: it lies behind the position while
            the metadata partition is read again for another partition.

    Thread safety: one thread.
    """

    def __init__(
        self, positions: Mapping[int, int] | None = None, last_records: Mapping[int, RecordIdentity] | None = None
    ) -> None:
        self.positions = dict(positions or {})
        self.last_records = dict(last_records or {})

    def advance(self, number: int, next_offset: int, last_record: RecordIdentity | None) -> None:
        """Take what a read gave."""
        self.positions[number] = max(self.positions[number], next_offset)
        if last_record is not None and last_record.offset >= self.reached(number):
            self.last_records[number] = last_record

    def reached(self, number: int) -> int:
        """Return the offset behind the last record."""
        last = self.last_records.get(number)
        return 0 if last is None else last.offset + 1

    def rewound(self, numbers: Iterable[int]) -> list[int]:
        """Return those that are read again."""
        return [number for number in numbers if self.positions[number] < self.reached(number)]

    def outside(self, bounds: Mapping[int, LogBounds]) -> list[int]:
        """Return the metadata partitions of which something was read that they hold no longer."""
        return [
            number
            for number, found in bounds.items()
            if number in self.positions
            and not found.start_offset
            <= self.positions[number]
            <= max(self.positions[number], self.reached(number))
            <= found.end_offset
        ]

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget metadata partitions: they are read from their beginning, if at all."""
        for number in numbers:
            self.positions.pop(number, None)
            self.last_records.pop(number, None)
