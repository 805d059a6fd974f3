"""The network between the nodes of a simulated cluster: delays, losses, doubles, reordering, cuts of one direction.

A node is its name. One that never dies (a client, the coordinator, the controller, the store, the metadata topic) is a
machine of calls: handlers, answers and timers run between the turns of the brokers' tasks, and neither wait nor take a
lock. A broker's life puts what comes into a queue for its own tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.trace import Trace
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

#: What a handler calls with its answer.
Answer = Callable[[Any], None]
#: Takes (source, request, answer).
Handler = Callable[[str, Any, Answer], None]

#: By how much a message is late that was delivered twice, at most.
_DOUBLE_MS_MAX: Final = 2_000


@dataclass(slots=True)
class _Call:
    """A call under way."""

    number: int
    source: str
    source_life: int
    target: str
    target_life: int
    request: Any
    then: Answer
    is_over: bool = False
    is_delivered: bool = False


class Network:
    """The network.

    Args:
        scheduler: Has the time.
        trace: Is told each message that arrives.
        rng: Chance.
        delay_ms: The usual delay of a message: least and most.

    Attributes:
        loss, doubles: Rates of messages that are lost, and delivered twice.
        delay_ms_max: The most that a message is delayed, where that is more than usual.
    """

    def __init__(
        self, scheduler: ManualScheduler, trace: Trace, rng: SeededRng, *, delay_ms: tuple[int, int] = (1, 5)
    ) -> None:
        self._scheduler = scheduler
        self._clock = scheduler.clock
        self._trace = trace
        self._rng = rng
        self._delay_ms = delay_ms
        self._handlers: dict[str, Handler] = {}
        self._lives: dict[str, int] = {}
        self._crashed: set[tuple[str, int]] = set()
        self._cuts: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)
        self.loss = self.doubles = 0.0
        self.delay_ms_max = 0

    @property
    def now_ms(self) -> int:
        """The true time."""
        return self._clock.time_ms()

    # ---- nodes

    def serve(self, name: str, handler: Handler) -> None:
        """Let a node take requests from now on."""
        self._handlers[name] = handler

    def end(self, name: str, *, is_crash: bool = False) -> None:
        """End a node's life: what is on its way to it is lost. Its calls under way end without an answer, those of one
        that crashed not at all.
        """
        self._handlers.pop(name, None)
        life = self._lives.get(name, 0)
        if is_crash:
            self._crashed.add((name, life))
        self._lives[name] = life + 1

    # ---- faults

    def cut(self, source: str, target: str) -> None:
        """Lose all messages of one direction."""
        self._cuts.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Lose them no more."""
        self._cuts.discard((source, target))

    @property
    def cuts(self) -> list[tuple[str, str]]:
        """The directions that are cut, by name."""
        return sorted(self._cuts)

    # ---- time

    def after(self, delay_ms: float, function: Callable[[], None]) -> None:
        """Call a function once, after a time."""
        self._scheduler.call_later(delay_ms / 1000, function)

    # ---- calls

    def call(
        self,
        source: str,
        target: str,
        request: Any,
        then: Answer,
        *,
        timeout_ms: float,
        is_connection: bool = False,
        may_double: bool = True,
    ) -> None:
        """Send a request.

        Args:
            source: The name of the node that asks.
            target: The name of the node that answers.
            request: A plain value.
            then: Called once: with the answer, or with None if none came in time; never if the source has crashed.
            timeout_ms: Of true time.
            is_connection: As over one TCP connection: the request is not delivered twice, nor once the call is over.
            may_double: Whether the request may be delivered twice.
        """
        lives = self._lives
        call = _Call(next(self._numbers), source, lives.get(source, 0), target, lives.get(target, 0), request, then)
        self._send(source, target, lambda: self._deliver(call, is_connection))
        if may_double and not is_connection and self.doubles and self._rng.uniform(0, 1) < self.doubles:
            later_ms = self._rng.uniform(0, _DOUBLE_MS_MAX)
            self._trace.count("doubled messages")
            self.after(later_ms, lambda: self._send(source, target, lambda: self._deliver(call, is_connection)))
        self.after(timeout_ms, lambda: self._end(call, None))

    def _send(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        if (source, target) in self._cuts or (self.loss and self._rng.uniform(0, 1) < self.loss):
            self._trace.count("lost messages")
            return
        low, high = self._delay_ms
        delay_ms = self._rng.uniform(low, high)
        if self.delay_ms_max:
            delay_ms = self._rng.uniform(low, max(high, self.delay_ms_max))
        self._scheduler.call_later(delay_ms / 1000, arrive)

    def _deliver(self, call: _Call, is_connection: bool) -> None:
        handler = self._handlers.get(call.target)
        if handler is None or self._lives.get(call.target, 0) != call.target_life or (is_connection and call.is_over):
            return
        self._trace.event("request", call.source, call.target, *words_of(call.request))
        answered: list[bool] = []

        def answer(value: Any) -> None:
            if not answered and self._lives.get(call.target, 0) == call.target_life:
                answered.append(True)
                self._send(call.target, call.source, lambda: self._return(call, value))

        handler(call.source, call.request, answer)

    def _return(self, call: _Call, value: Any) -> None:
        if not call.is_over and self._lives.get(call.source, 0) == call.source_life:
            self._trace.event("answer", call.target, call.source, type(call.request).__name__, *words_of(value))
            self._end(call, value)

    def _end(self, call: _Call, value: Any) -> None:
        if not call.is_over:
            call.is_over = True
            then, call.then = call.then, _nothing
            if (call.source, call.source_life) not in self._crashed:
                then(value)


def _nothing(_: Any) -> None:
    """The call is over."""


def words_of(message: Any) -> tuple[object, ...]:
    """What an event says of a message."""
    words: list[object] = [type(message).__name__]
    partition = getattr(message, "partition", None)
    if partition is not None:
        words.append(str(partition))
    for name in ("offset", "base_offset", "error"):
        value = getattr(message, name, None)
        if value is not None:
            words.append(value)
    return tuple(words)
