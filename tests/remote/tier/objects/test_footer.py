"""Footers: bytes to values and back, and bytes that are none."""

from __future__ import annotations

import dataclasses
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import Uuid
from tierlog.remote.tier.objects import footer as module
from tierlog.remote.tier.objects.footer import (
    TOTALS_BYTES_MAX,
    FooterBatches,
    FooterBinding,
    FooterHead,
    FooterTotals,
    SegmentFooter,
    encode_footer,
    parse_batches,
    parse_totals,
    rebind_footer,
    require_bound,
)

TIMES = st.one_of(st.integers(-1, 2**41), st.integers(-(2**63), 2**63 - 1))
#: (gap, records, missing, size, greatest, spread or None, attributes)
ROWS = st.tuples(
    st.one_of(st.just(0), st.integers(0, 1000)),
    st.one_of(st.just(1), st.integers(0, 5000)),
    st.one_of(st.just(0), st.integers(0, 5000)),
    st.one_of(st.integers(61, 40_000), st.integers(61, 256 << 20)),
    TIMES,
    st.one_of(st.none(), st.just(0), st.integers(0, 2**40)),
    st.sampled_from((0, 1, 4, 8, 16, 32, 48, 64, 84)),
)


def made(rows: list[tuple[int, int, int, int, int, int | None, int]], base_offset: int) -> FooterBatches:
    """The batches of rows, added up one by one."""
    columns: dict[str, list[Any]] = {field.name: [] for field in dataclasses.fields(FooterBatches)}
    offset, position = base_offset, 0
    for number, (gap, records, missing, size, greatest, spread, attributes) in enumerate(rows):
        offset += gap if number else 0
        span = max(1, records + missing)
        known = spread is not None and greatest - spread >= -(2**63)
        values = {
            "base_offset": offset,
            "last_offset": offset + span - 1,
            "position": position,
            "size_bytes": size,
            "record_count": records,
            "greatest_timestamp": greatest,
            "least_timestamp": greatest - (spread or 0) if known else 0,
            "times_known": known,
            "attributes": attributes,
        }
        for name, value in values.items():
            columns[name].append(value)
        offset, position = offset + span, position + size
    types = {"times_known": np.bool_, "attributes": np.uint8}
    return FooterBatches(**{name: np.array(found, types.get(name, np.int64)) for name, found in columns.items()})


def whole(batches: FooterBatches) -> SegmentFooter:
    first_ms = int(batches.greatest_timestamp[0]) if len(batches) else 0
    return SegmentFooter(batches.totals(), first_ms, batches.end_position, batches)


def bound_to(batches: FooterBatches, seed: int = 7) -> FooterBinding:
    chance = random.Random(seed)
    return FooterBinding(Uuid(chance.randbytes(16)), batches.end_position, chance.randbytes(32))


class Sealing:
    """The units of one segment, by the cipher that the plugin uses."""

    def __init__(self) -> None:
        self._cipher, self._aad = AESGCM(bytes(range(32))), b"aad" * 11
        self._units = 0

    def seal(self, plain: Buffer) -> bytes:
        self._units += 1
        nonce = struct.pack(">IQ", 0, self._units)
        return nonce + self._cipher.encrypt(nonce, bytes(plain), self._aad)

    def unseal(self, unit: Buffer) -> bytes:
        data = bytes(unit)
        try:
            return self._cipher.decrypt(data[:12], data[12:], self._aad)
        except (InvalidTag, ValueError) as cause:
            raise CorruptObjectError("not authentic", fault="NOT_AUTHENTIC") from cause


def opened(data: bytes | bytearray, sealing: Sealing | None = None) -> tuple[FooterHead, FooterBatches | None]:
    """The footer of a whole object."""
    unseal = sealing.unseal if sealing else None
    head = parse_totals(data[:TOTALS_BYTES_MAX], unseal=unseal)
    return head, parse_batches(head, data[head.batches_position :], unseal=unseal)


def same(one: FooterBatches, other: FooterBatches) -> None:
    for field in dataclasses.fields(FooterBatches):
        assert getattr(one, field.name).tolist() == getattr(other, field.name).tolist(), field.name


def summed(rows: list[tuple[int, int, int, int, int, int | None, int]], batches: FooterBatches) -> FooterTotals:
    """The totals, batch by batch."""
    data = [n for n, row in enumerate(rows) if not row[6] & 32 and row[1]]
    dense = [n for n in data if batches.last_offset[n] - batches.base_offset[n] + 1 == rows[n][1]]
    known = bool(data) and all(batches.times_known[n] for n in data)
    return FooterTotals(
        batches=len(rows),
        base_offset=int(batches.base_offset[0]) if rows else 0,
        last_offset=int(batches.last_offset[-1]) if rows else -1,
        records=sum(rows[n][1] for n in data),
        least_offset=int(batches.base_offset[data[0]]) if data and data[0] in dense else None,
        greatest_offset=int(batches.last_offset[data[-1]]) if data and data[-1] in dense else None,
        least_timestamp_ms=min(int(batches.least_timestamp[n]) for n in data) if known else None,
        greatest_timestamp_ms=max((rows[n][4] for n in data), default=None),
        has_transactions=any(rows[n][6] & 16 for n in data),
    )


