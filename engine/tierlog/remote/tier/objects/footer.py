"""The footer of a segment: totals of its records, and the place, offsets and times of each of its batches.

::

    head 12 bytes | totals 140 bytes | batches: 7 columns, each less its least value, byte planes in one zstd frame

Of an encrypted segment totals and batches are one unit each; whoever calls opens and seals them. All work per batch is
numpy's. The bytes are not trusted: what does not fit itself, or the segment that asks, is a CorruptObjectError.

Source: docs/formats/footer.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.checksums import crc32c
from tierlog._native.codecs import compress_bound, compress_into, decompress_into
from tierlog.errors import CorruptDataError, CorruptObjectError
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX
from tierlog.records.batch_table import CONTROL, HEADER_BYTES, TRANSACTIONAL
from tierlog.remote.api import Uuid
from tierlog.remote.tier.chunks.key_ring import UNIT_OVERHEAD_BYTES
from tierlog.runtime.machine.buffers import new_buffer

#: Head and totals, encrypted or not, are in the first so many bytes of the object.
TOTALS_BYTES_MAX: Final = 4096
#: A footer of more batches has no table: to read it would take too much memory.
BATCHES_MAX: Final = 1 << 20
DIGEST_BYTES: Final = 32
#: All that the table has of a batch's attributes.
ATTRIBUTES_MASK: Final = 0x7F

_MAGIC: Final = b"TLSF"
_VERSION: Final = 1
_SEALED: Final = 1
_HEAD: Final = struct.Struct("<4sBBHI")
_TOTALS: Final = struct.Struct("<II16s32sqqqqqqqqqqI")
_LEAST_OFFSET, _GREATEST_OFFSET, _LEAST_TIMESTAMP, _GREATEST_TIMESTAMP, _HAS_TRANSACTIONS = 1, 2, 4, 8, 16
_COLUMNS: Final = 7
_TABLE_HEAD: Final = struct.Struct(f"<{_COLUMNS}q{_COLUMNS}B")
_WIDTHS: Final = (0, 1, 2, 4, 8)
_FRAME_BYTES_MAX: Final = compress_bound(8 * _COLUMNS * BATCHES_MAX)
#: Batches are short rows of small numbers: higher levels of zstd gain a fiftieth, at many times the cost.
_LEVEL: Final = 1
_ZSTD: Final = 4
_OFFSET_SPAN_MAX: Final = 2**31
_INT64_MAX: Final = 2**63 - 1

Int64s = NDArray[np.int64]
#: From the stored bytes of a unit to its content, or back.
Transform = Callable[[Buffer], Buffer]


@dataclass(frozen=True, slots=True)
class FooterBinding:
    """The bytes that a footer was made of.

    Args:
        segment_id: The segment's.
        size_bytes: Of its log, as the broker had it.
        description_digest: SHA-256 of its manifest, or of its ``segment.json``.
    """

    segment_id: Uuid
    size_bytes: int
    description_digest: bytes


@dataclass(frozen=True, slots=True)
class FooterTotals:
    """The sums of a segment's batches.

    Args:
        batches: In the log.
        base_offset, last_offset: Of the first and of the last batch, both inclusive; 0 and -1 without batches.
        records: That are no control records.
        least_offset, greatest_offset: Of these records; None: there are none, or it is not known.
        least_timestamp_ms, greatest_timestamp_ms: The same.
        has_transactions: Some of the records are transactional, so that they may be aborted.
    """

    batches: int
    base_offset: int
    last_offset: int
    records: int
    least_offset: int | None
    greatest_offset: int | None
    least_timestamp_ms: int | None
    greatest_timestamp_ms: int | None
    has_transactions: bool

    def followed_by(self, other: FooterTotals) -> FooterTotals:
        """Return the sums of these batches and of those behind them; both have batches."""
        first = self if self.records else other
        last = other if other.records else self
        known = (
            self.records == 0 or other.records == 0 or None not in (self.least_timestamp_ms, other.least_timestamp_ms)
        )
        least_ms = [each.least_timestamp_ms for each in (self, other) if each.least_timestamp_ms is not None]
        greatest_ms = [each.greatest_timestamp_ms for each in (self, other) if each.greatest_timestamp_ms is not None]
        return FooterTotals(
            batches=self.batches + other.batches,
            base_offset=self.base_offset,
            last_offset=other.last_offset,
            records=self.records + other.records,
            least_offset=first.least_offset,
            greatest_offset=last.greatest_offset,
            least_timestamp_ms=min(least_ms, default=None) if known else None,
            greatest_timestamp_ms=max(greatest_ms, default=None),
            has_transactions=self.has_transactions or other.has_transactions,
        )


@dataclass(frozen=True, slots=True, eq=False)
class FooterBatches:
    """The batches of a segment, n of them, in the order of the log.

    Attributes:
        base_offset, last_offset: int64[n], rising; both inclusive.
        position, size_bytes: int64[n], bytes in the log; the batches lie one behind another from 0 on.
        record_count: int64[n], as the headers declare it.
        greatest_timestamp: int64[n], ms, as the headers have it.
        least_timestamp: int64[n], ms: least of the batch's records; meaningless where it is not known.
        times_known: bool[n]: the records were looked at, and their greatest timestamp is the header's.
        attributes: uint8[n]: codec, timestamp type, transactional, control, delete horizon, as in the header.
    """

    base_offset: Int64s
    last_offset: Int64s
    position: Int64s
    size_bytes: Int64s
    record_count: Int64s
    greatest_timestamp: Int64s
    least_timestamp: Int64s
    times_known: NDArray[np.bool_]
    attributes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.base_offset)

    @classmethod
    def joined(cls, runs: Sequence[FooterBatches]) -> FooterBatches:
        """Return the batches of all runs, in order."""
        if len(runs) == 1:
            return runs[0]
        types = {"times_known": np.bool_, "attributes": np.uint8}
        return cls(
            **{
                each.name: np.concatenate([getattr(run, each.name) for run in runs])
                if runs
                else np.zeros(0, types.get(each.name, np.int64))
                for each in fields(cls)
            }
        )

    @property
    def end_position(self) -> int:
        """Behind the last batch, bytes in the log."""
        return int(self.position[-1] + self.size_bytes[-1]) if len(self) else 0

    @property
    def has_data(self) -> NDArray[np.bool_]:
        """bool[n]: the batch has records that are no control records."""
        found: NDArray[np.bool_] = ((self.attributes & CONTROL) == 0) & (self.record_count > 0)
        return found

    @property
    def is_dense(self) -> NDArray[np.bool_]:
        """bool[n]: each offset of the batch has a record: compaction has taken none."""
        found: NDArray[np.bool_] = self.last_offset - self.base_offset + 1 == self.record_count
        return found

    def totals(self) -> FooterTotals:
        """Return the sums of all batches."""
        data = np.flatnonzero(self.has_data)
        least = greatest = least_ms = greatest_ms = None
        if len(data):
            first, last = data[0], data[-1]
            dense = self.is_dense
            least = int(self.base_offset[first]) if dense[first] else None
            greatest = int(self.last_offset[last]) if dense[last] else None
            greatest_ms = int(self.greatest_timestamp[data].max())
            least_ms = int(self.least_timestamp[data].min()) if self.times_known[data].all() else None
        return FooterTotals(
            batches=len(self),
            base_offset=int(self.base_offset[0]) if len(self) else 0,
            last_offset=int(self.last_offset[-1]) if len(self) else -1,
            records=int(self.record_count[data].sum()),
            least_offset=least,
            greatest_offset=greatest,
            least_timestamp_ms=least_ms,
            greatest_timestamp_ms=greatest_ms,
            has_transactions=bool((self.attributes[data] & TRANSACTIONAL).any()),
        )


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    """The facts of a segment that a footer holds, before it is bound to the segment's objects.

    Args:
        totals: Sums of all batches.
        first_timestamp_ms: Greatest timestamp of the first batch; 0 without one.
        end_position: Behind the last batch, bytes in the log.
        batches: All of them; None where they are more than BATCHES_MAX.
    """

    totals: FooterTotals
    first_timestamp_ms: int
    end_position: int
    batches: FooterBatches | None


class FooterHead(NamedTuple):
    """The first bytes of a footer, opened.

    Attributes:
        binding: As they say; ``require_bound`` compares it.
        totals: Sums of the batches.
        batches_position, batches_bytes: Where in the object the stored table lies; 0 bytes: there is none.
        batches_crc: CRC-32C of the opened table.
        first_timestamp_ms: Greatest timestamp of the first batch.
    """

    binding: FooterBinding
    totals: FooterTotals
    batches_position: int
    batches_bytes: int
    batches_crc: int
    first_timestamp_ms: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole object."""
        return self.batches_position + self.batches_bytes


