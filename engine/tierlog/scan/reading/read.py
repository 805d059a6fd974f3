"""Reading one range: windows of log bytes into Arrow record batches, in the columns that the user asked for.

No record becomes a Python object. Memory is bounded by the windows under way, one decompressed batch and the record
batch that is filled.

A summary (count, smallest and largest offset and timestamp) comes from batch headers where they say. An offset range is
not a count: control records take offsets, compaction takes records away. A header says how many records its batch has;
it does not say how many of them lie beyond a cut, nor the smallest timestamp of a producer's clock. Where a header does
not say enough, its batch is decoded: the answer is exact either way. The rules are the core's
(``cext/core/batch/summary.c``), the same for every binding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from tierlog._native.decoding import RecordDecoder
from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptObjectError,
    CorruptRecordError,
    ObjectNotFoundError,
    SizeLimitError,
    TierlogError,
)
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.scan.history import SINGLE_LOG_LAYOUTS
from tierlog.scan.record_summary import RecordSummary, SummaryField
from tierlog.scan.scan_range import ScanRange

_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_TYPES: dict[str, pa.DataType | None] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": None,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
    "leaderEpoch": pa.int32(),
    "segment": pa.string(),
}
#: Every column of the records table, in the order of Spark's Kafka source, ours behind.
COLUMNS = tuple(_TYPES)
#: What Spark's Kafka source gives without ``includeHeaders``.
DEFAULT_COLUMNS = COLUMNS[:7]
_CONSTANT = ("topic", "partition", "segment")

#: Size of the record batches: large enough that a hand-over does not count, small enough for a core's share of cache.
TARGET_BYTES = 8 << 20
#: The most that one batch may decompress to.
DECOMPRESSED_LIMIT = 256 << 20

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ScanCounters:
    """The cost of reading, added up over ranges. Not thread-safe: one for each thread.

    Attributes:
        requests: GETs of log bytes that were answered, those of windows read ahead and then not needed included; what
            is still under way when a range is closed is not.
        stored_bytes: Their bytes as stored: compressed and encrypted.
        log_bytes: Untransformed bytes that went into decoding: of whole windows, so up to a window more than the range.
        decompressed_bytes: Size of the compressed batches after decompression; uncompressed ones are in ``log_bytes``
            only.
        batches, records: Decoded batches, and the rows given of them.
        batches_skipped: Batches outside of the request, aborted, or damaged.
        warnings: Texts about records that were left out, with ``fail_on_data_loss`` false.
    """

    requests: int = 0
    stored_bytes: int = 0
    log_bytes: int = 0
    decompressed_bytes: int = 0
    batches: int = 0
    records: int = 0
    batches_skipped: int = 0
    warnings: list[str] = field(default_factory=list)


def records_schema(columns: Sequence[str] = DEFAULT_COLUMNS, *, timestamp_unit: str = "ms") -> pa.Schema:
    """Return the schema of these columns, in this order; all nullable.

    Raises:
        ConfigError: an unknown or repeated column, or a unit that is not "ms" or "us".
    """
    if timestamp_unit not in ("ms", "us"):
        raise ConfigError(f"timestamp_unit is 'ms' or 'us', not {timestamp_unit!r}")
    unknown = [name for name in columns if name not in _TYPES]
    if unknown or len(set(columns)) != len(columns):
        what = f"unknown columns {unknown}" if unknown else f"a column is repeated in {list(columns)}"
        raise ConfigError(f"{what}; known are {', '.join(COLUMNS)}")
    stamp = pa.timestamp(timestamp_unit, tz="UTC")
    return pa.schema([pa.field(name, _TYPES[name] or stamp) for name in columns])


def read_scan_range(
    tier: Tier,
    scan_range: ScanRange,
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    timestamp_unit: str = "ms",
    verify_checksums: bool = True,
    target_bytes: int = TARGET_BYTES,
    window_bytes: int | None = None,
    counters: ScanCounters | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the records of a range that count, by offset.

    Args:
        tier: Where the range was planned, or the same opened elsewhere.
        scan_range: What to read.
        columns: In the order wanted; see COLUMNS. ``segment`` is the id of the segment (its file name where a layout
            has no ids).
        timestamp_unit: "ms" or "us" (Spark's unit).
        verify_checksums: Check every batch's CRC before its records are given.
        target_bytes: About the size of one record batch.
        window_bytes: See ``Tier.iter_log_windows``.
        counters: Added to.

    Returns:
        Record batches of the schema of ``records_schema(columns)``; none is empty. Closing the iterator stops its
        requests.

    Raises:
        CorruptRecordError, SizeLimitError, CorruptObjectError: with topic-partition, object, byte position and offset;
            rows before it were given. With ``fail_on_data_loss`` false a damaged batch (or, where its length cannot be
            trusted, the rest of the range) is left out with a warning; of an object that was cut all whole batches
            before the cut are given, or of one in chunks those of the whole chunks.
        ObjectNotFoundError: the same for an object that is gone.
        StoreError and its kinds, EncryptionKeyError: always.
    """
    reader = _RangeReader(tier, scan_range, columns, timestamp_unit, counters or ScanCounters())
    return reader.read(verify_checksums, target_bytes, window_bytes)


