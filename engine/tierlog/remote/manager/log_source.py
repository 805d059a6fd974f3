"""The border between reading batches and what gives the bytes of segments.

Source: a replica reads stored segments by their objects (``SegmentReader``), a broker by their metadata alone, through
any storage manager (``RemoteSource``).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

from tierlog.runtime.waiting.waits import Waits

Segment_contra = TypeVar("Segment_contra", contravariant=True)


class SourceLog(Protocol):
    """The log of one segment, opened by its source.

    Attributes:
        version: What differs for other bytes under the same name: positions and checks of one version mean nothing for
            another.
        name, place: For messages; ``place`` with the topic-partition.
        start_offset, end_offset: The offsets that it may have, both **inclusive**.
        size_bytes: Of the log, as far as it counts.
    """

    @property
    def version(self) -> Hashable: ...
    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def chunk_end(self, position: int) -> int:
        """Position up to which bytes come at no further cost with the byte at a position."""


Log = TypeVar("Log", bound=SourceLog)


class LogSource(Protocol[Segment_contra, Log]):
    """Gives the bytes of segments, as code that yields its waits. Any number of threads."""

    def log_waits(self, segment: Segment_contra) -> Waits[Log]:
        """Return the log of a segment."""

    def read_waits(
        self, log: Log, start: int, end_exclusive: int, *, least_bytes: int, again: bool
    ) -> Waits[list[memoryview]]:
        """Read a range, as views that stay as they are for as long as they are referenced; never joined.

        Args:
            log: Of ``log_waits``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            least_bytes: Fewer bytes than the range has may come, where what follows is not there; so many at least.
            again: The same reader asked for the first bytes just before.
        """

    def offset_index_waits(self, log: Log) -> Waits[bytes | memoryview | None]:
        """Return the offset index of a segment; None if it has none.

        Raises:
            CorruptDataError: it cannot be used; else as ``read_waits``.
        """
