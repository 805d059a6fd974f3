"""Batch headers as columns, against what Kafka's own classes and its dump tool say of the same files."""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import threading

import numpy as np
import pytest

from tests.records.vectors import vector
from tierlog.errors import CorruptRecordError
from tierlog.records import CODEC_NAMES, BatchTable, scan
from tierlog.records.builder import RecordBatchBuilder

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
DUMPS = sorted(DATA.glob("*/expected-dump/**/fx-*.dump.txt.gz"))

DUMP_LINE = re.compile(
    r"baseOffset: (\S+) lastOffset: (\S+) count: (\S+) baseSequence: (\S+) lastSequence: (\S+) producerId: (\S+) "
    r"producerEpoch: (\S+) partitionLeaderEpoch: (\S+) isTransactional: (\S+) isControl: (\S+) "
    r"deleteHorizonMs: OptionalLong(?:\.empty|\[(\d+)\]) position: (\S+) (\S+): (\S+) size: (\S+) magic: (\S+) "
    r"compresscodec: (\S+) crc: (\S+) isvalid: (\S+)"
)


def dump_lines(table: BatchTable) -> list[str]:
    """The lines that kafka-dump-log would print."""
    columns = zip(
        table.base_offset.tolist(),
        table.last_offset.tolist(),
        table.record_count.tolist(),
        table.base_sequence.tolist(),
        table.last_sequence.tolist(),
        table.producer_id.tolist(),
        table.producer_epoch.tolist(),
        table.leader_epoch.tolist(),
        table.is_transactional.tolist(),
        table.is_control.tolist(),
        table.delete_horizon_ms.tolist(),
        table.position.tolist(),
        table.timestamp_type.tolist(),
        table.max_timestamp.tolist(),
        table.size_bytes.tolist(),
        table.magic.tolist(),
        table.codec.tolist(),
        table.crc.tolist(),
        table.crc_ok.tolist(),
        strict=True,
    )
    return [
        f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: {sequence} lastSequence: {last_sequence} "
        f"producerId: {producer} producerEpoch: {producer_epoch} partitionLeaderEpoch: {epoch} "
        f"isTransactional: {str(transactional).lower()} isControl: {str(control).lower()} "
        f"deleteHorizonMs: OptionalLong{'.empty' if horizon < 0 else f'[{horizon}]'} position: {position} "
        f"{TYPES[kind]}: {timestamp} size: {size} magic: {magic} compresscodec: {CODEC_NAMES[codec]} crc: {crc} "
        f"isvalid: {str(ok).lower()}"
        for (
            base, last, count, sequence, last_sequence, producer, producer_epoch, epoch, transactional, control,
            horizon, position, kind, timestamp, size, magic, codec, crc, ok,
        ) in columns
    ]  # fmt: skip


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_columns_are_what_the_dump_tool_prints(dump: pathlib.Path) -> None:
    """Every plan, every verification and the table `batches` are made of these columns."""
    with gzip.open(dump, "rt") as lines:
        printed = [line.rstrip("\n") for line in lines if DUMP_LINE.match(line)]
    folder = dump.name.removesuffix(".dump.txt.gz")
    (directory,) = (path for path in dump.parents[2].rglob(folder) if path.is_dir() and "local-before" in path.parts)
    ours = [line for path in sorted(directory.glob("*.log")) for line in dump_lines(scan(path.read_bytes()))]
    assert ours == printed


@pytest.mark.parametrize("path", sorted((DATA / "record-v0-v1").glob("*.log")), ids=lambda path: path.stem)
def test_old_formats(path: pathlib.Path) -> None:
    """Segments of old topics are planned by the same columns."""
    told = [json.loads(line) for line in path.with_suffix(".batches.jsonl").read_text().splitlines()]
    table = scan(path.read_bytes())
    ours = zip(
        table.last_offset.tolist(),
        table.magic.tolist(),
        table.position.tolist(),
        table.size_bytes.tolist(),
        [CODEC_NAMES[codec] for codec in table.codec.tolist()],
        [TYPES[kind] for kind in table.timestamp_type.tolist()],
        table.max_timestamp.tolist(),
        table.crc.tolist(),
        table.crc_ok.tolist(),
        strict=True,
    )
    fields = ("lastOffset", "magic", "position", "sizeInBytes", "codec", "timestampType", "maxTimestamp", "checksum")
    assert list(ours) == [(*(row[name] for name in fields), row["valid"]) for row in told]


def test_shapes_and_types() -> None:
    """Callers do arithmetic on the columns: a silent int8 would overflow."""
    table = scan(vector("v2.none") + vector("v2.deletehorizon")[:30], base_position=1 << 40)
    assert len(table) == 1
    assert (table.end_position, table.partial, table.fault) == ((1 << 40) + 90, True, None)
    assert table.end_positions.tolist() == [table.end_position]
    assert table.position.dtype == table.end_positions.dtype == np.int64
    assert table.codec.dtype == table.timestamp_type.dtype == np.int8
    assert table.is_control.dtype == table.is_transactional.dtype == table.crc_ok.dtype == np.bool_
    assert table.delete_horizon_ms.dtype == np.int64
    assert table.last_sequence.dtype == np.int32


def test_nothing_is_a_table_too() -> None:
    """The active segment of a quiet partition is an empty file."""
    table = scan(b"")
    assert (len(table), table.end_position, table.partial, table.fault) == (0, 0, False, None)
    assert table.codec.tolist() == table.last_sequence.tolist() == []


def test_sequences_wrap() -> None:
    """A producer that wrote 2^31 records goes on at 0."""
    builder = RecordBatchBuilder(0, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    for _ in range(4):
        builder.append(None, None)
    table = scan(builder.build() + vector("v2.none"))
    assert table.last_sequence.tolist() == [1, -1]


def test_bits_that_mean_nothing_in_old_formats() -> None:
    """Magic 0 and 1 have no transactions, whatever stands in their attributes."""
    data = bytearray(vector("v1.none"))
    data[17] |= 0x70
    table = scan(data)
    assert not table.is_transactional.any()
    assert not table.is_control.any()
    assert table.delete_horizon_ms.tolist() == [-1, -1]
    assert table.crc_ok.tolist() == [False, True]
    assert scan(data, verify_crc=False).crc_ok.all()


def test_a_fault_is_raised_or_handed_over() -> None:
    """One caller wants an exception, another the batches in front of the fault and a report."""
    data = vector("v2.none") + bytes(100)
    with pytest.raises(CorruptRecordError) as caught:
        scan(data, base_position=1000)
    assert (caught.value.fault, caught.value.position) == ("BAD_SIZE", 1090)
    table = scan(data, base_position=1000, on_fault="return")
    assert len(table) == 1
    assert table.fault is not None
    assert str(table.fault) == str(caught.value)
    assert table.end_position == 1090
    with pytest.raises(ValueError, match="on_fault"):
        scan(data, on_fault="ignore")  # type: ignore[arg-type]


def test_any_buffer_will_do() -> None:
    """Windows of a segment come as memory views, maps and arrays; none is copied."""
    data = vector("v2.none")
    for buffer in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert scan(buffer).crc_ok.tolist() == [True]
    with pytest.raises(BufferError):
        scan(memoryview(data)[::2])


def test_threads_do_not_disturb_each_other() -> None:
    """Ranges are scanned side by side, without the interpreter's lock."""
    data = vector("v2.none") * 2000
    tables: list[BatchTable] = []
    threads = [threading.Thread(target=lambda: tables.append(scan(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(table.crc_ok.sum()) for table in tables] == [2000] * 4
