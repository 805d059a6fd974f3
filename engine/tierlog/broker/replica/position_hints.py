"""Where sequential readers go on: behind the last batch that they got, without a look into an index."""

from __future__ import annotations

from typing import Final

#: Readers that are remembered: the connections of a server, some partitions each.
_HINTS_MAX: Final = 16384


class PositionHints:
    """Positions of batches by log and offset, those that were asked for last. Used on one thread."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, int], int] = {}

    def find(self, log_key: str, offset: int) -> int | None:
        """Where in a log the batch begins that holds an offset, or the next one, if a reader's read ended there."""
        key = (log_key, offset)
        position = self._positions.pop(key, None)
        if position is not None:
            self._positions[key] = position  # the newest is last
        return position

    def put(self, log_key: str, offset: int, position: int) -> None:
        """Remember where the batches from an offset on begin."""
        positions = self._positions
        positions.pop((log_key, offset), None)
        positions[log_key, offset] = position
        if len(positions) > _HINTS_MAX:
            del positions[next(iter(positions))]

    def drop(self, log_key: str, offset: int) -> None:
        """Forget a position at which no batch stands."""
        self._positions.pop((log_key, offset), None)
