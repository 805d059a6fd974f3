"""What a leader writes into a batch and a follower checks, against what brokers wrote and against the rules by hand."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.vectors import VECTORS
from tierlog._native.appends import LeaderCheck, check_follower_batches, find_marker
from tierlog._native.batches import scan_batches
from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptRecordError
from tierlog.log.local.log_appends import LeaderChecks, check_sent_batches
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.builder import RecordBatchBuilder

NOW = 1_700_000_000_000
CONTROL, LOG_APPEND_TIME = 0x20, 0x08


def produced(stored: bytes) -> bytearray:
    """A stored batch as its producer sent it: base offset 0, no leader epoch."""
    data = bytearray(stored)
    data[0:8] = bytes(8)
    data[12:16] = b"\xff\xff\xff\xff"
    return data


def assign(data: bytearray, config: LogConfig | None = None, *, first_offset: int = 100, now_ms: int = NOW) -> object:
    checks = LeaderChecks(config or LogConfig())
    return checks.assign(data, first_offset=first_offset, leader_epoch=5, now_ms=now_ms, origin=AppendOrigin.CLIENT)


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
def test_what_brokers_stored_comes_out_again(data: Path, run: str) -> None:
    """Else a log of ours differs from the one that Kafka would have written, byte by byte."""
    count = 0
    for path in sorted((data / run).glob("local-before/**/fx-*/*.log")):
        log = path.read_bytes()
        columns = scan_batches(log)[0]
        sparse = columns["record_count"] != columns["last_offset"] - columns["base_offset"] + 1
        for row in np.flatnonzero(~sparse).tolist():
            at, size = int(columns["position"][row]), int(columns["size_bytes"][row])
            stored = log[at : at + size]
            attributes, greatest = int(columns["attributes"][row]), int(columns["max_timestamp"][row])
            origin = AppendOrigin.COORDINATOR if attributes & CONTROL else AppendOrigin.CLIENT
            kind = "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime"
            checks = LeaderChecks(LogConfig(message_timestamp_type=kind))
            batch = produced(stored)
            if attributes & LOG_APPEND_TIME:  # the producer's own timestamp type, with any greatest timestamp
                batch[21:23] = (attributes & ~LOG_APPEND_TIME).to_bytes(2, "big")
                batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
            assigned = checks.assign(
                batch,
                first_offset=int(columns["base_offset"][row]),
                leader_epoch=int(columns["leader_epoch"][row]),
                now_ms=greatest,
                origin=origin,
            )
            assert assigned is not None
            assert bytes(batch) == stored, (path, at)
            for name in ("base_offset", "last_offset", "max_timestamp", "producer_id", "base_sequence", "attributes"):
                assert getattr(assigned, name) == columns[name][row]
            count += 1
    assert count > 50


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
def test_a_follower_takes_what_brokers_stored(data: Path, run: str) -> None:
    """Else a replica cannot follow a Kafka leader, or writes something else."""
    count = 0
    for path in sorted((data / run).glob("local-before/**/*.log")):
        log = path.read_bytes()
        expected, end, _, _ = scan_batches(log)
        columns, size = check_sent_batches(log, next_offset=int(path.stem), leader_epoch=10**6)
        assert size == end == len(log)
        assert all((columns[name] == expected[name]).all() for name in expected)
        count += len(expected["position"])
    assert count > 50


def test_a_follower_takes_the_old_formats_and_compacted_logs(data: Path) -> None:
    """Else a replica stops at the first segment that an old broker, or the cleaner, wrote."""
    for path in [*(data / "record-v0-v1").glob("*.log"), *(data / "compacted").rglob("*.log")]:
        log = bytearray(path.read_bytes())
        columns, *_ = scan_batches(log)
        for position in columns["position"][columns["magic"] == 2].tolist():
            log[position + 12 : position + 16] = bytes(4)  # a builder's have no epoch
        assert check_sent_batches(log, next_offset=0, leader_epoch=10**6)[1] == len(log), path


@pytest.mark.parametrize(
    ("name", "error"),
    [("wrong crc", "CORRUPT_MESSAGE"), ("below its end", "UNKNOWN_SERVER_ERROR"), ("twice", "UNKNOWN_SERVER_ERROR")],
)
def test_what_a_follower_refuses(name: str, error: str) -> None:
    """Else a replica holds what its leader does not, or an offset twice."""
    one = bytes.fromhex(VECTORS["v2.none"])
    data = one[:-1] + b"\1" if name == "wrong crc" else one + one if name == "twice" else one
    with pytest.raises(AppendRefusedError) as caught:
        check_sent_batches(data, next_offset=101 if name == "below its end" else 0, leader_epoch=9)
    assert caught.value.error is KafkaError[error]
    assert isinstance(caught.value.__cause__, CorruptRecordError)


def test_refusals_have_kafkas_names_and_words_of_ours() -> None:
    """Else a client is told nothing that it can act on."""
    batch = produced(bytes.fromhex(VECTORS["v2.none"]))
    for config, error, word in [
        (LogConfig(max_message_bytes=89), KafkaError.MESSAGE_TOO_LARGE, "90 bytes"),
        (LogConfig(cleanup_policy=frozenset(("compact",))), KafkaError.INVALID_RECORD, "records: 1"),
        (LogConfig(message_timestamp_after_max_ms=4), KafkaError.INVALID_TIMESTAMP, "timestamp"),
    ]:
        before = bytes(batch)
        with pytest.raises(AppendRefusedError, match=word) as caught:
            assign(batch, config, now_ms=1_700_000_000_000)
        assert caught.value.error is error
        assert bytes(batch) == before
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.error, again.record_errors) == (error, caught.value.record_errors)
    assert [e.batch_index for e in caught.value.record_errors] == [1]
    assert caught.value.record_errors[0].message == (
        "Timestamp 1700000000005 is out of range [-9223370336854775807, 1700000000004]"
    )


def test_a_topic_with_a_codec_of_its_own() -> None:
    """Else ``compression.type`` changes nothing, or batches that have the codec already are compressed again."""
    stored = bytes.fromhex(VECTORS["v2.zstd"])
    for codec, must_rebuild in [("producer", False), ("zstd", False), ("gzip", True), ("uncompressed", True)]:
        assigned = assign(produced(stored), LogConfig(compression_type=codec))
        assert assigned.must_rebuild == must_rebuild  # type: ignore[attr-defined]


def test_a_follower_is_told_which_batch() -> None:
    """Else the fault of a whole fetch has to be searched for by hand."""
    one, second = bytes.fromhex(VECTORS["v2.none"]), bytearray(bytes.fromhex(VECTORS["v2.none"]))
    second[7] += 2
    second[-1] ^= 1
    with pytest.raises(AppendRefusedError, match="@ 90: the batch does not match"):
        check_sent_batches(one + second, next_offset=100, leader_epoch=9)


def test_no_whole_batch_is_nothing_to_append() -> None:
    """Else a request that was cut off is refused, where Kafka takes what is whole."""
    batch = produced(bytes.fromhex(VECTORS["v2.none"]))
    assert assign(batch[:89]) is None
    assert assign(bytearray()) is None


def test_what_may_not_be_written_is_an_error() -> None:
    """Else a caller's mistake becomes a wrong log."""
    batch = produced(bytes.fromhex(VECTORS["v2.none"]))
    with pytest.raises((BufferError, ValueError)):
        assign(bytes(batch))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="argument"):
        assign(batch, first_offset=-1)
    with pytest.raises(ValueError, match="negative"):
        LeaderCheck(decompressed_limit=-1)


