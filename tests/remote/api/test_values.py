"""The KIP's value types: rules, equality, and what travels."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from tierlog.errors import TierlogError
from tierlog.remote.api import (
    EpochEntry,
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)

ID = Uuid.from_text("lZ6vvmajTWKDBUTV6SQAtQ")
SEGMENT = RemoteLogSegmentId(TopicIdPartition(ID, "orders", 7), Uuid(bytes(range(16))))


def metadata(**changes: Any) -> RemoteLogSegmentMetadata:
    values: dict[str, Any] = {
        "start_offset": 5,
        "end_offset": 9,
        "max_timestamp_ms": -1,
        "broker_id": 1,
        "event_timestamp_ms": 2,
        "segment_size_in_bytes": 3,
        "segment_leader_epochs": {4: 8, 2: 5},
    }
    return RemoteLogSegmentMetadata(SEGMENT, **(values | changes))


def test_uuid_text() -> None:
    """If this fails, ids in keys are not those in manifests."""
    assert str(ID) == "lZ6vvmajTWKDBUTV6SQAtQ"
    assert str(Uuid(bytes(16))) == "A" * 22
    assert Uuid.from_text("-_" * 10 + "-w").raw == bytes.fromhex("fbffbffbffbffbffbffbffbffbffbffb")[:15] + b"\xfb"
    for text in ("", "A" * 21, "A" * 23, "A" * 21 + "+", "A" * 21 + "/", "A" * 21 + "é", "A" * 20 + "=="):
        with pytest.raises(ValueError, match="Uuid"):
            Uuid.from_text(text)
    with pytest.raises(ValueError, match="16 bytes"):
        Uuid(b"x")


@pytest.mark.parametrize(
    "changes",
    [
        {"start_offset": -1},
        {"end_offset": 4},
        {"end_offset": 2**63},
        {"segment_size_in_bytes": -1},
        {"segment_leader_epochs": {}},
        {"segment_leader_epochs": {-1: 5}},
        {"segment_leader_epochs": {1: -5}},
        {"max_timestamp_ms": 2**63},
    ],
)
def test_metadata_that_cannot_be(changes: dict[str, Any]) -> None:
    """If this fails, impossible segments reach the lineage."""
    with pytest.raises(ValueError, match=r"."):
        metadata(**changes)


def test_partitions_that_cannot_be() -> None:
    """If this fails, hostile records make partitions without a name or below zero."""
    for topic, partition in (("", 0), ("t", -1), ("t", 2**31)):
        with pytest.raises(ValueError, match=r"."):
            TopicPartition(topic, partition)
        with pytest.raises(ValueError, match=r"."):
            TopicIdPartition(ID, topic, partition)


def test_values_are_equal_hashable_and_travel() -> None:
    """If this fails, a plan on an executor is not the driver's, or a set holds a segment twice."""
    one, two = metadata(), metadata(segment_leader_epochs=EpochMap({2: 5, 4: 8}))
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != metadata(end_offset=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.end_offset = 3  # type: ignore[misc]
    assert str(SEGMENT) == "orders-7/AAECAwQFBgcICQoLDA0ODw"


def test_epochs_ascend() -> None:
    """If this fails, lineage is read in the order in which a manifest happens to list it."""
    epochs = metadata().segment_leader_epochs
    assert list(epochs.items()) == [(2, 5), (4, 8)]
    assert isinstance(epochs, EpochMap)
    assert epochs.entries() == (EpochEntry(2, 5), EpochEntry(4, 8))


def test_updates() -> None:
    """If this fails, a segment keeps a state that it has left."""
    update = RemoteLogSegmentMetadataUpdate(
        SEGMENT,
        event_timestamp_ms=99,
        custom_metadata=b"c",
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        broker_id=3,
    )
    after = metadata().create_with_updates(update)
    assert (after.event_timestamp_ms, after.custom_metadata, after.broker_id) == (99, b"c", 3)
    assert after.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    assert (after.start_offset, after.end_offset) == (5, 9)
    other = RemoteLogSegmentId(SEGMENT.topic_id_partition, ID)
    with pytest.raises(ValueError, match="given to"):
        metadata().create_with_updates(dataclasses.replace(update, remote_log_segment_id=other))


def test_errors_are_what_a_python_user_catches() -> None:
    """If this fails, code that handles files does not handle the tier."""
    assert issubclass(RemoteStorageException, TierlogError | OSError)
    assert issubclass(RemoteResourceNotFoundException, FileNotFoundError)
    assert RetriableRemoteStorageException.retriable
    assert not RemoteStorageException.retriable


def test_new_ids_are_those_that_kafka_would_make() -> None:
    """If this fails, two copy attempts share their objects, or an id is read as a command line option."""

    class Chance:
        """Bytes that would make an id that begins with "-", then others."""

        def __init__(self) -> None:
            self._left = [b"\xf8" + bytes(15), b"\xff" * 16, bytes(16)]

        def secret_bytes(self, size_bytes: int) -> bytes:
            return self._left.pop(0)

        def uniform(self, low: float, high: float) -> float:
            return low

    rng = Chance()
    partition = TopicIdPartition(ID, "orders", 7)
    first, second = (RemoteLogSegmentId.generate_new(partition, rng=rng) for _ in range(2))
    assert first != second
    assert RemoteLogSegmentId.generate_new(partition) != RemoteLogSegmentId.generate_new(partition)
    assert first.id.raw == b"\xff" * 6 + b"\x4f\xff\xbf" + b"\xff" * 7
    assert second.id.raw == bytes(6) + b"\x40\x00\x80" + bytes(7)
