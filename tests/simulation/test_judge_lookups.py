"""The judge of offsets by time, by histories made by hand."""

from __future__ import annotations

import pytest

from tests.simulation.facts import Violation
from tests.simulation.made_cluster import PARTITION, MadeCluster
from tests.simulation.messages import ListedOffset, ListOffset


@pytest.mark.parametrize(
    ("asked", "offset", "timestamp", "words"),
    [
        (1_000_050, 1, 1_000_100, None),
        (1_000_100, 1, 1_000_100, None),
        (1_000_300, -1, -1, None),
        (-1, 7, -1, None),
        (1_000_050, 2, 1_000_200, "1 is of 1000100"),
        (1_000_150, 1, 1_000_100, "it is older"),
        (1_000_050, 1, 1_000_200, "the record there is of 1000100"),
    ],
)
def test_the_first_record_that_is_not_older_is_found(
    asked: int, offset: int, timestamp: int, words: str | None
) -> None:
    made = MadeCluster()
    for at in range(3):
        made.write(b"%d" % at, at=at)
        made.now_ms += 100
    request, answer = ListOffset(PARTITION, asked), ListedOffset(None, offset, timestamp, 0)
    if words is None:
        made.judge.looked_up("lookups-0", request, answer, broker=1, now_ms=made.now_ms)
    else:
        with pytest.raises(Violation, match=words) as found:
            made.judge.looked_up("lookups-0", request, answer, broker=1, now_ms=made.now_ms)
        assert (found.value.invariant, found.value.anomaly) == (1, "wrong lookup")
