"""librdkafka's messages in a log of ours: each cause once a minute, however many clients meet it and however often.

librdkafka writes a line for each try of a connection, several a second. That the cluster does not let us in is an error
of every call, which its caller logs: here it is for debugging.
"""

from __future__ import annotations

import collections
import logging
import re
from typing import Final

from tierlog.runtime.machine import Machine

_AGAIN_SECONDS: Final = 60.0
#: Causes that are remembered.
_CAUSES_MAX: Final = 256
#: What differs from try to try: the thread, whether the broker's number is known yet, how long it took.
_CHANGING: Final = re.compile(r"^\[thrd:[^\]]*\]: |/(?:bootstrap|\d+)(?=: )|\(after \d+ms in state .*\)")
#: A state of librdkafka's connections: whoever waits for the client is told that it is not let in, and why.
_LOGGING_IN: Final = re.compile(r"SASL authentication error|in state AUTH_")


class ClientLog:
    """What confluent-kafka takes for a logger.

    Args:
        logger: Gets the lines.
        machine: Has the clock, and what the clients of a process share.

    Thread safety: any number of threads.
    """

    def __init__(self, logger: logging.Logger, machine: Machine) -> None:
        self._logger = logger
        self._clock = machine.clock
        self._causes = machine.process.shared("causes that librdkafka logged", lambda: _Causes(machine))

    def log(self, level: int, text: str, facility: str, client: str, message: str) -> None:
        """Log a message, unless its cause was logged in the last minute; confluent-kafka calls this."""
        if _LOGGING_IN.search(message):
            level = logging.DEBUG
        passed_over = self._causes.count(f"{facility} {_cause(message)}", self._clock.monotonic_seconds())
        if passed_over is None:
            return
        more = f" (and {passed_over} more like it before)" if passed_over else ""
        self._logger.log(level, text, facility, client, message + more)


class _Causes:
    """When each cause was logged last, and how often it came since."""

    def __init__(self, machine: Machine) -> None:
        self._lock = machine.scheduler.lock()
        self._known: collections.OrderedDict[str, tuple[float, int]] = collections.OrderedDict()

    def count(self, cause: str, now_seconds: float) -> int | None:
        """None if it was logged just before; else how many were not."""
        with self._lock:
            since, passed_over = self._known.get(cause, (float("-inf"), 0))
            if since <= now_seconds < since + _AGAIN_SECONDS:
                self._known[cause] = since, passed_over + 1
                return None
            self._known[cause] = now_seconds, 0
            self._known.move_to_end(cause)
            if len(self._known) > _CAUSES_MAX:
                self._known.popitem(last=False)
            return passed_over


def _cause(message: str) -> str:
    return _CHANGING.sub("", message)
