"""Invariant 14: a compacted topic holds the last value of each key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.simulation.facts import Violation
from tests.simulation.judge.batches import Batch
from tests.simulation.judge.contents import Contents

#: How far brokers' clocks may differ: a replica has what another one's cleaner left by that one's clock.
CLOCKS_MS: Final = 5_000


class Latest(NamedTuple):
    """The last committed record of a key."""

    offset: int
    value: bytes | None


def check_compacted(
    contents: Contents, log: Iterable[Batch], where: str, *, end_offset: int, delete_retention_ms: int, clock_ms: int
) -> None:
    """The log has the last value of each key, and its tombstones for their time.

    Args:
        contents: What is known of the partition.
        log: A replica's local log.
        where: For words.
        end_offset: Its high watermark.
        delete_retention_ms: Of the topic: how long a tombstone is there at least.
        clock_ms: The broker's clock.
    """
    wanted = _latest(contents, end_offset)
    held: dict[bytes, int] = {}
    for batch in log:
        if batch.is_control:
            continue
        for record in batch.records():
            _check_record(contents, record.offset, record.value, where)
            if record.key is not None:
                held[record.key] = record.offset
    for key, latest in wanted.items():
        if held.get(key, -1) >= latest.offset:
            continue
        if latest.value is None and _may_be_gone(contents, latest.offset, delete_retention_ms, clock_ms):
            continue
        text = f"{where}: key {key!r} has {latest.value!r} at {latest.offset}, and the log nothing of it from there on"
        raise Violation(14, "lost write", text)


def _latest(contents: Contents, end_offset: int) -> dict[bytes, Latest]:
    """The last value of each key, among records that are surely committed."""
    found: dict[bytes, Latest] = {}
    for offset in sorted(contents.at):
        known = contents.at[offset]
        if offset >= end_offset or known.marker is not None or known.key is None:
            continue
        name = None if known.sent is None else known.sent.transaction
        if name is not None and not contents.sent.decided.get(name):
            continue
        found[known.key] = Latest(offset, known.value)
    return found


def _check_record(contents: Contents, offset: int, value: bytes | None, where: str) -> None:
    known = contents.at.get(offset)
    if known is not None and known.value != value:
        raise Violation(14, "corrupt log", f"{where}: offset {offset} has {value!r}, and had {known.value!r}")


def _may_be_gone(contents: Contents, offset: int, delete_retention_ms: int, clock_ms: int) -> bool:
    sent = contents.at[offset].sent
    return sent is None or sent.sent_ms + delete_retention_ms <= clock_ms + CLOCKS_MS
