"""Arguments of another type than a public call takes: refused at once, by the argument's name."""

from __future__ import annotations

import datetime
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tierlog
from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierlog.records import RecordDecoder, decode, scan
from tierlog.remote.api import (
    EpochEntry,
    EpochMap,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import encode_record

DATE = datetime.date(2026, 11, 22)
PARTITION = TopicIdPartition(Uuid(bytes(16)), "orders", 0)
SEGMENT = RemoteLogSegmentId(PARTITION, Uuid(bytes(16)))
METADATA: dict[str, Any] = {
    "remote_log_segment_id": SEGMENT,
    "start_offset": 0,
    "end_offset": 1,
    "max_timestamp_ms": 1,
    "broker_id": 1,
    "event_timestamp_ms": 1,
    "segment_size_in_bytes": 1,
    "segment_leader_epochs": EpochMap({0: 0}),
    "custom_metadata": None,
    "state": RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    "txn_idx_empty": False,
}
FILES: dict[str, Any] = {
    "log_segment": "a",
    "offset_index": "a",
    "time_index": "a",
    "transaction_index": None,
    "producer_snapshot": "a",
    "leader_epoch_index": b"",
}


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("path", 5, "path is a str or a path, not int"),
        ("path", b"x", "path is a str or a path, not bytes"),
        ("topic", 5, "topic is a str, a sequence of str or a compiled pattern, not int"),
        ("topic", None, "topic is a str, a sequence of str or a compiled pattern, not NoneType"),
        ("topic", b"orders", "topic is a str, a sequence of str or a compiled pattern, not bytes"),
        ("topic", ["orders", 5], "each of topic is a str, not int"),
        ("topic", re.compile(b"orders"), "the pattern of topic is one of str, not bytes"),
        ("partitions", 0, "partitions is a sequence of int, not int"),
        ("partitions", "0", "partitions is a sequence of int, not str"),
        ("partitions", ["0"], "each of partitions is an int, not str"),
        ("partitions", [0.5], "each of partitions is an int, not float"),
        ("start", b"5", "start is an int, a mapping of ints by partition, or a time, not bytes"),
        ("start", 5.0, "start is an int, a mapping of ints by partition, or a time, not float"),
        ("start", DATE, "start is an int, a mapping of ints by partition, or a time, not date"),
        ("start", True, "start is an int, a mapping of ints by partition, or a time, not bool"),
        ("end", [1], "end is an int, a mapping of ints by partition, or a time, not list"),
        ("end", {"0": 5}, "each key of end is an int, not str"),
        ("end", {0: "5"}, "end[0] is an int, not str"),
        ("end", {0: {0: 5}}, "each key of end is a str, not int"),
        ("end", {"orders": {0: "5"}}, "end['orders'][0] is an int, not str"),
        ("columns", "offset", "columns is a sequence of str, not str: write ['offset']"),
        ("columns", 5, "columns is a sequence of str, not int"),
        ("columns", [5], "each of columns is a str, not int"),
        ("isolation_level", None, "isolation_level is a str, not NoneType"),
        ("config", 5, "config is a mapping, or the path of a file, not int"),
        ("config", {5: "x"}, "each key of config is a str, not int"),
        ("layout", None, "layout is a str, not NoneType"),
        ("log_start_offsets", 5, "log_start_offsets is a mapping of int by partition, not int"),
        ("verify_checksums", "no", "verify_checksums is a bool, not str"),
        ("fail_on_data_loss", 0, "fail_on_data_loss is a bool, not int"),
        ("threads", "2", "threads is an int, not str"),
        ("machine", 5, "machine is a Machine, not int"),
    ],
)
def test_reading(data: pathlib.Path, argument: str, value: object, text: str) -> None:
    """``unhashable type``, columns named o, f, f, s, e, t, or "no" taken for true: nobody would know what to change."""
    given: dict[str, Any] = {"path": data / "main-plain" / "objects", "topic": "fx-txn", argument: value}
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        tierlog.read(given.pop("path"), given.pop("topic"), **given)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tierlog.open_tier(5), "path is a str or a path, not int"),
        (lambda: tierlog.open_tier("x", layout=5), "layout is a str, not int"),
        (lambda: tierlog.open_tier("x", config="broker.properties"), "config is a mapping, not str"),
        (lambda: scan("abc"), "buffer is bytes or another buffer, not str"),
        (lambda: scan(b"", verify_crc="no"), "verify_crc is a bool, not str"),
        (lambda: scan(b"", base_position="5"), "base_position is an int, not str"),
        (lambda: decode(None), "buffer is bytes or another buffer, not NoneType"),
        (lambda: decode(b"", columns="offset"), "columns is a sequence of str, not str: write ['offset']"),
        (lambda: decode(b"", from_offset=0.5), "from_offset is an int, not float"),
        (lambda: decode(b"", aborted=[]), "aborted is an array of ABORTED_DTYPE, not list"),
        (lambda: decode(b"", timestamp_unit=5), "timestamp_unit is a str, not int"),
        (lambda: decode(b"", allow_partial="no"), "allow_partial is a bool, not str"),
        (lambda: Uuid("AAAAAAAAAAAAAAAAAAAAAA"), "raw is 16 bytes (Uuid.from_text takes the 22 characters), not str"),
        (lambda: Uuid(bytearray(16)), "raw is 16 bytes (Uuid.from_text takes the 22 characters), not bytearray"),
        (lambda: Uuid.from_text(5), "text is a str, not int"),
        (lambda: TopicPartition(5, 0), "topic is a str, not int"),
        (lambda: TopicPartition("orders", "0"), "partition is an int, not str"),
        (lambda: TopicIdPartition("x", "orders", 0), "topic_id is a Uuid, not str"),
        (lambda: RemoteLogSegmentId("orders-0", Uuid(bytes(16))), "topic_id_partition is a TopicIdPartition, not str"),
        (lambda: RemoteLogSegmentId(PARTITION, "x"), "id is a Uuid, not str"),
        (lambda: EpochEntry("0", 0), "epoch is an int, not str"),
        (lambda: EpochMap([(0, 0)]), "entries is a mapping of epoch to offset, or a tuple of EpochEntry, not list"),
        (lambda: EpochMap(((0, 0),)), "each of entries is an EpochEntry, not tuple"),
        (
            lambda: RemoteLogSegmentMetadataUpdate(
                SEGMENT, event_timestamp_ms=1, custom_metadata=None, state=1, broker_id=1
            ),
            "state is a RemoteLogSegmentState, not int",
        ),
        (
            lambda: RemotePartitionDeleteMetadata(
                PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms="now", broker_id=1
            ),
            "event_timestamp_ms is an int, not str",
        ),
    ],
)
def test_other_calls(call: Callable[[], object], text: str) -> None:
    """A value that cannot be would be kept, and fail in another thread, hours later."""
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        call()