def test_a_batch_that_decompresses_without_end_is_refused() -> None:
    """Else a few bytes of a client's take the leader's memory."""
    builder = RecordBatchBuilder(0, codec="zstd")
    builder.append(b"k", bytes(50 << 20), timestamp_ms=NOW)
    batch = bytearray(builder.build())
    assert len(batch) < 10_000
    with pytest.raises(AppendRefusedError) as caught:
        assign(batch, LogConfig(max_decompressed_message_bytes=1 << 20))
    assert caught.value.error is KafkaError.MESSAGE_TOO_LARGE
    assert assign(batch) is not None


def test_markers_of_a_coordinator() -> None:
    """Else a transaction ends otherwise than its coordinator said."""
    assert find_marker(bytes.fromhex(VECTORS["endtxn.commit"])) == (True, 7, 1_700_000_001_000)
    assert find_marker(bytes.fromhex(VECTORS["endtxn.abort"])) == (False, 7, 1_700_000_001_000)
    assert find_marker(bytes.fromhex(VECTORS["leaderchange"])) is None
    assert find_marker(bytes.fromhex(VECTORS["v2.emptyheader"])) is None
    with pytest.raises(CorruptRecordError):
        find_marker(bytes.fromhex(VECTORS["endtxn.abort"])[:-1])


# ---- the rules by hand

records = st.lists(
    st.tuples(
        st.none() | st.just(b"k"),
        st.sampled_from([NOW - 11, NOW - 10, NOW, NOW + 5, NOW + 6, -1, 0, 2**63 - 1, -(2**63)]),
    ),
    min_size=1,
    max_size=6,
)


class Rules(NamedTuple):
    compacted: bool
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int


