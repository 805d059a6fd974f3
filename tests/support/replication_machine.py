"""Three replicas, a controller, a network that loses and delays, crashes that lose what was not synced.

The properties are those of the published TLA+ models of Kafka's replication: no committed record is lost, logs are
equal below the high watermarks, epochs rise, and logs that share a record share all in front of it.

The controller elects members of the in-sync set alone, and a member that crashes leaves it (KIP-966). Two are needed
for a commit; the last member is stopped cleanly, never crashed: what one disk alone has, one crash may take.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.replicas import Replica
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.replication import (
    AlterPartition,
    AskEpochEnd,
    AskOffset,
    Brokers,
    FetchRecords,
    Follower,
    FollowerAnswer,
    FollowerRequest,
    LeaderAndIsr,
    LeaderSettings,
    ReplicationError,
)
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng

REPLICAS: Final = (1, 2, 3)
LAG_MS: Final = 500
END: Final = FetchIsolation.LOG_END

#: By broker: those that are up, and (leader epoch, value) of each offset that they have.
UpReplicas = Mapping[int, Replica]
Records = Mapping[int, Mapping[int, tuple[int, bytes]]]

replicas = st.sampled_from(REPLICAS)
picks = st.integers(0, 2)


@dataclass
class Message:
    """A request on its way to a leader, or its answer on its way back.

    Attributes:
        answer: None: the request has not arrived; an error is an answer too.
    """

    follower: int
    life: int
    leader: int
    request: FollowerRequest
    answer: FollowerAnswer | KafkaError | None = None


class ReplicationMachine(RuleBasedStateMachine):
    """Three replicas; Hypothesis chooses the steps of network, controller and crashes."""

    follower_class: type[Follower] = Follower

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.brokers = Brokers()
        self.replicas = {
            broker: Replica(
                broker,
                self.clock,
                self.brokers,
                self.follower_class,
                leader_settings=LeaderSettings(replica_lag_time_max_ms=LAG_MS, min_insync_replicas=2),
            )
            for broker in REPLICAS
        }
        self.state = LeaderAndIsr(0, 0, REPLICAS, frozenset(REPLICAS))
        self.leader: int | None = 1
        #: By broker, what it has not been told yet.
        self.news: dict[int, list[tuple[int | None, LeaderAndIsr]]] = {broker: [] for broker in REPLICAS}
        self.proposals: list[tuple[int, int, AlterPartition]] = []
        self.messages: list[Message] = []
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.values = itertools.count()

    @initialize()
    def begin(self) -> None:
        self._tell()
        for broker in REPLICAS:
            self.hear(broker)

    # ---- the controller

    def _tell(self) -> None:
        for broker in REPLICAS:
            self.news[broker].append((self.leader, self.state))

    def _alter(self, leader: int | None, members: frozenset[int], *, elects: bool) -> None:
        before = self.state
        self.leader = leader
        self.state = LeaderAndIsr(before.leader_epoch + elects, before.partition_epoch + 1, REPLICAS, members)
        self._tell()

    def _elect(self, members: frozenset[int]) -> None:
        """Elect the first member that is up, if there is one."""
        up = sorted(broker for broker in members if self.replicas[broker].is_up)
        self._alter(up[0] if up else None, members, elects=True)

    def _one(self, at: int, whose: Callable[[Replica], bool]) -> int | None:
        """One of the brokers of which something is true."""
        found = [broker for broker, replica in self.replicas.items() if whose(replica)]
        return found[at % len(found)] if found else None

    @rule(at=picks)
    def a_broker_hears(self, at: int) -> None:
        """A broker hears of the controller's next decision."""
        broker = self._one(at, lambda each: each.is_up and bool(self.news[each.broker_id]))
        if broker is not None:
            self.hear(broker)

    def hear(self, broker: int) -> None:
        replica = self.replicas[broker]
        leader, state = self.news[broker].pop(0)
        if leader == broker:
            replica.lead(state, self.clock.time_ms())
        elif leader is None:
            replica.leader.resign()
            replica.follower.stop()
        else:
            replica.follow(leader, state.leader_epoch)
        self._act(replica)

    @rule(broker=replicas)
    def prefer(self, broker: int) -> None:
        """Another member of the in-sync set is elected."""
        if broker in self.state.in_sync_replicas and self.replicas[broker].is_up and broker != self.leader:
            self._alter(broker, self.state.in_sync_replicas, elects=True)

    @precondition(lambda self: self.proposals)
    @rule(at=st.integers(0, 3), accepts=st.booleans())
    def decide(self, at: int, accepts: bool) -> None:
        """The controller answers a proposal, or the answer is lost."""
        broker, life, proposal = self.proposals.pop(at % len(self.proposals))
        members = frozenset(member for member, _ in proposal.in_sync_replicas)
        known = all(epoch in (-1, self.brokers.epoch_of(member)) for member, epoch in proposal.in_sync_replicas)
        error: KafkaError | None = None
        if proposal.leader_epoch != self.state.leader_epoch:
            error = KafkaError.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != self.state.partition_epoch:
            error = KafkaError.INVALID_UPDATE_VERSION
        elif not known or not all(self.replicas[member].is_up for member in members):
            error = KafkaError.INELIGIBLE_REPLICA
        else:
            self._alter(self.leader, members, elects=False)
        replica = self.replicas[broker]
        if accepts and replica.is_up and replica.epoch == life:
            if error is None:
                replica.leader.on_altered(proposal, self.state, self.clock.time_ms())
            else:
                replica.leader.on_alter_failed(proposal, error)
            self._act(replica)

    # ---- brokers

    def _act(self, replica: Replica) -> None:
        for action in replica.leader.take_actions():
            if isinstance(action, AlterPartition):
                self.proposals.append((replica.broker_id, replica.epoch, action))

    @rule(at=picks)
    def produce(self, at: int) -> None:
        """Whoever believes that it leads takes a record."""
        broker = self._one(at, lambda each: each.is_up and each.leader.is_leading)
        if broker is not None:
            replica = self.replicas[broker]
            replica.append(b"%d by %d" % (next(self.values), broker))
            self._act(replica)

    @rule(broker=replicas)
    def sync(self, broker: int) -> None:
        """A flush."""
        if self.replicas[broker].is_up:
            self.replicas[broker].log.flush()

    @precondition(lambda self: len(self._down()) < 2)
    @rule(broker=replicas, seed=st.integers(0, 2**16))
    def crash(self, broker: int, seed: int) -> None:
        """Power goes; the controller takes the broker out of the in-sync set."""
        replica = self.replicas[broker]
        if replica.is_up and self.state.in_sync_replicas != {broker}:
            replica.crash(SeededRng(seed))
            self._left(broker, self.state.in_sync_replicas - {broker})

    @precondition(lambda self: len(self._down()) < 2)
    @rule(broker=replicas)
    def stop(self, broker: int) -> None:
        """A clean stop: a last member stays in the in-sync set."""
        replica = self.replicas[broker]
        if replica.is_up:
            replica.stop()
            self._left(broker, self.state.in_sync_replicas - {broker} or self.state.in_sync_replicas)

    def _down(self) -> list[int]:
        return [broker for broker, replica in self.replicas.items() if not replica.is_up]

    def _left(self, broker: int, members: frozenset[int]) -> None:
        if broker == self.leader:
            self._elect(members)
        elif members != self.state.in_sync_replicas:
            self._alter(self.leader, members, elects=False)

    @precondition(lambda self: self._down())
    @rule(at=picks)
    def start(self, at: int) -> None:
        """A broker starts, and hears of the newest decision alone."""
        down = self._down()
        broker = down[at % len(down)]
        self.replicas[broker].start()
        self.news[broker] = []
        if self.leader is None and broker in self.state.in_sync_replicas:
            self._elect(self.state.in_sync_replicas)
        else:
            self.news[broker].append((self.leader, self.state))

    @rule(ms=st.sampled_from((10, 400, 1000)))
    def wait(self, ms: int) -> None:
        """Time passes, and leaders look for followers that lag."""
        self.clock.advance(ms / 1000)
        for replica in self.replicas.values():
            if replica.is_up:
                replica.leader.tick(self.clock.time_ms())
                self._act(replica)

    # ---- the network

    @rule(broker=replicas)
    def ask(self, broker: int) -> None:
        """A follower sends what it has to ask."""
        replica = self.replicas[broker]
        if not replica.is_up or replica.follower.leader is None:
            return
        request = replica.follower.next_request(self.clock.time_ms())
        if request is not None:
            leader = replica.follower.leader
            assert leader is not None
            self.messages.append(Message(broker, replica.epoch, leader, request))

    @precondition(lambda self: self.messages)
    @rule(at=st.integers(0, 5))
    def deliver(self, at: int) -> None:
        """A message arrives: at the leader, or back at the follower."""
        message = self.messages.pop(at % len(self.messages))
        if message.answer is not None:
            self._back(message, message.answer)
            return
        leader = self.replicas[message.leader]
        if leader.is_up:
            message.answer = self._answer(leader, message)
            self._act(leader)
            self.messages.append(message)
        else:
            self._back(message, None)

    @precondition(lambda self: self.messages)
    @rule(at=st.integers(0, 5))
    def lose(self, at: int) -> None:
        """A message is lost, and the follower's connection with it."""
        self._back(self.messages.pop(at % len(self.messages)), None)

    @rule(broker=replicas)
    def exchange(self, broker: int) -> None:
        """A follower asks, and all goes well: Hypothesis seldom draws the four steps of it in a row."""
        before = len(self.messages)
        self.ask(broker)
        self.holds()  # what a cut took, the answer may bring back
        if len(self.messages) > before:
            self.deliver(before)
            if len(self.messages) > before:
                self.deliver(before)

    @rule(rounds=st.integers(1, 3))
    def go_well(self, rounds: int) -> None:
        """All news are heard, followers fetch, proposals are accepted: else few runs commit anything."""
        for broker in REPLICAS:
            while self.replicas[broker].is_up and self.news[broker]:
                self.hear(broker)
        for broker in REPLICAS * rounds:
            self.exchange(broker)
            while self.proposals:
                self.decide(0, True)

    def _answer(self, leader: Replica, message: Message) -> FollowerAnswer | KafkaError:
        machine, request = leader.leader, message.request
        try:
            if isinstance(request, FetchRecords):
                return machine.fetch(
                    message.follower,
                    request,
                    max_bytes=1,  # a batch at a time
                    now_ms=self.clock.time_ms(),
                    broker_epoch=message.life,
                ).read()
            if isinstance(request, AskEpochEnd):
                return machine.end_offset_for_epoch(request.epoch, leader_epoch=request.leader_epoch)
            assert isinstance(request, AskOffset)
            return machine.list_offset(request.timestamp, isolation=END, leader_epoch=request.leader_epoch)
        except ReplicationError as error:
            return error.error

    def _back(self, message: Message, answer: FollowerAnswer | KafkaError | None) -> None:
        replica = self.replicas[message.follower]
        if not replica.is_up or replica.epoch != message.life:
            return
        if answer is None or isinstance(answer, KafkaError):
            replica.follower.on_error(message.request, answer, self.clock.time_ms())
        else:
            replica.follower.on_answer(message.request, answer, self.clock.time_ms())

    # ---- what must hold

    def properties(self) -> list[Callable[[UpReplicas, Records], None]]:
        """The properties, which are looked at after each step."""
        return [
            self.epochs_rise,
            self.lineages_are_of_the_records,
            self.committed_records_stay,
            self.logs_are_equal_below_high_watermarks,
            self.logs_match,
        ]

    @invariant()
    def holds(self) -> None:
        up = {broker: replica for broker, replica in self.replicas.items() if replica.is_up}
        records = {broker: replica.records() for broker, replica in up.items()}
        for holds in self.properties():
            holds(up, records)

    def epochs_rise(self, up: UpReplicas, _: Records) -> None:
        """A replica's leader epochs and their begins are monotonic."""
        for replica in up.values():
            entries = list(replica.epochs.items())
            assert entries == sorted(set(entries)), "epochs rise"
            assert [start for _, start in entries] == sorted({start for _, start in entries}), "epochs rise"

    def lineages_are_of_the_records(self, up: UpReplicas, records: Records) -> None:
        """A record is of the epoch that the lineage has for its offset."""
        for replica in up.values():
            for offset, (epoch, _) in records[replica.broker_id].items():
                assert replica.log.leader_epoch_cache.epoch_for_offset(offset) == epoch, "lineages are of the records"

    def committed_records_stay(self, up: UpReplicas, records: Records) -> None:
        """What a leader had below its high watermark is on all members of the in-sync set, and is never another."""
        for broker, replica in up.items():
            if replica.leader.is_leading and replica.leader.leader_epoch == self.state.leader_epoch:
                for offset in range(replica.log.high_watermark):
                    found = records[broker][offset]
                    assert self.committed.setdefault(offset, found) == found, f"offset {offset} was committed otherwise"
        for broker in self.state.in_sync_replicas & up.keys():
            for offset, record in self.committed.items():
                assert records[broker].get(offset) == record, f"broker {broker} lost committed offset {offset}"

    def logs_are_equal_below_high_watermarks(self, up: UpReplicas, records: Records) -> None:
        for one, other in itertools.combinations(up, 2):
            below = min(up[one].log.high_watermark, up[other].log.high_watermark)
            for offset in range(below):
                assert records[one][offset] == records[other][offset], f"offset {offset} below both high watermarks"

    def logs_match(self, up: UpReplicas, records: Records) -> None:
        """Logs that share a record share all in front of it."""
        for one, other in itertools.combinations(up, 2):
            shared = [at for at in records[one] if records[one][at][0] == records[other].get(at, (-1,))[0]]
            if shared:
                for offset in range(max(shared) + 1):
                    assert records[one][offset] == records[other][offset], (
                        f"logs match at {max(shared)}, not at {offset}"
                    )
