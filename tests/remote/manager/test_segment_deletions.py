"""The deletion of all segments of a partition at once."""

from __future__ import annotations

import dataclasses

import pytest

from tests.contract.metadata_events import DELETING, FINISHED, OTHER, PARTITION, STARTED, bring, listed, segment
from tests.support.removing_brokers import Broker, cluster
from tests.support.tier_tasks import failing
from tierlog.remote.api import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager.segment_deletions import SegmentDeletions


def test_delete_all() -> None:
    """By Kafka's rules a leader deletes all segments, in every state, while it stops the partition."""
    with cluster() as made:
        broker = Broker(made, 1)
        broker.host(PARTITION, OTHER)
        made.fill(broker, 7)
        made.fill(broker, 2, OTHER)
        broker.calls.clear()
        SegmentDeletions(broker.services).delete_all(PARTITION)
        assert made.stored == {OTHER}
        passes = sum(name == "list_remote_log_segments" for name, _ in broker.calls)
        assert passes == 2, "the first deletes all, the second finds that no copy has come meanwhile"
        assert listed(broker.inner) == []
        SegmentDeletions(broker.services).delete_all(PARTITION)
        with pytest.raises(RemoteResourceNotFoundException):
            SegmentDeletions(broker.services).delete_all(TopicIdPartition(Uuid(b"\3" * 16), "others", 0))


def test_delete_all_leaves_the_partition_usable() -> None:
    """Kafka's DisableRemoteLogOnTopicTest: a topic that leaves the tier may come back to it."""
    with cluster() as made:
        broker = Broker(made, 1)
        broker.host(PARTITION)
        made.fill(broker, 3)
        SegmentDeletions(broker.services).delete_all(PARTITION)
        again = segment(500, 30, 39)
        bring(broker.inner, again, FINISHED)
        assert broker.inner.remote_log_segment_metadata(PARTITION, 0, 35) is not None


def test_another_leader_s_later_copies_stay() -> None:
    """A topic is tiered again by then: the new leader's copies may be all that is left of its log."""
    with cluster() as made:
        broker = Broker(made, 1)
        broker.host(PARTITION)
        made.fill(broker, 3)
        deletions = SegmentDeletions(broker.services)
        segments = list(broker.inner.list_remote_log_segments(PARTITION))
        known = frozenset(each.remote_log_segment_id for each in segments)
        deletions.begin_all(segments)
        assert {each.state for each in broker.inner.list_remote_log_segments(PARTITION)} == {DELETING}
        own, others = segment(500, 30, 39), dataclasses.replace(segment(600, 40, 49), broker_id=2)
        bring(broker.inner, own, STARTED)
        bring(broker.inner, others, FINISHED)
        deletions.delete_all(PARTITION, known)
        assert listed(broker.inner) == [600]


def test_delete_all_that_fails() -> None:
    """A later call deletes the segments that are left; no reader finds them meanwhile."""
    with cluster() as made:
        broker = Broker(made, 1)
        broker.host(PARTITION)
        made.fill(broker, 7)
        broker.storage.hooks["delete_log_segment_data"] = failing(RemoteStorageException("forbidden"))
        with pytest.raises(RemoteStorageException, match="forbidden"):
            SegmentDeletions(broker.services).delete_all(PARTITION)
        assert {each.state for each in broker.inner.list_remote_log_segments(PARTITION)} == {DELETING}
        assert broker.services.metrics.value("delete_errors") == 1
        broker.storage.hooks.clear()
        SegmentDeletions(broker.services).delete_all(PARTITION)
        assert not made.stored


def test_delete_all_beside_a_copy() -> None:
    with cluster() as made:
        broker = Broker(made, 1)
        broker.host(PARTITION)
        made.fill(broker, 3)
        late = segment(700, 1000, 1009)

        def add_late(_: object) -> None:
            broker.storage.hooks.clear()
            bring(broker.inner, late, FINISHED)
            made.store.segments[late.remote_log_segment_id] = {None: b"log"}

        broker.storage.hooks["delete_log_segment_data"] = add_late
        SegmentDeletions(broker.services).delete_all(PARTITION)
        assert not made.stored
