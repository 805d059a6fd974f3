"""How a broker's life holds the engine, over parts of one: what embedders copy.

If it held the engine otherwise than the pages say, the simulation would blame the engine, or excuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replication.test_log_move import PATHS, TOPIC_ID, other_than, records_of, send_without_epochs
from tests.replication.test_tiered_moves import TIERED
from tests.simulation.messages import Partition
from tests.simulation.moves import Moves
from tests.simulation.replica import FOLLOWER_SETTINGS, Replica
from tierlog.log.local.log_directories import LogDirectories
from tierlog.remote.api import TopicIdPartition
from tierlog.replication import Brokers, BrokerState, LogMove
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
            group=scheduler,
            directories=self.directories,
            known=Brokers({1: BrokerState(1), 2: BrokerState(1)}),
            settings=SimpleNamespace(replica_lag_ms=4000),
            follower_settings=FOLLOWER_SETTINGS,
            trace=nothing,
            world=SimpleNamespace(nemesis=SimpleNamespace(traps=nothing)),
            manager=SimpleNamespace(on_leadership_change=lambda *_, **__: None),
            soon=lambda call: call(),
            later=lambda *_: None,
            wake_fetchers=lambda: None,
            replicas={},
        )
        tip = TopicIdPartition(TOPIC_ID, "orders", 0)
        self.replica = self.broker.replicas[ORDERS] = Replica(self.broker, ORDERS, tip, self.log)


@pytest.fixture
def life() -> Iterator[Life]:
    made = Life()
    with made.scheduler:
        yield made
        made.directories.close()


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
        mover = life.scheduler.start(lambda: moves._go_on(life.replica, future), name="log-move")
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
