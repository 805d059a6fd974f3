"""Malformed logs: what we make of each, oracle and native alike, beside what Kafka 4.3's own classes make of it.

Where Kafka refuses, we refuse. Where we are stricter, ``STRICTER`` says why.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.records.differential import decode_native, fault_of, rows_of
from tests.support import oracle as reference

BAD = pathlib.Path(__file__).resolve().parents[1] / "data" / "bad"
#: Above all good batches of this data, so that a bomb costs a test little.
LIMIT = 16 << 20

#: File -> (records in front of the fault, fault, position, record); a file that is good has no fault.
EXPECTED: dict[str, tuple[int, str | None, int, int]] = {
    "00-good-control": (121, None, -1, -1),
    "01-truncated-tail": (116, "TRUNCATED", 32605, -1),
    "02-truncated-header-7": (121, "TRUNCATED", 34035, -1),
    "03-truncated-header-30": (121, "TRUNCATED", 34035, -1),
    "04-flipped-byte": (56, "BAD_CRC", 16230, -1),
    "05-flipped-crc": (41, "BAD_CRC", 11757, -1),
    "06-batch-length-13": (56, "BAD_SIZE", 16230, -1),
    "06-batch-length-48": (56, "BAD_SIZE", 16230, -1),
    "06-batch-length-intmax": (56, "OVER_LIMIT", 16230, -1),
    "06-batch-length-intmin": (56, "BAD_SIZE", 16230, -1),
    "06-batch-length-minus1": (56, "BAD_SIZE", 16230, -1),
    "06-batch-length-zero": (56, "BAD_SIZE", 16230, -1),
    "07-magic-127": (56, "BAD_MAGIC", 16230, -1),
    "07-magic-255": (56, "BAD_MAGIC", 16230, -1),
    "07-magic-3": (56, "BAD_MAGIC", 16230, -1),
    "08-count-too-high": (0, "BAD_COUNT", 0, -1),
    "09-count-too-low": (2, "TRAILING_BYTES", 0, -1),
    "10-count-negative": (0, "BAD_COUNT", 0, -1),
    "11-count-intmax": (0, "BAD_COUNT", 0, -1),
    "12-varint-overflow": (0, "BAD_VARINT", 0, 0),
    "13-varlong-overflow-timestamp": (0, "BAD_VARINT", 0, 0),
    "14-record-length-beyond-batch": (0, "BAD_RECORD_LENGTH", 0, 0),
    "15-record-length-negative": (0, "BAD_RECORD_LENGTH", 0, 0),
    "16-record-length-short": (0, "BAD_FIELD_LENGTH", 0, 0),
    "17-key-length-minus2": (0, "BAD_FIELD_LENGTH", 0, 0),
    "18-header-count-intmax": (0, "BAD_HEADER_COUNT", 0, 0),
    "19-header-count-negative": (0, "BAD_HEADER_COUNT", 0, 0),
    "20-header-key-null": (0, "BAD_FIELD_LENGTH", 0, 0),
    "21-value-length-intmax": (0, "BAD_FIELD_LENGTH", 0, 0),
    "22-last-offset-delta-negative": (0, "BAD_OFFSET", 0, -1),
    "23-last-offset-delta-small": (1, "BAD_OFFSET", 0, 1),
    "24-offset-deltas-decreasing": (1, "BAD_OFFSET", 0, 1),
    "25-batches-out-of-order": (60, "BAD_OFFSET", 16375, -1),
    "26-base-offset-negative": (0, "BAD_OFFSET", 0, -1),
    "27-codec-5": (0, "BAD_CODEC", 0, -1),
    "27-codec-6": (0, "BAD_CODEC", 0, -1),
    "27-codec-7": (0, "BAD_CODEC", 0, -1),
    "28-garbage-zeros": (121, "BAD_SIZE", 34035, -1),
    "29-garbage-random": (0, "BAD_SIZE", 0, -1),
    "30-empty": (0, None, -1, -1),
    "31-control-key-short": (0, "BAD_CONTROL", 0, 0),
    "32-control-type-unknown": (1, None, -1, -1),
    "40-gzip-good-control": (53, None, -1, -1),
    "40-lz4-good-control": (49, None, -1, -1),
    "40-snappy-good-control": (49, None, -1, -1),
    "40-zstd-good-control": (57, None, -1, -1),
    "41-gzip-corrupt-middle": (0, "BAD_COMPRESSED", 0, -1),
    "41-lz4-corrupt-middle": (0, "BAD_COMPRESSED", 0, -1),
    "41-snappy-corrupt-middle": (0, "BAD_COMPRESSED", 0, -1),
    "41-zstd-corrupt-middle": (53, "BAD_RECORD_LENGTH", 0, 53),
    "42-gzip-corrupt-magic": (0, "BAD_COMPRESSED", 0, -1),
    "42-lz4-corrupt-magic": (0, "BAD_COMPRESSED", 0, -1),
    "42-snappy-corrupt-magic": (0, "BAD_COMPRESSED", 0, -1),
    "42-zstd-corrupt-magic": (0, "BAD_COMPRESSED", 0, -1),
    "43-gzip-truncated-payload": (0, "BAD_COMPRESSED", 0, -1),
    "43-lz4-truncated-payload": (0, "BAD_COMPRESSED", 0, -1),
    "43-snappy-truncated-payload": (0, "BAD_COMPRESSED", 0, -1),
    "43-zstd-truncated-payload": (0, "BAD_COMPRESSED", 0, -1),
    "44-gzip-empty-payload": (0, "BAD_COMPRESSED", 0, -1),
    "44-lz4-empty-payload": (0, "BAD_COMPRESSED", 0, -1),
    "44-snappy-empty-payload": (0, "BAD_COMPRESSED", 0, -1),
    "44-zstd-empty-payload": (0, "BAD_COUNT", 0, 0),
    "45-gzip-count-plus9": (53, "BAD_COUNT", 0, 53),
    "45-lz4-count-plus9": (49, "BAD_COUNT", 0, 49),
    "45-snappy-count-plus9": (49, "BAD_COUNT", 0, 49),
    "45-zstd-count-plus9": (57, "BAD_COUNT", 0, 57),
    "50-bomb-zstd-one-record": (0, "OVER_LIMIT", 0, -1),
    "51-bomb-zstd-trailing": (0, "OVER_LIMIT", 0, -1),
    "52-bomb-gzip-trailing": (0, "OVER_LIMIT", 0, -1),
    "53-zstd-lying-content-size": (0, "BAD_COMPRESSED", 0, -1),
    "54-zstd-huge-window": (0, "BAD_COMPRESSED", 0, -1),
}

#: What we refuse and Kafka's FileRecords does not: the reason.
STRICTER = {
    "01-truncated-tail": "a closed segment has no torn tail; `allow_partial` takes it, for the active one",
    "02-truncated-header-7": "as 01",
    "03-truncated-header-30": "as 01",
    "06-batch-length-intmax": "Kafka silently ends there, and would lose every batch behind it",
    "07-magic-3": "Kafka reads an unknown future format as if it were magic 2",
    "07-magic-127": "as 07-magic-3",
    "22-last-offset-delta-negative": "offsets outside the range that the header declares: a lookup would miss them",
    "23-last-offset-delta-small": "as 22",
    "24-offset-deltas-decreasing": "offsets rise in a log; a reader that resumes at an offset would lose records",
    "25-batches-out-of-order": "as 24",
    "26-base-offset-negative": "no offset is below 0; -1 stands for none everywhere else",
    "31-control-key-short": "Kafka checks it as soon as the marker is used; here only if control records are asked for",
}

OPTIONS = reference.DecodeOptions(decompressed_limit=LIMIT, control_records=True)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_fault_is_named_where_it_is(name: str) -> None:
    """Otherwise an operator looks for damage in the wrong place, or is not told of it at all."""
    data = (BAD / "log" / f"{name}.log").read_bytes()
    count, fault, position, record = EXPECTED[name]
    records, error = reference.decode(data, OPTIONS)
    named = (error.fault, error.position, error.record) if error else (None, -1, -1)
    assert (len(records), *named) == (count, fault, position, record)
    batches, native_error = decode_native([data], OPTIONS)
    assert fault_of(native_error) == fault_of(error)
    assert rows_of(batches) == records


def test_all_bad_logs_are_in_the_table() -> None:
    """A new fault in the golden data that no test looks at would be found by a user."""
    assert {path.stem for path in (BAD / "log").glob("*.log")} == set(EXPECTED)


def test_nothing_passes_that_kafka_refuses() -> None:
    """A reader that is laxer than the broker shows records that the broker would not have served."""
    verdicts = json.loads((BAD / "kafka-verdict.json").read_text())
    refused = {name for name in EXPECTED if not kafka_accepts(verdicts[f"{name}.log"])}
    ours = {name for name, (_, fault, _, _) in EXPECTED.items() if fault is not None}
    assert refused - ours == set()
    assert ours - refused == set(STRICTER)


def kafka_accepts(verdict: dict[str, object]) -> bool:
    batches: list[dict[str, object]] = verdict["batches"]  # type: ignore[assignment]
    return verdict["file"] == "ok" and all(b["ensureValid"] == "ok" and b["iterate"] == "ok" for b in batches)


@pytest.mark.parametrize("name", ["01-truncated-tail", "02-truncated-header-7", "03-truncated-header-30"])
def test_a_torn_tail_is_fine_in_the_active_segment(name: str) -> None:
    """A broker writes while we read: the log of a live partition must be readable up to its last whole batch."""
    data = (BAD / "log" / f"{name}.log").read_bytes()
    options = reference.DecodeOptions(allow_partial=True)
    records, error = reference.decode(data, options)
    assert (len(records), error) == (EXPECTED[name][0], None)
    batches, native_error = decode_native([data], options)
    assert native_error is None
    assert rows_of(batches) == records
