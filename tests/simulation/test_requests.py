"""A broker's requests that wait, over one replica without a cluster.

If one were left behind an error, a broker that stops would seem to have forgotten it: the engine would be blamed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulation.messages import DeletedRecords, DeleteRecords, Fetch, Partition
from tests.simulation.replica import Replica
from tests.simulation.requests import Requests
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import Brokers, FollowerSettings, ReplicationError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles

ORDERS = Partition("orders", 0)


class OneReplica:
    """A broker that has one replica, which neither leads nor follows."""

    def __init__(self) -> None:
        self.broker: Any = SimpleNamespace(
            broker_id=1,
            known=Brokers(),
            group=ManualScheduler(0),
            settings=SimpleNamespace(replica_lag_ms=1_000),
            follower_settings=FollowerSettings(),
            replicas={},
            token=lambda: 1,
        )
        log = UnifiedLog.open("/orders-0", machine=Machine(files=MemoryFiles(ManualClock())))
        self.replica = self.broker.replicas[ORDERS] = Replica(self.broker, ORDERS, cast("Any", None), log)
        self.answers: list[Any] = []


@pytest.fixture
def one() -> OneReplica:
    return OneReplica()


def test_a_deletion_that_is_refused_does_not_wait(one: OneReplica) -> None:
    """A deletion that its leader refuses is answered once."""
    Requests(one.broker).handle("admin", DeleteRecords(ORDERS, 5), one.answers.append)
    assert one.answers == [DeletedRecords("NOT_LEADER_OR_FOLLOWER")]
    assert one.replica.waiting == 0


def test_nothing_waits_for_a_replica_that_has_stopped(one: OneReplica) -> None:
    """A fetch that was read before the broker stopped would wait for a high watermark that nobody raises."""
    with pytest.raises(ReplicationError) as raised, one.replica.acting():
        one.replica.wait_for_watermark(1, 0, cast("Any", one.answers.append))
    assert raised.value.error is KafkaError.NOT_LEADER_OR_FOLLOWER
    assert (one.replica.waiting, one.answers) == (0, [])


@pytest.mark.parametrize("epoch_start", [0, 3])
def test_a_new_leader_is_waited_for(one: OneReplica, epoch_start: int) -> None:
    """Below a high watermark of before a compaction may have left nothing: a reader that is told at once that there is
    something would ask again and again, and seem stuck.
    """
    waits: list[int] = []
    one.broker.later = lambda _, call: None
    one.broker.now_ms = 0
    one.replica.role = "leader"
    one.replica.leader.wait_for_records = lambda offset, *_: waits.append(offset)  # type: ignore[method-assign]
    one.replica.log.assign_epoch_start_offset(1, epoch_start)
    request = Fetch(ORDERS, 0, max_bytes=1, max_wait_ms=10, is_committed=False)
    Requests(one.broker)._wait_for_records(
        one.replica, request, one.answers.append, FetchIsolation.HIGH_WATERMARK, 10, 0
    )
    assert waits == ([0] if epoch_start == 0 else [])
    assert one.replica.waiting == 1
