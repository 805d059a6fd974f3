"""A segment table's sections of a snapshot, one at a time."""

from __future__ import annotations

from tierlog._native.segments import NativeSegmentTable, SnapshotWriter
from tierlog.runtime.machine.scheduling import Lock


class TableSnapshot:
    """The partitions and segments of a table as the sections of a snapshot, all of one moment.

    The table's lock is held while a section is made, not between: who writes the snapshot is the one who writes the
    table. An event of somebody else between two sections ends it.

    Args:
        table: Of which it is.
        lock: That of its writers.
    """

    def __init__(self, table: NativeSegmentTable, lock: Lock) -> None:
        self._lock = lock
        with lock:
            self._writer = SnapshotWriter(table)
            self.partitions = self._writer.partitions
            self.segments = self._writer.segments
            self.as_kafka = self._writer.as_kafka

    def next_section(self, number: int, out: memoryview) -> int:
        """One more section, into SNAPSHOT_SECTION_BYTES_MAX bytes; its size, 0 at the end.

        Raises:
            RuntimeError: the table was changed since this was made. ValueError: a topic's name is above 64 KiB.
        """
        with self._lock:
            return self._writer.next_section(number, out)
