"""Restored metadata as a snapshot file, for readers that take metadata.

It is of no topic: a manager does not take it for its own topic's, whose events it would go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierlog.remote.metadata.snapshots.snapshot_file import write_snapshot
from tierlog.remote.metadata.snapshots.snapshot_state import SnapshotState
from tierlog.remote.metadata.table.segment_table import SegmentTable
from tierlog.runtime.machine import Machine


class SnapshotFile:
    """One snapshot. One thread; ``close`` it.

    Args:
        path: A new file, or an empty one.
        machine: Its files.

    Raises:
        ConfigError: there is something in the file already.
    """

    known: Final = 0  #: A new file knows no segment.

    def __init__(self, path: str, *, machine: Machine) -> None:
        found = machine.files.find(path)
        if found is not None and (found.is_directory or found.size_bytes):
            raise ConfigError(f"{path} exists and is not empty: give a new file")
        self._path = path
        self._machine = machine
        self._table = SegmentTable(machine=machine, learns_partitions=True)

    def look(self, segment_id: RemoteLogSegmentId) -> None:
        """Nothing: the file is new."""

    def check(self, segments: Callable[[], Iterable[tuple[RemoteLogSegmentMetadata, int]]]) -> None:
        """Nothing: the file is new."""

    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:  # noqa: ARG002 - told by nobody
        """Take one segment; about 100 bytes of memory."""
        self._table.put(metadata)

    def finish(self) -> None:
        """Write the file. Raises StoreError and its kinds."""
        write_snapshot(self._path, self._table, SnapshotState(), machine=self._machine)

    def close(self) -> None:
        """Release the table; idempotent."""
        self._table.close()
