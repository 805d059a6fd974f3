"""The brokers' questions for what has changed at the controller: each waits until there is something, for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.cluster_messages import Metadata
from tests.simulation.network import Answer, Network

#: How long a broker's question for changes waits.
_WAIT_MS: Final = 1_000


@dataclass(slots=True)
class _Asked:
    """A question that waits."""

    version: int
    answer: Answer = field(repr=False)
    is_over: bool = False


class MetadataQuestions:
    """The questions that wait.

    Args:
        network: Its time.
        since: What has changed since a version.
    """

    def __init__(self, network: Network, since: Callable[[int], Metadata]) -> None:
        self._network = network
        self._since = since
        self._asked: list[_Asked] = []

    def ask(self, version: int, current: int, answer: Answer) -> None:
        """Answer with what has changed since a version: at once, or as soon as there is something."""
        if version < current:
            answer(self._since(version))
            return
        asked = _Asked(version, answer)
        self._asked.append(asked)

        def expire() -> None:
            if not asked.is_over:
                asked.is_over = True
                self._asked.remove(asked)
                answer(self._since(asked.version))

        self._network.after(_WAIT_MS, expire)

    def publish(self, current: int) -> None:
        """Answer those for which there is something now."""
        due = [each for each in self._asked if each.version < current]
        self._asked = [each for each in self._asked if each.version >= current]
        for each in due:
            each.is_over = True
            each.answer(self._since(each.version))
