"""How a broker's life holds the engine, over parts of one: what embedders copy.

If it held the engine otherwise than the pages say, the simulation would blame the engine, or excuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.replication.test_log_move import PATHS, TOPIC_ID, other_than, records_of, send_without_epochs
from tests.replication.test_tiered_moves import TIERED, shorten
from tests.simulation.broker import Broker
from tests.simulation.cluster_messages import Metadata, PartitionState
from tests.simulation.fetchers import ReplicaFetcher
from tests.simulation.messages import Partition
from tests.simulation.moves import Moves
from tests.simulation.replica import FOLLOWER_SETTINGS, Replica
from tests.support.living_logs import batch_of
from tierlog.errors import StoreError
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_errors import KafkaError, LogClosedError
from tierlog.remote.api import TopicIdPartition
from tierlog.replication import (
    AuxStateBuilt,
    Brokers,
    BrokerState,
    BuildAuxState,
    EpochEnd,
    LeaderAndIsr,
    LogMove,
    OffsetAndEpoch,
)
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

ORDERS = Partition("orders", 0, 1)


class Life:
    """What a replica, a fetcher and the moves ask of a broker, over real log directories."""

    def __init__(self) -> None:
        machine, scheduler = ManualScheduler.machine(3)
        self.scheduler = scheduler
        self.clock = machine.clock
        self.directories = LogDirectories.open(
            PATHS, machine=machine, config=TIERED, runs_tasks=False, is_sole_replica=False, remote_log_enabled=True
        )
        self.log = self.directories.log("orders", 0)
        nothing = SimpleNamespace(count=lambda *_: None, note=lambda *_: None, log_begins=lambda *_: None)
        self.broker: Any = SimpleNamespace(
            broker_id=1,
            name="broker-1",
            now_ms=1_000_000,
            clock=machine.clock,
            group=scheduler.group("broker-1"),
            directories=self.directories,
            known=Brokers({1: BrokerState(1), 2: BrokerState(1)}),
            settings=SimpleNamespace(replica_lag_ms=4000),
            follower_settings=FOLLOWER_SETTINGS,
            trace=nothing,
            world=SimpleNamespace(nemesis=SimpleNamespace(traps=nothing)),
            manager=self,
            soon=lambda call: scheduler.spawn(call, name="request"),
            later=lambda *_: None,
            wake_fetchers=lambda: None,
            replicas={},
        )
        tip = TopicIdPartition(TOPIC_ID, "orders", 0)
        self.replica = self.broker.replicas[ORDERS] = Replica(cast("Any", self.broker), ORDERS, tip, self.log)
        self.builds = 0
        self._aux_states = scheduler.pool(1, name="aux-state")

    def close(self) -> None:
        self._aux_states.close()
        self.directories.close()

    def begin(self, function: Callable[[], object], *, name: str) -> Future[None]:
        """Begin a task of the broker."""

        def run() -> None:
            function()

        return self.scheduler.start(run, name=name)

    def take(self, *, leader: int, epoch: int) -> None:
        """Take the controller's word, as the metadata task does."""
        known = LeaderAndIsr(epoch, epoch, (1, 2), frozenset((leader,)))
        self.replica.take(PartitionState(ORDERS, leader, known, frozenset()))

    # ---- the manager

    def on_leadership_change(self, *_: object) -> None:
        pass

    def build_aux_state(self, _: TopicIdPartition, __: BuildAuxState) -> Future[AuxStateBuilt]:
        """Stand still, as at one of the manager's locks, and then have the log begun behind offset 49."""
        self.builds += 1
        self.clock.sleep(5)
        return self._aux_states.submit(self._built)

    def _built(self) -> AuxStateBuilt:
        none = encode_producer_snapshot(())
        self.log.start_from_tier(50, log_start_offset=0, epochs=[(3, 0)], producer_snapshot=none)
        return AuxStateBuilt(50)

    def wait_for_a_build(self) -> None:
        """Wait until a task stands still within ``build_aux_state``."""
        until = self.clock.monotonic_seconds() + 60
        while not self.builds:
            assert self.clock.monotonic_seconds() < until, "nothing is built"
            self.clock.sleep(0.01)


@pytest.fixture
def life() -> Iterator[Life]:
    made = Life()
    with made.scheduler:
        yield made
        made.close()


