"""The last reads of a run: every partition from its log's start to its end, by every replica, committed records alone
and all of them. What acknowledged records are worth is what can be read then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.client import Client, Network, broker_name
from tests.simulation.consumers import EARLIEST, LATEST, next_offset_behind
from tests.simulation.facts import NOTHING, Judge, ReadPart
from tests.simulation.messages import Fetch, Fetched, ListedOffset, ListOffset, Partition
from tests.simulation.settings import Settings

_MAX_BYTES: Final = 1 << 20
_MAX_WAIT_MS: Final = 2_000
_TIMEOUT_MS: Final = 4_000
_PAUSE_MS: Final = 100
#: Readings that one broker serves at once.
_BESIDE: Final = 3
#: Errors at one position, one behind the other, before the judge is asked whether nobody can read it.
_TRIES: Final = 20
OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"


@dataclass(slots=True, eq=False)
class Reading:
    """One partition as one replica serves it.

    Attributes:
        start: Where it began.
        end: Behind the last offset that it reads.
        offset: Of its next fetch.
        parts: What was read.
        errors: How many came, one behind the other.
    """

    partition: Partition
    broker: int
    is_committed: bool
    start: int = -1
    end: int = -1
    offset: int = -1
    parts: list[ReadPart] = field(default_factory=list)
    errors: int = 0


class FinalReader(Client):
    """The reader of all.

    Args:
        topics: That it reads.
    """

    def __init__(
        self, name: str, settings: Settings, network: Network, judge: Judge, *, topics: tuple[str, ...]
    ) -> None:
        super().__init__(name, settings, network, judge)
        self._topics = topics
        self._waiting: dict[int, deque[Reading]] = {}
        self._left: list[Reading] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all is read."""
        return self._left == []

    @property
    def words(self) -> str:
        """Return the reads that have not come to their end."""
        left = self._left or []
        return "; ".join(f"{each.partition} of broker {each.broker} at {each.offset} of {each.end}" for each in left)

    def _started(self) -> None:
        if not self.known.leaders and self.known.deleted.keys() >= {*self._topics}:
            self.begin()  # all have been deleted at the end: there is nothing to read
        else:
            super()._started()

    def begin(self) -> None:
        self._left = []
        for partition in self.known.partitions(self._topics):
            for broker in self.known.replicas[partition]:
                readings = [Reading(partition, broker, is_committed) for is_committed in (False, True)]
                self._waiting.setdefault(broker, deque()).extend(readings)
                self._left += readings
        for broker in sorted(self._waiting):
            for _ in range(_BESIDE):
                self._next(broker)

    def _next(self, broker: int) -> None:
        if self._waiting[broker]:
            self._begin(self._waiting[broker].popleft())

    def _end(self, reading: Reading) -> None:
        assert self._left is not None
        self._left.remove(reading)
        self._next(reading.broker)

    def _begin(self, reading: Reading) -> None:
        """Ask the leader where the log starts and ends, and read from there: from the beginning, if it has risen."""

        def starts(start: int) -> None:
            if start <= reading.start:
                self._failed(reading, OUT_OF_RANGE)
                return
            reading.start = reading.offset = start
            reading.parts = []
            self._look_up(reading, LATEST, ends)

        def ends(end: int) -> None:
            reading.end = end
            self._fetch(reading)

        self._look_up(reading, EARLIEST, starts)

    def _look_up(self, reading: Reading, timestamp: int, then: Callable[[int], None]) -> None:
        leader, _ = self.known.leader(reading.partition)

        def found(answer: ListedOffset | None) -> None:
            if answer is None or answer.error is not None or answer.offset < 0:
                self._later(lambda: self._look_up(reading, timestamp, then))
            else:
                then(answer.offset)

        if leader is None:
            self._later(lambda: self._look_up(reading, timestamp, then))
            return
        request = ListOffset(reading.partition, timestamp, reading.is_committed)
        self.ask(broker_name(leader), request, found, timeout_ms=_TIMEOUT_MS)

    def _later(self, then: Callable[[], None]) -> None:
        self.after(_PAUSE_MS, lambda: self.known.refresh(then))

    def _fetch(self, reading: Reading) -> None:
        if reading.offset >= reading.end:
            self.judge.read_whole(
                reading.broker,
                reading.partition,
                is_committed=reading.is_committed,
                start=reading.start,
                end=reading.end,
                parts=tuple(reading.parts),
                now_ms=self.now_ms,
            )
            self._end(reading)
            return
        request = Fetch(
            reading.partition,
            reading.offset,
            max_bytes=_MAX_BYTES,
            max_wait_ms=_MAX_WAIT_MS,
            is_committed=reading.is_committed,
        )
        name = broker_name(reading.broker)
        self.ask(name, request, lambda answer: self._fetched(reading, answer), timeout_ms=_TIMEOUT_MS)

    def _fetched(self, reading: Reading, answer: Fetched | None) -> None:
        error = "no answer" if answer is None else answer.error
        if error == OUT_OF_RANGE:
            self._begin(reading)
            return
        behind = None if answer is None or error is not None else next_offset_behind(answer.data, reading.offset)
        if answer is None or behind is None or behind == reading.offset:
            self._failed(reading, error or (NOTHING if behind is not None else "a wrong checksum"))
            return
        reading.parts.append(ReadPart(reading.offset, answer.data, answer.aborted))
        reading.offset, reading.errors = behind, 0
        self._fetch(reading)

    def _failed(self, reading: Reading, error: str) -> None:
        """Try again; what cannot be read at all is the judge's to explain."""
        reading.errors += 1
        if reading.errors < _TRIES:
            self._later(lambda: self._fetch(reading))
            return
        reading.errors = 0
        go_on = self.judge.unreadable(
            reading.broker,
            reading.partition,
            reading.offset,
            error,
            is_committed=reading.is_committed,
            now_ms=self.now_ms,
        )
        if go_on is None:
            self._end(reading)
        else:
            reading.offset = go_on
            if error == OUT_OF_RANGE:  # the replica's log starts behind the leader's
                reading.start, reading.parts = go_on, []
            self._fetch(reading)
