"""What a stream tells of records that should be there and are not: an error, or a line of the log, once."""

from __future__ import annotations

import logging

from tierlog.errors import DataLossError

logger = logging.getLogger(__name__)


class LossReport:
    """The report of one stream.

    Args:
        fails: ``failOnDataLoss``.
    """

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._told: set[str] = set()

    def lose(self, text: str) -> None:
        """Report what should be there and is not. Raises DataLossError, if it fails."""
        if self._fails:
            raise DataLossError(f"{text}; failOnDataLoss=false goes on without")
        self.say(text)

    def say(self, text: str) -> None:
        """Log a warning, unless the same was logged before."""
        if text not in self._told:
            self._told.add(text)
            logger.warning("tierlog: %s", text)
