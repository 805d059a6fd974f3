"""The log of refused clients: each kind once a minute and client, so that no client fills the log."""

from __future__ import annotations

import collections
import logging
from dataclasses import dataclass
from typing import Final

from tierlog.errors import TierlogError
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 60.0
#: Kinds and clients that are remembered; the oldest is forgotten, and may be logged again.
_REMEMBERED_MAX: Final = 1024
_TEXT_MAX: Final = 300


class RefusedError(TierlogError):
    """A client is refused, and its connection is closed.

    Attributes:
        kind: One word, for logs and metrics.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(slots=True)
class _Told:
    at_seconds: float
    untold: int = 0


class Refusals:
    """The log of refusals as ``key=value`` lines, with counts of those that it leaves out. For one thread."""

    def __init__(self, machine: Machine) -> None:
        self._clock = machine.clock
        self._told: collections.OrderedDict[tuple[str, str], _Told] = collections.OrderedDict()

    def tell(self, kind: str, client_host: str, text: str, *, error: BaseException | None = None) -> None:
        """Log that a client was refused, unless that was logged within the last minute.

        Args:
            kind: One word.
            client_host: The client's address.
            text: The reason. It may quote the client's bytes, and is cut after 300 characters.
            error: One of ours: its trace is logged.
        """
        now = self._clock.monotonic_seconds()
        key = (kind, client_host)
        told = self._told.get(key)
        if told is not None and now - told.at_seconds < _PERIOD_SECONDS:
            told.untold += 1
            return
        self._told[key] = _Told(now)
        self._told.move_to_end(key)
        if len(self._told) > _REMEMBERED_MAX:
            self._told.popitem(last=False)
        untold = told.untold if told is not None else 0
        level = logging.WARNING if error is None else logging.ERROR
        line = "event=refused kind=%s client=%s untold=%d reason=%r"
        _log.log(level, line, kind, client_host, untold, text[:_TEXT_MAX], exc_info=error)