def encode_footer(footer: SegmentFooter, binding: FooterBinding, *, seal: Transform | None = None) -> bytes:
    """Encode the footer of a segment.

    Args:
        footer: Made of all of its log.
        binding: The segment.
        seal: Encrypts a unit; None: the segment is stored in the clear.

    Raises:
        ValueError: the batches are not those of a log of that size.
    """
    if footer.end_position != binding.size_bytes:
        raise ValueError(f"batches up to {footer.end_position} of a log of {binding.size_bytes} bytes")
    table = bytes(_encode_batches(footer.batches)) if footer.batches else b""
    head = FooterHead(binding, footer.totals, 0, 0, crc32c(table) if table else 0, footer.first_timestamp_ms)
    return _joined(head, bytes(seal(table)) if seal and table else table, seal)


def rebind_footer(
    data: Buffer, binding: FooterBinding, *, seal: Transform | None = None, unseal: Transform | None = None
) -> bytes:
    """Return the same footer for the same segment under another description.

    Args:
        data: The whole object.
        binding: The new one.
        seal: As for ``encode_footer``.
        unseal: As for ``parse_totals``.

    Raises:
        CorruptObjectError: ``data`` is no footer.
    """
    head = parse_totals(data, unseal=unseal)
    stored = memoryview(data).cast("B")[head.batches_position :]
    if len(stored) != head.batches_bytes:
        raise _corrupt("the footer ends early", "TRUNCATED", expected=head.batches_bytes, found=len(stored))
    return _joined(head._replace(binding=binding), bytes(stored), seal)


