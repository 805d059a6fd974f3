"""Records of a range as one Arrow record batch, and the decoder's own promises."""

from __future__ import annotations

import pathlib
import struct

import numpy as np
import pyarrow as pa
import pytest

from tests.records.vectors import vector
from tierlog._native.indexes import ABORTED_DTYPE
from tierlog.errors import ConfigError, CorruptIndexError, CorruptRecordError, SizeLimitError
from tierlog.records import DEFAULT_COLUMNS, RecordDecoder, decode
from tierlog.records.builder import RecordBatchBuilder

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
T = 1_700_000_000_000


def numbered(count: int, *, base_offset: int = 0, codec: str = "none", value: bytes = b"") -> bytes:
    builder = RecordBatchBuilder(base_offset, codec=codec, leader_epoch=3)
    for number in range(count):
        builder.append(b"%d" % number, value, timestamp_ms=T + number)
    return builder.build()


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    """A schema that differs by a nullability is refused by Spark in the middle of a job."""
    headers = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    expected = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", headers),
        ]
    )
    batch = decode(vector("v2.none"))
    assert batch.schema == expected
    assert tuple(batch.schema.names) == DEFAULT_COLUMNS
    assert all(field.nullable for field in batch.schema)
    assert decode(b"").schema == expected
    assert decode(vector("v2.none"), timestamp_unit="us").schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_rows() -> None:
    """Null and empty are different things; a record without headers has null, not an empty list."""
    batch = decode(vector("v2.none"), columns=(*DEFAULT_COLUMNS, "leaderEpoch", "batchPosition", "sequence"))
    batch.validate(full=True)
    rows = batch.drop_columns(["timestamp"]).to_pylist()
    common = {"timestampType": 0, "leaderEpoch": 5, "batchPosition": 0, "sequence": -1}
    first = [{"key": "h1", "value": b"x"}, {"key": "hn", "value": None}]
    assert rows == [
        {"key": b"k1", "value": b"v1", "offset": 100, "headers": first, **common},
        {"key": None, "value": b"v2", "offset": 101, "headers": None, **common},
    ]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [T, T + 5]
    assert decode(vector("v0.none")).column("timestamp").cast(pa.int64()).to_pylist() == [-1, -1]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_one_record_batch_however_much(codec: str) -> None:
    """The answer is one batch, as the design says, also where a decoder would have handed out many."""
    data = b"".join(numbered(3000, base_offset=3000 * n, codec=codec, value=bytes(1000)) for n in range(10))
    batch = decode(data, columns=["offset", "value"])
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == list(range(30_000))
    assert batch.column("value").nbytes > 30_000_000


def test_filters() -> None:
    """What is outside the range is not given; batches outside are not even decompressed."""
    data = numbered(10) + numbered(10, base_offset=10, codec="gzip")
    assert decode(data, from_offset=8, to_offset_exclusive=12).column("offset").to_pylist() == [8, 9, 10, 11]
    late = decode(data, from_timestamp_ms=T + 9, to_timestamp_exclusive_ms=T + 10)
    assert late.column("offset").to_pylist() == [9, 19]
    broken = bytearray(numbered(10, codec="gzip"))
    broken[61] ^= 0xFF
    with pytest.raises(CorruptRecordError):
        decode(bytes(broken) + numbered(1, base_offset=10))
    outside = bytes(broken) + numbered(1, base_offset=10)
    with pytest.raises(CorruptRecordError):
        decode(outside, from_offset=10)
    assert decode(outside, from_offset=10, verify_crc=False).num_rows == 1


def test_aborted_transactions() -> None:
    """read_committed must not show what was taken back; other producers' data stay."""
    data = vector("v2.txn") + vector("endtxn.abort")
    entries = np.array([(9000, 100, 102), (8, 0, 5), (9000, 100, 102)], dtype=ABORTED_DTYPE)
    assert decode(data).num_rows == 2
    assert decode(data, aborted=entries).num_rows == 0
    assert decode(data, aborted=entries[1:2]).num_rows == 2
    assert decode(data, aborted=entries, control_records=True).column("offset").to_pylist() == [102]
    overlapping = np.array([(1, 0, 10), (1, 5, 20)], dtype=ABORTED_DTYPE)
    with pytest.raises(CorruptIndexError):
        decode(data, aborted=overlapping)


