"""The in-sync set of a partition: which followers have caught up, and how far the partition is replicated.

The controller owns the set. A leader proposes another one (``AlterPartition``), one proposal at a time; while it is
pending, a follower that would join counts already for the high watermark, and one that would leave counts still: the
maximal set, so that whichever of the two sets the controller has, nothing above its members' ends is called committed.

Source: Kafka Partition, Replica (KIP-497, KIP-841, KIP-903, KIP-966).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.log.local.log_errors import KafkaError
from tierlog.marks import mark
from tierlog.replication.messages import AlterPartition, LeaderAndIsr, ReplicationError

_UNKNOWN: Final = -1
#: A time before all others.
_NEVER: Final = -math.inf

#: The controller says that it did not apply the proposal, and that its epochs are right: the committed set holds.
_NOT_APPLIED: Final = (KafkaError.OPERATION_NOT_ATTEMPTED, KafkaError.INELIGIBLE_REPLICA)
#: The controller knows another partition than this leader: newer metadata is on its way and will end the proposal.
_OUTDATED: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.INVALID_UPDATE_VERSION,
    KafkaError.INVALID_REQUEST,
    KafkaError.NEW_LEADER_ELECTED,
)


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state of a registered broker, by the controller.

    Attributes:
        epoch: Rises with every start of the broker.
        is_fenced: It has missed heartbeats, and leads nothing.
        is_shutting_down: It asked to be stopped.
    """

    epoch: int
    is_fenced: bool = False
    is_shutting_down: bool = False


class Brokers:
    """The brokers that are registered, for all partitions of a broker. One thread at a time, as the machines."""

    def __init__(self, states: Mapping[int, BrokerState] | None = None) -> None:
        self._states = dict(states or {})

    def update(self, broker_id: int, state: BrokerState | None) -> None:
        """Note a broker's state; None: it is no longer registered."""
        if state is None:
            self._states.pop(broker_id, None)
        else:
            self._states[broker_id] = state

    def epoch_of(self, broker_id: int) -> int:
        """The broker's epoch; -1 = it is not registered, or fenced."""
        state = self._states.get(broker_id)
        return _UNKNOWN if state is None or state.is_fenced else state.epoch

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        return self.epoch_of(broker_id) != _UNKNOWN

    def may_join(self, broker_id: int, fetched_epoch: int) -> bool:
        """Whether a broker may join an in-sync set: alive, not shutting down, and its fetches are those of the broker
        that is registered (or carry no epoch).
        """
        state = self._states.get(broker_id)
        if state is None or state.is_fenced or state.is_shutting_down:
            return False
        return fetched_epoch in (_UNKNOWN, state.epoch)


