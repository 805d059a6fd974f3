"""The errors of a task's runs, and the pause behind each."""

from __future__ import annotations

from typing import Final

from tierlog.errors import TierlogError
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.runtime.machine.randomness import Rng

_DOUBLED_MAX: Final = 32


def is_passing(error: BaseException) -> bool:
    """Whether an error may go away by itself: Kafka's retriable ones, which count as errors in no metric."""
    return isinstance(error, TierlogError) and error.retriable


class TaskFaults:
    """The failed runs of one task since its last good one.

    Attributes:
        count: Their number.
        last: The error of the last one; None: there was none.

    Thread safety: the task's runs, one at a time; any thread may read.
    """

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: Exception | None = None

    def clear(self) -> None:
        """Note a good run."""
        self.count, self.last = 0, None

    def note(self, error: Exception, config: RemoteLogManagerConfig, rng: Rng) -> float:
        """Note a failed run; return the seconds until the next one, which double with each."""
        self.count, self.last = self.count + 1, error
        doubled = config.task_retry_backoff_ms << min(self.count - 1, _DOUBLED_MAX)
        pause_ms = min(doubled, config.task_retry_backoff_max_ms)
        return pause_ms * (1 + rng.uniform(-config.task_retry_jitter, config.task_retry_jitter)) / 1000
