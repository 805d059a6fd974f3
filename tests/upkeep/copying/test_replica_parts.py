"""Two replicas' files of one segment: what is the same to consumers is no contradiction, and all else is one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.support.segments import topic_uuid
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot
from tierlog.log.formats.segment_indexes import TRANSACTION_DTYPE, encode_transaction_index
from tierlog.remote.api import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tierlog.upkeep.copying.replica_parts import find_contradiction

METADATA = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(TopicIdPartition(Uuid.from_text(topic_uuid("orders")), "orders", 0), Uuid(bytes(range(16)))),
    start_offset=100,
    end_offset=199,
    max_timestamp_ms=1,
    broker_id=1,
    event_timestamp_ms=1,
    segment_size_in_bytes=1000,
    segment_leader_epochs={3: 100},
)
DONE = ProducerEntry(7, 0, 9, 90, 9, 1_700_000_000_000, -1, -1)
OPEN = ProducerEntry(8, 0, 4, 150, 4, 1_700_000_000_000, -1, 146)


def snapshot(*entries: ProducerEntry) -> bytes:
    return encode_producer_snapshot(entries)


def aborted(*rows: tuple[int, int, int, int]) -> bytes:
    return encode_transaction_index(np.array(list(rows), TRANSACTION_DTYPE))


def epochs(*entries: tuple[int, int]) -> bytes:
    return encode_leader_epochs(LeaderEpochs(entries))


@pytest.mark.parametrize(
    ("kind", "source", "stored"),
    [
        (IndexType.PRODUCER_SNAPSHOT, snapshot(DONE, OPEN), snapshot(OPEN, DONE)),
        (IndexType.PRODUCER_SNAPSHOT, snapshot(DONE, OPEN), snapshot(OPEN)),  # its id expired on one broker
        (IndexType.PRODUCER_SNAPSHOT, snapshot(OPEN), snapshot(dataclasses.replace(OPEN, timestamp_ms=5))),
        (IndexType.PRODUCER_SNAPSHOT, None, snapshot(OPEN)),
        (IndexType.PRODUCER_SNAPSHOT, b"torn", snapshot(OPEN)),
        (IndexType.TRANSACTION, aborted((8, 146, 170, 146)), aborted((8, 146, 170, 171))),
        (IndexType.TRANSACTION, None, b""),
        (IndexType.LEADER_EPOCH, epochs((1, 0), (3, 90)), epochs((3, 95))),  # begins later
        (IndexType.LEADER_EPOCH, epochs((3, 90), (4, 200)), epochs((3, 90))),  # leads on behind the segment
        (IndexType.OFFSET, b"dense", b"sparse"),
        (IndexType.TIMESTAMP, b"dense", b"sparse"),
    ],
)
def test_what_replicas_may_have_differently(kind: IndexType, source: bytes | None, stored: bytes | None) -> None:
    """Else the second replica of a partition cannot be copied after the first one: every file of it is "damaged"."""
    assert find_contradiction(kind, source, stored, METADATA) is None
    if source is not None and source != b"torn":
        assert find_contradiction(kind, stored, source, METADATA) is None


@pytest.mark.parametrize(
    ("kind", "source", "stored", "told"),
    [
        (IndexType.PRODUCER_SNAPSHOT, snapshot(DONE, OPEN), snapshot(DONE), "{8: 146}"),
        (IndexType.TRANSACTION, aborted((8, 146, 170, 146)), None, "(8, 146, 170)"),
        (IndexType.TRANSACTION, aborted((8, 146, 170, 146)), aborted((8, 140, 170, 146)), "(8, 140, 170)"),
        (IndexType.LEADER_EPOCH, epochs((1, 0), (3, 90)), epochs((1, 0), (3, 120)), "(3, 120)"),
        (IndexType.LEADER_EPOCH, epochs((1, 0), (3, 90)), epochs((2, 90)), "(2, 100)"),
    ],
)
def test_what_must_be_the_same(kind: IndexType, source: bytes, stored: bytes | None, told: str) -> None:
    """Else a bucket stays that shows aborted records, or serves a branch that lost, and the disk is deleted."""
    found = find_contradiction(kind, source, stored, METADATA)
    assert found is not None
    assert told in found
    if stored is not None:
        assert find_contradiction(kind, stored, source, METADATA) is not None
