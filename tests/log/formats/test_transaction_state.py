"""Records of the transaction coordinator's own topic."""

from __future__ import annotations

import struct

import pytest

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.transaction_state import TransactionState, parse_transaction_state, parse_transactional_id


def value_v0(partitions: bytes) -> bytes:
    return struct.pack(">hqhib", 0, 4, 1, 60000, 1) + partitions + struct.pack(">qq", 111, 99)


def test_version_0() -> None:
    """Else the state of transactions from before Kafka 4 cannot be seen."""
    one = struct.pack(">ih3sii", 1, 3, b"abc", 1, 7)
    assert parse_transaction_state(value_v0(one)) == TransactionState(0, 4, 1, 60000, 1, (("abc", (7,)),), 111, 99)
    assert parse_transaction_state(value_v0(struct.pack(">i", -1))).partitions is None


def test_version_1() -> None:
    """Else a transaction of the second protocol shows the wrong producer ids."""
    body = struct.pack(">hqhib", 1, 4, 1, 60000, 0) + b"\x00" + struct.pack(">qq", 111, -1)
    plain = TransactionState(1, 4, 1, 60000, 0, None, 111, -1)
    assert parse_transaction_state(body + b"\x00") == plain
    tags = b"\x03\x00\x08" + struct.pack(">q", 3) + b"\x01\x08" + struct.pack(">q", 5) + b"\x02\x02\x00\x02"
    state = parse_transaction_state(body + tags)
    assert (state.previous_producer_id, state.next_producer_id, state.client_transaction_version) == (3, 5, 2)


@pytest.mark.parametrize(
    "data",
    [b"", struct.pack(">h", 2), value_v0(struct.pack(">i", 2**31 - 1)), value_v0(b"")[:-1], struct.pack(">h", -1)],
)
def test_malformed_values(data: bytes) -> None:
    """Else a damaged record ends the dump with a traceback."""
    with pytest.raises(CorruptRecordError):
        parse_transaction_state(data)


def test_keys() -> None:
    """Else a transactional id is shown cut or not at all."""
    assert parse_transactional_id(b"\x00\x00\x00\x02ab") == "ab"
    for bad in (b"", b"\x00\x01\x00\x02ab", b"\x00\x00\x00\x09ab", b"\x00\x00\xff\xff"):
        with pytest.raises(CorruptRecordError):
            parse_transactional_id(bad)
