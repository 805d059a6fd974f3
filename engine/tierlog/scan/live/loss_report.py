"""What a reader tells of records that should be there and are not: an error, or a line of the log, once."""

from __future__ import annotations

import logging

from tierlog.errors import DataLossError

logger = logging.getLogger(__name__)


class LossReport:
    """The report of one reader.

    Args:
        fails: Whether data loss is an error.
    """

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self._told: set[str] = set()

    def lose(self, text: str) -> None:
        """Report what should be there and is not. Raises DataLossError, if it fails."""
        if self.fails:
            raise DataLossError(f"{text}; failOnDataLoss=false goes on without")
        self.say(text)

    def lose_range(self, topic: str, partition: int, first: int, end: int) -> None:
        """Report offsets [first, end) that no broker has any more. Raises DataLossError, if it fails."""
        self.lose(f"{topic}-{partition}: offsets {first} to {end - 1} are not at the brokers")

    def say(self, text: str) -> None:
        """Log a warning, unless the same was logged before."""
        if text not in self._told:
            self._told.add(text)
            logger.warning("tierlog: %s", text)
