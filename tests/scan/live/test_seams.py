"""Where a partition's records end in the tier and begin at brokers, and whether both are of one log."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError
from tierlog.remote.tier import open_tier
from tierlog.scan.history import PartitionHistory, TierHistory
from tierlog.scan.live.seams import BrokerFacts, last_epoch, require_one_log, seam_offset


@pytest.mark.parametrize(
    ("start", "end", "tier_end", "local_start", "seam"),
    [
        (0, 100, 60, None, 60),
        (0, 50, 60, None, 50),
        (70, 100, 60, None, 70),
        (0, 100, 60, 40, 40),
        (0, 100, 60, 80, 60),
        (50, 100, 60, 40, 50),
        (0, 100, 60, 0, 0),
    ],
)
def test_the_seam_lies_in_the_batch(start: int, end: int, tier_end: int, local_start: int | None, seam: int) -> None:
    """If this fails, a batch has records of another one, or the tier is asked for what it has not."""
    assert seam_offset(start, end, tier_end, local_start) == seam


@pytest.fixture
def history(tmp_path: pathlib.Path) -> PartitionHistory:
    """Offsets 0 to 19, of epoch 3, from 10 on of epoch 5."""
    bucket = Bucket(tmp_path)
    bucket.segment("a", [message(offset, "m", 0) for offset in range(10)], lineage={3: 0})
    bucket.segment("b", [message(offset, "m", 0) for offset in range(10, 20)], lineage={3: 0, 5: 10})
    with open_tier(str(tmp_path)) as tier:
        (found,) = TierHistory(tier).partitions(["orders"])
    return found


def test_one_log(history: PartitionHistory) -> None:
    """If this fails, a seam is refused that is none of two logs."""
    topic_id = str(history.topic_id_partition.topic_id)
    assert last_epoch(history) == 5
    for facts in (
        BrokerFacts(),
        BrokerFacts(topic_id, 20, 19, 5),
        BrokerFacts(topic_id, 30, 9, 3),  # a seam of local-preferred lies below the tier's end
        BrokerFacts(topic_id, 30, 25, 5),  # control records, or compacted ones, lie between
        BrokerFacts(topic_id, 30, 25, 8),
        BrokerFacts(topic_id, 20, None, None),
        BrokerFacts(topic_id, 30, 19, None),  # of an old format
    ):
        require_one_log(history, facts)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (BrokerFacts("AAAAAAAAAAAAAAAAAAAAAQ"), "has the id .* in the tier, and AAAAAAAAAAAAAAAAAAAAAQ at the brokers"),
        (BrokerFacts(None, 19), "ends at offset 20 in the tier, and at 19 at the brokers"),
        (BrokerFacts(None, 30, 19, 4), "leader epoch 4 at offset 19 at the brokers, and 5 in the tier"),
        (BrokerFacts(None, 30, 9, 5), "leader epoch 5 at offset 9 at the brokers, and 3 in the tier"),
        (BrokerFacts(None, 30, 25, 4), "leader epoch 4 at offset 25 at the brokers, and 5 in the tier"),
    ],
    ids=["topic-id", "ahead", "epoch", "epoch-below", "epoch-behind"],
)
def test_two_logs(history: PartitionHistory, facts: BrokerFacts, text: str) -> None:
    """If this fails, records of two logs become one history, without a word."""
    with pytest.raises(ConfigError, match=text):
        require_one_log(history, facts)
