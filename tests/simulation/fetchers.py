"""What followers ask their leaders: one task a (broker, leader), one request at a time for all its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.cluster_messages import AskReplicas, ReplicasAnswered
from tests.simulation.replica import Replica
from tierlog.log.local.log_errors import KafkaError
from tierlog.replication import BuildAuxState, FetchRecords, FollowerRequest

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

#: ``replica.socket.timeout.ms`` and ``replica.fetch.wait.max.ms``.
_SOCKET_TIMEOUT_MS: Final = 2_000
_WAIT_MAX_MS: Final = 500
_PAUSE_MAX_MS: Final = 500


class ReplicaFetcher:
    """The task that follows one leader. It ends with its broker's life, or when nothing is followed there any more.

    Args:
        broker: The follower's broker.
        leader_id: The leader's broker.
    """

    def __init__(self, broker: Broker, leader_id: int) -> None:
        self._broker = broker
        self._leader_id = leader_id

    def run(self) -> None:
        """Fetch until the broker stops."""
        while not self._broker.is_stopping:
            asked = self._collect()
            if not asked:
                self._broker.fetcher_pause(self._pause_ms())
                continue
            request = AskReplicas(
                self._broker.broker_id,
                self._broker.epoch,
                tuple((replica.partition, request) for replica, request in asked),
                _WAIT_MAX_MS,
            )
            answer = self._broker.ask(f"broker-{self._leader_id}", request, timeout_ms=_SOCKET_TIMEOUT_MS)
            self._take(asked, answer)

    def _followed(self) -> list[Replica]:
        return [each for each in self._broker.replicas.values() if each.follower.leader == self._leader_id]

    def _collect(self) -> list[tuple[Replica, FollowerRequest]]:
        """What the followers' machines ask now; requests to begin a log anew go to the manager."""
        asked: list[tuple[Replica, FollowerRequest]] = []
        now_ms = self._broker.now_ms
        for replica in self._followed():
            if replica.build is not None:
                continue
            with replica.acting():
                request = replica.follower.next_request(now_ms)
                if isinstance(request, BuildAuxState):
                    replica.begin_build(request)
                elif request is not None:
                    asked.append((replica, request))
        if any(not isinstance(request, FetchRecords) for _, request in asked):
            self._broker.trace.count("questions of followers")
        return asked

    def _pause_ms(self) -> float:
        """Until the first follower's pause is over."""
        now_ms = self._broker.now_ms
        wakes = [each.follower.wake_at_ms - now_ms for each in self._followed() if each.follower.wake_at_ms > now_ms]
        return max(1, min((*wakes, _PAUSE_MAX_MS)))

    def _take(self, asked: list[tuple[Replica, FollowerRequest]], answer: ReplicasAnswered | None) -> None:
        found = {} if answer is None else dict(answer.answers)
        now_ms = self._broker.now_ms
        for replica, request in asked:
            given = found.get(replica.partition)
            with replica.acting():
                if given is None or isinstance(given, KafkaError):
                    replica.follower.on_error(request, given, now_ms)
                else:
                    replica.follower.on_answer(request, given, now_ms)
