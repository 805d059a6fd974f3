"""Whether a snapshot belongs to the metadata topic that is there."""

from __future__ import annotations

import dataclasses

import pytest

from tierlog.remote.metadata.metadata_log import LogBounds
from tierlog.remote.metadata.snapshots.snapshot_file import (
    SnapshotMismatchError,
    SnapshotState,
    check_snapshot_fits,
)

STATE = SnapshotState("topic-a", 50, {3: 100, 7: 0})
BOUNDS = {3: LogBounds(20, 100), 7: LogBounds(0, 5)}


def test_one_of_this_topic_fits() -> None:
    """Otherwise every start reads the whole topic again."""
    check_snapshot_fits(STATE, "topic-a", 50, BOUNDS)
    check_snapshot_fits(dataclasses.replace(STATE, positions={3: 20}), "topic-a", 50, BOUNDS)


@pytest.mark.parametrize(
    ("identity", "count", "bounds", "why"),
    [
        ("topic-b", 50, BOUNDS, "of the topic 'topic-a', not of 'topic-b'"),
        ("topic-a", 5, BOUNDS, "of 50 partitions, the topic has 5"),
        ("topic-a", 50, BOUNDS | {3: LogBounds(0, 99)}, "newer than the topic: it goes on at offset 100"),
        ("topic-a", 50, BOUNDS | {3: LogBounds(101, 200)}, "too old: it goes on at offset 100"),
        ("topic-a", 50, {3: LogBounds(0, 100)}, "metadata partition 7, whose bounds are not known"),
    ],
)
def test_one_that_does_not_fit_is_refused(identity: str, count: int, bounds: dict[int, LogBounds], why: str) -> None:
    """If this fails, a broker answers from the metadata of another topic, or misses events for good."""
    with pytest.raises(SnapshotMismatchError, match=why):
        check_snapshot_fits(STATE, identity, count, bounds)
