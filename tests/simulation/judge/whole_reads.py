"""What can be read at the end of a run, from each replica: invariant 1 as its users have it, and 6 and 14.

Each read is of a whole partition: everything that is known of it is there, once, in order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tests.simulation.facts import ReadPart, Violation
from tests.simulation.judge.batches import Batch, Record, parse, visible
from tests.simulation.judge.contents import Contents


class WholeRead:
    """One read of a partition from its start to its end.

    Args:
        contents: What is known of the partition.
        start: The log start that its leader told.
        end: Behind the last offset that was read.
        parts: The answers, in order.
        where: Who read from whom, for messages.
        is_committed: Whether committed records alone.
        lacks_marker: Whether who was read may have no marker of a transaction that was decided.
    """

    def __init__(
        self,
        contents: Contents,
        start: int,
        end: int,
        parts: Sequence[ReadPart],
        where: str,
        *,
        is_committed: bool,
        lacks_marker: Callable[[str], bool],
    ) -> None:
        self.batches: list[Batch] = []
        self._contents = contents
        self._start, self._end = start, end
        self._parts = parts
        self._where = f"{where} of {contents.partition} from {start} to {end}"
        self._is_committed = is_committed
        self._lacks_marker = lacks_marker
        self._shown: dict[int, Record] = {}

    def check(self, published_start: int, end_of_expired: Callable[[int], int]) -> None:
        """Judge it.

        Args:
            published_start: The highest log start that a leader had: nothing from there on may be missing.
            end_of_expired: Behind the segments that begin with an offset, or have it, and lost objects by a lifecycle
                rule; the offset itself: none.
        """
        contents, where = self._contents, self._where
        if self._start > published_start:
            raise Violation(1, "lost write", f"{where}: no leader's log began behind {published_start}")
        if self._end < contents.end_offset:
            text = f"{where}: offset {contents.end_offset - 1} is known to be committed"
            raise Violation(1, "lost write", text)
        read = self._collect(end_of_expired)
        for offset in contents.at:
            if self._start <= offset < self._end and any(low <= offset < high for low, high in read):
                self._check_offset(offset)
        for offset in self._shown.keys() - contents.at.keys():
            raise Violation(1, "phantom read", f"{where}: nobody knows of {self._shown[offset]}")
        self._check_unplaced(read)

    def _collect(self, end_of_expired: Callable[[int], int]) -> list[tuple[int, int]]:
        """Take the answers in their order; return the ranges that were read: all, but what objects are lost of."""
        read: list[tuple[int, int]] = []
        at = low = self._start
        is_compacted = self._contents.is_compacted
        for part in self._parts:
            if part.offset != at:
                if not at < part.offset <= end_of_expired(at):
                    raise Violation(12, "poll skip", f"{self._where}: {at} was next, {part.offset} was asked for")
                read.append((low, at))
                at = low = part.offset
            batches = parse(part.data)
            for batch in batches:
                is_next = batch.base_offset <= at <= batch.last_offset or (is_compacted and batch.base_offset > at)
                if not is_next:
                    text = f"{self._where}: {at} was next, {batch.base_offset}..{batch.last_offset} came"
                    raise Violation(12, "poll skip" if batch.last_offset >= at else "nonmonotonic poll", text)
                at = batch.last_offset + 1
            self.batches += batches
            for record in self._records(batches, part):
                self._shown[record.offset] = record
        if at < self._end <= end_of_expired(at):
            read.append((low, at))
        elif at < self._end:
            raise Violation(1, "lost write", f"{self._where}: it ended at {at}")
        else:
            read.append((low, self._end))
        return read

    def _records(self, batches: list[Batch], part: ReadPart) -> Iterable[Record]:
        if self._is_committed:
            return visible(batches, part.aborted, part.offset)
        every = (record for batch in batches if not batch.is_control for record in batch.records())
        return (record for record in every if record.offset >= part.offset)

    def _check_offset(self, offset: int) -> None:
        """Check that a reader got the record at an offset, or was not to get it."""
        contents, shown = self._contents, self._shown.get(offset)
        known = contents.at[offset]
        where = f"{self._where}: offset {offset}, {known.key!r}={known.value!r}"
        if known.marker is not None:
            if shown is not None:
                raise Violation(1, "phantom read", f"{where}: marker {known.marker}, {shown} was shown")
            return
        name = None if known.sent is None else known.sent.transaction
        if self._is_committed and name is not None:
            if contents.cuts:
                return  # a marker that an unclean election took lets a later one decide
            is_commit = contents.sent.decided.get(name)
            is_judged = shown is not None or not contents.is_compacted
            if is_judged and is_commit != (shown is not None) and not self._lacks_marker(name):
                contents.check_shown(f"{where}, {name}", is_commit, is_shown=shown is not None)
        elif shown is None and not contents.is_compacted:
            raise Violation(1, "lost write", where)
        if shown is not None and (shown.key, shown.value) != (known.key, known.value):
            raise Violation(1, "corrupt read", f"{where}: {shown} was shown")

    def _check_unplaced(self, read: list[tuple[int, int]]) -> None:
        """An acknowledged batch whose offset its producer was not told is somewhere, if nothing was deleted."""
        contents = self._contents
        if contents.is_compacted or contents.cuts or read != [(0, self._end)]:
            return
        values = {record.value for record in self._shown.values()}
        for batch in contents.unplaced:
            is_wanted = not self._is_committed or batch.transaction is None
            for _, value in batch.records if is_wanted else ():
                if value is not None and value not in values:
                    text = f"{self._where}: {value!r} of {batch.producer}'s batch {batch.number} was acknowledged"
                    raise Violation(1, "lost write", text)
