"""A request that cannot be meant is refused when it is made, with the reason."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.scan.scan_request import EARLIEST, LATEST, RecordFilter, ScanRequest, TopicName, TopicSelection

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ORDERS = TopicSelection.of_names(["orders"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"starting_offsets": LATEST}, "starting offsets of a batch read cannot be latest"),
        ({"ending_offsets": EARLIEST}, "ending offsets of a batch read cannot be earliest"),
        ({"starting_offsets": {"orders": {0: LATEST}}}, "cannot be latest"),
        ({"ending_offsets": {"orders": {0: -3}}}, "ending offset -3 is neither an offset nor latest"),
        ({"isolation_level": "serializable"}, "isolation_level is one of read_uncommitted, read_committed"),
        ({"no_match": "guess"}, "no_match is one of error, latest"),
        ({"max_bytes_per_range": 0}, "max_bytes_per_range is at least 1"),
        ({"min_partitions": -1}, "min_partitions is at least 1"),
        ({"max_records_per_partition": 0}, "max_records_per_partition is at least 1"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], reason: str) -> None:
    """The user would get an empty or endless answer to a typing error."""
    with pytest.raises(ConfigError, match=reason):
        ScanRequest(ORDERS, **options)  # type: ignore[arg-type]


def test_topics_are_given_in_exactly_one_way() -> None:
    """Of two contradicting selections one would win in silence."""
    for wrong in ({}, {"names": ("a",), "pattern": "b"}, {"pattern": "a", "assigned": {"a": (0,)}}):
        with pytest.raises(ConfigError, match="exactly one of"):
            TopicSelection(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="malformed"):
        TopicSelection.matching("(")


def test_a_filter_knows_whether_it_bounds_time() -> None:
    """A filter by time would be left out, or time indexes fetched for none."""
    assert not RecordFilter().bounds_time
    assert not RecordFilter(first_offset=5, end_offset_exclusive=6).bounds_time
    assert RecordFilter(first_timestamp_ms=0).bounds_time
    assert RecordFilter(end_timestamp_exclusive_ms=0).bounds_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", (None, "orders")),
        (f"{ID}:orders", (ID, "orders")),
        (f"{ID}:", (None, f"{ID}:")),
        (f"{ID[1:]}:orders", (None, f"{ID[1:]}:orders")),
        (f"{ID}:a:b", (ID, "a:b")),
    ],
)
def test_an_id_in_front_is_told_from_a_name(text: str, expected: tuple[str | None, str]) -> None:
    """If this fails, a name is taken for another one, or a recreated topic cannot be told from the old one."""
    parsed = TopicName.parse(text)
    assert parsed == expected
    assert str(parsed) == text


def test_an_id_picks_one_of_two_topics() -> None:
    """If this fails, records of a topic that was deleted come with those of its successor."""
    old, new = (TopicIdPartition(Uuid.from_text(text), "orders", 3) for text in (ID, ID[:-1] + "g"))
    assert [TopicName.parse(f"{ID}:orders").accepts(each) for each in (old, new)] == [True, False]
    assert TopicName.parse("orders").accepts(new)
    assert not TopicName.parse("order").accepts(old)