@settings(deadline=None)
@given(st.lists(ROWS, max_size=60), st.integers(0, 2**62), st.booleans())
def test_what_goes_in_comes_out(
    rows: list[tuple[int, int, int, int, int, int | None, int]], base_offset: int, sealed: bool
) -> None:
    """If this fails, counts and time ranges are other ones with a footer than without."""
    batches = made(rows, base_offset)
    binding, sealing = bound_to(batches), Sealing() if sealed else None
    data = encode_footer(whole(batches), binding, seal=sealing.seal if sealing else None)
    head, found = opened(data, sealing)
    assert found is not None
    same(found, batches)
    assert head.binding == binding
    assert head.totals == batches.totals() == summed(rows, batches)
    assert head.batches_position < 512
    assert head.size_bytes == len(data)
    require_bound(head, binding, start_offset=base_offset, end_offset=2**63 - 2)


def example(count: int = 50) -> FooterBatches:
    chance = random.Random(count)
    rows: list[tuple[int, int, int, int, int, int | None, int]] = [
        (0, chance.randint(1, 30), 0, chance.randint(12_000, 20_000), 1_700_000_000_000 + 40 * n, 30, 0)
        for n in range(count)
    ]
    return made(rows, 1000)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_changed_byte_is_noticed(sealed: bool) -> None:
    """If this fails, a rotten footer gives wrong counts, or its error ends a query that needs no footer."""
    batches = example()
    sealing = Sealing() if sealed else None
    data = encode_footer(whole(batches), bound_to(batches), seal=sealing.seal if sealing else None)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptObjectError):
            opened(damaged, sealing)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_cut_footer_is_noticed(sealed: bool) -> None:
    """If this fails, half a footer counts half a segment."""
    batches = example()
    sealing = Sealing() if sealed else None
    data = encode_footer(whole(batches), bound_to(batches), seal=sealing.seal if sealing else None)
    for size in range(len(data)):
        with pytest.raises(CorruptObjectError):
            opened(data[:size], sealing)


def sealed_again(head: FooterHead, **changes: int) -> bytes:
    """Totals with other numbers, and a checksum that fits them."""
    return module._joined(head._replace(totals=dataclasses.replace(head.totals, **changes)), b"", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"batches": -1},
        {"batches": 2**40},
        {"base_offset": -5},
        {"last_offset": 2**63 - 1},
        {"last_offset": 3},
        {"records": -1},
        {"records": 10**9},
        {"least_offset": 5},
        {"greatest_offset": 2**50},
        {"batches": 0},
    ],
    ids=str,
)
def test_totals_that_cannot_be(changes: dict[str, int]) -> None:
    """If this fails, a forged footer counts more records than a segment can hold."""
    batches = example()
    head = parse_totals(encode_footer(whole(batches), bound_to(batches)))
    with pytest.raises(CorruptObjectError, match="contradict"):
        parse_totals(sealed_again(head, **changes))


def with_table(batches: FooterBatches, change: Callable[[list[Any]], None]) -> bytes:
    """A footer whose table has other columns, checksums that fit, and the totals of before."""
    columns: list[Any] = []
    encode = module._encode_columns

    def caught(given: list[Any]) -> bytearray:
        columns.extend(column.copy() for column in given)
        change(columns)
        return encode(columns)

    module._encode_columns = caught  # type: ignore[assignment]
    try:
        return encode_footer(whole(batches), bound_to(batches))
    finally:
        module._encode_columns = encode


def set_row(column: int, row: int, value: int) -> Callable[[list[Any]], None]:
    def change(columns: list[Any]) -> None:
        columns[column][row] = value % 2**64

    return change


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        (0, 0, 1),
        (0, 3, -1),
        (0, 3, 2**40),
        (1, 3, -1),
        (1, 3, 1),
        (2, 3, 60),
        (2, 3, 2**31),
        (2, 3, -1),
        (3, 3, -1),
        (3, 3, 0),
        (4, 3, 2**64 - 1),
        (5, 3, -1),
        (6, 3, 128),
        (6, 3, 32),
    ],
)
def test_tables_that_cannot_be(column: int, row: int, value: int) -> None:
    """If this fails, a forged table leads a reader outside of its log, or leaves records out."""
    with pytest.raises(CorruptObjectError):
        opened(with_table(example(), set_row(column, row, value)))


