"""Where sequential readers go on: behind the last batch that they got, without a look into an index."""

from __future__ import annotations

from typing import Final

from tierlog.remote.tier.chunks.segment import StoredSegment

#: Readers that are remembered: the connections of a server, some partitions each.
_HINTS_MAX: Final = 16384
#: Key, size and time of change of a log.
LogVersion = tuple[str, int, int]


def log_version(segment: StoredSegment) -> LogVersion:
    """What tells a segment's log from what had its name before: a broker's log grows, or is cut and written anew."""
    return segment.log.key, segment.size_bytes, segment.last_modified_ms


class PositionHints:
    """Positions of batches by log and offset, those that were asked for last. Used on one thread.

    A log is named by what tells it from another one of the same key: see ``log_version``.
    """

    def __init__(self) -> None:
        self._positions: dict[tuple[LogVersion, int], int] = {}

    def find(self, log: LogVersion, offset: int) -> int | None:
        """Where in a log the batch begins that holds an offset, or the next one, if a reader's read ended there."""
        key = (log, offset)
        position = self._positions.pop(key, None)
        if position is not None:
            self._positions[key] = position  # the newest is last
        return position

    def put(self, log: LogVersion, offset: int, position: int) -> None:
        """Remember where the batches from an offset on begin."""
        positions = self._positions
        positions.pop((log, offset), None)
        positions[log, offset] = position
        if len(positions) > _HINTS_MAX:
            del positions[next(iter(positions))]

    def drop(self, log: LogVersion, offset: int) -> None:
        """Forget a position at which no batch stands."""
        self._positions.pop((log, offset), None)
