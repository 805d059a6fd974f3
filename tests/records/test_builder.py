"""Building of batches: byte for byte what Kafka's own builder wrote, and misuse that is refused."""

from __future__ import annotations

import pytest

from tests.records.vectors import vector
from tests.support import oracle as reference
from tierlog.records.builder import (
    RecordBatchBuilder,
    build_end_transaction_marker,
    encode_varint,
)
from tierlog.records.control import ControlRecordType

T = 1_700_000_000_000
PRODUCER = {"producer_id": 9000, "producer_epoch": 4, "base_sequence": 17, "transactional": True}


def two_records(builder: RecordBatchBuilder) -> bytes:
    builder.append(b"k1", b"v1", timestamp_ms=T, headers=[("h1", b"x"), ("hn", None)])
    builder.append(None, b"v2", timestamp_ms=T + 5)
    return builder.build()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("v2.none", {}),
        ("v2.base0.epoch-1", {"base_offset": 0, "leader_epoch": -1}),
        ("v2.gzip", {"codec": "gzip"}),
        ("v2.snappy", {"codec": "snappy"}),
        ("v2.lz4", {"codec": "lz4"}),
        ("v2.zstd", {"codec": "zstd"}),
        ("v2.txn", PRODUCER),
        ("v2.logappend", {"log_append_time_ms": T + 9999}),
    ],
)
def test_a_batch_is_what_kafka_writes(name: str, arguments: dict[str, object]) -> None:
    """A broker must take our batches for its own; what a codec's library decides is compared by content."""
    builder = RecordBatchBuilder(**{"base_offset": 100, "leader_epoch": 5, **arguments})  # type: ignore[arg-type]
    built = two_records(builder)
    if "codec" in arguments:
        assert reference.decode(built) == reference.decode(vector(name))
        assert built[12:17] + built[21:57] == vector(name)[12:17] + vector(name)[21:57]
    else:
        assert built == vector(name)


def test_what_compaction_leaves() -> None:
    """Emptied batches and delete horizons come from the cleaner alone, and break readers that never saw one."""
    empty = RecordBatchBuilder(100, leader_epoch=5, **PRODUCER)  # type: ignore[arg-type]
    assert empty.build(last_offset=104, max_timestamp_ms=T + 5) == vector("v2.emptyheader")
    kept = RecordBatchBuilder(100, leader_epoch=5, delete_horizon_ms=T + 100_000)
    kept.append(b"k1", None, timestamp_ms=T)
    kept.append(b"k3", b"v3", timestamp_ms=T + 5, offset=102)
    assert kept.build(last_offset=104) == vector("v2.deletehorizon")
    assert RecordBatchBuilder(0, codec="lz4").build(last_offset=3)[61:] == b""


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_markers(kind: ControlRecordType) -> None:
    """A transaction whose marker is not understood stays open for ever."""
    marker = build_end_transaction_marker(
        102, kind, producer_id=9000, producer_epoch=4, coordinator_epoch=7, timestamp_ms=T + 1000, leader_epoch=5
    )
    assert marker == vector(f"endtxn.{kind.name.lower()}")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    """Every length in a record is one."""
    assert encode_varint(value).hex() == encoded


def test_misuse_is_refused() -> None:
    """A batch that no reader takes must not come to be."""
    builder = RecordBatchBuilder(10)
    builder.append(None, None, offset=12)
    with pytest.raises(ValueError, match="does not follow"):
        builder.append(None, None, offset=12)
    with pytest.raises(ValueError, match="does not follow"):
        builder.append(None, None, offset=10 + 2**31)
    with pytest.raises(ValueError, match="last_offset"):
        builder.build(last_offset=11)
    with pytest.raises(ValueError, match="negative"):
        RecordBatchBuilder(-1)
    with pytest.raises(ValueError, match="never compressed"):
        RecordBatchBuilder(0, control=True, codec="lz4")
    with pytest.raises(ValueError, match="none of"):
        RecordBatchBuilder(0, codec="brotli")
    with pytest.raises(ValueError, match="not 0 to 4"):
        RecordBatchBuilder(0, codec=5)
    with pytest.raises(ValueError, match="64 bits"):
        encode_varint(2**63)
    assert (len(builder), builder.next_offset) == (1, 13)
    assert builder.uncompressed_size_bytes == len(builder.build()) - 61