@pytest.mark.parametrize("name", METADATA)
def test_metadata_of_a_segment(name: str) -> None:
    """A broker's metadata topic would get what no other broker can read."""
    assert RemoteLogSegmentMetadata(**METADATA).start_offset == 0
    with pytest.raises(TypeError, match=f"^{name} is .*, not complex$"):
        RemoteLogSegmentMetadata(**METADATA | {name: 1j})


@pytest.mark.parametrize("name", FILES)
def test_files_of_a_segment(name: str) -> None:
    """A copy would fail with the words of the file that it opens first."""
    assert LogSegmentData(**FILES | {"log_segment": pathlib.Path("a")}).log_segment == "a"
    with pytest.raises(TypeError, match=f"^{name} is .*, not complex$"):
        LogSegmentData(**FILES | {name: 1j})


def test_what_stands_for_an_int_is_one() -> None:
    """Offsets out of numpy or pandas would be refused."""
    assert EpochEntry(np.int64(1), np.int32(5)).start_offset == 5
    assert TopicPartition("orders", np.int32(1)).partition == 1
    assert len(scan(b"", base_position=np.int64(7))) == 0


HUGE = (2**70, -(2**70), 2**63, -(2**63) - 1)
BOUNDS = ("from_offset", "to_offset_exclusive", "from_timestamp_ms", "to_timestamp_exclusive_ms")
SIZES = ("base_position", "decompressed_limit")


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("name", [*BOUNDS, *SIZES])
def test_a_number_that_no_offset_has_is_named(name: str, number: int) -> None:
    """If this fails, a caller reads "Python int too large to convert to C long", and of which is not said."""
    for call in (lambda: decode(b"", **{name: number}), lambda: RecordDecoder(("offset",), **{name: number})):
        with pytest.raises(ValueError, match=f"^{name} does not fit into 64 bits$"):
            call()


