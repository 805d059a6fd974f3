"""Batches of a topic that has a codec of its own: the records of the producer, in the topic's codec."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierlog._native.appends import AssignedBatch
from tierlog._native.batches import scan_batches
from tierlog.errors import ConfigError
from tierlog.log.local.log_appends import LeaderChecks, assign_batch
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker, encode_batch, encode_record
from tierlog.records.compression import compress
from tierlog.records.control import ControlRecordType
from tierlog.records.decoding import decode

NOW = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EXACT = ["key", "value", "offset", "timestamp", "headers", "sequence"]
#: Of no record but of the batch: what has to be the same in the rebuilt one.
FIELDS = ["last_offset_delta", "producer_id", "producer_epoch", "base_sequence", "record_count", "max_timestamp"]


def assign(
    checks: LeaderChecks, data: bytearray, *, first_offset: int, leader_epoch: int, origin: AppendOrigin
) -> tuple[memoryview, AssignedBatch] | None:
    """A leader's batch as a log makes it before the write."""
    native = checks.native.assign(
        data,
        first_offset=first_offset,
        leader_epoch=leader_epoch,
        now_ms=NOW,
        from_client=origin is AppendOrigin.CLIENT,
    )
    return assign_batch(
        checks,
        data,
        native,
        first_offset=first_offset,
        leader_epoch=leader_epoch,
        now_ms=NOW,
        origin=origin,
    )


def assigned(
    data: bytes, *, codec: str, first_offset: int = 100, origin: AppendOrigin = AppendOrigin.CLIENT, **topic: Any
) -> bytes:
    """What the log gets for a producer's batch in a topic with this ``compression.type``."""
    checks = LeaderChecks(LogConfig(compression_type="uncompressed" if codec == "none" else codec, **topic))
    before = bytearray(data)
    found = assign(checks, before, first_offset=first_offset, leader_epoch=7, origin=origin)
    assert found is not None
    answer, batch = found
    assert not batch.must_rebuild
    assert answer.obj is before or before == data  # a batch that was rebuilt left the producer's bytes alone
    assert (batch.base_offset, batch.leader_epoch, batch.size_bytes) == (first_offset, 7, len(answer))
    return bytes(answer)


def header(data: bytes) -> dict[str, int]:
    columns, end, _, _ = scan_batches(data, verify_crc=True)
    assert end == len(data)
    assert len(columns["position"]) == 1
    fields = {name: int(column[0]) for name, column in columns.items()}
    return fields | {"last_offset_delta": fields["last_offset"] - fields["base_offset"]}


def with_codec(codec: str, *, transactional: bool = False, delete_horizon_ms: int | None = None) -> bytes:
    builder = RecordBatchBuilder(
        0,
        codec=codec,
        producer_id=9,
        producer_epoch=3,
        base_sequence=40,
        transactional=transactional,
        delete_horizon_ms=delete_horizon_ms,
    )
    builder.append(b"k", b"v" * 3000, timestamp_ms=NOW - 5, headers=[("h", b"x"), ("h", None), (b"\xff", b"")])
    builder.append(None, os.urandom(70_000), timestamp_ms=NOW - 9)
    builder.append(b"", None, timestamp_ms=NOW - 1)
    return builder.build()


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_every_codec_becomes_every_other(source: str, target: str) -> None:
    """Else a topic's ``compression.type`` costs records, their order, or what belongs to a producer."""
    data = with_codec(source, transactional=True)
    stored = assigned(data, codec=target)
    assert decode(stored, columns=EXACT).equals(decode(assigned(data, codec=source), columns=EXACT))
    before, after = header(data), header(stored)
    assert {name: before[name] for name in FIELDS} == {name: after[name] for name in FIELDS}
    assert after["attributes"] == CODECS.index(target) | 0x10
    assert (after["base_offset"], after["leader_epoch"], after["max_timestamp"]) == (100, 7, NOW - 1)


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_what_real_producers_sent(data: Path, run: str) -> None:
    """Else records of librdkafka or Java come out otherwise in a topic with a codec of its own."""
    count = 0
    for path in sorted((data / run).glob("local-before/**/fx-*/*.log")):
        log = path.read_bytes()
        columns = scan_batches(log)[0]
        for row in np.flatnonzero((columns["attributes"] & 0x28) == 0).tolist()[:4]:
            at, size = int(columns["position"][row]), int(columns["size_bytes"][row])
            stored = log[at : at + size]
            if columns["record_count"][row] != columns["last_offset"][row] - columns["base_offset"][row] + 1:
                continue  # the cleaner's: no producer sends it
            sent = bytes(8) + stored[8:12] + b"\xff" * 4 + stored[16:]
            first_offset = int(columns["base_offset"][row])
            for codec, name in enumerate(CODECS):
                answer = assigned(sent, codec=name, first_offset=first_offset, message_timestamp_after_max_ms=2**62)
                assert decode(answer, columns=EXACT).equals(decode(stored, columns=EXACT)), (path, at, codec)
                assert header(answer)["attributes"] & 0x17 == int(columns["attributes"][row]) & 0x10 | codec
                count += 1
    assert count > 100


def test_the_bytes_are_those_that_kafka_builds() -> None:
    """Where the codec's library is the same, the whole batch is that of Kafka's MemoryRecordsBuilder."""
    for target in CODECS[1:]:
        expected = RecordBatchBuilder(
            100, codec=target, leader_epoch=7, producer_id=9, producer_epoch=3, base_sequence=40
        )
        sent = RecordBatchBuilder(0, producer_id=9, producer_epoch=3, base_sequence=40)
        for builder in (expected, sent):
            builder.append(b"k", b"v" * 100, timestamp_ms=NOW, headers=[("h", b"x")])
            builder.append(b"k2", None, timestamp_ms=NOW - 50)
        assert assigned(sent.build(), codec=target) == expected.build()


