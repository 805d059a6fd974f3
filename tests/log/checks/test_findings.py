"""Findings: the same facts for people and for programs."""

from __future__ import annotations

import json

from tierlog.errors import CorruptRecordError, ObjectNotFoundError, StoreUnavailableError
from tierlog.log.checks.findings import Severity, fault, fault_of, finding_of, note


def test_numbers_are_said_once() -> None:
    """Otherwise a line repeats itself, and a program has to parse the text."""
    error = CorruptRecordError(
        "checksum differs: computed 0x00000002, stored 0x00000001",
        fault="BAD_CRC", position=12, base_offset=7, expected=1, found=2,
    )  # fmt: skip
    finding = fault_of(error, "a.log")
    assert str(finding) == "a.log @ 12 (offset 7): checksum differs: expected 0x00000001, found 0x00000002"
    assert json.loads(json.dumps(finding.as_dict())) == {
        "severity": "fault",
        "kind": "BAD_CRC",
        "text": "checksum differs",
        "where": "a.log",
        "topic": None,
        "partition": None,
        "position": 12,
        "offset": 7,
        "expected": "0x00000001",
        "found": "0x00000002",
    }


def test_a_zero_that_was_told_stays() -> None:
    """Otherwise "expected 0, found 7" becomes "found 7"."""
    told = fault_of(CorruptRecordError("impossible count: expected 0, found 7", expected=0, found=7), "a.log")
    assert (told.expected, told.found) == (0, 7)
    untold = fault_of(CorruptRecordError("not JSON", found=7), "a.log")
    assert (untold.expected, untold.found) == (None, 7)


def test_the_place_of_the_error_wins() -> None:
    """Otherwise the segment is named instead of the object that is damaged."""
    error = CorruptRecordError("x").located("the.indexes")
    assert fault_of(error, "the.log").where == "the.indexes"


def test_kinds_of_errors() -> None:
    """Otherwise a network failure makes exit code 1, or a lost object 3."""
    assert finding_of(CorruptRecordError("x"), "a").severity is Severity.FAULT
    assert finding_of(ObjectNotFoundError("x"), "a").kind == "MISSING_OBJECT"
    assert finding_of(StoreUnavailableError("x"), "a").severity is Severity.ERROR


def test_placed() -> None:
    """Otherwise a finding of a bucket does not say of which partition."""
    placed = note("K", "text", "a").placed("orders", 3)
    assert (placed.topic, placed.partition, placed.severity) == ("orders", 3, Severity.NOTE)
    assert fault("K", "text", "a").partition == -1