def range_decoder(
    scan_range: ScanRange,
    columns: Sequence[str],
    *,
    verify_checksums: bool,
    start_position: int | None = None,
    timestamp_unit: str = "ms",
    target_bytes: int = TARGET_BYTES,
    summary: Collection[str] | None = None,
) -> RecordDecoder:
    """Make a decoder of the records that count in a range, from a batch border on: the range's first one by default."""
    return RecordDecoder(
        columns,
        base_position=scan_range.start_position if start_position is None else start_position,
        end_position=scan_range.end_position,
        verify_crc=verify_checksums,
        from_offset=scan_range.from_offset,
        to_offset_exclusive=scan_range.to_offset_exclusive,
        least_offset=scan_range.least_offset,
        greatest_offset=scan_range.greatest_offset,
        from_timestamp_ms=scan_range.from_timestamp_ms,
        to_timestamp_exclusive_ms=scan_range.to_timestamp_exclusive_ms,
        aborted=scan_range.aborted_transactions,
        timestamp_unit=timestamp_unit,
        decompressed_limit=DECOMPRESSED_LIMIT,
        target_bytes=target_bytes,
        summary=summary,
    )


class _RangeReader:
    def __init__(
        self, tier: Tier, scan_range: ScanRange, columns: Sequence[str], timestamp_unit: str, counters: ScanCounters
    ) -> None:
        self._tier = tier
        self._range = scan_range
        self._counters = counters
        self._unit = timestamp_unit
        self._rows = _Assembler(records_schema(columns, timestamp_unit=timestamp_unit), scan_range)

    def read(self, verify: bool, target_bytes: int, window_bytes: int | None) -> Iterator[pa.RecordBatch]:
        wanted = self._range
        decoder = range_decoder(
            wanted,
            self._rows.decoded_columns,
            verify_checksums=verify,
            timestamp_unit=self._unit,
            target_bytes=target_bytes,
        )
        try:
            for batch in self._decoded(decoder, window_bytes):
                if batch.num_rows:
                    self._counters.records += batch.num_rows
                    yield self._rows.assemble(batch)
        except CorruptDataError as error:
            raise error.located(wanted.describe()) from error.__cause__
        finally:
            counted = decoder.counters
            self._counters.batches += counted["batches"]
            self._counters.batches_skipped += counted["batches_skipped"]
            self._counters.decompressed_bytes += counted["decompressed_bytes"]

    def _decoded(self, decoder: RecordDecoder, window_bytes: int | None) -> Iterator[pa.RecordBatch]:
        wanted = self._range
        store = CountingStore(self._tier.store)
        with closing(self._windows(store, window_bytes)) as windows:
            try:
                for window in windows:
                    self._counters.log_bytes += len(window)
                    whole = yield from self._feed(decoder, window)
                    if decoder.done or not whole:
                        break
                yield from decoder.finish()
            except (CorruptDataError, ObjectNotFoundError) as error:
                if wanted.fail_on_data_loss:
                    raise
                self._left_out(f"the rest of the range from position {decoder.position} on", error)
                yield from decoder.finish(allow_partial=True)
            finally:
                self._counters.requests += store.counts.gets
                self._counters.stored_bytes += store.counts.bytes

    def _windows(self, store: ObjectStore, window_bytes: int | None) -> Generator[memoryview]:
        """Yield the bytes of the range; with data loss allowed, of an object that was cut also what lies before the
        cut.

        Raises:
            As ``Tier.iter_log_windows``, behind what could be read.
        """
        wanted, at = self._range, self._range.start_position
        read = partial(self._tier.iter_log_windows, wanted.segment, store=store)
        try:
            with closing(read(at, wanted.read_end_position, window_bytes=window_bytes)) as windows:
                for _, window in windows:
                    yield window
                    at += len(window)
        except CorruptObjectError as error:
            if not wanted.fail_on_data_loss:
                yield from self._before(error, at, read)
            raise

    def _before(
        self, error: CorruptObjectError, at: int, read: Callable[..., Generator[tuple[int, memoryview]]]
    ) -> Generator[memoryview]:
        """Yield the bytes before the fault in a window that could not be read: whole chunks, or the bytes that are
        there.
        """
        if self._range.segment.transformed:
            end, window_bytes = self._range.read_end_position, 1  # a chunk at a time
        elif error.fault == "TRUNCATED" and error.found:
            end, window_bytes = at + error.found, error.found
        else:
            return
        with suppress(CorruptObjectError), closing(read(at, end, window_bytes=window_bytes, prefetch=0)) as windows:
            for _, window in windows:
                yield window

    def _feed(self, decoder: RecordDecoder, window: memoryview) -> Generator[pa.RecordBatch, None, bool]:
        """Decode one window, past damaged batches where that is allowed; False if nothing behind it can be found."""
        data: memoryview | bytes = window
        while True:
            try:
                yield from decoder.feed(data)
                return True
            except (CorruptRecordError, SizeLimitError) as error:
                if self._range.fail_on_data_loss:
                    raise
                if not self._skipped(decoder, error):
                    return False
                data = b""

    def _skipped(self, decoder: RecordDecoder, error: CorruptDataError) -> bool:
        try:
            size_bytes = decoder.skip_batch()
        except (CorruptRecordError, ValueError):
            self._left_out(f"the rest of the range from position {decoder.position} on", error)
            return False
        self._left_out(f"a batch of {size_bytes} bytes", error)
        return True

    def _left_out(self, what: str, error: TierlogError) -> None:
        if isinstance(error, CorruptDataError):
            error.located(self._range.describe())
        text = f"left out {what}: {error}"
        self._counters.warnings.append(text)
        _logger.warning("%s", text)