def rewritten(table: bytes) -> bytes:
    """The example's footer with other bytes as its table, and a checksum that fits them."""
    batches = example()
    head = parse_totals(encode_footer(whole(batches), bound_to(batches)))
    return module._joined(head._replace(batches_crc=crc32c(table)), table, None)


@given(st.binary(max_size=200))
def test_any_bytes_as_a_table(table: bytes) -> None:
    """If this fails, bytes of a stranger end a query by an error that nobody expects."""
    with pytest.raises(CorruptObjectError):
        opened(rewritten(table))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_footer(data: bytes) -> None:
    """If this fails, an object of a stranger under a footer's key ends a query."""
    for start in (b"", b"TLSF\1\0\x8c\0\0\0\0\0", b"TLSF\1\1\xa8\0\0\0\0\0"):
        with pytest.raises(CorruptObjectError):
            parse_totals(start + data)


def test_a_bomb_takes_no_memory() -> None:
    """If this fails, a footer of some KiB takes gigabytes of whoever plans a query."""
    import zstandard

    frame = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    for widths in ((0,) * 7, (8,) * 7, (1, 0, 0, 0, 0, 0, 0)):
        with pytest.raises(CorruptObjectError, match="frame"):
            opened(rewritten(struct.pack("<7q7B", *(0,) * 7, *widths) + frame))


def test_a_footer_of_too_many_batches_has_totals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one segment of tiny batches takes a planner's memory, or cannot be counted."""
    batches = example(50)
    data = encode_footer(dataclasses.replace(whole(batches), batches=None), bound_to(batches))
    with pytest.raises(CorruptObjectError, match="not that of the totals"):  # it was left out, and need not have been
        opened(data)
    monkeypatch.setattr(module, "BATCHES_MAX", 49)
    head, found = opened(data)
    assert (found, head.totals, len(data)) == (None, batches.totals(), head.size_bytes)
    with pytest.raises(CorruptObjectError, match="not that of the totals"):
        opened(encode_footer(whole(batches), bound_to(batches)))


def test_footers_of_other_content_are_refused() -> None:
    """If this fails, a copied or rewritten segment is counted by the batches of another one."""
    batches = example()
    binding = bound_to(batches)
    head = parse_totals(encode_footer(whole(batches), binding))
    last = int(batches.last_offset[-1])
    others = (
        (dataclasses.replace(binding, segment_id=Uuid(bytes(16))), 1000, last, "another segment"),
        (dataclasses.replace(binding, size_bytes=binding.size_bytes + 1), 1000, last, "of a log of"),
        (dataclasses.replace(binding, description_digest=bytes(32)), 1000, last, "another description"),
        (binding, 1001, last, "of offsets"),
        (binding, 1000, last - 1, "of offsets"),
    )
    for other, start, end, text in others:
        with pytest.raises(CorruptObjectError, match=text):
            require_bound(head, other, start_offset=start, end_offset=end)
    require_bound(head, binding, start_offset=999, end_offset=last + 5)


def test_a_clear_footer_of_an_encrypted_segment_is_refused() -> None:
    """If this fails, whoever can write to the bucket, and has no key, tells readers how many records it holds."""
    batches = example()
    sealing = Sealing()
    clear = encode_footer(whole(batches), bound_to(batches))
    sealed = encode_footer(whole(batches), bound_to(batches), seal=sealing.seal)
    with pytest.raises(CorruptObjectError, match="encrypted and the segment is not"):
        parse_totals(clear, unseal=sealing.unseal)
    with pytest.raises(CorruptObjectError, match="encrypted and the segment is not"):
        parse_totals(sealed)


@pytest.mark.parametrize("sealed", [False, True])
def test_another_description_takes_no_second_walk(sealed: bool) -> None:
    """If this fails, key rotation leaves footers that nobody believes, or must read every log again."""
    batches = example()
    sealing = Sealing() if sealed else None
    seal, unseal = (sealing.seal, sealing.unseal) if sealing else (None, None)
    data = encode_footer(whole(batches), bound_to(batches), seal=seal)
    again = bound_to(batches, seed=8)
    head, found = opened(rebind_footer(data, again, seal=seal, unseal=unseal), sealing)
    assert found is not None
    same(found, batches)
    assert (head.binding, head.totals) == (again, batches.totals())
    for damaged in (data[:-1], data + b"\0"):
        with pytest.raises(CorruptObjectError):
            rebind_footer(damaged, again, seal=seal, unseal=unseal)


def test_a_footer_of_other_bytes_is_not_made() -> None:
    """If this fails, a footer leaves the end of its segment out."""
    batches = example()
    with pytest.raises(ValueError, match="batches up to"):
        encode_footer(whole(batches), dataclasses.replace(bound_to(batches), size_bytes=1))


def test_it_is_small() -> None:
    """If this fails, footers cost more than a thousandth of what they describe."""
    batches = example(4000)
    assert len(encode_footer(whole(batches), bound_to(batches))) < 5 * 4000
