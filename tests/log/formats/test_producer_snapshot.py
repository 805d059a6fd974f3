"""The producer snapshot against Kafka's vectors and its malformed files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot, parse_producer_snapshot

VECTOR = bytes.fromhex(
    "0001e010200c0000000200000000000023280004000000120000000000000065000000010000018bcfe56805000000070000000000000064"
    "00000000000023290000ffffffffffffffffffffffff000000000000018bcfe56864ffffffffffffffffffffffff"
)
ENTRIES = (
    ProducerEntry(9000, 4, 18, 101, 1, 1700000000005, 7, 100),
    ProducerEntry(9001, 0, -1, -1, 0, 1700000000100, -1, -1),
)


def test_vectors_both_ways() -> None:
    """Else we misjudge which transactions are open, and a broker drops the snapshot that we export."""
    assert parse_producer_snapshot(VECTOR).entries == ENTRIES
    assert encode_producer_snapshot(ENTRIES) == VECTOR
    empty = bytes.fromhex("000148674bc700000000")
    assert parse_producer_snapshot(empty).entries == ()
    assert encode_producer_snapshot([]) == empty


def test_open_transactions_bound_what_is_stable() -> None:
    """Else read_committed goes past an open transaction."""
    snapshot = parse_producer_snapshot(VECTOR)
    assert snapshot.open_transactions() == {9000: 100}
    assert min(snapshot.open_transactions().values()) == 100
    assert not parse_producer_snapshot(encode_producer_snapshot(ENTRIES[1:])).open_transactions()


def test_sequences_wrap() -> None:
    """Else the first sequence of a batch that crosses 2^31 is printed as negative."""
    assert ProducerEntry(1, 0, 1, 10, 3, 0, -1, -1).first_sequence == 2**31 - 2
    assert ProducerEntry(1, 0, 3, 10, 3, 0, -1, -1).first_sequence == 0


def test_malformed_files(data: Path) -> None:
    """Else a broker's refusal to trust the file becomes our trust."""
    faults = {
        "31-crc": "BAD_CRC",
        "32-version-9": "BAD_VERSION",
        "33-truncated": "BAD_CRC",
        "34-count-intmax": "BAD_COUNT",
    }
    for name, fault in faults.items():
        with pytest.raises(CorruptIndexError) as caught:
            parse_producer_snapshot((data / f"bad/index/{name}.snapshot").read_bytes())
        assert caught.value.fault == fault
    assert len(parse_producer_snapshot((data / "bad/index/30-good.snapshot").read_bytes()).entries) == 3


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_the_typed_error(raw: bytes) -> None:
    """Else a hostile snapshot ends in a traceback or an allocation by its count."""
    try:
        snapshot = parse_producer_snapshot(raw)
    except CorruptIndexError:
        return
    assert encode_producer_snapshot(snapshot.entries) == raw