class _Assembler:
    """The decoded columns and the constant ones of a range, in the user's order."""

    def __init__(self, schema: pa.Schema, scan_range: ScanRange) -> None:
        self._schema = schema
        segment = scan_range.segment
        self._values = {"topic": scan_range.topic, "partition": scan_range.partition, "segment": segment_label(segment)}
        self._constants: dict[str, pa.Array] = {}
        decoded = [name for name in schema.names if name not in _CONSTANT]
        # Without any decoded column the number of rows would be lost.
        self.decoded_columns = decoded or ["offset"]

    def assemble(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._constant(name, batch.num_rows) if name in _CONSTANT else batch.column(name)
            for name in self._schema.names
        ]
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """Return a constant column, made once for the largest batch and sliced."""
        array = self._constants.get(name)
        if array is None or len(array) < rows:
            array = pa.repeat(pa.scalar(self._values[name], type=self._schema.field(name).type), rows)
            self._constants[name] = array
        return array.slice(0, rows)


def segment_label(segment: StoredSegment) -> str:
    """Return the name of a segment in a table: its id, or its file where a layout has no ids."""
    if segment.layout in SINGLE_LOG_LAYOUTS:
        return segment.name.rpartition("/")[2]
    return str(segment.metadata.remote_log_segment_id.id)


def summarise_range(
    tier: Tier, scan_range: ScanRange, wanted: frozenset[SummaryField], *, verify_checksums: bool = True
) -> RecordSummary:
    """Summarise the records that ``read_scan_range`` would return.

    Args:
        tier: Where the range was planned.
        scan_range: What to read.
        wanted: The fields to compute: with fewer of them fewer batches are decoded.
        verify_checksums: Check every batch's CRC, whether it is decoded or not.

    Raises:
        CorruptRecordError, SizeLimitError, CorruptObjectError, ObjectNotFoundError, StoreError and its kinds: as
            ``read_scan_range``; nothing is left out, whatever ``fail_on_data_loss`` says.
    """
    decoder = range_decoder(scan_range, (), verify_checksums=verify_checksums, summary=wanted)
    windows = tier.iter_log_windows(scan_range.segment, scan_range.start_position, scan_range.read_end_position)
    with closing(windows):
        try:
            for _, window in windows:
                for _ in decoder.feed(window):
                    raise AssertionError("a summary has no rows")
                if decoder.done:
                    break
            list(decoder.finish())
        except CorruptDataError as error:
            raise error.located(scan_range.describe()) from error.__cause__
    return RecordSummary(**decoder.summary)  # type: ignore[arg-type]
