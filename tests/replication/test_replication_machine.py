"""The replication of one partition at random. Each property holds, and fails with one planted fault, so that the
machines of tests/support are known to reach what they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.replicated_transactions import TransactionsMachine
from tests.support.replication_machine import ReplicationMachine
from tierlog.log.formats import EpochEntry, LeaderEpochs
from tierlog.log.local.log_contents import LogContents
from tierlog.replication import AlterPartition, FetchRecords, HighWatermarkFollower, InSyncReplicas, Leader
from tierlog.replication.in_sync_replicas import ReplicaState

QUICK: Final = settings(max_examples=20, stateful_step_count=60, deadline=None)


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


def begins_epochs_early(self: Leader, leader_epoch: int, _: object) -> None:
    """A leader whose epoch begins in front of records of the epoch before."""
    self._epoch_start_offset = self._log.high_watermark
    self._log.assign_epoch_start_offset(leader_epoch, self._epoch_start_offset)


def restores_no_producer(_: LogContents, __: int) -> None:
    """A log that is cut, and knows of its producers what the records that it lost said."""


def keeps_what_it_contradicts(self: LeaderEpochs, epoch: int, start_offset: int) -> LeaderEpochs:
    """A lineage in which an epoch without records stays when the next one begins at its offset."""
    if self.latest is not None and self.latest.epoch == epoch:
        return self
    changed: LeaderEpochs = object.__new__(LeaderEpochs)
    changed.entries = (*self.entries, EpochEntry(epoch, start_offset))
    changed._epochs = [entry.epoch for entry in changed.entries]
    changed._starts = [entry.start_offset for entry in changed.entries]
    return changed


class Fault(NamedTuple):
    """What is broken, the one property that is looked at, and its words when it does not hold.

    Attributes:
        watched: The name of a method of the machine; None: all are looked at.
    """

    machine: type[ReplicationMachine]
    owner: type
    name: str
    broken: Callable[..., Any]
    watched: str | None
    told: str


FAULTS: Final = {
    "a divergence is not told": Fault(
        ReplicationMachine, Leader, "_divergence", tells_no_divergence, "logs_match", "logs match at",
    ),
    "followers are not waited for": Fault(
        ReplicationMachine, InSyncReplicas, "high_watermark", counts_no_joiner,
        "committed_records_stay", "lost committed offset",
    ),
    "followers are not waited for, and logs differ": Fault(
        ReplicationMachine, InSyncReplicas, "high_watermark", counts_no_joiner,
        "logs_are_equal_below_high_watermarks", "below both high watermarks",
    ),
    "a follower joins before it has caught up": Fault(
        ReplicationMachine, InSyncReplicas, "expand", joins_early,
        "committed_records_stay", "lost committed offset|committed otherwise",
    ),
    "an epoch begins too early": Fault(
        ReplicationMachine, Leader, "_begin_epoch", begins_epochs_early,
        "lineages_are_of_the_records", "lineages are of the records",
    ),
    "an epoch keeps those that it contradicts": Fault(
        ReplicationMachine, LeaderEpochs, "assign", keeps_what_it_contradicts, "epochs_rise", "epochs rise",
    ),
    "a cut leaves the producers": Fault(
        TransactionsMachine, LogContents, "restore_producers", restores_no_producer, None, "producers of broker",
    ),
}  # fmt: skip


#: It takes hundreds of runs to be found.
RARE: Final = "a follower joins before it has caught up"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.more) if each == RARE else each for each in FAULTS]
)
def test_a_planted_fault_is_found(fault: str) -> None:
    """If this fails, the machine proves nothing of the property that the fault breaks."""
    machine, owner, name, broken, watched, told = FAULTS[fault]

    class Watching(machine):  # type: ignore[misc, valid-type]
        def properties(self) -> list[Callable[..., None]]:
            return [getattr(self, watched)] if watched else super().properties()

    with planted(owner, name, broken), pytest.raises(AssertionError, match=told):
        run_state_machine_as_test(Watching, settings=HUNTING)


def test_each_property_has_a_fault() -> None:
    """If this fails, a property may hold because nothing is looked at."""
    watched = {fault.watched for fault in FAULTS.values()}
    assert {each.__name__ for each in ReplicationMachine().properties()} <= watched


def test_the_old_rule_is_found() -> None:
    """If this fails, the machine does not see what the epochs are for."""

    class OldMachine(ReplicationMachine):
        follower_class = HighWatermarkFollower

    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(OldMachine, settings=HUNTING)