@pytest.mark.parametrize("name", SIZES)
def test_a_size_or_a_position_is_not_negative(name: str) -> None:
    """If this fails, a slip of a sign is an OverflowError."""
    for call in (lambda: decode(b"", **{name: -1}), lambda: RecordDecoder(("offset",), **{name: -1})):
        with pytest.raises(ValueError, match=f"^{name} is at least 0, not -1$"):
            call()
    for name in BOUNDS:
        assert decode(b"", **{name: -1}).num_rows == 0


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("base_position", lambda number: scan(b"", base_position=number)),
        ("target_offset", OffsetIndex(b"", 0).lookup),
        ("base_offset", lambda number: OffsetIndex(b"", number).lookup(0)),
        ("position", lambda number: OffsetIndex(b"", 0).find_upper_bound_offset(position=number, size_bytes=1)),
        ("target_timestamp_ms", TimeIndex(b"", 0).lookup),
        (
            "fetch_offset",
            lambda number: TransactionIndex(b"").collect_aborted(fetch_offset=number, upper_bound_offset_exclusive=1),
        ),
        ("broker_id", lambda number: RemoteLogSegmentMetadata(**METADATA | {"broker_id": number})),
        ("event_timestamp_ms", lambda number: RemoteLogSegmentMetadata(**METADATA | {"event_timestamp_ms": number})),
        (
            "event_timestamp_ms",
            lambda number: RemoteLogSegmentMetadataUpdate(
                SEGMENT,
                event_timestamp_ms=number,
                custom_metadata=None,
                state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                broker_id=1,
            ),
        ),
        (
            "broker_id",
            lambda number: RemotePartitionDeleteMetadata(
                PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=1, broker_id=number
            ),
        ),
    ],
)
def test_such_numbers_elsewhere(name: str, call: Callable[[int], object], number: int) -> None:
    """If this fails, what a program gets wrong comes out far below, in the words of the code that met it first."""
    with pytest.raises(ValueError, match=f"^{name} "):
        call(number)


def test_a_record_that_has_no_room_for_a_number() -> None:
    """If this fails, it is a struct.error, which nobody expects: a plain file may be larger than Kafka's."""
    metadata = RemoteLogSegmentMetadata(**METADATA | {"segment_size_in_bytes": 2**31})
    with pytest.raises(ValueError, match="2147483648 does not fit into 32 bits"):
        encode_record(metadata)


@pytest.mark.parametrize("number", [2**70, 2**63])
def test_reading_takes_what_no_offset_reaches(data: pathlib.Path, number: int) -> None:
    """If this fails, "to the end" written as a very large number is an error, or loses records."""
    root, topic = data / "main-plain/objects", "fx-epochs"
    everything = tierlog.read(root, topic, columns=["offset"]).read_all().num_rows
    assert tierlog.read(root, topic, columns=["offset"], end=number).read_all().num_rows == everything > 0
    assert tierlog.read(root, topic, columns=["offset"], start=number).read_all().num_rows == 0
    assert tierlog.read(root, topic, columns=["offset"], log_start_offsets={0: number}).read_all().num_rows == 0
