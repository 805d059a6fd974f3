"""What a log refuses, by Kafka's names; a refusal leaves no trace: no offset, no file, no state."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.records.vectors import VECTORS
from tests.support.living_logs import NOW_MS, batch_of, contents_of, machine_of, opened, served
from tierlog._native.checksums import crc32c
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.runtime.machine import Machine

ATTRIBUTES_AT, MAGIC_AT = 21, 16
CONFIG = LogConfig(max_message_bytes=5_000, segment_bytes=8_000, max_decompressed_message_bytes=1 << 20)


@pytest.fixture
def machine() -> Machine:
    return machine_of()


@pytest.fixture
def log(machine: Machine) -> UnifiedLog:
    """A log with an idempotent producer (1, epoch 2, sequences to 6) and an open transaction (producer 5)."""
    log = opened(machine, config=CONFIG)
    log.append_as_leader(batch_of(b"a", b"b"), leader_epoch=3)
    for sequence in range(0, 6, 2):
        log.append_as_leader(
            batch_of(b"c", b"d", producer_id=1, producer_epoch=2, base_sequence=sequence), leader_epoch=3
        )
    log.append_as_leader(
        batch_of(b"e", producer_id=5, producer_epoch=0, base_sequence=0, transactional=1), leader_epoch=4
    )
    return log


def summed(data: bytearray) -> bytearray:
    """With a right checksum."""
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return data


def patched(data: bytearray, at: int, form: str, value: int, *, right: bool = True) -> bytearray:
    struct.pack_into(form, data, at, value)
    return summed(data) if right else data


def everything(machine: Machine, log: UnifiedLog) -> tuple[Any, ...]:
    producers = log._contents.producers
    known = {i: (p.producer_epoch, list(p.batches), p.current_txn_first_offset) for i, p in producers.producers.items()}
    return log.offsets, contents_of(machine), known, list(log.leader_epoch_cache.epochs), log.log_segments()


OF_PRODUCERS = (
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
)
IDEMPOTENT = {"producer_id": 1, "producer_epoch": 2}
#: Name → (Kafka's error, a batch of a client).
CLIENT: dict[str, tuple[str, Callable[[], bytearray]]] = {
    "above max.message.bytes": ("MESSAGE_TOO_LARGE", lambda: batch_of(bytes(5_000))),
    "wrong crc": ("CORRUPT_MESSAGE", lambda: patched(batch_of(b"x"), 17, ">I", 1, right=False)),
    "size below the header": ("CORRUPT_MESSAGE", lambda: patched(batch_of(b"x"), 8, ">i", 48, right=False)),
    "magic 3": ("CORRUPT_MESSAGE", lambda: patched(batch_of(b"x"), MAGIC_AT, ">b", 3)),
    "magic -1": ("CORRUPT_MESSAGE", lambda: patched(batch_of(b"x"), MAGIC_AT, ">b", -1)),
    "magic 1": ("INVALID_RECORD", lambda: bytearray.fromhex(VECTORS["v1.none"])),
    "codec 5": ("UNKNOWN_SERVER_ERROR", lambda: patched(batch_of(b"x"), ATTRIBUTES_AT, ">h", 5)),
    "two batches": ("INVALID_RECORD", lambda: batch_of(b"x") + batch_of(b"y")),
    "a base offset": ("INVALID_RECORD", lambda: patched(batch_of(b"x"), 0, ">q", 7)),
    "a control batch": ("INVALID_RECORD", lambda: patched(batch_of(b"x"), ATTRIBUTES_AT, ">h", 0x20)),
    "too few records": ("INVALID_RECORD", lambda: patched(batch_of(b"x"), 57, ">i", 2)),
    "no records": ("INVALID_RECORD", lambda: patched(batch_of(b"x"), 57, ">i", 0)),
    "a negative last offset": ("INVALID_RECORD", lambda: patched(batch_of(b"x"), 23, ">i", -2)),
    "a negative sequence": (
        "INVALID_RECORD",
        lambda: batch_of(b"x", producer_id=9, producer_epoch=0, base_sequence=-1),
    ),
    "from the future": ("INVALID_TIMESTAMP", lambda: batch_of(b"x", timestamp_ms=NOW_MS + 3_600_001)),
    "marked with the append time": (
        "INVALID_TIMESTAMP",
        lambda: patched(batch_of(b"x", timestamp_ms=-1), ATTRIBUTES_AT, ">h", 0x08),
    ),
    "a gap in the sequence": (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        lambda: batch_of(b"x", base_sequence=7, **IDEMPOTENT),
    ),
    "an old sequence": ("OUT_OF_ORDER_SEQUENCE_NUMBER", lambda: batch_of(b"x", base_sequence=5, **IDEMPOTENT)),
    "a new epoch that goes on": (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        lambda: batch_of(b"x", producer_id=1, producer_epoch=3, base_sequence=6),
    ),
    "a fenced epoch": (
        "INVALID_PRODUCER_EPOCH",
        lambda: batch_of(b"x", producer_id=1, producer_epoch=1, base_sequence=6),
    ),
    "outside of the open transaction": (
        "INVALID_TXN_STATE",
        lambda: batch_of(b"x", producer_id=5, producer_epoch=0, base_sequence=1),
    ),
}


@pytest.mark.parametrize("name", sorted(CLIENT))
def test_a_leader_refuses(log: UnifiedLog, machine: Machine, name: str) -> None:
    """Else a client retries what can never succeed, or the log has half of what it refused."""
    error, make = CLIENT[name]
    data = make()
    sent, before = bytes(data), everything(machine, log)
    with pytest.raises(AppendRefusedError) as caught:
        log.append_as_leader(data, leader_epoch=9)
    assert caught.value.error.name == error
    if caught.value.error not in OF_PRODUCERS:  # their state is asked when the offsets are in the batch
        assert data == sent
    assert everything(machine, log) == before
    log.append_as_leader(batch_of(b"next"), leader_epoch=9)
    assert log.log_end_offset == before[0].log_end_offset + 1


def test_a_leader_refuses_more_than_a_segment(machine: Machine) -> None:
    """RECORD_LIST_TOO_LARGE: no roll makes room for it."""
    log = opened(machine, config=LogConfig(segment_bytes=1_000))
    before = everything(machine, log)
    with pytest.raises(AppendRefusedError) as caught:
        log.append_as_leader(batch_of(bytes(2_000)), leader_epoch=1)
    assert caught.value.error.name == "RECORD_LIST_TOO_LARGE"
    assert everything(machine, log) == before


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("50-bomb-zstd-one-record", "MESSAGE_TOO_LARGE"),
        ("51-bomb-zstd-trailing", "MESSAGE_TOO_LARGE"),
        ("52-bomb-gzip-trailing", "MESSAGE_TOO_LARGE"),
        ("53-zstd-lying-content-size", None),
        ("54-zstd-huge-window", None),
        ("44-gzip-empty-payload", None),
        ("41-lz4-corrupt-middle", "UNKNOWN_SERVER_ERROR"),
        ("45-snappy-count-plus9", "INVALID_RECORD"),
        ("12-varint-overflow", "INVALID_RECORD"),
        ("18-header-count-intmax", "INVALID_RECORD"),
        ("24-offset-deltas-decreasing", "INVALID_RECORD"),
    ],
)
def test_a_leader_refuses_the_bad_logs(log: UnifiedLog, machine: Machine, data: Path, name: str, error: str) -> None:
    """Else one batch of a hostile client takes the broker's memory, or stays in the log where no reader gets past."""
    batch = bytearray((data / "bad" / "log" / f"{name}.log").read_bytes())
    batch[0:8] = bytes(8)
    before = everything(machine, log)
    config = LogConfig(max_message_bytes=10 << 20, max_decompressed_message_bytes=1 << 20)
    log.update_config(config)
    with pytest.raises(AppendRefusedError) as caught:
        log.append_as_leader(batch, leader_epoch=9)
    assert error is None or caught.value.error.name == error
    assert everything(machine, log) == before