def rules_broken(batch: list[tuple[bytes | None, int]], rules: Rules, append_time: int | None) -> list[str]:
    """LogValidator#validateRecord, record by record; "" where nothing is wrong."""
    broken = []
    for key, own in batch:
        timestamp = own if append_time is None else append_time
        behind = (NOW - timestamp + 2**63) % 2**64 - 2**63  # as Java subtracts
        ahead = (-behind + 2**63) % 2**64 - 2**63
        if rules.compacted and key is None:
            broken.append("no_key")
        elif not rules.log_append_time and timestamp != -1:
            late = behind > rules.timestamp_before_max_ms or ahead > rules.timestamp_after_max_ms
            broken.append("timestamp" if late else "")
        else:
            broken.append("append_time_set" if append_time is not None else "")
    return broken


@given(
    records,
    st.builds(
        Rules,
        compacted=st.booleans(),
        log_append_time=st.booleans(),
        timestamp_before_max_ms=st.sampled_from([10, 2**63 - 1]),
        timestamp_after_max_ms=st.sampled_from([5, 2**63 - 1]),
    ),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.none() | st.sampled_from([NOW, NOW + 6, -1]),
)
def test_every_rule_by_hand(
    batch: list[tuple[bytes | None, int]], rules: Rules, codec: str, append_time: int | None
) -> None:
    """Else a record is refused, or taken, that a broker would not: whatever its codec."""
    builder = RecordBatchBuilder(0, codec=codec, log_append_time_ms=append_time)
    base = batch[0][1]
    for key, timestamp in batch:
        if not -(2**62) < timestamp - base < 2**62:
            timestamp = base
        builder.append(key, b"v", timestamp_ms=timestamp)
    kept = [(key, timestamp if -(2**62) < timestamp - base < 2**62 else base) for key, timestamp in batch]
    data = bytearray(builder.build())
    before = bytes(data)
    broken = rules_broken(kept, rules, append_time)
    expected = [(i, rule) for i, rule in enumerate(broken) if rule]
    answer = LeaderCheck(**rules._asdict()).assign(data, first_offset=1000, leader_epoch=3, now_ms=NOW)
    if expected:
        assert [entry[:2] for entry in answer.record_errors] == expected
        assert answer.record_error_count == len(expected)
        assert answer.error_code == (87 if {rule for _, rule in expected} == {"no_key"} else 32)
        assert bytes(data) == before
        return
    seen = [append_time] if append_time is not None else [timestamp for _, timestamp in kept]
    greatest = NOW if rules.log_append_time else max([-1, *seen])
    assert (answer.base_offset, answer.last_offset) == (1000, 999 + len(batch))
    assert answer.max_timestamp == greatest
    assert struct.unpack_from(">qiib", data) == (1000, len(data) - 12, 3, 2)
    columns = scan_batches(bytes(data))[0]
    assert columns["crc_ok"].all()
    assert columns["max_timestamp"][0] == greatest
    assert bool(columns["attributes"][0] & LOG_APPEND_TIME) == rules.log_append_time
    assert columns["attributes"][0] & ~LOG_APPEND_TIME == before[22] & ~LOG_APPEND_TIME
    assert data[61:] == before[61:]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-1, 4)), max_size=8), st.integers(0, 400))
def test_every_rule_of_a_follower_by_hand(batches: list[tuple[int, int, int]], cut: int) -> None:
    """Else a replica stores batches of a leader that it does not know, or in another order."""
    data, offset, whole, expected, passing, refused, unknown = b"", 10, [], [], False, False, False
    for skipped, back, epoch in batches:
        first = offset + skipped - (back if back == 5 else 0)
        builder = RecordBatchBuilder(max(first, 0), leader_epoch=epoch)
        builder.append(None, b"value", timestamp_ms=NOW)
        builder.append(b"k", b"", timestamp_ms=NOW)
        whole.append((len(data), max(first, 0), epoch, builder.build()))
        data += whole[-1][3]
        offset = max(first, 0) + 2
    data = data[: max(len(data) - cut, 0)]
    end = -1
    for position, first, epoch, batch in whole:
        if position + len(batch) > len(data):
            break
        passing = passing or epoch > 2
        if passing:
            continue
        refused = refused or first <= end
        if refused:
            break
        expected.append(first)
        end = first + 1
        unknown = unknown or epoch < 0
    columns, size, refusal = check_follower_batches(data, next_offset=9, leader_epoch=2)
    assert columns["base_offset"].tolist() == expected
    refused = refused or unknown or (bool(expected) and expected[0] < 9)
    assert (refusal is not None) == refused
    if not refused:
        assert size == columns["size_bytes"].sum()
