"""What is wrong with partitions, in the log: told once, however often clients ask."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from tierlog.errors import TierlogError

#: Partitions of which the last error is remembered.
_PARTITIONS_MAX: Final = 1024


class ToldErrors:
    """Logs errors of partitions, but for the one that was logged last of the same partition: clients ask for a damaged
    partition again and again, some without a pause. Used on one thread.

    Args:
        logger: Where they are told.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: OrderedDict[tuple[str, int], str] = OrderedDict()

    def tell(self, topic: str, partition: int, error: Exception) -> None:
        """Log an error of a partition: a warning, or with its place if the fault is ours."""
        text = f"{type(error).__name__}: {error}"
        if self._told.get((topic, partition)) == text:
            return
        self._told[topic, partition] = text
        self._told.move_to_end((topic, partition))
        if len(self._told) > _PARTITIONS_MAX:
            self._told.popitem(last=False)
        is_ours = not isinstance(error, TierlogError)
        level = logging.ERROR if is_ours else logging.WARNING
        self._logger.log(level, "%s-%d: %s", topic, partition, text, exc_info=error if is_ours else None)