def test_log_append_time_is_the_leaders() -> None:
    """Else a topic with a codec of its own has its producers' timestamps."""
    stored = assigned(with_codec("none"), codec="zstd", message_timestamp_type="LogAppendTime")
    assert header(stored)["attributes"] == 4 | 0x08
    assert decode(stored, columns=["timestamp"])["timestamp"].cast("int64").to_pylist() == [NOW] * 3


def test_a_delete_horizon_is_the_cleaners_alone() -> None:
    """Else a producer's bit makes the cleaner drop its tombstones at a time of the producer's choice."""
    data = with_codec("none", delete_horizon_ms=NOW - 1000)
    stored = assigned(data, codec="gzip")
    assert header(stored)["attributes"] == 1
    wanted = [NOW - 5, NOW - 9, NOW - 1]
    assert decode(stored, columns=["timestamp"])["timestamp"].cast("int64").to_pylist() == wanted


def test_a_batch_that_grows_above_the_limit_is_refused() -> None:
    """Else ``max.message.bytes`` does not hold in the log, and a follower or a consumer is stuck behind it."""
    builder = RecordBatchBuilder(0, codec="zstd")
    builder.append(None, bytes(100_000), timestamp_ms=NOW)
    data = bytearray(builder.build())
    before = bytes(data)
    checks = LeaderChecks(LogConfig(compression_type="uncompressed", max_message_bytes=50_000))
    with pytest.raises(AppendRefusedError) as caught:
        assign(checks, data, first_offset=1, leader_epoch=1, origin=AppendOrigin.CLIENT)
    assert caught.value.error is KafkaError.MESSAGE_TOO_LARGE
    assert data == before


def test_markers_are_never_compressed() -> None:
    """Else no reader of Kafka's finds the end of a transaction in a topic with a codec."""
    marker = build_end_transaction_marker(
        0, ControlRecordType.ABORT, producer_id=9, producer_epoch=3, coordinator_epoch=1, timestamp_ms=NOW
    )
    stored = assigned(marker, codec="zstd", origin=AppendOrigin.COORDINATOR)
    assert stored[61:] == marker[61:]
    assert header(stored)["attributes"] == 0x30


def test_a_batch_that_has_the_codec_is_taken_as_it_is() -> None:
    """A level of the topic's own is no reason: Kafka compresses nothing twice."""
    data = with_codec("gzip")
    checks = LeaderChecks(LogConfig(compression_type="gzip", compression_gzip_level=1))
    buffer = bytearray(data)
    found = assign(checks, buffer, first_offset=0, leader_epoch=0, origin=AppendOrigin.CLIENT)
    assert found is not None
    assert found[0].obj is buffer
    assert bytes(buffer[61:]) == data[61:]


def test_no_whole_batch_is_none() -> None:
    """A request that was cut off has nothing to append; it is no error."""
    checks = LeaderChecks(LogConfig(compression_type="gzip"))
    cut = bytearray(with_codec("none")[:-1])
    assert assign(checks, cut, first_offset=0, leader_epoch=0, origin=AppendOrigin.CLIENT) is None


def test_levels_and_names_are_those_of_the_topic() -> None:
    """Else ``compression.zstd.level`` changes nothing, or a misspelt type stores whatever comes."""
    levels = {"compression_gzip_level": 6, "compression_lz4_level": 12, "compression_zstd_level": 19}
    found = {
        name: LeaderChecks(LogConfig(compression_type=name, **levels))
        for name in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
    }
    chosen = {name: (checks.codec, checks.level) for name, checks in found.items()}
    assert chosen == {
        "producer": (None, None),
        "uncompressed": (0, None),
        "gzip": (1, 6),
        "snappy": (2, None),
        "lz4": (3, 12),
        "zstd": (4, 19),
    }
    with pytest.raises(ConfigError, match=r"compression\.type 'none'"):
        LogConfig(compression_type="none")
    plain = RecordBatchBuilder(0)
    plain.append(None, bytes(range(256)) * 200 + os.urandom(100), timestamp_ms=NOW)
    sizes = [
        len(assigned(plain.build(), codec=codec, **{f"compression_{codec}_level": level}))
        for codec, level in [("zstd", -50), ("zstd", 19), ("gzip", 1), ("gzip", 9)]
    ]
    assert sizes[0] > sizes[1]
    assert sizes[2] >= sizes[3]


@settings(max_examples=40, deadline=None)
@given(
    deltas=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=5),
    base=st.integers(0, 2 * NOW),
    source=st.sampled_from(CODECS),
    target=st.sampled_from(CODECS),
)
def test_timestamps_survive_any_base(deltas: list[int], base: int, source: str, target: str) -> None:
    """A producer may count its timestamps from anything: none of them may move."""
    base = max(base, 10**6)
    records = b"".join(
        encode_record(offset_delta=i, timestamp_delta=delta, key=None, value=b"v") for i, delta in enumerate(deltas)
    )
    data = encode_batch(
        base_offset=0,
        records=compress(records, source),
        record_count=len(deltas),
        last_offset_delta=len(deltas) - 1,
        base_timestamp=base,
        max_timestamp=12,  # a lie: the leader sets it right
        attributes=CODECS.index(source),
    )
    stored = assigned(data, codec=target, message_timestamp_after_max_ms=2**62)
    timestamps = [base + delta for delta in deltas]
    assert decode(stored, columns=["timestamp"])["timestamp"].cast("int64").to_pylist() == timestamps
    assert header(stored)["max_timestamp"] == max(timestamps)
