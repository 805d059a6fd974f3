"""One broker's replica of one partition: its log, replication's machines, its role, the requests that wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, cast

from tests.simulation.cluster_messages import Altered, AskAlter, PartitionState
from tests.simulation.messages import Partition
from tierlog.log.local.log_errors import KafkaError, LogClosedError, LogOfflineError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.api.errors import RemoteStorageException
from tierlog.replication import (
    AlterPartition,
    BuildAuxState,
    Completed,
    Follower,
    FollowerSettings,
    Leader,
    LeaderSettings,
    ReplicationError,
)
from tierlog.runtime.machine.scheduling import CancelledError, Future
from tierlog.runtime.simulated.strands import ManualLock

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

_ALTER_TIMEOUT_MS: Final = 1_000
_BUILD_PAUSE_MS: Final = 300
#: Called with Kafka's error, or None.
Complete = Callable[[KafkaError | None], None]


class Replica:
    """A replica.

    Attributes:
        role: "leader", "follower" or "offline".
        leader: Its leader, as the controller last said; None: none.
        leader_epoch: Of the controller's last word.
        is_electable: By the same, whether it may be elected cleanly.
        viewed: What it was made of when it was last looked at, and the view's fields.
    """

    def __init__(self, broker: Broker, partition: Partition, tip: TopicIdPartition, log: UnifiedLog) -> None:
        self.broker = broker
        self.partition = partition
        self.tip = tip
        self.log = log
        self.role = "offline"
        self.leader_id: int | None = None
        self.leader_epoch = -1
        self.is_electable = True
        self.leader = Leader(log, broker.broker_id, broker.known, self._settings())
        self.follower = Follower(log, broker.follower_settings)
        self.build: Future[Any] | None = None
        self.viewed: tuple[tuple[object, ...], tuple[Any, ...]] | None = None
        self._lock = broker.group.lock()
        self._waiting: dict[Hashable, Complete] = {}
        self._watermark_waits: dict[Hashable, tuple[int, Complete]] = {}
        self._due: list[Callable[[], None]] = []

    def _settings(self) -> LeaderSettings:
        config = self.log.config
        return LeaderSettings(
            replica_lag_time_max_ms=self.broker.settings.replica_lag_ms,
            min_insync_replicas=config.min_insync_replicas,
            deletes_records="delete" in config.cleanup_policy,
        )

    @property
    def is_changing(self) -> bool:
        """Whether a task is in the middle of a change of the log, or of the machines."""
        return cast("ManualLock", self.log._lock).is_held or cast("ManualLock", self._lock).is_held

    def config_changed(self) -> None:
        """The log has another configuration."""
        with self.acting():
            self.leader.settings = self._settings()

    def log_moved(self, log: UnifiedLog) -> None:
        """The log lies in another directory from now on. In ``acting``."""
        self._end_build()
        self.log, self.viewed = log, None
        self.leader.log_moved(log)
        self.follower.stop()
        self.follower = Follower(log, self.broker.follower_settings)
        if self.role == "follower" and self.leader_id is not None:
            self._follow(self.leader_id)

    # ---- one at a time

    def acting(self) -> AbstractContextManager[None]:
        """A block in which the machines are this task's; what they ask for is done at its end."""
        return _Acting(self)

    def enter(self) -> None:
        """Begin ``acting``."""
        self._lock.__enter__()

    def leave(self) -> None:
        """End ``acting``."""
        try:
            self._act()
        finally:
            due, self._due = self._due, []
            self._lock.__exit__(None, None, None)
        for call in due:
            call()

    def _act(self) -> None:
        for action in self.leader.take_actions():
            if isinstance(action, Completed):
                complete = self._waiting.pop(action.token, None)
                if complete is not None:
                    self._due.append(_bound(complete, action.error))
            elif isinstance(action, AlterPartition):
                self._alter(action)
            else:
                self.begin_build(action)
        high_watermark = self.log.high_watermark
        for token in [each for each, (known, _) in self._watermark_waits.items() if known < high_watermark]:
            self._due.append(_bound(self._watermark_waits.pop(token)[1], None))

    # ---- requests that wait

    def wait(self, token: Hashable, complete: Complete) -> None:
        """Call a function when a token of the leader's machine is complete, which has taken it. In ``acting``."""
        self._waiting[token] = complete

    def wait_for_watermark(self, token: Hashable, known: int, complete: Complete) -> None:
        """Call a function when the high watermark is above what is known. In ``acting``. Raises ReplicationError: the
        replica has stopped, and would never answer.
        """
        if self.role == "offline":
            raise ReplicationError("the broker stops", KafkaError.NOT_LEADER_OR_FOLLOWER)
        self._watermark_waits[token] = known, complete

    def is_waiting(self, token: Hashable) -> bool:
        """Whether a token waits. In ``acting``."""
        return token in self._waiting or token in self._watermark_waits

    @property
    def waiting(self) -> int:
        """How many tokens wait."""
        return len(self._waiting) + len(self._watermark_waits)

    def cancel(self, token: Hashable) -> bool:
        """Let a token wait no more; whether it waited. In ``acting``."""
        self.leader.cancel(token)
        self._watermark_waits.pop(token, None)
        return self._waiting.pop(token, None) is not None

    # ---- roles

    def take(self, state: PartitionState) -> None:
        """Take the controller's word."""
        broker = self.broker
        if self.log.is_offline:
            return
        with self.acting():
            self.leader_id, self.leader_epoch = state.leader, state.state.leader_epoch
            self.is_electable = broker.broker_id in state.state.in_sync_replicas | state.eligible
            if state.leader == broker.broker_id:
                self._end_build()
                self.follower.stop()
                self.role = "leader"
                try:
                    self.leader.lead(state.state, broker.now_ms)
                except (LogOfflineError, LogClosedError):
                    return
            else:
                if self.role == "leader":
                    self.leader.resign()
                    self._end_build()
                self.role = "follower"
                if state.leader is None:
                    self.follower.stop()
                elif self._follow(state.leader):
                    self._end_build()
        self.tell_manager()

    def _follow(self, leader: int) -> bool:
        return self.follower.follow(leader, self.leader_epoch, is_electable=self.is_electable)

    def tell_manager(self) -> None:
        """Tell the RemoteLogManager the role, if the topic is tiered."""
        own, none = frozenset((self.tip,)), frozenset[TopicIdPartition]()
        manager = self.broker.manager
        if self.log.remote_log_enabled():
            leaders, followers = (own, none) if self.role == "leader" else (none, own)
            manager.on_leadership_change(leaders, followers)

    def stop(self) -> None:
        """Neither lead nor follow any more: the replica goes, or its broker stops."""
        with self.acting():
            self.role, self.viewed = "offline", None  # what was published holds files open
            self.leader.resign()
            self.follower.stop()
            for token in list(self._watermark_waits):
                self._due.append(_bound(self._watermark_waits.pop(token)[1], KafkaError.NOT_LEADER_OR_FOLLOWER))
        self._end_build()

    def _end_build(self) -> None:
        """A log that is being begun anew from the tier: called off, or waited for."""
        build, self.build = self.build, None
        if build is not None and not build.cancel():
            with contextlib.suppress(CancelledError):
                build.exception()

    # ---- what the machines ask for

    def _alter(self, proposal: AlterPartition) -> None:
        broker = self.broker
        for member, _ in proposal.in_sync_replicas:
            if member not in self.leader.in_sync.members:
                broker.world.nemesis.traps.joins(broker.broker_id, member)
        request = AskAlter(
            broker.broker_id,
            broker.epoch,
            broker.version,
            self.partition,
            proposal.leader_epoch,
            proposal.partition_epoch,
            proposal.in_sync_replicas,
        )

        def then(answer: Altered | None) -> None:
            if answer is not None and answer.state is not None:
                with self.acting():
                    self.leader.on_altered(proposal, answer.state, broker.now_ms)
                return
            error = None if answer is None else KafkaError.__members__.get(answer.error or "")
            pause_ms = 50 if error is None else 0
            broker.later(pause_ms, lambda: self._alter_failed(proposal, error))

        broker.call("controller", request, then, timeout_ms=_ALTER_TIMEOUT_MS)

    def _alter_failed(self, proposal: AlterPartition, error: KafkaError | None) -> None:
        with self.acting():
            self.leader.on_alter_failed(proposal, error)

    def begin_build(self, request: BuildAuxState) -> None:
        """Have the manager begin the log anew behind the tier. In ``acting``: a change of the role finds the build, and
        ends it, or comes first, and nothing asks for it.
        """
        self.broker.world.nemesis.traps.log_begins(self.broker.broker_id, self.partition)
        try:
            build = self.broker.manager.build_aux_state(self.tip, request)
        except RemoteStorageException:  # it is neither led nor followed there yet
            self.broker.later(_BUILD_PAUSE_MS, lambda: self._built(request, None))
            return
        self.build = build
        build.add_done_callback(lambda done: self.broker.soon(lambda: self._built(request, done)))

    def _built(self, request: BuildAuxState, build: Future[Any] | None) -> None:
        failed = build is None or build.cancelled() or build.exception() is not None
        if self.build is build:
            self.build = None
        if failed and self.role == "leader":
            self.broker.later(_BUILD_PAUSE_MS, lambda: self._build_failed(request))
            return
        with self.acting():
            if self.role == "leader" and build is not None:
                self.leader.on_built(request, build.result(), self.broker.now_ms)
            elif failed or build is None:
                self.follower.on_error(request, None, self.broker.now_ms)
            else:
                self.broker.trace.count("logs built from the tier")
                self.follower.on_answer(request, build.result(), self.broker.now_ms)
        self.broker.wake_fetchers()

    def _build_failed(self, request: BuildAuxState) -> None:
        with self.acting():
            self.leader.on_build_failed(request, self.broker.now_ms)


class _Acting(AbstractContextManager[None]):
    """The block of ``Replica.acting``."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def __enter__(self) -> None:
        self._replica.enter()

    def __exit__(self, *_: object) -> None:
        self._replica.leave()


def _bound(complete: Complete, error: KafkaError | None) -> Callable[[], None]:
    return lambda: complete(error)


FOLLOWER_SETTINGS: Final = FollowerSettings(fetch_backoff_ms=200)
