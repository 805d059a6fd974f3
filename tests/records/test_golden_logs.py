"""What real brokers wrote, against what a real consumer read from it: oracle and native, both isolation levels."""

from __future__ import annotations

import base64
import json
import pathlib

import pytest

from tests.records.differential import decode_native, fault_of, rows_of
from tests.records.golden_logs import PartitionLog, partition_logs
from tests.support import oracle as reference
from tests.support.golden import TIMESTAMP_TYPES

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
LEGACY = sorted((DATA / "record-v0-v1").glob("*.log"))


def check_partition(log: PartitionLog, isolation: str, *, with_oracle: bool) -> bool:
    """The consumer's rows come out; False if the run has no answer for this isolation level."""
    expected = log.answers(isolation)
    if expected is None:
        return False
    options = reference.DecodeOptions()
    if isolation == "read_committed":
        options = reference.DecodeOptions(aborted=log.aborted(), to_offset_exclusive=log.last_stable_offset())
    segments = log.segments()
    batches, native_fault = decode_native(segments, options)
    assert native_fault is None, log
    rows = rows_of(batches)
    assert [log.row(row) for row in rows] == expected, log
    if with_oracle:
        assert reference.decode(b"".join(segments), options) == (rows, None), log
    return True


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("log", list(partition_logs(DATA)), ids=str)
def test_a_partition_reads_as_a_consumer_read_it(log: PartitionLog, isolation: str) -> None:
    """Otherwise a user gets other records from the bucket than from the brokers."""
    if not check_partition(log, isolation, with_oracle=True):
        assert log.answers("read_uncommitted"), "every topic has the answer of a plain consumer"


@pytest.mark.slow
def test_every_partition_of_the_full_golden_data(fixtures: pathlib.Path) -> None:
    """All codecs, LogAppendTime, epochs, compaction and open transactions: as above."""
    check_all(fixtures, with_oracle=False)


@pytest.mark.slow
def test_every_partition_of_the_full_golden_data_by_the_oracle(fixtures: pathlib.Path) -> None:
    """The oracle decides what is right: it must be right about everything that brokers wrote."""
    check_all(fixtures, with_oracle=True)


def check_all(root: pathlib.Path, *, with_oracle: bool) -> None:
    logs = list(partition_logs(root))
    assert all(check_partition(log, "read_uncommitted", with_oracle=with_oracle) for log in logs)
    assert sum([check_partition(log, "read_committed", with_oracle=with_oracle) for log in logs]) > 5
    assert len(logs) > 40


@pytest.mark.parametrize("path", LEGACY, ids=lambda path: path.stem)
def test_old_formats_read_as_kafka_reads_them(path: pathlib.Path) -> None:
    """Logs that are older than the cluster come out wrong otherwise: offsets and timestamps hide in wrappers there."""
    data = path.read_bytes()
    records, fault = reference.decode(data)
    assert fault is None
    told = [json.loads(line) for line in path.with_suffix(".records.jsonl").read_text().splitlines()]
    fields = ("offset", "timestamp", "timestampType", "key", "value")
    expected = [tuple(row[name] for name in fields) for row in told]
    assert [legacy_row(record) for record in records] == expected
    batches, native_fault = decode_native([data], reference.DecodeOptions())
    assert fault_of(native_fault) is None
    assert rows_of(batches) == records


def legacy_row(record: reference.Record) -> tuple[int, int, str, str | None, str | None]:
    """As ``*.records.jsonl`` has it."""

    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    kind = TIMESTAMP_TYPES[record.timestamp_type]
    return (record.offset, record.timestamp, kind, text(record.key), text(record.value))