def sent(base_offset: int, *, epoch: int = 4, value: bytes = b"f") -> bytearray:
    data = batch_of(value)
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, epoch)
    return data


ABORT = bytes(6)


def control(base_offset: int, key: bytes, value: bytes | None) -> bytearray:
    """A control batch of producer 8, which has a transaction, as a leader of epoch 4 sends it."""
    builder = RecordBatchBuilder(
        base_offset, producer_id=8, producer_epoch=0, transactional=True, control=True, leader_epoch=4
    )
    builder.append(key, value, timestamp_ms=NOW_MS)
    return bytearray(builder.build())


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("below the end", "UNKNOWN_SERVER_ERROR"),
        ("twice", "UNKNOWN_SERVER_ERROR"),
        ("falling", "UNKNOWN_SERVER_ERROR"),
        ("wrong crc behind a good one", "CORRUPT_MESSAGE"),
        ("magic 9", "CORRUPT_MESSAGE"),
        ("codec 7", "UNKNOWN_SERVER_ERROR"),
        ("a negative size", "CORRUPT_MESSAGE"),
        ("outside of the open transaction", "INVALID_TXN_STATE"),
        ("a marker without its key", "INVALID_RECORD"),
        ("a marker of a negative version", "INVALID_RECORD"),
        ("a marker without its value", "UNKNOWN_SERVER_ERROR"),
        ("control records of another kind", "UNKNOWN_SERVER_ERROR"),
        ("a marker that has no record", "INVALID_RECORD"),
        ("no epoch behind one with", "UNKNOWN_SERVER_ERROR"),
        ("behind the greatest offset", "UNKNOWN_SERVER_ERROR"),
        ("more offsets than a segment has", "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_follower_refuses(log: UnifiedLog, machine: Machine, name: str, error: str) -> None:
    """Else a replica differs from its leader, and nobody can tell which of the two is right."""
    end = log.log_end_offset
    good = sent(end)
    outside = batch_of(b"x", producer_id=5, producer_epoch=0, base_sequence=1)
    struct.pack_into(">q", outside, 0, end)
    struct.pack_into(">i", outside, 12, 4)
    data = {
        "below the end": sent(end - 1),
        "twice": good + good,
        "falling": sent(end + 5) + good,
        "wrong crc behind a good one": good + patched(sent(end + 1), 17, ">I", 1, right=False),
        "magic 9": patched(sent(end), MAGIC_AT, ">b", 9),
        "codec 7": patched(sent(end), ATTRIBUTES_AT, ">h", 7),
        "a negative size": patched(sent(end), 8, ">i", -1, right=False),
        "outside of the open transaction": outside,
        "a marker without its key": control(end, b"\0", ABORT),
        "a marker of a negative version": control(end, b"\0\0\0\0", b"\xff\xff" + ABORT[2:]),
        "a marker without its value": control(end, b"\0\0\0\0", None),
        "control records of another kind": control(end, b"\0\0\0\2", ABORT),
        "a marker that has no record": patched(control(end, b"\0\0\0\0", ABORT), 57, ">i", -1),
        "no epoch behind one with": good + sent(end + 1, epoch=-1),
        "behind the greatest offset": sent(2**63 - 1),
        "more offsets than a segment has": good + sent(end + 2**31, epoch=4),
    }[name]
    before = everything(machine, log)
    with pytest.raises(AppendRefusedError) as caught:
        log.append_as_follower(data, leader_epoch=4)
    assert caught.value.error.name == error
    assert everything(machine, log) == before
    log.append_as_follower(good, leader_epoch=4)
    assert served(log).endswith(good)


def test_a_follower_takes_more_than_a_segment(machine: Machine) -> None:
    """A leader's segment of before ``segment.bytes`` was lowered, which it is sent at once: it would stand still."""
    log = opened(machine, config=LogConfig(segment_bytes=200))
    data = sent(0) + sent(1, value=bytes(1_000)) + sent(2)
    log.append_as_follower(data, leader_epoch=4)
    log.append_as_follower(sent(3), leader_epoch=4)
    assert [segment.base_offset for segment in log.log_segments()] == [0, 3]
    assert served(log) == data + sent(3)


@pytest.mark.parametrize("end", [2**63 - 1, 2**63 - 2])
def test_a_leader_ends_at_the_greatest_offset(machine: Machine, end: int) -> None:
    """Else the end wraps to a negative offset, and the next start cuts the record or does not come to an end."""
    log = opened(machine)
    log.truncate_fully_and_start_at(end)
    if end < 2**63 - 1:
        log.append_as_leader(batch_of(b"last"), leader_epoch=0)
    before = everything(machine, log)
    for data in (
        batch_of(b"x"),
        batch_of(b"x", b"y"),
        batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0),
    ):
        with pytest.raises(AppendRefusedError, match="UNKNOWN_SERVER_ERROR: the log ends at"):
            log.append_as_leader(data, leader_epoch=0)
    assert everything(machine, log) == before
    log.close()
    again = opened(machine)
    assert again.log_end_offset == before[0].log_end_offset


