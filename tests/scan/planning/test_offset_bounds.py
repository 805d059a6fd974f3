"""Which partitions an offset is asked for, and the error where one is missing."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog import open_tier
from tierlog.errors import ConfigError
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.scan_request import ScanRequest, TopicSelection

ORDERS = TopicSelection.of_names(["orders"])


def missing(root: pathlib.Path, partitions: int) -> str:
    """The error if Spark names the first partition alone."""
    for partition in range(partitions + 1):
        Bucket(root, partition=partition).segment("u", [message(0, "m", 0)], lineage={0: 0})
    request = ScanRequest(ORDERS, starting_offsets={"orders": {0: 0}})
    with open_tier(str(root)) as tier, pytest.raises(ConfigError) as caught:
        plan_scan(tier, request)
    return str(caught.value).partition("missing: ")[2]


@pytest.mark.parametrize(("count", "more"), [(10, ""), (11, " and 1 more"), (13, " and 3 more")])
def test_ten_partitions_are_named_and_the_others_counted(tmp_path: pathlib.Path, count: int, more: str) -> None:
    """If this fails, an error about a thousand partitions fills the screen, or says less than there is."""
    assert missing(tmp_path, count) == ", ".join(f"orders-{number}" for number in range(1, 11)) + more