def test_a_move_ends_only_while_its_log_is_not_cut(life: Life) -> None:
    """If this fails, a log of before leader epochs that is cut while the mover waits gets the cut records back."""
    send_without_epochs(life.log, b"a", b"b", b"c", b"d")
    future = life.directories.begin_move("orders", 0, other_than(life.log))
    assert future is not None
    moves = Moves(life.broker)
    move = LogMove(life.log, future)
    moves._moves[ORDERS] = life.log, future, move
    while not future.log_end_offset:
        move.step(life.broker.now_ms)
    with life.replica.acting():
        mover = life.begin(lambda: moves._go_on(life.replica, future), name="log-move")
        life.clock.sleep(1)
        assert move.is_caught_up
        life.log.truncate_to(2)
        move.truncated(2)
        send_without_epochs(life.log, b"C", b"D")
        wanted = records_of(life.log)
    mover.result()
    assert life.replica.log is life.log
    while life.replica.log is not future:
        moves._go_on(life.replica, future)
        life.clock.sleep(1)
    assert records_of(future) == wanted


def test_a_build_of_a_follower_is_not_begun_behind_a_change_of_the_role(life: Life) -> None:
    """If this fails, a log is emptied whose broker leads, or is in the in-sync set of another leader: what was
    acknowledged is lost.
    """
    life.take(leader=2, epoch=5)
    follower, now_ms = life.replica.follower, life.broker.now_ms
    request = follower.next_request(now_ms)
    assert request is not None
    follower.on_error(request, KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE, now_ms)
    for answer in (OffsetAndEpoch(0, 3), OffsetAndEpoch(50, 3), EpochEnd(3, 50)):
        request = follower.next_request(now_ms)
        assert request is not None
        follower.on_answer(request, answer, now_ms)
    fetcher = life.begin(ReplicaFetcher(life.broker, 2)._collect, name="fetcher-2")
    life.wait_for_a_build()
    life.take(leader=1, epoch=6)
    with life.replica.acting():
        begin = life.log.log_end_offset
        life.replica.leader.append(batch_of(b"acknowledged"), required_acks=-1, now_ms=now_ms)
    fetcher.result()
    life.clock.sleep(1)
    assert life.log.log_end_offset == begin + 1
    assert life.log.leader_epoch_cache.latest_epoch == 6


def test_a_build_of_a_leader_is_not_begun_behind_a_change_of_the_role(life: Life) -> None:
    """If this fails, the log of a broker that led empties itself, while it is in the in-sync set of the next leader."""
    shorten(life.log)
    life.log.truncate_to(life.log.local_log_start_offset - 1)
    assert life.log.must_be_rebuilt
    metadata = life.begin(lambda: life.take(leader=1, epoch=5), name="metadata")
    life.wait_for_a_build()
    life.take(leader=2, epoch=6)
    known = life.log.offsets
    metadata.result()
    life.clock.sleep(1)
    assert life.log.offsets == known


def test_a_move_ends_with_the_directory_that_it_goes_to(life: Life) -> None:
    """If this fails, no seed shows what becomes of the log that was to move: it is neither cleaned nor retained; or a
    move between two sound directories is called off.
    """
    states = life.directories.directory(life.log.parent_dir).cleaner_manager.states
    future = life.directories.begin_move("orders", 0, other_than(life.log))
    assert future is not None
    life.directories.directory(other_than(life.log, 1)).take_offline(StoreError("the disk is broken"))
    Broker._leave_offline(life.broker)
    assert states.state_of(("orders", 0)).kind == "paused"
    assert not future.is_closed
    life.directories.directory(future.parent_dir).take_offline(StoreError("the disk is broken"))
    Broker._leave_offline(life.broker)
    assert states.state_of(("orders", 0)).kind == "none"


def test_one_log_that_is_gone_does_not_end_the_metadata_task() -> None:
    """If this fails, a broker sends heartbeats and takes no metadata any more: it would miss elections, and the
    simulation tries little of what it is there for.
    """
    taken: list[int] = []

    def take(image: Metadata) -> None:
        taken.append(image.version)
        if len(taken) == 1:
            raise LogClosedError("it has moved")
        if image.version == 2:
            broker.is_stopping = True
        broker.version = image.version

    broker: Any = SimpleNamespace(
        broker_id=1,
        version=0,
        is_stopping=False,
        clock=ManualClock(),
        directories=SimpleNamespace(online=("/a",)),
        ask=lambda _, request, **__: Metadata(request.version + 1, (), (), (), ()),
        _take=take,
    )
    Broker._follow_metadata(broker)
    assert taken == [1, 1, 2]
    broker.is_stopping, taken[:] = False, []
    broker.directories.online = ()
    Broker._follow_metadata(broker)
    assert taken == [3]