def test_what_a_caller_cannot_mean_is_told_by_name(log: UnifiedLog, machine: Machine) -> None:
    """Else a bug in a broker ends in an error that nobody expects, in the midst of an append."""
    marker = build_end_transaction_marker(
        0,
        ControlRecordType.ABORT,
        producer_id=5,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS,
    )
    before = everything(machine, log)
    with pytest.raises(AppendRefusedError, match=r"UNKNOWN_SERVER_ERROR.*without its transaction version"):
        log.append_as_leader(bytearray(marker), leader_epoch=4, origin=AppendOrigin.COORDINATOR)
    with pytest.raises(AppendRefusedError, match="UNKNOWN_SERVER_ERROR: leader epoch -1"):
        log.append_as_leader(batch_of(b"x"), leader_epoch=-1)
    with pytest.raises(TypeError, match="data is a buffer that can be written to, not bytes"):
        log.append_as_leader(bytes(batch_of(b"x")), leader_epoch=4)
    with pytest.raises(ValueError, match="epoch"):
        log.assign_epoch_start_offset(-1, log.log_end_offset)
    assert everything(machine, log) == before
    assert not log.is_offline


def test_a_late_epoch_is_left_out_and_no_error() -> None:
    """KAFKA-18723: a follower that has not heard of an epoch must not take its batches for those of the old one."""
    machine = machine_of()
    log = opened(machine)
    info = log.append_as_follower(sent(0, epoch=1) + sent(1, epoch=2) + sent(2, epoch=1), leader_epoch=1)
    assert (info.last_offset, log.log_end_offset) == (0, 1)
    assert list(log.leader_epoch_cache.epochs) == [(1, 0)]


