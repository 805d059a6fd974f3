"""A client of the simulated cluster: it knows who leads, asks again, and has its own chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from tests.simulation.facts import Judge
from tests.simulation.messages import AskLeaders, Leaders, Partition
from tests.simulation.settings import Settings
from tierlog.runtime.machine.randomness import SeededRng

Item = TypeVar("Item")

REQUEST_TIMEOUT_MS: Final = 2_000
RETRY_MS: Final = 60
_REFRESH_MS: Final = 400


class Network(Protocol):
    """The calls of the network that clients and the coordinator make."""

    @property
    def now_ms(self) -> int: ...

    def call(
        self,
        source: str,
        target: str,
        request: object,
        then: Callable[[Any], None],
        *,
        timeout_ms: int,
        is_connection: bool = False,
    ) -> None: ...

    def after(self, delay_ms: int, function: Callable[[], None]) -> None: ...

    def serve(self, name: str, handler: Callable[[str, Any, Callable[[Any], None]], None]) -> int: ...


class Chance:
    """Draws of one client."""

    def __init__(self, rng: SeededRng) -> None:
        self._rng = rng

    def happens(self, rate: float) -> bool:
        return self._rng.uniform(0, 1) < rate

    def below(self, limit_exclusive: int) -> int:
        return self._rng.integer_below(limit_exclusive)

    def between(self, low: int, high_inclusive: int) -> int:
        return low + self._rng.integer_below(high_inclusive - low + 1)

    def one_of(self, items: list[Item] | tuple[Item, ...]) -> Item:
        return items[self._rng.integer_below(len(items))]

    def around(self, mean: int) -> int:
        """Draw from half to one and a half of a mean."""
        return self.between(mean // 2, mean + mean // 2)


class KnownLeaders:
    """Who leads what, as the controller said it last; asked for again at need, one question at a time.

    Attributes:
        leaders: By partition: leader (None = none) and its epoch.
        replicas: By partition.
        deleted: By topic: the last generation that was deleted.
    """

    def __init__(self, name: str, network: Network) -> None:
        self._name = name
        self._network = network
        self.leaders: dict[Partition, tuple[int | None, int]] = {}
        self.replicas: dict[Partition, tuple[int, ...]] = {}
        self.deleted: dict[str, int] = {}
        self._waiting: list[Callable[[], None]] = []
        self._is_asking = False
        self._asked_ms = -_REFRESH_MS

    def refresh(self, then: Callable[[], None] | None = None) -> None:
        """Ask the controller; ``then`` is called when it has answered, or not."""
        if then is not None:
            self._waiting.append(then)
        if self._is_asking:
            return
        self._is_asking = True
        self._network.call(self._name, "controller", AskLeaders(), self._heard, timeout_ms=REQUEST_TIMEOUT_MS)

    def refresh_at_times(self) -> None:
        """Ask the controller, unless that was lately."""
        if self._network.now_ms - self._asked_ms >= _REFRESH_MS:
            self.refresh()

    def _heard(self, answer: Leaders | None) -> None:
        self._is_asking = False
        self._asked_ms = self._network.now_ms
        if answer is not None:
            self.leaders, self.replicas, self.deleted = answer.leaders, answer.replicas, answer.deleted
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def leader(self, partition: Partition) -> tuple[int | None, int]:
        """The leader and its epoch; (None, -1) = unknown."""
        return self.leaders.get(partition, (None, -1))

    def is_gone(self, partition: Partition) -> bool:
        """Whether the topic of that generation is known to be deleted."""
        return partition.generation <= self.deleted.get(partition.topic, -1)

    def partitions(self, topics: tuple[str, ...]) -> list[Partition]:
        """The partitions of some topics, as they are now."""
        return sorted(partition for partition in self.leaders if partition.topic in topics)


class Client:
    """What all clients share. Nothing of it blocks: answers and timers call back.

    Attributes:
        name: Of its node.
        is_stopped: It begins nothing new.
    """

    def __init__(self, name: str, settings: Settings, network: Network, judge: Judge) -> None:
        self.name = name
        self.settings = settings
        self.network = network
        self.judge = judge
        self.chance = Chance(settings.rng(name))
        self.known = KnownLeaders(name, network)
        self.is_stopped = False

    @property
    def now_ms(self) -> int:
        return self.network.now_ms

    def start(self) -> None:
        """Begin, once it is known who leads."""
        self.known.refresh(self._started)

    def _started(self) -> None:
        if self.known.leaders:
            self.begin()
        else:
            self.after(RETRY_MS, self.start)

    def begin(self) -> None:
        """Begin: who leads is known."""
        raise NotImplementedError

    def stop(self) -> None:
        """Begin nothing new."""
        self.is_stopped = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that ``stop`` lets end."""
        return True

    def after(self, delay_ms: int, function: Callable[[], None]) -> None:
        self.network.after(delay_ms, function)

    def ask(
        self,
        target: str,
        request: object,
        then: Callable[[Any], None],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        is_connection: bool = False,
    ) -> None:
        """Send a request; ``then`` gets the answer, or None."""
        self.network.call(self.name, target, request, then, timeout_ms=timeout_ms, is_connection=is_connection)


def broker_name(broker: int) -> str:
    return f"broker-{broker}"