def _joined(head: FooterHead, stored_table: bytes, seal: Transform | None) -> bytes:
    """Return the object: head, totals and the table as it is to be stored."""
    totals, binding = head.totals, head.binding
    known = (totals.least_offset, totals.greatest_offset, totals.least_timestamp_ms, totals.greatest_timestamp_ms)
    flags = sum(1 << place for place, value in enumerate(known) if value is not None)
    plain = _TOTALS.pack(
        0,
        head.batches_crc,
        bytes(binding.segment_id),
        binding.description_digest,
        binding.size_bytes,
        totals.batches,
        totals.base_offset,
        totals.last_offset,
        head.first_timestamp_ms,
        totals.records,
        *(value or 0 for value in known),
        flags | (_HAS_TRANSACTIONS if totals.has_transactions else 0),
    )
    stored_size = len(plain) + (UNIT_OVERHEAD_BYTES if seal else 0)
    first = _HEAD.pack(_MAGIC, _VERSION, _SEALED if seal else 0, stored_size, len(stored_table))
    plain = struct.pack("<I", crc32c(plain[4:], crc32c(first))) + plain[4:]
    return b"".join((first, bytes(seal(plain)) if seal else plain, stored_table))


def parse_totals(data: Buffer, *, unseal: Transform | None = None) -> FooterHead:
    """Parse the first bytes of a footer.

    Args:
        data: At least head and totals; more does not matter.
        unseal: Opens a unit of the segment, or raises CorruptObjectError; None: the segment is stored in the clear. A
            footer in the clear of an encrypted segment is none: whoever can write to the bucket could have made it.

    Raises:
        CorruptObjectError: these are not the first bytes of a footer of this version, or are damaged.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEAD.size:
        raise _corrupt("the footer ends early", "TRUNCATED", expected=_HEAD.size, found=len(view))
    magic, version, flags, totals_size, batches_size = _HEAD.unpack_from(view)
    if magic != _MAGIC:
        raise _corrupt("no footer: it begins with other bytes", "BAD_MAGIC")
    if version != _VERSION:
        raise _corrupt(f"a footer of version {version}, only {_VERSION} is known", "BAD_VERSION", found=version)
    if flags != (_SEALED if unseal else 0):
        raise _corrupt(
            "the footer is encrypted and the segment is not, or the other way round", "BAD_ENTRY", found=flags
        )
    overhead = UNIT_OVERHEAD_BYTES if unseal else 0
    end = _HEAD.size + totals_size
    if totals_size != _TOTALS.size + overhead or len(view) < end:
        raise _corrupt("the totals of a footer do not fit", "BAD_SIZE", expected=end, found=len(view))
    if batches_size > _FRAME_BYTES_MAX + _TABLE_HEAD.size + overhead:
        raise _corrupt("no footer's table can be so large", "OVER_LIMIT", found=batches_size)
    unit = view[_HEAD.size : end]
    plain = memoryview(unseal(unit)).cast("B") if unseal else unit
    if len(plain) != _TOTALS.size:
        raise _corrupt("the totals of a footer do not fit", "BAD_SIZE", expected=_TOTALS.size, found=len(plain))
    fields = _TOTALS.unpack(plain)
    found = crc32c(plain[4:], crc32c(view[: _HEAD.size]))
    if found != fields[0]:
        raise _corrupt("the totals do not match their checksum", "BAD_CRC", expected=fields[0], found=found)
    binding = FooterBinding(Uuid(fields[2]), fields[4], fields[3])
    return FooterHead(binding, _totals(fields), end, batches_size, fields[1], fields[8])


def _totals(fields: tuple[int, ...]) -> FooterTotals:
    """Return the totals of unpacked fields. Raises CorruptObjectError: no segment has them."""
    size_bytes, batches, base_offset, last_offset = fields[4:8]
    records, flags = fields[9], fields[14]
    known = [value if flags >> place & 1 else None for place, value in enumerate(fields[10:14])]
    sane = 0 <= batches <= max(size_bytes, 0) // HEADER_BYTES and records >= 0 and flags < 2 * _HAS_TRANSACTIONS
    if batches:
        sane &= 0 <= base_offset <= last_offset < _INT64_MAX and last_offset - base_offset < _OFFSET_SPAN_MAX
        sane &= records <= last_offset - base_offset + 1
        sane &= all(offset is None or base_offset <= offset <= last_offset for offset in known[:2])
    else:
        sane &= (size_bytes, base_offset, last_offset, records) == (0, 0, -1, 0)
    if not sane or (records == 0 and any(value is not None for value in known)):
        raise _corrupt("the totals contradict themselves", "BAD_ENTRY", found=records)
    least, greatest, least_ms, greatest_ms = known
    transactions = bool(flags & _HAS_TRANSACTIONS)
    return FooterTotals(
        batches, base_offset, last_offset, records, least, greatest, least_ms, greatest_ms, transactions
    )


def require_bound(head: FooterHead, binding: FooterBinding, *, start_offset: int, end_offset: int) -> None:
    """Check that a footer is of a segment, and of the bytes that it has now.

    Args:
        head: The footer's.
        binding: The segment's.
        start_offset: The segment's.
        end_offset: The segment's, inclusive.

    Raises:
        CorruptObjectError: it is of another segment, or of other bytes.
    """
    found = head.binding
    if found.segment_id != binding.segment_id:
        raise _corrupt(f"of another segment: {found.segment_id}, not {binding.segment_id}", "NOT_EQUAL")
    if found.size_bytes != binding.size_bytes:
        text = f"of a log of {found.size_bytes} bytes, the segment has {binding.size_bytes}"
        raise _corrupt(text, "NOT_EQUAL", expected=binding.size_bytes, found=found.size_bytes)
    if found.description_digest != binding.description_digest:
        raise _corrupt("of another description: the segment was written anew, or its key was", "NOT_EQUAL")
    totals = head.totals
    if totals.batches and not start_offset <= totals.base_offset <= totals.last_offset <= end_offset:
        text = f"of offsets {totals.base_offset} … {totals.last_offset}, the segment has {start_offset} … {end_offset}"
        raise _corrupt(text, "BAD_OFFSET", expected=end_offset, found=totals.last_offset)


def parse_batches(head: FooterHead, stored: Buffer, *, unseal: Transform | None = None) -> FooterBatches | None:
    """Parse the table of a footer.

    Args:
        head: The footer's.
        stored: Its table as stored.
        unseal: As for ``parse_totals``.

    Returns:
        None: the footer has no table.

    Raises:
        CorruptObjectError: damaged, or not what the totals say.
    """
    totals = head.totals
    if head.batches_bytes == 0 and totals.batches > BATCHES_MAX:
        return None
    if totals.batches > BATCHES_MAX or (head.batches_bytes == 0) != (totals.batches == 0):
        raise _corrupt("the table is not that of the totals", "BAD_COUNT", expected=totals.batches)
    if memoryview(stored).nbytes != head.batches_bytes:
        text = "the table of the footer ends early"
        raise _corrupt(text, "TRUNCATED", expected=head.batches_bytes, found=memoryview(stored).nbytes)
    plain = memoryview(unseal(stored) if unseal and head.batches_bytes else stored).cast("B")
    found = crc32c(plain) if head.batches_bytes else 0
    if found != head.batches_crc:
        raise _corrupt("the table does not match its checksum", "BAD_CRC", expected=head.batches_crc, found=found)
    batches = _batches_of(head, _decode_columns(plain, totals.batches))
    if batches.end_position != head.binding.size_bytes or batches.totals() != totals:
        raise _corrupt("the table does not add up to the totals", "NOT_EQUAL")
    return batches


def _encode_batches(batches: FooterBatches) -> bytearray:
    """Return the table before encryption."""
    last = batches.last_offset
    step = np.diff(batches.greatest_timestamp, prepend=batches.greatest_timestamp[:1])
    spread = batches.greatest_timestamp - batches.least_timestamp + 1
    spread[~batches.times_known | (spread < 1)] = 0
    columns = (
        batches.base_offset - np.concatenate((batches.base_offset[:1] - 1, last[:-1])) - 1,
        last - batches.base_offset + 1 - batches.record_count,
        batches.size_bytes,
        batches.record_count,
        (step << 1) ^ (step >> 63),
        spread,
        batches.attributes.astype(np.int64),
    )
    return _encode_columns([column.view(np.uint64) for column in columns])


def _encode_columns(columns: Sequence[NDArray[np.uint64]]) -> bytearray:
    least = [int(column.min()) for column in columns]
    reach = [int(column.max()) - low for column, low in zip(columns, least, strict=True)]
    widths = [next(width for width in _WIDTHS if most < 1 << 8 * width) for most in reach]
    planes = [
        (column - np.uint64(low)).astype(f"<u{width}").view(np.uint8).reshape(-1, width).T.tobytes()
        for column, low, width in zip(columns, least, widths, strict=True)
        if width
    ]
    plain = b"".join(planes)
    room = new_buffer(compress_bound(len(plain)))
    frame = room[: compress_into(plain, room, level=_LEVEL)] if plain else b""
    signed = (low - (1 << 64) if low >> 63 else low for low in least)
    return bytearray(_TABLE_HEAD.pack(*signed, *widths)) + frame


def _decode_columns(plain: memoryview, count: int) -> list[Int64s]:
    """Return the seven columns. Raises CorruptObjectError: the bytes are no table of so many batches."""
    if count == 0:
        return [np.zeros(0, np.int64)] * _COLUMNS
    if len(plain) < _TABLE_HEAD.size:
        raise _corrupt("the table ends early", "TRUNCATED", expected=_TABLE_HEAD.size, found=len(plain))
    fields = _TABLE_HEAD.unpack_from(plain)
    widths, frame = fields[_COLUMNS:], plain[_TABLE_HEAD.size :]
    if not set(widths) <= set(_WIDTHS):
        raise _corrupt("a column of the table has an impossible width", "BAD_ENTRY", found=max(widths))
    room = new_buffer(count * sum(widths))
    if len(room) or len(frame):
        try:
            size = decompress_into(frame, _ZSTD, room)
        except CorruptDataError as cause:
            raise _corrupt(f"the frame of the table is corrupt: {cause.text}", cause.fault) from cause
        if size != len(room):
            raise _corrupt("the frame of the table has another size", "BAD_SIZE", expected=len(room), found=size)
    columns, at = [], 0
    for least, width in zip(fields[:_COLUMNS], widths, strict=True):
        column = np.full(count, least, np.int64)
        if width:
            planes = np.frombuffer(room, np.uint8, count * width, at).reshape(width, count)
            column += np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(count).astype(np.uint64).view(np.int64)
            at += count * width
        columns.append(column)
    return columns


def _batches_of(head: FooterHead, columns: list[Int64s]) -> FooterBatches:
    """Return the batches of the table's columns. Raises CorruptObjectError: no log has them."""
    gap, missing, size_bytes, record_count, zigzag, spread, attributes = columns
    bounds = (
        (gap, 0, _OFFSET_SPAN_MAX),
        (missing, 0, _OFFSET_SPAN_MAX),
        (size_bytes, HEADER_BYTES, BATCH_SIZE_BYTES_MAX),
        (record_count, 0, _OFFSET_SPAN_MAX),
        (missing + record_count, 1, _OFFSET_SPAN_MAX),
        (spread, 0, _INT64_MAX),
        (attributes, 0, ATTRIBUTES_MASK),
    )
    for column, low, high in bounds:
        if len(column) and not low <= int(column.min()) <= int(column.max()) <= high:
            raise _corrupt("a row of the table is impossible", "BAD_ENTRY", expected=high, found=int(column.max()))
    if len(gap) and gap[0] != 0:
        raise _corrupt("a row of the table is impossible", "BAD_ENTRY", found=int(gap[0]))
    # At most 2^20 rows, each below 2^33: no sum overflows before it is compared with the totals'.
    behind = np.cumsum(gap + missing + record_count)
    base_offset = head.totals.base_offset + behind - missing - record_count
    greatest = head.first_timestamp_ms + np.cumsum(
        (zigzag.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(zigzag & 1)
    )
    least = greatest - spread + 1
    known = spread > 0
    if (known & (least > greatest)).any():
        raise _corrupt("a time of the table is impossible", "BAD_TIMESTAMP")
    return FooterBatches(
        base_offset,
        head.totals.base_offset + behind - 1,
        np.cumsum(size_bytes) - size_bytes,
        size_bytes,
        record_count,
        greatest,
        np.where(known, least, 0),
        known,
        attributes.astype(np.uint8),
    )


def _corrupt(text: str, fault: str, *, expected: int = 0, found: int = 0) -> CorruptObjectError:
    return CorruptObjectError(text, fault=fault, expected=expected, found=found)
