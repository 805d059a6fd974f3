"""The series of groups, as a scrape shows them."""

from __future__ import annotations

from tests.support.group_rig import Rig
from tierlog.broker.groups.group_metrics import GroupMetrics
from tierlog.errors import StoreError


def figures(rig: Rig) -> dict[str, float]:
    """Series with their labels -> value."""
    from prometheus_client import generate_latest

    text = generate_latest(GroupMetrics(rig.coordinator).registry).decode()
    return {
        key: float(value) for key, _, value in (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
    }


def test_groups_members_commits_and_rebalances_are_told() -> None:
    """Whoever runs the server learns from her users that a group rebalances all day, or that no commit is stored."""
    rig = Rig()
    assert figures(rig)['tierlog_groups{state="Stable"}'] == 0
    [joined] = rig.stable(1)
    found = figures(rig)
    assert found['tierlog_groups{state="Stable"}'] == 1
    assert found['tierlog_groups{state="Empty"}'] == 0
    assert found["tierlog_groups_members"] == 1
    assert found["tierlog_groups_rebalances_total"] == 1
    assert found["tierlog_groups_memory_bytes"] > 0

    rig.is_prompt = False
    answers = rig.commit(7, joined)
    rig.advance(0.2)
    assert figures(rig)["tierlog_groups_commit_seconds_count"] == 0
    rig.store.flush()
    assert answers
    found = figures(rig)
    assert found["tierlog_groups_commit_seconds_count"] == 1
    assert found['tierlog_groups_commit_seconds_bucket{le="0.1"}'] == 0
    assert found['tierlog_groups_commit_seconds_bucket{le="0.25"}'] == 1

    rig.store.fault = StoreError("the disk is full")
    rig.commit(8, joined)
    rig.store.flush()
    rig.store.fault = None
    assert figures(rig)['tierlog_groups_commits_refused_total{error="COORDINATOR_NOT_AVAILABLE"}'] == 1

    rig.advance(3600)
    found = figures(rig)
    assert found["tierlog_groups_members_lost_total"] == 1
    assert found["tierlog_groups_members"] == 0
    assert found['tierlog_groups{state="Empty"}'] == 1
