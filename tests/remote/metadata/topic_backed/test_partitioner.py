"""The metadata partition of a user partition, against what Kafka 4.3 computed."""

from __future__ import annotations

import pytest

from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.metadata.metadata_log import metadata_partition

VECTORS = [
    ("0123456789abcdef1122334455667788", 0, 16, 1),
    ("0123456789abcdef1122334455667788", 1, 40, 0),
    ("0123456789abcdef1122334455667788", 7, 6, 1),
    ("00000000000000000000000000000002", 0, 47, 2),
    ("00000000000000000000000000000002", 1, 48, 3),
    ("00000000000000000000000000000002", 7, 16, 1),
    ("7fffffffffffffff8000000000000000", 0, 6, 1),
    ("7fffffffffffffff8000000000000000", 7, 31, 1),
    ("deadbeefcafebabe0f1e2d3c4b5a6978", 0, 42, 2),
    ("deadbeefcafebabe0f1e2d3c4b5a6978", 1, 33, 3),
    ("deadbeefcafebabe0f1e2d3c4b5a6978", 7, 29, 4),
    ("ffffffffffffffffffffffffffffffff", 0, 6, 1),
    ("ffffffffffffffffffffffffffffffff", 1, 30, 0),
    ("3b241101e2bb42558caf4136c566a962", 0, 29, 4),
    ("3b241101e2bb42558caf4136c566a962", 1, 46, 1),
    ("3b241101e2bb42558caf4136c566a962", 7, 38, 3),
]


@pytest.mark.parametrize(("topic_id", "partition", "of_50", "of_5"), VECTORS)
def test_places_are_kafkas(topic_id: str, partition: int, of_50: int, of_5: int) -> None:
    """A record in another partition is one that no broker looks for: its segment is lost to all readers."""
    user = TopicIdPartition(Uuid(bytes.fromhex(topic_id)), "orders", partition)
    assert [metadata_partition(user, count) for count in (50, 5, 1)] == [of_50, of_5, 0]


def test_no_partitions_are_refused() -> None:
    """Else a division by zero comes out of a configuration."""
    with pytest.raises(ValueError, match="0 metadata partitions"):
        metadata_partition(TopicIdPartition(Uuid(bytes(16)), "orders", 0), 0)
