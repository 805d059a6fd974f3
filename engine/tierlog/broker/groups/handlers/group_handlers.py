"""The handlers of a group coordinator, together."""

from __future__ import annotations

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.handlers.administration import DeleteGroups, DescribeGroups, ListGroups
from tierlog.broker.groups.handlers.find_coordinator import FindCoordinator
from tierlog.broker.groups.handlers.membership_handlers import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from tierlog.broker.groups.handlers.offset_commit import OffsetCommit, OffsetDelete
from tierlog.broker.groups.handlers.offset_fetch import OffsetFetch
from tierlog.broker.handling import Handler
from tierlog.broker.partitions import Catalog
from tierlog.runtime.machine.clock import Clock


def group_handlers(coordinator: GroupCoordinator, catalog: Catalog, clock: Clock, *, node_id: int) -> list[Handler]:
    """One handler for each API of groups.

    Args:
        coordinator: Answers them.
        catalog: Tells which partitions offsets may be committed for.
        clock: Gives the times of commits.
        node_id: Of this node, as Metadata names it.
    """
    return [
        FindCoordinator(node_id),
        JoinGroup(coordinator),
        SyncGroup(coordinator),
        Heartbeat(coordinator),
        LeaveGroup(coordinator),
        OffsetCommit(coordinator, catalog, clock),
        OffsetFetch(coordinator, catalog),
        OffsetDelete(coordinator, catalog),
        ListGroups(coordinator),
        DescribeGroups(coordinator),
        DeleteGroups(coordinator),
    ]