def test_errors_say_where() -> None:
    """An operator finds the batch by its position in the file."""
    data = bytearray(numbered(1) + numbered(1, base_offset=1))
    data[len(data) // 2 + 17] ^= 1  # of the second checksum
    with pytest.raises(CorruptRecordError) as caught:
        decode(data, base_position=4096)
    error = caught.value
    assert (error.fault, error.position, error.base_offset) == ("BAD_CRC", 4096 + len(data) // 2, 1)
    assert error.expected != error.found
    assert "stored" in str(error)
    assert decode(data, verify_crc=False).num_rows == 2
    with pytest.raises(CorruptRecordError, match="end") as caught:
        decode(bytes(data[:-1]), verify_crc=False)
    assert caught.value.fault == "TRUNCATED"
    assert decode(bytes(data[:-1]), allow_partial=True).num_rows == 1


def test_limits() -> None:
    """A bomb of a few kilobytes must not take the memory of the machine."""
    data = numbered(1, codec="zstd", value=bytes(1 << 20))
    assert decode(data, decompressed_limit=(1 << 20) + 100).num_rows == 1
    with pytest.raises(SizeLimitError) as caught:
        decode(data, decompressed_limit=1 << 20)
    assert caught.value.fault == "OVER_LIMIT"


def test_wrong_arguments() -> None:
    """A misspelt column must not come out as an absent one."""
    with pytest.raises(ConfigError, match="offsets"):
        decode(b"", columns=["offsets"])
    with pytest.raises(ConfigError, match="timestamp_unit"):
        decode(b"", timestamp_unit="ns")
    with pytest.raises(ConfigError, match="target_bytes"):
        RecordDecoder(["offset"], target_bytes=0)


def test_no_columns_are_rows_all_the_same() -> None:
    """``count(*)`` asks for none."""
    assert decode(numbered(7), columns=[]).num_rows == 7


def test_a_batch_that_is_at_fault_can_be_passed_over() -> None:
    """``failOnDataLoss=false`` goes on behind the damage, and loses nothing else."""
    good, broken, last = numbered(3), bytearray(numbered(3, base_offset=3)), numbered(3, base_offset=6)
    broken[-1] ^= 1
    decoder = RecordDecoder(["offset"])
    fed = decoder.feed(good + broken + last)
    assert next(fed).column("offset").to_pylist() == [0, 1, 2]
    with pytest.raises(CorruptRecordError):
        next(fed)
    assert decoder.skip_batch() == len(broken)
    rest = [*decoder.feed(b""), *decoder.finish()]
    assert [offset for batch in rest for offset in batch.column("offset").to_pylist()] == [6, 7, 8]


def test_a_length_that_cannot_be_has_no_next_batch() -> None:
    """Guessing where the next batch begins would give records that are none."""
    decoder = RecordDecoder(["offset"])
    with pytest.raises(CorruptRecordError):
        list(decoder.feed(bytes(100)))
    with pytest.raises(CorruptRecordError) as caught:
        decoder.skip_batch()
    assert caught.value.fault == "BAD_SIZE"


def test_the_end_of_a_range_is_noticed() -> None:
    """A scan of a few offsets must stop fetching when it has them."""
    decoder = RecordDecoder(["offset"], to_offset_exclusive=5)
    rows = [*decoder.feed(numbered(5)), *decoder.feed(numbered(5, base_offset=5))]
    assert not decoder.done, "the next batch tells whether the offset of that one is right"
    rows += decoder.feed(numbered(5, base_offset=10) + b"never looked at")
    assert decoder.done
    rows += decoder.finish()
    assert sum(batch.num_rows for batch in rows) == 5


@pytest.mark.parametrize("split", range(-10, 1))
@pytest.mark.parametrize("behind", [5, 4])
def test_the_batch_behind_a_range_is_looked_at(split: int, behind: int) -> None:
    """No checksum covers a base offset: the last batch of a range would be read under offsets of the next one."""
    log = numbered(5)
    data = log + struct.pack(">q", behind)
    decoder = RecordDecoder(["offset"], base_position=7, end_position=7 + len(log))
    rows: list[pa.RecordBatch] = []
    fault = None
    try:
        for piece in (data[: len(data) + split], data[len(data) + split :]):
            rows.extend(decoder.feed(piece))
    except CorruptRecordError as error:
        fault = (error.fault, error.position, error.base_offset, error.expected, error.found)
    assert fault == (None if behind == 5 else ("BAD_OFFSET", 7 + len(log), 4, 5, 4))
    assert decoder.done == (behind == 5)
    rows += decoder.finish()
    assert sum(batch.num_rows for batch in rows) == 5


def test_a_batch_over_the_end_of_a_range_is_truncated() -> None:
    """A wrong border would be taken for the base offset of a batch."""
    log = numbered(5)
    decoder = RecordDecoder(["offset"], end_position=len(log) - 3)
    with pytest.raises(CorruptRecordError) as caught:
        list(decoder.feed(log + bytes(8)))
    assert (caught.value.fault, caught.value.position, caught.value.base_offset) == ("TRUNCATED", 0, 0)


@pytest.mark.parametrize("target_bytes", [1, 1000, 100_000])
def test_record_batches_keep_near_their_size(target_bytes: int) -> None:
    """Spark's memory is planned by the size of these; one giant batch of the log must come out in parts."""
    data = numbered(2000, codec="lz4", value=bytes(500))
    decoder = RecordDecoder(["value", "offset"], target_bytes=target_bytes)
    batches = [*decoder.feed(data), *decoder.finish()]
    assert sum(batch.num_rows for batch in batches) == 2000
    # The smallest buffers that the decoder makes hold some hundred rows.
    assert max(batch.nbytes for batch in batches) < max(2 * target_bytes, 600_000)
    assert len(batches) >= 2
