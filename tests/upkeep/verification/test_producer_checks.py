"""Transaction index and producer snapshot against what the log proves."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.batches import Batch, encode
from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.formats.producer_snapshot import ProducerEntry, parse_producer_snapshot
from tierlog.upkeep.verification.log_walk import LogWalk
from tierlog.upkeep.verification.segment_checks import ProducerChecks


def data(offset: int, producer_id: int, *, epoch: int = 0) -> Batch:
    return Batch(offset, (b"a", b"b"), producer_id=producer_id, producer_epoch=epoch, transactional=True)


def marker(offset: int, producer_id: int, kind: str, *, epoch: int = 0) -> Batch:
    return Batch(offset, (b"",), producer_id=producer_id, producer_epoch=epoch, transactional=True, marker=kind)


# Producer 1 aborts 10–13 at 14, producer 2 commits, producer 1 leaves 17–18 open.
LOG = [data(10, 1), data(12, 1), marker(14, 1, "abort"), data(15, 2), data(17, 1), marker(19, 2, "commit")]
ABORTED = [(1, 10, 14, 15)]
STATE = [
    ProducerEntry(1, 0, 18, 18, 1, 0, 7, 17),
    ProducerEntry(2, 0, 16, 16, 1, 0, 7, -1),
]


def entry(producer_id: int, first: int, last: int, stable: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer_id, first, last, stable)


def findings(
    aborted: Sequence[tuple[int, int, int, int]] | bytes | None = ABORTED,
    state: Sequence[ProducerEntry] | None = STATE,
    log: Sequence[Batch] | bytes = LOG,
    end_offset: int = 19,
) -> list[Finding]:
    index = b"".join(entry(*each) for each in aborted) if isinstance(aborted, list) else aborted
    check = ProducerChecks(
        transaction_index=index,
        transaction_index_where="a.txnindex",
        snapshot=state,
        snapshot_where="a.snapshot",
        end_offset=end_offset,
    )
    content = log if isinstance(log, bytes) else b"".join(encode(batch) for batch in log)
    walk = LogWalk([content[at : at + 100] for at in range(0, len(content), 100)], "a.log")
    found = [finding for run in walk for finding in check.observe(run)]
    return found + list(check.finish(walk))


def test_what_fits_passes() -> None:
    """Otherwise verify is of no use on sound data."""
    assert not findings()


@pytest.mark.parametrize(
    ("aborted", "kind"),
    [
        ([], "MISSING_ABORT"),
        ([(1, 10, 14, 15), (2, 15, 19, 20)], "ABORT_WITHOUT_MARKER"),
        ([(1, 10, 12, 13), (1, 10, 14, 15)], "ABORT_WITHOUT_MARKER"),
        ([(3, 10, 14, 15)], "ABORT_PRODUCER"),
        ([(1, 12, 14, 15)], "ABORT_FIRST_OFFSET"),
        (b"\0" * 20, "BAD_SIZE"),
    ],
)
def test_a_wrong_transaction_index_is_named(aborted: list[tuple[int, int, int, int]] | bytes, kind: str) -> None:
    """Otherwise read_committed shows aborted records, or hides committed ones."""
    found = findings(aborted)
    assert kind in [finding.kind for finding in found]
    assert all(finding.where == "a.txnindex" for finding in found)


def test_a_transaction_that_began_earlier_passes() -> None:
    """Otherwise the first segment after a roll inside a transaction is called damaged."""
    assert not findings([(1, 3, 14, 15)])
    assert not findings([(9, 3, 14, 15)], None, [marker(14, 9, "abort")])
    assert not findings([], None, [marker(14, 9, "abort")])  # nothing to abort, as far as this segment shows


@pytest.mark.parametrize(
    ("place", "change", "kind"),
    [
        (0, {"last_offset": 13}, "SNAPSHOT_OFFSET"),
        (0, {"last_offset": 25}, "SNAPSHOT_OFFSET"),
        (0, {"producer_epoch": 3}, "SNAPSHOT_EPOCH"),
        (0, {"transaction_first_offset": -1}, "SNAPSHOT_TRANSACTION"),
        (0, {"transaction_first_offset": 18}, "SNAPSHOT_TRANSACTION"),
        (1, {"transaction_first_offset": 15}, "SNAPSHOT_TRANSACTION"),
    ],
)
def test_a_wrong_producer_is_named(place: int, change: dict[str, int], kind: str) -> None:
    """Otherwise a broker that loads the snapshot fences sound producers or exposes open transactions."""
    state = list(STATE)
    state[place] = replace(state[place], **change)
    (finding,) = findings(state=state)
    assert (finding.severity, finding.kind, finding.position) == (Severity.FAULT, kind, 10 + 46 * place)


def test_producers_that_expired_or_came_before_pass() -> None:
    """Otherwise each quiet producer is a false fault."""
    assert not findings(state=[])
    assert not findings(state=[*STATE, ProducerEntry(77, 3, 5, 9, 0, 0, -1, -1)])


def test_a_marker_of_a_newer_epoch_clears_the_batches() -> None:
    """Otherwise every producer of transactions v2 (Kafka 4) is a false fault."""
    log = [data(10, 1), marker(12, 1, "commit", epoch=1)]
    assert not findings([], [ProducerEntry(1, 1, -1, -1, 0, 0, 7, -1)], log, end_offset=12)


# A segment that the cleaner went over: what lies between 12 and 20 is gone, and so is what lies behind 21.
CLEANED = [data(10, 1), marker(12, 1, "commit"), data(20, 2)]


@pytest.mark.parametrize(
    "state",
    [
        ProducerEntry(1, 0, 15, 15, 1, 0, 7, 14),  # a transaction that was open at the snapshot
        ProducerEntry(1, 0, 25, 25, 1, 0, 7, 24),
        ProducerEntry(1, 0, 15, 15, 1, 0, 7, -1),  # one that ended
        ProducerEntry(1, 3, -1, -1, 0, 0, 7, -1),  # a marker of a newer epoch, and nothing since
        ProducerEntry(1, 3, 15, 15, 1, 0, 7, -1),
        ProducerEntry(2, 0, 27, 27, 1, 0, 7, 20),
    ],
    ids=str,
)
def test_what_a_producer_did_and_the_cleaner_removed_passes(state: ProducerEntry) -> None:
    """Otherwise an intact compacted log is called faulty: its snapshots are older than its cleaning."""
    assert not findings(None, [state], CLEANED, end_offset=30)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (ProducerEntry(1, 0, 15, 15, 1, 0, 7, 10), "SNAPSHOT_TRANSACTION"),  # ended by the marker at 12
        (ProducerEntry(1, 0, 15, 15, 1, 0, 7, 12), "SNAPSHOT_TRANSACTION"),
        (ProducerEntry(1, 0, 21, 21, 1, 0, 7, 20), "SNAPSHOT_TRANSACTION"),  # there lies another producer's batch
        (ProducerEntry(1, 0, 21, 21, 1, 0, 7, -1), "SNAPSHOT_OFFSET"),
        (ProducerEntry(2, 0, 15, 15, 1, 0, 7, 20), "SNAPSHOT_OFFSET"),  # older than the batch that is there
        (ProducerEntry(2, -1, 21, 21, 1, 0, 7, 20), "SNAPSHOT_EPOCH"),
        (ProducerEntry(2, 0, 27, 27, 1, 0, 7, 24), "SNAPSHOT_TRANSACTION"),  # the batch at 20 is in no transaction
    ],
    ids=str,
)
def test_what_cleaning_cannot_explain_is_named(state: ProducerEntry, kind: str) -> None:
    """Otherwise a wrong snapshot of a compacted log passes, since the cleaner is blamed for everything."""
    assert kind in [finding.kind for finding in findings(None, [state], CLEANED, end_offset=30)]


def test_a_marker_that_the_cleaner_emptied_tells_nothing() -> None:
    """Otherwise the last, emptied marker of a producer makes a fault of the newer epoch that it had."""
    emptied = replace(marker(13, 1, "abort", epoch=4), values=())
    state = [ProducerEntry(1, 4, -1, -1, 0, 0, 7, -1)]
    assert not findings(None, state, [data(10, 1), marker(12, 1, "commit"), emptied], end_offset=13)


def test_a_damaged_log_proves_nothing() -> None:
    """Otherwise one lost batch is reported again and again by other names."""
    encoded = [bytearray(encode(batch)) for batch in LOG]
    encoded[2][-1] ^= 1  # the abort marker
    assert not findings([], STATE[1:], b"".join(encoded))


def test_snapshots_of_real_brokers_pass(data: pathlib.Path) -> None:
    """Otherwise verify cries wolf."""
    seen = 0
    for snapshot in sorted(data.glob("*/local-before/**/*.snapshot")):
        end = int(snapshot.stem) - 1
        before = [int(log.stem) for log in snapshot.parent.glob("*.log") if int(log.stem) <= end]
        if not before:
            continue
        log = snapshot.with_name(f"{max(before):020d}.log")
        index = log.with_suffix(".txnindex")
        seen += 1
        found = findings(
            index.read_bytes() if index.exists() else b"",
            parse_producer_snapshot(snapshot.read_bytes()).entries,
            log.read_bytes(),
            end,
        )
        assert not found
    assert seen > 5
