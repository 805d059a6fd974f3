"""Index entries against the log: both of Kafka's styles pass, one wrong number is named."""

from __future__ import annotations

import pathlib
import struct

import pytest

from tests.support.batches import Batch, encode
from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.checks.index_checks import OffsetIndexCheck, TimeIndexCheck
from tierlog.log.checks.segment_walk import SegmentCheck
from tierlog.upkeep.verification.log_walk import LogWalk

BATCHES = [Batch(offset, (b"v" * 30,) * 3, timestamp_ms=1000 + offset * 10) for offset in range(100, 160, 3)]
ENCODED = [encode(batch) for batch in BATCHES]
LOG = b"".join(ENCODED)
POSITIONS = [sum(map(len, ENCODED[:at])) for at in range(len(ENCODED))]


def findings(check: SegmentCheck, log: bytes = LOG, window_bytes: int = 333) -> list[Finding]:
    walk = LogWalk([log[at : at + window_bytes] for at in range(0, len(log), window_bytes)], "a.log")
    found = [finding for run in walk for finding in check.observe(run)]
    return found + list(check.finish(walk))


def offset_index(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", offset - 100, position) for offset, position in entries)


def time_index(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">qi", timestamp, offset - 100) for timestamp, offset in entries)


def offset_findings(entries: list[tuple[int, int]], **how: int) -> list[Finding]:
    return findings(OffsetIndexCheck(offset_index(entries), 100, "a.index"), **how)


def time_findings(entries: list[tuple[int, int]]) -> list[Finding]:
    return findings(TimeIndexCheck(time_index(entries), 100, "a.timeindex"))


SOUND = [(BATCHES[at].last_offset, POSITIONS[at]) for at in (3, 7, 12)]


@pytest.mark.parametrize("window_bytes", [97, 333, 10_000])
def test_entries_of_all_of_kafkas_styles_pass(window_bytes: int) -> None:
    """Otherwise verify calls the segments of older brokers damaged."""
    assert not offset_findings(SOUND, window_bytes=window_bytes)
    whole_append = [(BATCHES[6].last_offset, POSITIONS[3]), (BATCHES[9].last_offset, POSITIONS[7])]
    assert not offset_findings(whole_append, window_bytes=window_bytes)
    first_offset = [(BATCHES[3].base_offset, POSITIONS[3])]
    assert not offset_findings(first_offset, window_bytes=window_bytes)


@pytest.mark.parametrize(
    ("entries", "kind", "entry"),
    [
        ([(111, POSITIONS[3] + 1), (123, POSITIONS[7])], "INDEX_POSITION", 0),
        ([SOUND[0], (BATCHES[7].last_offset, len(LOG) + 5)], "INDEX_POSITION", 1),
        ([SOUND[0], (BATCHES[7].base_offset + 1, POSITIONS[7])], "INDEX_OFFSET", 1),
        ([(BATCHES[2].last_offset, POSITIONS[3])], "INDEX_OFFSET", 0),
        ([SOUND[0], (10_000, POSITIONS[7])], "INDEX_OFFSET", 1),
        ([(BATCHES[8].last_offset, POSITIONS[3]), (BATCHES[9].last_offset, POSITIONS[7])], "INDEX_OFFSET", 0),
    ],
)
def test_a_wrong_entry_is_named(entries: list[tuple[int, int]], kind: str, entry: int) -> None:
    """Otherwise a fetch that begins at the entry misses records, and verify has blessed it."""
    (finding,) = offset_findings(entries)
    assert (finding.severity, finding.kind, finding.position) == (Severity.FAULT, kind, 8 * entry)
    assert finding.found is not None


def test_an_entry_out_of_order_is_one_fault() -> None:
    """Otherwise the entries behind it are compared with the wrong batches."""
    (finding,) = offset_findings([SOUND[1], SOUND[0], SOUND[2]])
    assert finding.kind == "BAD_ORDER"


def test_an_untrimmed_index_is_a_note() -> None:
    """Otherwise every active segment of a running broker is called damaged."""
    data = offset_index(SOUND) + bytes(800)
    (finding,) = findings(OffsetIndexCheck(data, 100, "a.index"))
    assert (finding.severity, finding.kind, finding.position) == (Severity.NOTE, "PREALLOCATED", 24)


def test_sound_time_entries_pass() -> None:
    """Otherwise verify is of no use on sound data."""
    assert not time_findings([(batch.max_timestamp_ms, batch.last_offset) for batch in BATCHES[::4]])
    inside = [(BATCHES[3].max_timestamp_ms, BATCHES[3].base_offset + 1)]  # brokers before 3.x
    assert not time_findings(inside)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ((BATCHES[3].max_timestamp_ms + 1, BATCHES[3].last_offset), "TIME_INDEX_TIMESTAMP"),
        ((BATCHES[3].max_timestamp_ms, 5000), "TIME_INDEX_OFFSET"),
    ],
)
def test_a_wrong_time_entry_is_named(entry: tuple[int, int], kind: str) -> None:
    """Otherwise a read by time begins too late and silently leaves records out."""
    (finding,) = time_findings([entry])
    assert (finding.severity, finding.kind) == (Severity.FAULT, kind)


def test_a_time_entry_below_an_earlier_batch_is_named() -> None:
    """Otherwise records that are as late as asked for lie before where the search begins."""
    first = encode(Batch(100, (b"v",), timestamp_ms=9000))
    second = encode(Batch(101, (b"v",), timestamp_ms=2000))
    check = TimeIndexCheck(time_index([(2000, 101)]), 100, "a.timeindex")
    (finding,) = findings(check, first + second)
    assert (finding.kind, finding.expected, finding.found) == ("TIME_INDEX_TIMESTAMP", 9000, 2000)


def test_what_lies_behind_damage_is_not_judged() -> None:
    """Otherwise one lost batch length makes hundreds of false faults."""
    damaged = LOG[: POSITIONS[5]] + b"\xff" * 17 + LOG[POSITIONS[5] + 17 :]
    check = OffsetIndexCheck(offset_index(SOUND), 100, "a.index")
    assert not findings(check, damaged)


def test_indexes_of_real_brokers_pass(data: pathlib.Path) -> None:
    """Otherwise verify cries wolf."""
    logs = sorted(data.glob("*/local-before/**/*.log"))
    assert len(logs) > 10
    for log in logs:
        base = int(log.stem)
        for check in (
            OffsetIndexCheck(log.with_suffix(".index").read_bytes(), base, str(log)),
            TimeIndexCheck(log.with_suffix(".timeindex").read_bytes(), base, str(log)),
        ):
            wrong = [f for f in findings(check, log.read_bytes(), 1 << 20) if f.severity is Severity.FAULT]
            assert not wrong
