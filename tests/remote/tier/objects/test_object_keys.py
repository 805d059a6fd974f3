"""Keys of every layout, taken apart."""

from __future__ import annotations

import pytest

from tierlog.remote.tier.objects.object_keys import (
    PARSERS,
    may_hold_topic,
    parse_aiven,
    parse_kafka,
    parse_local_tiered,
    parse_log_dir,
)

TOPIC_ID, SEGMENT_ID = "lZ6vvmajTWKDBUTV6SQAtQ", "adh9f8BMS4anaUnD8KWfWg"
FILE = f"00000000000000000023-{SEGMENT_ID}"


@pytest.mark.parametrize(
    ("prefix", "topic", "partition"),
    [("", "topic", 7), ("prefix/", "topic", 7), ("some/prefix/", "a-b", 0), ("a-1/0/", "x.y_z-0", 2147483647)],
)
def test_aiven(prefix: str, topic: str, partition: int) -> None:
    """If this fails, segments of topics with such names are not found."""
    key = parse_aiven(f"{prefix}{topic}-{TOPIC_ID}/{partition}/{FILE}.rsm-manifest")
    assert key is not None
    assert (key.prefix, key.topic_id_partition.topic, key.topic_id_partition.partition) == (prefix, topic, partition)
    assert (str(key.topic_id_partition.topic_id), str(key.segment_id)) == (TOPIC_ID, SEGMENT_ID)
    assert (key.start_offset, key.suffix) == (23, "rsm-manifest")
    assert key.segment_path == f"{prefix}{topic}-{TOPIC_ID}/{partition}/{FILE}"


def test_digits_of_another_locale() -> None:
    """If this fails, segments that a broker in an Arabic locale copied do not exist for us."""
    digits = "".join(chr(0x660 + int(digit)) for digit in "00000000000000000023")
    key = parse_aiven(f"topic-{TOPIC_ID}/7/{digits}-{SEGMENT_ID}.log")
    assert key is not None
    assert key.start_offset == 23


def test_ids_that_begin_or_end_with_a_dash() -> None:
    """If this fails, one segment in some thousand is not found."""
    odd = "-abcdefghij-klmnopqrs_"
    key = parse_local_tiered(f"kafka-tiered-storage/t-1-{odd}/00000000000000000005-{odd}.leader_epoch_checkpoint")
    assert key is not None
    assert key.topic_id_partition.topic == "t"
    assert str(key.topic_id_partition.topic_id)[:21] == odd[:21]


def test_kafka_and_log_dir() -> None:
    """If this fails, plain layouts are read under wrong names."""
    plain = parse_kafka(f"p/orders-{TOPIC_ID}/3/{SEGMENT_ID}/segment.json")
    assert plain is not None
    assert (plain.suffix, plain.segment_path) == ("segment.json", f"p/orders-{TOPIC_ID}/3/{SEGMENT_ID}")
    disk = parse_log_dir("data/__consumer_offsets-49/00000000000000000042.timeindex")
    assert disk is not None
    assert (disk.topic_id_partition.topic, disk.topic_id_partition.partition) == ("__consumer_offsets", 49)
    assert (disk.start_offset, disk.suffix, disk.segment_id) == (42, "timeindex", None)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        f"topic-{TOPIC_ID}/7/{FILE}",
        f"topic-{TOPIC_ID}/7/{FILE}.tmp",
        f"topic-{TOPIC_ID}/99999999999/{FILE}.log",
        f"topic-{TOPIC_ID}/2147483648/{FILE}.log",
        f"topic-{TOPIC_ID}/x/{FILE}.log",
        f"-{TOPIC_ID}/7/{FILE}.log",
        f"topic-{TOPIC_ID[:21]}/7/{FILE}.log",
        f"topic-{TOPIC_ID}/7/99999999999999999999-{SEGMENT_ID}.log",
        "topic-0/00000000000000000042.log.deleted",
        "topic-0/42.log",
        "topic-x/00000000000000000042.log",
        "remote-log-index-cache/42_abc.index",
    ],
)
def test_foreign_keys_are_ignored(key: str) -> None:
    """If this fails, garbage in a bucket becomes a segment or an error."""
    assert not any(parse(key) for parse in PARSERS.values())


def test_a_segment_folder_that_looks_like_a_partition() -> None:
    """If this fails, a bucket of the plain layout is now and then taken for a broker's disk."""
    folder = "ABCDEFGHIJKLMNOPQRST-1"
    key = f"orders-{TOPIC_ID}/3/{folder}/00000000000000000000.log"
    assert next(layout for layout, parse in PARSERS.items() if parse(key)) == "kafka"


def test_folders_of_other_topics_are_left_out() -> None:
    """If this fails, reading one topic lists the whole bucket, or misses a topic whose name holds another's."""

    def wanted(name: str) -> bool:
        return name == "orders"

    assert may_hold_topic(f"orders-{TOPIC_ID}/", wanted)
    assert may_hold_topic(f"orders-12-{TOPIC_ID}/", wanted)
    assert may_hold_topic("some-folder/", wanted)
    assert not may_hold_topic(f"orders-eu-{TOPIC_ID}/", wanted)
    assert not may_hold_topic(f"payments-{TOPIC_ID}/", wanted)
    assert may_hold_topic(f"orders-7-{TOPIC_ID}/", lambda name: name == "orders-7")
