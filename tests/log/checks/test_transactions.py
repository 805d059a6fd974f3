"""Transactions by replay, against the broker's transaction indexes and snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.batches import Batch, encode
from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptRecordError
from tierlog.log.checks.transactions import TransactionReplay, read_markers
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import encode_transaction_index


def replay(data: bytes, known: dict[int, int] | None = None) -> TransactionReplay:
    columns = scan_batches(data)[0]
    state = TransactionReplay(dict(known or {}))
    state.add(columns, read_markers(data, columns))
    return state


def check_folder(folder: Path) -> int:
    """Replays each segment of a partition from the snapshot before it; returns the number of indexes compared."""
    compared = 0
    for log in sorted(folder.glob("*.log")):
        before = log.with_suffix(".snapshot")
        known = parse_producer_snapshot(before.read_bytes()).open_transactions() if before.exists() else {}
        state = replay(log.read_bytes(), known)
        index = log.with_suffix(".txnindex")
        assert encode_transaction_index(state.aborted()) == (index.read_bytes() if index.exists() else b""), log
        compared += index.exists()
        end = log.parent / f"{scan_batches(log.read_bytes())[0]['last_offset'].max(initial=-2) + 1:020d}.snapshot"
        if end.exists():
            assert state.open_transactions == parse_producer_snapshot(end.read_bytes()).open_transactions(), log
    return compared


def test_equal_to_the_brokers_own(data: Path) -> None:
    """Else read_committed over a log without its index shows aborted records."""
    assert check_folder(data / "main-plain/local-before/broker1/fx-txn-0") >= 3


def test_equal_to_the_brokers_own_in_the_full_set(fixtures: Path) -> None:
    """The same with a transaction that was left open, and across all runs."""
    folders = [p for p in fixtures.glob("*/local-before/**/fx-*txn*") if p.is_dir()]
    assert sum(check_folder(folder) for folder in folders) >= 20


def script(*batches: Batch) -> bytes:
    return b"".join(encode(batch) for batch in batches)


def data_of(producer: int, offset: int, count: int = 1) -> Batch:
    return Batch(offset, (b"v",) * count, producer_id=producer, producer_epoch=0, transactional=True)


def marker(producer: int, offset: int, kind: str) -> Batch:
    return Batch(offset, producer_id=producer, producer_epoch=0, marker=kind)


def test_interleaved_producers() -> None:
    """Else an abort is charged to the wrong producer, or the stable offset passes an open transaction."""
    state = replay(
        script(
            data_of(1, 0, 3), data_of(2, 3), data_of(1, 4), marker(1, 5, "abort"), Batch(6), marker(2, 7, "commit"),
            data_of(1, 8), marker(3, 9, "abort"),
        )
    )  # fmt: skip
    assert state.aborted().tolist() == [(1, 0, 5, 3)]
    assert state.aborted_ranges().tolist() == [(1, 0, 5)]
    assert state.open_transactions == {1: 8}
    assert state.last_stable_offset(10) == 8
    assert replay(b"").last_stable_offset(4) == 4


def test_markers_of_a_part_of_a_file() -> None:
    """Else a window that does not begin at byte 0 reads its markers from the wrong place."""
    head, tail = script(data_of(1, 0)), script(Batch(1), marker(1, 2, "commit"), marker(2, 3, "abort"))
    columns = scan_batches(tail, base_position=len(head))[0]
    assert read_markers(tail, columns, base_position=len(head)) == {1: 1, 2: 0}


def test_a_marker_without_a_type_is_corrupt(data: Path) -> None:
    """Else a damaged marker commits or aborts at random."""
    raw = (data / "bad/log/31-control-key-short.log").read_bytes()
    with pytest.raises(CorruptRecordError):
        read_markers(raw, scan_batches(raw)[0])
    unknown = (data / "bad/log/32-control-type-unknown.log").read_bytes()
    assert set(read_markers(unknown, scan_batches(unknown)[0]).values()) == {77}
