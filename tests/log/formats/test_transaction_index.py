"""The transaction index against Kafka's vector, its queries and its malformed files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.segment_indexes import TRANSACTION_DTYPE, TransactionIndex, encode_transaction_index

VECTOR = bytes.fromhex(
    "00000000000000002328000000000000006e0000000000000096000000000000008c"
    "00000000000000002329000000000000008c00000000000000a000000000000000a1"
)
ROWS = [(9000, 110, 150, 140), (9001, 140, 160, 161)]


def test_vector_both_ways() -> None:
    """Else read_committed shows aborted records or hides committed ones."""
    index = TransactionIndex(VECTOR, 100)
    assert index.entries().tolist() == ROWS
    assert len(index) == 2
    assert encode_transaction_index(np.array(ROWS, TRANSACTION_DTYPE)) == VECTOR


@pytest.mark.parametrize(
    ("fetch", "upper", "found", "complete"),
    [
        (100, 141, [9000, 9001], True),
        (100, 140, [9000], True),
        (151, 200, [9001], False),
        (100, 200, [9000, 9001], False),
    ],
)
def test_queries(fetch: int, upper: int, found: list[int], complete: bool) -> None:
    """Else a reader stops looking for aborts too early, or never."""
    entries, done = TransactionIndex(VECTOR).collect_aborted(fetch_offset=fetch, upper_bound_offset_exclusive=upper)
    assert (entries["producer_id"].tolist(), done) == (found, complete)


def test_a_followers_entry_hides_no_later_transaction() -> None:
    """A follower of Kafka's that takes two transactions of a producer in one fetch gives the first the stable offset
    behind the second: a read of committed records would show what was aborted.
    """
    rows = [(7, 297, 302, 312), (7, 307, 310, 312)]
    index = TransactionIndex(encode_transaction_index(np.array(rows, TRANSACTION_DTYPE)))
    entries, done = index.collect_aborted(fetch_offset=307, upper_bound_offset_exclusive=308)
    assert (entries.tolist(), done) == ([(7, 307, 310)], True)


def test_a_partial_entry_is_read_past_and_reported() -> None:
    """Else a crash while the marker was appended makes the whole segment unreadable, or goes unnoticed."""
    cut = TransactionIndex(VECTOR[:-1], 100)
    assert cut.entries().tolist() == ROWS[:1]
    with pytest.raises(CorruptIndexError):
        cut.check()


@pytest.mark.parametrize("rows", [[ROWS[1], ROWS[0]], [ROWS[0], ROWS[0]], [(1, 5, 4, 6)]])
def test_what_kafka_would_refuse_is_not_written(rows: list[tuple[int, int, int, int]]) -> None:
    """Else an exported index stops a broker from loading the log."""
    with pytest.raises(ValueError):
        encode_transaction_index(np.array(rows, TRANSACTION_DTYPE))


@pytest.mark.parametrize(
    ("row", "is_sound"),
    [
        ((1, 6, 9, 14), True),  # as a follower writes it that knows of a transaction behind the marker
        ((1, 6, 9, 2**63 - 1), True),
        ((1, 6, 9, 0), True),
        ((1, 6, 9, -1), False),
        ((1, 10, 9, 10), False),
        ((1, -1, 9, 10), False),
        ((-1, 6, 9, 10), False),
        ((1, 1, 4, 5), False),
    ],
)
def test_what_an_entry_may_say(row: tuple[int, int, int, int], is_sound: bool) -> None:
    """Else a follower's segment can never be copied, or damage in an entry is."""
    data = b"\0\0" + b"".join(value.to_bytes(8, "big", signed=True) for value in row)
    if is_sound:
        TransactionIndex(data, 5).check()
        assert TransactionIndex(data).entries().tolist() == [row]
    else:
        with pytest.raises(CorruptIndexError):
            TransactionIndex(data, 5).check()


def test_malformed_files(data: Path) -> None:
    """Else damage in the index shows up as wrong records instead of an error."""
    for name in ("21-truncated", "22-version-7", "23-nonmonotonic"):
        with pytest.raises(CorruptIndexError):
            TransactionIndex((data / f"bad/index/{name}.txnindex").read_bytes(), 654).check()
    good = TransactionIndex((data / "bad/index/20-good.txnindex").read_bytes(), 654)
    good.check()
    assert encode_transaction_index(good.entries()) == bytes(good.data)
    with pytest.raises(CorruptIndexError):
        TransactionIndex(good.data, 10**6).check()
