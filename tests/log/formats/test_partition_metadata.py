"""``partition.metadata``."""

from __future__ import annotations

import pytest

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.partition_metadata import (
    PartitionMetadata,
    encode_partition_metadata,
    parse_partition_metadata,
)

VECTOR = b"version: 0\ntopic_id: ASNFZ4mrze8RIjNEVWZ3iA"
TOPIC_ID = bytes.fromhex("0123456789abcdef1122334455667788")


def test_vector_both_ways() -> None:
    """Else a broker refuses an exported folder for the wrong topic id."""
    metadata = parse_partition_metadata(VECTOR)
    assert metadata == PartitionMetadata(TOPIC_ID)
    assert metadata.topic_id_text == "ASNFZ4mrze8RIjNEVWZ3iA"
    assert encode_partition_metadata(metadata) == VECTOR
    assert parse_partition_metadata(VECTOR.replace(b": 0", b":  7") + b"\n") == PartitionMetadata(TOPIC_ID, 7)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: ASNFZ4mrze8RIjNEVWZ3iA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: ASNFZ4mrze8RIjNEVWZ3i",
        b"version: 0\ntopic_id:ASNFZ4mrze8RIjNEVWZ3iA",
        b"topic_id: ASNFZ4mrze8RIjNEVWZ3iA\nversion: 0",
        b"version: 0\ntopic_id: \xff\xff",
        b"x" * 5000,
    ],
)
def test_malformed_files(data: bytes) -> None:
    """Else a partition gets a topic id that nothing else knows."""
    with pytest.raises(CorruptIndexError):
        parse_partition_metadata(data)
