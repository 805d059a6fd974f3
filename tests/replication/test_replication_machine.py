"""The replication of one partition at random. Each property holds, and fails with one planted fault, so that the
machines of tests/support are known to reach what they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.replicated_transactions import TransactionsMachine
from tests.support.replication_machine import ReplicationMachine
from tierlog.log.local.log_contents import LogContents
from tierlog.replication import AlterPartition, FetchRecords, HighWatermarkFollower, InSyncReplicas, Leader
from tierlog.replication.in_sync_replicas import ReplicaState

QUICK: Final = settings(max_examples=40, stateful_step_count=60, deadline=None)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [ReplicationMachine, TransactionsMachine])
def test_replication_holds_at_length(machine: type[ReplicationMachine]) -> None:
    """A thousand runs of twice the steps keep the properties."""
    run_state_machine_as_test(machine, settings=settings(max_examples=1000, stateful_step_count=120, deadline=None))


TestReplication = ReplicationMachine.TestCase
TestReplication.settings = QUICK
TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = QUICK


# ---- planted faults

HUNTING: Final = settings(
    max_examples=1000,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    verbosity=Verbosity.quiet,
)


@contextmanager
def planted(owner: type, name: str, fault: Callable[..., Any]) -> Iterator[None]:
    before = owner.__dict__[name]
    setattr(owner, name, fault)
    try:
        yield
    finally:
        setattr(owner, name, before)


def tells_no_divergence(_: Leader, __: FetchRecords) -> None:
    """A leader that sends records to a log that is no part of its own."""


def counts_no_joiner(self: InSyncReplicas, leader_end_offset: int, _: int) -> int:
    """A high watermark of this broker alone."""
    return leader_end_offset


def joins_early(self: InSyncReplicas, follower: ReplicaState, **_: int) -> AlterPartition | None:
    """A follower that is proposed at its first fetch."""
    if self._pending is not None or follower.broker_id in self._committed:
        return None
    members = self._committed | {follower.broker_id}
    return self._propose(members, maximal=members)


def begins_epochs_early(self: Leader, leader_epoch: int) -> None:
    """A leader whose epoch begins in front of records of the epoch before."""
    self._epoch_start_offset = self._log.high_watermark
    self._log.assign_epoch_start_offset(leader_epoch, self._epoch_start_offset)


def restores_no_producer(_: LogContents, __: int) -> None:
    """A log that is cut, and knows of its producers what the records that it lost said."""


#: What is broken → the machine that finds it, where, by what, and the property that does not hold then.
FAULTS: Final[dict[str, tuple[type[ReplicationMachine], type, str, Callable[..., Any], str]]] = {
    "a divergence is not told": (
        ReplicationMachine, Leader, "_divergence", tells_no_divergence,
        "logs match|below both high watermarks|lost committed offset",  # a follower that diverges counts, and may lead
    ),
    "followers are not waited for": (
        ReplicationMachine, InSyncReplicas, "high_watermark", counts_no_joiner, "lost committed offset",
    ),
    "a follower joins before it has caught up": (
        ReplicationMachine, InSyncReplicas, "expand", joins_early, "lost committed offset|committed otherwise",
    ),
    "an epoch begins too early": (
        ReplicationMachine, Leader, "_begin_epoch", begins_epochs_early, "lineages are of the records",
    ),
    "a cut leaves the producers": (
        TransactionsMachine, LogContents, "restore_producers", restores_no_producer, "producers of broker",
    ),
}  # fmt: skip


#: It takes hundreds of runs to be found, 15 seconds.
RARE: Final = "a follower joins before it has caught up"


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.more) if each == RARE else each for each in FAULTS]
)
def test_a_planted_fault_is_found(fault: str) -> None:
    """If this fails, the machine proves nothing of what the fault breaks."""
    machine, owner, name, broken, told = FAULTS[fault]
    with planted(owner, name, broken), pytest.raises(AssertionError, match=told):
        run_state_machine_as_test(machine, settings=HUNTING)


def test_the_old_rule_is_found() -> None:
    """If this fails, the machine does not see what the epochs are for."""

    class OldMachine(ReplicationMachine):
        follower_class = HighWatermarkFollower

    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(OldMachine, settings=HUNTING)
