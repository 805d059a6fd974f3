"""Making clients of confluent-kafka, whose messages go to a log of ours: each cause once a minute, however many clients
meet it and however often.

librdkafka writes a line for each try of a connection, several a second. That the cluster does not let us in is an error
of every call, which its caller logs: here it is for debugging.
"""

from __future__ import annotations

import collections
import ctypes
import logging
import os
import re
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tierlog._extras import require_extra
from tierlog.errors import ConfigError
from tierlog.runtime.kafka.client_keys import ClientSettings, Role
from tierlog.runtime.kafka.kafka_errors import PERMISSION
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


_AGAIN_SECONDS: Final = 60.0
#: Causes that are remembered.
_CAUSES_MAX: Final = 256
#: What differs from try to try: the thread, whether the broker's number is known yet, how long it took.
_CHANGING: Final = re.compile(r"^\[thrd:[^\]]*\]: |/(?:bootstrap|\d+)(?=: )|\(after \d+ms in state .*\)")
#: A failed login in librdkafka's log: waiters for the client get it as their reason.
_LOGGING_IN: Final = re.compile(r"SASL authentication error|in state AUTH_")


class ClientLog:
    """A logger for confluent-kafka.

    Args:
        logger: Gets the lines.
        machine: Has the clock, and the shared state of a process's clients.

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
    """The time at which each cause was logged last, and its count since."""

    def __init__(self, machine: Machine) -> None:
        self._lock = machine.scheduler.lock()
        self._known: collections.OrderedDict[str, tuple[float, int]] = collections.OrderedDict()

    def count(self, cause: str, now_seconds: float) -> int | None:
        """Count a cause; return None if it was logged just before, else the number that was not logged."""
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


_LATELY_SECONDS: Final = 30.0

#: Owner → the client that it has open.
_OPEN: Final[weakref.WeakKeyDictionary[object, Any]] = weakref.WeakKeyDictionary()


def _keep_for_ever() -> None:
    """Leak all clients, in a fork: librdkafka's threads are in the parent, and destroying its client would wait for
    them, or crash.
    """
    for client in list(_OPEN.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_for_ever)


class Complaints:
    """The last error that librdkafka reported beside its answers: a call that times out gives no other reason.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine) -> None:
        self._clock = machine.clock
        self._last: tuple[float, str, str] | None = None

    def take(self, error: KafkaError) -> None:
        """Note an error that belongs to no call."""
        if error.name() != "_ALL_BROKERS_DOWN" or self._last is None:  # it follows upon a better reason
            self._last = (self._clock.monotonic_seconds(), error.name(), error.str())

    def told_lately(self) -> str:
        """Return the last complaint for a message, as ``" (…)"``; "" if there was none for a while."""
        if self._last is None or self._clock.monotonic_seconds() - self._last[0] > _LATELY_SECONDS:
            return ""
        return f" ({self._last[2]})"

    @property
    def is_refusal(self) -> bool:
        """Whether the last complaint says that the cluster rejects our credentials."""
        return self.told_lately() != "" and self._last is not None and self._last[1] in PERMISSION

    def forget(self) -> None:
        """Forget the last complaint: the client works again."""
        self._last = None


def open_client(
    owner: object,
    role: Role,
    make: Callable[..., Any],
    settings: ClientSettings,
    log: logging.Logger,
    complaints: Complaints,
    *,
    machine: Machine,
) -> Any:
    """Open a client of confluent-kafka; when it is polled, its messages go to the log (ClientLog) and its errors to the
    complaints. It is destroyed when its owner has released it and holds no reference.

    Raises:
        ConfigError: librdkafka refuses the settings.
    """
    from confluent_kafka import KafkaException

    try:
        client = make(dict(settings.values) | {"error_cb": complaints.take}, logger=ClientLog(log, machine))
    except KafkaException as cause:
        raise ConfigError(f"the Kafka {role} cannot be made: {cause.args[0].str().strip()}") from cause
    _OPEN[owner] = client
    return client


def release_client(owner: object) -> None:
    """Note that the owner's client is no longer needed."""
    _OPEN.pop(owner, None)


def require_client() -> None:
    """Raise ConfigError, which names the package to install, if confluent-kafka is missing."""
    require_extra("kafka", "metadata in a running Kafka")
