"""The results of checks: faults, and notes about odd but legal facts."""

from __future__ import annotations

import enum
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Self, TypedDict, Unpack

from tierlog.errors import CorruptDataError, ObjectNotFoundError, TierlogError


class Severity(enum.StrEnum):
    """A fault makes ``tierlog verify`` end with 1, an error (something could not be checked) with 3, a note with 0."""

    FAULT = "fault"
    ERROR = "error"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault or note.

    Attributes:
        kind: As the core spells its statuses (``BAD_CRC``), or a word of the checks above it (``MISSING_PART``).
        text: The fault in words, without the other attributes.
        where: The object or file.
        topic, partition: "" and -1 if unknown.
        position: Byte position in the file (of a segment: in its original log); -1 if it does not apply.
        offset: Kafka offset of the batch or entry; -1 if unknown.
        expected, found: The value that the format demands and the value that was read; None if it does not apply.
    """

    severity: Severity
    kind: str
    text: str
    where: str
    topic: str = ""
    partition: int = -1
    position: int = -1
    offset: int = -1
    expected: int | str | None = None
    found: int | str | None = None

    def placed(self, topic: str, partition: int) -> Self:
        """Make the same finding with the partition that it belongs to."""
        return replace(self, topic=topic, partition=partition)

    def as_dict(self) -> dict[str, object]:
        """Return the finding as a JSON object; unknown values are None."""
        values = asdict(self)
        values["severity"] = str(self.severity)
        for name in ("partition", "position", "offset"):
            values[name] = None if values[name] == -1 else values[name]
        values["topic"] = self.topic or None
        return values

    def __str__(self) -> str:
        place = self.where
        if self.position >= 0:
            place += f" @ {self.position}"
        if self.offset >= 0:
            place += f" (offset {self.offset})"
        numbers = {"expected": self.expected, "found": self.found}
        seen = ", ".join(f"{name} {value}" for name, value in numbers.items() if value is not None)
        return f"{place}: {self.text}{': ' if seen else ''}{seen}"


@dataclass(slots=True)
class Report:
    """The findings of one checked thing.

    Attributes:
        name: The segment, partition or file.
        findings: The findings, in the order in which they were met.
        size_bytes, batches, records: How much of the log was read.
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    size_bytes: int = 0
    batches: int = 0
    records: int = 0

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


class Details(TypedDict, total=False):
    """The attributes of a Finding beside kind, text and where, as keyword arguments."""

    position: int
    offset: int
    expected: int | str | None
    found: int | str | None


def fault(kind: str, text: str, where: str, **details: Unpack[Details]) -> Finding:
    """Make a fault without its partition, which the caller adds."""
    return Finding(Severity.FAULT, kind, text, where, **details)


def note(kind: str, text: str, where: str, **details: Unpack[Details]) -> Finding:
    """Make a note without its partition, which the caller adds."""
    return Finding(Severity.NOTE, kind, text, where, **details)


#: Numbers at the end of a text of the core: they stand in `expected` and `found` here.
_NUMBERS = re.compile(r": (expected -?\d+, found -?\d+|computed 0x[0-9a-f]+, stored 0x[0-9a-f]+)$")


def fault_of(error: CorruptDataError, where: str) -> Finding:
    """Make a CorruptDataError of a room below, as a finding."""
    told = _NUMBERS.search(error.text) is not None  # a 0 that the text lacks means "does not apply"
    number = _checksum if error.fault == "BAD_CRC" else int
    return fault(
        error.fault,
        _NUMBERS.sub("", error.text),
        error.where or where,
        position=error.position,
        offset=error.base_offset,
        expected=number(error.expected) if told or error.expected else None,
        found=number(error.found) if told or error.found else None,
    )


def _checksum(value: int) -> str:
    return f"0x{value & 0xFFFFFFFF:08x}"


def finding_of(error: TierlogError, where: str) -> Finding:
    """Return any error of a room below, as a finding: bad bytes and missing objects are faults; other errors mean "not
    checked".
    """
    if isinstance(error, CorruptDataError):
        return fault_of(error, where)
    if isinstance(error, ObjectNotFoundError):
        return fault("MISSING_OBJECT", str(error), where)
    return Finding(Severity.ERROR, type(error).__name__, str(error), where)