def test_a_broken_marker_is_refused_in_its_turn(log: UnifiedLog, machine: Machine) -> None:
    """A fenced coordinator would take its error for a fatal one, and a replica's log name the wrong batch of many."""
    fenced = control(0, b"\0\0\0\2", ABORT)
    log.append_as_leader(
        batch_of(b"x", producer_id=8, producer_epoch=1, base_sequence=0, transactional=1), leader_epoch=4
    )
    outside, end = sent(log.log_end_offset), log.log_end_offset
    struct.pack_into(">qhi", outside, 43, 5, 0, 1)
    before = everything(machine, log)
    with pytest.raises(AppendRefusedError) as caught:
        log.append_as_leader(fenced, leader_epoch=4, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    assert caught.value.error is KafkaError.INVALID_PRODUCER_EPOCH
    with pytest.raises(AppendRefusedError) as caught:
        log.append_as_follower(summed(outside) + control(end + 1, b"\0\0\0\2", ABORT), leader_epoch=4)
    assert caught.value.error is KafkaError.INVALID_TXN_STATE
    assert everything(machine, log) == before


def test_nothing_is_appended_below_the_active_segment(log: UnifiedLog, machine: Machine) -> None:
    """A roll to where a follower was told that its leader goes on, and then this replica leads: an error that is
    documented, with nothing changed, and not one of a damaged disk.
    """
    end = log.log_end_offset
    log.roll(end + 5)
    before = everything(machine, log)
    for append in (
        lambda: log.append_as_leader(batch_of(b"x"), leader_epoch=9),
        lambda: log.append_as_leader(batch_of(b"x", base_sequence=6, **IDEMPOTENT), leader_epoch=9),
        lambda: log.append_as_follower(sent(end + 1), leader_epoch=4),
    ):
        with pytest.raises(AppendRefusedError, match=r"UNKNOWN_SERVER_ERROR: .* the active segment begins at"):
            append()
    assert everything(machine, log) == before
    log.append_as_follower(sent(end + 5), leader_epoch=4)
    assert log.log_end_offset == end + 6