class ReplicaState:
    """The progress of one follower. Offsets are -1 until it has fetched from this leader.

    Attributes:
        log_end_offset: Offset of its last fetch: what lies below is in its log.
        log_start_offset: As its last fetch says.
        caught_up_ms: Greatest time at which its last fetch had reached what was then the leader's log end offset; at
            the start of a leadership the time of that, or minus infinity for a follower out of the in-sync set: 0 of
            a clock that counts from the machine's start may be a moment ago.
        broker_epoch: Of its last fetch; -1 = none was given.
    """

    __slots__ = (
        "_fetched_end",
        "_fetched_ms",
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.forget(caught_up_ms=_NEVER)

    def forget(self, *, caught_up_ms: float) -> None:
        """Begin a leadership: nothing is known of the follower."""
        self.log_start_offset = self.log_end_offset = self.broker_epoch = _UNKNOWN
        self.caught_up_ms = caught_up_ms
        self._fetched_end = _UNKNOWN
        self._fetched_ms = _NEVER

    def lead_again(self, *, leader_end_offset: int, caught_up_ms: float) -> None:
        """Go on in the same leadership, by new word of the controller: a follower is in sync as of now, or has to fetch
        again before it joins.
        """
        self.caught_up_ms = self._fetched_ms = caught_up_ms
        self._fetched_end = leader_end_offset

    def fetched(
        self, offset: int, *, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Note a fetch, which was answered up to the leader's end offset as it was then. A follower that asks for what
        the leader's end was at its fetch before had caught up then: else a busy partition's follower never would.
        """
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._fetched_end:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.log_end_offset, self.log_start_offset = offset, log_start_offset
        self._fetched_end, self._fetched_ms = max(self._fetched_end, leader_end_offset), now_ms
        self.broker_epoch = broker_epoch


class InSyncReplicas:
    """The in-sync set of a partition that this broker leads, and its followers' states. One thread at a time.

    Args:
        broker_id: This broker.
        brokers: The registered brokers.
        lag_time_max_ms: ``replica.lag.time.max.ms``.

    Attributes:
        partition_epoch: As the controller last said.
        followers: By broker id: all replicas but this broker.
        lag_deadline_ms: Time from which on a follower may have to leave the set; infinite while no member can. It is
            moved by fetches and answers of the controller, and by ``appended``.
    """

    def __init__(self, broker_id: int, brokers: Brokers, *, lag_time_max_ms: int) -> None:
        self._broker_id = broker_id
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self._leader_epoch = _UNKNOWN
        self._committed: frozenset[int] = frozenset()
        self._maximal: frozenset[int] = frozenset()
        self._pending: AlterPartition | None = None
        self._proposed: frozenset[int] = frozenset()
        self.partition_epoch = _UNKNOWN
        self.followers: dict[int, ReplicaState] = {}
        self.lag_deadline_ms = math.inf

    @property
    def members(self) -> frozenset[int]:
        """The in-sync set as the controller last said."""
        return self._committed

    @property
    def maximal(self) -> frozenset[int]:
        """The in-sync set, with a follower whose joining is pending."""
        return self._maximal

    @property
    def is_pending(self) -> bool:
        """Whether a proposal waits for the controller."""
        return self._pending is not None

    def lead(self, state: LeaderAndIsr, *, leader_end_offset: int, is_new_leader: bool, now_ms: int) -> None:
        """Take the controller's word: a new leadership, or a change of this one. It ends a pending proposal."""
        self._leader_epoch, self.partition_epoch = state.leader_epoch, state.partition_epoch
        kept = {} if is_new_leader else self.followers
        others = [broker for broker in state.replicas if broker != self._broker_id]
        self.followers = {broker: kept.get(broker) or ReplicaState(broker) for broker in others}
        for broker, follower in self.followers.items():
            caught_up_ms = now_ms if broker in state.in_sync_replicas else _NEVER
            if is_new_leader:
                follower.forget(caught_up_ms=caught_up_ms)
            else:
                follower.lead_again(leader_end_offset=leader_end_offset, caught_up_ms=caught_up_ms)
        self._commit(state.in_sync_replicas)
        self._set_lag_deadline(leader_end_offset)

    def follower(self, broker_id: int) -> ReplicaState:
        """A follower's state. Raises ReplicationError: UNKNOWN_LEADER_EPOCH: no replica in this epoch, or not yet."""
        follower = self.followers.get(broker_id)
        if follower is None:
            raise ReplicationError(
                f"broker {broker_id} is no replica in leader epoch {self._leader_epoch}",
                KafkaError.UNKNOWN_LEADER_EPOCH,
            )
        return follower

    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> None:
        """Refuse a fetch of an earlier life of a broker. Raises ReplicationError: NOT_LEADER_OR_FOLLOWER."""
        known = self._brokers.epoch_of(broker_id)
        if broker_epoch != _UNKNOWN and known > broker_epoch:
            raise ReplicationError(
                f"a fetch of broker {broker_id} in epoch {broker_epoch}, which is in epoch {known} now",
                KafkaError.NOT_LEADER_OR_FOLLOWER,
            )

    # ---- how far the partition is replicated

    def is_below_minimum(self, min_insync_replicas: int) -> bool:
        """Whether the set has fewer members than ``min.insync.replicas``, or than there are replicas."""
        return len(self._committed) < self.minimum(min_insync_replicas)

    def minimum(self, min_insync_replicas: int) -> int:
        """The effective minimum: the smaller one of ``min.insync.replicas`` and the number of replicas."""
        return min(min_insync_replicas, len(self.followers) + 1)

    def high_watermark(self, leader_end_offset: int, now_ms: int) -> int:
        """The smallest end of the maximal set, and of eligible followers that have caught up and are about to join; -1
        if one of them has not fetched yet.
        """
        found = leader_end_offset
        for broker, follower in self.followers.items():
            if follower.log_end_offset < found and (
                broker in self._maximal or self._is_about_to_join(follower, leader_end_offset, now_ms)
            ):
                found = follower.log_end_offset
        return found

    def _is_about_to_join(self, follower: ReplicaState, leader_end_offset: int, now_ms: int) -> bool:
        return self._has_caught_up(follower, leader_end_offset, now_ms) and self._brokers.may_join(
            follower.broker_id, follower.broker_epoch
        )

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start of the leader and of all followers that are alive; -1 if one has not fetched yet."""
        alive = (each for each in self.followers.values() if self._brokers.is_alive(each.broker_id))
        return min((log_start_offset, *(each.log_start_offset for each in alive)))

    # ---- who is in sync

    def expand(self, follower: ReplicaState, *, high_watermark: int, epoch_start_offset: int) -> AlterPartition | None:
        """Propose a follower that has reached the high watermark and the start of this leader's epoch."""
        broker = follower.broker_id
        if self._pending is not None or broker in self._committed:
            return None
        if follower.log_end_offset < max(high_watermark, epoch_start_offset):
            return None
        if not self._brokers.may_join(broker, follower.broker_epoch):
            return None
        mark("in-sync: a follower joins")
        return self._propose(self._committed | {broker}, maximal=self._committed | {broker})

    def shrink(self, leader_end_offset: int, now_ms: int) -> AlterPartition | None:
        """Propose the set without the followers that have lagged behind for too long."""
        if self._pending is not None:
            return None
        lagging = {
            follower.broker_id
            for follower in self._in_sync_followers()
            if not self._has_caught_up(follower, leader_end_offset, now_ms)
        }
        if not lagging:
            self._set_lag_deadline(leader_end_offset)
            return None
        mark("in-sync: a follower leaves")
        return self._propose(self._committed - lagging, maximal=self._committed)

    def _has_caught_up(self, follower: ReplicaState, leader_end_offset: int, now_ms: int) -> bool:
        return follower.log_end_offset == leader_end_offset or now_ms - follower.caught_up_ms <= self._lag_time_max_ms

    def _in_sync_followers(self) -> Iterable[ReplicaState]:
        return (self.followers[broker] for broker in self._committed if broker in self.followers)

    def appended(self, leader_end_offset: int) -> None:
        """Note that the log grew: followers that were at its end may lag from now on."""
        if self.lag_deadline_ms == math.inf:
            self._set_lag_deadline(leader_end_offset)

    def fetched(self, leader_end_offset: int) -> None:
        """Note that a follower's state moved."""
        self._set_lag_deadline(leader_end_offset)

    def _set_lag_deadline(self, leader_end_offset: int) -> None:
        if self._pending is not None:
            self.lag_deadline_ms = math.inf
            return
        deadline = math.inf
        for broker in self._committed:
            follower = self.followers.get(broker)
            if follower is not None and follower.log_end_offset != leader_end_offset:
                deadline = min(deadline, follower.caught_up_ms + self._lag_time_max_ms + 1)
        self.lag_deadline_ms = deadline

    # ---- proposals

    def _propose(self, proposed: frozenset[int], *, maximal: frozenset[int]) -> AlterPartition:
        self._proposed, self._maximal = proposed, maximal
        members = tuple((broker, self._epoch_for(broker)) for broker in sorted(proposed))
        self._pending = AlterPartition(self._leader_epoch, self.partition_epoch, members)
        self.lag_deadline_ms = math.inf
        return self._pending

    def _epoch_for(self, broker: int) -> int:
        """The epoch of a member in a proposal: the one that fetches, which the controller compares with its own."""
        follower = self.followers.get(broker)
        if follower is None:
            return self._brokers.epoch_of(broker)
        return follower.broker_epoch if follower.broker_epoch != _UNKNOWN else self._brokers.epoch_of(broker)

    def accepted(self, proposal: AlterPartition, state: LeaderAndIsr, *, leader_end_offset: int) -> bool:
        """Take the controller's answer to a proposal; False: it is outdated, and nothing has changed."""
        if proposal is not self._pending or state.leader_epoch != self._leader_epoch:
            return False
        if state.partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = state.partition_epoch
        self._commit(state.in_sync_replicas)
        self._set_lag_deadline(leader_end_offset)
        return True

    def refused(
        self, proposal: AlterPartition, error: KafkaError | None, *, leader_end_offset: int
    ) -> AlterPartition | None:
        """Take the controller's error (None: no answer came): the proposal to send again, or None.

        After an error by which the controller may have applied it, or knows a newer state, the proposal stays pending:
        the maximal set holds until newer word of the controller comes (``lead``).
        """
        if proposal is not self._pending or error in _OUTDATED:
            return None
        if error in _NOT_APPLIED:
            mark("in-sync: a proposal was refused")
            self._commit(self._committed)
            self._set_lag_deadline(leader_end_offset)
            return None
        return proposal

    def _commit(self, members: Collection[int]) -> None:
        self._committed = self._maximal = frozenset(members)
        self._pending = None
