"""Invariant 14: a compacted topic holds the last value of each key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.simulation.facts import Violation
from tests.simulation.judge.batches import Batch
from tests.simulation.judge.contents import Contents

#: How long a broker may go by a topic's earlier configuration.
_CHANGE_MS: Final = 15_000
#: How far clocks may be apart beyond what was seen of them: between two looks they drift.
_UNSEEN_MS: Final = 100


class Latest(NamedTuple):
    """The last committed record of a key."""

    offset: int
    value: bytes | None


@dataclass(slots=True)
class Clocks:
    """How far the brokers' clocks were ever off the true time.

    Attributes:
        slowest_ms, fastest_ms: Their clocks less the true time.
    """

    slowest_ms: int = 0
    fastest_ms: int = 0

    def saw(self, clock_ms: int, now_ms: int) -> None:
        """A broker's clock has a time."""
        self.slowest_ms = min(self.slowest_ms, clock_ms - now_ms)
        self.fastest_ms = max(self.fastest_ms, clock_ms - now_ms)


@dataclass(slots=True)
class TombstoneTimes:
    """When a tombstone of a topic may go at the earliest.

    The cleaning that first finds one writes the time at which it may go into its batch: that broker's clock and the
    ``delete.retention.ms`` of that moment. A later configuration does not change it, and each replica that fetches the
    batch goes by it and by its own clock (Kafka too).
    """

    _retentions: list[tuple[int, int]] = field(default_factory=list)

    def configured(self, delete_retention_ms: int, now_ms: int) -> None:
        """The topic has a ``delete.retention.ms`` from now on."""
        if not self._retentions or self._retentions[-1][1] != delete_retention_ms:
            self._retentions.append((now_ms, delete_retention_ms))

    def earliest_ms(self, sent_ms: int, clocks: Clocks) -> int:
        """The true time at which a tombstone may go."""
        ends = [since for since, _ in self._retentions[1:]]
        due = [
            max(since, sent_ms + retention_ms)  # a cleaning that had begun takes it too, from its start on
            for at, (since, retention_ms) in enumerate(self._retentions)
            if at == len(ends) or ends[at] + _CHANGE_MS >= sent_ms
        ]
        return min(due) + clocks.slowest_ms - clocks.fastest_ms - _UNSEEN_MS


def check_compacted(
    contents: Contents,
    log: Iterable[Batch],
    where: str,
    *,
    end_offset: int,
    times: TombstoneTimes,
    clocks: Clocks,
    now_ms: int,
) -> None:
    """The log has the last value of each key, and its tombstones for their time.

    Args:
        contents: What is known of the partition.
        log: A replica's local log.
        where: For words.
        end_offset: Its high watermark.
        times: Of the topic: how long a tombstone is there at least.
        clocks: Of the brokers.
        now_ms: The true time.
    """
    wanted = _latest(contents)
    held: dict[bytes, int] = {}
    for batch in log:
        if batch.is_control:
            continue
        for record in batch.records():
            _check_record(contents, record.offset, record.value, where)
            if record.key is not None:
                held[record.key] = record.offset
    for key, latest in wanted.items():
        if held.get(key, -1) >= latest.offset or latest.offset < contents.superseded.get(key, -1):
            continue
        if latest.offset >= end_offset:  # behind a high watermark that fell: compaction went by it, as it was before
            continue
        sent = contents.at[latest.offset].sent
        if latest.value is None and (sent is None or times.earliest_ms(sent.sent_ms, clocks) <= now_ms):
            continue
        text = f"{where}: key {key!r} has {latest.value!r} at {latest.offset}, and the log nothing of it from there on"
        raise Violation(14, "lost write", text)


def _latest(contents: Contents) -> dict[bytes, Latest]:
    """The last value of each key, among records that are surely committed."""
    found: dict[bytes, Latest] = {}
    for offset in sorted(contents.at):
        known = contents.at[offset]
        if known.marker is not None or known.key is None:
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
