"""ListOffsets at the request layer: versions, and what a client may see of an offset that was found."""

from __future__ import annotations

import pytest

from tests.support.replicas import made
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.segments.segment_view import TimestampAndOffset
from tierlog.replication import LeaderAndIsr, ReplicationError
from tierlog.replication.listed_offsets import check_version, error_for

END, HIGH, COMMITTED = FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED


@pytest.mark.parametrize(
    ("timestamp", "least"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12), (0, 1), (5, 1)]
)
def test_a_special_timestamp_has_a_first_version(timestamp: int, least: int) -> None:
    """ListOffsetsRequestTest: an old client is told so, and not given the first record from "time" -4 on."""
    for version in range(1, 12):
        if version >= least:
            check_version(timestamp, version)
        else:
            with pytest.raises(ReplicationError) as caught:
                check_version(timestamp, version)
            assert caught.value.error is KafkaError.UNSUPPORTED_VERSION


def test_old_clients_know_another_error() -> None:
    assert error_for(KafkaError.OFFSET_NOT_AVAILABLE, 4) is KafkaError.LEADER_NOT_AVAILABLE
    assert error_for(KafkaError.OFFSET_NOT_AVAILABLE, 5) is KafkaError.OFFSET_NOT_AVAILABLE
    assert error_for(KafkaError.FENCED_LEADER_EPOCH, 1) is KafkaError.FENCED_LEADER_EPOCH


def test_what_was_found_in_the_tier_is_limited_as_what_is_here() -> None:
    """A follower that has become leader does not know yet what is committed: clients wait."""
    replica = made(tiered=True)
    replica.lead(LeaderAndIsr(1, 1, (2, 3), frozenset((2, 3))), 0)
    for value in (b"a", b"b", b"c"):
        replica.append(value)
    leader = replica.leader
    found = TimestampAndOffset(7, 1, 1)
    assert leader.limit_listed(found, 7, isolation=END) == (1, 1)
    assert leader.limit_listed(found, 7, isolation=HIGH) == (-1, -1)
    assert leader.limit_listed(None, 7, isolation=END) == (-1, -1)
    assert leader.limit_listed(found, -2, isolation=COMMITTED) == (1, 1), "never refused"
    replica.log.update_high_watermark(2)
    assert leader.limit_listed(found, 7, isolation=HIGH) == (1, 1)
    assert leader.limit_listed(TimestampAndOffset(7, 3, 1), -6, isolation=END) == (3, 1), "a follower begins there"
    assert leader.limit_listed(TimestampAndOffset(7, 2, 1), -6, isolation=HIGH) == (-1, -1)
    replica.lead(LeaderAndIsr(2, 2, (2, 3), frozenset((2, 3))), 0)
    with pytest.raises(ReplicationError) as caught:
        leader.limit_listed(TimestampAndOffset(7, 2, 1), 7, isolation=HIGH)
    assert caught.value.error is KafkaError.OFFSET_NOT_AVAILABLE
    assert leader.limit_listed(found, 7, isolation=HIGH, leader_epoch=2) == (1, 1)
    with pytest.raises(ReplicationError) as caught:
        leader.limit_listed(found, 7, isolation=HIGH, leader_epoch=1)
    assert caught.value.error is KafkaError.FENCED_LEADER_EPOCH
